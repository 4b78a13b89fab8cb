"""`outlast send`: queue a prompt, from any process; owns nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import click

from outlast.cli.contact import open_client, speakable
from outlast.cli.failures import Sent, telling_of
from outlast.cli.options import (
    as_text,
    image_option,
    json_option,
    prompt_argument,
    read_content,
    session_argument,
)
from outlast.cli.output import Screen
from outlast.cli.owners import heard, way_on
from outlast.cli.running import run_async
from outlast.cli.shapes import AcceptedLine
from outlast.cli.stored import loaded_config
from outlast.cli.text import short

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.records.types import Content
    from outlast.runtime.handles import Session
    from outlast.store.contract import Store

WhenBusy = Literal["queue", "steer", "reject"]


@click.command("send")
@click.option(
    "--key",
    metavar="ID",
    callback=as_text,
    help="The request's own id: the same key is the same turn, however often sent.",
)
@click.option(
    "--when-busy",
    type=click.Choice(["queue", "steer", "reject"]),
    default="queue",
    help="While a turn runs: wait in the queue, join the turn where the agent can, or be refused.",
)
@image_option()
@json_option()
@session_argument
@prompt_argument
def send_command(
    *, session: str, prompt: str, key: str | None, when_busy: WhenBusy, images: tuple[str, ...], as_json: bool
) -> None:
    """Queue a prompt for a session.

    It is durable when the command ends, whoever owns the session now; if nobody does, `outlast resume` runs
    it. PROMPT is one argument; `-` reads it from standard input.
    """
    content = read_content(prompt, images)
    screen = Screen(os.environ, as_json=as_json)
    given = Input(content, key, when_busy)
    run_async(screen, _send(loaded_config(screen), screen, session, given))


SINCE = {
    "running": "runs",
    "done": "is done already",
    "failed": "has failed",
    "interrupted": "was interrupted",
    "cancelled": "was cancelled",
}
"""What became of a turn, by its outcome."""


class Input:
    """What is sent, and how."""

    def __init__(self, content: str | list[Content], key: str | None, when_busy: WhenBusy) -> None:
        self.content = content
        self.key = key
        self.when_busy = when_busy


async def _send(config: Config, screen: Screen, name: str, given: Input) -> None:
    sent = Sent()
    with telling_of(sent):
        await _send_and_tell(config, screen, name, given, sent)


async def _send_and_tell(config: Config, screen: Screen, name: str, given: Input, sent: Sent) -> None:
    from outlast.runtime.awaiting import in_hands

    async with open_client(config) as client:
        session = client.session(await speakable(client.store, name))
        key = given.key
        known = key is not None and await client.store.settled(session.id, key) is not None
        held = 0 if known else await _held(client.store, session.id)
        turn = await session.send(given.content, key=given.key, when_busy=given.when_busy, actor="cli")
        sent.stored(session.id, turn.id)
        owned = await in_hands(client.store, session.id, turn.id)
        if given.when_busy != "queue":
            owned = await heard(client.store, session.id, turn.accepted(), screen)
        joins = await _joins(client.store, session.id, turn.id) if given.when_busy == "steer" else None
        before = await _since(session, turn.id) if known else None
        back = "" if owned else await way_on(client.store, session.id)
    if screen.as_json:
        screen.json_line(AcceptedLine(session.id, turn.id))
    else:
        queued = before or f"queued as turn {short(turn.id)} of session {session.id}"
        joining = joins and not before
        screen.out.line(f"given to turn {short(joins)}; if that ends first, {queued}" if joining else queued)
    if held:
        screen.note(f"the queue was held: it goes on with this input ({held} before it)")
    if not owned:
        screen.note(f"nobody runs this session now: {back}")


async def _since(session: Session, request_id: str) -> str | None:
    """What became of an input that was sent before, under the same key; None while it waits."""
    from outlast.state.messages import UserMessage

    view = await session.view()
    which = f"turn {short(request_id)} of session {session.id}"
    for turn in view.turns:
        if turn.turn == request_id and turn.outcome != "queued":
            return f"sent before: {which} {SINCE.get(turn.outcome, f'is {turn.outcome}')}"
    for said in view.messages:
        if isinstance(said, UserMessage) and said.request_id == request_id:
            return f"sent before: it joined turn {short(said.turn)} of session {session.id}"
    return None


async def _joins(store: Store, session: str, request_id: str) -> str | None:
    """The running turn that an input which its owner has taken is to join, or has joined."""
    from outlast.journal import read_records
    from outlast.records.types import InputAccepted

    taken = await store.settled(session, request_id)
    if taken is None:
        return None
    async for record in read_records(store, session, taken.seq - 1, large="outline"):
        return record.body.joins if isinstance(record.body, InputAccepted) else None
    return None


async def _held(store: Store, session: str) -> int:
    """How many inputs wait in a queue that is held, and goes on with the next one."""
    from outlast.journal import load_state
    from outlast.turns.lost import held_by_loss

    row = await store.listed(session)
    if row is None or row.entry.state != "parked" or not row.entry.queued:
        return 0
    state = await load_state(store, session)
    root = state.root or ""
    return len(state.queue) if root and state.loops[root].held and not held_by_loss(state, root) else 0
