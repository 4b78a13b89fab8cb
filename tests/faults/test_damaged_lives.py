"""What lies in an agent's folder is damaged at any place: it gives the right answer, or none. Never a wrong
proof: an input that was given to the agent is not called unsent, no end is told that was not, nobody who may
live is called dead, and no owner is let in that was replaced.

The lives are real ones, of a real shim; each damage is done in place and taken back.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.crash.keep.conftest import Keep, keep

from outlast.keep import (
    ExitRecord,
    Generation,
    Landing,
    SpoolCorruptError,
    SpoolReader,
    Verified,
    landing,
    layout,
    tree_dead,
)
from outlast.keep.facts import look
from outlast.keep.fields import FieldsDamaged
from outlast.keep.reader import Exit, InputLine, SpoolFrame

__all__ = ["keep"]

LINES = (b'{"n":1,"text":"' + b"a" * 300 + b'"}\n', b'{"n":2}\n', b'{"n":3,"text":"' + b"c" * 700 + b'"}\n')
ECHOES = """
for line in sys.stdin:
    print("heard", len(line), "x" * 200, flush=True)
"""
NOT_SENT = (Landing.NEVER_WRITTEN, Landing.SEND_NOW)


@dataclass
class Life:
    """A generation that has been given LINES, and what is true of it."""

    generation: Generation
    frames: list[SpoolFrame]
    exit: ExitRecord | None
    floor: int

    @property
    def path(self) -> Path:
        return self.generation.path

    def files(self) -> list[Path]:
        named = [self.path / name for name in ("id", "exit", "guard", "stderr.log")]
        return [*named, *sorted(self.path.glob("spool.*")), self.path.parent / "floor"]


async def recorded(keep: Keep, *, ends: str) -> Life:
    """A life that ends by itself, or by kill -9 of its agent, shim and guard at once, or that goes on."""
    generation, client = await keep.run(ECHOES, epoch=3)
    for seq, line in enumerate(LINES, 1):
        await (await client.input(seq, line)).written
    await keep.follow(client, lambda found: heard(found) == len(LINES))
    if ends == "by itself":
        await client.close_stdin(len(LINES) + 1)
        await keep.ended(generation)
    elif ends == "killed":
        seen = look(generation)
        assert seen.shim is not None
        assert seen.guard is not None
        pids = (seen.guard.pid, seen.shim.pid, seen.agent_pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: each would tell of the other's end
            for pid in pids:
                os.kill(pid, number)
        while not isinstance(tree_dead(generation), Verified):
            pass
    return Life(generation, list(SpoolReader(generation).frames()), look(generation).exit, 3)


def heard(found: list[SpoolFrame]) -> int:
    text = b"".join(getattr(frame, "data", b"") for frame in found)
    return text.count(b"heard")


# --- damages -----------------------------------------------------------------------------------------

Damage = Callable[[bytes, int], bytes]


def flip(data: bytes, at: int) -> bytes:
    """One bit; which one, depends on the place."""
    return data[:at] + bytes([data[at] ^ (1 << (at * 7 % 8))]) + data[at + 1 :]


def cut(data: bytes, at: int) -> bytes:
    return data[:at]


def blank(data: bytes, at: int) -> bytes:
    """A block of zeros, as long as a disk's."""
    return data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :]


def garble(data: bytes, at: int) -> bytes:
    """A few bytes of something else."""
    return data[:at] + b"\xff\x00oLf1"[: len(data) - at] + data[at + 6 :]


@contextmanager
def damaged(path: Path, data: bytes, harmed: bytes) -> Iterator[None]:
    """In place: a folder or file made anew would be another."""

    def put(content: bytes) -> None:
        with path.open("r+b") as file:
            file.write(content)
            file.truncate(len(content))

    put(harmed)
    try:
        yield
    finally:
        put(data)


def places(size: int, most: int, chance: random.Random) -> list[int]:
    return sorted(chance.sample(range(size), most)) if size > most else list(range(size))


