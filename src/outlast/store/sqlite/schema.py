"""The tables, and how a file becomes a store or an older store a newer one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import apsw

from outlast.errors import SchemaError, StoreBusyError
from outlast.faults import point
from outlast.store.sqlite.connection import PAGE_SIZE, connect_reader, connect_writer, translated
from outlast.store.sqlite.incarnation import Node, alive
from outlast.store.sqlite.layout import Layout
from outlast.store.sqlite.packing import packed_id

APPLICATION_ID = 0x6F75746C  # "outl"

# Rows of `record` are found by UNIQUE (s, seq); the rowid rises over all sessions, which tells a reader what
# is new. No index on id: idempotency is positional. No row that holds a journal's tip: it would double the
# bytes of a small append, and the index answers. `store.witness_since`: when a witness was begun anew beside
# records that had had one; NULL where it never was.
_VERSIONS = "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, at INTEGER NOT NULL)"
_VERSION_1 = """
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, epoch INTEGER NOT NULL,
    barrier INTEGER NOT NULL, witness_since INTEGER
);
CREATE TABLE session (s INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE);
CREATE TABLE record (
    s INTEGER NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL, id BLOB NOT NULL, at INTEGER NOT NULL,
    type TEXT NOT NULL, v INTEGER NOT NULL, loop TEXT, turn TEXT, cause TEXT, actor TEXT, cursor BLOB,
    body BLOB NOT NULL, chain BLOB NOT NULL, UNIQUE (s, seq)
);
CREATE TABLE node (
    id TEXT PRIMARY KEY, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, boot_id TEXT NOT NULL,
    pid_ns INTEGER NOT NULL, label TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE lease (s INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, node TEXT);
CREATE INDEX lease_of_node ON lease (node) WHERE node IS NOT NULL;
CREATE TABLE inbox (
    n INTEGER PRIMARY KEY AUTOINCREMENT, s INTEGER NOT NULL, request TEXT NOT NULL, kind TEXT NOT NULL,
    digest BLOB NOT NULL, actor TEXT, at INTEGER NOT NULL, opening TEXT, opening_body BLOB,
    body BLOB NOT NULL, UNIQUE (s, request)
);
CREATE TABLE settled (
    s INTEGER NOT NULL, request TEXT NOT NULL, digest BLOB NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (s, request)
) WITHOUT ROWID;
CREATE TABLE catalog (
    s INTEGER PRIMARY KEY, seq INTEGER NOT NULL, title TEXT NOT NULL, state TEXT NOT NULL,
    agent TEXT NOT NULL, workspace TEXT NOT NULL, created_at INTEGER NOT NULL,
    last_activity_at INTEGER NOT NULL, turns INTEGER NOT NULL, queued INTEGER NOT NULL,
    open_gates INTEGER NOT NULL, labels TEXT NOT NULL
);
CREATE INDEX catalog_by_activity ON catalog (last_activity_at);
CREATE INDEX catalog_by_workspace ON catalog (workspace, last_activity_at);
CREATE TABLE blob (s INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (s, digest)) WITHOUT ROWID;
"""
_VERSION_2 = """
CREATE TABLE snapshot (
    s INTEGER NOT NULL, seq INTEGER NOT NULL, chain BLOB NOT NULL, fold_version INTEGER NOT NULL,
    digest BLOB NOT NULL, body BLOB NOT NULL, UNIQUE (s, seq)
);
"""
# When `outlast backup` made this file; NULL in a store that is at work.
_VERSION_3 = "ALTER TABLE store ADD COLUMN backup_at INTEGER"
# Whether any record refers to a blob is asked before each one that is deleted, under the writer's lock.
_VERSION_4 = "CREATE INDEX blob_by_digest ON blob (digest)"
# Records are packed from here on (see `packing`). Those that are there stay as they are: any row may hold its
# values unpacked. Tombstones are found by their key, so theirs become what is looked for.
_VERSION_5 = "UPDATE settled SET request = packed_id(request) WHERE length(request) = 36"
# Record types that version 5 had no code for.
_VERSION_6 = ""
# What waits beside inputs is few, and counted apart from them at each look at a session.
_VERSION_7 = "CREATE INDEX inbox_commands ON inbox (s, kind) WHERE kind <> 'input'"
# Record types of effects.
_VERSION_8 = ""


SELECT_OWNERS = (
    "SELECT DISTINCT node.id, pid, start_ticks, boot_id, pid_ns, label FROM lease"
    " JOIN node ON node.id = lease.node WHERE lease.node IS NOT NULL"
)
"""Good for every version from 1 on."""


@dataclass(frozen=True, slots=True)
class Migration:
    """From the version below to `version`."""

    version: int
    script: str


MIGRATIONS = (
    Migration(1, _VERSION_1),
    Migration(2, _VERSION_2),
    Migration(3, _VERSION_3),
    Migration(4, _VERSION_4),
    Migration(5, _VERSION_5),
    Migration(6, _VERSION_6),
    Migration(7, _VERSION_7),
    Migration(8, _VERSION_8),
)
VERSION = MIGRATIONS[-1].version


def version_of(connection: apsw.Connection) -> int:
    """The schema version; 0 for an empty database. Raises SchemaError for what is not a store or comes from
    a newer outlast."""
    application = connection.pragma("application_id")
    if application == 0:
        if connection.execute("SELECT count(*) FROM sqlite_schema").get == 0:
            return 0
        # Another first run may have made it a store between the two looks.
        application = connection.pragma("application_id")
    if application != APPLICATION_ID:
        raise SchemaError(
            f"{connection.filename} is a database of another program",
            hint="it was not touched; name another file",
        )
    version = connection.execute("SELECT max(version) FROM schema_version").get
    if not isinstance(version, int):
        raise SchemaError(f"{connection.filename} does not say which version of a store it is")
    if version > VERSION:
        raise SchemaError(
            f"{connection.filename} has schema version {version}; this outlast knows {VERSION}",
            hint="it was not touched; use the newer outlast",
        )
    return version


def require_known(connection: apsw.Connection) -> None:
    """Raises SchemaError once a newer outlast has brought the store up to date while it was open here. Cheap:
    for every transaction that follows on somebody else's, and every read."""
    version = connection.execute("PRAGMA user_version").get
    if version > VERSION:
        raise SchemaError(
            f"a newer outlast has brought {connection.filename} up to date meanwhile, to schema version"
            f" {version}; this one knows {VERSION}, and can use it no more",
            hint="nothing that was acknowledged is lost; go on with the newer outlast: `outlast resume ID`",
        )


class NotMadeError(SchemaError):
    """The file is there and is no store yet: its first command is about to make it one, or was killed."""


def require_store(connection: apsw.Connection) -> None:
    """Raises NotMadeError for a file that is no store yet."""
    if version_of(connection) == 0:
        raise NotMadeError(f"{connection.filename} is empty", hint="a first `outlast run` makes it a store")


def store_id(connection: apsw.Connection) -> str:
    return str(connection.execute("SELECT id FROM store").get)


def is_current(layout: Layout) -> bool:
    """Whether the file is a store that needs neither making nor migrating; a look that writes nothing.
    Raises SchemaError for what is not ours."""
    try:
        if layout.database.stat().st_size == 0:
            return False
        connection = connect_reader(layout)
    except FileNotFoundError:
        return False
    except apsw.Error as error:
        raise translated(error, layout.database) from error
    try:
        return version_of(connection) == VERSION
    except (apsw.ReadOnlyError, apsw.CantOpenError):
        # A first run was killed while it made the file: only a writer can roll that back.
        return False
    except apsw.Error as error:
        raise translated(error, layout.database) from error
    finally:
        connection.close()


def make_current(layout: Layout, busy_seconds: float, at: int) -> None:
    """Make the store, or migrate an older one. The caller holds the turnstile: one process does it while the
    others wait."""
    if is_current(layout):
        return
    with writing(layout, busy_seconds) as connection:
        version = version_of(connection)
        if version == 0:
            connection.pragma("page_size", PAGE_SIZE)
        connection.pragma("journal_mode", "wal")
        if version < VERSION:
            migrate(connection, version, at, layout)
        connection.close()


def open_for_writing(layout: Layout, busy_seconds: float) -> apsw.Connection:
    """A connection for the one thread that writes."""
    with writing(layout, busy_seconds) as connection:
        # Full: each commit is on the disk before it is acknowledged. Where fsync leaves data in the drive's
        # cache (macOS), fullfsync does not.
        connection.pragma("synchronous", "full")
        connection.pragma("fullfsync", True)
        connection.wal_autocheckpoint(1000)
    return connection


@contextmanager
def writing(layout: Layout, busy_seconds: float) -> Iterator[apsw.Connection]:
    """A connection that is closed if the block fails; SQLite's errors leave it in our words."""
    try:
        connection = connect_writer(layout, busy_seconds)
    except apsw.Error as error:
        raise translated(error, layout.database) from error
    try:
        yield connection
    except apsw.Error as error:
        connection.close()
        raise translated(error, layout.database) from error
    except BaseException:
        connection.close()
        raise


def migrate(
    connection: apsw.Connection, version: int, at: int, layout: Layout | None = None, to: int | None = None
) -> None:
    """All missing steps, or those up to version `to`, in one transaction. Raises StoreBusyError where an
    older outlast that lives owns a session of it, by its lock in the store's folder, which is in `layout`."""
    to = VERSION if to is None else to
    connection.create_scalar_function("packed_id", _packed_id, 1, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if version and layout is not None:
            _refuse_while_owned(connection, layout)
        if version == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(_VERSIONS)
        for step in MIGRATIONS:
            if version < step.version <= to:
                connection.execute(step.script)
                connection.execute("INSERT INTO schema_version VALUES (?, ?)", (step.version, at))
        if version == 0:
            identity = os.urandom(16).hex()
            connection.execute("INSERT INTO store (one, id, epoch, barrier) VALUES (1, ?, 0, 0)", (identity,))
        # What `require_known` looks at: in the first page, which every transaction has read.
        connection.execute(f"PRAGMA user_version = {to}")
        point("store.schema.before_commit")
        connection.execute("COMMIT")
        point("store.schema.after_commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _packed_id(*values: apsw.SQLiteValue) -> apsw.SQLiteValue:
    return packed_id(str(values[0]))


def _refuse_while_owned(connection: apsw.Connection, layout: Layout) -> None:
    """Whoever owns a session of a store of an older version is older too: it would lose it in mid turn."""
    for row in connection.execute(SELECT_OWNERS).fetchall():
        node = Node(*row)  # type: ignore[arg-type]
        if alive(layout.nodes, node):
            raise StoreBusyError(
                f"{layout.database} cannot be brought up to date: {node.label}, of an older outlast,"
                " still works with it",
                hint="wait until it ends, or end it: agents live on, `outlast resume ID` goes on with them",
            )
