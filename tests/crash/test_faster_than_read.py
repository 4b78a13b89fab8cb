"""An agent that writes faster than it is read: its deadlines are kept, and what a person asks is done."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import outlast
from outlast.agents import Command
from outlast.records.types import AgentEventRecorded
from outlast.store.url import sqlite_url
from outlast.turns.host import AgentHost
from outlast.turns.reading import take_in


@pytest.fixture(autouse=True)
def never_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were always more to read while the agent lives, on any machine."""

    def takes(host: AgentHost, *given: object) -> bool:
        more = take_in(host, *given)  # type: ignore[arg-type]
        return more or (host.alive and host.intake.exit is None)

    monkeypatch.setattr("outlast.turns.conversation.take_in", takes)


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
