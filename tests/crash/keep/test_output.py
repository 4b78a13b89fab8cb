"""Output: raw bytes, all of them, in constant memory, whatever the disk says."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.keep import SpoolReader, probe, start
from outlast.keep.reader import Exit, OutputChunk
from outlast.turns.seen import exit_info

if TYPE_CHECKING:
    from outlast.keep import Generation, ShimClient

    from .conftest import Keep, Tools


def shim_pid(keep: Keep) -> int:
    latest = probe(keep.folder).latest
    assert latest is not None
    assert latest.shim is not None
    return latest.shim.pid


def peak_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def digest(generation: Generation) -> tuple[str, int]:
    found, size = hashlib.sha256(), 0
    for frame in SpoolReader(generation).frames():
        if isinstance(frame, OutputChunk):
            assert frame.stdout == size
            found.update(frame.data)
            size += len(frame.data)
    return found.hexdigest(), size


async def test_huge_output(keep: Keep, tools: Tools) -> None:
    """200 MB go through unchanged while the shim stays small."""
    _, client = await keep.run(
        """
import hashlib
block, found = os.urandom(1 << 20), hashlib.sha256()
for n in range(200):
    piece = block[n:] + block[:n]
    found.update(piece)
    view = memoryview(piece)
    while view: view = view[os.write(1, view):]
tell("digest", found.hexdigest())
sys.stdin.read()
"""
    )
    await tools.until((keep.root / "digest").exists, "all is written")
    async with tools.deadline():
        await client.wait_tip(200 << 20)
    assert peak_kib(shim_pid(keep)) < 40 << 10
    assert digest(client.generation) == ((keep.root / "digest").read_text(), 200 << 20)
    await client.kill()


async def test_a_line_of_64_mebibytes_goes_in_and_comes_out(keep: Keep, tools: Tools) -> None:
    _, client = await keep.run(
        "line = sys.stdin.buffer.readline()\nos.write(1, b'%d\\n' % len(line))\n"
        "view = memoryview(line)\nwhile view: view = view[os.write(1, view):]\n",
        input_limit=65 << 20,
    )
    line = b'"' + b"x" * (64 << 20) + b'\\\\ud83d"\n'
    assert len(line) > 64 << 20
    accepted = await client.input(1, line)
    async with tools.deadline():
        await accepted.written
    found = await keep.follow(client, tools.exited)
    assert tools.output(found) == b"%d\n" % len(line) + line
    assert tools.inputs(found) == [line]


async def test_torn_utf8(keep: Keep, tools: Tools) -> None:
    """Bytes that are no text at all pass unchanged, NUL and half characters too."""
    _, client = await keep.run(
        "os.write(1, b'\\xff\\xfe\\x00\\xe2\\x82'); time.sleep(0.1); os.write(1, b'\\xac\\n')"
    )
    found = await keep.follow(client, tools.exited)
    assert tools.output(found) == b"\xff\xfe\x00\xe2\x82\xac\n"


BURST = """
import hashlib
found, count = hashlib.sha256(), 0
for n in range(3000):
    piece = (b"%08d" % n) * 128
    found.update(piece)
    view = memoryview(piece)
    while view: view = view[os.write(1, view):]
