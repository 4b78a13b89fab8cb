"""Every store that outlast has keeps the contract, in one process and with a process for each incarnation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from outlast.store.url import sqlite_url
from outlast.testing.store_conformance import (
    CHECKS,
    Check,
    Harness,
    InMemory,
    Sqlite,
    SqliteProcesses,
    UnsupportedError,
    run_check,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAYS = {"memory": InMemory, "sqlite": Sqlite, "sqlite in processes": SqliteProcesses}
QUICK = ("memory", "sqlite")
PARAMS = [pytest.param(way, marks=() if way in QUICK else pytest.mark.slow) for way in WAYS]


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=PARAMS)
async def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Harness]:
    way = str(request.param)
    folder: Path = tmp_path_factory.mktemp("store")
    made = WAYS[way]("memory://" if way == "memory" else sqlite_url(folder / "x.db"))
    yield made
    await made.end()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
async def test_the_store_keeps_the_contract(harness: Harness, check: Check) -> None:
    try:
        await run_check(harness, check)
    except UnsupportedError as error:
        pytest.skip(str(error))
