"""Groups of operations, each group one durable transaction. Synchronous; belongs to one thread at a time.

What a failed commit means: BUSY and FULL are not stored. After any other error nothing is known, because
the frames may be in the log: the engine latches and tries one barrier commit on the same connection. If that
succeeds it has overwritten what was left of the failed one, which is therefore not stored. If not, and
always after a failed fsync (a second one can succeed although the pages are gone), the outcome stays
ambiguous and this process writes no more; the next process's open decides.

What comes after a COMMIT (the witness, the remembered epoch, the bell) fails nothing: the caller would take
for refused what is stored.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from outlast import clock
from outlast.errors import (
    AmbiguousAppendError,
    IntegrityError,
    OutlastError,
    SchemaError,
    StoreError,
    StoreFullError,
)
from outlast.faults import point
from outlast.store.sqlite import schema
from outlast.store.sqlite.connection import (
    extended_code,
    full,
    is_full,
    refused_write,
    require_safe_sqlite,
    translated,
)
from outlast.store.sqlite.layout import Layout, make_private_folder, open_side_file, prepare, unwritable
from outlast.store.sqlite.operations import Operation, PutSnapshot, RefusedLateError, outcome_of
from outlast.store.sqlite.transaction import Cache, Effects, Transaction, tips
from outlast.store.sqlite.turnstile import Turnstile
from outlast.store.sqlite.witness import Witness, count_noted

_FSYNC_FAILED = frozenset({apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC})


@dataclass(frozen=True, slots=True)
class Settings:
    layout: Layout
    node: str
    """This process's incarnation."""
    busy_seconds: float = 10.0
    memory: Path | None = None
    """Folder that remembers the highest epoch of each store, apart from the store."""


def refuse_vanished(layout: Layout) -> None:
    """Raises IntegrityError where the database is gone and what it held is remembered beside it: a new one in
    its place would hide that."""
    if _is_there(layout):
        return
    noted = count_noted(layout.witness)
    if noted and not _is_there(layout):  # another first run may have made it meanwhile
        raise IntegrityError(
            f"the database {layout.database} is gone, and there were {noted} journals in it",
            seq=0,
            reason="missing",
            hint=f"put it or a backup back; `mv '{layout.folder}' ELSEWHERE` begins anew without them",
        )


def _is_there(layout: Layout) -> bool:
    try:
        return layout.database.stat().st_size > 0
    except FileNotFoundError:
        return False


def remembered(path: Path | None) -> int:
    """The highest epoch that this machine has seen of a store, by the file that remembers it."""
    try:
        return int(path.read_text(encoding="ascii")) if path else 0
    except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
        return 0


class _UnsettledError(Exception):
    """A commit failed and its outcome is not known."""


