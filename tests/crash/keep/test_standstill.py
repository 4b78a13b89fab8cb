"""A shim that lives and does not answer: every wait for it ends, and says why."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from outlast.keep import (
    Generation,
    ShimClient,
    ShimSilentError,
    ShimStoppedError,
    layout,
    proc,
    standstill,
    stopped,
    wake,
)
from outlast.keep.facts import look
from outlast.keep.reader import InputLine

if TYPE_CHECKING:
    from .conftest import Keep, Tools

WAITS = "sys.stdin.read()\n"
READS = "tell('got', repr([line for line in sys.stdin]))\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "LOOK", 0.05)


async def stop_shim(generation: Generation, tools: Tools) -> int:
    shim = look(generation).shim
    assert shim is not None
    os.kill(shim.pid, signal.SIGSTOP)
    await tools.until(lambda: proc.is_stopped(shim.pid), "it is stopped")
    return shim.pid


Request = Callable[[ShimClient, "Keep"], Awaitable[object]]
REQUESTS: dict[str, Request] = {
    "attach": lambda client, keep: client.attach(keep.claim(1)),
    "fence": lambda client, keep: client.fence(keep.claim(1)),
    "input": lambda client, _: client.input(1, b"one\n"),
    "close stdin": lambda client, _: client.close_stdin(1),
    "grace": lambda client, _: client.set_grace(5),
    "trim": lambda client, _: client.trim(0),
    "status": lambda client, _: client.status(),
    "detach": lambda client, _: client.detach(),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_whoever_asks_a_stopped_shim_is_told_its_pid(keep: Keep, tools: Tools, name: str) -> None:
    generation, client = await keep.run(WAITS)
    pid = await stop_shim(generation, tools)
    with pytest.raises(ShimStoppedError, match=f"pid {pid}") as error:
        await tools.bounded(REQUESTS[name](client, keep))
    assert error.value.pid == pid
    assert f"kill -CONT {pid}" in str(error.value.hint)
    assert proc.is_stopped(pid)


async def test_what_was_asked_of_a_stopped_shim_is_done_once_when_it_goes_on(
    keep: Keep, tools: Tools
) -> None:
    generation, client = await keep.run(READS)
    pid = await stop_shim(generation, tools)
    for _ in range(3):
        with pytest.raises(ShimStoppedError):
            await client.input(1, b"one\n")
    assert client.unheard
    os.kill(pid, signal.SIGCONT)
    await client.close_stdin(2)
    assert client.accepted == 2
    await tools.until((keep.root / "got").exists, "the agent has read it")
    assert (keep.root / "got").read_text() == "['one\\n']"
    found = await keep.follow(client, tools.exited)
    assert [frame.seq for frame in found if isinstance(frame, InputLine)] == [1]


async def test_whoever_ends_an_agent_continues_its_shim_and_guard(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(WAITS)
    guard = look(generation).guard
    assert guard is not None
    os.kill(guard.pid, signal.SIGSTOP)
    await stop_shim(generation, tools)
    await tools.until(
        lambda: [process.role for process in stopped(generation)] == ["shim", "guard"], "both are stopped"
    )
    record = await tools.bounded(client.kill())
    assert getattr(record, "verified", False)
    await keep.ended(generation)


async def test_a_shim_that_is_stopped_in_mid_kill_is_continued(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run("signal.signal(15, signal.SIG_IGN)\ntell('deaf', '')\n" + WAITS)
    await tools.until((keep.root / "deaf").exists, "it ignores SIGTERM")
    ending = asyncio.create_task(client.kill(1.0))
    await tools.until(lambda: bool(client.unheard), "it is asked")
    await stop_shim(generation, tools)
    await tools.bounded(ending)
    await keep.ended(generation)


async def test_a_large_input_to_a_stopped_shim_keeps_nobody_from_leaving(keep: Keep, tools: Tools) -> None:
    """More than a socket holds: what the shim did not read whole is void, and it takes the next owner in."""
    generation, client = await keep.run(READS)
    pid = await stop_shim(generation, tools)
    with pytest.raises(ShimStoppedError):
        await client.input(1, b"x" * (8 << 20) + b"\n")
    await tools.bounded(client.close())
    os.kill(pid, signal.SIGCONT)
    second = await keep.attach(generation, 2)
    await second.input(1, b"one\n")
    await second.close_stdin(2)
    await tools.until((keep.root / "got").exists, "the agent has read it")
    assert (keep.root / "got").read_text() == "['one\\n']"
    await keep.ended(generation)


async def test_nobody_is_continued_in_a_folder_that_is_not_there(keep: Keep) -> None:
    assert stopped(keep.folder.generation(7)) == ()
    wake(keep.folder.generation(7))


@contextmanager
def mute_shim(keep: Keep) -> Iterator[Generation]:
    """A generation whose shim is this process, which listens and never says a word."""
    generation = keep.folder.generation(1)
    generation.path.mkdir()
    with generation.opened() as fd, socket.socket(socket.AF_UNIX) as sock:
        here = os.fstat(fd)
        record = layout.Record.create(layout.ID, dir_fd=fd)
        known = {"boot": proc.boot_id(), "pid_ns": proc.pid_namespace(), "marker": "none"}
        ids = {"version": 1, "dev": here.st_dev, "ino": here.st_ino, "wall": 0}
        me = {"shim_pid": os.getpid(), "shim_ticks": proc.start_ticks(os.getpid()) or 0}
        record.write({**known, **ids, **me, "guard_pid": 0, "guard_ticks": 0})
        os.close(record.fd)
        sock.bind(f"/proc/self/fd/{fd}/sock")
        sock.listen()
        yield generation
        # What this process is must not be ended as a shim.
        for file in generation.path.iterdir():
            file.unlink()
        generation.path.rmdir()


@pytest.mark.parametrize("name", ["attach", "status"])
async def test_a_shim_that_runs_and_does_not_answer_is_given_up_by_name(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(standstill, "SILENCE", 0.2)
    with mute_shim(keep) as generation:
        client = await ShimClient.connect(generation)
        with pytest.raises(ShimSilentError, match="has not answered") as error:
            await REQUESTS[name](client, keep)
        assert not isinstance(error.value, ShimStoppedError)
        assert str(generation.path) in error.value.message
        await client.close()


async def test_a_tree_that_does_not_end_is_not_waited_for_for_ever(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "END_PATIENCE", 0.2)
    with mute_shim(keep) as generation:
        client = await ShimClient.connect(generation)
        with pytest.raises(ShimSilentError):
            await client.kill()
        await client.close()
