"""From located events to record drafts: messages are merged, everything is bounded (pure).

A record holds at most 64 KiB of text. Output outside the protocol is kept up to a cap per turn and counted
past it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from outlast.agents.contract import (
    Failure,
    GateClosed,
    GateRequested,
    Landed,
    Message,
    NotLanded,
    Raw,
    SessionConfirmed,
    SessionLost,
    SessionObserved,
    StartFailed,
    ToolCall,
    TurnEnded,
    Usage,
)
from outlast.ids import derived_id
from outlast.records.codec import output_record_id
from outlast.records.envelope import Cursor, Draft
from outlast.records.types import (
    AgentEventRecorded,
    AgentSessionChanged,
    Body,
    CallObserved,
    GateOpened,
    GatePrepared,
    GateResolved,
    InputJoined,
    InputReturned,
    ReplyInterrupted,
)
from outlast.state.model import Loop
from outlast.turns.intake import Located
from outlast.turns.lost import REASON_LIMIT

TEXT_LIMIT = 64 * 1024
"""Characters of text in one record."""
CALL_LIMIT = 16 * 1024
"""Characters kept of a foreign call's input or output each."""
NAME_LIMIT = 1_000
"""Characters of a call's name."""
DRAFT_WEIGHT = 256
"""What a record counts, beside its text, towards what may wait to be appended."""
RAW_CAP = 64 * 1024
"""Characters of output outside the protocol that are kept per turn."""


ProviderState = Literal["bound", "confirmed", "lost", "reseeded"]

_SAID_BY: Mapping[ProviderState, frozenset[str]] = {
    "bound": frozenset({"bound", "confirmed", "reseeded"}),
    "reseeded": frozenset(),
    "confirmed": frozenset({"confirmed"}),
    "lost": frozenset({"lost"}),
}
"""What the journal may hold of a provider session so that a state of it is no news."""


@dataclass(frozen=True, slots=True)
class Place:
    """Whose output it is."""

    loop: str
    turn: str | None
    agent: str


