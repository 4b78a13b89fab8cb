"""Starting in two steps: an owner that wakes late starts nothing, and an agent starts clean."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.keep import (
    BelowFloorError,
    FolderLockHeldError,
    LaunchFailedError,
    LaunchRequest,
    RequestRefusedError,
    ShimGoneError,
    SpoolReader,
    StartFailedError,
    Verified,
    probe,
    raise_floor,
    start_idle,
    tree_dead,
)
from outlast.keep.reader import Started

if TYPE_CHECKING:
    from .conftest import Keep, Tools

STARTS = """
with open(os.environ["ROOT"] + "/starts", "a") as file:
    file.write("once\\n")
print("here")
sys.stdin.read()
"""

LATE = """
async def main():
    generation = await start_idle(folder, claim(1))
    client = await ShimClient.connect(generation)
    await client.attach(claim(1))
    say("attached", generation.number)
    try:
        await client.start(launch(sys.argv[2] + "/agent.py"))
        say("started")
    except KeepError as error:
        say(error.code)
    try:
        await start_idle(folder, claim(1))
        say("a second shim")
    except KeepError as error:
        say(error.code)
asyncio.run(main())
"""


async def test_double_agent(keep: Keep, tools: Tools) -> None:
    """An owner stopped between its attach and START wakes after another took over: one agent, never two."""
    request = keep.launch(STARTS)
    late = keep.runtime(LATE, faults="keep.start.send=stop")
    assert (await keep.hear(late)).startswith("attached")
    await tools.until(lambda: _state(late.pid) == "T", "the first owner is stopped")
    generation = keep.folder.latest()
    assert generation is not None
    second = await keep.attach(generation, 2)
    await second.start(request)
    await keep.follow(second, tools.has(b"here"))
    late.send_signal(signal.SIGCONT)
    assert await keep.hear(late) == "shim_gone"
    assert await keep.hear(late) == "folder_lock_held"
    assert (keep.root / "starts").read_text() == "once\n"


@pytest.mark.slow
async def test_an_owner_that_sleeps_past_the_start_deadline_finds_nothing_to_start(
    keep: Keep, tools: Tools
) -> None:
    keep.launch(STARTS)
    late = keep.runtime(LATE, faults="keep.start.send=stop")
    assert (await keep.hear(late)).startswith("attached")
    generation = keep.folder.latest()
    assert generation is not None
    exit_record = await keep.ended(generation)
    assert (exit_record.killed, exit_record.exit_status, exit_record.signal) == ("idle", None, None)
    raise_floor(keep.folder, keep.claim(2))
    late.send_signal(signal.SIGCONT)
    assert await keep.hear(late) == "shim_gone"
    assert await keep.hear(late) == "below_floor"
    assert not (keep.root / "starts").exists()


async def test_a_shim_below_the_floor_leaves_and_one_shim_holds_a_folder(keep: Keep) -> None:
    raise_floor(keep.folder, keep.claim(5))
    with pytest.raises(BelowFloorError) as below:
        await start_idle(keep.folder, keep.claim(4))
    assert below.value.floor == 5
    with pytest.raises(BelowFloorError):
        raise_floor(keep.folder, keep.claim(4))
    generation, _ = await keep.idle(5)
    with pytest.raises(FolderLockHeldError) as no_shim:
        await start_idle(keep.folder, keep.claim(6))
    with pytest.raises(FolderLockHeldError) as no_floor:
        raise_floor(keep.folder, keep.claim(6))
    facts = probe(keep.folder)
    assert facts.latest is not None
    assert facts.latest.shim is not None
    assert facts.latest.shim.pid == facts.lock_holder == no_shim.value.pid == no_floor.value.pid
    assert facts.latest.generation == generation


async def test_only_one_start_runs_and_generations_are_never_used_again(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(STARTS)
    with pytest.raises(RequestRefusedError) as refused:
        await client.start(keep.launch(STARTS))
    assert refused.value.reason == "started"
    await keep.follow(client, tools.has(b"here"))
    await client.kill()
    await keep.ended(generation)
    later, _ = await keep.idle(2)
    assert later.number == generation.number + 1
    assert (keep.root / "starts").read_text() == "once\n"


async def test_a_start_without_an_attach_is_refused(keep: Keep) -> None:
    generation = await start_idle(keep.folder, keep.claim(1))
    client = await keep.connect(generation)
    with pytest.raises(RequestRefusedError) as refused:
        await client.start(keep.launch(STARTS))
    assert refused.value.reason == "fenced"


@pytest.mark.parametrize(
    ("argv", "cwd", "stage"),
    [
        (("no-such-program-here",), "/", "exec"),
        (("/etc/passwd",), "/", "exec"),
        (("/bin/true",), "/no/such/folder", "cwd"),
        (("/bin/true", "a\0b"), "/", "exec"),
        (("/bin/true",), "/tmp\0x", "cwd"),
    ],
)
async def test_a_program_that_cannot_be_executed_is_a_typed_error_and_an_ended_generation(
    keep: Keep, argv: tuple[str, ...], cwd: str, stage: str
) -> None:
    generation, client = await keep.idle()
    with pytest.raises(LaunchFailedError) as failure:
        await client.start(LaunchRequest(argv, {"PATH": "/usr/bin:/bin"}, cwd))
    assert failure.value.stage == stage
    record = await keep.ended(generation)
    assert record.launch_errno == failure.value.number
    started = [frame for frame in SpoolReader(generation).frames() if isinstance(frame, Started)]
    assert [(frame.pid, frame.errno, frame.stage) for frame in started] == [(0, failure.value.number, stage)]


FEW_DESCRIPTORS = """
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
def limit(soft): resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
def held(): return len(os.listdir("/proc/self/fd"))
async def begin():
    client = None
    try:
        client = await ShimClient.connect(await start_idle(folder, claim(1)))
        await client.attach(claim(1))
        await client.start(launch("-"))
        await client.kill()
        return "started"
    except KeepError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        limit(most)
        if client is not None:
            await client.close()
        while folder.latest() and not isinstance(tree_dead(folder.latest()), Verified):
            await asyncio.sleep(0.01)
