"""Owning a session in one process: leaving in every way, commands that meet turns at every moment."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import outlast
from outlast.agents import Command
from outlast.agents.contract import LaunchContext, LaunchSpec
from outlast.errors import BusyError, RestoreError, TurnHeldError, UsageError
from outlast.journal import load_state, read_records
from outlast.records.types import CommandSettled, InputCancelled, RestoreDone, SessionStopped, TurnInterrupted
from outlast.store.contract import Admission
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command
from outlast.turns.requests import StopRequest, encode

PATIENCE = 30.0


@dataclass(frozen=True)
class Home:
    """A store, a workspace and the scripted agent in a folder of their own."""

    path: Path

    @property
    def url(self) -> str:
        return sqlite_url(self.path / "x.db")

    @property
    def effects(self) -> list[str]:
        file = self.path / "effects"
        return file.read_text().splitlines() if file.exists() else []

    @asynccontextmanager
    async def runtime(self, **agent: object) -> AsyncIterator[outlast.Runtime]:
        scripted = Command(
            command(SCRIPTED, "--effects", str(self.path / "effects")),
            **agent,  # type: ignore[arg-type]
        )
        async with outlast.Runtime(self.url, agents={"a": scripted}) as runtime, asyncio.timeout(PATIENCE):
            yield runtime

    def session(self, runtime: outlast.Runtime) -> outlast.Session:
        return runtime.session("s", workspace=self.path)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def bodies(runtime: outlast.Runtime) -> list[object]:
    return [record.body async for record in read_records(runtime.store, "s")]


async def until(runtime: outlast.Runtime, true: Callable[[], bool]) -> None:
    """Until `true` holds after some change of the session."""
    with runtime.store.changes("s") as bell:
        while not true():
            bell.clear()
            async with asyncio.timeout(PATIENCE):
                await bell.wait()


async def at_work(home: Home, session: outlast.Session, runtime: outlast.Runtime) -> outlast.Turn:
    """A turn that has said so and waits for the file `go`."""
    turn = await session.send("[[effect:{attempt}]][[say:at work]][[wait:go]]", key="first")
    async for item in session.follow():
        if getattr(item, "type", "") == "AgentEventRecorded":
            return turn
    raise AssertionError


async def test_close_that_waits_for_the_next_owner_ends_the_turn_it_finds(home: Home) -> None:
    """An attached turn is interrupted as closed, before SessionStopped, and is never run again."""
    async with home.runtime(on_interrupt="retry") as runtime:
        await at_work(home, home.session(runtime), runtime)
    async with outlast.connect(home.url) as client:
        assert (await client.session("s").close()).result == "queued"
    async with home.runtime(on_interrupt="retry") as runtime:
        await runtime.own("s")
        actor = runtime.actor("s")
        assert actor is not None
        await actor.ended.wait()
        state = await load_state(runtime.store, "s")
        assert state.stopped == "closed"
        assert state.open_turns == {}
        ends = [b for b in await bodies(runtime) if isinstance(b, TurnInterrupted | SessionStopped)]
        assert [type(end) for end in ends] == [TurnInterrupted, SessionStopped]
    async with home.runtime(on_interrupt="retry") as runtime:
        await runtime.own("s")
        assert home.effects == ["1"]


async def test_leaving_while_a_close_is_under_way_leaves_nothing_owned(home: Home) -> None:
    async with home.runtime() as runtime:
        session = home.session(runtime)
        await at_work(home, session, runtime)
        closing = asyncio.create_task(session.close())
        await until(runtime, lambda: runtime.actor("s") is None or runtime.actor("s").leaving)  # type: ignore[union-attr]
        actor = runtime.actor("s")
        if actor is not None:
            await actor.detach()
        assert await runtime.store.holder("s") is None
        await runtime.restore("s")
        closing.cancel()


async def test_a_closed_session_stays_closed_though_somebody_waits(home: Home) -> None:
    """Waiting for a queued turn is no input: the queue of a closed session is not run, and the wait ends."""
    async with home.runtime() as runtime:
        session = home.session(runtime)
        await at_work(home, session, runtime)
        queued = await session.send("[[effect:queued]]", key="second")
        waiting = asyncio.create_task(queued.result())
        assert (await session.close()).result == "done"
        with pytest.raises(TurnHeldError, match="closed"):
            await waiting
        with runtime.store.changes("s") as bell:
            while await runtime.store.holder("s") is not None:
                async with asyncio.timeout(30):
                    await bell.wait()
                bell.clear()
        assert home.effects == ["1"]
        third = await session.send("[[effect:third]]")
        await third.result()
        assert (await queued.result()).outcome == "done"
        assert home.effects == ["1", "queued", "third"]


async def test_retry_means_a_turn_of_the_past_and_never_the_running_one(home: Home) -> None:
    """Refused at once while a turn runs; afterwards an older turn can still be meant."""
    async with home.runtime() as runtime:
        session = home.session(runtime)
        first = await session.send("[[effect:a{attempt}]][[1?error:unknown:no]]")
        await first.result()
        second = await session.send("[[effect:b]][[say:on]][[wait:go]][[error:unknown:no]]")
        async for item in session.follow():
            if getattr(item, "turn", None) == second.id and getattr(item, "type", "") == "AgentEventRecorded":
                break
        assert (await session.retry()).result == "refused"
        (home.path / "go").touch()
        await second.result()
        assert (await session.retry(first.id)).result == "done"
        assert (await first.result()).outcome == "done"
        assert home.effects == ["a1", "b", "a2"]


async def test_a_cancelled_turn_is_run_again_by_the_owner_that_cancelled_it(home: Home) -> None:
    """The wish to end it was about the attempt that it ended, and about nothing that bears the same name."""
    async with home.runtime() as runtime:
        session = home.session(runtime)
        turn = await at_work(home, session, runtime)
        assert (await session.cancel()).result == "done"
        assert (await turn.result()).outcome == "cancelled"
        (home.path / "go").touch()
        assert (await session.retry()).result == "done"
        assert (await turn.result()).outcome == "done"
        assert home.effects == ["1", "2"]


async def test_a_turn_can_be_cancelled_each_time_it_is_run(home: Home) -> None:
    async with home.runtime() as runtime:
        session = home.session(runtime)
        turn = await session.send("[[effect:{attempt}]][[say:at work {attempt}]][[wait:go]]", key="first")
        for attempt in (1, 2, 3):
            await until(runtime, lambda: home.effects == [str(n) for n in range(1, attempt + 1)])  # noqa: B023
            assert (await session.cancel()).result == "done"
            assert (await turn.result()).outcome == "cancelled"
            if attempt < 3:
                assert (await session.retry()).result == "done"
        ends = [body for body in await bodies(runtime) if isinstance(body, TurnInterrupted)]
        assert [end.reason for end in ends] == ["cancelled"] * 3
        assert await runtime.store.pending("s") == []


ASKS = """
import json, sys