@dataclass(slots=True)
class Merger:
    """Collects what is not yet in the journal; `take` gives it as drafts and starts afresh."""

    place: Place
    provider: Loop
    """The loop as the journal had it when the merger was made."""
    steered: Callable[[str], bool] = lambda key: False
    """Whether an input with this request id was given to the agent to join the turn, and is not decided."""
    drafts: list[Draft] = field(default_factory=list)
    ended: TurnEnded | None = None
    ended_by_exit: bool = False
    """The turn's end is no word of the agent: it ended without one."""
    start_failed: Failure | None = None
    """Why the agent cannot serve the session: it was given no prompt and will not be."""
    urgent: bool = False
    """Something a person or the agent waits for: flush now, do not merge on."""
    _size: int = 0
    _open: _OpenText | None = None
    _index: dict[int, int] = field(default_factory=dict)
    _raw_kept: int = 0
    _cursor: Cursor | None = None
    _lost_because: str = field(init=False)
    _known: tuple[str | None, str | None] = field(init=False)
    """The provider's session and its state after what was taken so far: what is known is not said again."""

    def __post_init__(self) -> None:
        self._known = (self.provider.provider_session, self.provider.provider_state)
        self._lost_because = self.provider.lost_because

    def add(self, located: Located) -> None:
        event, self._cursor = located.event, located.cursor
        match event:
            case Message():
                self._message(event)
            case Raw():
                self._raw(event.text, event.dropped)
            case ToolCall():
                self._put(
                    CallObserved(
                        call=event.call,
                        name=_bounded(event.name, NAME_LIMIT),
                        status=event.status,
                        input=_bounded(event.input),
                        output=_bounded(event.output),
                    )
                )
                self.urgent = True
            case Usage():
                self._put(AgentEventRecorded(kind="usage", usage=dict(event.counts)))
            case SessionObserved() | SessionConfirmed() | SessionLost():
                self._session(event)
            case GateRequested():
                self._gate(event)
            case Landed() | NotLanded():
                self._landing(event)
            case GateClosed():
                gate = gate_id(self.place.loop, self._cursor.generation, event.gate)
                self._put(GateResolved(gate=gate, reason="abandoned", by=self.place.agent))
                self.urgent = True
            case TurnEnded():
                self._end(event, located.by_exit)
            case StartFailed():
                self.start_failed = self.start_failed or event.failure
            case _:
                pass

    def take(self) -> list[Draft]:
        """The drafts so far, in order, the last with the newest cursor."""
        self._close_text()
        drafts, self.drafts = self.drafts, []
        self.urgent = False
        self._size = 0
        self._index.clear()
        return drafts

    @property
    def pending(self) -> bool:
        return bool(self.drafts) or self._open is not None

    @property
    def full(self) -> bool:
        """It holds more than should wait to be appended."""
        return self._size + (0 if self._open is None else self._open.size) > TEXT_LIMIT

    def _end(self, event: TurnEnded, by_exit: bool) -> None:
        """The first end counts: an agent that says it twice has said it once."""
        if event.turn == self.place.turn:
            if self.ended is None:
                self.ended, self.ended_by_exit = event, by_exit
            self.urgent = True

    def _message(self, event: Message) -> None:
        if event.cut:
            self._put(ReplyInterrupted(text=_bounded(event.text, TEXT_LIMIT)))
        else:
            self._text(event.role if event.role != "assistant" else "message", event.text, event.more)

    def _text(self, kind: str, text: str, more: bool) -> None:
        if self._open is not None and self._open.kind != kind:
            self._close_text()
        if self._open is None:
            self._open = _OpenText(kind)
        for full in self._open.add(text, more):
            self._put_text(kind, *full)

    def _landing(self, event: Landed | NotLanded) -> None:
        """The turn's own prompt needs no record of it: the turn says what became of it."""
        said = {d.body.request_id for d in self.drafts if isinstance(d.body, InputJoined | InputReturned)}
        if event.key in said or not self.steered(event.key):
            return
        if isinstance(event, Landed):
            self._put(InputJoined(request_id=event.key))
        else:
            self._put(InputReturned(request_id=event.key, evidence=event.reason))
        self.urgent = True

    def _raw(self, text: str, left_out: int) -> None:
        kept = text[: max(0, RAW_CAP - self._raw_kept)]
        self._raw_kept += len(kept)
        self._close_text()
        dropped = len(text) - len(kept) + left_out
        last = self.drafts[-1].body if self.drafts else None
        if isinstance(last, AgentEventRecorded) and last.kind == "raw":
            # Lines outside the protocol share a record: a flood of them is one.
            joined = f"{last.text}\n{kept}" if kept else last.text
            body = AgentEventRecorded(
                kind="raw", text=joined, count=last.count + 1, dropped=last.dropped + dropped
            )
            if len(joined) <= TEXT_LIMIT:
                self.drafts.pop()
                self._size -= _weight(last)
                self._index[self._stdout] = self._index.get(self._stdout, 1) - 1
                self._put(body)
                return
        self._put(AgentEventRecorded(kind="raw", text=kept, dropped=dropped))

    def _session(self, event: SessionObserved | SessionConfirmed | SessionLost) -> None:
        state = self._provider_state(event)
        session, known = self._known
        if session == event.provider_session and known in _SAID_BY[state]:
            return
        self._known = (event.provider_session, state)
        self._put(
            AgentSessionChanged(
                provider=self.place.agent,
                provider_session=event.provider_session,
                state=state,
                source=event.source if isinstance(event, SessionObserved) else "observed",
                reason=self._reason(event, state),
            )
        )
        self.urgent = True

    def _reason(self, event: SessionObserved | SessionConfirmed | SessionLost, state: ProviderState) -> str:
        if isinstance(event, SessionLost):
            self._lost_because = _bounded(event.reason, REASON_LIMIT)
            return self._lost_because
        if state != "reseeded":
            return ""
        return begun_anew(self.provider.decided, self._lost_because)

    def _provider_state(self, event: SessionObserved | SessionConfirmed | SessionLost) -> ProviderState:
        if isinstance(event, SessionConfirmed):
            return "confirmed"
        if isinstance(event, SessionLost):
            return "lost"
        before = self._known[0]
        if event.source in ("observed", "chosen") and before is not None and before != event.provider_session:
            return "reseeded"
        return "bound"

    def _gate(self, event: GateRequested) -> None:
        assert self._cursor is not None
        gate = gate_id(self.place.loop, self._cursor.generation, event.gate)
        self._put(
            GatePrepared(
                gate=gate, name=event.gate, generation=self._cursor.generation, payload=event.payload
            )
        )
        self._put(
            GateOpened(
                gate=gate,
                kind=event.kind,
                question=_bounded(event.question, TEXT_LIMIT),
                choices=list(event.choices),
                requested_by=self.place.agent,
            )
        )
        self.urgent = True

    def _close_text(self) -> None:
        if self._open is not None:
            text, count = self._open.rest()
            if text or count:
                self._put_text(self._open.kind, text, count, self._open.more)
            self._open = None

    def _put_text(self, kind: str, text: str, count: int, more: bool) -> None:
        self._put(AgentEventRecorded(kind=kind, text=text, count=count, more=more))  # type: ignore[arg-type]

    @property
    def _stdout(self) -> int:
        return self._cursor.stdout if self._cursor else 0

    def _put(self, body: Body) -> None:
        if not isinstance(body, AgentEventRecorded):
            self._close_text()
        cursor = self._cursor
        assert cursor is not None
        index = self._index.get(cursor.stdout, 0)
        self._index[cursor.stdout] = index + 1
        self._size += _weight(body)
        self.drafts.append(
            Draft(
                body=body,
                loop=self.place.loop,
                turn=self.place.turn,
                cursor=cursor,
                id=output_record_id(
                    f"{self.place.loop}/{cursor.generation}/{cursor.frame}", cursor.stdout, index
                ),
            )
        )


