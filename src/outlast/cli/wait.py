"""`outlast wait`: until a session has nothing left to do."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from outlast.cli.contact import open_client
from outlast.cli.exits import Exit, exit_of_outcome
from outlast.cli.failures import NobodyRunsItError
from outlast.cli.options import json_option, session_argument
from outlast.cli.output import Screen, visible
from outlast.cli.owners import heard, way_on
from outlast.cli.present import way_back_command
from outlast.cli.running import run_async
from outlast.cli.stored import loaded_config
from outlast.errors import SessionNotFoundError

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.runtime.client import Client
    from outlast.runtime.handles import Session
    from outlast.store.contract import Listed

LOOK_AGAIN = 1.0
"""Seconds after which a waiting command looks again whether the session still has an owner."""
PATIENCE = 3
"""Looks in a row without an owner before it counts as gone: an owner may just be changing."""


@click.command("wait")
@session_argument
@json_option("Print the last turn's outcome as JSON.")
def wait_command(session: str, as_json: bool) -> int:
    """Wait until a session has nothing left to do, and exit by how its last turn ended.

    Exits 6 when it waits for an answer, 1 when there is work left and nobody runs it.
    """
    screen = Screen(os.environ, as_json=as_json)
    return run_async(screen, _wait(loaded_config(screen), screen, session))


async def _wait(config: Config, screen: Screen, name: str) -> int:
    """By the newest turn's outcome; 0 for a session without turns."""
    async with open_client(config) as client:
        session = client.session(await client.store.find(name))
        await heard(client.store, session.id, _quiet(client, session), screen, waits=True)
        return await _tell(client, session, screen)


async def _tell(client: Client, session: Session, screen: Screen) -> int:
    from outlast.runtime.awaiting import end, newest
    from outlast.runtime.outcome import outcome_of, to_json
    from outlast.runtime.texts import text_pieces

    accepted = await newest(client.store, session.id)
    if accepted is None:
        return Exit.OK
    its_end = await end(client, session.id, accepted.turn, accepted.seq - 1)
    outcome = outcome_of(session.id, its_end)
    if screen.as_json:
        text = text_pieces(client.store, session.id, its_end)
        await screen.json_text_line(to_json(outcome), "text", text)
    else:
        reason = f": {outcome.reason}" if outcome.reason else ""
        screen.note(visible(f"{outcome.outcome}{reason}"))
    return exit_of_outcome(outcome.outcome)


async def _quiet(client: Client, session: Session) -> None:
    """Until nothing is left to do, or only a person can go on. Raises WaitingForAnswerError,
    NobodyRunsItError. It looks at the catalog: a long history is not read at every change."""
    unowned = 0
    with client.store.changes(session.id) as bell:
        while True:
            bell.clear()
            row = await _row(client, session.id)
            busy = await _busy(client, row)
            if row.entry.open_gates and (row.entry.state == "waiting" or not busy):
                await _raise_waiting(session, owned=row.owner is not None)
            if not busy:
                _raise_held(row)
                return
            unowned = 0 if row.owner else unowned + 1
            if unowned >= PATIENCE:
                left = (
                    f"what was decided about session {session.id} waits"
                    if row.decisions
                    else f"session {session.id} has work left"
                )
                raise NobodyRunsItError(
                    f"{left}, and nobody runs it",
                    hint=await way_on(client.store, session.id),
                    session_id=session.id,
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_AGAIN):
                    await bell.wait()


def _raise_held(row: Listed) -> None:
    """Raises NobodyRunsItError for a queue that waits for a person: nobody goes on with it, owner or not."""
    entry = row.entry
    if entry.state != "parked" or not entry.queued:
        return
    if row.owner is None:
        hint = way_back_command(entry.session)
    else:
        hint = way_back_command(entry.session).replace("resume", "skip", 1)
    raise NobodyRunsItError(
        f"session {entry.session} holds its queue ({entry.queued} waiting) until a person lets it go on",
        hint=hint,
        session_id=entry.session,
    )


async def _row(client: Client, session: str) -> Listed:
    found = await client.store.listed(session)
    if found is None:
        raise SessionNotFoundError(f"session {session} is gone", session_id=session)
    return found


async def _raise_waiting(session: Session, *, owned: bool) -> None:
    """Raises WaitingForAnswerError unless every question is answered by now."""
    from outlast.cli.following import waiting_error
    from outlast.cli.gates import OpenQuestion

    for gate in await session.gates():
        if gate.answered is not None:
            continue  # Its owner is told so, or its next one.
        question = OpenQuestion(gate.id, gate.kind, gate.question, gate.choices)
        raise waiting_error(session.id, question, owned=owned)


async def _busy(client: Client, row: Listed) -> bool:
    """Whether an owner has something to do. A parked turn does not keep the queue behind it, a held queue
    waits for a person; only the journal tells them apart, and it is read only where that matters."""
    entry = row.entry
    if row.decisions:
        return True
    if entry.state == "parked" and entry.queued and not row.pending:
        from outlast.journal import load_state

        state = await load_state(client.store, entry.session)
        return bool(state.queue) and not any(loop.held for loop in state.loops.values())
    return entry.state in ("running", "waiting", "retrying") or bool(entry.queued) or bool(row.pending)
