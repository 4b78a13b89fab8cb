"""What a person sees of a session's records: pure, no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from outlast.cli.gates import OpenQuestion
from outlast.cli.output import exact
from outlast.cli.times import clock_time, exact_time
from outlast.records.agent_state import AgentStateRestored
from outlast.records.envelope import Record
from outlast.records.types import (
    BY_POLICY,
    AgentEventRecorded,
    Body,
    CallObserved,
    Choice,
    Content,
    Fence,
    GateResolved,
    InputJoined,
    InputReturned,
    JournalRepaired,
    LoopChanged,
    PlannedRetry,
    Receipt,
    ReplyInterrupted,
    RestoreDone,
    RestoreErrored,
    RestoreStarted,
    TurnAttached,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
)
from outlast.turns.lost import HELD

if TYPE_CHECKING:
    from outlast.runtime.outcome import Outcome
    from outlast.state.messages import ToolMessage
    from outlast.state.model import Delay
    from outlast.state.summaries import TurnSummary

Style = Literal["text", "end", "dim", "notice"]
TOOL_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Piece:
    """Something to show. `text` pieces continue each other up to an `end`, the others are lines of their
    own."""

    style: Style
    text: str = ""


class LiveText:
    """Joins text that is still being written with the durable record of it, so that nothing is shown
    twice and nothing is left out."""

    def __init__(self) -> None:
        self._ahead = ""

    def delta(self, text: str) -> str:
        """What to show of text that is not durable yet."""
        self._ahead += text
        return text

    def durable(self, text: str) -> str:
        """What to show of a durable message beyond what was already shown of it. A record separates the
        messages that it merges by newlines, which no delta carried."""
        shown, at = self._ahead, 0
        for position, character in enumerate(text):
            if at == len(shown):
                self._ahead = ""
                return text[position:]
            if character == shown[at]:
                at += 1
            elif character != "\n":
                self._ahead = ""
                return "\n" + text
        self._ahead = shown[at:]
        return ""

    def cut(self, text: str) -> None:
        """A reply that was cut off is durable: what was shown after it belongs to the next one."""
        self._ahead = self._ahead.removeprefix(text) if self._ahead.startswith(text) else ""

    @property
    def pending(self) -> bool:
        """Something was shown whose record is still to come."""
        return bool(self._ahead)

    def drop(self) -> None:
        """The reply ended without a record of what was shown last."""
        self._ahead = ""


def pieces_of(record: Record, live: LiveText) -> Iterator[Piece]:
    """What a record shows while a session is followed."""
    body = record.body
    if isinstance(body, AgentEventRecorded):
        if body.kind == "message":
            yield Piece("text", live.durable(body.text))
            if not body.more and not live.pending:
                yield Piece("end")
        elif body.kind == "plan" and body.text:
            yield Piece("dim", first_line(body.text))
        return
    line = describe(record)
    if isinstance(body, ReplyInterrupted):
        live.cut(body.text)
    elif line is not None and not isinstance(body, InputJoined):
        live.drop()
    if line is not None:
        yield line


def describe(record: Record) -> Piece | None:
    """One line about a record that a person wants to know of, or None."""
    rule = _DESCRIBED.get(type(record.body))
    return None if rule is None else rule(record, record.body)


def _call(record: Record, body: CallObserved) -> Piece:
    return Piece("dim", tool_line(body))


def _attached(record: Record, body: TurnAttached) -> Piece:
    return Piece("notice", f"turn {short(record.turn)} goes on: its agent lives and was never interrupted")


def _retried(record: Record, body: TurnRetried) -> Piece | None:
    if body.by.startswith(BY_POLICY):
        return None  # The failure before it has told of it.
    return Piece("notice", f"turn {short(record.turn)} {_RETRIED[body.mode]} (by {body.by})")


def _returned(record: Record, body: InputReturned) -> Piece:
    return Piece("notice", f"input {short(body.request_id)} is back in its place: {body.evidence}")


def _joined(record: Record, body: InputJoined) -> Piece:
    return Piece("notice", f"input {short(body.request_id)} has joined turn {short(record.turn)}")


def _failed(record: Record, body: TurnFailed) -> Piece:
    return Piece("notice", f"turn {short(record.turn)} failed: {receipt_line(body.receipt)}")


def _interrupted(record: Record, body: TurnInterrupted) -> Piece:
    evidence = f": {body.evidence}" if body.evidence else ""
    by_person = body.reason in ("cancelled", "killed")
    what = body.reason if by_person else f"interrupted ({body.reason})"
    return Piece("notice", f"turn {short(record.turn)} {what}{evidence}")


def _loop_changed(record: Record, body: LoopChanged) -> Piece:
    if body.state == "active":
        return Piece("notice", f"the queue goes on: {body.reason}" if body.reason else "the queue goes on")
    until = "; the next input or `outlast resume` lets it go on"
    return Piece("notice", f"the queue is held{'' if body.reason.startswith(HELD) else until}")


def _parked(record: Record, body: TurnParked) -> Piece:
    detail = f": {body.detail}" if body.detail else ""
    return Piece("notice", f"turn {short(record.turn)} parked ({body.reason}){detail}")


def _went_back(record: Record, body: AgentStateRestored) -> Piece:
    return Piece("notice", f"the agent's session {went_back_line(body.through_turn, body.reason)}")


def _cut(record: Record, body: ReplyInterrupted) -> Piece:
    return Piece("dim", f"[cut off] {first_line(body.text)}")


def _resolved(record: Record, body: GateResolved) -> Piece:
    return Piece("dim", gate_line(body))


def _errored(record: Record, body: RestoreErrored) -> Piece:
    return Piece("notice", f"a restore failed ({body.kind}): {first_line(body.message)}")


def _repaired(record: Record, body: JournalRepaired) -> Piece:
    gone = "nothing was taken out"
    if body.lost_to >= body.cut_seq:
        gone = f"records {body.cut_seq} to {body.lost_to} were taken out"
    return Piece("notice", f"the journal was repaired: {gone} ({body.reason})")


# Each rule takes its own body type; the key it stands under is the proof, which no type can state.
_DESCRIBED: Mapping[type[Body], Callable[[Record, Any], Piece | None]] = {
    CallObserved: _call,
    TurnAttached: _attached,
    TurnRetried: _retried,
    InputReturned: _returned,
    InputJoined: _joined,
    TurnFailed: _failed,
    TurnInterrupted: _interrupted,
    LoopChanged: _loop_changed,
    TurnParked: _parked,
    ReplyInterrupted: _cut,
    GateResolved: _resolved,
    RestoreErrored: _errored,
    JournalRepaired: _repaired,
    AgentStateRestored: _went_back,
}

_RESOLVED = {
    "answered": "was answered{by}",
    "policy": "was decided by rule",
    "abandoned": "is closed{by}, as nobody waits for its answer any more",
    "expired": "is closed{by}, as its time is over",
    "restore_unavailable": "is closed{by}, as the agent that asked is gone",
}
_RETRIED = {"again": "is sent again", "continue": "goes on"}


def tool_line(body: CallObserved | ToolMessage) -> str:
    """`[name] status input or output` in one line: the same while it is followed and when it is history."""
    mark = {"started": "…", "completed": "done"}.get(body.status, body.status)
    shown = first_line(body.input if body.status == "started" else body.output, TOOL_WIDTH)
    return " ".join(part for part in (f"[{body.name}]", mark, shown) if part)


def gate_line(body: GateResolved) -> str:
    by = f" by {body.by}" if body.by else ""
    # The rule of a command decides here or, where another process owns the session, by answering.
    reason = "policy" if body.by and body.by.startswith("--approve ") else body.reason
    told = _RESOLVED.get(reason, reason).replace("{by}", by)
    answer = f": {body.answer}" if body.answer else ""
    return f"question {short(body.gate)} {told}{answer}"


def question_lines(question: OpenQuestion) -> list[str]:
    """A gate as a person is asked it. No line of the question can be taken for a choice."""
    who = f"{question.requested_by} asks" if question.requested_by else "the agent asks"
    lines = [f"{who} ({question.kind} {short(question.gate)}):"]
    lines += [f"  | {line}" for line in question.question.replace("\r\n", "\n").split("\n")]
    lines += [f"  {number}  {choice.label}" for number, choice in enumerate(question.choices, 1)]
    return [exact(line) for line in lines]


MOST_CHOICES, LABEL_WIDTH = 20, 300
"""How many choices of a question are listed, and how many characters of a label."""


def choice_lines(choices: Sequence[Choice], session: str) -> list[str]:
    """Each choice on a line of its own: its number and its id, each of which answers, and what it stands for.
    What an "always" allows is said by its label alone."""
    from shlex import quote

    lines = []
    for number, choice in enumerate(choices[:MOST_CHOICES], 1):
        label = in_one_line(choice.label, LABEL_WIDTH)
        what = choice.id if label in ("", choice.id) else f"{choice.id}  {label}"
        lines.append(f"{number}  {what}")
    if len(choices) > MOST_CHOICES:
        lines.append(f"… and {len(choices) - MOST_CHOICES} more: outlast show {quote(session)} --json")
    return [exact(line) for line in lines]


def receipt_line(receipt: Receipt) -> str:
    """What an attempt failed of, in words and by the taxonomy's code."""
    from outlast.agents.failure import kind_of

    error = receipt.error
    when = "the agent could not be started: " if receipt.failed_phase == "host_launch" else ""
    message = first_line(error.message, 300) or kind_of(error.code).sentence
    return f"{when}{message.rstrip('.')} ({error.code})"


