"""Making an outlast session of one that an agent began elsewhere: looked at first, then bound.

Nothing of it becomes a message of ours: its transcript is captured as evidence, and the agent resumes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outlast.agents.contract import Agent
from outlast.agents.provider_state import StatePlace, StateSummary, keeper_of, outside_writers
from outlast.errors import OutlastError, SessionInUseError, SessionNotFoundError, UsageError, in_words
from outlast.ids import new_id
from outlast.journal import load_state
from outlast.keep.proc import boot_id
from outlast.records.types import CommandSettled
from outlast.restore.opening import Opening, encode_opening
from outlast.runtime.arguments import session_or_new
from outlast.runtime.awaiting import settling
from outlast.runtime.backing import Backing
from outlast.runtime.opening import first_entry
from outlast.state.title import one_line
from outlast.store.contract import Admission
from outlast.turns.claims import (
    SessionClaim,
    claim_name,
    claims_folder,
    look,
    put_down,
    take,
    this_process,
)
from outlast.turns.requests import AdoptRequest, decode, encode
from outlast.turns.telling import ADOPTED


@dataclass(frozen=True, slots=True)
class Adoptable:
    """A provider's session as it was found. `refused` says why it cannot be adopted, as whole sentences."""

    provider: str
    provider_session: str
    path: str
    size: int
    """Bytes."""
    workspace: str
    """Where the agent will work."""
    title: str
    summary: StateSummary
    damage: str = ""
    refused: tuple[str, ...] = ()
    in_use: bool = False
    """It is refused because somebody else has it."""
    claim: SessionClaim | None = None
    """Whose it is, if it is somebody's."""
    claim_file: Path = Path()

    def raise_if_refused(self) -> None:
        """Raises SessionInUseError, UsageError for what is refused for another reason."""
        if self.refused:
            kind: type[OutlastError] = SessionInUseError if self.in_use else UsageError
            raise _refused(self, kind, "; ".join(self.refused))

    def may_be(self, session: str | None) -> bool:
        """Whether it is the session's of this name, in whatever store: what was killed is to be finished."""
        return self.claim is not None and self.claim.session == session

    @property
    def confirmed(self) -> bool:
        """It has a turn that has ended: a program that knows it not any more has lost it."""
        return self.summary.turns > 0

    def to_json(self) -> dict[str, object]:
        """The shape of `outlast adopt --json`."""
        return {
            "provider": self.provider,
            "provider_session": self.provider_session,
            "path": self.path,
            "size": self.size,
            "workspace": self.workspace,
            "title": self.title,
            "turns": self.summary.turns,
            "said": [{"role": said.role, "text": said.text} for said in self.summary.said],
            "damage": self.damage,
            "refused": list(self.refused),
        }


def look_at(
    agent: Agent, provider_session: str, workspace: str | None, environ: Mapping[str, str]
) -> Adoptable:
    """What there is to adopt; changes nothing. `workspace` None is the one that the session has. Blocking.

    Raises SessionNotFoundError where the agent has no such session, UsageError where its kind keeps nothing
    that could be looked at."""
    keeper = keeper_of(agent)
    if keeper is None:
        raise UsageError(
            f"sessions of agents of kind {agent.kind} cannot be adopted",
            hint="only those of agents that keep a session in a file of their own can",
        )
    home = keeper.state_home(environ)
    try:
        place = StatePlace(provider_session, workspace or str(Path.cwd()), environ)
        file = keeper.find_state(place)
        if file is None:
            raise SessionNotFoundError(
                f"{agent.kind} has no session {provider_session!r:.200} in {home}",
                hint="give its whole id: a session is never guessed from what is newest in a folder",
            )
        summary = keeper.summary(file.path, provider_session)
        damage = keeper.state_damage(file.path, provider_session)
        claim_file = claims_folder(home, environ) / claim_name(agent.kind, home, provider_session)
        claim = look(claim_file.parent, claim_file.name)
        if claim is not None and not claim.held:
            claim = None
        writers = outside_writers(keeper, file.path, place)
        return Adoptable(
            provider=agent.kind,
            provider_session=provider_session,
            path=str(file.path),
            size=file.path.stat().st_size,
            workspace=_workspace(workspace, summary),
            title=_title(summary),
            summary=summary,
            damage=damage,
            refused=tuple(_refusals(damage, claim, claim_file, writers)),
            in_use=claim is not None or bool(writers),
            claim=claim,
            claim_file=claim_file,
        )
    except OSError as error:
        why, hint = in_words(error)
        raise UsageError(why, hint=hint) from error


def _workspace(given: str | None, summary: StateSummary) -> str:
    if given is not None:
        return given
    return summary.workspace if Path(summary.workspace or "/nowhere/").is_dir() else str(Path.cwd())


def _title(summary: StateSummary) -> str:
    return next((one_line(said.text) for said in summary.said if said.role == "user"), "(adopted)")


