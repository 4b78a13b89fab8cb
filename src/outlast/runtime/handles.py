"""What a caller holds: sessions and turns. A handle does no I/O until it is asked to and owns nothing.

The same handles serve an embedding Runtime, which owns sessions, and a client, which only speaks through
the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from outlast.errors import BusyError, UsageError
from outlast.ids import new_id
from outlast.journal import CaughtUp, follow, load_state
from outlast.records.agent_state import LostChoice
from outlast.records.envelope import Record
from outlast.records.types import CommandSettled, Content, GateResolved, InputCancelled, OnInterrupt, WhenBusy
from outlast.restore.opening import Opening, encode_opening
from outlast.runtime import arguments
from outlast.runtime.applying import nothing_to_retry, nothing_to_skip
from outlast.runtime.arguments import given, label, text, words
from outlast.runtime.awaiting import outcome, resolution, settling
from outlast.runtime.backing import Backing, Delta
from outlast.runtime.choosing import find_effect
from outlast.runtime.decisions import Decision, came_first, decision_of
from outlast.runtime.draining import drained
from outlast.runtime.home import require_folder
from outlast.runtime.opening import first_entry
from outlast.runtime.outcome import Outcome
from outlast.runtime.view import Gate, View, build_view, gate_of
from outlast.state.choices import chosen
from outlast.state.delays import delayed
from outlast.state.model import OpenGate, State
from outlast.state.title import one_line
from outlast.store import refusals
from outlast.store.contract import Admission, Admitted, Entry, EntryKind
from outlast.turns.decided import waiting_answers
from outlast.turns.reopening import reopening, retryable
from outlast.turns.requests import (
    AnswerRequest,
    CloseRequest,
    InputRequest,
    Request,
    SettleRequest,
    StopRequest,
    TurnRequest,
    encode,
)

if TYPE_CHECKING:
    from outlast.runtime.actor import SessionActor

Followed = Record | CaughtUp | Delta


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an answer. `by` is who answered first when it was taken, and `choice` what that was.
    `gone`: the session does not wait for it any more, or never did."""

    result: Literal["answered", "taken", "expired", "gone", "queued"]
    by: str | None = None
    choice: str | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a command: done, too_late, refused, taken (a contrary word about the same turn came
    first and waits for an owner), or queued (nobody owns the session now)."""

    result: str
    detail: str = ""


class Turn:
    """One input on its way through. Awaiting `result()` is all it is for."""

    def __init__(self, session: Session, turn: str, backing: Backing, after: int = 0) -> None:
        self.session = session
        self.id: str = turn
        self.after: int = after
        """A place in the journal before the input's first record."""
        self._backing = backing

    async def result(self) -> Outcome:
        """Wait for the turn's end, whoever runs it. A joined input's result is that of the turn it joined.
        Where something is decided about the turn that no owner has carried out yet (`retry`, `settle`, an
        answer), it is what comes of that, unless no owner can be had.

        Raises BusyError for an input given with `when_busy="reject"` while a turn was running, RestoreError
        when the session cannot be restored here, TurnHeldError where the input waits in a held queue or a
        closed session: only a person lets that go on (`skip`, another `send`, `Runtime.restore`).
        """
        return await self.session.outcome(self.id, after=self.after)

    async def accepted(self) -> bool:
        """Wait until an owner has taken the input: True. False when nobody owns the session now.

        Raises BusyError for an input given with `when_busy="reject"` while a turn was running.
        """
        record = await settling(self._backing, self.session.id, self.id)
        if record is not None and isinstance(record.body, InputCancelled) and record.body.reason == "busy":
            raise BusyError("a turn was running", session_id=self.session.id)
        return record is not None