@dataclass(frozen=True, slots=True)
class Told:
    """What stands below a failure: the turn, the last `words` that its agent wrote to its standard error, the
    names of its calls of which no outcome is known."""

    turn: str
    words: Sequence[str] = ()
    calls: Sequence[str] = ()


MOST_CALLS = 5


def failure_lines(receipt: Receipt, session: str, told: Told) -> list[str]:
    """Below a failure: what its agent said last, what is not known of it, and what to do."""
    from outlast.agents.failure import kind_of, what_to_do
    from outlast.errors import naming

    if receipt.retry is not None:
        step = naming(f"nothing: {_planned(receipt.retry)}; `outlast retry` does it now", session)
    else:
        step = what_to_do(receipt.error.code, receipt.error.message, session)
        if kind_of(receipt.error.code).recovery == "resume_session" and "outlast retry" not in step:
            step = f"{step} Or {again(session, told.turn)}."
    return [*(f"  | {word}" for word in told.words), *_open_calls(told.calls), f"  what to do: {step}"]


def _open_calls(calls: Sequence[str]) -> list[str]:
    if not calls:
        return []
    more = len(calls) - MOST_CALLS
    names = ", ".join(first_line(name, 80) for name in calls[:MOST_CALLS])
    return [f"  calls without outcome: {names}{f' and {more} more' if more > 0 else ''}"]


