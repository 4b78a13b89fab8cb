"""One life of one loop's agent, seen through its shim and spool: the effects half of talking to it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib

from outlast.agents.contract import Agent, CloseStdin, InputLine, Wanted
from outlast.clock import boottime
from outlast.keep import (
    AgentFolder,
    Alive,
    Generation,
    GenerationFacts,
    InputRefusedError,
    KeepError,
    LaunchFailedError,
    LaunchRequest,
    RequestRefusedError,
    ShimClient,
    ShimGoneError,
    ShimSilentError,
    ShimStoppedError,
    Unknown,
    Verified,
    kill_marked,
    tree_dead,
    wake,
)
from outlast.keep.facts import look, look_at_processes
from outlast.keep.proc import boot_id, is_alive
from outlast.keep.standstill import name_stopped
from outlast.records.types import InputReserved, Process
from outlast.state.model import Launched, Loop
from outlast.turns import launch
from outlast.turns.follower import Follower, at_fault
from outlast.turns.hosting import Hosting, intake_of
from outlast.turns.intake import Intake, Located

INPUT_RETRY = 0.2
"""Seconds after which an input that a full disk or a busy pipe refused is tried again."""
AHEAD = 32 << 20
"""Bytes of spool that an agent may be ahead of us while we read: seconds of reading, so that a turn whose
agent is ended is soon closed. What it writes beyond that waits in its pipe."""
ALLOWED_EVERY = 4 << 20
"""Bytes that we read before we allow as many more."""


class AgentHost:
    """An owner's view of one generation. Made by `idle` (a new life), `attach` (a living one of an earlier
    owner) or `dead` (what its spool still tells)."""

    def __init__(self, generation: Generation, intake: Intake, hosting: Hosting, agent: Agent) -> None:
        self.generation = generation
        self.intake = intake
        self.silence: str = ""
        """Why the shim has not answered what we asked last; empty when it has."""
        self.processes: list[Process] = []
        self.boot_id: str = ""
        self._hosting = hosting
        self._agent = agent
        self._idle = False
        self._follower = Follower(generation, intake, agent.adapter)
        self._client: ShimClient | None = None
        self._grace: float | None = -1.0
        self._accepted = 0
        self._allowed = 0

    # --- making one ----------------------------------------------------------------------------

    @classmethod
    async def idle(cls, hosting: Hosting, agent: Agent, loop: Loop) -> AgentHost:
        """A shim that holds the folder's lock and has started nothing yet. Whatever lived there before is
        ended first, verified. Raises LaunchFailure, KeepError (a later owner has been here)."""
        fold = launch.first_fold(hosting, agent, loop.loop, loop.launches)
        folder = AgentFolder.create(hosting.folder(loop.loop).path)
        generation = await launch.begin(folder, hosting.claim)
        # A folder that was lost and made anew numbers its generations from 1 again: no cursor is of this one.
        host = cls(generation, Intake(fold, generation.name, agent.line_limit, None, None), hosting, agent)
        host._idle = True
        await host._learn_processes()
        await host._connect()
        return host

    @property
    def started(self) -> bool:
        """Whether its shim was told to start the agent."""
        return not self._idle

    @classmethod
    async def attach(
        cls,
        hosting: Hosting,
        agent: Agent,
        loop: Loop,
        generation: Generation,
        reserved: InputReserved | None = None,
    ) -> AgentHost:
        """Become the owner of a living agent; nothing is created anew, its orphan grace stays as it was set.
        `reserved` is the open turn's input. Raises KeepError."""
        intake = intake_of(hosting, agent, loop, generation, reserved)
        host = cls(generation, intake, hosting, agent)
        await host._learn_processes()
        await host._connect()
        return host

    @classmethod
    def dead(
        cls,
        hosting: Hosting,
        agent: Agent,
        loop: Loop,
        generation: Generation,
        reserved: InputReserved | None = None,
    ) -> AgentHost:
        """What a dead agent left behind. `reserved` is the open turn's input."""
        intake = intake_of(hosting, agent, loop, generation, reserved)
        return cls(generation, intake, hosting, agent)

    async def _connect(self) -> None:
        client = await ShimClient.connect(self.generation)
        try:
            await client.attach(self._hosting.claim)
        except BaseException:
            await client.close()
            raise
        self._client = client

    async def _learn_processes(self) -> None:
        try:
            shim, guard = await asyncio.to_thread(look_at_processes, self.generation)
        except FileNotFoundError:
            return
        self.processes = [
            Process(role=p.role, pid=p.pid, start_ticks=p.start_ticks)  # type: ignore[arg-type]
            for p in (guard, shim)
            if p is not None
        ]
        self.boot_id = shim.boot if shim else ""

    # --- looking -------------------------------------------------------------------------------

    @property
    def hosting(self) -> Hosting:
        """Where and for whom it runs."""
        return self._hosting

    @property
    def generation_name(self) -> str:
        return self.generation.name

    @property
    def folder_path(self) -> str:
        return str(self.generation.folder.path)

    @property
    def alive(self) -> bool:
        """We own it and its shim is there."""
        return self._client is not None and not self._client.lost.is_set()

    @property
    def taken(self) -> bool:
        """A later owner has it now."""
        lost = self._client.lost_by if self._client is not None else None
        return lost is not None and lost.reason == "taken"

    @property
    def accepted_input(self) -> int:
        """Seq of the newest input that the shim has accepted from us; it is folded once it is read."""
        if self._client is not None:
            self._accepted = max(self._accepted, self._client.accepted)
        return self._accepted

    @property
    def unheard(self) -> bool:
        """The shim has not answered yet what was asked of it."""
        return self._client is not None and bool(self._client.unheard)

    def stopped(self) -> str:
        """That somebody has stopped its shim, and what to do; empty where nobody has."""
        try:
            name_stopped(self.generation)
        except ShimStoppedError as error:
            return str(error)
        return ""

    async def held_by_disk(self) -> bool:
        """Whether what the agent says waits in its pipe, because the disk takes nothing."""
        with contextlib.suppress(KeepError):
            return self._client is not None and (await self._client.status()).blocked
        return False

    async def see_end(self) -> None:
        """The shim is gone: wait until its last word, or its guard's, is in the spool, or until nothing of
        the tree lives. Bounded."""
        deadline = boottime() + int(launch.PATIENCE * 1e9)
        while not isinstance(await asyncio.to_thread(self._tree), Verified):
            if boottime() > deadline:
                return
            wake(self.generation)
            await asyncio.sleep(launch.POLL)

    async def left_behind(self) -> GenerationFacts | None:
        """What its shim, which is gone, has left; None while something of the tree may live, or where that
        cannot be read."""
        if not isinstance(await asyncio.to_thread(self._tree), Verified):
            return None
        try:
            return await asyncio.to_thread(look, self.generation)
        except OSError:
            return None

    def _tree(self) -> Verified | Alive | Unknown:
        """What is known of its process tree. A folder that somebody has removed tells nothing, so that its
        shim and guard are looked for as they were when we came."""
        verdict = tree_dead(self.generation)
        if self.generation.path.is_dir() or self.boot_id != boot_id():
            return verdict
        living = tuple(p.pid for p in self.processes if is_alive(p.pid, p.start_ticks))
        return Alive(f"its folder is gone, process {living[0]} lives", living) if living else verdict

    @property
    def unlanded(self) -> frozenset[str]:
        """Steers that it was given, as far as its spool has been read, and has not shown to have taken."""
        return self.intake.fold.unsettled

    def idle_seconds(self) -> float:
        """Since the agent's newest frame, but for those in which it says only that it waits."""
        return self._follower.idle_seconds()

    @property
    def position(self) -> int:
        """Spool offset behind what has been read."""
        return self._follower.position

    @property
    def tip(self) -> int | None:
        """Where the spool of a living agent ended when its shim told that last; None: of a dead one nothing
        more comes."""
        return self._client.tip if self._client is not None and self.alive else None

    # --- reading -------------------------------------------------------------------------------

    def read(self) -> tuple[list[Located], bool]:
        """New events, one bite of them, and whether more may be there. Raises SpoolLost, now and ever after,
        once all that came before the damage has been given."""
        bite = self._follower.read()
        until = self._follower.position + AHEAD
        if self._client is not None and until - self._allowed >= ALLOWED_EVERY and self._client.allow(until):
            self._allowed = until
        return bite

    def leave_unread(self) -> None:
        """Nobody reads on for now: the agent goes on without us, within the bound of its spool."""
        if self._client is not None and self._client.allow(None):
            self._allowed = 0

    def next(self, wanted: Wanted) -> InputLine | CloseStdin | None:
        """The next line that the adapter asks for. Raises SpoolLost."""
        try:
            return self.intake.fold.next(wanted)
        except Exception as error:
            raise at_fault(self._agent.adapter, "could not say what to write next", error) from error

    async def wait(self, wake: asyncio.Event, seconds: float | None) -> None:
        """Until the spool has more, the shim is gone or answers at last, `wake` is set, or `seconds` are over
        (None: never)."""
        client = self._client
        if client is None:
            return
        waits = [
            asyncio.ensure_future(client.wait_tip(self._follower.position)),
            asyncio.ensure_future(client.lost.wait()),
            asyncio.ensure_future(wake.wait()),
        ]
        try:
            await asyncio.wait(
                [*waits, *client.unheard], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()

    # --- acting --------------------------------------------------------------------------------

    async def start(self, loop: str, launched: Launched) -> None:
        """START: execute the agent, launched with what the journal says. Raises LaunchFailure, KeepError (a
        later owner came first)."""
        client = self._client
        if client is None or not self._idle:
            raise RuntimeError("only an idle host can be started")
        self._idle = False
        # It may be more than it was when the shim was begun: the journal was written meanwhile.
        self.intake.fold = launch.first_fold(self._hosting, self._agent, loop, launched)
        spec = await asyncio.to_thread(launch.prepared, self._hosting, self._agent, loop, launched)
        try:
            await client.start(
                LaunchRequest(argv=spec.argv, env=dict(spec.env), cwd=spec.cwd, input_limit=spec.input_limit)
            )
        except LaunchFailedError as error:
            raise launch.not_executed(error, spec) from error

    async def write(self, seq: int, item: InputLine | CloseStdin) -> str | None:
        """Give the agent a line as input `seq`; None when it is accepted, else why it was refused. A refused
        input left no trace: it is written again after what came meanwhile has been folded. `silent`: the shim
        has not answered, and takes it or refuses it later; nothing is written before that."""
        client = self._client
        if client is None:
            return "gone"
        try:
            if isinstance(item, CloseStdin):
                await client.close_stdin(seq)
            else:
                await client.input(seq, item.line)
        except InputRefusedError as refused:
            if refused.reason in ("disk", "busy"):
                await asyncio.sleep(INPUT_RETRY)
            return refused.reason
        except ShimGoneError:
            return "gone"  # Whether it was accepted, the spool tells.
        except ShimSilentError as silent:
            self.silence = str(silent)
            return "silent"
        return None

    async def kill(self, grace: float) -> None:
        """End the agent's tree: SIGTERM, `grace` seconds, SIGKILL, until nothing of it is left. Raises
        ShimSilentError when that takes far too long."""
        if self._client is None:
            return
        # If the shim is gone, its end (or its next owner) shows in the spool.
        with contextlib.suppress(ShimGoneError, RequestRefusedError):
            await self._client.kill(grace)

    async def end(self, grace: float) -> None:
        """End it and let go of it; returns when its shim and guard are gone. Raises ShimSilentError."""
        try:
            await self.kill(grace)
        finally:
            await self.forget()
        await launch.gone(self.generation)

    async def end_verified(self) -> Verified | Alive | Unknown:
        """End it at once, also where its shim does not answer; gives what is then known of its tree."""
        with contextlib.suppress(ShimSilentError):
            await self.end(0.0)
        await self.see_end()
        await asyncio.to_thread(kill_marked, self.generation)
        return await asyncio.to_thread(self._tree)

    async def set_orphan_grace(self, seconds: float | None) -> None:
        """How long it may go on unowned and silent; None: for ever."""
        if self._client is not None and self._grace != seconds:
            with contextlib.suppress(ShimGoneError, RequestRefusedError):
                # A shim that is silent reads it before it does anything else.
                with contextlib.suppress(ShimSilentError):
                    await self._client.set_grace(seconds)
                self._grace = seconds

    async def trim(self, offset: int) -> None:
        """Let go of the spool below `offset`: the journal holds what was there."""
        if self._client is not None:
            with contextlib.suppress(ShimGoneError, ShimSilentError, RequestRefusedError):
                await self._client.trim(offset)

    async def detach(self) -> None:
        """Leave it to its shim."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(ShimGoneError, ShimSilentError, RequestRefusedError):
                await client.detach()
            await client.close()

    async def forget(self) -> None:
        """Close the connection without a word."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def input_digest(line: bytes) -> str:
    """The digest of an input line, as `InputReserved` records it."""
    return hashlib.sha256(line).hexdigest()