# --- what has to hold --------------------------------------------------------------------------------


def assert_no_wrong_proof(life: Life, what: str) -> None:
    facts = look(life.generation)
    for seq, line in enumerate(LINES, 1):
        found = landing(facts, seq, hashlib.sha256(line).digest())
        assert found not in NOT_SENT, f"{what}: input {seq} is {found}"
    if facts.exit is not None:
        assert facts.exit in known_ends(life), f"{what}: {facts.exit}"
    assert_reads_a_beginning(life, what)
    floor = floor_of(life)
    assert floor in (life.floor, "damaged"), f"{what}: the floor is {floor}"
    if life.exit is None:
        return
    dead = tree_dead(life.generation)
    assert dead.evidence, what


def known_ends(life: Life) -> list[ExitRecord | None]:
    """The shim's record, or the guard's where that cannot be read."""
    guard = None
    with life.generation.opened() as fd:
        try:
            said = layout.read_record(layout.GUARD, dir_fd=fd)
            guard = None if said is None else ExitRecord.of(said, by="guard")
        except FieldsDamaged:
            guard = None
    return [life.exit, guard]


def assert_reads_a_beginning(life: Life, what: str) -> None:
    """Frames as they were, up to some place; then an error, or an end."""
    read: list[SpoolFrame] = []
    try:
        read.extend(SpoolReader(life.generation).frames())
    except (SpoolCorruptError, FieldsDamaged):
        whole = False
    else:
        whole = True
    told = [frame for frame in read if not isinstance(frame, Exit)]
    true = [frame for frame in life.frames if not isinstance(frame, Exit)]
    assert told == true[: len(told)], f"{what}: other frames"
    if whole and any(isinstance(frame, Exit) for frame in read):
        given = sum(isinstance(frame, InputLine) for frame in told)
        assert given == len(LINES), f"{what}: an end is told after {given} inputs"


def floor_of(life: Life) -> int | str | None:
    with life.generation.folder.opened() as fd:
        try:
            floor = layout.read_floor(fd)
        except FieldsDamaged:
            return "damaged"
    return None if floor is None else floor.epoch


def damages(life: Life, most: int) -> Iterator[tuple[str, Path, bytes, bytes]]:
    chance = random.Random(1)  # noqa: S311 - where to damage, the same in each run
    for path in life.files():
        if not path.exists():
            continue
        data = path.read_bytes()
        for harm in (flip, cut, blank, garble):
            for at in places(len(data), most, chance):
                harmed = harm(data, at)
                if harmed != data:
                    yield f"{harm.__name__} {path.name} at {at} of {len(data)}", path, data, harmed


@pytest.mark.parametrize("ends", ["by itself", "killed"])
async def test_damage_to_a_dead_agents_folder_proves_nothing_wrong(keep: Keep, ends: str) -> None:
    await holds_at_every_place(keep, ends, 60)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("ends", ["by itself", "killed"])
async def test_damage_at_any_place_of_a_dead_agents_folder_proves_nothing_wrong(
    keep: Keep, ends: str
) -> None:
    await holds_at_every_place(keep, ends, 5000)


async def holds_at_every_place(keep: Keep, ends: str, most: int) -> None:
    life = await recorded(keep, ends=ends)
    wrong: list[str] = []
    for what, path, data, harmed in damages(life, most):
        with damaged(path, data, harmed):
            try:
                assert_no_wrong_proof(life, what)
            except AssertionError as error:
                wrong.append(str(error).partition("\n")[0])
    assert wrong == []


async def test_damage_to_a_living_agents_records_does_not_make_it_dead(keep: Keep) -> None:
    life = await recorded(keep, ends="never")
    wrong: list[str] = []
    for what, path, data, harmed in damages(life, 60):
        if path.name in ("id", "exit", "guard"):
            with damaged(path, data, harmed):
                if isinstance(tree_dead(life.generation), Verified):
                    wrong.append(what)
    assert wrong == []
