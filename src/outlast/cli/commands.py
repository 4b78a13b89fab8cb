"""`cancel`, `kill`, `close`, `retry`, `skip`: one word to a session, and what it came to."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, TypeAlias

import click

from outlast.cli.contact import open_client, open_runtime, speakable
from outlast.cli.exits import Exit
from outlast.cli.options import json_option, session_argument, turn_argument
from outlast.cli.output import Screen, visible
from outlast.cli.owners import heard, next_owner
from outlast.cli.running import run_async
from outlast.cli.shapes import ResultLine
from outlast.cli.stored import loaded_config
from outlast.errors import TurnNotFoundError

if TYPE_CHECKING:
    from outlast.config import Config
    from outlast.records.agent_state import LostChoice
    from outlast.runtime.handles import Session, Settled
    from outlast.store.contract import Store

Order: TypeAlias = "Callable[[Session, str | None], Awaitable[Settled]]"


@dataclass(frozen=True, slots=True)
class Said:
    """The words for what a command came to."""

    done: str
    too_late: str
    fails: bool = False
    """Whether coming too late is a failure: it is where the command was to bring something about."""


@click.command("cancel")
@session_argument
@turn_argument
@json_option()
def cancel_command(session: str, turn: str | None, as_json: bool) -> int:
    """Cancel the running turn; the queue is held until the next input or `outlast resume`.

    A retry that nobody has taken yet is taken back. Where no turn runs, the inputs that wait are held. TURN
    names one turn, or an input that waits: that one is taken out of the queue. Exits 4 when TURN is over.
    """

    async def cancel(handle: Session, which: str | None) -> Settled:
        return await handle.cancel(which, actor="cli")

    said = Said("cancelled", "nothing was cancelled")
    if turn is not None:
        said = Said("cancelled", "not cancelled", fails=True)
    return _owning(session, as_json, cancel, said, turn=turn)


@click.command("kill")
@session_argument
@click.option(
    "--force", is_flag=True, help="Also where the owner hangs: it is ended first (SIGKILL, verified)."
)
@json_option()
def kill_command(session: str, force: bool, as_json: bool) -> int:
    """End a session's agent with its whole process tree, verified; the running turn ends as cancelled."""
    said = Said("the agent is gone, with everything that it had started", "no agent was ended")
    how = Ending(force=force)
    return _owning(session, as_json, lambda handle, _: handle.kill(actor="cli"), said, how)


@click.command("close")
@session_argument
@json_option()
def close_command(session: str, as_json: bool) -> int:
    """End a session the normal way: turn interrupted, agent ended. The next input opens it again."""
    said = Said("closed; its next input opens it again", "it was closed already")
    return _owning(session, as_json, lambda handle, _: handle.close(actor="cli"), said, Ending())


@click.command("retry")
@session_argument
@turn_argument
@click.option("--fresh", "choice", flag_value="fresh", help="In a new agent session that knows nothing yet.")
@click.option(
    "--reseed", "choice", flag_value="reseed", help="In a new agent session that is told what happened."
)
@click.option(
    "--put-back", "choice", flag_value="put_back", help="In the agent session as it was captured last."
)
@click.option("--as-is", "choice", flag_value="as_is", help="In the agent session as it is there, damaged.")
@json_option()
def retry_command(session: str, turn: str | None, choice: LostChoice | None, as_json: bool) -> int:
    """Send a failed, interrupted, parked or skipped turn to its agent again.

    What the turn had already done may happen again: only you can know that this is right. Without TURN it
    is the newest that did not end as done. A turn that waits to be tried again by itself is tried now, as it
    was planned. Exits 4 when there is nothing to retry, or when a contrary word came first.

    Where the agent's own session is lost, say how to go on: --put-back, --as-is, --reseed or --fresh. What
    is in the way is kept aside.
    """
    said = Said("the turn begins again", "nothing to retry", fails=True)

    async def retry(handle: Session, which: str | None) -> Settled:
        return await handle.retry(which, session=choice, actor="cli")

    return _asking(session, turn, as_json, retry, said)


@click.command("skip")
@session_argument
@turn_argument
@json_option()
def skip_command(session: str, turn: str | None, as_json: bool) -> int:
    """Give a turn up that is parked or waits to be tried again, or release a held queue; the queue goes on.

    A turn that was left so can still be retried. Exits 4 when there is none of them, or when a contrary word
    came first.
    """
    said = Said("left as it is; the queue goes on", "nothing to skip", fails=True)
    return _asking(session, turn, as_json, lambda handle, which: handle.skip(which, actor="cli"), said)


# --- cancel, kill, close: also of a session that nobody owns --------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """The agent is to be ended; `force`: also where its owner hangs."""

    force: bool = False


def _owning(
    name: str,
    as_json: bool,
    order: Order,
    said: Said,
    ending: Ending | None = None,
    *,
    turn: str | None = None,
) -> int:
    screen = Screen(os.environ, as_json=as_json)
    config = loaded_config(screen, name)
    session, settled = run_async(screen, _take_and_order(config, (name, turn), order, screen, ending))
    return tell(screen, session, settled, said)


