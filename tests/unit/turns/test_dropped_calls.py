"""Calls that were made and that their program has lost: told by the next prompt, once and bounded; and
the id of a session that may be chosen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from outlast.agents import Claude, Codex, Command
from outlast.journal import Journal
from outlast.keep import Claim
from outlast.records.envelope import Draft
from outlast.records.types import (
    AgentSessionChanged,
    Body,
    CallObserved,
    Fence,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
)
from outlast.state.model import Loop
from outlast.store.url import open_store
from outlast.testing.journals import JournalBuilder
from outlast.turns.choosing import chosen_session
from outlast.turns.dropped_calls import NAMED, SHOWN, MadeCall, in_words, notice_of
from outlast.turns.hosting import Hosting

Status = Literal["started", "completed", "failed"]


@dataclass(frozen=True)
class Dropping(Command):
    """A program whose transcript mentions these calls and no others."""

    mentioned: frozenset[str] = frozenset()
    broken: bool = False

    def unmentioned_calls(
        self, calls: Sequence[str], provider_session: str, workspace: str, environ: Mapping[str, str]
    ) -> frozenset[str]:
        if self.broken:
            raise OSError
        return frozenset(calls) - self.mentioned


@dataclass
class Session:
    journal: Journal
    hosting: Hosting

    async def append(self, *bodies: Body, turn: str = "t") -> None:
        await self.journal.append([Draft(body, loop="main", turn=turn) for body in bodies])

    async def call(self, call: str, status: Status = "started") -> None:
        given, output = ("make", "") if status == "started" else ("", "built")
        await self.append(CallObserved(call=call, name="Bash", status=status, input=given, output=output))

    async def cut(self) -> None:
        """Its agent dies in the turn, and the next turn has another one."""
        await self.append(TurnInterrupted(index=1, reason="crash", evidence="killed"))
        await self.next_turn("u", 2, "another life")

    async def done(self, turn: str = "t") -> None:
        await self.append(TurnDone(stop_reason="end_turn", usage={}), turn=turn)

    async def next_turn(self, turn: str, index: int, life: str) -> None:
        built = JournalBuilder().accept(turn).start(turn, index).attempt(turn, generation=life)
        await self.journal.append(built.drafts[-3:])

    @property
    def loop(self) -> Loop:
        return self.journal.state.loops["main"]

    async def notice(self, agent: Command | None = None) -> str:
        return await notice_of(self.journal, agent or Dropping(["true"]), self.loop, self.hosting)


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    store = await open_store("memory://")
    lease = await store.acquire("session")
    journal = await Journal.open(store, lease)
    drafts = JournalBuilder().running("t").drafts[1:]
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="me")), *drafts])
    claim = Claim(store.store_id, "lineage", lease.epoch, "me")
    made = Session(journal, Hosting("session", str(tmp_path), tmp_path, claim, "m", b"", {}))
    await made.append(
        AgentSessionChanged(provider="command", provider_session="s", state="bound", source="chosen")
    )
    yield made
    await store.close()


async def test_no_trace_call_a_cut_call_is_told_with_its_input(session: Session) -> None:
    await session.call("c1")
    assert await session.notice() == ""
    await session.cut()
    told = await session.notice()
    assert told.startswith("[outlast: for your information, no new request]")
    assert "how they ended is not known" in told
    assert told.splitlines()[2:] == ["- Bash (c1): make"]


async def test_a_call_that_had_ended_and_is_lost_is_told_with_what_came_of_it(session: Session) -> None:
    """A program that writes its transcript after the fact can lose a whole call, also of a turn that is
    done."""
    await session.call("c1")
    await session.call("c1", "completed")
    await session.done()
    await session.next_turn("u", 2, "another life")
    told = await session.notice()
    assert "do not repeat them" in told
    assert told.splitlines()[2:] == ["- Bash (c1): make", "  completed: built"]
    assert await session.notice(Dropping(["true"], mentioned=frozenset({"c1"}))) == ""


async def test_what_the_living_agent_did_it_knows(session: Session) -> None:
    """However late it writes its transcript."""
    await session.call("c1")
    await session.call("c1", "completed")
    await session.done()
    await session.next_turn("u", 2, "g")
    assert await session.notice() == ""


async def test_what_the_transcript_mentions_is_told_by_the_program_or_was_by_us(session: Session) -> None:
    await session.call("c1")
    await session.call("c2")
    await session.cut()
    told = await session.notice(Dropping(["true"], mentioned=frozenset({"c1"})))
    assert told.splitlines()[2:] == ["- Bash (c2): make"]
    assert await session.notice(Dropping(["true"], mentioned=frozenset({"c1", "c2"}))) == ""


async def test_a_transcript_that_cannot_be_read_keeps_nothing_from_the_model(session: Session) -> None:
    await session.call("c1")
    await session.cut()
    assert "(c1)" in await session.notice(Dropping(["true"], broken=True))


async def test_a_program_that_tells_it_itself_is_told_nothing(session: Session) -> None:
    await session.call("c1")
    await session.cut()
    assert await session.notice(Command(["true"])) == ""


async def test_it_is_told_until_a_turn_is_done_and_then_no_more(session: Session) -> None:
    """A turn that fails after it may not have been given the prompt that told it."""
    await session.call("c1")
    await session.cut()
    failed = JournalBuilder().running("u").fail("u").drafts[-1].body
    assert isinstance(failed, TurnFailed)
    await session.append(failed, turn="u")
    assert "(c1)" in await session.notice()
    await session.next_turn("v", 3, "another life")
    await session.done("v")
    await session.next_turn("w", 4, "a third life")
    assert await session.notice() == ""


async def test_another_session_is_told_all_or_nothing_and_not_this(session: Session) -> None:
    await session.call("c1")
    await session.cut()
    await session.append(
        AgentSessionChanged(provider="command", provider_session="z", state="reseeded", source="chosen")
    )
    assert await session.notice() == ""


def test_uncapped_log_what_is_told_is_bounded() -> None:
    told = in_words([MadeCall(f"c{at}", "Bash", "x" * 100_000) for at in range(1_000)])
    assert len(told) < NAMED * (SHOWN + 100) + 1_000
    assert told.splitlines()[-1] == f"- and {1_000 - NAMED} more"


# --- the id of a session -----------------------------------------------------------------------------


def a_loop(**fields: object) -> Loop:
    loop = Loop("main", "main", "claude", "claude")
    for name, value in fields.items():
        setattr(loop, name, value)
    return loop


def test_early_id_a_session_has_its_id_before_its_agent_is_started() -> None:
    chosen = chosen_session(a_loop(), Claude())
    assert chosen is not None
    assert (chosen.state, chosen.source, chosen.reason) == ("bound", "chosen", "")
    other = chosen_session(a_loop(), Claude())
    assert other is not None
    assert other.provider_session != chosen.provider_session


def test_a_session_that_is_there_is_resumed_and_one_of_other_agents_names_itself() -> None:
    assert chosen_session(a_loop(provider_session="s", provider_state="lost"), Claude()) is None
    assert chosen_session(a_loop(), Codex()) is None


def test_silent_fresh_one_that_is_begun_anew_says_so_and_why() -> None:
    lost = a_loop(provider_session="s", decided="reseed", lost_because="its file is gone")
    chosen = chosen_session(lost, Claude())
    assert chosen is not None
    assert chosen.state == "reseeded"
    assert chosen.reason == "begun anew, told what happened so far: its file is gone"
