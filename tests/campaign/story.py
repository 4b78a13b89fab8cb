"""The campaign's story, told by a real process until it is over.

Whoever is killed is started again and goes on: each step looks at the journal first. What was acknowledged is
not asked for again; what was not is, under the same name. In the middle it ends itself and its agent, as a
power cut would.

    one     its input is larger than a record may be, so that a blob stands in its place
    two     is queued behind it and asks twice: a policy answers first, a person then, to another owner
    three   is cancelled while it works; `four` waits behind it, `withdrawn` is taken out of the queue; a
            person lets the held queue go on; the owner finishes, the next one begins with nothing open
    five    works in a step that is a tool call
    six     its agent crashes; it is retried, and done
    seven   agent and owner die under it; it is parked (`hold`), retried, and done; blobs are collected, the
            session is closed

Each turn owes two effects once its agent is done: `note`, which may run again, and `push`, which has a check.
What an agent does outside is one line in ROOT/effects, what an effect around a turn does one in ROOT/outside,
what the teller was acknowledged one in ROOT/told.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from tests.support.effects_owner import Outside

from outlast.agents.command import Command
from outlast.agents.contract import Capabilities
from outlast.journal import read_records, snapshots
from outlast.keep import AgentFolder
from outlast.keep.facts import look
from outlast.records import types as t
from outlast.records.envelope import Record
from outlast.runtime.runtime import Runtime
from outlast.store.contract import Admission, EntryKind
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command
from outlast.turns.effects import TurnEffect
from outlast.turns.requests import AnswerRequest, CloseRequest, Request, StopRequest, TurnRequest, encode

SESSION = "story"
SNAPSHOTS_FROM = 2_000
"""Bytes of journal that are worth a snapshot here, so that a short story has some."""
PATIENCE = 60.0
"""Seconds after which a step that does not come about fails the story."""
DONE, STUCK = 0, 3
"""How the process ends: the story is over, a step never came about."""

INPUTS: dict[str, str] = {
    "one": "[[session:]][[effect:]][[say:first]]" + "." * 300_000,
    "two": "[[effect:]][[gate:p:Allowed?:yes,no]][[gate:g:Go on?:yes,no]][[effect:answered]]",
    "three": "[[effect:]][[touch:three]][[wait:never]]",
    "four": "[[session:]][[effect:]][[say:fourth]]",
    "withdrawn": "[[effect:]]",
    "five": "[[effect:]][[tool:look:ls:started]][[tool:look:ls:completed]][[say:fifth]]",
    "six": "[[effect:]][[1?exit:3]][[say:sixth]]",
    "seven": "[[session:]][[effect:]][[1?touch:seven]][[1?wait:never]][[say:seventh]]",
}
RETRIED = frozenset({"six", "seven"})
"""Those that a person lets run again."""

ENDINGS = (t.TurnDone, t.TurnFailed, t.TurnInterrupted, t.TurnParked)
POLICY = "Allowed?"
"""The question that a policy answers."""

T = TypeVar("T")
B = TypeVar("B", bound=t.Body)


class StuckError(Exception):
    """A step of the story never came about."""


@dataclass(frozen=True, slots=True)
class Told:
    """The journal as it is now."""

    records: list[Record]

    def endings(self, turn: str) -> list[Record]:
        return [r for r in self.records if r.turn == turn and isinstance(r.body, ENDINGS)]

    def over(self, turn: str) -> bool:
        """Its newest opening has been closed; one that was withdrawn never had any."""
        last = [
            r for r in self.records if r.turn == turn and isinstance(r.body, t.TurnStarted | t.TurnRetried)
        ]
        if last:
            return bool(self.endings(turn)) and self.endings(turn)[-1].seq > last[-1].seq
        return any(isinstance(r.body, t.InputCancelled) and r.body.request_id == turn for r in self.records)

    def outcome(self, turn: str) -> str:
        endings = self.endings(turn)
        return endings[-1].type if endings else "none"

    def of(self, kind: type[B]) -> list[B]:
        return [record.body for record in self.records if isinstance(record.body, kind)]

    @property
    def held(self) -> bool:
        changes = self.of(t.LoopChanged)
        return bool(changes) and changes[-1].state == "held"

    @property
    def question(self) -> str | None:
        """The gate that waits for a person."""
        closed = {gate.gate for gate in self.of(t.GateResolved)}
        asked = (gate for gate in self.of(t.GateOpened) if gate.question != POLICY)
        return next((gate.gate for gate in asked if gate.gate not in closed), None)


class Teller:
    def __init__(self, root: Path, runtime: Runtime, patience: float) -> None:
        self.root = root
        self.patience = patience
        self.work = root / "work"
        self.runtime = runtime
        self.session = runtime.session(SESSION, workspace=self.work)

    # --- asking --------------------------------------------------------------------------------

    async def send(self, name: str, on_interrupt: t.OnInterrupt | None = None) -> None:
        if not self.was_told(name):
            await self.session.send(INPUTS[name], agent="scripted", key=name, on_interrupt=on_interrupt)
            self._acknowledged(name)

    async def ask(self, request_id: str, kind: EntryKind, request: Request) -> None:
        """Admit a command under a name of its own, and wait until it is settled."""
        store = self.runtime.store
        if not self.was_told(request_id):
            body = encode(request)
            await store.admit(Admission(SESSION, request_id, kind, body, actor="teller"))
            self._acknowledged(request_id)
        self.runtime.serve(SESSION)
        await self._wait(f"{request_id} is settled", lambda: store.settled(SESSION, request_id))

    def _acknowledged(self, name: str) -> None:
        file = os.open(self.root / "told", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, name.encode() + b"\n")
        os.close(file)

    def was_told(self, name: str) -> bool:
        told = self.root / "told"
        return told.exists() and name in told.read_text("utf-8").split()

    # --- waiting -------------------------------------------------------------------------------

    async def told(self) -> Told:
        return Told([record async for record in read_records(self.runtime.store, SESSION)])

    async def until(self, what: str, fact: Callable[[Told], T | None]) -> T:
        async def look_now() -> T | None:
            return fact(await self.told())

        return await self._wait(what, look_now)

    async def _wait(self, what: str, look_now: Callable[[], Awaitable[T | None]]) -> T:
        try:
            async with asyncio.timeout(self.patience):
                with self.runtime.store.changes(SESSION) as changed:
                    while True:
                        changed.clear()
                        found = await look_now()
                        if found is not None:
                            return found
                        if failed := self.runtime.serving_failed(SESSION):
                            raise failed
                        self.runtime.serve(SESSION)
                        with suppress(TimeoutError):
                            async with asyncio.timeout(0.2):
                                await changed.wait()
        except TimeoutError:
            raise StuckError(what) from None

    async def over(self, turn: str) -> Told:
        return await self.until(f"{turn} is over", lambda told: told if told.over(turn) else None)

    async def there_or_over(self, turn: str) -> Told:
        """Until the agent says that it is in the middle of the turn, or the turn is over."""
        there = self.work / turn

        def works(told: Told) -> Told | None:
            return told if told.over(turn) or there.exists() else None

        return await self.until(f"{turn} works", works)

    # --- the story -----------------------------------------------------------------------------

    async def tell(self, *, take_over: bool) -> None:
        if take_over:
            await self.runtime.restore(SESSION, take_over=True)
        for chapter in (self.queue_and_gates, self.cancel, self.crash, self.power_cut, self.end):
            await chapter()

    async def queue_and_gates(self) -> None:
        await self.send("one")
        await self.send("two")
        await self.over("one")

        def asks(told: Told) -> Told | None:
            return told if told.question or told.over("two") else None

        question = (await self.until("two asks", asks)).question
        if question is not None:
            if self.runtime.actor(SESSION) is not None and not self.was_told("answer-two"):
                await self.session.detach()
            await self.ask("answer-two", "answer", AnswerRequest(gate=question, choice="yes", by="teller"))
        await self.over("two")

    async def cancel(self) -> None:
        await self.send("three")
        await self.send("four")
        await self.send("withdrawn")
        await self.ask("cancel-withdrawn", "cancel", StopRequest(turn="withdrawn"))
        if not (await self.there_or_over("three")).over("three"):
            await self.ask("cancel-three", "cancel", StopRequest(turn="three"))
        if (await self.over("three")).held:
            await self.runtime.restore(SESSION)
        await self.over("four")
        await self.send("five")
        await self.over("five")
        if self.runtime.actor(SESSION) is not None and not self.was_told("six"):
            await self.session.finish()

    async def crash(self) -> None:
        await self.send("six")
        await self._until_done("six")

    async def power_cut(self) -> None:
        await self.send("seven", on_interrupt="hold")
        told = await self.there_or_over("seven")
        cut = self.root / "power-cut"
        if not told.endings("seven") and not cut.exists():
            cut.touch()
            self.end_everything()
        await self._until_done("seven")

    async def _until_done(self, turn: str) -> None:
        """A person lets it run again, once."""
        told = await self.over(turn)
        if told.outcome(turn) != "TurnDone":
            await self.ask(f"retry-{turn}", "retry", TurnRequest(turn=turn))
            await self.over(turn)

    async def end(self) -> None:
        if not self.was_told("close"):
            await self.runtime.store.put_blob(b"no record needs this")
            await self.runtime.store.collect_blobs(untouched_for=0.0)
        await self.ask("close", "close", CloseRequest())

    def end_everything(self) -> None:
        for folder in (self.runtime.store.folder / "agents").iterdir():
            latest = AgentFolder(folder).latest()
            facts = look(latest) if latest is not None else None
            for process in (facts.guard, facts.shim) if facts is not None else ():
                if process is not None:
                    with suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
            if facts is not None and facts.agent_pid:
                with suppress(ProcessLookupError):
                    os.kill(facts.agent_pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class Chosen(Command):
    """The bundled agent, as one whose session we name before it is started, as Claude Code's."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, choose_id=True)


