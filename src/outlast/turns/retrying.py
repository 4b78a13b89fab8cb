"""Whether a failed turn is tried again by itself, and when (pure).

A policy repeats only what can do nothing twice: the agent ended the turn itself, says how it can be taken up
(`Failure.retry`), and what the journal saw of the turn does not speak against it. All else is a person's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from outlast.agents.contract import Failure
from outlast.agents.failure import kind_of
from outlast.agents.retry import RETRY_ATTEMPTS, RetryPolicy, chance_of, sensible
from outlast.clock import Micros, isoformat
from outlast.records.types import PlannedRetry
from outlast.state.model import Closed, Delay, OpenTurn
from outlast.turns.budget import ATTEMPTS_TOTAL

MESSAGE_SHOWN = 300
"""Characters of what the agent said of a quota."""


@dataclass(frozen=True, slots=True)
class Boot:
    """What a clock says that nobody can set: `time` is in nanoseconds, comparable within the boot `id`."""

    id: str
    time: int


@dataclass(frozen=True, slots=True)
class Judging:
    """What a failure is judged by, beside the journal. `attempts`: the agent's limit of retries in a row."""

    now: Micros
    attempts: int = RETRY_ATTEMPTS
    boot: Boot | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """The turn waits for a person, and the queue behind it. `why` says until when, where that is known."""

    why: str


Verdict = PlannedRetry | Parked | None
"""None: the turn has failed, and that is all."""


def judged(session: str, turn: OpenTurn, failure: Failure, judging: Judging) -> Verdict:
    """What follows the failure of the open `turn`."""
    kind = kind_of(failure.code)
    if kind.parks:
        quota = failure.code == "quota_exhausted"
        return Parked(_renewal(failure, judging.now) if quota else failure.message or kind.sentence)
    policy, mode = kind.retry, _mode(turn, failure)
    if policy is None or mode is None:
        return None
    retry, most = turn.retries + 1, min(policy.attempts, judging.attempts)
    if retry > most or turn.given >= ATTEMPTS_TOTAL:
        return None
    asked = _asked(failure)
    if asked is not None and not policy.bears(asked):
        return Parked(_too_long(asked, policy, judging.now))
    wait = policy.wait(retry, asked, chance_of(session, turn.turn, turn.attempts))
    until = isoformat(judging.now + int(wait * 1_000_000))
    boot = judging.boot
    return PlannedRetry(
        mode=mode,
        retry=retry,
        of=most,
        wait=wait,
        not_before=until,
        boot_id=boot.id if boot else "",
        due=boot.time + int(wait * 1e9) if boot else 0,
    )


def by_person(closed: Closed, *, holds_prompts: bool) -> Literal["again", "continue"]:
    """How a person's retry takes up a turn. One that was parked for a failure of a kind that is judged here
    goes the way of a retry by itself: an agent whose session tells whether it holds the input
    (`holds_prompts`) is asked to go on, and given it where it is not there. All else is given anew."""
    kind = kind_of(closed.code)
    by_rule = closed.outcome == "parked" and (kind.parks or kind.retry is not None)
    if not by_rule or closed.host_done is not None or not closed.given:
        return "again"
    return "continue" if holds_prompts else "again"


def left_of(delay: Delay, now: Micros, boot: Boot) -> float:
    """Seconds that are still to be waited by an owner that comes to the turn now. In the boot in which it was
    planned the clock counts that nobody can set. After it, or elsewhere, only the wall clock is left,
    which may have been set: the owner never waits for longer than was planned."""
    same = delay.boot_id != "" and delay.boot_id == boot.id
    left = (delay.due - boot.time) / 1e9 if same else (delay.until - now) / 1_000_000
    return min(max(0.0, left), delay.wait)


def _mode(turn: OpenTurn, failure: Failure) -> Literal["again", "continue"] | None:
    if failure.retry is None or turn.open_calls or turn.more_calls:
        return None  # What became of a call is not known.
    if turn.mode == "continue":
        return "continue"  # Whether or not the agent took that in: it was never to be given its input anew.
    return None if failure.retry == "again" and turn.calls else failure.retry


def _renewal(failure: Failure, now: Micros) -> str:
    seconds = _asked(failure)
    if seconds is None:
        said = failure.message[:MESSAGE_SHOWN] or "when it is renewed is not known"
        return f"the quota is used up: {said}"
    return f"the quota is used up; it is renewed in {in_words(seconds)}, {_at(seconds, now)}"


def _too_long(seconds: float, policy: RetryPolicy, now: Micros) -> str:
    asked = f"the provider asks to be left alone for {in_words(seconds)}, until {_at(seconds, now)}"
    return f"{asked}: more than the {in_words(policy.patience)} that are waited by itself"


def _at(seconds: float, now: Micros) -> str:
    at = datetime.fromtimestamp(now / 1_000_000 + seconds, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _asked(failure: Failure) -> float | None:
    """What the journal holds from an adapter that let any number through is no time either."""
    return sensible(failure.retry_after)


def in_words(seconds: float) -> str:
    """A length of time for people: `12 s`, `5 min`, `2 h 10 min`, `3 d 4 h`."""
    whole = math.ceil(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = math.ceil(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    (large, of_large), (small, of_small) = (
        (("h", minutes // 60), ("min", minutes % 60))
        if minutes < 48 * 60
        else (("d", minutes // 1440), ("h", minutes % 1440 // 60))
    )
    return f"{of_large} {large} {of_small} {small}" if of_small else f"{of_large} {large}"
