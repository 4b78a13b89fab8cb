"""`outlast show`: one session as it is now."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from shlex import quote
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_client
from outlast.cli.last_words import last_words
from outlast.cli.options import json_option, session_argument
from outlast.cli.output import Screen, exact, visible
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config
from outlast.cli.text import (
    Told,
    choice_lines,
    delay_line,
    failure_lines,
    first_line,
    in_one_line,
    input_line,
    receipt_line,
    short,
    takeover_line,
    ways_on,
    went_back_line,
)
from outlast.cli.times import clock_time, local_time
from outlast.errors import naming
from outlast.state.messages import ToolMessage, UserMessage

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.errors import OutlastError
    from outlast.runtime.view import View
    from outlast.state.summaries import AgentSession, EffectShown, Restore, TurnSummary
    from outlast.turns.decided import WaitingCommand


@click.command("show")
@session_argument
@json_option()
def show_command(session: str, as_json: bool) -> None:
    """Show one session: turns, queue, open questions, the agent's own sessions, restores.

    A line is drawn where a new process took the session over. Of a damaged journal it shows what comes
    before the fault, names that, and exits 5.
    """
    screen = Screen(os.environ, as_json=as_json)
    view, fault = run_async(screen, _view(loaded_config(screen), session))
    if as_json:
        shape = view.to_json()
        if fault is not None:
            shape["fault"] = {"seq": view.seq + 1, "reason": fault.message}
        screen.json_line(shape)
    else:
        for line in view_lines(view):
            screen.out.line(visible(line))
    if fault is not None:
        raise fault


async def _view(config: Config, name: str) -> tuple[View, OutlastError | None]:
    from outlast.runtime.view import view_until_fault

    async with open_client(config) as client:
        return await view_until_fault(client.store, await client.store.find(name))


def view_lines(view: View) -> Iterator[str]:
    """The session for people."""
    yield from _head(view)
    yield from _turns(view)
    if view.queue:
        yield "queue"
        accepted = {turn.turn: turn for turn in view.turns}
        for queued in view.queue:
            turn = accepted.get(queued.request_id)
            asked = first_line(queued.input) if turn is None else input_line(turn.content)
            yield f"  {short(queued.request_id)}  {asked}"
            if turn is not None and turn.delay is not None:
                yield f"      {delay_line(turn.delay)}"
    if view.gates:
        yield "waiting for an answer"
        for gate in view.gates:
            yield exact(f"  {gate.id}  {in_one_line(gate.question)}")
            yield from (f"      {line}" for line in choice_lines(gate.choices, view.row.entry.session))
            if gate.answered is not None:
                yield f"      answered {first_line(gate.answered.choice or '')}{_by(gate.answered)}"
    if view.commands:
        yield "decided, and not yet carried out" + ("" if view.row.owner else ": nobody owns the session")
        names = {e.effect: e.name for turn in view.turns for e in turn.effects.values()}
        for command in view.commands:
            yield f"  {_word(command, names)}{_by(command)}"
    if view.agent_sessions:
        yield "the agent's own sessions"
        for session in view.agent_sessions:
            yield f"  {session.provider} {session.provider_session}{_marks(session)}"
            if session.went_back is not None:
                went = session.went_back
                yield f"      {local_time(went.at)} {went_back_line(went.through_turn, went.reason)}"
        yield from (f"  next: {first_line(chosen.line(), 300)}" for chosen in view.next_sessions)


def _marks(session: AgentSession) -> str:
    """How an agent's own session stands, in brackets."""
    marks = []
    if session.instead_of is not None:
        marks.append(f"begun in place of {session.instead_of}")
    if session.lost:
        marks.append("lost")
    elif not session.acknowledged:
        marks.append("not confirmed")
    if not session.current:
        marks.append("no longer used")
    return f" ({', '.join(marks)})" if marks else ""


def _word(command: WaitingCommand, names: Mapping[str, str]) -> str:
    """A command as it is typed; `names` are those of the effects, by id."""
    said = [command.command, command.gate or (short(command.turn) if command.turn else "")]
    if command.choice:
        said.append(first_line(command.choice))
    if command.effect:
        said.append(first_line(names.get(command.effect, command.effect)))
    if command.outcome:
        said.append("--done" if command.outcome == "done" else "--not-done")
    if command.session:
        said.append(f"--{command.session.replace('_', '-')}")
    return " ".join(filter(None, said))