tell("digest", found.hexdigest())
"""


@pytest.mark.parametrize("lives_on", [True, False])
async def test_a_full_disk_holds_the_agent_and_drops_nothing(
    keep: Keep, tools: Tools, lives_on: bool
) -> None:
    tail = "sys.stdin.read()\n" if lives_on else ""
    generation, client = await keep.idle()
    pid = shim_pid(keep)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    # The agent inherits it, but writes no file that large.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, hard))
    await client.start(keep.launch(BURST + tail))
    looker = await keep.connect(generation)

    async with tools.deadline():
        while not (await looker.status()).blocked:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.005)
    assert (generation.path / "spool.00000000000000000000").stat().st_size <= 1 << 20
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
    await tools.until((keep.root / "digest").exists, "the agent could write on")
    if lives_on:
        async with tools.deadline():
            await client.wait_tip(3000 * 1024)
    else:
        record = await keep.ended(generation)
        assert (record.complete, record.exit_status) == (True, 0)
    assert digest(generation) == ((keep.root / "digest").read_text(), 3000 * 1024)


@pytest.mark.parametrize("lives_on", [True, False])
async def test_an_agent_whose_output_no_file_may_hold_is_ended(
    keep: Keep, tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lives_on: bool
) -> None:
    """Unlike a disk, a limit on the size of files is never freed: nobody waits for that for ever. What was
    kept stays, and the exit says why."""
    impatient = tmp_path / "keep"
    shutil.copytree(Path(start.__file__).parent, impatient, ignore=shutil.ignore_patterns("__pycache__"))
    body = impatient / "body.py"
    body.write_text(body.read_text().replace("_LIMIT_PATIENCE = 30.0", "_LIMIT_PATIENCE = 0.05"))
    command = start._command()
    monkeypatch.setattr(start, "_command", lambda: [*command[:-1], str(impatient)])
    generation, client = await keep.idle()
    pid = shim_pid(keep)
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (8192, hard))
    tail = "sys.stdin.read()\n" if lives_on else "sys.exit(5)\n"
    await client.start(keep.launch("os.write(1, b'x' * 30_000)\n" + tail))
    record = await keep.ended(generation)
    assert (record.verified, record.killed) == (True, "file_limit" if lives_on else "")
    assert record.stdout_end is not None
    assert record.stdout_end < 30_000
    assert (record.exit_status, record.signal) == ((None, 9) if lives_on else (5, None))
    found = list(SpoolReader(generation).frames())
    assert type(found[-1]).__name__ == "Exit"
    assert exit_info(record).limited == lives_on


async def test_a_full_disk_cannot_hide_an_exit_and_what_was_held_back_arrives_later(
    keep: Keep, tools: Tools
) -> None:
    generation, client = await keep.idle()
    pid = shim_pid(keep)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (8192, hard))
    await client.start(keep.launch("os.write(1, b'x' * 30_000)\nsys.exit(5)\n"))
    await tools.until(lambda: _exit(keep) is not None, "the exit is on record")
    record = _exit(keep)
    assert record is not None
    assert (record.exit_status, record.complete, record.verified) == (5, False, True)
    assert not any(type(frame).__name__ == "Exit" for frame in SpoolReader(generation).frames())
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
    record = await keep.ended(generation)
    assert (record.exit_status, record.complete, record.stdout_end) == (5, True, 30_000)
    found = await keep.follow(client, tools.exited)
    assert tools.output(found) == b"x" * 30_000


async def test_a_shim_that_dies_while_the_exit_is_incomplete_leaves_the_end_to_its_guard(
    keep: Keep, tools: Tools
) -> None:
    generation, client = await keep.idle()
    pid = shim_pid(keep)
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (8192, hard))
    await client.start(keep.launch("os.write(1, b'x' * 30_000)\nsys.exit(5)\n"))
    await tools.until(lambda: _exit(keep) is not None, "the exit is on record")
    os.kill(pid, signal.SIGKILL)
    await tools.until(lambda: (record := _exit(keep)) is not None and record.by == "guard", "the guard tells")
    record = await keep.ended(generation)
    assert (record.exit_status, record.complete, record.verified) == (5, True, True)
    assert record.stdout_end is not None
    assert record.stdout_end < 30_000
    found = list(SpoolReader(generation).frames())
    assert type(found[-1]).__name__ == "Exit"


def _exit(keep: Keep):  # type: ignore[no-untyped-def]
    latest = probe(keep.folder).latest
    return latest.exit if latest else None


async def test_an_input_on_a_full_disk_is_refused_and_leaves_no_trace(keep: Keep, tools: Tools) -> None:
    from outlast.keep import InputRefusedError

    generation, client = await keep.run("for line in sys.stdin: print(line, end='', flush=True)\n")
    await (await client.input(1, b'{"n": 1}\n')).written
    await keep.follow(client, tools.has(b'{"n": 1}\n'))
    pid = shim_pid(keep)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, hard))
    big = b'{"n": "' + b"x" * 10_000 + b'"}\n'
    with pytest.raises(InputRefusedError) as refused:
        await client.input(2, big)
    assert (refused.value.reason, refused.value.last_seq) == ("disk", 1)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
    await (await client.input(2, big)).written
    found = await keep.follow(client, tools.has(big))
    assert tools.inputs(found) == [b'{"n": 1}\n', big]
    assert tools.output(found) == b'{"n": 1}\n' + big
    assert generation.path.exists()


FLOOD = """
block = b"0123456\\n" * (1 << 17)
def flood(mebibytes):
    for n in range(mebibytes):
        view = memoryview(block)
        while view: view = view[os.write(1, view):]
