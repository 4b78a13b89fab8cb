"""A look at an agent folder that changes nothing, and what it says about an input."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from outlast.keep import frames, layout, proc, tree
from outlast.keep.fields import Fields, FieldsDamaged
from outlast.keep.folder import AgentFolder, Generation, lock_holder
from outlast.keep.records import ExitRecord
from outlast.keep.tail import is_torn, written_in_this_boot

__all__ = [
    "ExitRecord",
    "FolderFacts",
    "GenerationFacts",
    "InputSeen",
    "Landing",
    "landing",
    "never_read",
    "probe",
]


@dataclass(frozen=True)
class FloorFacts:
    """The highest epoch that the folder has seen, and whose folder it is."""

    store_id: str
    lineage: str
    epoch: int


@dataclass(frozen=True)
class InputSeen:
    """A whole input in the spool; `digest` is the SHA-256 of its bytes (b"" for a close of stdin)."""

    seq: int
    digest: bytes


@dataclass(frozen=True)
class ProcessFacts:
    """A process of ours: its pid counts only together with its start ticks, boot and pid namespace."""

    role: str
    pid: int
    start_ticks: int
    pid_ns: str
    boot: str
    alive: bool
    stopped: bool = False
    """It lives, and somebody has stopped it."""


@dataclass(frozen=True)
class GenerationFacts:
    """One agent life, as it lies there. `fault` names damage in its files; the rest is what was readable.

    `inputs` are those in the kept spool; `last_input` and `written_through` also count what was trimmed.
    `tip` is the end of its last whole frame. `last_digest` is None where only a part of that input is kept.
    `copied`: this folder is a copy of the one that it ran in, and may tell less than that one.
    """

    generation: Generation
    marker: str
    shim: ProcessFacts | None
    guard: ProcessFacts | None
    agent_pid: int
    exit: ExitRecord | None
    last_input: int
    last_digest: bytes | None
    written_through: int
    inputs: tuple[InputSeen, ...]
    base: int
    tip: int
    fault: str
    copied: bool = False

    @property
    def shim_alive(self) -> bool:
        """Its shim lives, and serves this folder."""
        return self.shim is not None and self.shim.alive and not self.copied


@dataclass(frozen=True)
class FolderFacts:
    """An agent folder. `lock_holder` is the pid that holds the lock (0: unknown), None if it is free."""

    folder: AgentFolder
    floor: FloorFacts | None
    lock_holder: int | None
    latest: GenerationFacts | None
    fault: str = ""

    @property
    def shim_alive(self) -> bool:
        """Whether a shim can be attached to."""
        return self.latest is not None and self.latest.shim_alive and self.latest.exit is None


def probe(folder: AgentFolder) -> FolderFacts:
    """Look at the folder and its newest generation. Reads the whole kept spool, in constant memory but for
    the list of its inputs. Raises OSError other than a missing folder. Never inside `folder.locked()`."""
    try:
        with folder.opened() as fd:
            fault, floor = "", None
            try:
                found = layout.read_floor(fd)
                floor = None if found is None else FloorFacts(found.store_id, found.lineage, found.epoch)
            except FieldsDamaged as damage:
                fault = f"the floor is damaged: {damage}"
            holder = lock_holder(fd)
    except FileNotFoundError:
        return FolderFacts(folder, None, None, None)
    latest = folder.latest()
    return FolderFacts(folder, floor, holder, None if latest is None else look(latest), fault)


def look_at_processes(generation: Generation) -> tuple[ProcessFacts | None, ProcessFacts | None]:
    """Shim and guard of a generation; None where none is on record, and in a copy of its folder. Raises
    OSError."""
    with generation.opened() as fd:
        try:
            identity = layout.read_placed(layout.ID, dir_fd=fd)
            if identity is None or tree.is_copy(identity, fd):
                return None, None
            return _process("shim", identity), _process("guard", identity)
        except FieldsDamaged:
            return None, None


def look(generation: Generation) -> GenerationFacts:
    """Look at one generation. Raises OSError."""
    fault, identity, record, copied = "", None, None, False
    with generation.opened() as fd:
        given = _given(fd)  # before the spool is read: it grows first
        try:
            identity = layout.read_placed(layout.ID, dir_fd=fd)
            copied = identity is not None and tree.is_copy(identity, fd)
            record = ExitRecord.read(fd)
            for name in (layout.EXIT, layout.GUARD):
                layout.read_record(name, dir_fd=fd)
        except FieldsDamaged as damage:
            fault = f"a record is damaged: {damage}"
    scan = _Scan()
    scan.run(generation)
    return GenerationFacts(
        generation=generation,
        marker=identity.text("marker") if identity else "",
        shim=_process("shim", identity) if identity else None,
        guard=_process("guard", identity) if identity else None,
        agent_pid=scan.agent_pid,
        exit=record,
        last_input=scan.last_input,
        last_digest=scan.last_digest,
        written_through=scan.written_through,
        inputs=tuple(scan.inputs),
        base=scan.base,
        tip=scan.tip,
        fault=fault or scan.fault or _shortened(scan, given, record),
        copied=copied,
    )


def _given(generation_fd: int) -> int:
    """How many inputs the spool holds or has held, by its witness; 0 where that tells nothing."""
    try:
        said = layout.read_record(layout.GIVEN, dir_fd=generation_fd)
        return 0 if said is None else said.integer("last_input")
    except FieldsDamaged:
        return 0


def _shortened(scan: _Scan, given: int, record: ExitRecord | None) -> str:
    """That the spool holds less than was in it."""
    ended = 0 if record is None else record.last_input or 0
    known = max(given, ended)
    if scan.last_input >= known:
        return ""
    return f"the spool has lost its end: it holds {scan.last_input} of {known} inputs"


def _process(role: str, identity: Fields) -> ProcessFacts:
    pid, ticks = identity.integer(f"{role}_pid"), identity.integer(f"{role}_ticks")
    boot, pid_ns = identity.text("boot"), identity.text("pid_ns")
    here = boot == proc.boot_id() and pid_ns == proc.pid_namespace()
    alive = here and proc.is_alive(pid, ticks)
    return ProcessFacts(role, pid, ticks, pid_ns, boot, alive, alive and proc.is_stopped(pid))


class _Scan:
    """Walks a spool, every frame held against its checksum: of a header alone nothing can be believed."""

    def __init__(self) -> None:
        self.base = 0
        self.tip = 0
        self.agent_pid = 0
        self.last_input = 0
        self.last_digest: bytes | None = b""
        self.written_through = 0
        self.inputs: list[InputSeen] = []
        self.fault = ""
        self._digest: hashlib._Hash | None = None
        """Of the input whose last part has not come; None also while its first part is not kept."""

    def run(self, generation: Generation) -> None:
        path = os.fsencode(generation.path)
        bases = layout.segments(path)
        self.base = self.tip = bases[0] if bases else 0
        for base in bases:
            if base != self.tip:
                self.fault = f"the spool has a hole at {self.tip}"
                return
            try:
                with (generation.path / os.fsdecode(layout.segment_name(base))).open("rb") as file:
                    data = file.read()
            except FileNotFoundError:
                # Trimmed under our eyes: its frames are folded already.
                self.tip = next((later for later in bases if later > base), base)
                continue
            if not self._walk(data, base):
                if base != bases[-1]:
                    self.fault = self.fault or f"the spool has a hole at {self.tip}"
                return

    def _walk(self, data: bytes, base: int) -> bool:
        position, reason = 0, "its length is damaged"
        try:
            while position < len(data):
                found = frames.decode(data, position)
                if found is None:
                    break
                self._take(found[0])
                position = found[1]
                self.tip = base + position
            else:
                return True
        except frames.FrameDamaged as damage:
            reason = damage.reason
        except FieldsDamaged as damage:
            self.fault = f"the frame at {base + position} of the spool is malformed: {damage}"
            return False
        if not is_torn(data[position:], this_boot=written_in_this_boot(data)):
            self.fault = f"the spool is damaged at {base + position}: {reason}"
        return False

    def _take(self, frame: frames.Frame) -> None:
        if frame.type == frames.INPUT:
            self._take_input(frame)
        elif frame.type == frames.STDIN_CLOSED and frame.seq:
            self._seen(frame.seq, b"")
        elif frame.type == frames.WRITTEN:
            self.written_through = frame.seq
        elif frame.type == frames.STARTED:
            self.agent_pid = Fields(frame.payload).integer("pid")
        elif frame.type == frames.HEAD:
            said = Fields(frame.payload)
            self.last_input = said.integer("last_input")
            self.last_digest = said.blob("last_digest")
            self.written_through = said.integer("written")

    def _take_input(self, frame: frames.Frame) -> None:
        if frame.flags & frames.FIRST:
            self._digest = hashlib.sha256()
        if self._digest is not None:
            self._digest.update(frame.payload)
        if not frame.more:
            digest, self._digest = self._digest, None
            self._seen(frame.seq, None if digest is None else digest.digest())

    def _seen(self, seq: int, digest: bytes | None) -> None:
        self.last_input, self.last_digest = seq, digest
        if digest is not None:
            self.inputs.append(InputSeen(seq, digest))


class Landing(Enum):
    """What the spool proves about a reserved input."""

    ACCEPTED = "accepted"
    """The living shim has it: never send it again."""
    SEND_NOW = "send_now"
    """Never written, and the agent lives: send it now, under the same key."""
    NEVER_WRITTEN = "never_written"
    """Never written, and the agent is dead: it goes back to the queue."""
    PERHAPS_WRITTEN = "perhaps_written"
    """The dead shim had it, perhaps half of it was in the pipe: unknown, landing evidence decides."""
    WRITTEN = "written"
    """The dead agent's pipe had it whole: landed or not by evidence, never sent again without it."""
    NEVER_READ = "never_read"
    """It was accepted, and perhaps written, but the agent had not read a byte of it when it died, and nobody
    else did: it goes back to the queue."""
    OTHER_WRITER = "other_writer"
    """Another input has this number, or numbers are missing: stop."""