class Engine:
    def __init__(self, settings: Settings) -> None:
        """Opens, creates or migrates the store. Raises SchemaError, StoreFullError, StoreBusyError,
        PlatformError."""
        require_safe_sqlite()
        self._settings = settings
        layout = settings.layout
        prepare(layout)
        with ExitStack() as undo:
            try:
                self._open(layout, undo)
            except OSError as error:
                raise unwritable(layout.database, error) from error
            self._closing = undo.pop_all()
        self._cursor = self._connection.cursor()
        self._cache = Cache()
        self._latched = False
        self.outdated: SchemaError | None = None
        """That a newer outlast has migrated the store meanwhile: nothing of ours may be in it any more."""
        self.epoch = int(self._connection.execute("SELECT epoch FROM store").get)

    def _open(self, layout: Layout, undo: ExitStack) -> None:
        seconds = self._settings.busy_seconds
        refuse_vanished(layout)
        self._turnstile = Turnstile(layout)
        undo.callback(self._turnstile.close)
        if not schema.is_current(layout):
            with self._turnstile.turn(seconds):
                schema.make_current(layout, seconds, clock.now())
        # No turn from here on: a process that is stopped in its transaction keeps nobody from reading.
        self._connection = schema.open_for_writing(layout, seconds)
        undo.callback(self._connection.close)
        self.store_id = schema.store_id(self._connection)
        self.witness = Witness(layout.witness, self.store_id, write=True)
        undo.callback(self.witness.close)
        if not self.witness.is_ours:
            with self._turnstile.turn(seconds):
                if not self.witness.is_ours:
                    self._begin_witness()
        self.remembered = remembered(self._memory_path())
        self._is_backup = self._connection.execute("SELECT backup_at FROM store").get is not None
        self._bell = open_side_file(layout.bell)
        undo.callback(os.close, self._bell)

    def _begin_witness(self) -> None:
        """No record was ever written without a witness: where some are, it was emptied or removed. What it
        knew is gone, so work goes on, and the doctor tells of it."""
        try:
            self._connection.execute(
                "UPDATE store SET witness_since = ? WHERE EXISTS (SELECT 1 FROM record)", (clock.now(),)
            )
        except apsw.Error as error:
            raise translated(error, self._settings.layout.database) from error
        self._note_anew()

    def _note_anew(self) -> None:
        """The witness tells of what is there now: what is lost from now on is noticed, also of journals that
        nobody writes to any more. A journal whose end cannot be read is not in it; its next record is."""
        self.witness.begin_anew()
        point("store.witness.emptied")
        self.witness.write(tips(self._connection))

    @property
    def node(self) -> str:
        return self._settings.node

    @property
    def latched(self) -> bool:
        """Whether this process has stopped writing for good."""
        return self._latched

    @property
    def behind(self) -> bool:
        """Whether the store is a backup that was put back: made by `outlast backup`, or older than what this
        machine has seen of it."""
        return self._is_backup or self.epoch < self.remembered

    def execute(self, group: Sequence[Operation]) -> tuple[list[object], Effects]:
        """Carry out the group in one transaction. The outcomes are results or exceptions, in order; each is
        definite except AmbiguousAppendError. Never raises for what went wrong in an operation."""
        try:
            with self._turnstile.turn(self._settings.busy_seconds):
                outcomes, effects = self._whole_or_one_by_one(group)
                if effects.epoch:
                    self._remember(effects.epoch)
        except StoreError as error:  # of the turnstile: no turn, nothing written
            return _for_each(group, error), Effects()
        self._bear_witness(effects)
        return outcomes, effects

    def stop(self) -> None:
        """Write no more: something is wrong with this process itself."""
        self._latched = True

    def _whole_or_one_by_one(self, group: Sequence[Operation]) -> tuple[list[object], Effects]:
        if self._latched:
            return _for_each(group, self.outdated or _stopped()), Effects()
        try:
            return self._transact(group)
        except _UnsettledError as error:
            return _for_each(group, self._settle(error)), Effects()
        except Exception as error:  # noqa: BLE001 - nothing is committed, whatever it was
            failure = self._failure(error)
            self._roll_back()
            if isinstance(failure, SchemaError):
                self._latched, self.outdated = True, failure
            if len(group) == 1 or not (_is_ones_own(error) or _lacks_space_for_a_cache(failure, group)):
                return _for_each(group, failure), Effects()
        # One operation brought something that cannot be stored. It must not take the others with it.
        outcomes: list[object] = []
        together = Effects()
        for operation in group:
            alone, effects = self._whole_or_one_by_one([operation])
            outcomes += alone
            _merge(together, effects)
        return outcomes, together

    def _transact(self, group: Sequence[Operation]) -> tuple[list[object], Effects]:
        cursor = self._cursor
        cursor.execute("BEGIN IMMEDIATE")
        version = cursor.execute("PRAGMA data_version").get
        if version != self._cache.version:
            schema.require_known(self._connection)
        self._cache.refresh(version)
        nodes = self._settings.layout.nodes
        txn = Transaction(cursor, self._cache, self._settings.node, nodes, self.witness)
        before = txn.watermark()
        outcomes: list[object] = []
        for operation in group:
            outcomes.append(outcome_of(operation, txn))
        txn.flush()
        if not txn.wrote:
            cursor.execute("ROLLBACK")
            return outcomes, Effects()
        txn.effects.before, txn.effects.after = before, txn.watermark()
        txn.effects.points = sorted({operation.point for operation in group})
        for name in txn.effects.points:
            point(f"store.{name}.before_commit")
        self._commit()
        return outcomes, txn.effects

    def _commit(self) -> None:
        try:
            self._cursor.execute("COMMIT")
        except apsw.Error as error:
            if isinstance(error, apsw.BusyError | apsw.LockedError) or is_full(error, self._connection):
                raise
            raise _UnsettledError from error

    def _settle(self, unsettled: _UnsettledError) -> OutlastError:
        """What a commit that failed in an unknown way turns out to be."""
        cause = unsettled.__cause__
        assert isinstance(cause, apsw.Error)  # only _commit raises it
        self._latched = True
        self._roll_back()
        if extended_code(cause) in _FSYNC_FAILED:
            return _stopped()
        point("store.barrier.before_commit")
        try:
            self._cursor.execute("BEGIN IMMEDIATE; UPDATE store SET barrier = barrier + 1; COMMIT")
        except apsw.Error:
            self._roll_back()
            return _stopped()
        self._latched = False
        return translated(cause, self._settings.layout.database)

    def _roll_back(self) -> None:
        self._cache.clear()
        try:
            if self._connection.in_transaction:
                self._cursor.execute("ROLLBACK")
        except apsw.Error:
            # SQLite has rolled back by itself where it could; else no transaction begins here any more.
            self._latched = self._latched or self._connection.in_transaction

    def _failure(self, error: Exception) -> OutlastError:
        if isinstance(error, OutlastError):
            return error
        if isinstance(error, RefusedLateError):
            return error.refusal
        database = self._settings.layout.database
        if isinstance(error, apsw.Error):
            if refused_write(error, self._connection) == errno.EFBIG:
                return unwritable(database, OSError(errno.EFBIG, os.strerror(errno.EFBIG)))
            if is_full(error, self._connection) and not isinstance(error, apsw.ReadOnlyError):
                return full(database, str(error))
            return translated(error, database)
        if isinstance(error, OSError):
            return unwritable(database, error)
        return StoreError(f"cannot be stored in {database}: {error}")

    def _bear_witness(self, effects: Effects) -> None:
        """After the commit and before anybody hears of it. The witness may be behind."""
        with _failing_nothing():
            for name in effects.points:
                point(f"store.{name}.after_commit")
        with _failing_nothing():
            point("store.witness.before")
            self.witness.write(effects.tips.items())
            point("store.witness.after")

    def ring(self, effects: Effects) -> None:
        """Tell other processes of a group. Nothing depends on it: beside the bell they look now and then, and
        a dead node's file may stay."""
        if effects.names:
            with _failing_nothing():
                point("store.bell.before")
                os.pwrite(self._bell, b"!", 0)
                point("store.bell.after")
        for node in effects.dead:
            with _failing_nothing():
                point("store.node.before_unlink")
                (self._settings.layout.nodes / node).unlink()

    def _remember(self, epoch: int) -> None:
        """Called within the turn, so that a lower epoch never replaces a higher one."""
        path = self._memory_path()
        if path is None:
            return
        with _failing_nothing():
            make_private_folder(path.parent)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                point("store.memory.before")
                os.pwrite(file, b"%020d" % epoch, 0)
                point("store.memory.after")
            finally:
                os.close(file)

    def _memory_path(self) -> Path | None:
        memory = self._settings.memory
        return memory / self.store_id if memory else None

    def accept_restored(self, first: Sequence[Operation] = ()) -> int:
        """Go on with a store that is behind what this machine has seen of it: epochs continue above the
        highest one seen, and the witness tells of what is there. Returns the epoch. `first` is carried out
        before anybody else may write. Raises what refuses it."""
        for outcome in self.execute(first)[0] if first else ():
            if isinstance(outcome, BaseException):
                raise outcome
        with self._turnstile.turn(self._settings.busy_seconds):
            self.epoch = max(self.epoch, self.remembered) + 1
            try:
                self._cursor.execute(
                    "UPDATE store SET epoch = max(epoch + 1, ?), backup_at = NULL, witness_since = NULL",
                    (self.epoch,),
                )
            except apsw.Error as error:
                raise translated(error, self._settings.layout.database) from error
            self._note_anew()
            self._is_backup = False
            self.remembered = self.epoch
            self._remember(self.epoch)
        return self.epoch

    def close(self) -> None:
        self._closing.close()


