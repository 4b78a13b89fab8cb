"""Inputs: whole, checked, stored, then written; refused ones leave no trace."""

from __future__ import annotations

import os
import signal
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest

from outlast.keep import InputRefusedError, KeepError, Landing, landing, probe
from outlast.keep.reader import StdinClosed, Written

if TYPE_CHECKING:
    from .conftest import Keep, Tools

ECHO = "for line in sys.stdin.buffer: os.write(1, line)\nprint('end', flush=True)\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"half": ', "bad_line"),
        (b"{}\n{}\n", "bad_line"),
        (b'"\xff"\n', "bad_line"),
        (b'"\\ud800"\n', "bad_line"),
        (b'"' + b"x" * (3 << 20) + b"\xff" + b"y" * (2 << 20) + b'"\n', "bad_line"),
        (b'"' + b"x" * (9 << 20) + b'"\n', "too_large"),
    ],
    ids=[
        "half a line",
        "two lines",
        "not UTF-8",
        "a lone surrogate",
        "a bad byte in the middle",
        "too large",
    ],
)
async def test_an_input_that_would_cost_the_agent_is_refused_and_the_next_one_goes_in(
    keep: Keep, tools: Tools, line: bytes, reason: str
) -> None:
    _, client = await keep.run(ECHO, input_limit=8 << 20)
    with pytest.raises(InputRefusedError) as refused:
        await client.input(1, line)
    assert (refused.value.reason, refused.value.last_seq) == (reason, 0)
    await (await client.input(1, b'"good"\n')).written
    found = await keep.follow(client, tools.has(b"good"))
    assert tools.output(found) == b'"good"\n'
    assert tools.inputs(found) == [b'"good"\n']


async def test_text_mangled(keep: Keep, tools: Tools) -> None:
    """CRLF, NUL, emoji and leading dashes, as JSON says them, and a mebibyte of them."""
    import json

    _, client = await keep.run(ECHO)
    texts = ["a\r\nb", "\0", "\N{GRINNING FACE}", "--help", "\u2028" + "x\r\n" * (1 << 18)]
    for n, text in enumerate(texts, 1):
        await client.input(n, json.dumps(text).encode() + b"\n")
    await client.close_stdin(len(texts) + 1)
    found = await keep.follow(client, tools.exited)
    assert [json.loads(line) for line in tools.output(found).split(b"\n")[: len(texts)]] == texts