class _OpenText:
    """Messages of one kind that arrive one after another."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.more = False
        self._pieces: list[str] = []
        self.size = 0
        self._count = 0

    def add(self, text: str, more: bool) -> list[tuple[str, int, bool]]:
        """Take a message or a piece of one; gives full records as (text, count, more)."""
        if self._pieces and not self.more:
            self._pieces.append("\n")
            self.size += 1
        self._pieces.append(text)
        self.size += len(text)
        self._count += not self.more
        self.more = more
        full: list[tuple[str, int, bool]] = []
        if self.size > TEXT_LIMIT:
            whole = "".join(self._pieces)
            while len(whole) > TEXT_LIMIT:
                full.append((whole[:TEXT_LIMIT], self._count, True))
                whole, self._count = whole[TEXT_LIMIT:], 0
            self._pieces, self.size = [whole], len(whole)
        return full

    def rest(self) -> tuple[str, int]:
        return "".join(self._pieces), self._count


def begun_anew(decided: str | None, lost_because: str) -> str:
    """Why a session has taken the place of another one, and what it knows of that."""
    told = {"fresh": "begun anew, empty", "reseed": "begun anew, told what happened so far"}
    return f"{told.get(decided or '', 'begun anew')}: {lost_because or 'it was asked for'}"


def gate_id(loop: str, generation: str, name: str) -> str:
    """Our id of the agent's gate `name`: the same however often the spool is read."""
    return derived_id("gate", loop, generation, name)


def _weight(body: Body) -> int:
    match body:
        case AgentEventRecorded(text=text) | ReplyInterrupted(text=text) | GateOpened(question=text):
            return DRAFT_WEIGHT + len(text)
        case CallObserved():
            return DRAFT_WEIGHT + len(body.input) + len(body.output)
        case GatePrepared(payload=payload):
            return DRAFT_WEIGHT + len(payload)
        case _:
            return DRAFT_WEIGHT


def _bounded(text: str, limit: int = CALL_LIMIT) -> str:
    """`text` cut to `limit` characters, and saying so."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} more characters)"