async def main():
    before = held()
    for soft in range(6, 64):
        limit(soft)
        found = await begin()
        say(held() - before, found)
        if found == "started":
            break
asyncio.run(main())
say("end")
"""


@pytest.mark.slow
async def test_too_few_descriptors_are_a_typed_error_wherever_they_run_out(keep: Keep) -> None:
    """In the owner, in the shim, or for the agent's pipes: each says what to raise, and nothing is left."""
    owner = keep.runtime(FEW_DESCRIPTORS)
    told = []
    while (line := await keep.hear(owner)) not in ("end", ""):
        told.append(line)
    *failed, last = [line.partition(" ")[2] for line in told]
    assert last == "started", told
    assert {line.partition(":")[0] for line in failed} >= {"StartFailedError", "LaunchFailedError"}
    # A shim that cannot look at who comes takes nobody in.
    mute = [line for line in failed if "ulimit -n" not in line and "AttachRefusedError" not in line]
    assert mute == []
    assert {line.partition(" ")[0] for line in told} == {"0"}, "descriptors are left open"


async def test_a_folder_that_is_gone_is_a_typed_error(keep: Keep) -> None:
    keep.folder.path.rmdir()
    with pytest.raises(StartFailedError, match="No such file"):
        await start_idle(keep.folder, keep.claim(1))


@pytest.mark.parametrize("env", [{"": "nameless"}, {"A": "b\0c"}], ids=["no name", "NUL"])
async def test_an_environment_that_no_program_can_have_is_a_typed_error(
    keep: Keep, env: dict[str, str]
) -> None:
    generation, client = await keep.idle()
    with pytest.raises(LaunchFailedError) as failure:
        await client.start(LaunchRequest(("/bin/true",), env, "/"))
    assert (failure.value.stage, failure.value.number) == ("exec", errno.EINVAL)
    record = await keep.ended(generation)
    assert (record.launch_errno, record.exit_status) == (errno.EINVAL, None)