def again(session: str, turn: str) -> str:
    """The command that runs a turn again that was cut off in its work."""
    from shlex import quote

    return f"outlast retry {quote(session)} {quote(turn)} runs it again, which may repeat what it had done"


def ways_on(session: str, outcome: Outcome | TurnSummary, *, told: bool = False) -> str:
    """What a person can do about a turn that was interrupted or is parked. `told`: how it ended was, with
    what to do about a failure or the choices about a lost agent session."""
    from shlex import quote

    from outlast.agents.failure import kind_of, what_to_do

    which = f"{quote(session)} {quote(outcome.turn)}"
    leave = f"outlast skip {which} leaves it"
    if outcome.outcome != "parked":
        return again(session, outcome.turn)
    if (outcome.reason or "").startswith(HELD):
        # No agent was given it: there is nothing to repeat, and no retry without a choice.
        choose = f"outlast retry {which} with --put-back, --as-is, --reseed or --fresh goes on with it"
        return leave if told else f"{choose}; {leave}"
    error = None if outcome.receipt is None else outcome.receipt.error
    if error is not None and kind_of(error.code).parks:
        return leave if told else f"{what_to_do(error.code, error.message, session, outcome.turn)} Or {leave}"
    return f"{again(session, outcome.turn)}; {leave}"


