"""What the provider keeps of a loop's session: looked at before a resume, captured between turns, put back.

The journal says what was captured, and the blobs hold it, so that a session goes on where the provider's own
file is gone: after somebody cleaned up, in another home, on another machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from outlast.agents.contract import Agent, Failure
from outlast.agents.environment import secrets_in
from outlast.agents.failure import tidy
from outlast.agents.provider_state import (
    PIECE,
    GoesByAnIndex,
    KeepsState,
    NotTakenError,
    SaysWhereItKeeps,
    StateFile,
    StatePlace,
    keep_aside,
    pieces_from,
    put_back,
    sweep_drafts,
)
from outlast.clock import monotonic
from outlast.errors import AgentError, IntegrityError, StoreError, in_words
from outlast.journal import Journal
from outlast.records.agent_state import AgentStateCaptured, AgentStateRestored, LostChoice, StatePiece
from outlast.records.envelope import Draft
from outlast.records.types import AgentSessionChanged, Body
from outlast.state.model import Loop
from outlast.turns import patience
from outlast.turns.claims import ClaimBusyError
from outlast.turns.host import AgentHost
from outlast.turns.hosting import Hosting
from outlast.turns.lacking import news_lacking
from outlast.turns.launch import LaunchFailure
from outlast.turns.report import report, warn
from outlast.turns.sole_driver import SoleDriver, kept_by
from outlast.turns.standing import Standing, captured_of, changed, standing

PARTIAL_EVERY = 30.0
"""Seconds of a running turn after which what is there of it is captured, at the end of a call."""


@dataclass(slots=True)
class ProviderSession:
    """The provider's session of `loop`, as far as its program keeps it in a file (`KeepsState`)."""

    journal: Journal
    agent: Agent
    loop: str
    hosting: Hosting
    driver: SoleDriver = field(init=False)
    _captured_at: float = field(default_factory=monotonic)
    _told_untaken: bool = False
    """That no more is captured was said in this life of the agent."""

    def __post_init__(self) -> None:
        self.driver = SoleDriver(self.journal, self.agent, self.loop, self.hosting)

    # --- before a resume ---------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Before the agent is started: what it will resume is what it had left, or it is put back.

        Raises LaunchFailure where only a person can say what to do; the journal has it as lost then."""
        self._told_untaken = False
        found = self._keeper
        if found is None:
            return
        keeper, place = found
        try:
            found_so = await asyncio.to_thread(standing, keeper, place, self._loop)
            await asyncio.to_thread(self._sweep, found_so, keeper, place)
            await self._act_on(found_so, keeper, place)
        except AgentError as error:
            raise LaunchFailure(Failure("session_missing", str(error))) from error
        except ClaimBusyError as error:
            raise LaunchFailure(Failure("session_in_use", str(error))) from error
        except OSError as error:
            message = f"the agent's own file of the session cannot be used: {in_words(error)[0]}"
            raise LaunchFailure(Failure("home_unusable", message)) from error

    def _sweep(self, found: Standing, keeper: KeepsState, place: StatePlace) -> None:
        """What was left where the session's file is, or was put back to, as far as that is known."""
        captured = self._captured
        if found.file is not None:
            sweep_drafts(found.file.path.parent)
        elif captured is not None:
            with suppress(AgentError):
                sweep_drafts(keeper.state_path(place, captured.name).parent)

    async def _act_on(self, found: Standing, keeper: KeepsState, place: StatePlace) -> None:
        """A plan shows the same."""
        file = found.file
        match found.verdict:
            case "given_up":
                await asyncio.to_thread(self.driver.give_up, keeper)
            case "absent":
                pass  # The program itself says what it makes of that.
            case "put_back":
                await self._restore(keeper, place, file, found.why)
            case "whole":
                await self.capture()
                await self._whole(self._loop.decided)
            case "as_is":
                assert file is not None
                known = await asyncio.to_thread(keeper.state_damage, file.path, place.provider_session)
                await self._accept(file, found.why, known)
            case "lost":
                await self._lost(found)

    async def _whole(self, decided: LostChoice | None) -> None:
        """Nothing is wrong with the file. It may yet have been cut off where what was captured ends, after
        the agent had worked on turns that were not captured any more: the next prompt tells these."""
        if decided == "as_is":  # What was wrong when a person chose it is mended.
            bound = self._draft(self._changed("bound", "resumed as it is: nothing is wrong with it now"))
            await patience.append(self.journal, bound, at="turn.provider_as_is")
        loop = self._loop
        captured = loop.followed
        lacks = await news_lacking(self.journal, self.agent, loop, self.hosting)
        if lacks is None:
            return
        after, turn = lacks
        restored = AgentStateRestored(
            provider=self.agent.kind,
            provider_session=loop.provider_session or "",
            through_turn=None if captured is None else captured.through_turn,
            through_seq=after,
            reason=f"its file holds nothing of turn {turn} any more",
        )
        await patience.append(self.journal, self._draft(restored), at="turn.provider_lacking")

    async def _lost(self, found: Standing) -> None:
        lost = self._changed("lost", found.why)
        if self._loop.provider_state != "lost" or self._loop.lost_because != lost.reason:
            await patience.append(self.journal, self._draft(lost), at="turn.provider_lost")
        raise LaunchFailure(Failure(found.code, found.why))

    async def before_input(self, host: AgentHost) -> None:
        """Before the agent of `host` is given an input: no other life drives the session, and its program has
        it in the file that is looked at here. Raises LaunchFailure where that is not so."""
        await self.driver.claim(host)
        fold, found = host.intake.fold, self._keeper
        if found is None or fold.turn is not None or not isinstance(fold, SaysWhereItKeeps):
            return
        keeper, place = found
        if not fold.kept_at or not isinstance(keeper, GoesByAnIndex):
            return
        try:
            why = await asyncio.to_thread(keeper.kept_elsewhere, place, fold.kept_at)
        except OSError as error:
            raise LaunchFailure(Failure("home_unusable", in_words(error)[0])) from error
        if why:
            raise LaunchFailure(Failure("session_missing", why))

    async def _accept(self, file: StateFile, damage: str, known: str) -> None:
        """A person wants the session resumed as it is there, with what is `known` to be wrong with it. What
        was captured before is kept beside; it is still what is put back, until a turn was done on this."""
        told = f"resumed as it is: {damage}"
        captured = self._captured
        if captured is not None:
            kept = self._kept / f"{file.path.name}.captured"
            try:
                await asyncio.to_thread(put_back, kept, await self._pieces(captured))
                told += f"; what was captured before is in {kept}"
            except IntegrityError as error:
                told += f"; what was captured before cannot be read: {error.message}"
        await self._capture_anew(file, known)
        bound = self._draft(self._changed("bound", told))
        await patience.append(self.journal, bound, at="turn.provider_as_is")

    async def _restore(
        self, keeper: KeepsState, place: StatePlace, file: StateFile | None, reason: str
    ) -> None:
        captured = self._captured
        if captured is None or not captured.pieces:
            raise LaunchFailure(Failure("session_missing", "nothing of the session was captured"))
        try:
            pieces = await self._pieces(captured)
        except IntegrityError as error:
            lost = f"{reason}, and what was captured cannot be read: {error.message}"
            raise LaunchFailure(Failure("session_missing", lost)) from error
        if self._loop.accepted is not None:  # What is put back is no more of that than what it replaces.
            gone = self._draft(self._changed("lost", reason))
            await patience.append(self.journal, gone, at="turn.provider_accepted_lost")
        kept = "" if file is None else str(await asyncio.to_thread(keep_aside, file.path, self._kept))
        target = keeper.state_path(place, captured.name) if file is None else file.path
        await asyncio.to_thread(put_back, target, pieces)
        restored = AgentStateRestored(
            provider=self.agent.kind,
            provider_session=captured.provider_session,
            through_turn=captured.through_turn,
            through_seq=captured.through_seq,
            reason=reason,
            kept=kept,
        )
        await patience.append(self.journal, self._draft(restored), at="turn.provider_restored")

    # --- captures ----------------------------------------------------------------------------------

    async def capture(self, through: str | None = None) -> None:
        """Take what the file has more than was captured. `through`: the turn that has just ended, and whose
        end stands at the journal's tip. What fails of that is only a copy: the log tells it."""
        await self._try(through, partial=False)

    async def capture_ended(self) -> None:
        """The same once the agent has ended, for what it writes only after a turn. Where its newest turn
        was done, all that the journal tells is in it."""
        done = self._done and all(turn.loop != self.loop for turn in self.journal.state.open_turns.values())
        await self._try(None, partial=False, whole=done)

    async def capture_adopted(self) -> None:
        """A session that began elsewhere is this loop's now: captured."""
        await self._try(None, partial=False, whole=True)

    async def capture_partly(self) -> None:
        """The same while a turn runs, now and then."""
        if monotonic() - self._captured_at >= PARTIAL_EVERY:
            await self._try(None, partial=True)

    async def _try(self, through: str | None, *, partial: bool, whole: bool = False) -> None:
        """`whole`: it holds all that the journal tells, also where no turn has just ended."""
        found = self._keeper
        if found is None:
            return
        self._captured_at = monotonic()
        keeper, place = found
        try:
            file = await asyncio.to_thread(keeper.find_state, place)
            if file is not None:
                told = self.journal.state.seq if whole or through is not None else None
                await self._capture(file, through, told, partial=partial)
        except NotTakenError as error:
            self._tell_untaken(error)
        except (OSError, StoreError, IntegrityError) as error:
            report("what the agent keeps of its session could not be captured", error)

    async def _capture(
        self, file: StateFile, through: str | None, told: int | None, *, partial: bool
    ) -> None:
        before = self._loop.followed
        accepted = before is not None and before.accepted and not self._was_done(through)
        moved = before is not None and await asyncio.to_thread(_has_moved, file, before)
        since = 0 if before is None else before.size
        pieces = [] if before is None else list(before.pieces)
        async for data in _read(file.path, since, pieces[-1] if pieces else None):
            pieces = await self._with(pieces, data)
        known = before is not None and list(before.pieces) == pieces and not moved
        known = known and through is None and before is not None and accepted == before.accepted
        if not pieces or known:
            return
        if told is None and before is not None:
            through, told = before.through_turn, before.through_seq
        captured = AgentStateCaptured(
            provider=self.agent.kind,
            provider_session=self._loop.provider_session or "",
            name=file.name,
            pieces=pieces,
            through_turn=through,
            through_seq=told or 0,
            version=self._version,
            partial=partial,
            damage="" if before is None else before.damage,
            accepted=accepted,
        )
        await patience.append(self.journal, self._draft(captured), at="turn.provider_captured")

    async def _capture_anew(self, file: StateFile, damage: str) -> None:
        pieces: list[StatePiece] = []
        told = self.journal.state.seq
        try:
            async for data in _read(file.path, 0):
                pieces = await self._with(pieces, data)
        except NotTakenError as error:
            self._tell_untaken(error)
            pieces, told = [], 0
        captured = AgentStateCaptured(
            provider=self.agent.kind,
            provider_session=self._loop.provider_session or "",
            name=file.name,
            pieces=pieces,
            through_seq=told,
            version=self._version,
            damage=damage,
            accepted=True,
        )
        await patience.append(self.journal, self._draft(captured), at="turn.provider_accepted")

    async def _with(self, pieces: Sequence[StatePiece], data: bytes) -> list[StatePiece]:
        """The pieces with `data` at their end. Small ones become one, so that their number follows the
        logarithm of what is there, and each byte is written that often."""
        kept = list(pieces)
        while kept and kept[-1].size <= 2 * len(data) and kept[-1].size + len(data) <= PIECE:
            data = await self.journal.get_blob(kept.pop().digest) + data
        kept.append(StatePiece(digest=await self.journal.put_blob(data), size=len(data)))
        return kept

    def _tell_untaken(self, error: NotTakenError) -> None:
        """Once in a life of the agent: it is the same after each turn."""
        if not self._told_untaken:
            self._told_untaken = True
            warn(
                f"no more is captured of what the agent keeps of its session: {error}. The session goes on;"
                f" if that file is ever lost, `outlast retry {quote(self.hosting.session)} --reseed` begins"
                " a new one from the record."
            )

    # --- inside ------------------------------------------------------------------------------------

    @property
    def _loop(self) -> Loop:
        return self.journal.state.loops[self.loop]

    @property
    def _done(self) -> bool:
        """The newest turn that has ended was done."""
        return self.loop not in self.journal.state.last_unsuccessful

    def _was_done(self, turn: str | None) -> bool:
        """The turn that has just ended was done, as far as the agent goes: it neither failed, nor waits."""
        state = self.journal.state
        opened = state.open_turns.get(turn or "")
        again = opened is not None and opened.host_done is None
        return turn is not None and self._done and not (again or turn in state.parked or turn in state.queue)

    @property
    def _captured(self) -> AgentStateCaptured | None:
        return captured_of(self._loop)

    @property
    def _keeper(self) -> tuple[KeepsState, StatePlace] | None:
        return kept_by(self.agent, self._loop, self.hosting)

    @property
    def _kept(self) -> Path:
        """Where files that were in the way are kept."""
        return self.hosting.folders.parent / "kept" / self.hosting.session

    @property
    def _version(self) -> str:
        return self.agent.versions().get(self.agent.kind, "")

    async def _pieces(self, captured: AgentStateCaptured) -> list[bytes]:
        return [await self.journal.get_blob(piece.digest) for piece in captured.pieces]

    def _changed(self, state: str, reason: str) -> AgentSessionChanged:
        return AgentSessionChanged(
            provider=self.agent.kind,
            provider_session=self._loop.provider_session or "",
            state=state,  # type: ignore[arg-type]
            source="resumed",
            reason=tidy(reason, secrets_in(self.hosting.environ)),
        )

    def _draft(self, body: Body) -> list[Draft]:
        return [Draft(body=body, loop=self.loop)]


def _has_moved(file: StateFile, captured: AgentStateCaptured) -> bool:
    """Whether what was captured stands in another place now. Raises OSError, and NotTakenError where what
    stands there is something else."""
    if file.name == captured.name:
        return False
    if differs := changed(file.path, captured):
        raise NotTakenError(f"{file.path} took the place of {captured.name}: {differs}")
    return True


async def _read(path: Path, since: int, last: StatePiece | None = None) -> AsyncIterator[bytes]:
    """See `pieces_from`."""
    pieces = pieces_from(path, since, None if last is None else (last.digest, last.size))
    while data := await asyncio.to_thread(next, pieces, b""):
        yield data
