"""Sessions as a crash left them, with commands that wait: the plan says what the resume then does."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

import pytest
from tests.support.agents import Keeping
from tests.support.processes import until
from tests.support.stores import in_time

import outlast
from outlast.errors import OutlastError, UsageError
from outlast.journal import load_state, read_records
from outlast.records.envelope import Record
from outlast.records.types import CommandSettled, Content, TurnAttached, TurnAttemptStarted, TurnDone
from outlast.restore.plan import RestorePlan
from outlast.store.contract import Admission, EntryKind
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command
from outlast.turns.requests import (
    AnswerRequest,
    CloseRequest,
    HoldRequest,
    InputRequest,
    Request,
    StopRequest,
    TurnRequest,
    encode,
)

CASES = 3
"""Of each left state, each with other commands."""
FIRST = {
    "done": "[[say:one]]",
    "failed": "[[1?exit:3]][[say:one]]",
    "parked": "[[1?error:quota_exhausted:used up]][[say:one]]",
    "cut off": "[[1?effect:{pid}]][[1?wait:never]][[say:one]]",
    "alive": "[[effect:{pid}]][[wait:go]][[say:one]]",
    "asking": "[[effect:{pid}]][[gate:g:Shall I?:yes,no]][[say:one]]",
    "lost": "[[say:one]]",
}
LEFT = [
    ("done", "skip"),
    ("failed", "skip"),
    ("parked", "skip"),
    *(("cut off", rule) for rule in ("skip", "hold", "ask", "retry", "continue")),
    ("alive", "skip"),
    ("asking", "skip"),
    ("lost", "skip"),
]


class Place:
    """A session `s` in a store of its own; its agent keeps its sessions in `home`."""

    def __init__(self, path: Path, on_interrupt: str, after_failure: str) -> None:
        self.path = path
        for name in ("home", "work"):
            (path / name).mkdir(parents=True)
        argv = command(SCRIPTED, "--effects", str(path / "effects"))
        self.agent = Keeping(
            argv,
            home=path / "home",
            stdin="open",
            on_interrupt=cast('Literal["skip"]', on_interrupt),
            after_failure=cast('Literal["continue"]', after_failure),
        )

    def runtime(self) -> outlast.Runtime:
        return outlast.Runtime(sqlite_url(self.path / "x.db"), agents={"a": self.agent})

    def pid(self) -> int:
        """Of the agent at work, once it says so."""
        file = self.path / "effects"
        said = until(lambda: file.read_text().split() if file.exists() else [], "the agent")
        return int(said[-1])

    async def leave(self, how: str) -> None:
        """The first turn `t`, and how its owner leaves it."""
        (self.path / "home" / "thr").write_bytes(b"one line\n")
        async with self.runtime() as runtime:
            session = runtime.session("s", workspace=self.path / "work")
            prompt = f"[[session:thr]]{FIRST[how]}"
            turn = await session.send(prompt, agent="a", key="t")
            if how in ("cut off", "alive", "asking"):
                pid = await asyncio.to_thread(self.pid)
                if how == "asking":
                    await settles(lambda: asked(runtime), "the question")
                await session.detach()
                if how == "cut off":
                    os.kill(pid, signal.SIGKILL)
                return
            await turn.result()
            await session.finish()
            if how == "lost":
                (self.path / "home" / "thr").write_bytes(b"another line\n")
                await (await session.send("[[say:lost]]", key="u")).result()
                await session.finish()


async def asked(runtime: outlast.Runtime) -> bool:
    return bool((await load_state(runtime.store, "s")).gates)


async def settles(fact: Callable[[], Awaitable[bool]], what: str) -> None:
    async with asyncio.timeout(30):
        while not await fact():  # noqa: ASYNC110 - processes and stores, which ring no bell
            await asyncio.sleep(0.01)


def drawn(
    chance: random.Random, gates: Sequence[str], choices: Sequence[str]
) -> list[tuple[EntryKind, Request]]:
    """Some commands and inputs, in an order in which many of them come too late."""
    turns = ["t", "u", "in0", "in1", None]
    words: list[tuple[EntryKind, Request]] = []
    for number in range(chance.randint(1, 4)):
        prompt = InputRequest(content=[Content(text=f"[[say:{number}]]")])
        kinds: list[tuple[EntryKind, Request]] = [
            ("input", prompt),
            ("input", prompt),
            ("retry", TurnRequest(turn=chance.choice(["t", "u"]))),
            ("retry", TurnRequest(turn=chance.choice(["t", "u"]), session="fresh")),
            ("skip", TurnRequest(turn=chance.choice(turns))),
            ("cancel", StopRequest(turn=chance.choice(turns))),
            ("kill", StopRequest(turn=chance.choice(turns))),
            ("hold", HoldRequest(inputs=["in0", "in1"], reason="put back")),
        ]
        if gates:
            answer = AnswerRequest(gate=chance.choice(gates), choice=chance.choice(choices))
            kinds += [("answer", answer)] * 4
        words.append(chance.choice(kinds))
    if chance.random() < 0.1:
        words.append(("close", CloseRequest()))
    return words


async def given(runtime: outlast.Runtime, words: Sequence[tuple[EntryKind, Request]]) -> None:
    inputs = 0
    for number, (kind, request) in enumerate(words):
        name = f"{kind}{number}"
        if kind == "input":
            name, inputs = f"in{inputs}", inputs + 1
        await runtime.store.admit(Admission("s", name, kind, encode(request), "me"))


def at_work(records: Sequence[Record]) -> list[str]:
    """The turns that an agent was at work on, in their order."""
    found = [r.turn or "" for r in records if isinstance(r.body, TurnAttached | TurnAttemptStarted)]
    return list(dict.fromkeys(found))


def results(records: Sequence[Record], plan: RestorePlan) -> dict[str, str]:
    """What became of each command that the plan names."""
    found: dict[str, str] = {}
    for record in records:
        body = record.body
        name = body.request_id if isinstance(body, CommandSettled) else record.cause
        if name is None:
            continue
        if isinstance(body, CommandSettled):
            found[name] = body.outcome
        else:
            found.setdefault(name, "done")
    assert plan.ahead is not None
    return {x.asked.request_id: found.get(x.asked.request_id, "waits") for x in plan.ahead.commands}


async def compared(place: Place, how: str, words: Sequence[tuple[EntryKind, Request]]) -> None:
    async with place.runtime() as runtime:
        if how == "cut off":
            await settles(lambda: acted(runtime, "interrupt"), "the agent's end")
        await given(runtime, words)
        plan = await runtime.plan_restore("s")
        tip = (await runtime.store.tip("s")).seq
        ahead = plan.ahead
        assert ahead is not None
        told = "\n".join([str(words), *plan.lines(), str(ahead)])
        assert ahead.inputs == plan.queued + sum(kind == "input" for kind, _ in words), told
        expected = {x.asked.request_id: x.result for x in ahead.commands}
        session = await runtime.restore("s")
        waits = {name for name, result in expected.items() if result == "waits"}
        done = expected.keys() - waits

        async def carried_out() -> bool:
            return not done & {entry.request_id for entry in await runtime.store.pending("s")}

        await settles(carried_out, told)
        lives = any(turn.action == "attach" for turn in plan.turns)
        if lives and ahead.runs[:1] == ("t",):
            # Whoever is given an answer may be done with its turn by now.
            answered = any(kind == "answer" for kind, _ in words)
            assert answered or "t" in (await load_state(runtime.store, "s")).open_turns, told
            (place.path / "work" / "go").touch()
            with suppress(OutlastError):
                for gate in (await load_state(runtime.store, "s")).gates:
                    await session.answer(gate, "yes")
        with suppress(UsageError):  # A close has ended it.
            await in_time(session.quiet())
        records = [record async for record in read_records(runtime.store, "s", tip)]
        if (
            lives
            and "t" not in ahead.runs
            and any(isinstance(r.body, TurnDone) and r.turn == "t" for r in records)
        ):
            return  # Its agent was faster than who stopped it, which no plan can know.
        came_of = results(records, plan)
        assert {name: came_of[name] for name in done} == {name: expected[name] for name in done}, told
        if waits:
            return
        state = await load_state(runtime.store, "s")
        if plan.next_sessions and plan.next_sessions[0].action == "ask":
            assert at_work(records) == [], told
            return
        began = [turn for turn in at_work(records) if not lives or turn != "t"]
        assert began == [turn for turn in ahead.runs if not lives or turn != "t"], told
        assert list(state.parked) == [parked.turn for parked in ahead.parked], told
        with suppress(UsageError):
            await session.finish()


async def acted(runtime: outlast.Runtime, action: str) -> bool:
    return [turn.action for turn in (await runtime.plan_restore("s")).turns] == [action]


@pytest.mark.slow
@pytest.mark.parametrize(("how", "rule"), LEFT)
@pytest.mark.parametrize("case", range(CASES))
async def test_given_the_same_facts_the_plan_is_what_the_resume_does(
    tmp_path: Path, how: str, rule: str, case: int
) -> None:
    chance = random.Random(f"{how} {rule} {case}")  # noqa: S311 - the same cases each time
    place = Place(tmp_path, rule, chance.choice(["continue", "continue", "hold"]))
    await place.leave(how)
    async with place.runtime() as runtime:
        gates = (await load_state(runtime.store, "s")).gates
    choices = [choice.id for gate in gates.values() for choice in gate.opened.choices]
    await compared(place, how, drawn(chance, list(gates), choices))


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["cancel", "kill"])
async def test_a_stop_is_told_as_what_ended_the_turn_also_where_a_close_follows_it(
    tmp_path: Path, stop: EntryKind
) -> None:
    place = Place(tmp_path, "skip", "continue")
    await place.leave("alive")
    await compared(place, "alive", [(stop, StopRequest(turn="t")), ("close", CloseRequest())])


@pytest.mark.slow
async def test_inputs_that_are_held_behind_the_turn_at_work_are_not_said_to_run(tmp_path: Path) -> None:
    place = Place(tmp_path, "skip", "continue")
    await place.leave("alive")
    prompt = InputRequest(content=[Content(text="[[say:x]]")])
    async with place.runtime() as runtime:
        await given(
            runtime, [("input", prompt), ("hold", HoldRequest(inputs=["t", "in0"], reason="put back"))]
        )
        ahead = (await runtime.plan_restore("s")).ahead
        assert ahead is not None
        assert ahead.runs == ("t",)
        assert [(parked.turn, parked.reason) for parked in ahead.parked] == [("in0", "put back")]
        session = await runtime.restore("s")
        (place.path / "work" / "go").touch()
        await in_time(session.quiet())
        assert list((await load_state(runtime.store, "s")).parked) == ["in0"]
        await session.finish()
