"""An answer to a question that is open no more."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.crash.test_plan_is_what_resume_does import Place, given

from outlast.journal import load, snapshots
from outlast.turns.requests import AnswerRequest


@pytest.mark.slow
async def test_a_late_answer_ends_no_owner_where_an_old_record_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner lives on the snapshot; only who wants to tell the first answer reads further back."""
    monkeypatch.setattr(snapshots, "LEAST", 1_024)
    place = Place(tmp_path, "skip", "continue")
    async with place.runtime() as runtime:
        session = runtime.session("s", workspace=place.path / "work")
        for number in range(8):
            await (await session.send(f"[[say:{number}]]", agent="a")).result()
        await session.finish()
        assert (await load(runtime.store, "s")).verified_from > 9
    with sqlite3.connect(place.path / "x.db") as database:
        assert database.execute("UPDATE record SET body = x'7b7d' WHERE seq = 9").rowcount == 1
    async with place.runtime() as runtime:
        await given(runtime, [("answer", AnswerRequest(gate="gone", choice="yes"))])
        session = await runtime.restore("s")
        assert (await (await session.send("[[say:more]]")).result()).text == "more"
        assert await runtime.store.pending("s") == []
        await session.finish()
