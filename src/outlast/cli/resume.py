"""`outlast resume`: restore a session and drain its queue."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_runtime, speakable
from outlast.cli.exits import Exit
from outlast.cli.failures import WaitingForAnswerError
from outlast.cli.gates import Approve
from outlast.cli.options import approve_option, json_option, session_argument
from outlast.cli.output import Screen, visible
from outlast.cli.running import run_async
from outlast.cli.text import first_line, short
from outlast.records.types import CommandSettled, InputCancelled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlast.cli.blocks import Blocks
    from outlast.cli.following import Attendance
    from outlast.config import Config
    from outlast.records.envelope import Record
    from outlast.runtime.handles import Session
    from outlast.runtime.runtime import Runtime
    from outlast.store.contract import Store
    from outlast.turns.decided import WaitingCommand

_DECIDE = ("retry", "skip", "settle")
"""Commands that come too late are a failure of whoever gave them; of the others what they wanted is so."""
_END_A_WAIT = ("retry", "skip", "cancel", "kill", "close")
"""Commands after which a turn does not wait for its next attempt any more."""


@dataclass(frozen=True, slots=True)
class ResumeRequest:
    """What the command line asks for; `wait` in seconds."""

    name: str
    wait: float
    take_over: bool
    approve: Approve


@click.command("resume")
@session_argument
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Wait for its owner to leave.",
)
@click.option("--take-over", is_flag=True, help="End a living owner (SIGKILL, verified) and take its place.")
@approve_option
@json_option("Print JSON lines: for each turn its ids, its records, its outcome.")
def resume_command(session: str, wait: float, take_over: bool, approve: Approve, as_json: bool) -> int:
    """Restore a session and drain its queue.

    A turn whose agent still lives is attached to and goes on; one that ended meanwhile is settled from what
    the agent wrote; one that a crash cut off is closed and not executed again. Exits 4, naming the owner,
    when another process owns the session, and 1, naming it, where nothing is left but a parked turn. A
    command that waited and is not carried out is named, and makes it exit 4 where all else is done.
    """
    from outlast.cli.asking_trust import settled_config
    from outlast.cli.options import real_workspace

    screen = Screen(os.environ, as_json=as_json)
    config = settled_config(screen, real_workspace(None), session)
    request = ResumeRequest(session, wait, take_over, approve)
    return run_async(screen, _resume(request, config, screen))


async def _resume(request: ResumeRequest, config: Config, screen: Screen) -> int:
    from outlast.cli.blocks import Blocks
    from outlast.cli.following import Showing, attendance_of, coming_back, position_of
    from outlast.cli.present import JsonPresenter, TextPresenter
    from outlast.cli.waiting import shown_when_long
    from outlast.turns.decided import waiting_commands

    async with open_runtime(config, request.approve) as runtime:
        found = await speakable(runtime.store, request.name)
        position = await position_of(runtime.store, runtime.session(found))
        asked = waiting_commands(await runtime.store.pending(found))
        session = await shown_when_long(
            runtime.restore(found, wait=request.wait, take_over=request.take_over),
            f"restoring session {found}",
            screen,
        )
        if any(command.command in _END_A_WAIT for command in asked):
            position = replace(position, delay=None)  # it does not wait any more
        presenter = (
            JsonPresenter(screen, runtime.store)
            if screen.as_json
            else TextPresenter(
                screen,
                found,
                before=position.before,
            )
        )
        attendance = attendance_of(session, Showing(request.approve, presenter, screen, runtime, position))
        blocks = Blocks(session.id, runtime.store, presenter, position.begun)
        kept = _Kept(asked, blocks, screen)
        attendance.on_record(blocks.before, kept.after)
        async with coming_back(runtime, session.id, presenter):
            try:
                await attendance.attend(_drain(runtime, session, attendance))
                await blocks.finish()
                await attendance.raise_if_asked()
            except WaitingForAnswerError as error:
                await blocks.finish()
                await presenter.waits(error.gate)
                raise
            stuck = [] if blocks.told else await _left_to_a_person(runtime.store, session.id)
            if not stuck and blocks.exit_code() is Exit.OK:
                stuck = await held(runtime.store, session.id)
            for line in stuck:
                screen.note(visible(line))
            if not (stuck or blocks.told or kept.told):
                presenter.nothing_to_do(await _how_it_stands(runtime, session.id))
        code = blocks.exit_code()
        if code is Exit.OK and kept.failed:
            return Exit.CONFLICT
        return Exit.FAILED if stuck and code is Exit.OK else code


async def _how_it_stands(runtime: Runtime, session: str) -> str:
    """How the newest turn ended, in a line."""
    from outlast.runtime.awaiting import end, newest
    from outlast.runtime.outcome import outcome_of

    accepted = await newest(runtime.store, session)
    if accepted is None:
        return "no turn has begun yet"
    outcome = outcome_of(session, await end(runtime, session, accepted.turn, accepted.seq - 1))
    why = f": {first_line(outcome.reason)}" if outcome.reason else ""
    return f"turn {short(outcome.turn)} {_ENDED[outcome.outcome]}{why}"


_ENDED = {
    "done": "is done",
    "failed": "failed",
    "interrupted": "was interrupted",
    "cancelled": "was cancelled",
    "parked": "is parked",
}


async def _left_to_a_person(store: Store, session: str) -> list[str]:
    """What nobody goes on with before a person has decided, and how to: nothing else was left to do."""
    from outlast.agents.failure import kind_of, what_to_do
    from outlast.errors import naming
    from outlast.journal import load_state
    from outlast.turns.lost import held_by_loss

    state = await load_state(store, session)
    if state.root is not None and held_by_loss(state, state.root):
        waiting = f"; {len(state.queue)} waiting" if state.queue else ""
        step = naming(kind_of("session_missing").next_step, session)
        return [f"the agent's session is lost{waiting}", f"  what to do: {step}"]
    lines = []
    for turn, closed in state.parked.items():
        why = closed.message if kind_of(closed.code).parks else closed.reason
        which = f"{quote(session)} {quote(turn)}"
        again = f"outlast retry {which} runs it again; "
        if kind_of(closed.code).parks:
            again = f"{what_to_do(closed.code, closed.message, session, turn)} Or "
        lines.append(f"turn {short(turn)} is parked{f': {first_line(why)}' if why else ''}")
        lines.append(f"  what to do: {again}outlast skip {which} leaves it")
    return lines


async def held(store: Store, session: str) -> list[str]:
    """That somebody has held the queue meanwhile, where inputs wait in it."""
    row = await store.listed(session)
    if row is None or row.entry.state != "parked" or not row.entry.queued:
        return []
    from outlast.runtime.awaiting import let_go_on

    told = f"the queue is held ({row.entry.queued} waiting)"
    return [told, f"  what to do: {await let_go_on(store, session)}"]


class _Kept:
    """The commands that waited when the session was restored: who gave them was told only that they are
    kept."""

    def __init__(self, asked: Sequence[WaitingCommand], blocks: Blocks, screen: Screen) -> None:
        self._waited = {command.request_id: command for command in asked}
        self._blocks = blocks
        self._screen = screen
        self.failed = False
        """One was not carried out that was to bring something about."""
        self.told = False
        """It was said of one what became of it."""

    async def after(self, record: Record) -> None:
        """Say what became of them, where nothing else does."""
        await self._blocks.after(record)
        command = self._waited.get(record.cause or "")
        body = record.body
        if isinstance(body, CommandSettled):
            command = self._waited.get(body.request_id)
        if command is None:
            return
        if isinstance(body, CommandSettled) and body.outcome != "done":
            self.failed = self.failed or body.outcome == "refused" or command.command in _DECIDE
            about = f" of {short(command.turn)}" if command.turn else ""
            detail = body.detail or body.outcome.replace("_", " ")
            self._say(f"not carried out: {command.command}{about}: {detail}")
        elif command.command == "skip" and isinstance(body, InputCancelled):
            self._say(
                f"turn {short(body.request_id)} was given up, as was asked{_by(command)}: it is cancelled"
            )
        elif command.command == "skip" and isinstance(body, CommandSettled) and record.turn is not None:
            self._say(f"turn {short(record.turn)} was left as it is, as was asked{_by(command)}")
        elif isinstance(body, InputCancelled):
            self._say(f"input {short(body.request_id)} was taken back, as was asked{_by(command)}")

    def _say(self, text: str) -> None:
        self.told = True
        self._screen.note(visible(text))


def _by(command: WaitingCommand) -> str:
    return f" (by {first_line(command.by)})" if command.by else ""


async def _drain(runtime: Runtime, session: Session, attendance: Attendance) -> None:
    """Until nothing is left to do and all of it is shown."""
    from outlast.cli.run import leave_idle

    await leave_idle(runtime, session, attendance)
    await attendance.progress.reached((await runtime.store.tip(session.id)).seq)
