"""Real processes and real kill -9: every test gets a place of its own and must leave no process behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.place import Place, place_at


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_at(tmp_path / "place") as made:
        yield made