async def test_closing_stdin_is_an_input_with_a_number(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(ECHO)
    await client.input(1, b"{}\n")
    with pytest.raises(InputRefusedError):
        await client.close_stdin(1)
    await (await client.close_stdin(2)).written
    found = await keep.follow(client, tools.exited)
    assert tools.output(found) == b"{}\nend\n"
    assert [frame.seq for frame in found if isinstance(frame, StdinClosed)] == [2]
    assert [frame.seq for frame in found if isinstance(frame, Written)] == [1, 2]
    record = await keep.ended(generation)
    assert (record.last_input, record.written_through) == (2, 2)


async def test_an_agent_that_has_closed_its_stdin_takes_no_input(keep: Keep, tools: Tools) -> None:
    _, client = await keep.run("os.close(0)\nprint('closed', flush=True)\ntime.sleep(1000)\n")
    found = await keep.follow(client, lambda found: any(isinstance(f, StdinClosed) for f in found))
    assert [frame.by_agent for frame in found if isinstance(frame, StdinClosed)] == [True]
    with pytest.raises(InputRefusedError) as refused:
        await client.input(1, b"{}\n")
    assert refused.value.reason == "closed"


async def test_before_start_there_is_no_stdin(keep: Keep) -> None:
    _, client = await keep.idle()
    with pytest.raises(InputRefusedError) as refused:
        await client.input(1, b"{}\n")
    assert refused.value.reason == "closed"


async def test_an_agent_that_does_not_read_makes_it_busy_and_gets_all_of_it_later(
    keep: Keep, tools: Tools
) -> None:
    _, client = await keep.run(
        "while not os.path.exists(os.environ['ROOT'] + '/go'): time.sleep(0.01)\n" + ECHO
    )
    line = b'"' + b"x" * 300_000 + b'"\n'
    accepted = []

    async def feed() -> None:
        for n in range(1, 200):
            accepted.append(await client.input(n, line))

    with pytest.raises(InputRefusedError) as refused:
        await feed()
    taken = len(accepted)
    assert (refused.value.reason, refused.value.last_seq) == ("busy", taken)
    assert not accepted[-1].written.done()
    (keep.root / "go").touch()
    async with tools.deadline():
        await accepted[-1].written
    await (await client.input(taken + 1, line)).written
    await client.close_stdin(taken + 2)
    found = await keep.follow(client, tools.exited)
    assert tools.output(found) == line * (taken + 1) + b"end\n"


async def test_reconnect_loss(keep: Keep, tools: Tools) -> None:
    """What was accepted and never written whole is reported as just that."""
    generation, client = await keep.run("os.read(0, 1)\nprint('slow', flush=True)\ntime.sleep(1000)\n")
    line = b'"' + b"x" * 300_000 + b'"\n'
    first = await client.input(1, line)
    await keep.follow(client, tools.has(b"slow"))
    await client.kill()
    with pytest.raises(KeepError):
        await first.written
    await keep.ended(generation)
    facts = probe(keep.folder).latest
    assert facts is not None
    assert landing(facts, 1, sha256(line).digest()) is Landing.PERHAPS_WRITTEN
    assert landing(facts, 1, b"another") is Landing.OTHER_WRITER
    assert landing(facts, 2, b"next") is Landing.NEVER_WRITTEN


# --- what a dead agent had read ------------------------------------------------------------------------


def large(n: int) -> bytes:
    return b'"%d' % n + b"x" * 300_000 + b'"\n'


@pytest.mark.parametrize(
    ("source", "lines", "read"),
    [
        ("", [b"{}\n"], 0),
        ("", [large(1), b"{}\n"], 0),
        ("os.read(0, 3)\n", [b"{}\n", b"{}\n"], 1),
        ("os.read(0, 4)\n", [b"{}\n", b"{}\n"], 2),
        ("for n in range(3000): sys.stdin.buffer.raw.read(1000)\n", [large(n) for n in range(1, 12)], 10),
    ],
    ids=["nothing", "nothing of a large one", "one whole", "a byte of the second", "megabytes"],
)
async def test_what_was_left_in_the_pipe_was_never_read(
    keep: Keep, tools: Tools, source: str, lines: list[bytes], read: int
) -> None:
    """Inputs that a dead agent had not read a byte of are proven not to have begun, written or not."""
    generation, client = await keep.idle()
    await client.start(keep.launch(f"{source}print('read', os.getpid(), flush=True)\ntime.sleep(1000)\n"))
    for n, line in enumerate(lines, 1):
        await client.input(n, line)
    found = await keep.follow(client, tools.has(b"\n"))
    os.kill(int(tools.output(found).split()[1]), signal.SIGKILL)
    record = await keep.ended(generation)
    assert (record.signal, record.read_input) == (9, read)
    facts = probe(keep.folder).latest
    assert facts is not None
    judged = [landing(facts, n, sha256(line).digest()) for n, line in enumerate(lines, 1)]
    assert Landing.NEVER_READ not in judged[:read]
    assert judged[read:] == [Landing.NEVER_READ] * (len(lines) - read)


async def test_what_another_process_may_have_read_is_not_called_unread(keep: Keep, tools: Tools) -> None:
    """Its stdin is a child's too."""
    generation, client = await keep.run(
        "child = subprocess.Popen(['/bin/sh', '-c', 'sleep 1000'])\n"
        "print(os.getpid(), flush=True)\ntime.sleep(1000)\n"
    )
    await (await client.input(1, b"{}\n")).written
    found = await keep.follow(client, tools.has(b"\n"))
    os.kill(int(tools.output(found)), signal.SIGKILL)
    record = await keep.ended(generation)
    assert (record.signal, record.read_input) == (9, None)
    facts = probe(keep.folder).latest
    assert facts is not None
    assert landing(facts, 1, sha256(b"{}\n").digest()) is Landing.WRITTEN


async def test_what_waits_for_an_agent_that_closes_its_stdin_was_never_read(keep: Keep, tools: Tools) -> None:
    generation, client = await keep.run(
        "os.read(0, 3)\nprint('read', flush=True)\n"
        "while not os.path.exists(os.environ['ROOT'] + '/go'): time.sleep(0.01)\n"
        "os.close(0)\nsys.exit(3)\n"
    )
    await (await client.input(1, b"{}\n")).written
    await keep.follow(client, tools.has(b"read"))
    await client.input(2, large(2))
    (keep.root / "go").touch()
    record = await keep.ended(generation)
    assert (record.exit_status, record.last_input, record.read_input) == (3, 2, 1)
