"""Both real programs, each in a place of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.matrix.programs import PROGRAMS, AgentPlace, Program


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    made: Program = request.param
    return made


@pytest.fixture
def place(program: Program, tmp_path: Path) -> Iterator[AgentPlace]:
    """Where the program may do all."""
    with program.place(tmp_path / "place", False) as made:
        yield made
        assert not [request for request in made.model.requests if request.refused]