AROUND = ("note", "push")
"""The effects that each turn owes, in the order of their phases."""


def effects(root: Path) -> list[TurnEffect]:
    outside = Outside(root)
    return [
        TurnEffect("note", "typed_result", outside.add, replay="safe"),
        TurnEffect("push", "write_back", outside.add, outside.look),
    ]


def policy(gate: t.GateOpened) -> str | None:
    return "yes" if gate.question == POLICY else None


async def tell(root: Path, *, take_over: bool = False, patience: float = PATIENCE) -> int:
    """`take_over`: begin by taking the session from an owner that lives."""
    snapshots.LEAST = SNAPSHOTS_FROM
    argv = command(SCRIPTED, "--effects", str(root / "effects"))
    agents = {"scripted": Chosen(argv, stdin="open")}
    url = sqlite_url(root / "state" / "outlast.db")
    try:
        async with Runtime(
            url, agents=agents, on_gate=policy, label="teller", effects=effects(root)
        ) as runtime:
            await Teller(root, runtime, patience).tell(take_over=take_over)
    except StuckError as stuck:
        print(f"stuck: {stuck}", file=sys.stderr)
        return STUCK
    return DONE


def main(root: Path, take_over: bool) -> int:
    return asyncio.run(tell(root, take_over=take_over))
