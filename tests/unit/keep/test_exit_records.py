"""Which of the two records tells how an agent's life ended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.keep import AgentFolder, ExitRecord, SpoolReader, Unknown, Verified, layout, tree_dead
from outlast.keep.facts import look
from outlast.keep.fields import FieldsDamaged, Value
from outlast.keep.reader import Exit

SHIM: dict[str, Value] = {"verified": 1, "complete": 1, "status": 3 << 8, "wall": 1, "boottime": 1}
GUARD: dict[str, Value] = {"verified": 1, "shim_status": 9, "status": 9, "wall": 2, "boottime": 2}


class Life:
    """A generation's folder without a process."""

    def __init__(self, path: Path) -> None:
        self.generation = AgentFolder.create(path).generation(1)
        self.generation.path.mkdir()
        self.fd = os.open(self.generation.path, os.O_RDONLY | os.O_DIRECTORY)

    def write(self, name: bytes, values: dict[str, Value]) -> None:
        record = layout.Record.create(name, dir_fd=self.fd)
        record.write(values)
        os.close(record.fd)

    def damage(self, name: bytes) -> None:
        """Bytes that are no frame in both slots."""
        (self.generation.path / os.fsdecode(name)).write_bytes(b"?" * 2 * layout.SLOT)

    def cut(self, name: bytes) -> None:
        os.truncate(self.generation.path / os.fsdecode(name), 10)

    def exit(self) -> ExitRecord | None:
        return ExitRecord.read(self.fd)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path / "agent")
    yield life
    os.close(life.fd)


def test_a_complete_record_of_the_shim_counts(life: Life) -> None:
    life.write(layout.EXIT, SHIM)
    life.write(layout.GUARD, GUARD)
    found = life.exit()
    assert found is not None
    assert (found.by, found.exit_status, found.signal) == ("shim", 3, None)


def test_an_incomplete_record_waits_for_its_shim_and_is_completed_by_the_guards(life: Life) -> None:
    life.write(layout.EXIT, SHIM | {"complete": 0})
    found = life.exit()
    assert found is not None
    assert (found.by, found.complete) == ("shim", False)
    assert list(SpoolReader(life.generation).frames()) == []

    life.write(layout.GUARD, GUARD)
    found = life.exit()
    assert found is not None
    assert (found.by, found.complete, found.exit_status) == ("guard", True, 3)
    (end,) = SpoolReader(life.generation).frames()
    assert isinstance(end, Exit)


@pytest.mark.parametrize("how", ["damage", "cut"])
def test_a_record_of_the_shim_that_cannot_be_read_does_not_hide_the_guards(life: Life, how: str) -> None:
    life.write(layout.EXIT, SHIM)
    getattr(life, how)(layout.EXIT)
    life.write(layout.GUARD, GUARD)
    found = life.exit()
    assert found is not None
    assert (found.by, found.signal) == ("guard", 9)
    assert isinstance(tree_dead(life.generation), Verified)
    assert bool(look(life.generation).fault) is (how == "damage")  # A damage is named all the same.


def test_a_damaged_record_alone_proves_nothing(life: Life) -> None:
    life.damage(layout.EXIT)
    with pytest.raises(FieldsDamaged):
        life.exit()
    assert isinstance(tree_dead(life.generation), Unknown)
