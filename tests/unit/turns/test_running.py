"""The lock of a body: held for as long as anything of it runs, by whomever it was left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outlast.turns.effects import EffectContext
from outlast.turns.running import BodyLock, begin

GIVEN = EffectContext("s", "t", "push", "write_back", "k", 1, "/", "", "end_turn")


def taken(folder: Path) -> BodyLock:
    lock = BodyLock(folder, "e")
    assert lock.take()
    return lock


def is_free(folder: Path) -> bool:
    lock = BodyLock(folder, "e")
    found = lock.take()
    lock.release()
    return found


def left_over(folder: Path) -> list[Path]:
    return list(folder.iterdir())


class Watched(BodyLock):
    def __init__(self, folder: Path, effect: str) -> None:
        super().__init__(folder, effect)
        self.released = threading.Event()

    def release(self) -> None:
        super().release()
        self.released.set()


async def works(given: EffectContext) -> str:
    return "done"


@pytest.mark.parametrize(
    "function", [works, lambda given: "done", lambda given: works(replace(given, body=2))]
)
async def test_a_body_that_has_ended_holds_nothing(tmp_path: Path, function: Callable[..., Any]) -> None:
    assert await begin(function, GIVEN, taken(tmp_path)) == "done"
    await asyncio.sleep(0)
    assert left_over(tmp_path) == []
    assert is_free(tmp_path)


async def test_a_body_that_raises_holds_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        await begin(lambda given: 1 // 0, GIVEN, taken(tmp_path))
    await asyncio.sleep(0)
    assert is_free(tmp_path)


async def test_a_body_that_was_cancelled_before_it_began_holds_nothing(tmp_path: Path) -> None:
    task = begin(lambda given: None, GIVEN, taken(tmp_path))
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert is_free(tmp_path)


async def test_a_body_in_a_thread_holds_it_until_that_ends(tmp_path: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    lock = Watched(tmp_path, "e")
    assert lock.take()

    def body(given: EffectContext) -> None:
        begun.set()
        goes_on.wait(30)

    task = begin(body, GIVEN, lock)
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert not is_free(tmp_path)
    goes_on.set()
    assert await asyncio.to_thread(lock.released.wait, 30)
    assert is_free(tmp_path)


def test_who_finds_the_file_of_one_that_was_given_back_takes_a_new_one(tmp_path: Path) -> None:
    first = taken(tmp_path)
    assert not is_free(tmp_path)
    first.release()
    first.release()
    second = taken(tmp_path)
    assert not is_free(tmp_path)
    second.release()
    assert left_over(tmp_path) == []
