"""`outlast run`: give an agent a prompt and follow it to the end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_runtime
from outlast.cli.exits import Exit, exit_of_outcome
from outlast.cli.failures import DetachedError, Sent, WaitingForAnswerError, telling_of
from outlast.cli.gates import Approve
from outlast.cli.options import (
    approve_option,
    as_text,
    image_option,
    json_option,
    not_empty,
    prompt_argument,
    read_content,
    real_workspace,
    workspace_option,
)
from outlast.cli.output import Screen, visible
from outlast.cli.running import run_async
from outlast.errors import (
    AgentNotFoundError,
    AmbiguousIdError,
    SessionNotFoundError,
    TurnHeldError,
    UsageError,
)
from outlast.ids import derived_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlast.agents.contract import Agent
    from outlast.cli.following import Attendance, Showing
    from outlast.config import Config
    from outlast.records.types import Content
    from outlast.runtime.handles import Session, Turn
    from outlast.runtime.outcome import Outcome
    from outlast.runtime.runtime import Runtime
    from outlast.store.contract import Store

_LOOKED_AT = 10_000
"""Sessions of a folder, the newest first, among which an agent's own is looked for."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the command line asks for."""

    content: str | list[Content]
    agent: str | None
    session: str | None
    continues: bool
    workspace: str
    key: str | None
    approve: Approve
    as_json: bool


@click.command("run")
@click.option("-a", "--agent", metavar="NAME", help="The agent; needed where more than one is here.")
@click.option(
    "--session", metavar="ID", callback=not_empty, help="Go on with this session; a new name starts one."
)
@click.option(
    "-c",
    "--continue",
    "continues",
    is_flag=True,
    help="Go on with the newest session of the folder, with -a of that agent.",
)
@workspace_option("The folder that the agent works in (default: the current one).")
@click.option(
    "--key",
    metavar="ID",
    callback=as_text,
    help="The request's own id: the same key is the same turn, however often sent.",
)
@approve_option
@image_option()
@json_option("Print JSON lines: the ids, every record, the outcome.")
@prompt_argument
def run_command(  # noqa: PLR0913 - click passes each option by name
    *,
    agent: str | None,
    session: str | None,
    continues: bool,
    workspace: str | None,
    key: str | None,
    approve: Approve,
    images: tuple[str, ...],
    as_json: bool,
    prompt: str,
) -> int:
    """Give an agent a prompt and follow it to the end.

    PROMPT is one argument; `-` reads it from standard input, and one that begins with a dash goes after
    `--`. The session outlives this command, its terminal and its machine: the last line says how to come
    back. Ctrl-C cancels the turn, a second one leaves without waiting for that. Exits 1 where the prompt
    waits behind a turn after which only a person lets the queue go on.
    """
    if continues and session is not None:
        raise UsageError("--continue and --session name two sessions", hint="give one of them")
    request = RunRequest(
        content=read_content(prompt, images),
        agent=agent,
        session=session,
        continues=continues,
        workspace=real_workspace(workspace),
        key=key,
        approve=approve,
        as_json=as_json,
    )
    from outlast.cli.asking_trust import settled_config

    screen = Screen(os.environ, as_json=as_json)
    config = settled_config(screen, request.workspace, session, may_begin=True)
    return run_async(screen, _run(request, config, screen))


async def _run(request: RunRequest, config: Config, screen: Screen) -> int:
    sent = Sent()
    with telling_of(sent):
        return await _send_and_follow(request, config, screen, sent)


