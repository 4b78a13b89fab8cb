"""Following a session on behalf of a command: what it shows, what it asks, and how it is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from outlast.cli.console import can_ask
from outlast.cli.contact import lives_elsewhere
from outlast.cli.deciding import Decider
from outlast.cli.failures import DetachedError, LeftError, WaitingForAnswerError
from outlast.cli.gates import Approve, OpenQuestion
from outlast.cli.output import Screen, exact, visible
from outlast.cli.owners import heard, needed
from outlast.cli.present import Before, Presenter, way_back_command
from outlast.cli.signals import Signals, Wish
from outlast.cli.text import choice_lines, delay_line, first_line, in_one_line, short
from outlast.cli.times import exact_time
from outlast.records.envelope import Record
from outlast.records.types import GateOpened, GateResolved, InputAccepted
from outlast.state.choices import about_lost
from outlast.state.messages import text_of
from outlast.state.turn_ends import TERMINALS, begun_in
from outlast.store.contract import DECISIONS

if TYPE_CHECKING:
    from outlast.runtime.handles import Session
    from outlast.runtime.outcome import Outcome
    from outlast.runtime.runtime import Runtime
    from outlast.state.model import Delay, OpenGate
    from outlast.store.contract import Store

T = TypeVar("T")
AT_WORK = ("running", "retrying")
"""States of a session in the catalog: a turn is open, and asks nothing."""
STORED_WITHIN = 2.0
"""Seconds that a command which is told to leave gives its own cancel to be stored."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a command follows with."""

    session: Session
    presenter: Presenter
    decider: Decider
    screen: Screen
    runtime: Runtime
    questions: tuple[OpenQuestion, ...] = ()
    """Those that are open where the showing begins."""
    turn: str | None = None
    """The turn that Ctrl-C cancels; None: the one that runs then."""


@dataclass(slots=True)
class Progress:
    """How far the journal has been shown."""

    seen: int
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    def advance(self, seq: int) -> None:
        self.seen = max(self.seen, seq)
        self.moved.set()

    async def reached(self, seq: int) -> None:
        while self.seen < seq:
            self.moved.clear()
            await self.moved.wait()