async def _take_and_order(
    config: Config, typed: tuple[str, str | None], order: Order, screen: Screen, ending: Ending | None
) -> tuple[str, Settled]:
    """Of a session that nobody owns the lease is taken for the order and given back: no turn is begun for
    it, and an agent that is still at work then is left at work."""
    async with open_runtime(config) as runtime:
        name, turn = typed
        session = runtime.session(await runtime.store.find(name))
        which = None if turn is None else await _turn(session, turn)
        ends = ending is not None
        await runtime.visit(session.id, ends_agent=ends)
        asked = asyncio.ensure_future(order(session, which))
        hung = None
        if ending is not None and ending.force:
            done, _ = await asyncio.wait([asked], timeout=HANGS_AFTER)
            if not done:
                hung = await runtime.store.holder(session.id)
                await runtime.visit(session.id, take_over=True, ends_agent=True)
        settled = await heard(runtime.store, session.id, asked, screen)
        if settled.result == "queued" and await runtime.visit(session.id, ends_agent=ends) is not None:
            await session.quiet()
            settled = type(settled)("done")
        if hung is not None:
            ended = f"{hung.label} did not answer and was ended; the agent is gone"
            settled = type(settled)(settled.result, settled.detail or ended)
        if ending is None and which is None and settled == type(settled)("done"):
            settled = type(settled)("done", await _and_held(runtime.store, session.id))
        actor = runtime.actor(session.id)
        if actor is not None:
            await (session.detach() if actor.state.running else session.finish())
        return session.id, await with_next_owner(runtime.store, session.id, settled)


async def _and_held(store: Store, session: str) -> str:
    """What a cancel did: of a queue in which nothing waits nobody needs to know that it is held."""
    row = await store.listed(session)
    waiting = 0 if row is None else row.entry.queued + row.pending
    return f"cancelled; the queue is held ({waiting} waiting)" if waiting else ""


HANGS_AFTER = 2.0
"""Seconds that `--force` gives a living owner to carry the order out itself."""


# --- retry, skip: the owner's to do, now or when there is one -------------------------------------


def _asking(name: str, turn: str | None, as_json: bool, order: Order, said: Said) -> int:
    screen = Screen(os.environ, as_json=as_json)
    session, settled = run_async(screen, _ask(screen, name, turn, order))
    return tell(screen, session, settled, said)


async def _ask(screen: Screen, name: str, turn: str | None, order: Order) -> tuple[str, Settled]:
    async with open_client(loaded_config(screen)) as client:
        session = client.session(await speakable(client.store, name))
        which = None if turn is None else await _turn(session, turn)
        settled = await heard(client.store, session.id, order(session, which), screen)
        return session.id, await with_next_owner(client.store, session.id, settled)


async def with_next_owner(store: Store, session: str, settled: Settled) -> Settled:
    """What is kept says for whom."""
    match settled.result:
        case "queued":
            return type(settled)("queued", await next_owner(store, session))
        case "taken":
            return type(settled)("taken", f"{settled.detail}: {await next_owner(store, session)}")
        case _:
            return settled


async def _turn(session: Session, typed: str) -> str:
    """The turn, or the input that waits, whose id is, or alone begins with, what was typed, or the turn of
    that number, as `show` counts them; `#N` is the number alone. Raises TurnNotFoundError."""
    from outlast.cli.text import short
    from outlast.state.messages import UserMessage

    view = await session.view()
    turns = list(dict.fromkeys([turn.turn for turn in view.turns] + [each.request_id for each in view.queue]))
    fitting = [typed] if typed in turns else [turn for turn in turns if typed and turn.startswith(typed)]
    counted = [turn.turn for turn in view.turns if turn.index and str(turn.index) == typed.removeprefix("#")]
    if typed not in turns:
        fitting = list(dict.fromkeys([*counted, *fitting]))
    if len(fitting) == 1:
        return fitting[0]
    joined = {each.request_id: each.turn for each in view.messages if isinstance(each, UserMessage)}
    inputs = [one for one, turn in joined.items() if one != turn and typed and one.startswith(typed)]
    if not fitting and len(inputs) == 1:
        turn = joined[inputs[0]]
        raise TurnNotFoundError(
            f"input {short(inputs[0])} of session {session.id} is no turn of its own: it joined turn {turn}",
            hint="name that turn",
            session_id=session.id,
        )
    raise TurnNotFoundError(
        f"session {session.id} has {'no turn' if not fitting else 'several turns'} {typed!r}",
        hint=f"`outlast show {quote(session.id)}` lists them",
        session_id=session.id,
    )


# --- telling --------------------------------------------------------------------------------------


def tell(screen: Screen, session: str, settled: Settled, said: Said) -> int:
    if screen.as_json:
        screen.json_line(ResultLine(session, settled.result, settled.detail))
    else:
        text = {
            "done": settled.detail or said.done,
            "too_late": f"{said.too_late}: {settled.detail}" if settled.detail else said.too_late,
            "queued": settled.detail,
            "taken": f"too late: {settled.detail}",
        }.get(settled.result, f"refused: {settled.detail}")
        screen.out.line(visible(text))
    if settled.result in ("done", "queued"):
        return Exit.OK
    if settled.result == "taken":
        return Exit.CONFLICT
    if settled.result == "too_late":
        return Exit.CONFLICT if said.fails else Exit.OK
    return Exit.FAILED