async def _send_and_follow(request: RunRequest, config: Config, screen: Screen, sent: Sent) -> int:
    from outlast.cli.door import refuse_from_inside
    from outlast.cli.following import Showing, coming_back, position_of
    from outlast.cli.present import JsonPresenter, TextPresenter
    from outlast.cli.signals import Signals

    agents = config.agents()
    async with open_runtime(config, request.approve) as runtime:
        name = await _session_name(request, runtime)
        agent = await _agent_name(request, runtime, agents, name)
        session = runtime.session(name, workspace=request.workspace)
        if name is not None:
            await refuse_from_inside(runtime.store, name)
        position = await position_of(runtime.store, session)
        signals = Signals()
        with signals.heard():  # from the send on: whoever is told to leave says how to come back
            turn = await session.send(request.content, agent=agent, key=request.key, actor="cli")
            sent.stored(session.id, turn.id)
            presenter = (
                JsonPresenter(screen, runtime.store)
                if request.as_json
                else TextPresenter(screen, session.id, only_turn=turn.id, before=position.before)
            )
            async with coming_back(runtime, session.id, presenter):
                with telling_of(sent):
                    await presenter.accepted(session.id, turn.id)
                    await _say_which(runtime.store, session.id, screen)
                    showing = Showing(request.approve, presenter, screen, runtime, position, signals)
                    return await _attend(runtime, turn, showing, sent)


async def _say_which(store: Store, session: str, screen: Screen) -> None:
    if screen.err.is_terminal and not screen.as_json:
        row = await store.listed(session)
        whose = "" if row is None else f" (agent {row.entry.agent})"
        screen.note(screen.err.dim(visible(f"session {session}{whose}")))


async def _attend(runtime: Runtime, turn: Turn, showing: Showing, sent: Sent) -> int:
    """Follow the turn to its end, then let the queue drain if this process owns the session."""
    from outlast.cli.following import attendance_of
    from outlast.journal import load_state
    from outlast.runtime.awaiting import end, let_go_on
    from outlast.runtime.outcome import outcome_of
    from outlast.runtime.texts import text_pieces

    session = turn.session
    attendance = attendance_of(session, showing, turn=turn.id)
    ended: list[Outcome] = []

    async def its_end(after: int) -> int:
        try:
            found = await end(runtime, session.id, turn.id, after)
        except TurnHeldError as held:
            # Only a person goes on with it: whoever wants to finds no owner in the way.
            await leave_idle(runtime, session)
            held.hint = await let_go_on(runtime.store, session.id)
            raise
        await attendance.progress.reached((await runtime.store.tip(session.id)).seq)
        outcome = outcome_of(session.id, found)
        await attendance.tell(outcome, text_pieces(runtime.store, session.id, found))
        ended.append(outcome)
        sent.ended = True
        return found.seq

    async def to_the_end() -> None:
        seq = await its_end(turn.after)
        while await attendance.answered() and await _begun_again(runtime, session, turn.id, seq):
            seq = await its_end(seq)  # The person has just said how it goes on.
        attendance.policy.cancels = False  # what is left in the queue is not this command's
        await leave_idle(runtime, session, attendance)
        await attendance.progress.reached((await runtime.store.tip(session.id)).seq)
        if ended[-1].outcome == "parked":
            await attendance.raise_if_asked()

    try:
        await attendance.attend(to_the_end())
    except DetachedError:
        if not ended:
            raise
    except WaitingForAnswerError as error:
        if not ended:
            # The question may be about this very turn, and be told before how it ended.
            if turn.id not in (await load_state(runtime.store, session.id)).parked:
                await showing.presenter.waits(error.gate)
                raise
            found = await end(runtime, session.id, turn.id, turn.after)
            ended.append(outcome_of(session.id, found))
            await attendance.tell(ended[-1], text_pieces(runtime.store, session.id, found))
            sent.ended = True
        _say_what_waits(showing.screen, error)
        if ended[-1].outcome == "parked":
            return Exit.WAITING  # As `resume` says it of the same turn.
    return exit_of_outcome(ended[-1].outcome)


def _say_what_waits(screen: Screen, error: WaitingForAnswerError) -> None:
    screen.note(visible(f"{error.message}; {error.hint}"))
    for line in () if screen.as_json else error.choices:
        screen.note(f"  {line}")


