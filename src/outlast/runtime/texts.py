"""The text of a turn that has ended, read from the journal: as long as it may be, in constant memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from outlast.journal import load_state, read_records
from outlast.state.turn_ends import End, TurnText, begins_anew, begun_in
from outlast.store.contract import Store


async def text_pieces(store: Store, session: str, end: End) -> AsyncIterator[str]:
    """The text of the turn's last attempt, piece by piece. Raises as `read_records`."""
    begun = end.begun if end.begun is not None else await _begun(store, session, end)
    async for piece in _between(store, session, end.turn, range(begun, end.seq + 1)):
        yield piece


async def text_so_far(store: Store, session: str, turn: str) -> AsyncIterator[str]:
    """What an open turn has said by now in its last attempt; nothing of a turn that is not open. Raises as
    `read_records`."""
    state = await load_state(store, session)
    begun = begun_in(state).get(turn)
    if begun is not None:
        async for piece in _between(store, session, turn, range(begun, state.seq + 1)):
            yield piece


async def whole_text(store: Store, session: str, end: End) -> str:
    """The same as one string."""
    return "".join([piece async for piece in text_pieces(store, session, end)])


async def _between(store: Store, session: str, turn: str, places: range) -> AsyncIterator[str]:
    """The turn's text in the records after the first of these places."""
    text = TurnText(turn)
    async for record in read_records(store, session, places.start):
        if record.seq not in places:
            return
        if piece := text.piece(record):
            yield piece


async def _begun(store: Store, session: str, end: End) -> int:
    """The record with which the last attempt of the turn began; 0 where it had none."""
    begun = 0
    async for record in read_records(store, session, large="outline"):
        if record.seq > end.seq:
            break
        if record.turn == end.turn and begins_anew(record):
            begun = record.seq
    return begun
