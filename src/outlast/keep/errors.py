"""What can go wrong between a runtime and its agents' shims.

KeepError
├── FolderLockHeldError     a living shim (or an owner raising the floor) has the folder: attach instead
├── BelowFloorError         a later owner has been here
├── ForeignFolderError      the folder belongs to another store or lineage
├── TreeNotDeadError        something of the generation before still lives, or may
├── NoRoomError             this process or machine has no descriptor or memory left to reach a shim
├── StartFailedError        no shim could be started, or it answered nonsense
├── LaunchFailedError       the agent's program could not be executed
├── ShimGoneError           there is no shim to speak to, or the connection to it has ended
│   ├── ShimBusyError       it lives and takes no connection now, or had to close this one
│   └── CopiedFolderError   the folder is a copy: its shim serves the original
├── ShimSilentError         it lives and does not answer; what was asked may still be done
│   └── ShimStoppedError    because somebody has stopped it
├── AttachRefusedError      the shim does not take this process for an owner
├── RequestRefusedError     the shim refused a request; `reason` says why
│   └── InputRefusedError   the input is not in the agent and never will be by this request
├── SpoolGapError           the spool begins after the cursor
└── SpoolCorruptError       bytes in the middle of the spool are no frame
"""

from __future__ import annotations

from outlast.errors import OutlastError


class KeepError(OutlastError):
    """Base of what the keep raises."""


class FolderLockHeldError(KeepError):
    """A living shim holds the agent folder; attach to it. `pid` is the holder's, 0 if unknown."""

    exit_code = 4

    def __init__(self, message: str, *, pid: int = 0) -> None:
        super().__init__(message, hint="attach to the shim that is there")
        self.pid = pid


class BelowFloorError(KeepError):
    """A later owner has been here; `floor` is the highest epoch that the folder has seen."""

    exit_code = 4

    def __init__(self, message: str, *, floor: int) -> None:
        super().__init__(message, hint="this owner has been replaced: give up the session")
        self.floor = floor


class ForeignFolderError(KeepError):
    """The agent folder belongs to another store or another lineage of the session."""


class TreeNotDeadError(KeepError):
    """Something of an earlier agent still lives, or cannot be ruled out. `alive` tells which, `evidence`
    why; `generation` is its number."""

    def __init__(self, message: str, *, alive: bool, evidence: str, generation: int) -> None:
        super().__init__(message, hint="wait for its guard, or end what is left with `outlast doctor`")
        self.alive = alive
        self.evidence = evidence
        self.generation = generation


class NoRoomError(KeepError):
    """This process or machine has no descriptor or memory left to reach a shim with; nothing is known of that
    one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="raise the limit of open files (ulimit -n), or let go of some")


class StartFailedError(KeepError):
    """No shim could be started; nothing runs. `number` is the errno of what failed, 0 where none is known."""

    def __init__(self, message: str, *, hint: str | None = None, number: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.number = number


_LAUNCH_HINTS = {
    "fork": "raise the limits of processes and open files (ulimit -u, ulimit -n)",
    "guard": "send it again: the next agent gets a guard of its own",
}


class LaunchFailedError(KeepError):
    """The agent's program could not be executed. `number` is the errno; `stage` is
    prepare, cwd, exec, fork or guard (the guard is dead)."""

    def __init__(self, message: str, *, number: int, stage: str) -> None:
        hint = _LAUNCH_HINTS.get(stage, "check the agent's command and working folder")
        super().__init__(message, hint=hint)
        self.number = number
        self.stage = stage


class ShimGoneError(KeepError):
    """No shim answers, or the connection has ended. The spool and the exit record tell the rest."""


class ShimBusyError(ShimGoneError):
    """The shim lives, but it takes no connection now, or it has closed this one for want of room; what was
    not answered was not done. Try again."""


class CopiedFolderError(ShimGoneError):
    """The generation's folder is a copy of the one that it ran in; what lives there is not this one's."""


class ShimSilentError(KeepError):
    """The shim lives and has not answered for a long time. What was asked of it may still be done."""

    exit_code = 4


class ShimStoppedError(ShimSilentError):
    """Somebody has stopped the shim `pid` (SIGSTOP, a debugger). It does what was asked once it goes on."""

    def __init__(self, message: str, *, hint: str, pid: int) -> None:
        super().__init__(message, hint=hint)
        self.pid = pid


class AttachRefusedError(KeepError):
    """The shim does not take this process for an owner. `reason` is malformed, foreign, other_holder or
    disk (`number` is the errno), or not_admitted: another user, or a process out of the agent's own tree."""

    exit_code = 4

    def __init__(self, message: str, *, reason: str, number: int = 0) -> None:
        hint = "look at the disk and try again; the agent goes on under its shim" if number else None
        super().__init__(message, hint=hint)
        self.reason = reason
        self.number = number


class RequestRefusedError(KeepError):
    """The shim refused the request. `reason` is fenced, started, below_floor, malformed or unknown."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class InputRefusedError(RequestRefusedError):
    """The input was not taken and left no trace. `reason` is seq, closed, busy, disk, fenced, bad_line or
    too_large; `last_seq` is the number of the last input that the shim has."""

    def __init__(self, message: str, *, reason: str, last_seq: int) -> None:
        super().__init__(message, reason=reason)
        self.last_seq = last_seq


class SpoolGapError(KeepError):
    """The first kept frame lies past the cursor: what was between is gone, its outcome unknown."""

    exit_code = 5

    def __init__(self, message: str, *, cursor: int, first: int) -> None:
        super().__init__(message)
        self.cursor = cursor
        self.first = first


class SpoolCorruptError(KeepError):
    """Bytes at `offset` in the middle of the spool are no frame; everything before them is good."""

    exit_code = 5

    def __init__(self, message: str, *, offset: int, reason: str) -> None:
        super().__init__(message)
        self.offset = offset
        self.reason = reason
