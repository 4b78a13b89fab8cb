"""`outlast resume`: restore a session and drain its queue."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_runtime, speakable
from outlast.cli.exits import Exit, exit_of_outcome
from outlast.cli.options import json_option, session_argument
from outlast.cli.output import Screen
from outlast.records.types import (
    TurnAttached,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
    TurnStarted,
)

if TYPE_CHECKING:
    from outlast.cli.following import Attendance
    from outlast.cli.present import Presenter
    from outlast.config import Config
    from outlast.records.envelope import Record
    from outlast.runtime.handles import Session
    from outlast.runtime.runtime import Runtime

_BEGINS = (TurnStarted, TurnRetried, TurnAttached)
_ENDS = (TurnDone, TurnFailed, TurnInterrupted, TurnParked)


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
@json_option("Print JSON lines: for each turn its ids, its records, its outcome.")
def resume_command(session: str, wait: float, take_over: bool, as_json: bool) -> int:
    """Restore a session and drain its queue.

    A turn whose agent still lives is attached to and goes on; one that ended meanwhile is settled from what
    the agent wrote; one that a crash cut off is closed and not executed again. Exits 4, naming the owner,
    when another process owns the session.
    """
    from outlast.cli.asking_trust import settled_config
    from outlast.cli.options import real_workspace

    screen = Screen(os.environ, as_json=as_json)
    config = settled_config(screen, real_workspace(None), session)
    return asyncio.run(_resume(session, wait, take_over, config, screen))


async def _resume(name: str, wait: float, take_over: bool, config: Config, screen: Screen) -> int:
    from outlast.cli.following import Showing, attendance_of, position_of
    from outlast.cli.present import JsonPresenter, TextPresenter
    from outlast.cli.waiting import shown_when_long

    async with open_runtime(config) as runtime:
        found = await speakable(runtime.store, name)
        position = await position_of(runtime.store, runtime.session(found))
        session = await shown_when_long(
            runtime.restore(found, wait=wait, take_over=take_over), f"restoring session {found}", screen
        )
        presenter = JsonPresenter(screen) if screen.as_json else TextPresenter(screen)
        attendance = attendance_of(session, Showing("ask", presenter, screen, runtime.store, position))
        turns = Turns(session, presenter)
        attendance.on_record(turns.before, turns.after)
        try:
            await attendance.attend(_drain(runtime, session, attendance))
            attendance.raise_if_asked()
        finally:
            presenter.way_back(session.id)
        return turns.exit_code()


async def _drain(runtime: Runtime, session: Session, attendance: Attendance) -> None:
    from outlast.cli.run import leave_idle

    await leave_idle(runtime, session)
    await attendance.progress.reached((await runtime.store.tip(session.id)).seq)


class Turns:
    """The turns that were seen, each with its first and its last line."""

    def __init__(self, session: Session, presenter: Presenter) -> None:
        self._session = session
        self._presenter = presenter
        self._open: str | None = None
        self._outcomes: dict[str, str] = {}

    def before(self, record: Record) -> None:
        """The line that begins a turn comes before the record that does."""
        if isinstance(record.body, (*_BEGINS, *_ENDS)) and record.turn not in (None, self._open):
            if isinstance(record.body, TurnParked) and record.turn in self._outcomes:
                return
            self._open = record.turn
            self._presenter.accepted(self._session.id, str(record.turn))

    async def after(self, record: Record) -> None:
        """The outcome comes after the record that settles it."""
        if isinstance(record.body, _ENDS) and record.turn is not None and record.turn == self._open:
            outcome = await self._session.outcome(record.turn)
            self._presenter.outcome(outcome)
            self._outcomes[record.turn] = outcome.outcome
            self._open = None

    def exit_code(self) -> int:
        """0 when every turn that ended here is done; 130 when the last one was cancelled; else 1."""
        codes = [exit_of_outcome(outcome) for outcome in self._outcomes.values()]
        if codes and codes[-1] is Exit.INTERRUPTED:
            return Exit.INTERRUPTED
        return Exit.OK if all(code is Exit.OK for code in codes) else Exit.FAILED