"""


async def test_what_the_owner_has_not_allowed_waits_in_the_pipe(keep: Keep, tools: Tools) -> None:
    """Nothing is dropped: the agent waits, writes on as far as it may, and to the end once it is let go."""
    _, client = await keep.idle()
    assert client.allow(4 << 20)
    await client.start(keep.launch(FLOOD + "flood(16)\ntell('done', '')\nsys.stdin.read()\n"))
    for allowed in (4 << 20, 9 << 20):
        assert client.allow(allowed)
        async with tools.deadline():
            await client.wait_tip(allowed - 1)
            while not (await client.status()).capped:  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.005)
        # Asked twice: the second answer comes after whatever a look at the pipe would still have taken.
        assert [(await client.status()).tip for _ in range(2)] == [client.tip] * 2
        assert client.tip < allowed + (2 << 20)
    assert not (keep.root / "done").exists()
    assert client.allow(None)
    await tools.until((keep.root / "done").exists, "the agent could write on")
    async with tools.deadline():
        await client.wait_tip(16 << 20)
    assert digest(client.generation)[1] == 16 << 20
    await client.kill()


async def held_or_done(keep: Keep, client: ShimClient) -> bool:
    return (await client.status()).capped or (keep.root / "done").exists()


@pytest.mark.parametrize("leaves", ["dies", "detaches", "is replaced"])
async def test_a_bound_goes_with_the_owner_that_set_it(keep: Keep, tools: Tools, leaves: str) -> None:
    """An agent that nobody owns works on."""
    generation, client = await keep.run(FLOOD + "flood(16)\ntell('done', '')\nsys.stdin.read()\n")
    assert client.allow(1 << 20)
    async with tools.deadline():
        while not await held_or_done(keep, client):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.005)
    if leaves == "dies":
        await client.close()
    elif leaves == "detaches":
        await client.detach()
    else:
        await keep.attach(generation, 2)
    await tools.until((keep.root / "done").exists, "the agent could write on")
    client = await keep.attach(generation, 3)
    await client.kill()
    assert digest(generation)[1] == 16 << 20


@pytest.mark.parametrize("end", ["killed", "by itself"])
async def test_an_agent_that_is_held_can_end_and_all_that_it_wrote_is_there(
    keep: Keep, tools: Tools, end: str
) -> None:
    source = "os.write(1, b'x' * 300_000)\ntell('done', '')\n"
    source += "sys.exit(7)\n" if end == "by itself" else "time.sleep(1000)\n"
    generation, client = await keep.idle()
    assert client.allow(1)
    await client.start(keep.launch(source))
    await tools.until((keep.root / "done").exists, "the pipe has it")
    if end == "killed":
        await client.kill()
    record = await keep.ended(generation)
    assert (record.verified, record.complete, record.stdout_end) == (True, True, 300_000)
    assert record.exit_status == (7 if end == "by itself" else None)
    assert digest(generation)[1] == 300_000


async def test_uncapped_log(keep: Keep, tools: Tools) -> None:
    """At the spool's cap output waits for a trim, and arrives whole; stderr is kept to its last part."""
    cap = 12 << 20
    _, client = await keep.run(
        """
os.write(2, b"begin of a long complaint\\n" + b"e" * (3 << 20) + b" end")
for n in range(48):
    view = memoryview((b"%07d\\n" % n) * (1 << 17))
    while view: view = view[os.write(1, view):]
""",
        spool_cap=cap,
    )
    reader, seen, most = SpoolReader(client.generation), hashlib.sha256(), 0
    async with tools.deadline():
        while True:
            ended = False
            for frame in reader.frames():
                if isinstance(frame, OutputChunk):
                    seen.update(frame.data)
                ended = ended or type(frame).__name__ == "Exit"
            if ended:
                break
            most = max(most, _kept(client.generation))
            if not client.lost.is_set():
                try:
                    await client.trim(reader.position)
                except tools.Gone:
                    continue
                await client.wait_tip(reader.position)
    wanted = hashlib.sha256(b"".join((b"%07d\n" % n) * (1 << 17) for n in range(48)))
    assert seen.hexdigest() == wanted.hexdigest()
    assert most <= cap + (4 << 20)
    tail = client.generation.stderr_tail()
    assert tail.endswith(b"e end")
    assert len(tail) == 65536
    assert sum(path.stat().st_size for path in client.generation.path.glob("stderr.log*")) <= 2 << 20


def _kept(generation: Generation) -> int:
    sizes = []
    for path in generation.path.glob("spool.*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return sum(sizes)


async def test_a_dead_generation_reads_as_a_living_one_did(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run("for line in sys.stdin: print(line, end='', flush=True)\n")
    for n in range(1, 30):
        await client.input(n, b'{"n": %d}\n' % n)
    await client.close_stdin(30)
    alive = await keep.follow(client, tools.exited)
    record = await keep.ended(generation)
    assert isinstance(alive[-1], Exit)
    assert alive[-1].record == record
    dead = list(SpoolReader(generation).frames())
    assert dead == alive
    for frame in alive:
        assert list(SpoolReader(generation, frame.resume).frames()) == dead[dead.index(frame) + 1 :]
    assert os.fspath(generation.path)
