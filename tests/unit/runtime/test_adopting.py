"""Adoptions of one session of an agent: the second is refused, whenever it comes and from whatever store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast import Runtime
from outlast.agents import Codex
from outlast.errors import SessionInUseError, UsageError
from outlast.journal import read_records
from outlast.records.types import AgentSessionChanged, CommandSettled
from outlast.runtime.handles import Session
from outlast.store.url import sqlite_url

THREADS = ("01a22a91-b5b5-77c1-a870-4335a64da083", "01a22a91-b5b5-77c1-a870-4335a64da084")


@pytest.fixture
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Of a codex that is never started."""
    home = tmp_path / "codex"
    folder = home / "sessions" / "2026" / "11" / "30"
    folder.mkdir(parents=True)
    for thread in THREADS:
        head = {"ordinal": 0, "type": "session_meta", "payload": {"id": thread, "cwd": str(tmp_path)}}
        path = folder / f"rollout-2026-11-30T03-48-42-{thread}.jsonl"
        path.write_text(json.dumps(head) + "\n")
    monkeypatch.setenv("CODEX_HOME", str(home))
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))
    return THREADS


def runtime_of(path: Path) -> Runtime:
    return Runtime(sqlite_url(path), agents={"codex": Codex(binary="/bin/false")})


@pytest.fixture
async def runtime(tmp_path: Path, threads: tuple[str, str]) -> AsyncIterator[Runtime]:
    async with runtime_of(tmp_path / "one.db") as opened:
        yield opened


@pytest.fixture
async def elsewhere(tmp_path: Path, threads: tuple[str, str]) -> AsyncIterator[Runtime]:
    async with runtime_of(tmp_path / "two.db") as opened:
        yield opened


async def both(*adopting: object) -> tuple[list[Session], list[BaseException]]:
    ended = await asyncio.gather(*adopting, return_exceptions=True)  # type: ignore[call-overload]
    errors = [each for each in ended if isinstance(each, BaseException)]
    return [each for each in ended if isinstance(each, Session)], errors


async def test_of_two_adoptions_at_once_one_is_refused_and_leaves_no_session(
    runtime: Runtime, threads: tuple[str, str]
) -> None:
    ways = (runtime.adopt("codex", threads[0], session=name) for name in ("a", "b"))
    (adopted,), (refused,) = await both(*ways)
    assert isinstance(refused, SessionInUseError)
    assert f"session {adopted.id}'s" in refused.message
    assert [row.entry.session for row in await runtime.store.list()] == [adopted.id]


async def test_of_two_stores_that_adopt_at_once_one_is_refused(
    runtime: Runtime, elsewhere: Runtime, threads: tuple[str, str]
) -> None:
    (_,), (refused,) = await both(*(each.adopt("codex", threads[0]) for each in (runtime, elsewhere)))
    assert isinstance(refused, SessionInUseError)


async def test_a_session_that_is_closed_gives_what_it_adopted_to_another(
    runtime: Runtime, elsewhere: Runtime, threads: tuple[str, str]
) -> None:
    first = await runtime.adopt("codex", threads[0], session="a")
    with pytest.raises(SessionInUseError, match="it is session a's"):
        await elsewhere.adopt("codex", threads[0])
    await first.close()
    await elsewhere.adopt("codex", threads[0])


async def test_an_adoption_that_its_owner_refuses_is_told(runtime: Runtime, threads: tuple[str, str]) -> None:
    """What it was refused may be another's."""
    (_,), (refused,) = await both(*(runtime.adopt("codex", one, session="job") for one in threads))
    assert isinstance(refused, UsageError)
    assert "its agent has a session of its own already" in refused.message
    bodies = [record.body async for record in read_records(runtime.store, "job")]
    (bound,) = [body for body in bodies if isinstance(body, AgentSessionChanged)]
    assert [body.outcome for body in bodies if isinstance(body, CommandSettled)] == ["done", "refused"]
    (other,) = [one for one in threads if one != bound.provider_session]
    await runtime.adopt("codex", other, session="another")


async def test_an_adoption_again_is_the_same_session_and_another_name_is_none(
    runtime: Runtime, threads: tuple[str, str]
) -> None:
    await both(*(runtime.adopt("codex", threads[0], session="job") for _ in range(2)))
    assert (await runtime.adopt("codex", threads[0], session="job")).id == "job"
    with pytest.raises(UsageError, match="there is a session job already"):
        await runtime.adopt("codex", threads[1], session="job")
