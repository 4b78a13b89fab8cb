"""A person and a session, by typed lines: `outlast attach`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from outlast.cli.console import LineReader
from outlast.cli.gates import OpenQuestion, choice_of
from outlast.cli.output import Screen, visible
from outlast.cli.owners import heard, needed, next_owner, way_on
from outlast.cli.present import Before, TextPresenter
from outlast.cli.signals import SignalPolicy, Wish, listening
from outlast.cli.text import delay_line, first_line, question_lines, short, tool_line
from outlast.errors import OutlastError
from outlast.records.envelope import Record
from outlast.records.types import (
    CommandSettled,
    GateOpened,
    GateResolved,
    InputAccepted,
    TurnDone,
    TurnStarted,
)
from outlast.state.messages import (
    AgentMessage,
    Message,
    OwnerMessage,
    ToolMessage,
    TurnMessage,
    UserMessage,
    text_of,
)
from outlast.state.turn_ends import TERMINALS

if TYPE_CHECKING:
    from outlast.runtime.client import Client
    from outlast.runtime.handles import Session
    from outlast.runtime.present import Present

T = TypeVar("T")

HELP = (
    "a line is sent, or answers the open question (a number or a choice's id)",
    "/send TEXT   send even while a question is open, or text that begins with a slash",
    "/cancel      cancel the running turn, or hold what waits (Ctrl-C cancels, or leaves where nothing runs)",
    "/detach      leave; the session goes on (Ctrl-D, too)",
)


class Verb(Enum):
    """What a typed line asks for."""

    NOTHING = "nothing"
    SEND = "send"
    ANSWER = "answer"
    CANCEL = "cancel"
    DETACH = "detach"
    HELP = "help"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Typed:
    """A typed line, understood."""

    verb: Verb
    text: str = ""


def understand(line: str, *, asked: bool) -> Typed:
    """What a line means; `asked` while a question is open."""
    if not line.strip():
        return Typed(Verb.NOTHING)
    if not line.startswith("/"):
        return Typed(Verb.ANSWER if asked else Verb.SEND, line)
    word, _, rest = line.partition(" ")
    match word:
        case "/send" if rest.strip():
            return Typed(Verb.SEND, rest)
        case "/cancel":
            return Typed(Verb.CANCEL)
        case "/detach" | "/quit" | "/exit":
            return Typed(Verb.DETACH)
        case "/help":
            return Typed(Verb.HELP)
        case _:
            return Typed(Verb.UNKNOWN, line)


class Conversation:
    """Shows a session and passes on what is typed, until the person leaves."""

    def __init__(self, client: Client, session: Session, screen: Screen, stdin: int) -> None:
        self._client = client
        self._session = session
        self._screen = screen
        self._presenter = TextPresenter(screen, session.id, looks_on=True)
        self._reader = LineReader(stdin)
        self._questions: dict[str, OpenQuestion] = {}
        self._signals = SignalPolicy()
        self._wishes: asyncio.Queue[Wish] = asyncio.Queue()
        self._running: str | None = None

    async def run(self) -> None:
        """Until /detach, the end of input, a second Ctrl-C, SIGTERM or the terminal's hang-up."""
        from outlast.runtime.present import present

        # Whoever sees a line can count on being heard.
        with listening(self._heard):
            now = await present(self._client.store, self._session.id)
            self._presenter = TextPresenter(
                self._screen,
                self._session.id,
                looks_on=True,
                before=Before(
                    attempts=now.attempts,
                    inputs={waiting.request_id: first_line(waiting.input) for waiting in now.queue},
                    waiting=frozenset(each.request_id for each in now.queue if each.accepted),
                ),
            )
            await self._introduce(now)
            self._reader.start()
            shown = asyncio.create_task(self._show(now.seq))
            listened = asyncio.create_task(self._listen())
            obeyed = asyncio.create_task(self._obey())
            tasks = (shown, listened, obeyed)
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._reader.stop()
        self._say("left; the session goes on")
        owned = await self._client.store.holder(self._session.id) is not None
        needs = () if owned else await needed(self._client.store, self._session.id)
        self._presenter.way_back(self._session.id, owned=owned, needs=needs)

    # --- showing --------------------------------------------------------------------------------

    async def _introduce(self, now: Present) -> None:
        """What is running now, and the questions that are open."""
        from outlast.state.listing import status_of

        title = now.row.entry.title or now.row.entry.session
        self._say(f"{title}: {status_of(now.row)} (/help lists what you can type)")
        self._running = now.running
        for message in now.messages:
            self._screen.out.line(visible(_message_line(message)))
        if now.delay is not None:
            self._say(delay_line(now.delay))
        for gate in now.gates:
            question = OpenQuestion(gate.id, gate.kind, gate.question, gate.choices, gate.requested_by)
            self._ask(question)
        if now.row.owner is None:
            self._say(f"nobody runs this session now: {await way_on(self._client.store, self._session.id)}")

    async def _show(self, after: int) -> None:
        from outlast.journal import CaughtUp
        from outlast.runtime.handles import Delta

        async for item in self._session.follow(after=after):
            if isinstance(item, Delta):
                self._presenter.delta(item)
            elif not isinstance(item, CaughtUp):
                self._take(item)

    def _take(self, record: Record) -> None:
        body = record.body
        if isinstance(body, InputAccepted) and self._running is not None:
            self._say(f"queued: {first_line(text_of(body.content))}", dim=True)
            self._presenter.typed_here.discard(body.request_id)
        elif isinstance(body, TurnStarted):
            self._running = record.turn
        self._presenter.record(record)
        if isinstance(body, GateOpened):
            choices = tuple(body.choices)
            self._ask(OpenQuestion(body.gate, body.kind, body.question, choices, body.requested_by))
        elif isinstance(body, GateResolved):
            self._questions.pop(body.gate, None)
        elif isinstance(body, CommandSettled) and body.command == "cancel":
            self._signals.settle()
        elif isinstance(body, TERMINALS):
            self._running = None
            self._signals.settle()
            if isinstance(body, TurnDone):
                self._say(f"turn {short(record.turn)} done", dim=True)

    def _ask(self, question: OpenQuestion) -> None:
        self._questions[question.gate] = question
        for line in question_lines(question):
            self._say(line)

    def _say(self, text: str, *, dim: bool = False) -> None:
        shown = visible(text)
        self._screen.note(self._screen.err.dim(shown) if dim else shown)

    # --- acting ---------------------------------------------------------------------------------

    def _heard(self, number: int) -> None:
        wish = Wish.DETACH if number == signal.SIGHUP else self._signals.wish(number)
        self._wishes.put_nowait(wish)

    async def _obey(self) -> None:
        asked: set[asyncio.Task[None]] = set()
        try:
            while await self._wishes.get() is not Wish.DETACH:
                if await self._nothing_to_cancel(kept=False):
                    self._say("nothing runs that could be cancelled")
                    return
                # Not waited for: the next Ctrl-C has to be heard meanwhile.
                task = asyncio.create_task(self._try(Typed(Verb.CANCEL)))
                asked.add(task)
                task.add_done_callback(asked.discard)
        finally:
            for task in asked:
                task.cancel()

    async def _nothing_to_cancel(self, *, kept: bool) -> bool:
        """`kept`: a cancel of what only waits is also for an owner who is not there yet."""
        row = await self._client.store.listed(self._session.id)
        if row is None:
            return True
        waits = bool(row.entry.queued or row.pending) and (kept or row.owner is not None)
        return not (waits or row.entry.state in ("running", "waiting", "retrying"))

    async def _listen(self) -> None:
        while (line := await self._reader.line()) is not None:
            self._screen.err.at_line_start = True  # the person's own newline
            typed = understand(line, asked=bool(self._questions))
            if typed.verb is Verb.DETACH:
                return
            await self._try(typed)

    async def _try(self, typed: Typed) -> None:
        try:
            await self._do(typed)
        except OutlastError as error:
            self._say(f"outlast: {error}")

    async def _do(self, typed: Typed) -> None:
        if typed.verb is Verb.SEND:
            await self._send(typed.text)
        elif typed.verb is Verb.ANSWER:
            await self._answer(typed.text)
        elif typed.verb is Verb.CANCEL:
            await self._cancel()
        elif typed.verb is Verb.HELP:
            for line in HELP:
                self._say(line)
        elif typed.verb is Verb.UNKNOWN:
            self._say(f"{first_line(typed.text, 40)} is no command; /help lists them, /send sends it as text")

    async def _send(self, text: str) -> None:
        from outlast.ids import new_id
        from outlast.runtime.awaiting import in_hands

        key = new_id()
        self._presenter.typed_here.add(key)
        turn = await self._session.send(text, key=key, actor="cli")
        if not await in_hands(self._client.store, self._session.id, turn.id):
            self._say(
                f"queued; nobody runs this session now: {await way_on(self._client.store, self._session.id)}"
            )

    async def _answer(self, text: str) -> None:
        question = next(iter(self._questions.values()))
        choice = choice_of(text, question.choices)
        answer = await self._heard_by_owner(self._session.answer(question.gate, choice, by="attach"))
        if answer.result == "queued":
            self._say(f"{await next_owner(self._client.store, self._session.id)}")
        elif answer.result != "answered":
            first = f": {answer.choice}" if answer.choice else ""
            self._say(f"too late: {answer.result}{f' by {answer.by}' if answer.by else ''}{first}")
            self._questions.pop(question.gate, None)

    async def _heard_by_owner(self, work: Awaitable[T]) -> T:
        return await heard(self._client.store, self._session.id, work, self._screen)

    async def _cancel(self) -> None:
        if await self._nothing_to_cancel(kept=True):
            self._signals.settle()
            self._say("no turn is running; /detach or Ctrl-D leaves")
            return
        result = await self._heard_by_owner(self._session.cancel(actor="cli"))
        if result.result == "queued":
            # Asked for once: from then on Ctrl-C leaves, until an owner has carried it out.
            self._signals.cancelling = True
            self._say(f"{await next_owner(self._client.store, self._session.id)}")
        elif result.result == "too_late":
            self._signals.settle()
            self._say("no turn is running; /detach or Ctrl-D leaves")
        else:
            self._say(result.detail or "cancelling")


def _message_line(message: Message) -> str:
    """A message of the turn that runs: words as they are, everything else in one line."""
    match message:
        case UserMessage():
            return f"> {first_line(text_of(message.content))}"
        case AgentMessage(role="assistant"):
            return message.text
        case AgentMessage():
            return f"[{message.role}] {first_line(message.text)}"
        case ToolMessage():
            return tool_line(message)
        case TurnMessage():
            detail = f": {first_line(message.detail)}" if message.detail else ""
            return f"turn {short(message.turn)} {message.kind} ({message.reason}){detail}"
        case OwnerMessage():
            return f"── {message.holder}, epoch {message.epoch} ──"
