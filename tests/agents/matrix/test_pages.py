"""The table in docs/agents.md is what the matrix found, and what is wrong in a cell is found out."""

from __future__ import annotations

import runpy
from pathlib import Path

import msgspec
import pytest
from tests.agents.matrix.cells import WHEN, WHO, Cell, faults
from tests.agents.matrix.programs import PROGRAMS

DOCS = Path(__file__).parents[3] / "docs"

GOOD = Cell(
    program="codex",
    version="1",
    who="agent",
    when="in a tool call",
    turn="failed: crashed",
    ran=1,
    told=1,
    session="same",
    answered=True,
    refused=0,
)


def test_the_page_prints_the_committed_cells() -> None:
    made = runpy.run_path(str(DOCS / "make_matrix.py"))
    text = made["PAGE"].read_text(encoding="utf-8")
    assert made["current"](text) == text, "run `make docs` and commit docs/agents.md"


def test_the_committed_cells_are_all_there_is_and_nothing_in_them_is_wrong() -> None:
    cells = msgspec.json.decode((DOCS / "agents-matrix.json").read_bytes(), type=list[Cell])
    assert [fault for cell in cells for fault in faults(cell)] == []
    expected = {(program.name, who, when) for program in PROGRAMS for who in WHO for when in WHEN}
    assert {(cell.program, cell.who, cell.when) for cell in cells} == expected
    assert len(cells) == len(expected)


def test_a_good_cell_has_no_fault() -> None:
    assert list(faults(GOOD)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"ran": 2},
        {"turn": "failed: oom_killed"},
        {"who": "runtime"},
        {"who": "runtime", "turn": "done", "ran": 0, "told": -1},
        {"when": "idle"},
        {"turn": "given again, failed: crashed"},
        {"turn": "given again, done", "ran": 0},
        {"told": 0},
        {"told": 2},
        {"told": -1},
        {"ran": 0, "told": 0},
        {"session": "another"},
        {"answered": False},
        {"refused": 1},
    ],
)
def test_a_cell_that_is_wrong_is_found_out(wrong: dict[str, object]) -> None:
    assert list(faults(msgspec.structs.replace(GOOD, **wrong)))
