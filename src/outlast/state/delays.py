"""Turns that failed and wait to be tried again by themselves: open, or returned to the queue by a restore."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.clock import isoformat
from outlast.state.model import Delay, State


def delays(state: State) -> Iterator[tuple[str, Delay]]:
    """Each with what it waits for, by turn."""
    for name, turn in state.open_turns.items():
        if turn.delay is not None:
            yield name, turn.delay
    for queued in state.queue.marked():
        if queued.delay is not None:
            yield queued.request_id, queued.delay


def delayed(state: State, wanted: str | None = None) -> str | None:
    """The turn `wanted`, or any where that is None, if it waits."""
    return next((turn for turn, _ in delays(state) if wanted in (None, turn)), None)


def delay_json(delay: Delay) -> dict[str, object]:
    """A wait as `show --json`, `ls --json` and `plan --json` have it."""
    return {
        "until": isoformat(delay.until),
        "code": delay.code,
        "message": delay.message,
        "retry": delay.retry,
        "of": delay.of,
    }
