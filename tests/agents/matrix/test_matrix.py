"""Each of four deaths at each of six moments, with the real programs and a model that refuses a history whose
calls and results don't pair up.

With OUTLAST_MATRIX=FILE what was found is written there, for `docs/make_matrix.py` (`make matrix`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.agents.matrix.cells import WHEN, WHO, Cell, When, Who, faults
from tests.agents.matrix.life import carry_out
from tests.agents.matrix.programs import PROGRAMS, Program

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]


@pytest.fixture(scope="module")
def found() -> Iterator[list[Cell]]:
    cells: list[Cell] = []
    yield cells
    target = os.environ.get("OUTLAST_MATRIX")
    if target and len(cells) == len(PROGRAMS) * len(WHO) * len(WHEN):
        lines = b",\n".join(b" " + msgspec.json.encode(cell) for cell in cells)
        Path(target).write_bytes(b"[\n" + lines + b"\n]\n")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("when", WHEN)
def test_whatever_dies_nothing_happens_twice_and_the_session_goes_on(
    program: Program, who: Who, when: When, found: list[Cell], tmp_path: Path
) -> None:
    cell = carry_out(program, who, when, tmp_path / "place")
    assert not list(faults(cell)), cell
    found.append(cell)
