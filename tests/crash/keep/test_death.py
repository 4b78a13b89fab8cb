"""However an agent ends, its whole tree ends with it, and how it ended is on record."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from outlast.keep import (
    Alive,
    LaunchFailedError,
    ShimGoneError,
    TreeNotDeadError,
    Verified,
    kill_marked,
    probe,
    start_idle,
    tree_dead,
)
from outlast.keep.reader import Exit, KillBegun, OutputChunk

if TYPE_CHECKING:
    from outlast.keep import ShimClient

    from .conftest import Keep, Tools

DAEMON = """
def daemon(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(1, b"%s %d\\n" % (name, os.getpid()))
        while True:
            time.sleep(1000)
child = "import os, time; os.write(1, b'child %d\\\\n' % os.getpid()); time.sleep(1000)"
subprocess.Popen([sys.executable, "-S", "-c", child])
daemon(b"daemon")
"""
STAYS = DAEMON + "time.sleep(1000)\n"


async def family(keep: Keep, tools: Tools, client: ShimClient) -> list[int]:
    """Pids of the agent's child and of its daemon, once both have spoken."""
    found = await keep.follow(client, lambda found: tools.output(found).count(b"\n") >= 2)
    return [int(line.split()[1]) for line in tools.output(found).splitlines()]


async def test_orphan_shell(keep: Keep, tools: Tools) -> None:
    """A killed shim: the guard ends child and daemon, verifies it, and the next agent may start."""
    generation, client = await keep.run(STAYS)
    pids = await family(keep, tools, client)
    facts = probe(keep.folder).latest
    assert facts is not None
    assert facts.shim is not None
    os.kill(facts.shim.pid, signal.SIGKILL)
    record = await keep.ended(generation)
    assert (record.by, record.verified, record.signal) == ("guard", True, signal.SIGKILL)
    assert not any(tools.alive(pid) for pid in [*pids, facts.agent_pid])
    await tools.bounded(client.lost.wait())
    with pytest.raises(ShimGoneError):
        await client.status()
    found = await keep.follow(client, tools.exited)
    assert isinstance(found[-1], Exit)
    assert found[-1].record.by == "guard"
    later, _ = await keep.idle(2)
    assert later.number == 2


async def test_wrapper_kill(keep: Keep, tools: Tools) -> None:
    """An agent that forks its worker and exits 0: the worker is ended, the exit is the agent's."""
    generation, client = await keep.run(DAEMON + "time.sleep(0.2); sys.exit(0)\n")
    pids = await family(keep, tools, client)
    found = await keep.follow(client, tools.exited)
    assert isinstance(found[-1], Exit)
    record = found[-1].record
    assert (record.by, record.exit_status, record.killed, record.complete) == ("shim", 0, "", True)
    assert record.stdout_end == len(tools.output(found))
    assert not any(tools.alive(pid) for pid in pids)
    assert await keep.ended(generation) == probe_exit(keep)
    assert isinstance(tree_dead(generation), Verified)


def probe_exit(keep: Keep) -> object:
    latest = probe(keep.folder).latest
    assert latest is not None
    return latest.exit


@pytest.mark.parametrize(
    ("source", "status", "number"),
    [
        ("sys.exit(3)", 3, None),
        ("os.kill(os.getpid(), signal.SIGSEGV)", None, signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", None, signal.SIGKILL),
    ],
)
async def test_the_exit_status_or_the_signal_is_recorded(
    keep: Keep, tools: Tools, source: str, status: int | None, number: int | None
) -> None:
    generation, _ = await keep.run(source)
    record = await keep.ended(generation)
    assert (record.exit_status, record.signal, record.oom) == (status, number, False)
    assert record.max_rss_kib > 1000


async def test_a_chain_that_forks_and_exits_without_end_is_caught(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(
        """
print("chain", flush=True)
while True:
    if os.fork():
        os._exit(0) if os.getppid() != 0 and "first" in globals() else time.sleep(0.01)
    first = True
    os.setsid()
"""
    )
    await keep.follow(client, tools.has(b"chain"))
    record = await client.kill()
    assert record.verified
    await keep.ended(generation)
    from outlast.keep import proc

    latest = probe(keep.folder).latest
    assert latest is not None
    assert latest.shim is not None
    assert proc.marked(latest.marker, latest.shim.start_ticks) == ([], [])


async def test_an_agent_that_closes_stdout_lives_on(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(
        """
print("last words", flush=True)
os.close(1)
for line in sys.stdin:
    tell("heard", line)
"""
    )
    found = await keep.follow(client, lambda found: any(isinstance(f, OutputChunk) and f.eof for f in found))
    assert tools.output(found) == b"last words\n"
    await (await client.input(1, b"{}\n")).written
    await tools.until((keep.root / "heard").exists, "the agent heard it")
    assert (await client.status()).phase == "running"
    await client.close_stdin(2)
    assert (await keep.ended(generation)).exit_status == 0


async def test_a_kill_with_grace_lets_the_agent_say_goodbye(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(
        """
def bye(*_):
    print("bye", flush=True)
    sys.exit(7)
signal.signal(signal.SIGTERM, bye)
print("ready", flush=True)
while True: signal.pause()
"""
    )
    await keep.follow(client, tools.has(b"ready"))
    record = await client.kill(grace=10)
    assert (record.exit_status, record.killed, record.verified) == (7, "owner", True)
    found = await keep.follow(client, tools.exited)
    begun = next(n for n, frame in enumerate(found) if isinstance(frame, KillBegun))
    assert tools.output(found[begun:]) == b"bye\n"
    assert await keep.ended(generation) == record


async def test_a_kill_ends_an_agent_that_ignores_sigterm_after_its_grace(keep: Keep, tools: Tools) -> None:
    _, client = await keep.run(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(1000)"
    )
    await keep.follow(client, tools.has(b"ready"))
    record = await client.kill(grace=0.1)
    assert record.signal == signal.SIGKILL


async def test_an_unowned_silent_agent_ends_when_its_grace_has_run_out(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(STAYS)
    pids = await family(keep, tools, client)
    await client.set_grace(0.05)
    assert (await client.status()).phase == "running"
    await client.detach()
    record = await keep.ended(generation)
    assert (record.killed, record.verified) == ("orphaned", True)
    assert not any(tools.alive(pid) for pid in pids)


async def test_grace_vs_gate(keep: Keep, tools: Tools) -> None:
    """A grace of none, set while a person is asked: no clock ends the agent, however short it was before."""
    generation, client = await keep.run(
        "print('asks', flush=True)\nprint(sys.stdin.readline(), flush=True)\n"
    )
    await keep.follow(client, tools.has(b"asks"))
    await client.set_grace(0.05)
    await client.set_grace(None)
    await client.detach()
    looker = await keep.connect(generation)
    status = await looker.status()
    assert (status.grace, status.owned, status.phase) == (None, False, "running")
    # Longer than the grace that was: a shim that still had it would have ended the agent by now.
    await asyncio.sleep(0.2)
    assert (await looker.status()).phase == "running"
    second = await keep.attach(generation, 2)
    await second.input(1, b'"yes"\n')
    await keep.follow(second, tools.has(b"yes"))


async def test_sigterm_to_the_guard_ends_the_agent_in_order(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(STAYS)
    await family(keep, tools, client)
    facts = probe(keep.folder).latest
    assert facts is not None
    assert facts.guard is not None
    os.kill(facts.guard.pid, signal.SIGTERM)
    record = await keep.ended(generation)
    assert (record.by, record.killed, record.signal) == ("shim", "terminated", signal.SIGTERM)


async def test_with_guard_and_shim_dead_the_marker_finds_what_is_left(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(STAYS)
    pids = await family(keep, tools, client)
    facts = probe(keep.folder).latest
    assert facts is not None
    assert facts.guard is not None
    assert facts.shim is not None
    for process in (facts.guard, facts.shim):
        os.kill(process.pid, signal.SIGKILL)
        await tools.until(lambda pid=process.pid: not tools.alive(pid), "it is gone")  # type: ignore[misc]
    await tools.until(lambda: not tools.alive(facts.agent_pid), "the agent itself died with its shim")
    verdict = tree_dead(generation)
    assert isinstance(verdict, Alive)
    assert set(verdict.pids) == set(pids)
    with pytest.raises(TreeNotDeadError) as refused:
        await start_idle(keep.folder, keep.claim(2))
    assert refused.value.alive
    assert isinstance(kill_marked(generation), Verified)
    await tools.until(lambda: not any(tools.alive(pid) for pid in pids), "the kernel has buried them")
    later, _ = await keep.idle(2)
    assert later.number == 2


async def test_pid_reuse(keep: Keep, tools: Tools) -> None:
    """A recorded pid that is now another process's counts for nothing: start ticks and boot decide."""
    from outlast.keep import layout

    generation, client = await keep.run("sys.stdin.read()")
    await client.kill()
    await keep.ended(generation)
    with generation.opened() as fd:
        known = layout.read_record(layout.ID, dir_fd=fd)
        assert known is not None
        record = layout.Record.create(layout.ID, dir_fd=fd)
        values: dict[str, int | str | bytes | list[bytes] | None] = {
            name: known.text(name) for name in ("boot", "pid_ns", "marker")
        }
        values |= {name: known.integer(name) for name in ("dev", "ino")}
        for role in ("shim", "guard"):
            values[f"{role}_pid"] = os.getpid()
            values[f"{role}_ticks"] = known.integer(f"{role}_ticks")
        record.write(values)
        for name in (layout.EXIT, layout.GUARD):
            os.truncate(generation.path / os.fsdecode(name), 0)
        assert isinstance(tree_dead(generation), Verified)
        assert not probe(keep.folder).shim_alive
        record.write(values | {"boot": "another boot", "shim_ticks": 1})
        os.close(record.fd)
    verdict = tree_dead(generation)
    assert isinstance(verdict, Verified)
    assert "another boot" in verdict.evidence


POINTS = [
    "keep.lock.before",
    "keep.exec",
    "keep.guard.before",
    # Both end without a word: the marker is all that tells.
    "keep.exit.before=kill,keep.guard.before",
    "keep.input.sync.before",
    "keep.input.sync.after",
    "keep.pipe.before",
    "keep.pipe.after",
    "keep.exit.before",
    "keep.exit.after",
    "keep.start.before",
    "keep.start.after",
    "keep.floor.before",
    "keep.floor.after",
    "keep.lock.after",
    "keep.spool.append@3",
]


@pytest.mark.parametrize("name", POINTS)
async def test_a_shim_killed_at_any_point_leaves_nothing_alive_and_no_input_in_doubt_it_cannot_name(
    keep: Keep, tools: Tools, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from hashlib import sha256

    from outlast.keep import KeepError, Landing, landing

    monkeypatch.setenv("OUTLAST_FAULTS", f"{name}=kill")
    line = b'{"n": 1}\n'
    reached = ""
    try:
        _, client = await keep.run("print(sys.stdin.readline(), flush=True)\n")
        reached = "started"
        await client.input(1, line)
        reached = "accepted"
        await tools.bounded(client.lost.wait())
    except KeepError:
        pass
    monkeypatch.delenv("OUTLAST_FAULTS")
    generation = keep.folder.latest()
    if generation is not None:
        await tools.until(lambda: isinstance(tree_dead(generation), Verified), "the tree is dead")
        facts = probe(keep.folder).latest
        assert facts is not None
        if name.endswith("keep.guard.before"):
            assert facts.exit is None or facts.exit.by == "shim"
            assert (facts.exit is None) == name.startswith("keep.exit.before")
        found = landing(facts, 1, sha256(line).digest())
        expected = {
            "keep.input.sync.before": {Landing.PERHAPS_WRITTEN},
            "keep.input.sync.after": {Landing.PERHAPS_WRITTEN},
            "keep.pipe.before": {Landing.PERHAPS_WRITTEN},
            "keep.pipe.after": {Landing.PERHAPS_WRITTEN},
            "keep.exit.before": {Landing.WRITTEN},
            "keep.exit.after": {Landing.WRITTEN},
            "keep.guard.before": {Landing.WRITTEN},
            "keep.exit.before=kill,keep.guard.before": {Landing.WRITTEN},
            # The pipe takes an input until the shim has seen that nobody will read it.
            "keep.exec": {Landing.NEVER_WRITTEN, Landing.PERHAPS_WRITTEN, Landing.WRITTEN},
        }.get(name, {Landing.NEVER_WRITTEN})
        assert found in expected
        assert (reached == "accepted") <= (found is not Landing.NEVER_WRITTEN)
    raise_again, owner = await keep.idle(2)
    assert raise_again.number == (generation.number if generation else 0) + 1
    await owner.start(keep.launch("print('alive', flush=True)\nsys.stdin.read()\n"))
    await keep.follow(owner, tools.has(b"alive"))


async def test_lock_leak(keep: Keep, tools: Tools) -> None:
    """A dead shim's lock is free at once, even while what its agent left still lives."""
    generation, client = await keep.run(STAYS)
    pids = await family(keep, tools, client)
    facts = probe(keep.folder).latest
    assert facts is not None
    assert facts.guard is not None
    assert facts.shim is not None
    os.kill(facts.guard.pid, signal.SIGSTOP)
    os.kill(facts.shim.pid, signal.SIGKILL)
    await tools.until(lambda: probe(keep.folder).lock_holder is None, "the lock is free")
    assert all(tools.alive(pid) for pid in pids)
    assert isinstance(tree_dead(generation), Alive)
    os.kill(facts.guard.pid, signal.SIGCONT)
    await keep.ended(generation)
    assert not any(tools.alive(pid) for pid in pids)


async def test_without_its_guard_a_shim_starts_no_agent(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.idle()
    facts = probe(keep.folder).latest
    assert facts is not None
    assert facts.guard is not None
    guard = facts.guard
    os.kill(guard.pid, signal.SIGKILL)
    await tools.until(lambda: not tools.alive(guard.pid), "the guard is gone")
    with pytest.raises(LaunchFailedError) as failure:
        await client.start(keep.launch("print('here')"))
    assert failure.value.stage == "guard"
    assert (await keep.ended(generation)).launch_stage == "guard"


async def test_a_shim_whose_guard_was_killed_still_ends_its_own_tree(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(STAYS)
    pids = await family(keep, tools, client)
    facts = probe(keep.folder).latest
    assert facts is not None
    assert facts.guard is not None
    os.kill(facts.guard.pid, signal.SIGKILL)
    record = await client.kill()
    assert (record.by, record.verified) == ("shim", True)
    assert not any(tools.alive(pid) for pid in pids)
    assert await keep.ended(generation) == record
