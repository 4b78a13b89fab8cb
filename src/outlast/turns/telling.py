"""What the journal holds and the agent's own session lacks, in words that the next prompt begins with.

The agent is given facts, bounded, and marked as a record of ours: no message of its own and nothing that it
is to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlast.journal import Journal
from outlast.records.types import AgentSessionChanged, Content, TurnAttemptStarted, TurnRetried, TurnStarted
from outlast.state.history import History
from outlast.state.messages import (
    AgentMessage,
    Message,
    OwnerMessage,
    ToolMessage,
    TurnMessage,
    UserMessage,
    text_of,
)
from outlast.state.model import Loop, OpenTurn
from outlast.turns.lost import CODES
from outlast.turns.steering import Given, InputLost

LIMIT = 48_000
"""Characters of the whole record."""
FRAME = 2_000
"""Characters that stand around its entries, at most: why it is told, and what it is."""
MESSAGE_LIMIT = 4_000
"""Characters of one message, or of one side of a call."""

ADOPTED = "adopted"
"""What the reason of a session begins with that began elsewhere."""

_ALL = "Your own record of this conversation could not be used any more: {reason}. This session is a new one."
_REST = "Your own record of this conversation was put back from before what follows, and lacks it."
_CUT = "The message below was worked on before, in a session that you have no record of, and cut off."
_HEAD = (
    "[outlast: a record of what happened so far]\n{why} Below is what outlast's journal holds, for your"
    " information. None of it is a new request. What it says was run was run: do not repeat it because it is"
    " listed here."
)
_END = "[end of the record; what follows is the user's message]"


@dataclass(frozen=True, slots=True)
class Told:
    """What a turn's prompt is made of. `notice`: see `Prompt.notice`."""

    content: Given
    notice: str = ""


async def given_to(
    journal: Journal, turn: OpenTurn, content: Given, *, continues: bool = False, most: int | None = None
) -> Told:
    """The turn's prompt; where the agent's session lacks something, it begins with a record of that. The same
    for every owner of the turn. `continues`: the agent is asked to go on with it. `most`: characters that
    the agent takes in a prompt; what leaves no room for a record goes without."""
    loop = journal.state.loops[turn.loop]
    after = {"reseed": 0, "fresh": None}.get(loop.decided or "", loop.untold)
    again = turn.mode == "continue" and not continues
    if (after is None and not again) or isinstance(content, InputLost):
        return Told(content)
    limit = LIMIT
    if most is not None and not continues:
        room = most - sum(len(block.text) for block in content)
        limit = min(LIMIT, room - FRAME)
    told = await record_of(journal, loop, turn, after, again=again, limit=limit) if limit > 0 else ""
    if not told:
        return Told(content)
    # Who is asked to go on is not given the content, but is told the rest.
    return Told((Content(text=told), *content), told if continues else "")


async def record_of(
    journal: Journal,
    loop: Loop,
    turn: OpenTurn,
    after: int | None,
    *,
    again: bool = False,
    limit: int = LIMIT,
) -> str:
    """What happened in the turns that were worked on after record `after` (None: no other ones are told) and
    before this opening of `turn`, and in `turn` itself where it is to be gone on with and its input given
    `again`; empty where nothing did."""
    history, turns, before = History(), set[str](), ""
    if again:
        turns.add(turn.turn)
    async for record in journal.read():
        if record.seq >= turn.seq:
            break
        history.apply(record)
        if isinstance(record.body, AgentSessionChanged) and record.body.reason.startswith(ADOPTED):
            before = f"({record.body.reason}; what was said there is not listed here.)"
        worked = isinstance(record.body, TurnStarted | TurnRetried | TurnAttemptStarted)
        if record.turn is not None and worked and after is not None and record.seq > after:
            turns.add(record.turn)
    told = [
        message
        for message in history.messages
        if not isinstance(message, OwnerMessage) and message.turn in turns
        if not (isinstance(message, UserMessage) and message.turn == turn.turn)
    ]
    anew = loop.decided == "reseed" or loop.provider_state == "reseeded"
    before = before if anew and after is not None else ""
    own = all(isinstance(message, TurnMessage) and message.turn == turn.turn for message in told)
    if own and not before:
        return ""  # That it failed before, and nothing of what came of it: an agent never heard of it.
    lines = [line for message in told if (line := line_of(message))]
    if before:
        lines.insert(0, before)
    if not lines:
        return ""
    why = _ALL.format(reason=loop.lost_because.rstrip(".") or "it was given up") if anew else _REST
    if after is None:
        why = _CUT
    return "\n\n".join([_HEAD.format(why=why), *_newest(lines, limit), _END])


def _newest(lines: Sequence[str], limit: int) -> list[str]:
    kept: list[str] = []
    size = 0
    for line in reversed(lines):
        size += len(line) + 2
        if size > limit:
            break
        kept.append(line)
    left_out = len(lines) - len(kept)
    told = [f"({left_out} earlier entries are left out here.)"] if left_out else []
    return told + kept[::-1]


def line_of(message: Message) -> str:
    """One entry of the record; empty for what the agent need not know."""
    match message:
        case UserMessage():
            return f"User: {bounded(text_of(message.content))}"
        case AgentMessage(role="assistant"):
            cut = " [cut off here]" if message.cut else ""
            return f"You: {bounded(message.text)}{cut}"
        case ToolMessage():
            return _call(message)
        case TurnMessage(kind="failed" | "interrupted") if message.reason not in CODES:
            return f"(That turn ended as {message.kind}: {bounded(message.detail or message.reason)})"
        case _:
            return ""


def _call(message: ToolMessage) -> str:
    status = {
        "started": "started; how it ended is not known: it may have run wholly or in part",
        "unknown": "started; how it ended is not known: it may have run wholly or in part",
    }.get(message.status, message.status)
    parts = [f"Your call of {message.name} ({status})"]
    if message.input:
        parts.append(f"Input: {bounded(message.input)}")
    if message.output:
        parts.append(f"Output: {bounded(message.output)}")
    return "\n".join(parts)


def bounded(text: str) -> str:
    """The text, its middle left out where it is long."""
    if len(text) <= MESSAGE_LIMIT:
        return text
    half = MESSAGE_LIMIT // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
