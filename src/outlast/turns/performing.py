"""Runs the effects around a turn, once its agent is done: each outcome is durable before the next begins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec

from outlast.agents.contract import Failure, TurnEnded
from outlast.clock import monotonic
from outlast.errors import EffectRefusedError
from outlast.faults import point
from outlast.journal import Journal
from outlast.records.effects import EffectDispatched, EffectOutcome, EffectSettled
from outlast.records.envelope import Draft
from outlast.records.types import Body
from outlast.state.model import Effect, OpenTurn
from outlast.state.turn_ends import TurnText
from outlast.turns import patience
from outlast.turns.effects import (
    REASON_LIMIT,
    RESULT_LIMIT,
    EffectContext,
    Effects,
    Next,
    TurnEffect,
    next_step,
)
from outlast.turns.report import report
from outlast.turns.running import BodyLock, BodyRaised, begin, kind_raised
from outlast.turns.terminal import Ending, Stop

LEAVE = 5.0
"""Seconds for a body to end once its turn is stopped."""
LEFT_RUNNING = 60.0
"""Seconds for a body to end that an earlier owner has left behind."""
NAP = 0.2


@dataclass(slots=True)
class Performing:
    """The effects of `turn`. `stop` is a person's wish to end it, `wake` says that there may be one.
    `visits`: this owner came for commands alone, and leaves what it does not know to the next one."""

    journal: Journal
    turn: str
    effects: Effects
    workspace: str
    locks: Path
    """Where the locks of the bodies that run are."""
    stop: Callable[[], Stop | None]
    wake: asyncio.Event
    visits: bool = False
    _text: str | None = None
    _leaves: bool = False
    """Its owner leaves: what has ended by itself until then is recorded, nothing more is begun."""

    async def run(self) -> Ending | None:
        """Go on until the turn can be closed; None where it is left as it is. Raises LeaseLostError."""
        while True:
            if self._leaves:
                raise asyncio.CancelledError
            stop = self.stop()
            if stop is not None:
                return Ending(stop=stop, interrupted=self._left())
            chosen = next_step(self._open, self.effects)
            effect = chosen.effect
            match chosen.step:
                case "begin" if effect is not None:
                    await self._begin(effect)
                case "check" if effect is not None:
                    await self._check(effect)
                case "lose" if effect is not None:
                    await self._settle(effect, "unknown", "run", reason=chosen.why)
                case "lack" if self.visits:
                    return None
                case _:
                    return self._ending(chosen)

    @property
    def _open(self) -> OpenTurn:
        return self.journal.state.open_turns[self.turn]

    def _ending(self, chosen: Next) -> Ending:
        done, effect = self._open.host_done, chosen.effect
        assert done is not None
        if effect is None:
            ended = TurnEnded(self.turn, done.stop_reason, usage=dict(done.usage))
            return Ending(ended=ended, unlanded=frozenset())
        failed, why = effect.phase, f"{effect.name}: {chosen.why or 'no reason was given'}"
        if chosen.step == "fail":
            return Ending(failure=Failure("effect_refused", why), phase=failed)
        code = "effect_unknown" if chosen.step == "stop" else "effect_missing"
        settled = f"whether {effect.name} was done is not known" if chosen.step == "stop" else chosen.why
        return Ending(failure=Failure(code, why), phase=failed, parked=f"{settled} (effect {effect.effect})")

    def _left(self) -> str:
        """Evidence of a turn that is stopped here."""
        left = [e.name for e in self._open.effects.values() if e.outcome != "done"]
        return "its agent was done" + (f", these effects were not: {', '.join(left)}" if left else "")

    # --- a body, a check ---------------------------------------------------------------------------

    async def _begin(self, effect: Effect) -> None:
        given = await self._context(effect, effect.bodies + 1)
        lock = await self._alone(effect)
        if lock is None:
            if self.stop() is None:
                await self._settle(effect, "unknown", "run", reason="its last body goes on, left behind")
            return
        try:
            await self._dispatch(effect)
        except BaseException:
            lock.release()
            raise
        await self._run_body(effect, given, lock)

    async def _dispatch(self, effect: Effect) -> None:
        dispatched = EffectDispatched(effect=effect.effect, body=effect.bodies + 1)
        await patience.append(self.journal, [self._draft(dispatched)], at="turn.effect.dispatch")

    async def _run_body(self, effect: Effect, given: EffectContext, lock: BodyLock) -> None:
        try:
            result = await self._called(self.effects[effect.name].run, given, lock)
            point("turn.effect.ran")
        except EffectRefusedError as refused:
            await self._settle(effect, "absent", "run", reason=refused.message)
        except _Stopped:
            await self._settle(effect, "unknown", "run", reason="the turn was stopped while it ran")
        except Exception as error:  # noqa: BLE001 - it is the embedding program's; its rule decides
            report(f"the effect {effect.name} of turn {self.turn} failed", error)
            await self._failed(effect, self.effects[effect.name], error)
        else:
            kept, lost = _kept(result)
            await self._settle(effect, "done", "run", result=kept, reason=lost)

    async def _failed(self, effect: Effect, today: TurnEffect, error: Exception) -> None:
        """What it had done until then nobody knows: as after a crash, but for the reason that can be told."""
        # What it said goes to the program's log alone: it may hold anything.
        told = f"its body raised {kind_raised(error)}"
        if "never" in (effect.replay, today.rule):
            await self._settle(effect, "unknown", "run", reason=told)

    async def _alone(self, effect: Effect) -> BodyLock | None:
        """The lock of its bodies, once no other runs; None where one goes on for too long, or the turn is to
        end. Raises LeaseLostError."""
        lock, until = BodyLock(self.locks, effect.effect), monotonic() + LEFT_RUNNING
        while not _taken(lock):
            if self.stop() is not None or monotonic() >= until:
                return None  # A lock that cannot be had proves nothing.
            woken = asyncio.create_task(self.wake.wait())
            try:
                await asyncio.wait((woken,), timeout=NAP)
            finally:
                woken.cancel()
            self.wake.clear()
            self.journal.raise_if_lost()
        return lock

    async def _check(self, effect: Effect) -> None:
        lock = await self._alone(effect)
        try:
            if lock is not None or self.stop() is None:
                await self._asked(effect, alone=lock is not None)
        finally:
            if lock is not None:
                lock.release()

    async def _asked(self, effect: Effect, *, alone: bool) -> None:
        """`alone`: no body of it runs any more, so that what is absent stays so."""
        asked = self.effects[effect.name].check
        assert asked is not None
        outcome: EffectOutcome = "unknown"
        reason = "its check could not tell"
        try:
            found = await self._called(asked, await self._context(effect, effect.bodies))
            if found == "absent" and not alone:
                reason = "it has not happened yet, and its last body goes on, left behind"
            elif found in get_args(EffectOutcome):
                outcome, reason = found, "" if found != "unknown" else reason
            else:
                reason = f"its check said {found!r:.100}, which is no outcome"
        except _Stopped:
            return
        except Exception as error:  # noqa: BLE001 - it is the embedding program's, and cannot tell
            report(f"the check of effect {effect.name} of turn {self.turn} failed", error)
            reason = f"its check raised {kind_raised(error)}"
        await self._settle(effect, outcome, "check", reason=reason)

    async def _settle(
        self, effect: Effect, outcome: EffectOutcome, by: Any, *, result: str | None = None, reason: str = ""
    ) -> None:
        settled = EffectSettled(
            effect=effect.effect, outcome=outcome, by=by, result=result, reason=reason[:REASON_LIMIT]
        )
        await patience.append(self.journal, [self._draft(settled)], at="turn.effect.settle")

    async def _context(self, effect: Effect, body: int) -> EffectContext:
        turn, done = self._open, self._open.host_done
        assert done is not None
        if self._text is None:
            self._text = await _text_of(self.journal, turn)
        results = {
            each.name: None if each.result is None else msgspec.json.decode(each.result)
            for each in turn.effects.values()
            if each.outcome == "done"
        }
        return EffectContext(
            session=self.journal.name,
            turn=self.turn,
            name=effect.name,
            phase=effect.phase,
            key=effect.key,
            body=body,
            workspace=self.workspace,
            text=self._text,
            stop_reason=done.stop_reason,
            usage=dict(done.usage),
            results=results,
        )

    async def _called(
        self, function: Callable[[EffectContext], Any], given: EffectContext, lock: BodyLock | None = None
    ) -> Any:
        """What `function` gives. Raises what it raises, and _Stopped once a person wants the turn ended or
        this process is the owner no more: then it is cancelled, and left alone where it takes no notice."""
        task = begin(function, given, lock)
        lost = asyncio.create_task(self.journal.lost.wait())
        try:
            while not task.done():
                woken = asyncio.create_task(self.wake.wait())
                try:
                    await asyncio.wait((task, woken, lost), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
                self.wake.clear()
                if not task.done() and (self.stop() is not None or lost.done()):
                    task.cancel()
                    if (await asyncio.wait((task,), timeout=LEAVE))[1]:
                        report("an effect goes on after its turn", TimeoutError("it does not end"))
                    self.journal.raise_if_lost()
                    raise _Stopped
        except asyncio.CancelledError:
            # A body that is about to end is not left without its outcome.
            if self._leaves or not (await asyncio.wait((task,), timeout=LEAVE))[0]:
                raise
            self._leaves = True
        finally:
            lost.cancel()
            task.cancel()
        if task.cancelled() and not self._leaves:
            raise BodyRaised(asyncio.CancelledError())  # by itself: nobody here has cancelled it
        return task.result()

    def _draft(self, body: Body) -> Draft:
        return Draft(body=body, loop=self._open.loop, turn=self.turn)


class _Stopped(Exception):  # noqa: N818 - becomes an outcome
    """The turn is to end while a body runs."""


def _taken(lock: BodyLock) -> bool:
    try:
        return lock.take()
    except OSError as error:
        report("the lock of an effect cannot be used", error)
        return False


def _kept(result: Any) -> tuple[str | None, str]:
    """A result as JSON, and why it is not kept: it is done all the same."""
    if result is None:
        return None, ""
    try:
        encoded = msgspec.json.encode(result)
        text = encoded.decode("utf-8")
    except Exception as error:  # noqa: BLE001 - too large a number, too deep: it is done all the same
        return None, f"its result is not kept: {type(error).__name__}"
    if len(encoded) > RESULT_LIMIT:
        return None, f"its result is not kept: {len(encoded)} bytes of JSON, the limit is {RESULT_LIMIT}"
    return text, ""


async def _text_of(journal: Journal, turn: OpenTurn) -> str:
    """What the agent said in the attempt that did the turn's host step."""
    text, pieces = TurnText(turn.turn), []
    async for record in journal.read(after=turn.attempt_seq):
        pieces.append(text.piece(record))
    return "".join(pieces)
