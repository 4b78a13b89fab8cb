"""Where seals and their key lie, and what becomes of them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from outlast.errors import UsageError
from outlast.faults import point
from outlast.files import open_regular, read_regular
from outlast.journal.seal import KEY_SIZE, Head, Standing, decode_head, encode_head, standing

if TYPE_CHECKING:
    from outlast.journal.integrity import Verified
    from outlast.store.contract import Store


_HEAD_LIMIT = 1 << 20


class SealShown(msgspec.Struct, frozen=True):
    """A seal or an exported head, as `verify` found it."""

    seq: int
    at: str
    result: Standing
    key: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A head, and the file that it came from."""

    head: Head
    source: Path


def default_key_file() -> Path:
    from outlast.store.url import state_dir

    return state_dir(os.environ) / "seal.key"


def read_key(path: Path) -> bytes | None:
    """None where there is no such file. Raises UsageError for one that is no key or that others can read."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise UsageError(f"the key {path} can be read by other users", hint=f"chmod 600 '{path}'")
            key = file.read(4096)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"the key {path} cannot be read: {error.strerror or error}") from error
    if len(key) < KEY_SIZE:
        raise UsageError(
            f"the key {path} has {len(key)} bytes; a key has {KEY_SIZE} at least",
            hint=f"head -c {KEY_SIZE} /dev/urandom > FILE makes one",
        )
    return key


def make_key(path: Path) -> bytes:
    """The key of the file, made with its first use. Raises as `read_key`, and OSError."""
    found = read_key(path)
    if found is not None:
        return found
    from outlast.store.sqlite.layout import make_private_folder

    make_private_folder(path.parent)
    draft = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    _write(draft, os.urandom(KEY_SIZE))
    try:
        os.link(draft, path)  # first uses at once: the link tells whose counts
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    key = read_key(path)
    assert key is not None  # it was just made, and nobody removes it
    return key


def seal_file(store: Store, session: str) -> Path:
    """Named by a digest: a session's id is no path."""
    return store.folder / "seals" / f"{hashlib.sha256(session.encode()).hexdigest()[:32]}.json"


def kept_seal(store: Store, session: str) -> Kept | None:
    """Raises InvalidRecordError where the file holds no seal."""
    path = seal_file(store, session)
    try:
        return Kept(decode_head(read_regular(path, _HEAD_LIMIT), what=str(path)), path)
    except FileNotFoundError:
        return None


def given_head(path: Path, session: str) -> Kept:
    """An exported head. Raises UsageError, InvalidRecordError."""
    try:
        head = decode_head(read_regular(path, _HEAD_LIMIT), what=str(path))
    except OSError as error:
        raise UsageError(f"the head {path} cannot be read: {error.strerror or error}") from error
    if head.session != session:
        raise UsageError(f"the head {path} is of session {head.session}")
    return Kept(head, path)


def keep_seal(store: Store, head: Head) -> Path:
    """In the place of the one before it, which it includes."""
    from outlast.store.sqlite.layout import make_private_folder

    path = seal_file(store, head.session)
    make_private_folder(path.parent)
    write_anew(path, encode_head(head))
    return path


def write_anew(path: Path, data: bytes) -> None:
    """All or nothing, also over a power cut. Raises OSError."""
    from outlast.files import flush_folder

    draft = path.with_name(f".{path.name}-{os.urandom(8).hex()}")
    try:
        _write(draft, data)
        point("seal.before_rename")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    flush_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def looked_at(kept: Kept, found: Verified, key: bytes | None) -> SealShown:
    """A head beside what was read of the journal, whose chain at `head.seq` was asked for."""
    head = kept.head
    if found.fault is not None and found.fault.kind != "shorter" and head.seq > found.seq:
        return SealShown(head.seq, head.at, "not_reached", head.key, str(kept.source))
    result = standing(head, lineage=found.state.lineage, chain=found.chains.get(head.seq), key=key)
    return SealShown(head.seq, head.at, result, head.key, str(kept.source))
