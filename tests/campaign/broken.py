"""Builds that are broken on purpose: the story with one guarantee taken out.

Only this entry can do it: the product has no switch for any of them. Each broken build writes down where it
departs from the real one, in ROOT/departures: `LEG POINT@N`, a kill at that passage meets the fault, or
`now`, it has happened. A run that met the fault must be found wrong by the checks.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from tests.campaign.story import tell

from outlast import faults
from outlast.journal import Journal, read_records, snapshots, writer
from outlast.journal.loading import Loaded
from outlast.keep import start
from outlast.records import types as t
from outlast.records.envelope import Draft, Record
from outlast.restore import phases, plan
from outlast.state import fold, turn_rules
from outlast.state.model import State
from outlast.state.snapshot import snapshot_of, state_of
from outlast.store.contract import Admission, Admitted, Append
from outlast.store.sqlite import operations, store, transaction
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.transaction import Transaction
from outlast.turns.conversation import Conversation
from outlast.turns.performing import Performing

ROOT = Path(sys.argv[2]) if __name__ == "__main__" else Path()
"""Of the story; others import only the names of the controls."""
BRIEFLY = 6.0
"""Seconds for a step: many of them never come about."""
WAITING = ("two 1", "three 1", "seven 1")
"""Effects of agents that wait afterwards: nothing says how their turns end."""


def instead(owner: Any, name: str, made: Callable[[Any], Any]) -> None:
    """Put what `made` makes of the real one in its place."""
    setattr(owner, name, made(getattr(owner, name)))


def departs(at: str) -> None:
    file = os.open(ROOT / "departures", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, at.encode() + b"\n")
    os.close(file)


def departs_at_next(point: str, effect: str = "") -> None:
    """The fault shows to who is killed at the next passage of `point`, once `effect` is there."""
    folder = faults.requested().partition("passages=")[2].partition(",")[0]
    passed = Path(folder, point)
    nth = (passed.stat().st_size if passed.exists() else 0) + 1
    departs(f"{Path(folder).name} {point}@{nth} {effect}".strip())


def no_fence() -> None:
    """An append asks nobody whether its lease is still the one in force."""

    def left_out(name: str) -> bool:
        return name == "store.fence" or faults.point(name)

    instead(transaction, "point", lambda _: left_out)
    instead(store, "point", lambda _: left_out)
    departs("now")


def input_before_intent() -> None:
    """The line is given to the agent first, and named in the journal then."""

    def made(real: Any) -> Any:
        async def write(self: Any, item: Any) -> None:
            if getattr(item, "carries", None) is None:
                await real(self, item)
                return
            seq = self.host.intake.fold.last_input + 1
            await self.host.write(seq, item)
            effect = f"{self.turn} {self._open.attempts}"
            if effect in WAITING:
                departs_at_next("turn.reserve.before_append", effect)
            await self._reserve(seq, item)

        return write

    instead(Conversation, "_write", made)


def two_commits() -> None:
    """What belongs together is stored one record after the other."""

    def made(real: Any) -> Any:
        async def append(self: SqliteStore, batch: Append) -> int:
            if not any(row.type == "SessionStarted" for row in batch.rows):
                return await real(self, batch)  # type: ignore[no-any-return]
            end = batch.expected_seq
            for row in batch.rows:
                if row.seq > batch.expected_seq + 1:
                    departs_at_next("store.append.before_commit")
                settle = tuple(item for item in batch.settle if item.seq == row.seq)
                one = batch._replace(rows=(row,), expected_seq=row.seq - 1, settle=settle)
                end = await real(self, one)
            return end

        return append

    instead(SqliteStore, "append", made)


def sent_again() -> None:
    """A turn that a crash cut off runs again, although its outcome is unknown and nobody asked for it."""

    def made(_: Any) -> Any:
        def what_then(*_: Any, **__: Any) -> str:
            departs("now")
            return "retry"

        return what_then

    instead(plan, "what_then", made)


def landing_ignored() -> None:
    """An input counts as never written, whatever the spool says."""

    def made(real: Any) -> Any:
        def planned(turn: Any, agent: Any) -> t.PlannedTurn:
            found: t.PlannedTurn = real(turn, agent)
            if found.action != "interrupt":
                return found
            departs("now")
            return t.PlannedTurn(turn=turn.turn, loop=turn.loop, action="return", evidence=found.evidence)

        return planned

    instead(plan, "_plan_turn", made)


@dataclasses.dataclass(frozen=True, slots=True)
class _Settle:
    """The inbox's part of an append, alone."""

    point: ClassVar[str] = "append"
    batch: Append

    def run(self, txn: Transaction) -> None:
        s = txn.session(self.batch.name)
        assert s is not None
        txn.settled.update(operations.AppendRows(self.batch)._settlements(txn, s))
        txn.wrote = True


def inbox_first() -> None:
    """The inbox entry is settled in a commit of its own, before the record that settles it."""

    def made(real: Any) -> Any:
        async def append(self: SqliteStore, batch: Append) -> int:
            if batch.settle:
                await self._submit(_Settle(batch))
                batch = batch._replace(settle=())
                departs_at_next("store.append.before_commit")
            return await real(self, batch)  # type: ignore[no-any-return]

        return append

    instead(SqliteStore, "append", made)


