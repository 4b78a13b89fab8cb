"""Starting a guard and its idle shim, detached from this process for good."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path

from outlast import faults
from outlast.keep import frames
from outlast.keep.errors import (
    BelowFloorError,
    FolderLockHeldError,
    ForeignFolderError,
    KeepError,
    StartFailedError,
    TreeNotDeadError,
)
from outlast.keep.fields import Fields, FieldsDamaged, pack
from outlast.keep.folder import AgentFolder, Claim, Generation

# The package is entered under another name, so that `outlast` itself, and all that it imports, is not.
_BOOT = (
    "import sys;p=type(sys)('outlast_keep');p.__path__=[sys.argv[1]];sys.modules['outlast_keep']=p;"
    "from outlast_keep.guard import main;main()"
)
_DEADLINE = 10.0
_ENVIRONMENT = ("LD_LIBRARY_PATH",)
"""What an interpreter outside the system's folders may need to find its own library."""


def _command() -> list[str]:
    base = getattr(sys, "_base_executable", None) or sys.executable
    # Isolated, without site: nothing of the user's or the virtual environment's start-up runs in the shim.
    # -E also ignores PYTHONDONTWRITEBYTECODE: the second start uses cached bytecode in any case.
    return [base, "-I", "-S", "-E", "-X", "utf8", "-c", _BOOT, str(Path(__file__).parent)]


async def start_idle(folder: AgentFolder, claim: Claim) -> Generation:
    """Start a guard and an idle shim; returns when the shim holds the folder's lock.

    The shim ends by itself when it gets no START within 5 s. Both are detached: they outlive this process
    and its process group. Raises FolderLockHeldError (attach to the shim that is there), BelowFloorError,
    ForeignFolderError, TreeNotDeadError (an earlier agent is not proven dead), StartFailedError.
    """
    setup = pack(claim.fields() | {"folder": os.fsencode(folder.path), "faults": faults.requested()})
    faults.point("keep.idle.before")
    try:
        read_end, write_end = os.pipe()
    except OSError as error:
        raise _no_interpreter(error) from error
    try:
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 - a vfork, shorter than handing it to a thread
                _command(),
                stdin=subprocess.PIPE,
                stdout=write_end,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(write_end)
    except OSError as error:
        os.close(read_end)
        raise _no_interpreter(error) from error
    try:
        faults.point("keep.idle.begun")
        data = await _converse(process, setup, read_end)
        faults.point("keep.idle.settled")
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
    return _judge(folder, data)


def _no_interpreter(error: OSError) -> StartFailedError:
    return _not_started(f"the shim's interpreter could not be started: {error.strerror}", error.errno or 0)


def _not_started(message: str, number: int) -> StartFailedError:
    short = number in (errno.EMFILE, errno.ENFILE)
    hint = "raise the limit of open files (ulimit -n)" if short else None
    if number == errno.EFBIG:
        hint = "raise the limit on the size of files (ulimit -f)"
    return StartFailedError(message, hint=hint, number=number)


async def _converse(process: subprocess.Popen[bytes], setup: bytes, read_end: int) -> bytes:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        try:
            if process.stdin is not None:
                with process.stdin:
                    process.stdin.write(setup)
            async with asyncio.timeout(_DEADLINE):
                return await reader.read()
        except (TimeoutError, BrokenPipeError) as error:
            raise StartFailedError("the shim did not come up", hint="is the machine overloaded?") from error
        finally:
            transport.close()


def _judge(folder: AgentFolder, data: bytes) -> Generation:
    try:
        found = frames.decode(data)
        if found is None:
            raise StartFailedError("the shim died as it started", hint=f"see {folder.path}/shim.log")
        report = Fields(found[0].payload)
        code = report.text("code")
        if code == "ok":
            return folder.generation(report.integer("generation"))
        raise _failure(code, report.text("text"), report.integer("number", 0))
    except (frames.FrameDamaged, FieldsDamaged) as error:
        raise StartFailedError("the shim's report is damaged") from error


def _failure(code: str, text: str, number: int) -> KeepError:
    if code == "lock_held":
        return FolderLockHeldError(text, pid=number)
    if code == "below_floor":
        return BelowFloorError(text, floor=number)
    if code == "foreign":
        return ForeignFolderError(text)
    if code.startswith("tree_"):
        alive = code == "tree_alive"
        helps = "" if alive else " (`outlast doctor` says what helps)"
        return TreeNotDeadError(
            f"an earlier agent is not proven dead: {text}{helps}",
            alive=alive,
            evidence=text,
            generation=number,
        )
    return _not_started(f"the shim could not take its place: {text}", number)