def _planned(retry: PlannedRetry) -> str:
    from datetime import datetime

    at = exact_time(int(datetime.fromisoformat(retry.not_before).timestamp() * 1_000_000))
    return f"it {_RETRIED[retry.mode]} by itself at {at} (retry {retry.retry} of {retry.of})"


def delay_line(delay: Delay) -> str:
    """What a turn that failed waits for."""
    because = f"{first_line(delay.message, 200).rstrip('.')} ({delay.code})"
    return f"waits until {exact_time(delay.until)} because {because}; retry {delay.retry} of {delay.of}"


def went_back_line(through_turn: str | None, reason: str) -> str:
    """That an agent's own session is what it once was, and why."""
    after = "" if through_turn is None else f" after turn {short(through_turn)}"
    return f"goes on from what was captured of it{after}: {first_line(reason, 300)}"


def takeover_line(who: str, seq: int, actions: int) -> str:
    """The line where a new process took a session over: how much it read, and how much it had to mend."""
    did = f"{actions} ran" if actions else "nothing to mend"
    return f"── {who}: {seq} steps from the journal, {did} ──"


class Takeovers:
    """Draws that line; with `only_mended` where there was something to mend."""

    def __init__(self, *, only_mended: bool = False) -> None:
        self._only_mended = only_mended
        self._fence: tuple[Record, Fence] | None = None
        self._from_seq: int | None = None

    def see(self, record: Record) -> str | None:
        """The line to draw at this record, if any."""
        body = record.body
        if isinstance(body, Fence):
            self._fence, self._from_seq = (record, body), None
        elif isinstance(body, RestoreStarted):
            self._from_seq = body.from_seq
        elif isinstance(body, RestoreDone) and self._fence is not None:
            at, fence = self._fence
            self._fence = None
            if self._only_mended and not body.actions:
                return None
            count = self._from_seq if self._from_seq is not None else at.seq - 1
            who = f"{fence.holder}, epoch {fence.epoch}, {clock_time(at.at)}"
            return takeover_line(who, count, len(body.actions))
        return None


def in_one_line(text: str, width: int = 1_000) -> str:
    """All lines that say something, one after another, cut to `width`: what a person needs to decide."""
    line = " / ".join(stripped for raw in text.splitlines() if (stripped := raw.strip()))
    return line if len(line) <= width else line[: width - 1] + "…"


def first_line(text: str, width: int = 160) -> str:
    """The first line that says something, cut to `width`; a `…` where there is more."""
    lines = (stripped for raw in text.splitlines() if (stripped := raw.strip()))
    line = next(lines, "")
    if next(lines, None) is not None:
        line = f"{line} …"
    return line if len(line) <= width else line[: width - 1] + "…"


MOST_IMAGES = 5


def input_line(content: Sequence[Content]) -> str:
    """What was asked, in a line: its first words, and what stands for each image."""
    words = first_line("\n".join(block.text for block in content if block.type == "text"))
    images = [first_line(block.text, 80) or "[image]" for block in content if block.type == "image"]
    more = [f"and {len(images) - MOST_IMAGES} more"] if len(images) > MOST_IMAGES else []
    return " ".join(part for part in (words, *images[:MOST_IMAGES], *more) if part)


def short(id_: str | None) -> str:
    """An id as people read it: UUIDs by the part that tells recent ones apart."""
    if id_ is None:
        return "?"
    return id_[:13] if len(id_) == 36 and id_.count("-") == 4 else id_


def record_summary(record: Record) -> str:
    """A line on any record: what `describe` says, else its short fields."""
    body = record.body
    if isinstance(body, AgentEventRecorded):
        numbers = " ".join(f"{name}={number}" for name, number in body.usage.items())
        return f"{body.kind}: {body.text or numbers}"
    piece = describe(record)
    if piece is not None:
        return piece.text
    fields = {name: getattr(body, name) for name in body.__struct_fields__}
    shown = {
        name: value
        for name, value in fields.items()
        if isinstance(value, str | int) and value not in ("", None)
    }
    return " ".join(f"{name}={value}" for name, value in shown.items())
