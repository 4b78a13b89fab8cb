"""What a repair takes out of a journal is kept here, as it was stored, before it goes.

In `<store>.d/quarantine/cut-<epoch>/` are `about.json`, which says what was cut and why, and `rows.jsonl`: of
each row the types and bytes of its columns, and what they say. Where a page is damaged, `database.db` is a
copy of the whole database, page by page.
"""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import apsw

from outlast.errors import OutlastError
from outlast.faults import point
from outlast.files import flush_folder
from outlast.store.contract import Cut, Tip
from outlast.store.sqlite.connection import connect_reader, translated
from outlast.store.sqlite.layout import Layout, make_private_folder, unwritable
from outlast.store.sqlite.packing import Columns, PackingError, unpacking
from outlast.store.sqlite.rows import RECORD_COLUMNS
from outlast.store.sqlite.transaction import SELECT_EARLIER, SELECT_SESSION

_COLUMNS = RECORD_COLUMNS.split(", ")
_RAW = ", ".join(f"typeof({column}), CAST({column} AS BLOB)" for column in _COLUMNS)
SELECT_RAW = f"SELECT {_RAW} FROM record WHERE s = ? AND seq = ?"
SELECT_ROW = f"SELECT {RECORD_COLUMNS} FROM record WHERE s = ? AND seq = ?"


def folder_name(epoch: int) -> str:
    """One lease cuts once."""
    return f"cut-{epoch}"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What came into quarantine."""

    rows: int
    unreadable: tuple[int, ...]


def keep(layout: Layout, store: str, cut: Cut, noted: Tip | None) -> None:
    """Write the quarantine of `cut`; whole and durable when it returns, and not there at all before. Raises
    StoreError, IntegrityError. Blocking."""
    base = layout.folder / "quarantine"
    final = base / folder_name(cut.append.lease.epoch)
    draft = base / f".{final.name}-{os.urandom(4).hex()}"
    connection = connect_reader(layout)
    try:
        make_private_folder(base)
        draft.mkdir(mode=0o700)
        kept = _keep_rows(connection, draft, cut)
        if kept.unreadable:
            copy_pages(connection, draft / "database.db")
        about = _about(store, connection, cut, noted, kept)
        _write(draft / "about.json", json.dumps(about, indent=1).encode())
        flush_folder(draft)
        point("repair.quarantine.before_rename")
        draft.rename(final)
        flush_folder(base)
        point("repair.quarantine.after_rename")
    except OSError as error:
        raise unwritable(final, error) from error
    except apsw.Error as error:
        raise translated(error, layout.database) from error
    finally:
        connection.close()
        shutil.rmtree(draft, ignore_errors=True)


def _about(
    store: str, connection: apsw.Connection, cut: Cut, noted: Tip | None, kept: _Kept
) -> dict[str, object]:
    end = cut.append.rows[-1]
    return {
        "schema": "outlast_quarantine_v1",
        "store": store,
        "session": cut.name,
        "s": connection.execute(SELECT_SESSION, (cut.name,)).get,
        "kept": cut.keep,
        "lost_to": cut.last,
        "reason": cut.reason,
        "rows": kept.rows,
        "unreadable": list(kept.unreadable),
        "at": end.at,
        "noted": None if noted is None else _tip(noted.seq, noted.chain),
        "end": _tip(end.seq, end.chain),
    }


def _tip(seq: int, chain: bytes) -> dict[str, object]:
    return {"seq": seq, "chain": chain.hex()}


def _keep_rows(connection: apsw.Connection, draft: Path, cut: Cut) -> _Kept:
    s = cast(int, connection.execute(SELECT_SESSION, (cut.name,)).get)
    rows, unreadable = 0, []
    with _new(draft / "rows.jsonl") as file:
        for seq in range(cut.keep + 1, cut.last + 1):
            try:
                found = connection.execute(SELECT_RAW, (s, seq)).fetchone()
            except apsw.CorruptError:
                unreadable.append(seq)
                continue
            if found is not None:
                told = dict(_columns(found)) | _unpacked(connection, s, seq)
                file.write(json.dumps(told).encode() + b"\n")
                rows += 1
        file.flush()
        os.fsync(file.fileno())
    return _Kept(rows, tuple(unreadable))


def _columns(found: tuple[object, ...]) -> Iterator[tuple[str, object]]:
    """Each column's type, and its bytes in base64, or as they are where they are text or digits."""
    for column, kind, raw in zip(_COLUMNS, found[::2], found[1::2], strict=True):
        if raw is None:
            yield column, None
            continue
        data = cast(bytes, raw)
        try:
            plain = None if kind == "blob" else data.decode("utf-8")
        except UnicodeDecodeError:
            plain = None
        yield column, {str(kind): {"base64": b64encode(data).decode()} if plain is None else plain}


def _unpacked(connection: apsw.Connection, s: int, seq: int) -> dict[str, object]:
    """What the row says, where it can be told; for people."""

    def find(earlier: int) -> Columns | None:
        return connection.execute(SELECT_EARLIER, (s, earlier)).fetchone()

    try:
        (values,) = connection.execute(SELECT_ROW, (s, seq))
        row = unpacking([], find)(values)
    except (PackingError, UnicodeDecodeError, apsw.CorruptError):
        return {}
    said = {"type": row.type, "loop": row.loop, "turn": row.turn, "cause": row.cause}
    body: object = row.body
    return {"says": said | {"body": body.decode("utf-8", "replace") if isinstance(body, bytes) else body}}


def copy_pages(source: apsw.Connection, path: Path) -> None:
    """The database as it is, damaged pages included. By SQLite: a file that this process opened and closed by
    itself would take SQLite's locks with it."""
    target = apsw.Connection(str(path))
    try:
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(256)
    finally:
        target.close()
    path.chmod(0o600)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def overrules(folder: Path, s: int, noted: Tip, chain_at: Callable[[int], bytes | None]) -> bool:
    """Whether a repair that was carried out has taken out what the witness noted. It notes the new end itself
    after its commit; this is for who comes where it was killed in between."""
    for about in sorted((folder / "quarantine").glob("cut-*/about.json")):
        try:
            found = json.loads(about.read_bytes())
            told = found["noted"] == _tip(noted.seq, noted.chain) and found["s"] == s
            end = found["end"]
            if told and (chain_at(int(end["seq"])) or b"").hex() == end["chain"]:
                return True
        except (OSError, ValueError, KeyError, TypeError, OutlastError):
            continue
    return False


def _new(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb")


def _write(path: Path, data: bytes) -> None:
    with _new(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
