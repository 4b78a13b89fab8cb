"""What the spool proves about a reserved input: the table of the design, row by row."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.keep import AgentFolder, ExitRecord, GenerationFacts, InputSeen, Landing, landing
from outlast.keep.facts import ProcessFacts
from outlast.keep.fields import Fields, pack

MINE, OTHERS = b"mine", b"others"


def ended(**inputs: int) -> ExitRecord:
    record = {"verified": 1, "complete": 1, "status": 0, "wall": 0, "boottime": 0, **inputs}
    return ExitRecord.of(Fields(pack(record)), by="shim")


def facts(
    *,
    alive: bool,
    inputs: dict[int, bytes],
    written: int = 0,
    fault: str = "",
    exit: ExitRecord | None = None,
) -> GenerationFacts:
    last = max(inputs, default=0)
    return GenerationFacts(
        generation=AgentFolder(Path("/nowhere")).generation(1),
        marker="m",
        shim=ProcessFacts("shim", 1, 1, "ns", "boot", alive),
        guard=None,
        agent_pid=2,
        exit=exit,
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
    found = facts(alive=True, inputs={1: b"x"}, exit=ended())
    assert landing(found, 2, MINE) is Landing.NEVER_WRITTEN


@pytest.mark.parametrize(
    ("read", "fault", "expected"),
    [
        (1, "", Landing.NEVER_READ),
        (0, "", Landing.NEVER_READ),
        (2, "", Landing.WRITTEN),
        (None, "", Landing.WRITTEN),
        (1, "damaged at 77", Landing.WRITTEN),
    ],
)
def test_what_a_dead_agent_left_in_its_pipe_was_never_read_unless_its_files_are_damaged(
    read: int | None, fault: str, expected: Landing
) -> None:
    known = {} if read is None else {"read_input": read}
    end = ended(last_input=2, **known)
    found = facts(alive=False, inputs={1: b"x", 2: MINE}, written=2, fault=fault, exit=end)
    assert landing(found, 2, MINE) is expected
