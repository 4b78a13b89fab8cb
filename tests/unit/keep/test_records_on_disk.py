"""A record's two slots on a disk that keeps of unsynced bytes what it likes, when the power goes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.keep import layout
from outlast.keep.layout import SLOT, Record

STEPS = 4
"""At most so many writes and syncs are one `Record.write`; one that dies leaves the rest."""


class Died(Exception):  # noqa: N818 - a fact
    """The process ended between two steps."""


class Disk:
    """A file of which only what was synced is sure to be there."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._durable = bytearray(2 * SLOT)
        self._unsynced: list[tuple[int, bytes]] = []
        self._write_all, self._left = layout.write_all, STEPS
        self.acknowledged = self.begun = 0
        path.write_bytes(self._durable)
        monkeypatch.setattr(layout, "write_all", self._write)
        monkeypatch.setattr(layout, "_sync", self._sync)

    def write(self, steps: int = STEPS) -> None:
        """A newer record, by a process that dies after so many steps."""
        self._left, self.begun = steps, self.begun + 1
        fd = os.open(self._path, os.O_RDWR)
        try:
            Record(fd).write({"epoch": self.begun})
            self.acknowledged = self.begun
        except Died:
            pass
        finally:
            os.close(fd)

    def damage(self, slot: int) -> None:
        """A slot goes bad, long after it was written."""
        self._left = 1
        self._sync(0)
        self._durable[slot * SLOT : slot * SLOT + 60] = bytes([255]) * 60
        self._path.write_bytes(self._durable)

    def _step(self) -> None:
        if not self._left:
            raise Died
        self._left -= 1

    def _write(self, fd: int, data: bytes, position: int) -> None:
        self._step()
        self._write_all(fd, data, position)
        self._unsynced.append((position, bytes(data)))
        self.check()

    def _sync(self, _: int) -> None:
        self._step()
        for position, data in self._unsynced:
            self._durable[position : position + len(data)] = data
        self._unsynced.clear()
        self.check()

    def check(self) -> None:
        """Whatever of the unsynced bytes is there after a power cut, a record is, none that is too old."""
        for content in self._after_a_cut():
            self._path.with_suffix(".cut").write_bytes(content)
            fd = os.open(self._path.with_suffix(".cut"), os.O_RDWR)
            try:
                found = Record(fd).read()
            finally:
                os.close(fd)
            epoch = 0 if found is None else found.integer("epoch")
            assert self.acknowledged <= epoch <= self.begun

    def _after_a_cut(self) -> Iterator[bytes]:
        """Each write reached the disk whole, in part, or not at all."""
        for shares in itertools.product((0.0, 0.5, 1.0), repeat=len(self._unsynced)):
            content = bytearray(self._durable)
            for (position, data), share in zip(self._unsynced, shares, strict=True):
                part = data[: int(len(data) * share)]
                content[position : position + len(part)] = part
            yield bytes(content)


def test_a_power_cut_in_any_write_leaves_the_record_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path / "floor", monkeypatch)
    for _ in range(6):
        disk.write()
    assert disk.acknowledged == 6


@pytest.mark.parametrize("steps", list(itertools.product(range(STEPS + 1), repeat=3)))
def test_a_power_cut_after_processes_that_died_in_their_writes_leaves_what_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: tuple[int, ...]
) -> None:
    disk = Disk(tmp_path / "floor", monkeypatch)
    disk.write()
    for taken in steps:
        disk.write(taken)
    disk.write()
    assert disk.acknowledged == 5


@pytest.mark.parametrize("slot", [0, 1])
def test_a_power_cut_in_the_write_after_damage_to_a_slot_leaves_the_record_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: int
) -> None:
    for whole in (1, 2, 3):
        path = tmp_path / f"floor-{whole}"
        with monkeypatch.context() as patches:
            disk = Disk(path, patches)
            for _ in range(whole):
                disk.write()
            disk.damage(slot)
            for _ in range(3):
                disk.write()
            assert disk.acknowledged == whole + 3