def test_an_agent_folder_and_what_it_lies_in_are_private(tmp_path: Path) -> None:
    from outlast.keep import AgentFolder

    before = os.umask(0o022)
    try:
        AgentFolder.create(tmp_path / "a" / "b" / "c")
        AgentFolder.create(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    for name in ("a", "a/b", "a/b/c"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o700


CLEAN = """
os.umask(0)
print(json.dumps({
    "env": dict(os.environ), "fds": sorted(map(int, os.listdir("/proc/self/fd"))),
    "sid": os.getsid(0) == os.getpid(), "cwd": os.getcwd(),
    "status": [l.split() for l in open("/proc/self/status") if l.startswith(("SigBlk", "SigIgn"))],
}))
sys.stdin.read()
"""


async def test_env_marker(keep: Keep, tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent has the given environment and the marker, its own session, default signals, its pipes."""
    import json

    monkeypatch.setenv("SECRET_OF_THE_RUNTIME", "canary")
    leak, _ = os.pipe()
    os.set_inheritable(leak, True)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        generation, client = await keep.run(CLEAN)
    finally:
        signal.signal(signal.SIGHUP, before)
        os.close(leak)
        os.close(_)
    found = await keep.follow(client, tools.has(b"\n"))
    seen = json.loads(tools.output(found))
    marker = seen["env"].pop("OUTLAST_AGENT")
    assert str(generation.path) not in marker
    seen["env"].pop("LC_CTYPE", None)
    assert seen["env"] == {"PATH": os.environ["PATH"], "ROOT": str(keep.root), "LANG": "C.UTF-8"}
    # The fourth is the listing's own.
    assert seen["fds"][:3] == [0, 1, 2]
    assert len(seen["fds"]) == 4
    assert seen["sid"]
    assert seen["cwd"] == str(keep.root)
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25); 32 and 33 are libc's own (make ignores them) and
    # cannot be set.
    signals = {name: int(mask, 16) & ~(0b11 << 31) for name, mask in seen["status"]}
    assert signals == {"SigBlk:": 0, "SigIgn:": 1 << 12 | 1 << 24}


async def test_the_command_lines_of_guard_and_shim_hold_no_secret(keep: Keep) -> None:
    generation, client = await keep.idle()
    await client.start(
        LaunchRequest((sys.executable, "-c", "import sys; sys.stdin.read()"), {"TOKEN": "canary-7"}, "/")
    )
    facts = probe(keep.folder).latest
    assert facts is not None
    assert facts.shim is not None
    assert facts.guard is not None
    for pid in (facts.shim.pid, facts.guard.pid):
        for name in ("cmdline", "environ"):
            assert b"canary-7" not in _seen_by_ps(pid, name)
    for path in generation.path.iterdir():
        if path.is_file():
            assert b"canary-7" not in path.read_bytes()
            assert path.stat().st_mode & 0o077 == 0
    assert generation.path.stat().st_mode & 0o777 == 0o700
    assert "canary-7" not in repr(LaunchRequest(("x",), {"TOKEN": "canary-7"}, "/"))


async def test_a_folder_behind_a_symlink_works(keep: Keep, tools: Tools) -> None:
    from outlast.keep import AgentFolder

    link = keep.root / "link"
    link.symlink_to(keep.folder.path)
    keep.folder = AgentFolder.create(link)
    generation, client = await keep.run(STARTS)
    await keep.follow(client, tools.has(b"here"))
    await client.kill()
    assert isinstance(tree_dead(generation), Verified)


async def test_no_shim_is_a_clear_error(keep: Keep) -> None:
    from outlast.keep import ShimClient

    with pytest.raises(ShimGoneError):
        await ShimClient.connect(keep.folder.generation(1))
    assert probe(keep.folder).latest is None
    generation, client = await keep.run("pass")
    await keep.ended(generation)
    async with asyncio.timeout(10):
        await client.lost.wait()
    with pytest.raises(ShimGoneError):
        await ShimClient.connect(generation)


def _seen_by_ps(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode()
