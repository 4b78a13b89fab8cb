"""The shim's way into an agent: what was accepted goes into the pipe whole, or not yet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.keep import AgentFolder, Generation, SpoolReader, frames, layout
from outlast.keep.inputs import ACCEPTED, MORE_WANTED, Inputs
from outlast.keep.reader import StdinClosed, Written
from outlast.keep.spool import Spool


class Stdin:
    """An agent's stdin: what went in is read out of the pipe."""

    def __init__(self, root: Path) -> None:
        self.generation: Generation = AgentFolder.create(root / "agent").generation(1)
        self.generation.path.mkdir()
        self.folder = os.open(self.generation.path, os.O_RDONLY | os.O_DIRECTORY)
        self.spool = Spool(self.folder, "boot")
        self.inputs = Inputs(self.spool)
        self.end, write_end = os.pipe()
        for fd in (self.end, write_end):
            os.set_blocking(fd, False)
        self.inputs.begin(write_end, 1 << 20)

    def give(self, seq: int, *parts: bytes) -> list[str]:
        found = []
        for n, part in enumerate(parts):
            flags = (frames.FIRST if n == 0 else 0) | (frames.MORE if n < len(parts) - 1 else 0)
            found.append(self.inputs.part(frames.Frame(frames.INPUT, part, flags, seq, 1, 0)))
        return found

    def first_segment(self) -> Path:
        return self.generation.path / os.fsdecode(layout.segment_name(0))

    def arrived(self) -> bytes | None:
        """What is in the pipe; None: nothing, and it is open."""
        try:
            return os.read(self.end, 1 << 20)
        except BlockingIOError:
            return None

    def notes(self) -> list[str]:
        return [
            type(f).__name__
            for f in SpoolReader(self.generation).frames()
            if isinstance(f, Written | StdinClosed)
        ]


@pytest.fixture
def stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stdin]:
    monkeypatch.setattr(layout, "SEGMENT_SIZE", 4096)
    made = Stdin(tmp_path)
    yield made
    made.inputs.shut()
    os.close(made.end)
    os.close(made.folder)


PARTS = (b'"' + b"x" * 3000, b"y" * 3000, b'z"\n')


def test_empty_parts_are_no_end_of_input(stdin: Stdin) -> None:
    """A message may have parts without a byte; the agent gets the others, and its stdin stays open."""
    assert stdin.give(1, b"", b'"a', b"", b'b"\n', b"") == [MORE_WANTED] * 4 + [ACCEPTED]
    assert stdin.inputs.pump() == [1]
    assert stdin.arrived() == b'"ab"\n'
    assert stdin.arrived() is None
    assert stdin.give(2, b"{}\n") == [ACCEPTED]
    assert stdin.inputs.pump() == [2]
    assert stdin.arrived() == b"{}\n"


@pytest.mark.parametrize("harm", ["not there", "cut short"])
def test_an_accepted_input_that_cannot_be_read_again_waits(stdin: Stdin, harm: str) -> None:
    """It is not taken for written, nor its agent for one that has closed its stdin; once it can be read, all
    of it goes in."""
    assert stdin.give(1, *PARTS)[-1] == ACCEPTED
    whole = stdin.first_segment().read_bytes()
    if harm == "not there":
        stdin.first_segment().unlink()
    else:
        os.truncate(stdin.first_segment(), 2000)
    assert stdin.inputs.pump() == []
    assert stdin.arrived() is None
    retry_at = stdin.inputs.retry_at
    assert retry_at is not None
    assert (stdin.inputs.open, stdin.inputs.waiting) == (True, False)
    stdin.first_segment().write_bytes(whole)
    stdin.inputs.tick(retry_at)
    assert (stdin.inputs.open, stdin.inputs.waiting) == (True, True)
    assert stdin.inputs.pump() == [1]
    assert stdin.arrived() == b"".join(PARTS)
    assert stdin.notes() == ["Written"]


def test_an_agent_that_has_closed_its_end_is_said_to(stdin: Stdin) -> None:
    assert stdin.give(1, *PARTS)[-1] == ACCEPTED
    os.close(stdin.end)
    assert stdin.inputs.pump() == []
    assert not stdin.inputs.open
    assert stdin.notes() == ["StdinClosed"]
    stdin.end = os.open(os.devnull, os.O_RDONLY)


def test_a_close_goes_behind_the_inputs(stdin: Stdin) -> None:
    assert stdin.give(1, *PARTS)[-1] == ACCEPTED
    assert stdin.inputs.close(2) == ACCEPTED
    assert stdin.inputs.pump() == [1, 2]
    assert stdin.arrived() == b"".join(PARTS)
    assert stdin.arrived() == b""