class Session:
    """A handle on one session. `id` is its id or label."""

    def __init__(self, backing: Backing, session: str, workspace: str | None = None) -> None:
        self.id: str = arguments.session_id(session)
        self._backing = backing
        self._workspace = workspace

    # --- inputs --------------------------------------------------------------------------------

    async def send(  # noqa: PLR0913 - the public contract
        self,
        content: str | Sequence[Content],
        *,
        agent: str | None = None,
        key: str | None = None,
        on_interrupt: OnInterrupt | None = None,
        when_busy: WhenBusy = "queue",
        title: str | None = None,
        labels: dict[str, str] | None = None,
        actor: str | None = None,
    ) -> Turn:
        """Admit an input; durable when it returns. Creates the session with its first input.

        `key` makes it idempotent: the same key and content again is the same turn. `title` and `labels` are a
        new session's. Raises RequestCollisionError for the same key with another content, InputError for text
        that cannot be stored faithfully, UsageError for another agent than the session's, for arguments of
        the wrong kind and for a workspace that is not there, StoreError if it was not stored.
        """
        blocks = arguments.blocks(content)
        agent, title = given(words, agent, "agent"), given(text, title, "title")
        kept, actor = arguments.labels(labels), given(words, actor, "actor")
        request_id = given(label, key, "key") or new_id()
        request = InputRequest(content=blocks, on_interrupt=on_interrupt, when_busy=when_busy)
        _check(request)
        opening = None
        after = (await self._backing.store.tip(self.id)).seq
        if not await self._exists(agent):
            name, workspace = self._backing.opening(agent, self._workspace)
            if self._backing.store.scope != "cluster":  # else it may be a folder of another machine
                require_folder(workspace)
            opening = Opening(
                agent=name,
                workspace=workspace,
                title=title or one_line(blocks[0].text),
                labels=kept,
            )
        admitted = await self._admit("input", request_id, request, actor, opening)
        if admitted.settled is not None:
            after = admitted.settled.seq - 1
        self._backing.serve(self.id)
        return Turn(self, request_id, self._backing, after)

    async def _exists(self, agent: str | None) -> bool:
        entry = await self._backing.store.entry(self.id)
        if entry is not None and agent is not None and agent != entry.agent:
            raise UsageError(
                f"session {self.id} belongs to agent {entry.agent}, not {agent}",
                hint="leave the agent out, or begin another session",
                session_id=self.id,
            )
        return entry is not None

    async def _admit(
        self,
        kind: EntryKind,
        request_id: str,
        request: Request,
        actor: str | None,
        opening: Opening | None = None,
    ) -> Admitted:
        catalog = None if opening is None else first_entry(self.id, opening)
        return await self._backing.store.admit(
            Admission(
                session=self.id,
                request_id=request_id,
                kind=kind,
                body=encode(request),
                actor=actor,
                opening=catalog,
                opening_body=None if opening is None else encode_opening(opening),
            )
        )

    # --- looking -------------------------------------------------------------------------------

    async def follow(self, after: int = 0) -> AsyncIterator[Followed]:
        """Records after `after`, a CaughtUp marker, then records as they become durable and, if the session
        is owned here, text as it is written. Ends only when the caller stops."""
        records = follow(self._backing.store, self.id, arguments.place(after))
        listening = self._backing.listen(self.id)
        if listening is None:
            async for record in records:
                yield record
            return
        with listening as deltas:
            async for item in _merged(records, deltas):
                yield item

    async def view(self) -> View:
        """The session as it is now; go on with `follow(after=view.seq)`. Raises SessionNotFoundError."""
        return await build_view(self._backing.store, self.id)

    async def gates(self) -> list[Gate]:
        """The questions that wait for a person. Raises SessionNotFoundError."""
        await self._require()
        # In this order: an answer that is taken meanwhile has closed its gate.
        answers = waiting_answers(await self._backing.store.pending(self.id))
        state = await load_state(self._backing.store, self.id)
        return [gate_of(gate, answers) for gate in state.gates.values()]

    async def outcome(self, turn: str, *, after: int = 0) -> Outcome:
        """The end of `turn`, waiting for it. `after` may name a journal position before its first record.
        Raises as `Turn.result`."""
        return await outcome(self._backing, self.id, words(turn, "turn"), arguments.place(after))

    # --- acting --------------------------------------------------------------------------------

    async def answer(self, gate: str, choice: str, *, by: str | None = None) -> Answer:
        """Answer a gate and wait for what becomes of it. Of two answers that wait for an owner the first one
        counts: the same again is that one, another is `taken`. Raises SessionNotFoundError, UsageError for a
        choice that the gate does not have."""
        request_id, by = new_id(), given(words, by, "name of who answers")
        gate, choice = text(gate, "gate"), text(choice, "choice")
        await self._require()
        state, pending = await self._as_it_is()
        if (asked := state.gates.get(gate)) is None:
            return await self._answered_before(gate)  # no owner is needed to know that
        if chosen(choice, asked.choices) is None:
            known = ", ".join(each.id for each in asked.choices)
            raise UsageError(f"gate {gate} has no choice {choice!r:.200}", hint=f"there are: {known}")
        said = AnswerRequest(gate=gate, choice=choice, by=by)
        if (taken := _taken(state, asked, pending, said)) is not None:
            return taken
        first = waiting_answers(pending).get(gate)
        if first is not None and chosen(first.choice or "", asked.choices) == chosen(choice, asked.choices):
            request_id = first.request_id
        else:
            await self._admit("answer", request_id, said, by)
        self._backing.serve(self.id)
        record = await settling(self._backing, self.id, request_id)
        if record is None:
            # Somebody else may have answered at the same moment: the inbox's order says who was first.
            waiting = await self._backing.store.pending(self.id)
            return _taken(state, asked, waiting, said) or Answer("queued")
        body = record.body
        if isinstance(body, GateResolved):
            return Answer("answered", body.by, body.answer)
        if isinstance(body, CommandSettled) and body.outcome == "refused":
            raise UsageError(f"gate {gate} cannot be answered so: {body.detail}", session_id=self.id)
        before = await self._answered_before(gate)
        if isinstance(body, CommandSettled) and body.outcome == "done" and before.result == "taken":
            return Answer("answered", before.by, before.choice)  # Another one said the same.
        return before

    async def _answered_before(self, gate: str) -> Answer:
        found = await resolution(self._backing, self.id, gate)
        if found is None:
            return Answer("gone")
        if found.reason in ("answered", "policy"):
            return Answer("taken", found.by, found.answer)
        return Answer("expired" if found.reason == "expired" else "gone", found.by)

    async def cancel(self, turn: str | None = None, *, actor: str | None = None) -> Settled:
        """Cancel the running turn and hold the queue; `turn` may also name an input that still waits. Without
        `turn` a retry that no owner has taken yet is taken back; where nothing runs or is about to, the queue
        is held as it is."""
        return await self._command("cancel", StopRequest(turn=await self._meant(turn)), actor)

    async def kill(self, turn: str | None = None, *, actor: str | None = None) -> Settled:
        """End the agent's whole process tree, verified; a running turn ends as cancelled."""
        return await self._command("kill", StopRequest(turn=await self._meant(turn)), actor)

    async def close(self, *, actor: str | None = None) -> Settled:
        """End the session in the normal way: turn interrupted, agent ended, SessionStopped. The next input
        opens it again."""
        return await self._command("close", CloseRequest(), actor)

    async def retry(
        self, turn: str | None = None, *, session: LostChoice | None = None, actor: str | None = None
    ) -> Settled:
        """Run a turn that is parked, was skipped or did not end as done again: its input is sent once more.
        One that waits to be tried again by itself is tried now. Without `turn` that one is meant, else the
        newest such one, as things are now and not when an owner reads the command. Refused while a turn runs.
        `session` says what is done about an agent's own session that is lost: `fresh` begins a new one,
        `reseed` one that is told what happened so far, `put_back` resumes what was captured, `as_is` what is
        there."""
        turn = given(words, turn, "turn")
        if turn is None:
            state = await load_state(self._backing.store, self.id)
            closed = retryable(state)
            turn = delayed(state) or (None if closed is None else closed.turn)
            if turn is None:
                await self._require()
                return Settled("too_late", "no turn is parked, and none ended without being done")
        elif (nothing := nothing_to_retry(*await self._as_it_is(), turn)) is not None:
            await self._require()
            return Settled("too_late", nothing)
        request = TurnRequest(turn=turn, session=session)
        _check(request)
        return await self._decision("retry", request, actor)

    async def skip(self, turn: str | None = None, *, actor: str | None = None) -> Settled:
        """Leave a parked turn (the newest, without `turn`), or before that one that waits to be tried again,
        as it is; a held queue goes on."""
        turn = given(words, turn, "turn")
        if turn is None:
            await self._require()
            state = await load_state(self._backing.store, self.id)
            turn = delayed(state) or next(reversed(state.parked), None)
            if turn is None and not any(loop.held for loop in state.loops.values()):
                return Settled("too_late", "no turn is parked and the queue is not held")
        elif (nothing := nothing_to_skip(*await self._as_it_is(), turn)) is not None:
            await self._require()
            return Settled("too_late", nothing)
        return await self._decision("skip", TurnRequest(turn=turn), actor)

    async def settle(
        self,
        effect: str,
        *,
        done: bool,
        result: object = None,
        reason: str = "",
        turn: str | None = None,
        actor: str | None = None,
    ) -> Settled:
        """Say what became of an effect of a turn that stopped because nobody knows. The turn goes on: after
        the effect when it is `done` (`result`: what it gave, as JSON can hold it), else with it, once more
        under the same key.

        `effect` is its id, or its name where one turn alone waits for one of this name. Raises
        EffectNotFoundError, UsageError for a result that JSON cannot hold.
        """
        effect, turn = words(effect, "effect"), given(words, turn, "turn")
        reason = text(reason, "reason")
        await self._require()
        found = find_effect(await load_state(self._backing.store, self.id), effect, turn)
        try:
            kept = None if result is None else msgspec.json.encode(result).decode("utf-8")
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"the result cannot be kept: {type(error).__name__}", session_id=self.id
            ) from error
        said = SettleRequest(
            turn=found.turn,
            effect=found.effect,
            outcome="done" if done else "absent",
            result=kept if done else None,
            reason=reason,
            seen=found.seq,
        )
        return await self._decision("settle", said, actor)

    async def _as_it_is(self) -> tuple[State, list[Entry]]:
        """The state, and what waits; read the other way round, so that what an owner takes is not missed."""
        pending = await self._backing.store.pending(self.id)
        return await load_state(self._backing.store, self.id), pending

    async def _meant(self, turn: str | None) -> str | None:
        """`turn`, or without one the turn that runs, that is tried again by itself, or that a command which
        waits is about to run again."""
        if turn is not None:
            return words(turn, "turn")
        state, pending = await self._as_it_is()
        return state.running.turn if state.running else delayed(state) or reopening(state, pending)

    async def _require(self) -> None:
        if not await self._exists(None):
            raise refusals.no_session(self.id)

    async def _decision(self, kind: EntryKind, request: Request, actor: str | None) -> Settled:
        """A command that decides how a turn goes on. The first that waits for an owner counts: the same word
        again is that one, a contrary one is told which it was."""
        actor = given(words, actor, "actor")
        state, pending = await self._as_it_is()
        decision = decision_of(state, kind, request)
        earlier = None if decision is None else came_first(state, pending, decision)
        if decision is None or earlier is None:
            settled = await self._command(kind, request, actor)
            if decision is None or settled.result != "queued":
                return settled
            # Somebody else may have said another word at the same moment.
            state, pending = await self._as_it_is()
            earlier = came_first(state, pending, decision)
            return _first_word(earlier) if earlier and not earlier.same(decision) else settled
        if not earlier.same(decision):
            return _first_word(earlier)
        self._backing.serve(self.id)
        return await self._came_of(earlier.request_id)

    async def _command(self, kind: EntryKind, request: Request, actor: str | None) -> Settled:
        actor = given(words, actor, "actor")
        await self._require()
        request_id = new_id()
        await self._admit(kind, request_id, request, actor)
        # An owner that is closing already needs no other one after it.
        if kind != "close" or not self._backing.serving(self.id):
            self._backing.serve(self.id)
        return await self._came_of(request_id)

    async def _came_of(self, request_id: str) -> Settled:
        record = await settling(self._backing, self.id, request_id)
        if record is None:
            return Settled("queued", "nobody owns the session now; its next owner does it")
        if isinstance(record.body, InputCancelled) and record.body.reason == "lost":
            unknown = "a repair cut its record away: it is not known whether it was carried out"
            return Settled("refused", unknown)
        if isinstance(record.body, CommandSettled):
            return Settled(record.body.outcome, record.body.detail)
        return Settled("done")

    # --- owning --------------------------------------------------------------------------------

    def _owner(self) -> SessionActor:
        actor = self._backing.actor(self.id)
        if actor is None:
            raise UsageError(
                f"session {self.id} is not owned by this process",
                hint="`await runtime.restore(id)` first",
                session_id=self.id,
            )
        return actor

    async def quiet(self) -> None:
        """Wait until this owner has nothing left to do, or only a person can go on."""
        await self._owner().quiet()

    def drain(self) -> AsyncIterator[Outcome]:
        """The outcome of each turn that ends from now on, until nothing is left to do."""
        return drained(self._backing.store, self.id, self._owner())

    async def finish(self) -> None:
        """End the agent, verified, and give up ownership; the session stays open (status idle)."""
        await self._owner().finish()

    async def detach(self) -> None:
        """Give up ownership at once; the agent goes on under its shim."""
        await self._owner().detach()


