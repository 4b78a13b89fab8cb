"""The shim's socket: who may come in, and bytes to messages and back.

Standard library only, light parts only.
"""

from __future__ import annotations

import _socket
import os
import struct

from . import frames, layout, proc
from .fields import Fields, FieldsDamaged, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .fields import Value

_MESSAGE_LIMIT = 8 << 20
_OUT_LIMIT = 1 << 20
_READ = 256 << 10
_SO_PEERCRED = getattr(_socket, "SO_PEERCRED", 17)


class Claim:
    """In whose name an owner comes."""

    __slots__ = ("epoch", "holder", "lineage", "store_id")

    def __init__(self, fields: Fields) -> None:
        self.store_id = fields.text("store_id")
        self.lineage = fields.text("lineage")
        self.epoch = fields.integer("epoch")
        self.holder = fields.text("holder")


class Message:
    """One whole message of a peer; an input's parts are messages of their own."""

    __slots__ = ("body", "frame", "request")

    def __init__(self, frame: frames.Frame, body: bytes) -> None:
        self.frame = frame
        self.body = body
        self.request = frame.offset

    def fields(self) -> Fields:
        return Fields(self.body)


class Peer:
    """One accepted connection."""

    def __init__(self, sock: _socket.socket, *, barred: bool) -> None:
        self.barred = barred
        """It may not come in: it is told so in answer to whatever it asks."""
        self._sock = sock
        self.fd = sock.fileno()
        self._decoder = frames.Decoder()
        self._body: list[bytes] = []
        self._out = bytearray()
        self.claim: Claim | None = None
        """Set while this peer is the owner."""
        self.skipping = False
        """The input that this peer is sending was refused: what is left of it is ignored."""
        self.announced = 0
        self.gone = False

    @property
    def sending(self) -> bool:
        return bool(self._out)

    def receive(self) -> list[Message]:
        """What has arrived; sets `gone` at the end of the connection or on nonsense."""
        try:
            data = self._sock.recv(_READ)
            arrived = self._decoder.feed(data) if data else []
        except BlockingIOError:
            return []
        except (OSError, frames.FrameDamaged):
            data, arrived = b"", []
        if not data:
            self.gone = True
        messages = []
        for frame in arrived:
            if frame.type == frames.INPUT:
                messages.append(Message(frame, frame.payload))
                continue
            self._body.append(frame.payload)
            if sum(map(len, self._body)) > _MESSAGE_LIMIT:
                self.gone = True
                break
            if not frame.more:
                messages.append(Message(frame, b"".join(self._body)))
                self._body = []
        return messages

    def send(self, kind: int, values: Mapping[str, Value], *, request: int = 0, seq: int = 0) -> None:
        """Queue a message and send what the socket takes. A peer that does not read is cut off."""
        if self.gone:
            return
        self._out += frames.encode(kind, pack(values), offset=request, seq=seq)
        self.flush()
        if len(self._out) > _OUT_LIMIT:
            self.gone = True

    def flush(self) -> None:
        """Send what is queued, as far as the socket takes it."""
        try:
            while self._out:
                n = self._sock.send(self._out)
                del self._out[:n]
        except BlockingIOError:
            return
        except OSError:
            self.gone = True

    def close(self) -> None:
        self._sock.close()


class Door:
    """The listening socket."""

    def __init__(self, generation_fd: int, kin: tuple[int, ...], marker: str) -> None:
        """Bind `sock` in the generation's folder. `kin`: this shim and its guard. Raises OSError."""
        self._kin = kin
        self._marker = marker
        self._sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._sock.setblocking(False)
        before = os.umask(0o077)
        try:
            # Relative, because a socket's path has at most 107 bytes.
            os.fchdir(generation_fd)
            self._sock.bind(layout.SOCK)
        finally:
            os.chdir("/")
            os.umask(before)
        self._sock.listen(16)
        self.fd = self._sock.fileno()

    def accept(self) -> Peer | None:
        """The next peer, if there is one."""
        try:
            fd, _ = self._sock._accept()  # type: ignore[attr-defined] # noqa: SLF001 - the C socket has no other
        except OSError:
            return None
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fileno=fd)
        sock.setblocking(False)
        return Peer(sock, barred=not self._admits(sock))

    def _admits(self, sock: _socket.socket) -> bool:
        """Same user, and not out of the agent's own process tree: an agent's tool call must not be able to
        approve what it itself has asked for."""
        if not layout.LINUX:
            return True
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(_socket.SOL_SOCKET, _SO_PEERCRED, 12))
        if uid != os.geteuid():
            return False
        # The environment catches what left the tree through a service that starts processes for others.
        return proc.descends(pid, self._kin) is False and proc.carries(pid, self._marker) is not True

    def close(self) -> None:
        """Nobody comes in any more."""
        self._sock.close()


def claim_of(message: Message) -> Claim | None:
    """The claim that the message carries; None if it is malformed."""
    try:
        return Claim(message.fields())
    except FieldsDamaged:
        return None
