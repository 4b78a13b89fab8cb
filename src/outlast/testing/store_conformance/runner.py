"""Runs checks one after the other and says how each came out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Literal

from outlast.testing.store_conformance.check import Check
from outlast.testing.store_conformance.expect import NotAsPromisedError, UnsupportedError
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.suite import CHECKS

OutcomeOfCheck = Literal["ok", "skipped", "failed"]

CHECK_SECONDS = 120.0
"""After which a check has failed: something in the store hangs."""


@dataclass(frozen=True, slots=True)
class Result:
    check: Check
    outcome: OutcomeOfCheck
    why: str = ""
    """For what is skipped or failed."""


def chosen(wanted: str = "", checks: Iterable[Check] = CHECKS) -> list[Check]:
    """The checks whose subject and sentence contain every word of `wanted`."""
    words = wanted.lower().replace("-", " ").replace("_", " ").split()
    return [
        check for check in checks if all(word in f"{check.subject} {check.name}".lower() for word in words)
    ]


async def run_check(harness: Harness, check: Check) -> None:
    """Raises UnsupportedError where it cannot be tried, anything else where the store fails it."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await check.run(harness)
    except TimeoutError as error:
        raise NotAsPromisedError(f"not ended after {CHECK_SECONDS:g} seconds") from error
    finally:
        await harness.close()


async def run(harness: Harness, checks: Iterable[Check] = CHECKS) -> AsyncIterator[Result]:
    """The result of each check as it ends; then the harness is done with."""
    try:
        for check in checks:
            yield await _result(harness, check)
    finally:
        await harness.end()


async def _result(harness: Harness, check: Check) -> Result:
    try:
        await run_check(harness, check)
    except UnsupportedError as error:
        return Result(check, "skipped", str(error))
    except NotAsPromisedError as error:
        return Result(check, "failed", str(error))
    except Exception as error:  # noqa: BLE001 - whatever a back end raises is a result
        return Result(check, "failed", f"{type(error).__name__}: {error}")
    return Result(check, "ok")
