"""Waiting for a turn's time: by a clock that nobody can set, and only as long as nobody wants otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from outlast.clock import Micros
from outlast.state.model import Delay
from outlast.turns import waiting
from outlast.turns.waiting import Wait

HOUR = 3_600_000_000
UNTIL = 1_790_000_000_000_000
DELAY = Delay(until=UNTIL, wait=60.0, retry=1, of=8, code="rate_limited", message="slow down")


class Clocks:
    """Time that passes only where somebody waits: `sleeps` are what was waited, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boot = 5.0
        self.boot_id = "another"
        self.wall = UNTIL - 60_000_000
        self.sleeps: list[float] = []
        self.then: Callable[[], None] = lambda: None
        self.open = SimpleNamespace(delay=DELAY)
        self.stopped = False
        self.parked = 0
        monkeypatch.setattr(waiting, "boottime", lambda: int(self.boot * 1e9))
        monkeypatch.setattr(waiting, "boot_id", lambda: self.boot_id)
        monkeypatch.setattr(waiting, "now", lambda: Micros(self.wall))
        monkeypatch.setattr(Wait, "_woken", self._woken)

    async def _woken(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.boot += seconds
        self.then()

    async def _park(self) -> None:
        self.parked += 1

    def over(self, idle_park: float | None = None) -> bool:
        journal: Any = SimpleNamespace(state=SimpleNamespace(open_turns={"t": self.open}))
        wait = Wait(journal, "t", asyncio.Event(), lambda: self.stopped, self._park, idle_park)
        return asyncio.run(wait.over())

    @property
    def waited(self) -> float:
        return sum(self.sleeps)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_what_is_not_delayed_is_not_waited_for(clocks: Clocks) -> None:
    clocks.open.delay = None
    assert clocks.over()
    assert clocks.sleeps == []


def test_the_rest_is_waited_for(clocks: Clocks) -> None:
    clocks.wall += 45_000_000
    assert clocks.over()
    assert clocks.waited == 15.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_clock_jump(clocks: Clocks, jump: int) -> None:
    """A clock that is set while somebody waits changes nothing."""

    def jumps() -> None:
        clocks.wall += jump

    clocks.then = jumps
    assert clocks.over()
    assert clocks.waited == 60.0


def test_a_clock_that_was_set_back_before_costs_the_wait_once_more(clocks: Clocks) -> None:
    clocks.wall -= HOUR
    assert clocks.over()
    assert clocks.waited == 60.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_clock_jump_before_a_later_owner_changes_nothing_in_the_same_boot(clocks: Clocks, jump: int) -> None:
    clocks.open.delay = replace(DELAY, boot_id="this", due=int(65e9))
    clocks.boot_id = "this"
    clocks.boot += 20.0
    clocks.wall += jump
    assert clocks.over()
    assert clocks.waited == 40.0


def test_after_a_reboot_the_wall_clock_is_all_there_is(clocks: Clocks) -> None:
    clocks.open.delay = replace(DELAY, boot_id="this", due=int(65e9))
    clocks.wall += 45_000_000
    assert clocks.over()
    assert clocks.waited == 15.0


def test_a_sleep_of_the_machine_counts(clocks: Clocks) -> None:
    """The loop's own clock stands still in it: it is looked again before the wait would be over by that."""

    def sleeps() -> None:
        clocks.boot += 3600

    clocks.then = sleeps
    assert clocks.over()
    assert clocks.waited <= waiting.LOOK_AGAIN


@pytest.mark.parametrize("wish", ["stop", "retry"])
def test_a_wish_ends_the_wait_at_once(clocks: Clocks, wish: str) -> None:
    def wishes() -> None:
        if wish == "stop":
            clocks.stopped = True
        else:
            clocks.open.delay = None

    clocks.then = wishes
    assert clocks.over() is (wish == "retry")
    assert len(clocks.sleeps) == 1


def test_an_agent_without_work_is_ended_in_a_long_wait(clocks: Clocks) -> None:
    assert clocks.over(idle_park=20.0)
    assert (clocks.parked, clocks.waited) == (1, 60.0)
    clocks.parked = 0
    assert clocks.over(idle_park=900.0)
    assert clocks.parked == 0