async def _begun_again(runtime: Runtime, session: Session, turn: str, after: int) -> bool:
    """Whether the turn that ended at the record `after` was taken up again since."""
    from outlast.journal import read_records
    from outlast.records.types import TurnRetried

    async for record in read_records(runtime.store, session.id, after, large="outline"):
        if record.turn == turn and isinstance(record.body, TurnRetried):
            return True
    return False


async def leave_idle(runtime: Runtime, session: Session, attendance: Attendance | None = None) -> None:
    """If this process owns the session: let the queue drain, end the agent, verified, and give the lease
    back. What was sent to it in that moment is not left behind: whoever sent it saw an owner. A question that
    the queue waits for is asked first, of the person that is attended to."""
    while (actor := runtime.actor(session.id)) is not None:
        # It may end meanwhile: somebody closes the session.
        await actor.quiet()
        if attendance is not None and await attendance.answered():
            continue
        await actor.finish()
        if await _work_is_left(runtime, session):
            await runtime.own(session.id)


async def _work_is_left(runtime: Runtime, session: Session) -> bool:
    row = await runtime.store.listed(session.id)
    if row is None:
        return False
    return bool(row.pending or row.decisions) or (
        row.entry.queued > 0 and row.entry.state in ("idle", "retrying")
    )


async def _session_name(request: RunRequest, runtime: Runtime) -> str | None:
    """The session that is meant; None for a new one. Raises SessionNotFoundError, AmbiguousIdError."""
    from outlast.store.contract import CatalogQuery

    store = runtime.store
    if request.continues:
        limit = 1 if request.agent is None else _LOOKED_AT
        here = await store.list(CatalogQuery(workspace=request.workspace, limit=limit))
        of_agent = [row.entry for row in here if request.agent in (None, row.entry.agent)]
        if not of_agent:
            whose = "" if request.agent is None else f" of agent {request.agent}"
            other = (
                f"; the newest there, {here[0].entry.session}, is of {here[0].entry.agent}" if here else ""
            )
            raise SessionNotFoundError(
                f"there is no session{whose} in {request.workspace} to continue{other}",
                hint="leave --continue out to begin one",
            )
        return of_agent[0].session
    if request.session is not None:
        return await _named(store, request.session)
    if request.key is not None:
        return derived_id(store.store_id, request.key)
    return None


async def _named(store: Store, typed: str) -> str:
    """The session that is meant by what was typed; a name that is not taken is a new one's, also where
    another begins with it. Raises AmbiguousIdError."""
    from outlast.cli.stored import begins_uuid, is_meant

    try:
        found = await store.find(typed)
    except SessionNotFoundError:
        return typed  # its first input creates it
    except AmbiguousIdError:
        if begins_uuid(typed):
            raise
        return typed
    return found if is_meant(typed, found) else typed


async def _agent_name(
    request: RunRequest, runtime: Runtime, known: Mapping[str, Agent], session: str | None
) -> str | None:
    """The agent to begin a session with; None where the session has one. Raises UsageError listing the
    agents, AgentNotFoundError, and ConfigError where what describes the one that is meant is wrong."""
    from outlast.agents.registry import usable

    if request.agent is not None:
        if request.agent not in known:
            raise AgentNotFoundError(f"there is no agent {request.agent!r}", hint=_agents_hint(known))
        usable(known[request.agent])
        return request.agent
    begun = None if session is None else await runtime.store.entry(session)
    if begun is not None:
        if begun.agent in known:
            usable(known[begun.agent])
        return None
    if len(known) == 1:
        (name, only) = next(iter(known.items()))
        usable(only)
        return name
    if not known:
        raise UsageError("no agent is configured or installed", hint=_agents_hint(known))
    raise UsageError("several agents are here", hint=f"choose one with --agent: {', '.join(sorted(known))}")


def _agents_hint(known: Mapping[str, Agent]) -> str:
    if known:
        return f"there are: {', '.join(sorted(known))}"
    from outlast.cli.advice import how_to_have_an_agent

    return how_to_have_an_agent(os.environ)
