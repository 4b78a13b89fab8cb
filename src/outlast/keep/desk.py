"""The shim's dealings with its owners: who owns, and what each message does.

Standard library only, light parts only.
"""

from __future__ import annotations

import errno
import time

from . import frames, layout, proc
from .agent import Program
from .body import IDLE, RUNNING, Body
from .door import Claim, Message, Peer, claim_of
from .fields import FieldsDamaged, pack
from .inputs import ACCEPTED, MORE_WANTED
from .points import point
from .spool import Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .shim import Place

_TIP_WINDOW, _TIPS_IN_WINDOW = 0.005, 16
"""A quiet agent is announced at once; a loud one is not announced more often than this."""
_POLLIN, _POLLOUT = 1, 4
_MOST_PEERS = 64
_LONGEST_SLEEP = 24 * 60 * 60 * 1000
"""Milliseconds. A later deadline is slept towards in steps: poll takes no more than an int."""
_LONGEST_GRACE = 100 * 365 * 24 * 60 * 60 * 1000


class Desk:
    """Peers, the owner among them, and the body that they speak about."""

    def __init__(self, place: Place, spool: Spool, said: int) -> None:
        self._place = place
        self._spool = spool
        self._highest = place.claim
        self._tip_next = 0.0
        self._tips_left = _TIPS_IN_WINDOW
        self._tip_window_ends = 0.0
        self._killers: list[tuple[Peer, int]] = []
        self.body = Body(place, spool, said)
        self.owner: Peer | None = None
        self.peers: dict[int, Peer] = {}

    def wanted(self) -> dict[int, int]:
        """Descriptors to poll and for what."""
        wanted = self.body.wanted()
        for fd, peer in self.peers.items():
            wanted[fd] = _POLLIN | (_POLLOUT if peer.sending else 0)
        return wanted

    def timeout(self) -> int | None:
        """Milliseconds until something is due; None: nothing is."""
        deadlines = self.body.deadlines()
        if self._tip_pending():
            deadlines.append(self._tip_next)
        if not deadlines:
            return None
        # Rounded up: a wake-up before the deadline would only be followed by another.
        return max(0, int(min((min(deadlines) - time.monotonic()) * 1000 + 1, _LONGEST_SLEEP)))

    def serve(self, ready: dict[int, int]) -> None:
        """Handle what poll has found."""
        self._tell_written(self.body.serve(ready))
        for fd, events in ready.items():
            peer = self.peers.get(fd)
            if peer is None:
                continue
            if events & _POLLOUT:
                peer.flush()
            if events & ~_POLLOUT:
                for message in peer.receive():
                    if peer.gone and peer.claim is None:
                        break
                    self._handle(peer, message)
        for peer in [peer for peer in self.peers.values() if peer.gone]:
            self._leave(peer)

    def tick(self) -> None:
        """Do what is due."""
        self.body.owned = self.owner is not None
        self._spool.careful = self.owner is None or self.body.inputs.partial
        self.body.tick()
        now = time.monotonic()
        if self._tip_pending() and now >= self._tip_next and self.owner is not None:
            self._announce(self.owner)
            if now >= self._tip_window_ends:
                self._tip_window_ends, self._tips_left = now + _TIP_WINDOW, _TIPS_IN_WINDOW
            self._tips_left -= 1
            self._tip_next = 0.0 if self._tips_left > 0 else self._tip_window_ends

    def _tip_pending(self) -> bool:
        owner = self.owner
        return owner is not None and owner.announced < self._spool.tip and not owner.sending

    def _announce(self, owner: Peer) -> None:
        owner.announced = self._spool.tip
        owner.send(frames.TIP, {}, seq=self._spool.tip)

    def farewell(self) -> None:
        """The end: those who wait for it are told, then all connections close."""
        for peer, request in self._killers:
            peer.send(frames.OK, self.body.exit, request=request)
        if self.owner is not None:
            self._announce(self.owner)
        for peer in self.peers.values():
            peer.close()

    def welcome(self, peer: Peer) -> None:
        """Take in a new peer. Where there are too many, the one that has been here longest and does not own
        the agent makes room: an owner that comes must never find the door shut."""
        if len(self.peers) >= _MOST_PEERS:
            others = [other for other in self.peers.values() if other is not self.owner]
            leaving = next((other for other in others if other.barred), others[0])
            leaving.send(frames.REFUSED, {"code": "busy"})
            self._leave(leaving)
        self.peers[peer.fd] = peer

    # --- ownership

    def _leave(self, peer: Peer) -> None:
        del self.peers[peer.fd]
        self._killers = [(other, request) for other, request in self._killers if other is not peer]
        if peer is self.owner:
            self._release(peer)
        peer.close()

    def _release(self, owner: Peer) -> None:
        self.owner = None
        self.body.disown()
        claim, owner.claim = owner.claim, None
        if claim is not None:
            point("keep.released.before")
            self._spool.note(frames.OWNER_GONE, pack({"epoch": claim.epoch, "holder": claim.holder}))

    def _judge(self, claim: Claim | None) -> str | None:
        """Why the claim may not own this agent; None if it may."""
        floor = self._place.floor
        if claim is None:
            return "malformed"
        if (claim.store_id, claim.lineage) != (floor.store_id, floor.lineage):
            return "foreign"
        if claim.epoch < max(floor.epoch, self._highest.epoch):
            return "below_floor"
        if claim.epoch == self._highest.epoch and claim.holder != self._highest.holder:
            return "other_holder"
        return None

    def _raise_floor(self, claim: Claim) -> int:
        """Make the claim's epoch the floor, durably, before anything relies on it. 0, or the errno of a disk
        that refuses."""
        if claim.epoch > self._place.floor.epoch:
            floor = layout.Floor(claim.store_id, claim.lineage, claim.epoch)
            try:
                point("keep.floor.before")
                layout.write_floor(self._place.folder, floor)
            except OSError as error:
                return error.errno or errno.EIO
            self._place.floor = floor
            point("keep.floor.after")
        self._highest = claim
        return 0

    def _admit(self, peer: Peer, message: Message) -> Claim | None:
        """Judge the claim in the message and raise the floor for it; None after a refusal was sent."""
        claim = claim_of(message)
        refused, number = self._judge(claim), 0
        if refused is None and claim is not None:
            number = self._raise_floor(claim)
            if not number:
                return claim
            refused = "disk"
        self._refuse(peer, message, refused or "malformed", number)
        return None

    def _cut(self, owner: Peer, claim: Claim) -> None:
        owner.send(frames.LOST, {"epoch": claim.epoch, "holder": claim.holder})
        self._release(owner)
        owner.gone = True

    # --- messages

    def _handle(self, peer: Peer, message: Message) -> None:
        kind = message.frame.type
        try:
            if peer.barred:
                self._refuse(peer, message, "not_admitted")
                peer.gone = True
            elif kind == frames.STATUS:
                self._status(peer, message)
            elif kind == frames.ATTACH:
                self._attach(peer, message)
            elif kind == frames.FENCE:
                self._fence(peer, message)
            elif peer is not self.owner:
                self._refuse(peer, message, "fenced")
            else:
                self._owned(kind, peer, message)
        except FieldsDamaged:
            self._refuse(peer, message, "malformed")

    def _owned(self, kind: int, peer: Peer, message: Message) -> None:
        if kind == frames.INPUT:
            self._input(peer, message)
        elif kind == frames.STDIN_CLOSED:
            self._answer_input(peer, message, self.body.inputs.close(message.frame.seq))
        elif kind == frames.START:
            self._start(peer, message)
        elif kind == frames.KILL:
            grace = _seconds(message.fields().integer("grace_ms"))
            self._killers.append((peer, message.request))
            self.body.kill(grace, "owner")
        elif kind == frames.GRACE:
            orphan = message.fields().optional("grace_ms")
            self.body.grace = None if orphan is None else _seconds(orphan)
            peer.send(frames.OK, {}, request=message.request)
        elif kind == frames.ALLOW:
            # No answer: it comes often, and its sender goes on reading.
            self.body.allowed = message.fields().optional("until")
        elif kind == frames.TRIM:
            self._trim(peer, message)
        elif kind == frames.DETACH:
            self._release(peer)
            peer.send(frames.OK, {}, request=message.request)
        else:
            self._refuse(peer, message, "unknown")

    def _refuse(self, peer: Peer, message: Message, code: str, number: int = 0) -> None:
        peer.send(
            frames.REFUSED,
            {
                "code": code,
                "number": number,
                "last_input": self._spool.last_input,
                "floor": self._place.floor.epoch,
            },
            request=message.request,
            seq=message.frame.seq,
        )

    def _attach(self, peer: Peer, message: Message) -> None:
        claim = self._admit(peer, message)
        if claim is None:
            return
        if self.owner is not None and self.owner is not peer:
            self._cut(self.owner, claim)
        self.owner, peer.claim = peer, claim
        self.body.owned = True
        point("keep.attached.before")
        self._spool.note(frames.ATTACHED, pack({"epoch": claim.epoch, "holder": claim.holder}))
        point("keep.attached.after")
        agent = self.body.agent
        peer.announced = self._spool.tip
        peer.send(
            frames.OK,
            {
                "last_input": self._spool.last_input,
                "tip": self._spool.tip,
                "phase": self.body.phase,
                "pid": agent.pid if agent else 0,
                "ticks": agent.ticks if agent else 0,
            },
            request=message.request,
        )

    def _fence(self, peer: Peer, message: Message) -> None:
        claim = self._admit(peer, message)
        if claim is None:
            return
        owner = self.owner
        if owner is not None and owner.claim is not None and owner.claim.epoch < claim.epoch:
            self._cut(owner, claim)
        point("keep.fenced.before")
        self._spool.note(frames.FENCED, pack({"epoch": claim.epoch, "holder": claim.holder}))
        peer.send(
            frames.OK, {"last_input": self._spool.last_input, "tip": self._spool.tip}, request=message.request
        )

    def _start(self, peer: Peer, message: Message) -> None:
        fields = message.fields()
        claim = peer.claim
        floor = layout.read_floor(self._place.folder)
        if self.body.phase != IDLE:
            self._refuse(peer, message, "started")
        elif claim is None or (floor is not None and floor.epoch > claim.epoch):
            self._refuse(peer, message, "below_floor")
        else:
            program = Program(fields.blobs("argv"), fields.blobs("env"), fields.blob("cwd"))
            if not program.argv:
                raise FieldsDamaged("argv")
            said = self.body.start(program, fields.integer("input_limit"), fields.integer("cap"))
            peer.send(frames.OK, said, request=message.request)

    def _input(self, peer: Peer, message: Message) -> None:
        frame = message.frame
        if peer.skipping and not frame.flags & frames.FIRST:
            peer.skipping = frame.more
            return
        peer.skipping = False
        verdict = self.body.inputs.part(frame)
        if verdict == MORE_WANTED:
            return
        peer.skipping = frame.more and verdict != ACCEPTED
        self._answer_input(peer, message, verdict)

    def _answer_input(self, peer: Peer, message: Message, verdict: str) -> None:
        if verdict != ACCEPTED:
            self._refuse(peer, message, verdict)
            return
        peer.send(frames.ACCEPTED, {}, request=message.request, seq=message.frame.seq)
        self._tell_written(self.body.inputs.pump())

    def _tell_written(self, written: list[int]) -> None:
        for seq in written:
            if self.owner is not None:
                self.owner.send(frames.WRITTEN, {}, seq=seq)

    def _trim(self, peer: Peer, message: Message) -> None:
        offset = message.fields().integer("offset")
        waiting = self.body.inputs.oldest_waiting
        self._spool.trim(offset if waiting is None else min(offset, waiting))
        peer.send(frames.OK, {"base": self._spool.base}, request=message.request)

    def _status(self, peer: Peer, message: Message) -> None:
        body, spool, owner = self.body, self._spool, self.owner
        agent = body.agent
        peer.send(
            frames.FACTS,
            {
                "phase": body.phase,
                "pid": agent.pid if agent else 0,
                "ticks": agent.ticks if agent else 0,
                "descendants": max(0, proc.descendants(agent.pid)) if agent and body.phase == RUNNING else 0,
                "epoch": self._highest.epoch,
                "holder": self._highest.holder,
                "owned": int(owner is not None),
                "floor": self._place.floor.epoch,
                "last_input": spool.last_input,
                "written": spool.written_through,
                "base": spool.base,
                "tip": spool.tip,
                "stdout": spool.stdout,
                "stdin_open": int(body.inputs.open),
                "blocked": int(body.blocked),
                "capped": int(body.capped),
                "grace_ms": None if body.grace is None else int(body.grace * 1000),
            },
            request=message.request,
        )


def _seconds(milliseconds: int) -> float:
    """A grace that a clock can count. Raises FieldsDamaged."""
    if not 0 <= milliseconds <= _LONGEST_GRACE:
        raise FieldsDamaged("grace_ms")
    return milliseconds / 1000
