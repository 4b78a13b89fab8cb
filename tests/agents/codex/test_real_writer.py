"""A codex thread that another codex has open: told as that, nothing lost, nothing written beside it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.agents.codex.real import CodexPlace, codex_place

from outlast.agents.codex.binary import find_codex
from outlast.records.types import AgentSessionChanged, TurnFailed, TurnParked

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


@contextmanager
def open_elsewhere(place: CodexPlace, thread: str) -> Iterator[None]:
    """The user's own codex, with the session's thread open."""
    environ = {**place.environ(), "CODEX_HOME": str(place.home)}
    program = str(find_codex(None, environ))
    client = {"name": "editor", "title": "editor", "version": "1"}
    with subprocess.Popen(
        [program, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environ,
        cwd=place.workspace,
    ) as codex:
        assert codex.stdin is not None
        assert codex.stdout is not None
        for number, (method, params) in enumerate(
            (("initialize", {"clientInfo": client}), ("thread/resume", {"threadId": thread}))
        ):
            codex.stdin.write(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
            codex.stdin.flush()
            while json.loads(line := codex.stdout.readline()).get("id") != number:
                pass
            assert b'"error"' not in line[:40]
        yield
        codex.stdin.close()
        assert codex.wait() == 0


def test_double_writer_a_thread_that_another_codex_has_open_waits_for_a_person(place: CodexPlace) -> None:
    assert place.run("first").wait().status == 0
    with open_elsewhere(place, place.threads[0]):
        (planned,) = json.loads(place.call("plan", "job", "--json").stdout)["next_sessions"]
        assert (planned["action"], planned["error"]) == ("refuse", "session_in_use")
        assert "another process has " in planned["reason"]
        refused = place.run("second", key="two").wait()
        asked = len(place.model.requests)
    assert "another process has " in refused.stderr, refused
    assert asked == 1

    journal = place.journal("job")
    receipt = journal.the(TurnFailed, "two").receipt
    assert (receipt.failed_phase, receipt.error.code) == ("host_launch", "session_in_use")
    assert journal.the(TurnParked, "two").detail
    assert [body.state for body in journal.bodies(AgentSessionChanged)] == ["bound", "confirmed"]

    assert place.call("retry", "job").status == 0
    resumed = place.resume()
    assert resumed.status == 0, resumed
    assert [item.text for item in place.told().of_kind("user")] == ["first", "second"]
    place.assert_one_thread()