def acknowledged_early() -> None:
    """`send()` and its like return before what they admit is stored."""
    waiting: set[asyncio.Task[Admitted]] = set()

    def made(real: Any) -> Any:
        async def admit(self: SqliteStore, admission: Admission) -> Admitted:
            known = await self.settled(admission.session, admission.request_id)
            listed = await self.listed(admission.session)
            if known is not None or listed is None:
                return await real(self, admission)  # type: ignore[no-any-return]
            departs_at_next("store.admit.before_commit")
            task = asyncio.ensure_future(real(self, admission))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            await asyncio.sleep(0)
            return Admitted(created=True)

        return admit

    instead(SqliteStore, "admit", made)


def repaired_twice() -> None:
    """A restore repairs once more what it has repaired, and the fold lets it."""

    def lenient(state: State, record: Record, body: t.TurnInterrupted) -> None:
        if record.turn in state.open_turns:
            turn_rules.RULES[t.TurnInterrupted](state, record, body)

    async def done(now: phases.Restoring) -> None:
        again = [
            Draft(body=t.TurnInterrupted(index=1, reason="crash"), loop=turn.loop, turn=turn.turn)
            for turn in (now.plan.turns if now.plan is not None else ())
            if turn.action == "interrupt"
        ]
        if again and now.journal is not None:
            departs("now")
            await now.journal.append(again)
        await done_once(now)

    done_once = next(phase.run for phase in phases.PHASES if phase.name == "done")
    rules: Any = fold._RULES
    rules[t.TurnInterrupted] = lenient
    twice = (dataclasses.replace(p, run=done) if p.name == "done" else p for p in phases.PHASES)
    instead(phases, "PHASES", lambda _: tuple(twice))


def snapshot_ahead() -> None:
    """A snapshot is written before the records that it holds, and believed without a look at the journal."""

    def made(real: Any) -> Any:
        async def store_it(self: Any, batch: Any, *more: Any) -> None:
            if batch.state.seq > 10:
                await self._store.put_snapshot(snapshot_of(batch.state), self.lease)
                departs_at_next("journal.append.before")
            await real(self, batch, *more)

        return store_it

    def believing(real: Any) -> Any:
        async def load(store: Any, name: str) -> Loaded:
            kept = await store.snapshots(name)
            if not kept:
                return await real(store, name)  # type: ignore[no-any-return]
            state = state_of(kept[0])
            async for record in read_records(store, name, after=state.seq):
                fold.apply(state, record)
            return Loaded(state)

        return load

    instead(writer, "load", believing)
    instead(snapshots.Snapshots, "grew", lambda _: lambda *_: None)
    instead(Journal, "_store_and_apply", made)


def check_skipped() -> None:
    """An effect that began, and whose outcome is not recorded, counts as absent: its check is not asked."""

    async def believed(self: Any, effect: Any) -> None:
        await self._settle(effect, "absent", "check")

    def made(real: Any) -> Any:
        async def run_body(self: Any, effect: Any, *more: Any) -> None:
            if effect.replay == "check":
                departs_at_next("turn.effect.ran")
                departs_at_next("turn.effect.settle.before_append")
            await real(self, effect, *more)

        return run_body

    instead(Performing, "_check", lambda _: believed)
    instead(Performing, "_run_body", made)


def outcome_first() -> None:
    """An effect's outcome is recorded first, and its body runs then."""

    async def run_body(self: Any, effect: Any, given: Any, lock: Any) -> None:
        departs_at_next("turn.effect.settle.after_append")
        await self._settle(effect, "done", "run")
        await self._called(self.effects[effect.name].run, given, lock)

    instead(Performing, "_run_body", lambda _: run_body)


def not_cut_off() -> None:
    """A shim goes on to take the word of an owner that another one, of a higher epoch, has replaced."""
    broken = "from outlast_keep.desk import Desk;Desk._cut=lambda *_: None;"
    instead(
        start,
        "_BOOT",
        lambda boot: boot.replace("from outlast_keep.guard", broken + "from outlast_keep.guard"),
    )
    assert broken in start._BOOT


CONTROLS: dict[str, Callable[[], None]] = {
    "no-fence": no_fence,
    "input-before-intent": input_before_intent,
    "two-commits": two_commits,
    "sent-again": sent_again,
    "landing-ignored": landing_ignored,
    "inbox-first": inbox_first,
    "acknowledged-early": acknowledged_early,
    "repaired-twice": repaired_twice,
    "snapshot-ahead": snapshot_ahead,
    "check-skipped": check_skipped,
    "outcome-first": outcome_first,
    "not-cut-off": not_cut_off,
}

if __name__ == "__main__":
    CONTROLS[sys.argv[1]]()
    raise SystemExit(asyncio.run(tell(ROOT, take_over="take-over" in sys.argv[3:], patience=BRIEFLY)))
