"""Fixtures of tests that use a store: a real one, in a folder of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.store.contract import Store
from outlast.store.url import open_store, sqlite_url


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path / "store" / "x.db")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = await open_store(url)
    yield opened
    await opened.close()
