"""An agent that writes faster than it is read: its deadlines are kept, and what a person asks is done."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.support.agents import serving

import outlast
from outlast.agents import Command
from outlast.keep import AgentFolder, LaunchRequest, ShimClient
from outlast.keep.layout import SEGMENT_SIZE
from outlast.records.types import AgentEventRecorded
from outlast.store.url import sqlite_url
from outlast.turns.conversation import TRIM_EVERY
from outlast.turns.host import AHEAD, AgentHost
from outlast.turns.reading import take_in


@pytest.fixture
def never_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were always more to read while the agent lives, on any machine."""

    def takes(host: AgentHost, *given: object) -> bool:
        more = take_in(host, *given)  # type: ignore[arg-type]
        return more or (host.alive and host.intake.exit is None)

    monkeypatch.setattr("outlast.turns.conversation.take_in", takes)


@pytest.mark.usefixtures("never_all_read")
@pytest.mark.parametrize("end", ["total", "kill", "cancel"])
async def test_an_agent_that_never_stops_writing_can_be_ended(tmp_path: Path, end: str) -> None:
    talks = Command(
        ("sh", "-c", "while :; do echo more; sleep 0.01; done"), total_timeout=0.1 if end == "total" else None
    )
    url = sqlite_url(tmp_path / "x.db")
    async with outlast.Runtime(url, agents={"a": talks}) as runtime, asyncio.timeout(20):
        session = runtime.session("s", workspace=tmp_path)
        turn = await session.send("go", agent="a")
        if end != "total":
            async for item in session.follow():
                if isinstance(item, outlast.Record) and isinstance(item.body, AgentEventRecorded):
                    break
            await (session.kill() if end == "kill" else session.cancel())
        outcome = await turn.result()
        assert outcome.outcome == ("failed" if end == "total" else "cancelled")
        await session.finish()


LINES = "block = (b'y' * 1023 + b'\\n') * 1024\nwhile True: os.write(1, block)"
LINE = "while True: os.write(1, b'y' * (1 << 20))"
MEBIBYTE = 1 << 20


def python(source: str, **more: float) -> Command:
    return Command((sys.executable, "-I", "-S", "-c", "import os\n" + source), **more)  # type: ignore[arg-type]


def spooled(folder: Path) -> int:
    """Bytes of spool that are kept below a folder."""
    kept = 0
    for path in folder.rglob("spool.*"):
        with suppress(FileNotFoundError):  # let go of under our eyes
            kept += path.stat().st_size
    return kept


async def spooled_until(tmp_path: Path, turn: outlast.Turn) -> tuple[outlast.Outcome, int]:
    """How a turn ends, and the most that was kept of its agent's spool until then."""
    most, ending = 0, asyncio.ensure_future(turn.result())
    while not ending.done():
        most = max(most, spooled(tmp_path))
        await asyncio.wait([ending], timeout=0.02)
    return ending.result(), most


