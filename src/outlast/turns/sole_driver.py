"""One agent life at a time drives a loop's provider session: claimed before it is resumed, and given up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import msgspec

from outlast.agents.absent import AbsentAgent
from outlast.agents.contract import Agent, Failure
from outlast.agents.provider_state import KeepsState, StatePlace, keeper_of, outside_writers
from outlast.agents.registry import sessions_home
from outlast.errors import AgentError, UsageError, in_words
from outlast.journal import Journal
from outlast.keep.proc import boot_id
from outlast.state.model import Loop
from outlast.turns import claims
from outlast.turns.claims import ClaimBusyError, SessionClaim, this_process
from outlast.turns.host import AgentHost
from outlast.turns.hosting import Hosting
from outlast.turns.launch import LaunchFailure
from outlast.turns.recovery import drives
from outlast.turns.report import report


def kept_by(agent: Agent, loop: Loop, hosting: Hosting) -> tuple[KeepsState, StatePlace] | None:
    """Who keeps the provider's session of `loop` in a file, and where; None where nobody does, or `agent` is
    of another kind than the program that the session is of."""
    keeper, session = keeper_of(agent), loop.provider_session
    if keeper is None or session is None or not drives(agent.kind, loop):
        return None
    return keeper, StatePlace(session, hosting.workspace, hosting.environ)


_KEEP_NOTHING = ("command",)
"""Kinds of agents whose sessions are in no file that is claimed."""


def driven_by(agent: Agent, keeper: KeepsState, loop: Loop, hosting: Hosting) -> str:
    """Who would keep the next agent of `loop` from the provider's session that it resumes, as a part of a
    sentence; empty where nobody does. It takes no claim, and changes nothing. Raises AgentError, OSError,
    UsageError."""
    session = loop.resumes
    if session is None:
        return ""
    folder, name = _claims_folder(keeper, hosting), _claim_name(agent, keeper, hosting, session)
    other = claims.peek(folder, name)
    if other is not None and other.keeps_out(_claim_of(hosting, loop.loop)):
        return _told_of(other, folder / name)
    return _written_by(keeper, StatePlace(session, hosting.workspace, hosting.environ))


def _claim_of(hosting: Hosting, loop: str) -> SessionClaim:
    """What a loop claims, without a life of its agent."""
    return SessionClaim(
        store=str(hosting.folders.parent),
        session=hosting.session,
        folder=str(hosting.folder(loop).path),
        generation="",
        boot_id=boot_id(),
        lives_with=None if hosting.lasting else this_process(),
    )


def _claims_folder(keeper: KeepsState, hosting: Hosting) -> Path:
    return claims.claims_folder(keeper.state_home(hosting.environ), hosting.environ)


def _claim_name(agent: Agent, keeper: KeepsState, hosting: Hosting, provider_session: str) -> str:
    return claims.claim_name(agent.kind, keeper.state_home(hosting.environ), provider_session)


def _told_of(other: SessionClaim, path: Path) -> str:
    if other.alive:
        return f"an agent of session {other.session} in {other.store} drives the same session"
    return other.told(path)


@dataclass(slots=True)
class SoleDriver:
    """The claim of `loop` on its provider's session, as far as its program keeps it in a file."""

    journal: Journal
    agent: Agent
    loop: str
    hosting: Hosting
    _claimed: tuple[str, str] | None = None

    async def claim(self, host: AgentHost) -> None:
        """Before the agent of `host` resumes the provider's session, or is given its first prompt on it: no
        other life on this machine drives it. Raises LaunchFailure where one does."""
        found = kept_by(self.agent, self._loop, self.hosting)
        if found is None or self._loop.resumes is None:
            return
        keeper, place = found
        wanted = (place.provider_session, host.generation_name)
        if wanted == self._claimed:
            return
        mine = msgspec.structs.replace(
            self._mine, generation=host.generation_name, processes=host.processes, boot_id=host.boot_id
        )
        try:
            other = await asyncio.to_thread(self._take, keeper, mine)
            # An agent that runs has it open itself; whatever lived before one that does not is dead by now.
            writers = "" if other or host.started else await asyncio.to_thread(_written_by, keeper, place)
        except AgentError as error:
            raise LaunchFailure(Failure("session_missing", str(error))) from error
        except ClaimBusyError as error:
            raise LaunchFailure(Failure("session_in_use", str(error))) from error
        except UsageError as error:
            raise LaunchFailure(Failure("unknown", str(error))) from error
        except OSError as error:
            raise LaunchFailure(Failure("home_unusable", in_words(error)[0])) from error
        if other:
            raise LaunchFailure(Failure("session_in_use", other))
        if writers:
            raise LaunchFailure(Failure("session_in_use", writers))
        self._claimed = wanted

    async def claim_adopted(self, provider_session: str) -> str:
        """Before a session that began elsewhere becomes this loop's: nobody else's is it from now on. Why it
        cannot be, as a part of a sentence; empty where it is claimed."""
        keeper = keeper_of(self.agent)
        if keeper is None:
            return ""
        try:
            return await asyncio.to_thread(self._take, keeper, self._mine, provider_session)
        except (OSError, UsageError) as error:
            return told(error) if isinstance(error, OSError) else str(error)

    async def let_go(self) -> None:
        """The session is closed: another one may have the provider's session. Where it goes on after all, it
        claims it as any other does."""
        found = kept_by(self.agent, self._loop, self.hosting)
        absent = isinstance(self.agent, AbsentAgent) and self._loop.provider_session is not None
        if found is None and not absent:
            return
        self._claimed = None
        try:
            if found is None:
                await asyncio.to_thread(self._give_up_unseen)
            else:
                await asyncio.to_thread(self.give_up, found[0])
        except (OSError, UsageError) as error:
            report("the claim of a closed session's agent could not be given up", error)

    def _give_up_unseen(self) -> None:
        """Without an adapter: by what the claims in the home of its kind of program say of themselves. Raises
        OSError, and UsageError where it may be elsewhere."""
        environ, kind, session = self.hosting.environ, self.agent.kind, self._loop.provider_session or ""
        where = sessions_home(kind, environ)
        if where is None and kind in _KEEP_NOTHING:
            return
        folder = None if where is None else claims.claims_folder(where, environ)
        if folder is not None and claims.give_up_all(folder, self._mine):
            return
        name = "" if where is None else claims.claim_name(kind, where, session)
        if folder is not None and (folder / name).is_file():
            return  # It was given up before, or is another's by now.
        raise UsageError(
            f"its agent is not configured here, and no claim of it on {session} is in {folder or 'any home'}",
            hint="close it where the agent is configured, or remove the claim that a refusal names",
        )

    @property
    def _mine(self) -> SessionClaim:
        return _claim_of(self.hosting, self.loop)

    def _take(self, keeper: KeepsState, mine: SessionClaim, provider_session: str | None = None) -> str:
        """Why it is not ours, as a part of a sentence. Raises OSError, UsageError."""
        folder, name = self._claims_folder(keeper), self._claim_name(keeper, provider_session)
        other = claims.take(folder, name, mine)
        return "" if other is None else _told_of(other, folder / name)

    def give_up(self, keeper: KeepsState) -> None:
        """It goes on in another provider session. Raises OSError, UsageError."""
        agent_folder = str(self.hosting.folder(self.loop).path)
        claims.give_up(self._claims_folder(keeper), self._claim_name(keeper), agent_folder)

    def _claims_folder(self, keeper: KeepsState) -> Path:
        return _claims_folder(keeper, self.hosting)

    def _claim_name(self, keeper: KeepsState, provider_session: str | None = None) -> str:
        wanted = provider_session or self._loop.provider_session or ""
        return _claim_name(self.agent, keeper, self.hosting, wanted)

    @property
    def _loop(self) -> Loop:
        return self.journal.state.loops[self.loop]


def told(error: OSError) -> str:
    """What the system refused, and what to do about it, as a part of a sentence."""
    why, hint = in_words(error)
    return f"{why}; {hint}" if hint else why


def _written_by(keeper: KeepsState, place: StatePlace) -> str:
    """Who has the session open and makes no claims, such as the program in a terminal of its own."""
    file = keeper.find_state(place)
    writers = [] if file is None else outside_writers(keeper, file.path, place)
    if file is None or not writers:
        return ""
    pids = ", ".join(map(str, writers))
    return f"another process has {file.path} open: {pids}; look for one in another terminal or editor"
