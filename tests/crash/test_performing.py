"""Effects of a living runtime: refused, failing, cancelled, settled by a person; and an agent that is not the
one whose session failed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.agents import Command
from outlast.errors import EffectRefusedError, UsageError
from outlast.records.effects import EffectDispatched, EffectOutcome, EffectSettled
from outlast.records.types import TurnAttemptStarted
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command
from outlast.turns import performing
from outlast.turns.running import BodyLock

PROMPT = "[[session:own]][[say:finished]]"


@dataclass
class World:
    """What the effects of a test have seen and do."""

    answers: list[Any] = field(default_factory=list)
    """What the next bodies do: raise it, or give it."""
    given: list[outlast.EffectContext] = field(default_factory=list)
    found: EffectOutcome = "unknown"

    def body(self, context: outlast.EffectContext) -> Any:
        self.given.append(context)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def check(self, context: outlast.EffectContext) -> EffectOutcome:
        return self.found


def an_agent(path: Path) -> Command:
    return Command(command(SCRIPTED, "--effects", str(path / "effects")))


@asynccontextmanager
async def owner(
    path: Path, effects: Sequence[outlast.TurnEffect], agent: Any = None
) -> AsyncIterator[outlast.Session]:
    agents = {"a": agent or an_agent(path)}
    url = sqlite_url(path / "x.db")
    async with outlast.Runtime(url, agents=agents, effects=effects) as runtime, asyncio.timeout(30):
        session = runtime.session("s", workspace=path)
        yield session
        if runtime.actor("s") is not None:
            await session.finish()


async def bodies(session: outlast.Session, kind: type[Any]) -> list[Any]:
    found: list[Any] = []
    async for item in session.follow():
        if isinstance(item, outlast.CaughtUp):
            return found
        if isinstance(item, outlast.Record) and isinstance(item.body, kind):
            found.append(item.body)
    return found


async def test_an_effect_is_given_what_came_before_it(tmp_path: Path) -> None:
    world = World(answers=[{"files": 2}, None])
    effects = [
        outlast.TurnEffect("push", "write_back", world.body),
        outlast.TurnEffect("parse", "typed_result", world.body),
    ]
    async with owner(tmp_path, effects) as session:
        outcome = await (await session.send(PROMPT, agent="a", key="t")).result()
    assert (outcome.outcome, outcome.text) == ("done", "finished")
    parse, push = world.given
    assert (parse.text, parse.stop_reason, parse.results) == ("finished", "end_turn", {})
    assert (push.results, push.key, push.body) == ({"parse": {"files": 2}}, "s/t/1/push", 1)


async def test_an_effect_that_refuses_fails_the_turn_at_its_phase_and_runs_again_when_asked(
    tmp_path: Path,
) -> None:
    world = World(answers=[EffectRefusedError("the tests fail")])
    async with owner(tmp_path, [outlast.TurnEffect("validate", "validation", world.body)]) as session:
        turn = await session.send(PROMPT, agent="a", key="t")
        outcome = await turn.result()
        assert outcome.outcome == "failed"
        assert outcome.receipt is not None
        receipt = outcome.receipt
        assert (receipt.failed_phase, receipt.error.code) == ("validation", "effect_refused")
        assert receipt.error.message == "validate: the tests fail"

        assert (await session.settle("validate", done=False)).result == "done"
        again = await turn.result()
        assert (again.outcome, again.text) == ("done", "finished")
        assert len(await bodies(session, TurnAttemptStarted)) == 1
    assert [context.key for context in world.given] == ["s/t/1/validate"] * 2


async def test_a_retry_is_another_reply_with_other_effects(tmp_path: Path) -> None:
    world = World(answers=[EffectRefusedError("the tests fail")])
    async with owner(tmp_path, [outlast.TurnEffect("validate", "validation", world.body)]) as session:
        turn = await session.send(PROMPT, agent="a", key="t")
        await turn.result()
        assert (await session.retry()).result == "done"
        assert (await turn.result()).outcome == "done"
        assert len(await bodies(session, TurnAttemptStarted)) == 2
    assert [context.key for context in world.given] == ["s/t/1/validate", "s/t/2/validate"]


@pytest.mark.parametrize(
    ("found", "ends", "ran"), [("done", "done", 1), ("absent", "done", 2), ("unknown", "parked", 1)]
)
async def test_a_body_that_raises_is_decided_as_after_a_crash(
    tmp_path: Path, found: EffectOutcome, ends: str, ran: int
) -> None:
    world = World(answers=[ValueError("token=sk-abcdefghijkl")], found=found)
    effects = [outlast.TurnEffect("push", "write_back", world.body, world.check)]
    async with owner(tmp_path, effects) as session:
        outcome = await (await session.send(PROMPT, agent="a")).result()
        assert outcome.outcome == ends
        assert "sk-" not in str(await bodies(session, EffectSettled))
        assert len(await bodies(session, EffectDispatched)) == len(world.given) == ran


async def test_a_body_that_raises_and_may_not_run_again_waits_for_a_person(tmp_path: Path) -> None:
    world = World(answers=[ValueError("no")])
    effects = [
        outlast.TurnEffect("push", "write_back", world.body),
        outlast.TurnEffect("spend", "settle", world.body),
    ]
    async with owner(tmp_path, effects) as session:
        turn = await session.send(PROMPT, agent="a", key="t")
        assert (await turn.result()).outcome == "parked"
        (lost,) = await bodies(session, EffectSettled)
        assert (lost.outcome, lost.reason) == ("unknown", "its body raised ValueError")
        # The queue goes on meanwhile.
        assert (await (await session.send(PROMPT, key="u")).result()).outcome == "done"

        settled = await session.settle("push", done=True, result={"commit": "abc"}, turn="t")
        assert settled.result == "done"
        assert (await turn.result()).outcome == "done"
    assert world.given[-1].name == "spend"
    assert world.given[-1].results == {"push": {"commit": "abc"}}
    assert world.given[-1].turn == "t"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(
    ("raised", "in_loop"),
    [
        (StopIteration(), False),
        (SystemExit(3), False),
        (KeyboardInterrupt(), False),
        (asyncio.CancelledError(), False),
        (UnspeakableError(), False),
        (SystemExit(3), True),
        (asyncio.CancelledError(), True),
    ],
)
async def test_what_a_body_raises_ends_neither_the_session_nor_the_process(
    tmp_path: Path, raised: BaseException, in_loop: bool
) -> None:
    world = World(answers=[raised])

    async def body(context: outlast.EffectContext) -> Any:
        return world.body(context)

    effects = [outlast.TurnEffect("push", "write_back", body if in_loop else world.body)]
    async with owner(tmp_path, effects) as session:
        assert (await (await session.send(PROMPT, agent="a")).result()).outcome == "parked"
        (lost,) = await bodies(session, EffectSettled)
        assert (lost.outcome, lost.reason) == ("unknown", f"its body raised {type(raised).__name__}")
        assert (await (await session.send(PROMPT)).result()).outcome == "done"


async def test_a_result_that_cannot_be_kept_is_done_all_the_same(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    world = World(answers=[endless, "x" * 20_000])
    effects = [
        outlast.TurnEffect("push", "write_back", world.body),
        outlast.TurnEffect("spend", "settle", world.body),
    ]
    async with owner(tmp_path, effects) as session:
        assert (await (await session.send(PROMPT, agent="a")).result()).outcome == "done"
        assert [body.result for body in await bodies(session, EffectSettled)] == [None, None]


async def test_a_cancel_ends_a_turn_whose_effect_takes_long(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def hangs(context: outlast.EffectContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with owner(tmp_path, [outlast.TurnEffect("push", "write_back", hangs)]) as session:
        turn = await session.send(PROMPT, agent="a")
        await begun.wait()
        assert (await session.cancel()).result == "done"
        outcome = await turn.result()
        assert outcome.outcome == "cancelled"
        assert "push" in outcome.reason
        (lost,) = await bodies(session, EffectSettled)
        assert lost.outcome == "unknown"


async def test_an_effect_that_ends_while_its_owner_leaves_is_recorded(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def push(context: outlast.EffectContext) -> str:
        begun.set()
        await go.wait()
        return "pushed"

    effects = [outlast.TurnEffect("push", "write_back", push)]
    async with owner(tmp_path, effects) as session:
        await session.send(PROMPT, agent="a", key="t")
        await begun.wait()
        leaving = asyncio.create_task(session.detach())
        await asyncio.sleep(0)
        go.set()
        await leaving
    async with owner(tmp_path, effects) as session:
        turn = await session.send(PROMPT, agent="a", key="t")
        assert (await turn.result()).outcome == "done"
        assert len(await bodies(session, EffectDispatched)) == 1


async def test_a_session_of_another_kind_of_agent_is_not_resumed_after_a_failed_turn(tmp_path: Path) -> None:
    """The name of the agent stands for another program now: nothing is launched, again and again, until it is
    that of the failed turn again; and `show` says so before."""
    from outlast.agents import Codex

    async with owner(tmp_path, []) as session:
        failed = await (await session.send("[[session:own]][[exit:3]]", agent="a")).result()
        assert failed.receipt is not None
        assert failed.receipt.host_recovery is not None
        (next_,) = (await session.view()).next_sessions
        assert (next_.action, next_.provider_session, next_.recovery) == ("resume", "own", "resume_session")
        assert next_.skip_host
    async with owner(tmp_path, [], Codex(binary="/bin/false")) as session:
        for _ in range(2):
            refused = await (await session.send("go on")).result()
            assert refused.receipt is not None
            assert (refused.receipt.failed_phase, refused.receipt.error.code) == (
                "host_launch",
                "session_mismatch",
            )
        assert len(await bodies(session, TurnAttemptStarted)) == 1
    async with owner(tmp_path, []) as session:
        assert (await (await session.send(PROMPT)).result()).outcome == "done"
        (next_,) = (await session.view()).next_sessions
        assert (next_.failed_turn, next_.confirmed) == (None, True)


async def test_settling_what_does_not_wait_is_refused(tmp_path: Path) -> None:
    async with owner(tmp_path, []) as session:
        await (await session.send(PROMPT, agent="a")).result()
        with pytest.raises(outlast.errors.EffectNotFoundError):
            await session.settle("push", done=True)
    with pytest.raises(UsageError):
        outlast.Runtime(effects=[outlast.TurnEffect("a", "settle", print)] * 2)


# --- a body that its owner has left behind ----------------------------------------------------------


class Slow(World):
    """A body that begins, and does what it is to do once the test lets it; its check looks."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.done: list[int] = []

    def body(self, context: outlast.EffectContext) -> Any:
        self.given.append(context)
        self.begun.set()
        if context.body == 1:
            self.goes_on.wait(30)
        self.done.append(context.body)

    def check(self, context: outlast.EffectContext) -> EffectOutcome:
        return "done" if self.done else "absent"

    @property
    def effect(self) -> outlast.TurnEffect:
        return outlast.TurnEffect("push", "write_back", self.body, self.check)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    monkeypatch.setattr(performing, "LEAVE", 0.0)
    monkeypatch.setattr(performing, "NAP", 0.0)
    made = Slow()
    yield made
    made.goes_on.set()


