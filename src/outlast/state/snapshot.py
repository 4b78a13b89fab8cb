"""A state as a snapshot, and back. Pure: whether it is true of a journal, `journal.loading` finds out.

Bodies are MessagePack, as bytes stay bytes in it, and not compressed: most are a few kilobytes.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from outlast.state.model import Queued, State
from outlast.state.queue import Queue
from outlast.store.contract import Snapshot

FOLD_VERSION = 14
"""Raised with every change of what a journal folds to, and of what a state is made of: a snapshot of another
version is no part of a state, and the journal is read from its beginning once."""


def plain(value: object) -> dict[str, Queued]:
    """A queue as it is stored; msgspec asks for what it does not know. Raises NotImplementedError."""
    if isinstance(value, Queue):
        return dict(value.items())
    raise NotImplementedError(type(value))


def _queue(kind: type, stored: Any) -> Queue:
    return Queue(msgspec.convert(stored, dict[str, Queued]).values())


_encode = msgspec.msgpack.Encoder(enc_hook=plain).encode
_decode = msgspec.msgpack.Decoder(State, dec_hook=_queue).decode


class UnfitSnapshotError(Exception):
    """A snapshot that reading cannot begin at; the text says why. It never leaves the journal's reader."""


def snapshot_of(state: State) -> Snapshot:
    """The snapshot of a state after some record."""
    body = _encode(state)
    unsigned = Snapshot(state.session, state.seq, state.chain, FOLD_VERSION, b"", body)
    return Snapshot(state.session, state.seq, state.chain, FOLD_VERSION, _digest(unsigned), body)


def state_of(snapshot: Snapshot) -> State:
    """The state that a snapshot holds, a new one each time. Raises UnfitSnapshotError for one that was
    changed, that another session's owner wrote, or that another version of the fold made."""
    if snapshot.digest != _digest(snapshot):
        raise UnfitSnapshotError("it is not what was written (its digest differs)")
    if snapshot.fold_version != FOLD_VERSION:
        raise UnfitSnapshotError(f"its fold has version {snapshot.fold_version}, this one {FOLD_VERSION}")
    try:
        state = _decode(snapshot.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnfitSnapshotError(f"it holds no state: {error}") from error
    if (state.session, state.seq, state.chain) != (snapshot.name, snapshot.seq, snapshot.chain):
        raise UnfitSnapshotError(f"it holds the state of {state.session} at record {state.seq}")
    return state


def _digest(snapshot: Snapshot) -> bytes:
    parts = (snapshot.name, snapshot.seq, snapshot.chain, snapshot.fold_version, snapshot.body)
    return hashlib.sha256(_encode(parts)).digest()
