"""Where the store's files are, and whether their filesystem can carry the promise."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outlast.errors import (
    PlatformError,
    StoreAccessError,
    StoreFullError,
    StoreLimitError,
    UsageError,
    in_words,
)
from outlast.files import flush_folder

NETWORK_FILESYSTEMS = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs"),
        *("fuse.cephfs", "fuse.davfs2", "fuse.glusterfs", "fuse.juicefs", "fuse.rclone", "fuse.s3fs"),
        "fuse.sshfs",
    }
)
"""Filesystems whose locks or shared memory do not hold between machines (or at all)."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The database and the folder beside it that holds everything else."""

    database: Path
    folder: Path

    @classmethod
    def of(cls, database: Path) -> Layout:
        """Links are followed first, so that every spelling of one store meets in the same side files."""
        real = Path(os.path.realpath(database))
        name = real.name.removesuffix(".db") or real.name
        return cls(real, real.parent / f"{name}.d")

    @property
    def nodes(self) -> Path:
        return self.folder / "nodes"

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs"

    @property
    def bell(self) -> Path:
        return self.folder / "bell"

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    @property
    def turn(self) -> Path:
        return self.folder / "turn"

    @property
    def witness(self) -> Path:
        return self.folder / "witness"

    def exists(self) -> bool:
        return self.database.exists()


def make_private_folder(path: Path) -> None:
    """`path` and what is missing above it, for this user only. Folders that exist are left as they are."""
    if path.is_dir():
        return
    make_private_folder(path.parent)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{path} is in the way: a folder is needed there") from error
    flush_folder(path.parent)


def refuse_impossible(layout: Layout) -> None:
    """Raises UsageError where no database can ever be: something else than a file has its name, or something
    else than a folder is above it."""
    path = layout.database
    wrong = path.exists() and not path.is_file()
    while not path.exists():
        path = path.parent
        wrong = path.exists() and not path.is_dir()
    if wrong:
        raise UsageError(
            f"no store can be at {layout.database}: {path} is in the way",
            hint="OUTLAST_STORE, or `store` in a configuration file, names the file of a database",
        )


def prepare(layout: Layout) -> None:
    """Make the folders and the empty side files. Raises UsageError, PlatformError, StoreFullError,
    StoreAccessError."""
    refuse_impossible(layout)
    try:
        make_private_folder(layout.database.parent)
        refuse_network_filesystem(layout.database.parent)
        for folder in (layout.folder, layout.nodes, layout.blobs):
            make_private_folder(folder)
            _refuse_foreign(folder, "folder")
        for path in (layout.bell, layout.gate, layout.turn, layout.witness):
            if not os.path.lexists(path):
                os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            _refuse_foreign(path, "file")
    except OSError as error:
        raise unwritable(layout.database, error) from error


def _refuse_foreign(path: Path, kind: Literal["folder", "file"]) -> None:
    """Raises UsageError unless `path` is what we make there. Whoever else can write in the side folder can
    free a living owner's lock, or lead a write to another file of this user."""
    found = path.lstat()
    is_kind = stat.S_ISDIR if kind == "folder" else stat.S_ISREG
    if not is_kind(found.st_mode):
        raise UsageError(
            f"{path} is not a plain {kind}, as the store has it there", hint="move it out of the way"
        )
    if found.st_uid != os.geteuid():
        raise UsageError(
            f"{path} belongs to another user (uid {found.st_uid}, this is {os.geteuid()})",
            hint="run as that user, or name a store of your own with OUTLAST_STATE_DIR or OUTLAST_STORE",
        )
    if found.st_mode & 0o022:
        raise UsageError(f"{path} can be written by other users", hint=f"`chmod go-w {path}`, if it is yours")


def open_side_file(path: Path, *, write: bool = True) -> int:
    """A descriptor of a side file, which is never a link. Raises OSError."""
    return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW)


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Numbers of the system's errors of which StoreFullError tells."""


def unwritable(path: Path, error: OSError, what: str = "store") -> StoreFullError | StoreAccessError:
    """The error for a store, or another thing, whose folder takes no writes."""
    said, advice = in_words(error)
    message = f"the {what} {path} cannot be written: {said}"
    if error.errno == errno.EFBIG:
        return StoreLimitError(message, hint=advice or "its filesystem holds no file that large")
    if error.errno in NO_SPACE:
        space = "free some space, or name a folder that has some with OUTLAST_STATE_DIR or OUTLAST_STORE"
        return StoreFullError(message, hint=space if error.errno != errno.EROFS else advice)
    return StoreAccessError(message, hint=advice or "`outlast doctor` looks at the store's files")


def refuse_network_filesystem(folder: Path) -> None:
    """Raises PlatformError where file locks and shared memory are not the kernel's own. Reads
    /proc/self/mountinfo; without it (macOS) nothing is known and nothing refused."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = filesystem_of(os.path.realpath(folder), table)
    if kind in NETWORK_FILESYSTEMS:
        raise PlatformError(
            f"{folder} is on a network filesystem ({kind}), whose file locks cannot prove who is alive",
            hint="name a local folder with OUTLAST_STATE_DIR or OUTLAST_STORE",
        )


def filesystem_of(path: str, mountinfo: str) -> str | None:
    """The type of the filesystem that holds the real path `path`, by a text in the form of
    /proc/self/mountinfo: the longest mount point wins, and of equal ones the last, which hides the others."""
    best, kind = -1, None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, kind = len(point), right.split(" ")[0]
    return kind


def _unescape(text: str) -> str:
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(octal, char)
    return text