async def left_behind(path: Path, slow: Slow) -> None:
    """Its owner has left, and the body goes on."""
    async with outlast.Runtime(
        sqlite_url(path / "x.db"), agents={"a": an_agent(path)}, effects=[slow.effect]
    ) as runtime:
        await runtime.session("s", workspace=path).send(PROMPT, agent="a", key="t")
        await asyncio.to_thread(slow.begun.wait, 30)


async def goes_on(path: Path, slow: Slow) -> outlast.Outcome:
    """What the next owner makes of it."""
    async with outlast.Runtime(
        sqlite_url(path / "x.db"), agents={"a": an_agent(path)}, effects=[slow.effect]
    ) as runtime:
        await runtime.restore("s")
        (outcome,) = [each async for each in runtime.session("s").drain()]
        return outcome


async def test_effect_once_absent_is_not_believed_while_its_body_goes_on(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next owner waits for it, and then finds it done."""
    await left_behind(tmp_path, slow)
    taken, waited = performing._taken, list[bool]()

    def looks(lock: BodyLock) -> bool:
        if not taken(lock):
            waited.append(True)
            slow.goes_on.set()
            return False
        return True

    monkeypatch.setattr(performing, "_taken", looks)
    outcome = await goes_on(tmp_path, slow)
    assert outcome.outcome == "done", outcome
    assert waited
    assert slow.done == [1]


async def test_effect_once_a_body_that_never_ends_is_unknown(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performing, "LEFT_RUNNING", 0.0)
    await left_behind(tmp_path, slow)
    outcome = await goes_on(tmp_path, slow)
    slow.goes_on.set()
    assert outcome.outcome == "parked", outcome
    assert "whether push was done is not known" in (outcome.reason or "")
    assert len(slow.given) == 1