class Ended(Protocol):
    """How an agent ended, as far as it tells of its inputs: an `ExitRecord`, or an adapter's word for it."""

    @property
    def last_input(self) -> int | None: ...
    @property
    def read_input(self) -> int | None: ...


def never_read(ended: Ended, seq: int) -> Literal[Landing.NEVER_WRITTEN, Landing.NEVER_READ] | None:
    """What the end of an agent proves of input `seq`: that it came too late to be written, or that nobody
    read a byte of it; None where it proves neither. Pure; the living owner and a restore judge by it."""
    if ended.last_input is not None and seq > ended.last_input:
        return Landing.NEVER_WRITTEN
    if ended.read_input is not None and seq > ended.read_input:
        return Landing.NEVER_READ
    return None


def landing(facts: GenerationFacts, seq: int, digest: bytes) -> Landing:
    """What was found for the reserved input `seq` whose bytes have this SHA-256 digest. Pure.

    A spool with a `fault` proves nothing about what lies behind it: inputs that are not seen there are
    PERHAPS_WRITTEN. So are inputs of a spool that lost its end with the machine: a synced input is never
    lost, so one that is not there was never accepted.
    """
    known = {seen.seq: seen.digest for seen in facts.inputs}
    if facts.last_digest is not None:
        known[facts.last_input] = facts.last_digest
    if seq in known and known[seq] != digest:
        return Landing.OTHER_WRITER
    living = facts.shim_alive and facts.exit is None
    if seq <= facts.last_input:
        if living:
            return Landing.ACCEPTED
        proven = None if facts.exit is None or facts.fault else never_read(facts.exit, seq)
        if proven is not None:
            return proven
        return Landing.WRITTEN if seq <= facts.written_through else Landing.PERHAPS_WRITTEN
    if living:
        return Landing.SEND_NOW if seq == facts.last_input + 1 else Landing.OTHER_WRITER
    return Landing.PERHAPS_WRITTEN if facts.fault else Landing.NEVER_WRITTEN