def _taken(state: State, gate: OpenGate, pending: Sequence[Entry], said: AnswerRequest) -> Answer | None:
    """What becomes of an answer before which a word waits that says something else."""
    if (decision := decision_of(state, "answer", said)) is not None:
        earlier = came_first(state, pending, decision)
        if earlier is None or earlier.same(decision):
            return None
        return Answer("taken", earlier.by, earlier.choice or earlier.word)
    first = waiting_answers(pending).get(gate.gate)
    theirs = None if first is None else chosen(first.choice or "", gate.choices)
    if first is None or theirs in (None, chosen(said.choice, gate.choices)):
        return None
    return Answer("taken", first.by, theirs)


def _first_word(first: Decision) -> Settled:
    return Settled("taken", f"`{first.told}` came first and waits for an owner")


def _check(said: InputRequest | TurnRequest) -> None:
    """What no owner could read is refused before it is acknowledged. Raises UsageError."""
    try:
        msgspec.json.decode(msgspec.json.encode(said), type=type(said))
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError) as error:
        raise UsageError(f"an argument is of the wrong kind: {error}") from error


async def _merged(
    records: AsyncIterator[Record | CaughtUp], deltas: asyncio.Queue[Delta]
) -> AsyncIterator[Followed]:
    next_record = asyncio.ensure_future(anext(records))
    next_delta = asyncio.ensure_future(deltas.get())
    try:
        while True:
            await asyncio.wait([next_record, next_delta], return_when=asyncio.FIRST_COMPLETED)
            if next_record.done():
                yield next_record.result()
                next_record = asyncio.ensure_future(anext(records))
            if next_delta.done():
                yield next_delta.result()
                next_delta = asyncio.ensure_future(deltas.get())
    finally:
        next_record.cancel()
        next_delta.cancel()


__all__ = ["Answer", "Delta", "Followed", "Session", "Settled", "Turn"]