def say(**line):
    print(json.dumps(line), flush=True)

prompt = json.loads(sys.stdin.readline())
yes = {"id": "y", "label": "Yes", "kind": "allow_once"}
no = {"id": "n", "label": "No", "kind": "reject_once"}
say(type="gate", id="g", question="May I?", choices=[yes, no], nonce=prompt["nonce"])
say(type="message", role="assistant", text=json.loads(sys.stdin.readline())["choice"])
say(type="done", nonce=prompt["nonce"])
"""


@pytest.mark.parametrize("called", ["n", "reject_once"])
async def test_a_question_is_answered_by_an_id_or_by_the_kind_of_one_choice(home: Home, called: str) -> None:
    agent = Command([sys.executable, "-c", ASKS], stdin="open")
    async with outlast.Runtime(home.url, agents={"a": agent}) as runtime, asyncio.timeout(PATIENCE):
        session = home.session(runtime)
        turn = await session.send("hi")
        async for item in session.follow():
            if getattr(item, "type", "") == "GateOpened":
                break
        (gate,) = await session.gates()
        for no_name in ("No", "2", "allow_always", ""):
            with pytest.raises(UsageError, match=r"has no choice .*there are: y, n"):
                await session.answer(gate.id, no_name)
        assert (await session.answer(gate.id, called)).result == "answered"
        assert (await turn.result()).text == "n"


async def test_a_cancel_ends_a_turn_that_nobody_works_on(home: Home) -> None:
    """Interrupted by a crash and opened again for a retry, then cancelled by a visitor: closed at once."""
    async with home.runtime(on_interrupt="retry") as runtime:
        session = home.session(runtime)
        await at_work(home, session, runtime)
        host = runtime.actor("s").driver.host  # type: ignore[union-attr]
        assert host is not None
        await runtime.actor("s").detach()  # type: ignore[union-attr]
        await _end_agent(home, runtime)
        assert await runtime.visit("s") is not None
        assert (await session.cancel()).result == "done"
        state = await load_state(runtime.store, "s")
        assert state.open_turns == {}
        assert home.effects == ["1"]


async def _end_agent(home: Home, runtime: outlast.Runtime) -> None:
    """The agent dies unowned, as by kill -9."""
    import os
    import signal

    from outlast.keep import AgentFolder, probe

    state = await load_state(runtime.store, "s")
    attempt = state.loops[state.root or ""].attempt
    assert attempt is not None
    folder = AgentFolder(Path(attempt.folder))
    facts = probe(folder).latest
    assert facts is not None
    os.kill(facts.agent_pid, signal.SIGKILL)
    while (found := probe(folder).latest) is not None and found.exit is None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_a_cancel_outlives_its_owner_and_its_agent(home: Home) -> None:
    """Both died before the turn had ended: it ends as cancelled, settled, and is not run again."""
    async with home.runtime(on_interrupt="retry") as runtime:
        await at_work(home, home.session(runtime), runtime)
        await runtime.actor("s").detach()  # type: ignore[union-attr]
        await _end_agent(home, runtime)
        await runtime.store.admit(
            Admission("s", "c1", "cancel", encode(StopRequest(turn="first")), actor="ann")
        )
        await runtime.restore("s")
        (end,) = [b for b in await bodies(runtime) if isinstance(b, TurnInterrupted)]
        assert end.reason == "cancelled"
        assert await runtime.store.pending("s") == []
        assert home.effects == ["1"]


async def test_a_rejected_input_is_told_so_at_once(home: Home) -> None:
    async with home.runtime() as runtime:
        session = home.session(runtime)
        await at_work(home, session, runtime)
        second = await session.send("[[effect:no]]", when_busy="reject")
        with pytest.raises(BusyError):
            await second.accepted()
        queued = await session.send("[[effect:yes]]")
        assert await queued.accepted()
        (home.path / "go").touch()
        await queued.result()
        assert home.effects == ["1", "yes"]


async def test_two_cancels_of_one_waiting_input(home: Home) -> None:
    async with outlast.connect(home.url) as client:
        session = client.session("s", workspace=home.path)
        await session.send("[[effect:never]]", agent="a", key="k1")
        for request in ("c1", "c2"):
            await client.store.admit(
                Admission("s", request, "cancel", encode(StopRequest(turn="k1")), actor="t")
            )
    async with home.runtime() as runtime:
        later = await home.session(runtime).send("[[effect:later]]")
        assert (await later.result()).outcome == "done"
        settled = [b for b in await bodies(runtime) if isinstance(b, InputCancelled | CommandSettled)]
        assert [type(body) for body in settled] == [InputCancelled, CommandSettled]
        assert home.effects == ["later"]


async def test_who_joins_a_restore_gets_what_it_asked_for(home: Home) -> None:
    """Beside a restore that does not wait for the owner, one that does is not refused with it."""
    async with home.runtime() as owner, home.runtime() as other:
        await at_work(home, home.session(owner), owner)
        impatient = asyncio.create_task(other.restore("s"))
        patient = asyncio.create_task(other.restore("s", wait=PATIENCE))
        with pytest.raises(RestoreError):
            await impatient
        await owner.actor("s").detach()  # type: ignore[union-attr]
        assert (await patient).id == "s"


async def test_a_failure_that_is_over_is_nobodys(home: Home) -> None:
    async with home.runtime() as runtime:
        await (await home.session(runtime).send("hello")).result()
    async with outlast.Runtime(home.url, agents={"b": Command(command(SCRIPTED))}) as runtime:
        await runtime.session("s").send("nobody can run this here")
        while not runtime.serving_failed("s"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with home.runtime() as runtime:
        turn = await home.session(runtime).send("hello again")
        assert (await turn.result()).outcome == "done"


@dataclass(frozen=True)
class Faulty(Command):
    """An adapter with a bug."""

    def launch(self, context: LaunchContext) -> LaunchSpec:
        raise ValueError("a bug")


async def test_a_bug_in_an_adapter_costs_a_turn_and_owns_nothing_for_ever(home: Home) -> None:
    agents = {"a": Faulty(command(SCRIPTED))}
    async with outlast.Runtime(home.url, agents=agents) as runtime, asyncio.timeout(PATIENCE):
        turn = await home.session(runtime).send("hello")
        try:
            outcome = await turn.result()
        except ValueError:
            assert await runtime.store.holder("s") is None
        else:
            assert outcome.outcome == "failed"
    async with home.runtime() as runtime:
        await runtime.restore("s")
        assert any(isinstance(body, RestoreDone) for body in await bodies(runtime))


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": {"a": 5}},
        {"when_busy": "zzz"},
        {"on_interrupt": "zzz"},
        {"title": 7},
        {"labels": {"a": "\ud800"}},
    ],
)
async def test_what_no_owner_could_read_is_not_acknowledged(home: Home, wrong: dict[str, object]) -> None:
    async with home.runtime() as runtime:
        session = home.session(runtime)
        with pytest.raises(UsageError):
            await session.send("hello", **wrong)  # type: ignore[arg-type]
        assert (await (await session.send("hello")).result()).outcome == "done"


async def test_a_spool_that_was_cut_proves_nothing(home: Home) -> None:
    """The journal took output of the very attempt whose spool holds no input now: it is not run again."""
    async with home.runtime(on_interrupt="skip") as runtime:
        await at_work(home, home.session(runtime), runtime)
        await runtime.actor("s").detach()  # type: ignore[union-attr]
        await _end_agent(home, runtime)
        (spool,) = home.path.rglob("spool.*")
        spool.write_bytes(spool.read_bytes()[:300])
        await runtime.restore("s")
        (end,) = [b for b in await bodies(runtime) if isinstance(b, TurnInterrupted)]
        assert end.reason == "crash"
        assert home.effects == ["1"]
