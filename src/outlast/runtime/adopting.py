"""Making an outlast session of one that an agent began elsewhere: looked at first, then bound.

Nothing of it becomes a message of ours: its transcript is captured as evidence, and the agent resumes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outlast.agents.contract import Agent
from outlast.agents.provider_state import StatePlace, StateSummary, keeper_of, outside_writers
from outlast.errors import SessionInUseError, SessionNotFoundError, UsageError, in_words
from outlast.ids import new_id
from outlast.restore.opening import Opening, encode_opening
from outlast.runtime.arguments import session_or_new
from outlast.runtime.awaiting import settling
from outlast.runtime.backing import Backing
from outlast.runtime.opening import first_entry
from outlast.state.title import one_line
from outlast.store.contract import Admission
from outlast.turns.claims import SessionClaim, claim_name, claims_folder, look
from outlast.turns.requests import AdoptRequest, encode
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

    def raise_if_refused(self) -> None:
        """Raises SessionInUseError, UsageError for what is refused for another reason."""
        if self.refused:
            kind = SessionInUseError if self.in_use else UsageError
            told = "; ".join(self.refused)
            raise kind(f"{self.provider} session {self.provider_session} is not adopted: {told}")

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
        claim = look(claims_folder(home, environ), claim_name(agent.kind, home, provider_session))
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
            refused=tuple(_refusals(damage, claim, writers)),
            in_use=claim is not None or bool(writers),
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


def _refusals(damage: str, claim: SessionClaim | None, writers: list[int]) -> list[str]:
    refused = []
    if damage:
        refused.append(f"its transcript is damaged: {damage}")
    if claim is not None:
        refused.append(
            f"it is session {claim.session}'s, in {claim.store}: go on there, or let that one begin anew"
        )
    if writers and (claim is None or not claim.alive):
        pids = ", ".join(map(str, writers))
        refused.append(f"process {pids} has it open: end that first, a session has one writer")
    return refused


async def adopt(
    backing: Backing, found: Adoptable, agent: str, session: str | None, actor: str | None
) -> str:
    """Begin a session of `agent` that goes on with what was found; its id. Whoever owns it first binds and
    captures it. Raises SessionInUseError or UsageError where it is refused, and UsageError for a name
    that is there already."""
    found.raise_if_refused()
    name = session_or_new(session)
    if await backing.store.listed(name) is not None:
        raise UsageError(f"there is a session {name} already", hint="choose another name")
    opening = Opening(agent=agent, workspace=found.workspace, title=found.title)
    turns = found.summary.turns
    request = AdoptRequest(
        provider=found.provider,
        provider_session=found.provider_session,
        confirmed=found.confirmed,
        reason=f"{ADOPTED}: it began outside of outlast and had {turns} turn{'' if turns == 1 else 's'}",
    )
    request_id = new_id()
    await backing.store.admit(
        Admission(
            session=name,
            request_id=request_id,
            kind="adopt",
            body=encode(request),
            actor=actor,
            opening=first_entry(name, opening),
            opening_body=encode_opening(opening),
        )
    )
    backing.serve(name)
    await settling(backing, name, request_id)
    return name
