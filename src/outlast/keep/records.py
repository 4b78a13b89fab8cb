"""How an agent's life ended, as its shim or its guard wrote it down."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

from outlast.keep import layout
from outlast.keep.fields import Fields, FieldsDamaged


@dataclass(frozen=True)
class ExitRecord:
    """The end of a generation.

    `verified`: the recorder is subreaper of the whole tree and had no child left (ECHILD). `exit_status` or
    `signal` is the agent's own end, both None if it never ran or (by the guard) was not seen to end.
    `killed` says who ended it: owner, orphaned, terminated, idle (no START came), file_limit (its
    spool may not grow: RLIMIT_FSIZE), empty for nobody.
    `oom`: a SIGKILL from nobody here, to the agent or to what it waited for, while the kernel killed for want
    of memory in its cgroup. `complete` is False while output of the dead agent still waits for a full disk;
    that output is lost where the guard had to end it.
    `read_input` is the newest input of which the agent, or whoever had its stdin, read a byte (0: of none):
    what came after it was read by nobody, and never will be. None where that is not known.
    Only the shim knows `stdout_end`, the inputs and the launch error. `boottime` is CLOCK_BOOTTIME, `wall`
    the wall clock, both in nanoseconds.
    """

    by: Literal["shim", "guard"]
    verified: bool
    complete: bool
    exit_status: int | None
    signal: int | None
    killed: str
    oom: bool
    max_rss_kib: int
    launch_errno: int | None
    launch_stage: str
    stdout_end: int | None
    last_input: int | None
    last_digest: bytes
    written_through: int | None
    read_input: int | None
    wall: int
    boottime: int

    @classmethod
    def of(cls, said: Fields, *, by: Literal["shim", "guard"]) -> ExitRecord:
        """From a record or a frame. Raises FieldsDamaged."""
        status = said.optional("status")
        code = None if status is None else os.waitstatus_to_exitcode(status)
        return cls(
            by=by,
            verified=bool(said.integer("verified")),
            complete=bool(said.integer("complete", 1)),
            exit_status=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            killed=said.text("killed", ""),
            oom=bool(said.integer("oom", 0)),
            max_rss_kib=said.integer("max_rss", 0),
            launch_errno=said.optional("launch_errno"),
            launch_stage=said.text("launch_stage", ""),
            stdout_end=said.optional("stdout_end"),
            last_input=said.optional("last_input"),
            last_digest=said.blob("last_digest", b""),
            written_through=said.optional("written"),
            read_input=said.optional("read_input"),
            wall=said.integer("wall"),
            boottime=said.integer("boottime"),
        )

    @classmethod
    def read(cls, generation_fd: int) -> ExitRecord | None:
        """The shim's record where it is complete, else what shim and guard know together, else None. Raises
        FieldsDamaged where one of them is damaged and no other tells the end."""
        damage: FieldsDamaged | None = None
        found: dict[str, ExitRecord] = {}
        for by, name in (("shim", layout.EXIT), ("guard", layout.GUARD)):
            try:
                said = layout.read_record(name, dir_fd=generation_fd)
                if said is not None:
                    found[by] = cls.of(said, by="shim" if by == "shim" else "guard")
            except FieldsDamaged as error:
                damage = damage or error
        shim, guard = found.get("shim"), found.get("guard")
        if shim is not None and (shim.complete or guard is None):
            return shim
        if guard is not None:
            # A shim that waited for the disk has died of something else: nobody stores the rest any more.
            return guard if shim is None else replace(shim, by="guard", complete=True)
        if damage is not None:
            raise damage
        return None
