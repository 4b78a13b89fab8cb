"""`python -m outlast.testing.store_conformance`, as somebody runs it against a store of his own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from outlast.store.contract import Append, Store
from outlast.store.memory.store import MemoryStore
from outlast.store.url import sqlite_url
from outlast.testing.store_conformance import CHECKS


class Forgetful(MemoryStore):
    """Acknowledges what it does not store."""

    async def append(self, batch: Append) -> int:
        return batch.expected_seq + len(batch.rows)


async def open_forgetful(url: str, label: str) -> Store:
    return Forgetful.open(url, label)


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "outlast.testing.store_conformance", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def test_a_store_that_keeps_the_contract_is_told_so_in_sentences() -> None:
    done = call("memory://")
    assert (done.returncode, done.stderr) == (0, "")
    first, *lines, last = done.stdout.splitlines()
    assert first == "in one process:"
    assert len(lines) == len(CHECKS)
    assert "ok   leases: a stale release frees nobody" in lines
    assert last.endswith("skipped, 0 failed")


def test_each_skipped_check_says_why(tmp_path: Path) -> None:
    done = call(sqlite_url(tmp_path / "x.db"), "--json", "-k", "fence replaced")
    assert (done.returncode, done.stderr) == (0, "")
    *results, counts = [json.loads(line) for line in done.stdout.splitlines()]
    assert {result["way"] for result in results} == {"in one process", "a process each"}
    assert all(result["why"] for result in results if result["outcome"] == "skipped")
    assert counts["failed"] == 0
    assert counts["ok"] > 0
    assert counts["ok"] + counts["skipped"] == len(results)


def test_a_back_end_of_others_is_named_by_its_opener_and_its_failures_are_told() -> None:
    opener = f"{__name__}:open_forgetful"
    done = call("memory://forgetful", "--opener", opener, "-k", "ledger page")
    assert done.returncode == 1, done
    assert "FAIL ledger: a page holds what follows and no more than its limit (" in done.stdout
    assert "a process each:" in done.stdout


def test_a_wrong_call_is_a_usage_error_and_the_checks_can_be_listed() -> None:
    for arguments in ((), ("nothing://x",), ("memory://", "-k", "no such words"), ("memory://a/b",)):
        done = call(*arguments)
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr
    listed = call("--list").stdout.splitlines()
    assert listed == [f"{check.subject}: {check.name}" for check in CHECKS]


def test_the_suite_needs_no_pytest() -> None:
    code = "import sys, outlast.testing.store_conformance; print('pytest' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "False"