def _named(pid: int) -> str:
    """A process by its id and, where it can be seen, its name."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        name = ""
    return f"{pid} ({name})" if name else str(pid)


def _refusals(damage: str, claim: SessionClaim | None, claim_file: Path, writers: list[int]) -> list[str]:
    refused = []
    if damage:
        refused.append(f"its transcript is damaged: {damage}")
    if claim is not None:
        refused.append(claim.told(claim_file))
    if writers and (claim is None or not claim.alive):
        pids = ", ".join(map(_named, writers))
        refused.append(f"process {pids} has it open: end that first, a session has one writer")
    return refused


async def adopt(
    backing: Backing, found: Adoptable, agent: str, session: str | None, actor: str | None
) -> str:
    """Begin a session of `agent` that goes on with what was found; its id. Whoever owns it first binds and
    captures it. One of the same name that was to adopt it, or has, is that session: what was killed is
    finished. Raises SessionInUseError or UsageError where it is refused, and UsageError for a name that is
    another one's already."""
    name = session_or_new(session)
    mine = SessionClaim(
        store=str(backing.store.folder),
        session=name,
        folder="",
        generation="",
        boot_id=boot_id(),
        lives_with=this_process(),
    )
    known = await _known(backing, found, name, agent)
    if known is None:
        if found.claim is None or not found.claim.is_of(mine):
            found.raise_if_refused()
        known = await _admitted(
            backing, found, Opening(agent=agent, workspace=found.workspace, title=found.title), mine, actor
        )
    if known:
        await _settled(backing, found, mine, known)
    return name


async def _known(backing: Backing, found: Adoptable, session: str, agent: str) -> str | None:
    """The command by which the session is to adopt it already, empty where it has; None where it may be asked
    to. Raises UsageError where it is a session of something else."""
    row = await backing.store.listed(session)
    if row is None:
        return None
    taken = UsageError(f"there is a session {session} already", hint="choose another name")
    if row.entry.agent != agent:
        raise taken
    for entry in await backing.store.pending(session):
        if entry.kind == "adopt" and not entry.damaged and _is_of(found, decode(AdoptRequest, entry.body)):
            return entry.request_id
    state = await load_state(backing.store, session)
    has = None if state.root is None else state.loops[state.root].provider_session
    if has is not None and has == found.provider_session:
        return ""
    if has is not None or row.pending or row.entry.turns or row.entry.queued:
        raise taken
    return None


def _is_of(found: Adoptable, request: AdoptRequest) -> bool:
    return (request.provider, request.provider_session) == (found.provider, found.provider_session)


async def _admitted(
    backing: Backing, found: Adoptable, opening: Opening, mine: SessionClaim, actor: str | None
) -> str:
    """The command, durable. It is claimed for as long as this process lives, until the session's owner does
    that: who comes second leaves no session."""
    turns = found.summary.turns
    request = AdoptRequest(
        provider=found.provider,
        provider_session=found.provider_session,
        confirmed=found.confirmed,
        reason=f"{ADOPTED}: it began outside of outlast and had {turns} turn{'' if turns == 1 else 's'}",
    )
    admission = Admission(
        session=mine.session,
        request_id=new_id(),
        kind="adopt",
        body=encode(request),
        actor=actor,
        opening=first_entry(mine.session, opening),
        opening_body=encode_opening(opening),
    )
    file = found.claim_file
    await _claimed(found, mine)
    try:
        await backing.store.admit(admission)
    except BaseException:
        await asyncio.to_thread(put_down, file.parent, file.name, mine)
        raise
    return admission.request_id


async def _claimed(found: Adoptable, mine: SessionClaim) -> None:
    """Raises SessionInUseError where it is another one's, UsageError where that cannot be told."""
    try:
        other = await asyncio.to_thread(take, found.claim_file.parent, found.claim_file.name, mine)
    except OSError as error:
        why, hint = in_words(error)
        raise UsageError(why, hint=hint) from error
    if other is not None:
        raise _refused(found, SessionInUseError, other.told(found.claim_file))


async def _settled(backing: Backing, found: Adoptable, mine: SessionClaim, request_id: str) -> None:
    """Until an owner has bound it. Raises SessionInUseError, UsageError where it was refused."""
    session = mine.session
    backing.serve(session)
    while (record := await settling(backing, session, request_id)) is None:
        backing.serve(session)  # Who had it ended before it took the command.
    body = record.body
    if not isinstance(body, CommandSettled) or body.outcome == "done":
        return
    file = found.claim_file
    await asyncio.to_thread(put_down, file.parent, file.name, mine)
    claim = await asyncio.to_thread(look, file.parent, file.name)
    taken = claim is not None and claim.session != session and claim.held
    raise _refused(found, SessionInUseError if taken else UsageError, body.detail)


def _refused(found: Adoptable, kind: type[OutlastError], told: str) -> OutlastError:
    return kind(f"{found.provider} session {found.provider_session} is not adopted: {told}")
