"""The owner's side of a living shim: attach, start, feed, follow, end."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from outlast.faults import point
from outlast.keep import frames, layout, standstill, tree
from outlast.keep.errors import (
    AttachRefusedError,
    BelowFloorError,
    CopiedFolderError,
    ForeignFolderError,
    InputRefusedError,
    KeepError,
    LaunchFailedError,
    NoRoomError,
    RequestRefusedError,
    ShimBusyError,
    ShimGoneError,
)
from outlast.keep.exchange import Accepted, Attached, LaunchRequest, ShimStatus, Started
from outlast.keep.fields import Fields, FieldsDamaged, Value, pack
from outlast.keep.folder import Claim, Generation
from outlast.keep.link import Link, Lost
from outlast.keep.records import ExitRecord

T = TypeVar("T")

NOT_ADMITTED = "this process is another user's, or one of the agent's own tree"
_REASONS = {
    "seq": "its number is not the one after the last",
    "closed": "the agent's stdin is not open",
    "busy": "the agent has not read what it was given before",
    "disk": "the disk refuses it",
    "fenced": "a later owner has attached",
    "bad_line": "it is not exactly one line of valid UTF-8 in valid escapes",
    "too_large": "it is larger than the agent takes",
    "started": "an agent was started already",
    "below_floor": "a later owner has been here",
    "not_admitted": NOT_ADMITTED,
}
_CONNECT_PATIENCE, _CONNECT_PAUSE = 2.0, 0.01
_LONGEST_GRACE = 100 * 365 * 24 * 60 * 60.0


def _milliseconds(grace: float) -> int:
    if not grace >= 0:
        raise ValueError(f"a grace is a number of seconds from 0 on, not {grace}")
    return int(min(grace, _LONGEST_GRACE) * 1000)


class ShimClient:
    """One connection to a shim. Not for several tasks to attach by, but any of them may call it.

    Every request raises ShimGoneError when the connection ends before its answer: whether it was done is
    then unknown and must be looked up (attach again, or the spool). It raises ShimStoppedError when the shim
    is stopped and ShimSilentError when it does not answer for other reasons: what was asked is then done once
    the shim goes on, before whatever is asked later.
    """

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.lost: asyncio.Event = asyncio.Event()
        """Set once this connection owns nothing any more; `lost_by` says why."""
        self.lost_by: Lost | None = None
        self.tip: int = 0
        """End of the last whole frame that the shim has announced."""
        self.accepted: int = 0
        """Seq of the newest input that the shim has accepted over this connection."""
        self.unheard: set[asyncio.Future[Any]] = set()
        """Requests that have no answer yet."""
        self._link = Link(self._announced, self._lose)
        self._tip_moved = asyncio.Event()

    @classmethod
    async def connect(cls, generation: Generation) -> ShimClient:
        """Connect to the generation's shim. Raises ShimGoneError if there is none, ShimBusyError if it
        takes no connection for a while, ShimStoppedError if it is stopped then, CopiedFolderError if the
        folder is a copy, NoRoomError if this process has no descriptor left."""
        client = cls(generation)
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise _not_reached(generation, error) from error
        try:
            sock.setblocking(False)
            await _reach(generation, sock)
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: client._link, sock=sock)
        except OSError as error:
            sock.close()
            raise _not_reached(generation, error) from error
        except BaseException:
            sock.close()
            raise
        return client

    async def attach(self, claim: Claim) -> Attached:
        """Become the agent's owner; an owner of a lower epoch (or this holder's earlier connection) is cut
        off. Raises BelowFloorError, ForeignFolderError, AttachRefusedError, ShimGoneError."""
        point("keep.attach.before")
        said = await self._claiming(frames.ATTACH, claim)
        point("keep.attach.after")
        return Attached(
            last_input_seq=said.integer("last_input"),
            tip=said.integer("tip"),
            phase=said.text("phase"),
            pid=said.integer("pid"),
            start_ticks=said.integer("ticks"),
        )

    async def fence(self, claim: Claim) -> None:
        """Raise the floor to the claim's epoch and cut off owners of lower ones, without owning.

        Raises BelowFloorError, ForeignFolderError, AttachRefusedError, ShimGoneError.
        """
        point("keep.fence.before")
        await self._claiming(frames.FENCE, claim)
        point("keep.fence.after")

    async def _claiming(self, kind: int, claim: Claim) -> Fields:
        answer = await self._heard(self._link.request(kind, pack(claim.fields())))
        said = Fields(answer.payload)
        if answer.type == frames.OK:
            self._announced(said.integer("tip"))
            return said
        code = said.text("code")
        if code == "below_floor":
            raise BelowFloorError("a later owner has been here", floor=said.integer("floor"))
        if code == "foreign":
            raise ForeignFolderError("the agent belongs to another store or lineage")
        number = said.integer("number", 0)
        why = f": {os.strerror(number)}" if number else ""
        raise AttachRefusedError(
            f"the shim refuses this owner: {_REASONS.get(code, code)}{why}", reason=code, number=number
        )

    async def start(self, request: LaunchRequest) -> Started:
        """Execute the agent; once per generation, by its owner.

        Raises LaunchFailedError (the generation has ended), RequestRefusedError, ShimGoneError.
        """
        fields: dict[str, Value] = {
            "argv": [os.fsencode(item) for item in request.argv],
            "env": [os.fsencode(f"{name}={value}") for name, value in request.env.items()],
            "cwd": os.fsencode(request.cwd),
            "input_limit": request.input_limit,
            "cap": request.spool_cap,
        }
        point("keep.start.send")
        said = await self._ask(frames.START, pack(fields))
        point("keep.start.answered")
        if said.optional("errno") is not None:
            number, stage = said.integer("errno"), said.text("stage")
            raise LaunchFailedError(
                f"the agent could not be started ({stage}): {os.strerror(number)}", number=number, stage=stage
            )
        return Started(pid=said.integer("pid"), start_ticks=said.integer("ticks"))

    async def input(self, seq: int, line: bytes) -> Accepted:
        """Give the agent one line (with its newline) as input `seq`, which must be the one after the last
        input *that the caller has folded*. Returns once it is durable in the spool.

        Raises InputRefusedError (nothing of it is there), ShimGoneError (unknown: see `landing`).
        """
        point("keep.input.send")
        return await self._heard(self._feed(seq, frames.INPUT, line))

    async def close_stdin(self, seq: int) -> Accepted:
        """Close the agent's stdin behind all inputs; it takes an input's number. Errors as for `input`."""
        point("keep.close_stdin.send")
        return await self._heard(self._feed(seq, frames.STDIN_CLOSED, b""))

    async def _feed(self, seq: int, kind: int, line: bytes) -> Accepted:
        written = self._link.expect_written(seq)
        try:
            answer = await self._link.request(kind, line, seq=seq)
        except KeepError:
            self._link.forget_written(seq, written)
            raise
        point("keep.input.answered")
        if answer.type == frames.ACCEPTED:
            self.accepted = max(self.accepted, seq)
            return Accepted(seq, written)
        self._link.forget_written(seq, written)
        said = Fields(answer.payload)
        reason = said.text("code")
        raise InputRefusedError(
            f"input {seq} was refused: {_REASONS.get(reason, reason)}",
            reason=reason,
            last_seq=said.integer("last_input"),
        )

    async def kill(self, grace: float = 0.0) -> ExitRecord:
        """End the agent and its whole tree: SIGTERM, `grace` seconds, SIGKILL. Returns once nothing of it is
        left; the shim has then ended too. A shim or guard that is stopped is continued: nobody else would end
        the agent. Raises ShimSilentError when the tree has not ended long after that."""
        point("keep.kill.send")
        asked = self._asked(self._request(frames.KILL, pack({"grace_ms": _milliseconds(grace)})))
        standstill.wake(self.generation)
        patience = min(grace, _LONGEST_GRACE) + standstill.END_PATIENCE
        said = await standstill.heard(asked, self.generation, patience, standstill.wake)
        point("keep.kill.answered")
        return ExitRecord.of(said, by="shim")

    async def set_grace(self, seconds: float | None) -> None:
        """How long the agent may go on unowned and silent before it is ended; None: for ever. More than a
        hundred years are a hundred."""
        grace = None if seconds is None else _milliseconds(seconds)
        point("keep.grace.send")
        await self._ask(frames.GRACE, pack({"grace_ms": grace}))

    async def trim(self, offset: int) -> int:
        """Let go of whole segments below the spool offset; returns the first kept offset."""
        point("keep.trim.send")
        said = await self._ask(frames.TRIM, pack({"offset": offset}))
        return said.integer("base")

    def allow(self, until: int | None) -> bool:
        """Let the spool grow up to that offset and no further: output beyond waits in the agent's pipe until
        more is allowed, or until this owner is gone. None: no such bound. False if it could not be told now;
        a shim of an older version does not know it and goes on without."""
        return self._link.tell(frames.ALLOW, pack({"until": until}))

    async def detach(self) -> None:
        """Give up ownership; the agent goes on, the orphan grace begins. The connection stays open."""
        point("keep.detach.send")
        await self._ask(frames.DETACH, b"")
        point("keep.detach.answered")
        self._lose(Lost("detached"))

    async def status(self) -> ShimStatus:
        """What the shim says of itself; no ownership needed."""
        said = await self._ask(frames.STATUS, b"")
        grace = said.optional("grace_ms")
        return ShimStatus(
            phase=said.text("phase"),
            pid=said.integer("pid"),
            start_ticks=said.integer("ticks"),
            descendants=said.integer("descendants"),
            epoch=said.integer("epoch"),
            holder=said.text("holder"),
            owned=bool(said.integer("owned")),
            floor=said.integer("floor"),
            last_input_seq=said.integer("last_input"),
            written_through=said.integer("written"),
            base=said.integer("base"),
            tip=said.integer("tip"),
            stdout=said.integer("stdout"),
            stdin_open=bool(said.integer("stdin_open")),
            blocked=bool(said.integer("blocked")),
            capped=bool(said.integer("capped")),
            grace=None if grace is None else grace / 1000,
        )

    async def _ask(self, kind: int, payload: bytes) -> Fields:
        return await self._heard(self._request(kind, payload))

    async def _heard(self, request: Coroutine[Any, Any, T]) -> T:
        asked = self._asked(request)
        return await standstill.heard(asked, self.generation, standstill.SILENCE, standstill.name_stopped)

    def _asked(self, request: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """The request as a task of its own: whoever stops waiting must not leave half a message behind."""
        asked = asyncio.ensure_future(request)
        self.unheard.add(asked)
        asked.add_done_callback(self._answered)
        return asked

    def _answered(self, asked: asyncio.Future[Any]) -> None:
        self.unheard.discard(asked)
        if not asked.cancelled():
            asked.exception()  # Where nobody waits for it any more it is no reason for a warning.

    async def _request(self, kind: int, payload: bytes) -> Fields:
        answer = await self._link.request(kind, payload)
        said = Fields(answer.payload)
        if answer.type == frames.REFUSED:
            reason = said.text("code")
            raise RequestRefusedError(
                f"the shim refused the request: {_REASONS.get(reason, reason)}", reason=reason
            )
        return said

    async def wait_tip(self, offset: int) -> int:
        """Wait until the spool has frames beyond `offset`, or nothing more will be announced here (`lost` is
        set). Returns the tip."""
        while self.tip <= offset and not self.lost.is_set():
            self._tip_moved.clear()
            await self._tip_moved.wait()
        return self.tip

    async def close(self) -> None:
        """End the connection; an agent that we own goes on unowned."""
        await self._link.close()

    def _announced(self, tip: int) -> None:
        self.tip = max(self.tip, tip)
        self._tip_moved.set()

    def _lose(self, why: Lost) -> None:
        if self.lost_by is None:
            self.lost_by = why
            self.lost.set()
            self._tip_moved.set()


def _not_reached(generation: Generation, error: OSError) -> KeepError:
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
        return NoRoomError(f"the shim in {generation.path} could not be looked for: {error.strerror}")
    return ShimGoneError(f"no shim answers in {generation.path}")


async def _reach(generation: Generation, sock: socket.socket) -> None:
    """Connect. Not by the event loop: it takes a full queue of callers for a connection that is under way."""
    deadline = time.monotonic() + _CONNECT_PATIENCE
    while True:
        with generation.opened() as fd:
            _refuse_copy(generation, fd)
            # A socket's path has at most 107 bytes; through the descriptor it is always short.
            path = f"/proc/self/fd/{fd}/sock" if layout.LINUX else str(generation.path / "sock")
            try:
                sock.connect(path)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    standstill.name_stopped(generation)
                    raise ShimBusyError(f"the shim in {generation.path} takes no connection") from None
            else:
                return
        await asyncio.sleep(_CONNECT_PAUSE)


def _refuse_copy(generation: Generation, fd: int) -> None:
    """A copy may have links to the original's very socket and lock. Raises CopiedFolderError."""
    try:
        identity = layout.read_placed(layout.ID, dir_fd=fd)
        copied = identity is not None and tree.is_copy(identity, fd)
    except FieldsDamaged:
        return
    if copied:
        raise CopiedFolderError(f"{generation.path} is a copy of the folder that its agent ran in")
