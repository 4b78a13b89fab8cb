"""From an address to a store, and the address that is meant when none is given."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.errors import InputError, UsageError

if TYPE_CHECKING:
    from outlast.store.contract import Admission, Store

_MEMORY = "memory:"
_PREFIX = "sqlite://"
_SAFE = frozenset(b"/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_HEX = frozenset("0123456789abcdefABCDEF")


async def open_store(url: str, *, label: str | None = None) -> Store:
    """Open or create the store at `url`. `label` describes this process to people who meet its leases.

    Raises UsageError for an address that no back end serves, PlatformError where the filesystem or SQLite
    cannot carry the promise, SchemaError, StoreFullError, StoreBusyError.
    """
    if url.startswith(_MEMORY):
        from outlast.store.memory.store import MemoryStore  # noqa: PLC0415

        return MemoryStore.open(url, label or process_label())
    from outlast.store.sqlite.store import Address, SqliteStore  # noqa: PLC0415 — `outlast ls` starts without it

    database = database_path(url, os.environ)
    return await SqliteStore.open(Address(url, database, label or process_label(), memory=epochs(os.environ)))


def accept_restored(url: str, first: Sequence[Admission] = ()) -> int:
    """Go on with a store that was restored from a backup and is older than what this machine has seen of
    it. Epochs continue above all that were seen; returns the new one. `first` waits in it before anybody
    else can write. Blocking. Raises as `open_store`."""
    from outlast import clock  # noqa: PLC0415
    from outlast.store.sqlite.engine import Engine, Settings  # noqa: PLC0415
    from outlast.store.sqlite.layout import Layout  # noqa: PLC0415
    from outlast.store.sqlite.operations import Admit  # noqa: PLC0415

    layout = Layout.of(database_path(url, os.environ))
    engine = Engine(Settings(layout, node="", memory=epochs(os.environ)))
    try:
        return engine.accept_restored([Admit.of(each, clock.now()) for each in first])
    finally:
        engine.close()


def database_path(url: str, environ: Mapping[str, str]) -> Path:
    """The database file that a `sqlite:` address names. Raises UsageError for any other address, InputError
    for a file that no record could name."""
    scheme, separator, _ = url.partition(":")
    if url.startswith(_MEMORY):
        raise UsageError(
            f"{url} names a store within one process, and every command is a process of its own",
            hint="name a database, as in sqlite:///var/lib/x.db; memory: is for `outlast.Runtime` and tests",
        )
    if not separator or scheme != "sqlite":
        named = f"{scheme}:" if separator else url
        raise UsageError(
            f"no store is served under {named!r}",
            hint="outlast has sqlite: so far, as in sqlite:///var/lib/x.db, and memory: within one process",
        )
    path = url.removeprefix(_PREFIX)
    if not url.startswith(_PREFIX + "/") or path.endswith("/"):
        raise UsageError(
            "a sqlite address is sqlite:///absolute/path.db or sqlite:///~/in/your/home.db",
            hint="three slashes, then the path of the file",
        )
    for mark in "?#":
        if mark in path:
            raise UsageError(
                f"a {mark!r} in a store's address needs its escaped form",
                hint=f"write %{ord(mark):02X} for it",
            )
    file = home(environ) / _decoded(path[3:]) if path.startswith("/~/") else Path(_decoded(path))
    storable(Path(os.path.realpath(file)), "the store", "name another by OUTLAST_STATE_DIR or OUTLAST_STORE")
    return file


def sqlite_url(database: str | os.PathLike[str]) -> str:
    """The address of a database file."""
    return _PREFIX + escaped(Path(database).absolute())


def storable(path: Path, what: str, hint: str) -> Path:
    """`path`, if records can name it: they hold text. Raises InputError for one that is not UTF-8."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"the path of {what} is not valid UTF-8: {str(path)!r}", hint=hint) from None
    return path


def escaped(path: Path) -> str:
    """A path for an address, byte by byte."""
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in os.fsencode(path))


def default_url(environ: Mapping[str, str]) -> str:
    """`OUTLAST_STORE`, else the database in the state folder."""
    return environ.get("OUTLAST_STORE") or sqlite_url(state_dir(environ) / "outlast.db")


def state_dir(environ: Mapping[str, str]) -> Path:
    """Where outlast keeps its state: `OUTLAST_STATE_DIR` (a plain path), else `outlast` in
    `XDG_STATE_HOME`, else in ~/.local/state. Raises UsageError when there is no home to be found."""
    given = environ.get("OUTLAST_STATE_DIR")
    if given:
        return Path(given).absolute()
    state = environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # others are to be ignored, says the XDG base directory specification
        return Path(state) / "outlast"
    return home(environ) / ".local" / "state" / "outlast"


def home(environ: Mapping[str, str]) -> Path:
    """`HOME`, else what the password database has. Raises UsageError that names OUTLAST_STATE_DIR."""
    given = environ.get("HOME", "")
    if given.startswith("/"):
        return Path(given)
    try:
        entry = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        entry = ""
    if not entry.startswith("/") or not Path(entry).is_dir():
        raise UsageError(
            "there is no home folder: HOME is not set and the password database has none",
            hint="set OUTLAST_STATE_DIR to a folder for outlast's state",
        )
    return Path(entry)


def process_label() -> str:
    """This process for people: host, pid and command."""
    try:
        command = Path("/proc/self/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        command = "outlast"
    return f"{os.uname().nodename} pid {os.getpid()} ({command})"


def epochs(environ: Mapping[str, str]) -> Path | None:
    """The folder that remembers the highest epoch of each store, in files of the stores' ids."""
    try:
        return state_dir(environ) / "epochs"
    except UsageError:
        # The store was named and works without; only a restored backup goes unnoticed.
        return None


def _decoded(text: str) -> str:
    head, *rest = text.split("%")
    data = bytearray(os.fsencode(head))
    for part in rest:
        try:
            data.append(int(part[:2], 16) if len(part) >= 2 and _HEX.issuperset(part[:2]) else -1)
        except ValueError as error:
            raise UsageError(
                f"%{part[:2]} in a store's address is no escaped byte", hint="write %25 for a percent sign"
            ) from error
        data += os.fsencode(part[2:])
    if 0 in data:
        raise UsageError("a store's address contains a NUL byte")
    return os.fsdecode(bytes(data))
