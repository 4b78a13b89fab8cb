"""What the spool proves about a reserved input: the table of the design, row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outlast.keep import AgentFolder, ExitRecord, GenerationFacts, InputSeen, Landing, landing
from outlast.keep.facts import ProcessFacts
from outlast.keep.fields import Fields, pack

MINE, OTHERS = b"mine", b"others"


def facts(*, alive: bool, inputs: dict[int, bytes], written: int = 0, fault: str = "") -> GenerationFacts:
    last = max(inputs, default=0)
    return GenerationFacts(
        generation=AgentFolder(Path("/nowhere")).generation(1),
        marker="m",
        shim=ProcessFacts("shim", 1, 1, "ns", "boot", alive),
        guard=None,
        agent_pid=2,
        exit=None,
        last_input=last,
        last_digest=inputs.get(last, b""),
        written_through=written,
        inputs=tuple(InputSeen(seq, digest) for seq, digest in inputs.items()),
        base=0,
        tip=100,
        fault=fault,
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (facts(alive=True, inputs={1: b"x", 2: MINE}), Landing.ACCEPTED),
        (facts(alive=True, inputs={1: b"x", 2: MINE, 3: b"y"}), Landing.ACCEPTED),
        (facts(alive=True, inputs={1: b"x"}), Landing.SEND_NOW),
        (facts(alive=False, inputs={1: b"x"}), Landing.NEVER_WRITTEN),
        (facts(alive=False, inputs={}), Landing.NEVER_WRITTEN),
        (facts(alive=False, inputs={1: b"x", 2: MINE}, written=1), Landing.PERHAPS_WRITTEN),
        (facts(alive=False, inputs={1: b"x", 2: MINE}, written=2), Landing.WRITTEN),
        (facts(alive=True, inputs={1: b"x", 2: OTHERS}), Landing.OTHER_WRITER),
        (facts(alive=False, inputs={1: b"x", 2: OTHERS}, written=2), Landing.OTHER_WRITER),
        (facts(alive=True, inputs={}), Landing.OTHER_WRITER),
        (facts(alive=False, inputs={1: b"x"}, fault="damaged at 77"), Landing.PERHAPS_WRITTEN),
    ],
)
def test_landing_of_input_two(found: GenerationFacts, expected: Landing) -> None:
    assert landing(found, 2, MINE) is expected


def test_a_shim_that_has_recorded_an_exit_takes_no_input_any_more() -> None:
    record = {"verified": 1, "complete": 0, "status": 0, "wall": 0, "boottime": 0}
    ended = ExitRecord.of(Fields(pack(record)), by="shim")
    found = facts(alive=True, inputs={1: b"x"})
    dead = replace(found, exit=ended)
    assert landing(dead, 2, MINE) is Landing.NEVER_WRITTEN
