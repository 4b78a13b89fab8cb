"""Inputs that are to join the running turn: offered to its agent while it runs, decided before it is closed.

An input joins by `InputJoined` when the agent has shown that it took it. One that it provably has not taken
stays in the queue. One whose fate died with the agent becomes a turn of its own, interrupted and parked: only
a person lets it be sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from outlast.agents.contract import Failure, Prompt
from outlast.errors import IntegrityError
from outlast.journal import Journal
from outlast.records.envelope import Draft
from outlast.records.types import (
    Content,
    InputAccepted,
    InputReserved,
    InputReturned,
    TurnInterrupted,
    TurnParked,
    TurnStarted,
)
from outlast.state.lookup import steered_into
from outlast.state.model import OpenTurn, Queued, State
from outlast.turns import patience

Unlanded = frozenset[str] | None
"""Request ids of the inputs that an agent was given and has not shown to have taken; None where nobody can
tell what it was given."""


@dataclass(frozen=True, slots=True)
class InputLost:
    """An accepted input that the store does not have any more, and why."""

    reason: str

    @property
    def failure(self) -> Failure:
        return Failure("input_lost", f"the input cannot be read: {self.reason}")


Given = tuple[Content, ...] | InputLost
"""What a turn is to give its agent."""


def unfit(content: Given, *, images: bool) -> Failure | None:
    """Why content can't be given to an agent that takes `images` or not, if it can't: nothing of it is sent
    then."""
    if isinstance(content, InputLost):
        return content.failure
    if images or all(part.type == "text" for part in content):
        return None
    message = "the input has an image, and this kind of agent takes none: send the text alone"
    return Failure("version_unsupported", message)


@dataclass(slots=True)
class Steering:
    """What is to join `turn`, read from the journal as it comes."""

    journal: Journal
    turn: str
    images: bool = True
    """Whether the agent takes them."""
    _content: dict[str, tuple[Content, ...]] = field(default_factory=dict)

    async def prompts(self) -> tuple[Prompt, ...]:
        """The waiting inputs that are to join the turn, in the order of their acceptance. One that cannot be
        read, or that the agent can't be given, goes back to the queue, where its own turn fails of that; one
        that was given already needs to be read no more."""
        waiting = [entry for entry in self.journal.state.queue.marked() if entry.joins == self.turn]
        for entry in waiting:
            if entry.request_id not in self._content:
                content = await content_of(self.journal, entry.seq)
                refused = unfit(content, images=self.images)
                if not isinstance(content, InputLost) and refused is None:
                    self._content[entry.request_id] = content
                elif refused is not None and entry.reserved is None:
                    await self._return(entry, refused.message)
        return tuple(
            Prompt(self.turn, 1, entry.request_id, self._content[entry.request_id])
            for entry in waiting
            if entry.request_id in self._content
        )

    async def _return(self, entry: Queued, evidence: str) -> None:
        back = InputReturned(request_id=entry.request_id, evidence=evidence)
        loop = self.journal.state.open_turns[self.turn].loop
        draft = Draft(body=back, loop=loop, turn=self.turn)
        await patience.append(self.journal, [draft], at="turn.input_lost")

    def given(self, key: str) -> bool:
        """Whether `key` was reserved for the agent and is not decided yet."""
        return any(entry.request_id == key for entry in steered_into(self.journal.state, self.turn))


async def content_of(journal: Journal, seq: int) -> Given:
    """The content of the InputAccepted at `seq`. That it is lost is the end of its turn, and no reason not to
    serve the session."""
    try:
        async for record in journal.read(after=seq - 1):
            assert isinstance(record.body, InputAccepted)
            return tuple(record.body.content)
    except IntegrityError as error:
        return InputLost(error.message)
    return ()


def reservations(
    state: State, turn: OpenTurn, place: tuple[str, int], named: InputReserved | None
) -> list[Draft]:
    """What must be durable before a line is written in `place` (generation, seq); `named` if it carries an
    input. Where the turn's own input was to stand there and was never written, it is named in the next place
    first: the journal never says of one that was not given that something stands where it should."""
    bodies: list[InputReserved] = []
    own = turn.reserved
    if own is not None and (own.generation, own.seq) == place and (named is None or named.key != own.key):
        bodies.append(replace(own, seq=own.seq + 1))
    if named is not None:
        steered = state.queue.get(named.key)
        if named != (own if steered is None else steered.reserved):
            bodies.append(named)
    return [Draft(body=body, loop=turn.loop, turn=turn.turn) for body in bodies]


def unknown(state: State, turn: OpenTurn, unlanded: Unlanded) -> set[str]:
    """Of the inputs that were to join `turn`: those of which nobody can tell whether they landed."""
    keys = {entry.request_id for entry in steered_into(state, turn.turn)}
    return keys if unlanded is None else keys & unlanded


def decided(state: State, turn: OpenTurn, unlanded: Unlanded) -> list[Draft]:
    """What became of the inputs that were to join `turn`, where the journal does not say it yet: the records
    that must stand before the turn's terminal."""
    drafts: list[Draft] = []
    newest, lost = state.loops[turn.loop].turns, unknown(state, turn, unlanded)
    for entry in steered_into(state, turn.turn):
        if entry.request_id not in lost:
            back = InputReturned(request_id=entry.request_id, evidence="it was never written to the agent")
            drafts.append(Draft(body=back, loop=turn.loop, turn=turn.turn))
            continue
        newest += 1 if entry.index is None else 0
        drafts += _parked(state, turn, entry, newest if entry.index is None else entry.index)
    return drafts


def _parked(state: State, turn: OpenTurn, entry: Queued, index: int) -> list[Draft]:
    own, loop = entry.request_id, state.loops[turn.loop]
    evidence = f"steered into turn {turn.turn}, landing unknown: its agent ended before it had shown it"
    bodies = (
        TurnStarted(index=index, request_id=own, settings={"agent": loop.agent}, effects=list(turn.owed)),
        TurnInterrupted(index=index, reason="crash", evidence=evidence),
        TurnParked(reason="held", detail="whether the agent took it is not known"),
    )
    return [Draft(body=body, loop=turn.loop, turn=own, cause=own) for body in bodies]
