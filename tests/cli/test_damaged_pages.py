"""Damage to the database's own pages: what the doctor and `verify` say of it, in the order that mends it."""

from __future__ import annotations

from typing import Any

import apsw
import pytest
from tests.cli.support import Shell


def leaves(shell: Shell) -> list[int]:
    """The pages that records lie in; the log is in the file by then."""
    connection = apsw.Connection(str(shell.state / "outlast.db"))
    connection.pragma("wal_checkpoint", "truncate")
    found = connection.execute("SELECT pageno FROM dbstat WHERE name = 'record' AND pagetype = 'leaf'")
    pages = [int(page) for (page,) in found]
    connection.close()
    return pages


@pytest.fixture
def spoilt(shell: Shell) -> Shell:
    """Two sessions, one page lost: it holds the end of the first and the beginning of the second."""
    for session in ("one", "two"):
        for _ in range(2):
            assert shell.run("run", "-a", "scripted", "--session", session, "x" * 3000).code == 0
    pages = leaves(shell)
    with (shell.state / "outlast.db").open("r+b") as file:
        file.seek((pages[1] - 1) * 8192)
        file.write(b"\xff" * 200)
    return shell


def faults(shell: Shell) -> list[dict[str, Any]]:
    findings = shell.run("doctor", "--json").lines[0]["findings"]
    return [found for found in findings if found["level"] == "fault"]


def test_the_database_is_mended_first_and_each_journal_is_named(spoilt: Shell) -> None:
    pages, *journals = faults(spoilt)
    assert (pages["check"], pages["remedy"]) == ("store", "outlast repair --database")
    assert "***" not in pages["message"], "a heading of SQLite's says nothing"
    assert "page" in pages["message"]
    assert [found["session"] for found in journals] == ["one", "two"]
    for found in journals:
        assert f"the journal of {found['session']}" in found["message"]
        assert found["remedy"] == f"outlast repair --database; then outlast verify {found['session']}"
    for session in ("one", "two"):
        verdict = spoilt.run("verify", session, "--json").lines[0]
        assert verdict["remedy"] == "outlast repair --database"
        assert verdict["fault"]["noted"] > verdict["records"], "the witness knows how far it was"


def test_a_record_that_is_missing_is_told_as_missing(spoilt: Shell) -> None:
    """Not as one that refers to itself: it is a later one that refers to what is gone."""
    assert spoilt.run("repair", "--database").code == 0
    two = spoilt.run("verify", "two", "--json").lines[0]
    assert (two["fault"]["kind"], two["fault"]["seq"], two["fault"]["reason"]) == ("record", 1, "missing")
    assert two["fault"]["noted"] > 1
    one = spoilt.run("verify", "one", "--json").lines[0]
    assert (one["fault"]["kind"], one["remedy"]) == ("shorter", "outlast repair one")
    assert {found["remedy"].partition(":")[0] for found in faults(spoilt)} == {
        "put a backup back, or outlast repair one",
        "put a backup back, or outlast repair two --anew",
    }
    for session in ("one", "two"):
        assert spoilt.json("repair", session, "--anew")["repaired"]
    assert faults(spoilt) == []