def _is_ones_own(error: Exception) -> bool:
    """Whether the error comes from what an operation brought, or from a damaged page or table that it met,
    and not from the disk or a lock."""
    own = apsw.ConstraintError | apsw.TooBigError | apsw.MismatchError | apsw.CorruptError | apsw.SQLError
    return isinstance(error, own) or not isinstance(error, apsw.Error | OSError | OutlastError)


def _lacks_space_for_a_cache(failure: OutlastError, group: Sequence[Operation]) -> bool:
    """Whether the rest of the group may fit without its snapshots, which nobody needs."""
    return isinstance(failure, StoreFullError) and any(isinstance(each, PutSnapshot) for each in group)


def _stopped() -> AmbiguousAppendError:
    return AmbiguousAppendError(
        "the disk failed during a commit: whether it is stored shows when the store is opened anew;"
        " this process writes no more",
        hint="end this process, look at the disk, then start again",
    )


def _merge(into: Effects, effects: Effects) -> None:
    into.names |= effects.names
    into.tips.update(effects.tips)
    into.epoch = max(into.epoch, effects.epoch)
    into.dead += effects.dead
    into.points += effects.points
    into.before = into.before or effects.before
    into.after = effects.after or into.after


def _for_each(group: Sequence[Operation], error: OutlastError) -> list[object]:
    """The error for each caller: one of its own, for whoever raises it adds to it."""
    return [twin(error) for _ in group]


def twin(error: OutlastError) -> OutlastError:
    """The same error once more."""
    other = type(error).__new__(type(error), *error.args)
    other.__dict__.update(error.__dict__)
    other.__cause__ = error.__cause__
    return other


@contextmanager
def _failing_nothing() -> Iterator[None]:
    """Around what comes after a COMMIT."""
    with suppress(OSError, OutlastError):
        yield