class Attendance:
    """Does a piece of work while the session is shown, the person may speak and signals are heard."""

    def __init__(self, watch: Watch, progress: Progress, signals: Signals) -> None:
        self._watch = watch
        self.progress = progress
        self._signals = signals
        self.policy = signals.policy
        self._cancels: set[asyncio.Task[None]] = set()
        self._printing = asyncio.Lock()
        """Held while one thing is shown: nothing may come into the middle of an outcome's line."""
        self._before: Callable[[Record], Awaitable[None]] | None = None
        self._after: Callable[[Record], Awaitable[None]] | None = None
        self._to_ask: OpenQuestion | None = None
        """Asked once all that was stored with it is shown, and how its turn ended: nothing comes after a
        prompt."""
        self._asks_about: str | None = None
        """The turn that question is about."""
        self._present = asyncio.Event()
        self._past: dict[str, OpenQuestion] | None = {question.gate: question for question in watch.questions}
        """Questions of the past, until the present is reached: most of them have their answer there."""

    def on_record(
        self, before: Callable[[Record], Awaitable[None]], after: Callable[[Record], Awaitable[None]]
    ) -> None:
        """Be told of every record before and after it is shown."""
        self._before, self._after = before, after

    async def attend(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result. Raises what the work raises, WaitingForAnswerError for a question that nobody
        here answers, DetachedError when told to leave."""
        with self._signals.heard():
            shown = asyncio.create_task(self._show())
            working = asyncio.create_task(work)
            try:
                return await self._attend(working, shown)
            finally:
                for task in (working, shown, *self._cancels):
                    task.cancel()
                await asyncio.gather(working, shown, *self._cancels, return_exceptions=True)
                await self._watch.decider.close()

    async def tell(self, outcome: Outcome, text: AsyncIterator[str]) -> None:
        """Show how a turn ended, between two records."""
        async with self._printing:
            await self._watch.presenter.outcome(outcome, text)

    async def _show(self) -> None:
        """Show the session's records, for as long as the caller lets it."""
        from outlast.journal import CaughtUp
        from outlast.runtime.handles import Delta

        watch = self._watch
        async for item in watch.session.follow(after=self.progress.seen):
            async with self._printing:
                if isinstance(item, Delta):
                    watch.presenter.delta(item)
                    continue
                if isinstance(item, CaughtUp):
                    self._reach_the_present()
                else:
                    await self._take(item)
            self.progress.advance(item.seq)

    def _reach_the_present(self) -> None:
        past, self._past = self._past, None
        for question in (past or {}).values():
            self._watch.decider.opened(question)
        self._present.set()

    def _note_gate(self, record: Record) -> None:
        body = record.body
        if isinstance(body, GateOpened):
            choices = tuple(body.choices)
            parked = body.resolver == "runtime" and not about_lost(body.choices)
            question = OpenQuestion(
                body.gate, body.kind, body.question, choices, body.requested_by, parked=parked
            )
            if self._past is None and about_lost(choices):
                self._to_ask, self._asks_about = question, record.turn
            elif self._past is None:
                self._watch.decider.opened(question)
            else:
                self._past[body.gate] = question
        elif isinstance(body, GateResolved):
            if self._to_ask is not None and self._to_ask.gate == body.gate:
                self._to_ask = None
            if self._past is not None:
                self._past.pop(body.gate, None)
            self._watch.decider.resolved(body.gate)

    async def _take(self, record: Record) -> None:
        watch = self._watch
        if self._before is not None:
            await self._before(record)
        watch.presenter.record(record)
        due = self._to_ask
        self._note_gate(record)
        if isinstance(record.body, TERMINALS):
            self.policy.settle()
        if self._after is not None:
            await self._after(record)
        if due is not None and self._asks_about != watch.turn:
            self._ask()  # Else it is asked once whoever follows that turn has told how it ended.

    def _ask(self) -> None:
        question, self._to_ask = self._to_ask, None
        if question is not None:
            self._watch.decider.opened(question)

    async def answered(self) -> bool:
        """Let the person at this terminal say what becomes of a lost session; whether that was asked. To be
        called where nothing else is left to do."""
        await self.progress.reached((await self._watch.runtime.store.tip(self._watch.session.id)).seq)
        await self._present.wait()
        self._ask()
        return await self._watch.decider.answered()

    async def raise_if_asked(self) -> None:
        """Raises WaitingForAnswerError if a turn waits for an answer now that all else is done."""
        self._ask()
        open_ones = (*(self._past or {}).values(), *self._watch.decider.questions.values())
        for question in open_ones:
            raise await self._waiting(question)

    async def _waiting(self, question: OpenQuestion) -> WaitingForAnswerError:
        owned = await lives_elsewhere(self._watch.runtime, self._watch.session.id)
        return waiting_error(self._watch.session.id, question, owned=owned)

    async def _attend(self, working: asyncio.Task[T], shown: asyncio.Task[None]) -> T:
        stuck = self._watch.decider.stuck
        wish = asyncio.create_task(self._signals.wishes.get())
        try:
            while True:
                waiting: set[asyncio.Future[Any]] = {working, shown, stuck, wish, *self._cancels}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    return working.result()
                if shown.done():
                    shown.result()
                for task in [task for task in self._cancels if task.done()]:
                    self._cancels.discard(task)
                    task.result()
                if wish.done():
                    if self._obey(wish.result()):
                        raise await self._leaving()
                    wish = asyncio.create_task(self._signals.wishes.get())
                if stuck.done():
                    raise await self._waiting(stuck.result())
        finally:
            wish.cancel()

    def _obey(self, wish: Wish) -> bool:
        """True when the command is to leave."""
        if wish is Wish.GO_ON:
            self._watch.screen.hang_up()
            self._watch.decider.hang_up()
        elif wish is Wish.CANCEL:
            self._watch.screen.note("cancelling; Ctrl-C again leaves without waiting for that")
            self._cancels.add(asyncio.create_task(self._cancel()))
        return wish is Wish.DETACH

    async def _leaving(self) -> DetachedError:
        """What is said on the way out. A cancel cannot be taken back once the agent hears of it, and so it
        stays asked for; who presses twice at once still has asked."""
        if not self.policy.cancelling:
            return DetachedError(f"left before the end; {await self._what_goes_on()}")
        watch = self._watch
        with watch.runtime.store.changes(watch.session.id) as bell, suppress(TimeoutError):
            async with asyncio.timeout(STORED_WITHIN):
                while not await self._cancel_is_stored():
                    await bell.wait()
                    bell.clear()
        return DetachedError("left before the cancel was carried out; it stays asked for")

    async def _what_goes_on(self) -> str:
        """What happens while this command is not there."""
        from outlast.journal import load_state
        from outlast.state.delays import delays

        store, session = self._watch.runtime.store, self._watch.session.id
        if await lives_elsewhere(self._watch.runtime, session):
            return "its owner goes on with it"
        state = await load_state(store, session)
        back = f"`{way_back_command(session)}`"
        waits = next(delays(state), None)
        if waits is not None:
            turn, delay = waits
            waited = f"turn {short(turn)} waits until {exact_time(delay.until)}, and then for an owner"
            return f"{waited}: nothing goes on before {back}"
        if any(turn.attempt is not None for turn in state.open_turns.values()):
            return "the agent goes on under its shim"
        return f"nothing goes on before {back}"

    async def _cancel_is_stored(self) -> bool:
        pending = await self._watch.runtime.store.pending(self._watch.session.id)
        return any(entry.kind == "cancel" for entry in pending) or all(task.done() for task in self._cancels)

    async def _cancel(self) -> None:
        watch = self._watch
        result = await heard(
            watch.runtime.store, watch.session.id, watch.session.cancel(turn=watch.turn), watch.screen
        )
        if result.result == "too_late":
            self.policy.settle()
        # Else it is settled when the turn's end is seen: until then a second Ctrl-C means "leave".


@asynccontextmanager
async def coming_back(runtime: Runtime, session: str, presenter: Presenter) -> AsyncIterator[None]:
    """Around what a command does with the session: whatever ends it, the way back is the last that is said.
    Raises LeftError around an error, which is told before it."""
    try:
        yield
    except Exception as error:
        presenter.break_off()
        raise LeftError(await _way_back(runtime, session, presenter)) from error
    except BaseException:
        (await _way_back(runtime, session, presenter))()
        raise
    (await _way_back(runtime, session, presenter))()


async def _way_back(runtime: Runtime, session: str, presenter: Presenter) -> Callable[[], None]:
    owned = await lives_elsewhere(runtime, session)
    needs = () if owned else await needed(runtime.store, session)
    return partial(presenter.way_back, session, owned=owned, needs=needs)


def waiting_error(session: str, question: OpenQuestion, *, owned: bool = False) -> WaitingForAnswerError:
    """What a command says that ends because a question is open; `owned`: somebody else runs the session."""
    from shlex import quote

    # In quotes as a whole: pasted as it stands, no choice of the agent's is a command of the shell.
    names = quote("|".join(choice.id for choice in question.choices) or "TEXT")
    command = f"outlast answer {quote(session)} {quote(question.gate)} {names}"
    after = "" if owned else f", then `{way_back_command(session)}`"
    who = "the session" if about_lost(question.choices) else "the agent"  # No agent runs on a lost session.
    return WaitingForAnswerError(
        f"{who} waits for an answer: {exact(in_one_line(question.question))}",
        hint=f"answer with `{exact(command)}`{after}",
        session_id=session,
        gate=question.gate,
        choices=tuple(choice_lines(question.choices, session)),
    )


@dataclass(frozen=True, slots=True)
class Position:
    """Where a session stands when a command comes to it."""

    seq: int
    questions: tuple[OpenQuestion, ...] = ()
    before: Before = field(default_factory=Before)
    begun: Mapping[str, int] = field(default_factory=dict)
    """The turns that are open there, each with the record that its last attempt began with."""
    delay: Delay | None = None
    """What the session's next turn waits for there."""


async def position_of(store: Store, session: Session) -> Position:
    """The end of the session's journal, the questions and the turns that are open there. The journal is read
    only where there are any, and nothing is kept of what was said in it."""
    seq = (await store.tip(session.id)).seq
    row = await store.listed(session.id)
    if row is None or not (row.entry.open_gates or row.entry.queued or row.entry.state in AT_WORK):
        return Position(seq)
    from outlast.journal import load_state
    from outlast.state.delays import delays

    state = await load_state(store, session.id)
    accepted = {queued.seq for queued in state.queue.values()}
    before = Before(
        attempts={turn.turn: turn.attempt for turn in state.open_turns.values() if turn.attempt},
        inputs=await _first_lines(
            store, session.id, accepted | {turn.input_seq for turn in state.open_turns.values()}
        ),
        waiting=frozenset(state.queue),
        open_calls={turn.turn: turn.open_calls for turn in state.open_turns.values()},
    )
    return Position(
        seq=state.seq,
        questions=tuple(map(_question, state.gates.values())),
        before=before,
        begun=begun_in(state),
        delay=next((delay for _, delay in delays(state)), None),
    )


def _question(gate: OpenGate) -> OpenQuestion:
    said = gate.opened
    parked = said.resolver == "runtime" and not about_lost(said.choices)
    return OpenQuestion(gate.gate, said.kind, said.question, gate.choices, said.requested_by, parked=parked)


async def _first_lines(store: Store, session: str, accepted: Collection[int]) -> dict[str, str]:
    """By request, of the inputs whose InputAccepted stand at these places."""
    from outlast.journal import read_records

    lines: dict[str, str] = {}
    if not accepted:
        return lines
    async for record in read_records(store, session, min(accepted) - 1, large="outline"):
        if record.seq in accepted and isinstance(record.body, InputAccepted):
            lines[record.body.request_id] = first_line(text_of(record.body.content))
        if record.seq >= max(accepted):
            break
    return lines


@dataclass(frozen=True, slots=True)
class Showing:
    """How a followed session is shown, and from where on."""

    approve: Approve
    presenter: Presenter
    screen: Screen
    runtime: Runtime
    position: Position
    signals: Signals = field(default_factory=Signals)
    """Those that are heard already, where the command listens from before on."""


class _Elsewhere:
    """See `deciding.Elsewhere`."""

    def __init__(self, store: Store, session: Session, progress: Progress) -> None:
        self._store = store
        self._session = session
        self._progress = progress

    async def answer(self, gate: str, choice: str, by: str) -> None:
        await self._session.answer(gate, choice, by=by)

    async def caught_up(self) -> None:
        with self._store.changes(self._session.id) as bell:
            while any(entry.kind in DECISIONS for entry in await self._store.pending(self._session.id)):
                await bell.wait()
                bell.clear()
        await self._progress.reached((await self._store.tip(self._session.id)).seq)


def attendance_of(session: Session, showing: Showing, *, turn: str | None = None) -> Attendance:
    """Attend to a session with the person, the rules and the streams of this command."""
    delay = showing.position.delay
    if delay is not None and not showing.screen.as_json:
        showing.screen.note(visible(delay_line(delay)))
    progress = Progress(showing.position.seq)
    ask = can_ask() and not showing.screen.as_json
    elsewhere = _Elsewhere(showing.runtime.store, session, progress)
    decider = Decider(elsewhere, showing.approve, showing.screen, ask=ask)
    questions = showing.position.questions
    watch = Watch(session, showing.presenter, decider, showing.screen, showing.runtime, questions, turn)
    return Attendance(watch, progress, showing.signals)