def _by(command: WaitingCommand) -> str:
    return f" by {first_line(command.by)}" if command.by else ""


def _head(view: View) -> Iterator[str]:
    from outlast.state.listing import status_of

    entry, owner = view.row.entry, view.row.owner
    yield f"{entry.session}  {first_line(entry.title)}"
    yield f"  {status_of(view.row)}, agent {entry.agent}, in {entry.workspace}"
    yield f"  begun {local_time(entry.created_at)}, last active {local_time(entry.last_activity_at)}"
    yield f"  owned by {owner.label}, epoch {owner.epoch}" if owner else "  nobody owns it now"


def _turns(view: View) -> Iterator[str]:
    """Turns in order, and between them the lines where a new process took over."""
    restores = iter(view.restores)
    restore = next(restores, None)
    if view.turns or restore:
        yield "turns"
    last = next((turn for turn in reversed(view.turns) if turn.outcome != "queued"), None)
    joined = _joined(view)
    for turn in view.turns:
        while restore is not None and turn.started_at is not None and restore.started_at < turn.started_at:
            yield _takeover(restore)
            restore = next(restores, None)
        if turn.outcome == "queued":
            continue
        attempts = f", {turn.attempts} attempts" if turn.attempts > 1 else ""
        head = f"  {turn.index or '-':>3}  {turn.outcome:<11} {short(turn.turn)}{attempts}"
        yield f"{head}  {input_line(turn.content)}"
        yield from (f"       joined by: {said}" for said in joined.get(turn.turn, ()))
        yield from _why(view, turn, newest=turn is last)
    while restore is not None:
        yield _takeover(restore)
        restore = next(restores, None)


def _joined(view: View) -> dict[str, list[str]]:
    """By turn, the first lines of the inputs that joined it while it ran."""
    found: dict[str, list[str]] = {}
    for message in view.messages:
        if isinstance(message, UserMessage) and message.request_id != message.turn:
            found.setdefault(message.turn, []).append(input_line(message.content))
    return found


def _why(view: View, turn: TurnSummary, *, newest: bool) -> Iterator[str]:
    """Why a turn did not end as done; of the newest one also what there is to read and to do."""
    session = view.row.entry.session
    if turn.outcome == "failed" and turn.receipt is not None:
        yield f"       {naming(receipt_line(turn.receipt), view.row.entry.session)}"
        if newest:
            words = [] if turn.attempt is None else last_words(turn.attempt)
            told = Told(turn.turn, words, _open_calls(view, turn))
            yield from (f"     {line}" for line in failure_lines(turn.receipt, session, told))
    elif turn.reason:
        yield f"       {first_line(turn.reason, 300)}"
        if newest and turn.outcome in ("interrupted", "parked"):
            yield f"       what to do: {ways_on(session, turn)}"
    elif turn.delay is not None:
        yield f"       {delay_line(turn.delay)}"
    for effect in turn.effects.values():
        if effect.outcome != "done":
            why = f": {first_line(effect.reason)}" if effect.reason else ""
            yield f"       {effect.phase} {effect.name} {effect.outcome}{why} ({effect.effect})"
        if effect.outcome == "unknown" and turn.outcome in ("parked", "failed"):
            which = f"{quote(session)} {quote(_which(view, effect))}"
            yield f"       what to do: outlast settle {which} --done, or --not-done, whichever is so"


def _which(view: View, effect: EffectShown) -> str:
    """Its name, and its id where another turn has one of that name that may wait, too."""
    named = [e for turn in view.turns for e in turn.effects.values() if e.name == effect.name]
    return effect.name if sum(e.outcome != "done" for e in named) == 1 else effect.effect


def _open_calls(view: View, turn: TurnSummary) -> list[str]:
    """Names of the calls of its last attempt of which no outcome is known."""
    return [
        message.name
        for message in view.messages
        if isinstance(message, ToolMessage)
        and (message.turn, message.attempt, message.status) == (turn.turn, turn.attempts, "unknown")
    ]


def _takeover(restore: Restore) -> str:
    who = f"{restore.holder}, epoch {restore.epoch}, {clock_time(restore.started_at)}"
    if restore.outcome == "done":
        return f"  {takeover_line(who, restore.from_seq, len(restore.actions))}"
    what = {"running": "under way", "cut": "cut off"}.get(restore.outcome, f"failed: {restore.error}")
    return f"  ── {who}: {restore.from_seq} steps from the journal, {what} ──"