@pytest.mark.parametrize(
    ("ahead", "every"),
    [(4 * MEBIBYTE, 2 * MEBIBYTE), pytest.param(AHEAD, TRIM_EVERY, marks=pytest.mark.slow)],
    ids=["small bounds", "the real ones"],
)
async def test_a_flood_is_not_stored_faster_than_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, every: int
) -> None:
    """What is read is let go while more comes, and what is not read waits with the agent: little is left to
    read when it is ended."""
    monkeypatch.setattr("outlast.turns.host.AHEAD", ahead)
    monkeypatch.setattr("outlast.turns.host.ALLOWED_EVERY", ahead // 8)
    monkeypatch.setattr("outlast.turns.conversation.TRIM_EVERY", every)
    agents = {"a": python(LINES, total_timeout=0.5)}
    async with outlast.Runtime(sqlite_url(tmp_path / "x.db"), agents=agents) as runtime, asyncio.timeout(60):
        session = runtime.session("s", workspace=tmp_path)
        outcome, most = await spooled_until(tmp_path, await session.send("go", agent="a"))
        await session.finish()
    assert outcome.receipt is not None
    assert outcome.receipt.error.code == "timeout_total"
    # Whole segments go, and only below a stored state.
    assert most < ahead + 2 * every + 3 * SEGMENT_SIZE


async def test_a_line_that_never_ends_fails_its_turn_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.turns.conversation.LONGEST_LINE", 8 * MEBIBYTE)
    agents = {"a": python(LINE), "b": Command(("sh", "-c", "echo well"))}
    async with outlast.Runtime(sqlite_url(tmp_path / "x.db"), agents=agents) as runtime, asyncio.timeout(60):
        session = runtime.session("s", workspace=tmp_path)
        outcome, most = await spooled_until(tmp_path, await session.send("go", agent="a"))
        await session.finish()
    assert outcome.receipt is not None
    assert outcome.receipt.error.code == "output_limit"
    assert "a line of more than 8 MiB" in outcome.receipt.error.message
    assert most < 8 * MEBIBYTE + AHEAD + 2 * SEGMENT_SIZE


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> int:
    """A small bound of what a spool may hold, and of what may be ahead of its reader."""
    cap = 24 * MEBIBYTE
    monkeypatch.setattr("outlast.turns.host.LaunchRequest", partial(LaunchRequest, spool_cap=cap))
    monkeypatch.setattr("outlast.turns.host.AHEAD", 4 * MEBIBYTE)
    monkeypatch.setattr("outlast.turns.host.ALLOWED_EVERY", MEBIBYTE)
    monkeypatch.setattr("outlast.turns.conversation.TRIM_EVERY", 2 * MEBIBYTE)
    return cap


FLOODS = "until('go')\nfor _ in range(40): write((b'.' * 1023 + b'\\n') * 1024)\nPath('all').touch()\n"


@pytest.mark.slow
async def test_an_agent_that_nobody_owns_waits_at_the_bound_of_its_spool_and_is_read_whole_later(
    tmp_path: Path, bounded: int
) -> None:
    url, agents = sqlite_url(tmp_path / "x.db"), {"a": serving()}
    async with outlast.Runtime(url, agents=agents) as runtime, asyncio.timeout(30):
        session = runtime.session("s", workspace=tmp_path)
        await session.send(
            f"say('message', role='assistant', text='up')\n{FLOODS}done()", agent="a", key="one"
        )
        await until_said(session, "up")
    (tmp_path / "go").touch()
    await held(tmp_path, bounded)
    assert not (tmp_path / "all").exists()
    async with outlast.Runtime(url, agents=agents) as runtime, asyncio.timeout(60):
        session = runtime.session("s", workspace=tmp_path)
        turn = await session.send("done('more')", key="two")
        assert (await session.outcome("one")).text.split() == ["up", "well"]
        assert (await turn.result()).text == "more"
        await session.kill()


@pytest.mark.slow
async def test_an_agent_goes_on_between_turns_up_to_the_bound_of_its_spool(
    tmp_path: Path, bounded: int
) -> None:
    """Nobody reads then, and no owner holds it to what it has read."""
    agents = {"a": serving()}
    async with outlast.Runtime(sqlite_url(tmp_path / "x.db"), agents=agents) as runtime, asyncio.timeout(60):
        session = runtime.session("s", workspace=tmp_path)
        turn = await session.send(f"done('first')\n{FLOODS}", agent="a", key="one")
        assert (await turn.result()).text == "first"
        (tmp_path / "go").touch()
        await held(tmp_path, bounded)
        outcome, most = await spooled_until(tmp_path, await session.send("done('more')", key="two"))
        assert (outcome.outcome, outcome.text) == ("done", "more")
        assert most < bounded + 2 * MEBIBYTE
        await session.kill()
    assert (tmp_path / "all").exists()


def agent_folder(tmp_path: Path) -> AgentFolder:
    (folder,) = tmp_path.glob("*/agents/*")
    return AgentFolder(folder)


async def held(tmp_path: Path, cap: int) -> None:
    """Until the shim of the one agent there takes no more of its output."""
    latest = agent_folder(tmp_path).latest()
    assert latest is not None
    client = await ShimClient.connect(latest)
    async with asyncio.timeout(20):
        while not (await client.status()).capped:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
    await client.close()
    assert cap <= spooled(tmp_path) < cap + 2 * MEBIBYTE


async def until_said(session: outlast.Session, text: str) -> None:
    async for item in session.follow():
        body = item.body if isinstance(item, outlast.Record) else None
        if isinstance(body, AgentEventRecorded) and text in body.text:
            return
