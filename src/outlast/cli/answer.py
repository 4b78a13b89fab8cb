"""`outlast answer`: decide what a session waits for."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING

import click
import msgspec

from outlast.cli.contact import open_client, speakable
from outlast.cli.exits import Exit
from outlast.cli.gates import choice_of, find_gate
from outlast.cli.options import json_option, not_empty, session_argument
from outlast.cli.output import Screen, visible
from outlast.cli.owners import heard, next_owner, way_on
from outlast.cli.running import run_async
from outlast.cli.shapes import ResultLine
from outlast.cli.stored import loaded_config
from outlast.errors import GateNotFoundError

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.runtime.handles import Answer
    from outlast.store.contract import Store

_EXITS = {
    "answered": Exit.OK,
    "queued": Exit.OK,
    "taken": Exit.CONFLICT,
    "expired": Exit.NOT_FOUND,
    "gone": Exit.NOT_FOUND,
}


@click.command("answer")
@session_argument
@click.argument("gate", metavar="GATE", callback=not_empty)
@click.argument("choice", metavar="CHOICE")
@json_option()
def answer_command(session: str, gate: str, choice: str, as_json: bool) -> int:
    """Answer a question that a session waits for.

    GATE is the question's id, or a unique beginning of it; CHOICE is a choice's id, kind, label or number.
    `outlast show ID` lists both. Exits 4, naming the answer, when somebody else was first with another one, 3
    when the question is gone.
    """
    screen = Screen(os.environ, as_json=as_json)
    return run_async(screen, _answer(loaded_config(screen), screen, (session, gate, choice)))


async def _answer(config: Config, screen: Screen, typed: tuple[str, str, str]) -> int:
    name, gate_typed, choice_typed = typed
    async with open_client(config) as client:
        session = client.session(await speakable(client.store, name))
        gates = {gate.id: gate for gate in await session.gates()}
        found = find_gate(gate_typed, list(gates))
        if found is not None:
            choice_typed = choice_of(choice_typed, gates[found].choices)
        else:
            found = find_gate(gate_typed, await _closed_gates(client.store, session.id))
            if found is None:
                raise GateNotFoundError(
                    f"session {session.id} has no question {gate_typed!r}",
                    hint=f"`outlast show {quote(session.id)}` lists those that are open",
                    session_id=session.id,
                )
        asked = session.answer(found, choice_typed, by=_user())
        answer = await heard(client.store, session.id, asked, screen)
        if answer.result == "queued":
            return _tell(screen, session.id, answer, await next_owner(client.store, session.id))
        waits = answer.result == "taken" and found in {gate.id for gate in await session.gates()}
        return _tell(
            screen, session.id, answer, await _first_one(client.store, session.id, answer, waits=waits)
        )


async def _first_one(store: Store, session: str, answer: Answer, *, waits: bool) -> str:
    """Which answer came first; `waits`: no owner has carried it out yet."""
    if answer.result != "taken" or answer.choice is None:
        return ""
    if waits:
        return (
            f"the answer {answer.choice} waits for the session's next owner: {await way_on(store, session)}"
        )
    return f"the answer was {answer.choice}"


async def _closed_gates(store: Store, session: str) -> list[str]:
    from outlast.journal import read_records
    from outlast.records.types import GateResolved

    records = read_records(store, session, large="outline")
    return [record.body.gate async for record in records if isinstance(record.body, GateResolved)]


def _tell(screen: Screen, session: str, answer: Answer, detail: str = "") -> int:
    if screen.as_json:
        by, choice = answer.by or msgspec.UNSET, answer.choice or msgspec.UNSET
        screen.json_line(ResultLine(session, answer.result, detail, by, choice))
        return _EXITS[answer.result]
    by = f" by {answer.by}" if answer.by else ""
    text = {
        "answered": "answered",
        "queued": detail,
        "taken": f"too late: already answered{by}{f'; {detail}' if detail else ''}",
        "expired": "too late: the question has expired",
        "gone": "too late: the agent does not wait for it any more",
    }[answer.result]
    screen.out.line(visible(text))
    return _EXITS[answer.result]


def _user() -> str:
    """Who answers, for the journal: the login name where there is one."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
