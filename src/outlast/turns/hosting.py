"""Where a session's agents run, and how the reading of one begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outlast.agents.contract import Agent, FoldContext
from outlast.errors import InvalidRecordError
from outlast.ids import derived_id
from outlast.keep import AgentFolder, Claim, Generation
from outlast.records.types import InputReserved
from outlast.state.model import Launched, Loop
from outlast.turns.intake import Intake

LONGEST_GRACE = 600.0
"""Seconds, where nobody can come back to the agent."""


@dataclass(frozen=True, slots=True)
class Hosting:
    """Where and for whom the agents of one session run."""

    session: str
    workspace: str
    folders: Path
    """Agent folders of this store on this machine."""
    claim: Claim
    machine: str
    secret: bytes
    environ: Mapping[str, str]
    lasting: bool = True
    """Whether another owner can come after this process."""

    def orphan_grace(self, wanted: float | None, *, asks: bool) -> float | None:
        """Seconds for which an agent that wants `wanted` goes on unowned and silent; None: for ever. `asks`:
        it waits for a person, who may take longer, but not for one who can never come."""
        if self.lasting:
            return None if asks else wanted
        return LONGEST_GRACE if wanted is None else wanted

    def folder(self, loop: str) -> AgentFolder:
        """The folder of a loop's agent; recorded with each attempt."""
        return agent_folder(self.folders, self.claim.store_id, self.session, loop)


def agent_folder(folders: Path, store_id: str, session: str, loop: str) -> AgentFolder:
    """The folder of a loop's agent among the agent `folders` of its store. What an attempt recorded is for
    people: in a copied store it is the original's."""
    return AgentFolder((folders / derived_id(store_id, session, loop)).absolute())


def fold_context(hosting: Hosting, loop: str, launched: Launched) -> FoldContext:
    """What an adapter's fold may know of a life of the agent that was started with `launched`."""
    return FoldContext(
        session=hosting.session,
        loop=loop,
        workspace=hosting.workspace,
        provider_session=launched.provider_session,
        confirmed=launched.confirmed,
        secret=hosting.secret,
    )


def intake_of(
    hosting: Hosting, agent: Agent, loop: Loop, generation: Generation, reserved: InputReserved | None = None
) -> Intake:
    """The intake of a generation that an earlier owner has read, from the state that it stored, or from the
    beginning. `reserved` is the open turn's input. Raises what the adapter's `fold` raises."""
    folded = loop.folded if loop.folded and loop.folded.generation == generation.name else None
    context = fold_context(hosting, loop.loop, loop.launched or loop.launches)
    try:
        fold = agent.fold(context, folded.state if folded else None)
    except InvalidRecordError:
        if folded is None:
            raise
        # Another version of the adapter wrote it: all is read anew, as far as the spool still has it.
        folded, fold = None, agent.fold(context, None)
    prompt = reserved.seq if reserved is not None and reserved.generation == generation.name else None
    return Intake(fold, generation.name, agent.line_limit, loop.cursor, folded, prompt)
