"""Threads that codex began without outlast, and threads that somebody else drives."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import ONCE, THINK, CodexPlace, codex_place
from tests.support.processes import PATIENCE, until

from outlast.records.agent_state import AgentStateCaptured
from outlast.records.types import AgentSessionChanged, TurnFailed

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def codex_exec(place: CodexPlace, prompt: str) -> subprocess.Popen[bytes]:
    """Codex by itself, as a person runs it."""
    argv = [place.program, "exec", "--json", "--skip-git-repo-check", "-C", str(place.workspace), prompt]
    return subprocess.Popen(
        argv,
        env=place.environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def thread_of(place: CodexPlace) -> str:
    (rollout,) = until(lambda: place.rollouts, "codex has a rollout")
    return rollout.stem[-36:]


def begun_elsewhere(place: CodexPlace) -> str:
    """A thread with one turn."""
    assert codex_exec(place, ONCE).wait(PATIENCE) == 0
    return thread_of(place)


def users(place: CodexPlace) -> list[str]:
    return [item.text for item in place.told().of_kind("user")]


def test_a_thread_that_began_elsewhere_is_adopted(place: CodexPlace) -> None:
    """Shown first, then bound and captured; the next prompt goes on in it, nothing of it is sent again."""
    thread = begun_elsewhere(place)
    asked = len(place.model.requests)
    shown = place.call("adopt", "-a", "codex", thread, "--json")
    assert shown.status == 0, shown
    found = json.loads(shown.stdout)
    assert (found["turns"], found["workspace"], found["adopted"]) == (1, str(place.workspace), False)
    assert json.loads(place.call("ls", "--json").stdout or b"[]") in ([], {"sessions": []})
    adopted = place.call("adopt", "-a", "codex", "--session", "job", "--yes", thread)
    assert adopted.status == 0, adopted
    assert len(place.model.requests) == asked

    shutil.rmtree(place.home / "sessions")
    assert place.run("and now?", key="two").wait().status == 0
    assert users(place) == [ONCE, "and now?"]
    assert place.lines("begun") == 1
    journal = place.journal("job")
    bound = journal.bodies(AgentSessionChanged)[0]
    assert (bound.provider_session, bound.state, bound.source) == (thread, "confirmed", "resumed")
    assert bound.reason.startswith("adopted")
    assert journal.bodies(AgentStateCaptured)
    assert [turn["input"] for turn in place.show("job")["turns"]] == ["and now?"]


def test_wrong_adopt(place: CodexPlace) -> None:
    """Never another one than was named, never one that is a session's already, never a damaged one."""
    thread = begun_elsewhere(place)
    for wrong in (thread[:8], "newest", thread[:-1] + ("0" if thread[-1] != "0" else "1")):
        assert place.call("adopt", "-a", "codex", "--yes", wrong).status == 3
    assert place.call("adopt", "-a", "codex", "--session", "job", "--yes", thread).status == 0
    again = place.call("adopt", "-a", "codex", "--yes", thread)
    assert again.status == 4
    assert "it is session job's" in again.stderr
    place.state = place.root / "another"
    elsewhere = place.call("adopt", "-a", "codex", "--yes", thread)
    assert elsewhere.status == 4
    assert "it is session job's" in elsewhere.stderr


@pytest.mark.parametrize("home", ["here", "elsewhere"])
def test_an_adopted_thread_is_let_go_where_its_agent_is_not_configured(place: CodexPlace, home: str) -> None:
    """By what its claim says of itself. In another home there is none: it stays, and the close says so."""
    thread = begun_elsewhere(place)
    assert place.call("adopt", "-a", "careful", "--session", "job", "--yes", thread).status == 0
    text = place.config.read_text("utf-8")
    place.config.write_text(text.partition("[agents.careful]")[0], "utf-8")
    variables = dict(place.variables)
    if home == "elsewhere":
        place.variables["CODEX_HOME"] = str(place.root / "another-home")
    closed = place.call("close", "job")
    place.variables = variables
    assert closed.status == 0, closed
    assert (f"no claim of it on {thread} is in" in closed.stderr) is (home == "elsewhere")
    again = place.call("adopt", "-a", "codex", "--session", "other", "--yes", thread)
    assert again.status == (0 if home == "here" else 4), again
    if home == "elsewhere":
        assert "it is session job's" in again.stderr


def test_a_thread_that_is_at_work_is_not_adopted(place: CodexPlace) -> None:
    working = codex_exec(place, THINK)
    try:
        place.until_model_is_asked(THINK)
        refused = place.call("adopt", "-a", "codex", "--yes", thread_of(place))
        assert refused.status == 4
        assert f"process {working.pid} (" in refused.stderr
        assert ") has it open" in refused.stderr
        place.model.go_on()
        assert working.wait(PATIENCE) == 0
    finally:
        working.kill()
        working.wait()


def test_double_writer(place: CodexPlace) -> None:
    """Two stores with the same session on one machine: while an agent of the one lives, the other starts
    none, and says whose it is; afterwards it may."""
    assert place.run("first").wait().status == 0
    shutil.copytree(place.state, place.root / "copy", ignore=shutil.ignore_patterns("sock"))
    runtime = place.run(THINK, key="two")
    place.until_model_is_asked(THINK)
    place.state, original = place.root / "copy", place.state
    refused = place.run("third", key="three").wait()
    failed = place.journal("job").the(TurnFailed, "three").receipt.error
    place.state = original
    place.model.go_on()

    assert runtime.wait().status == 0
    assert refused.status == 1
    assert failed.code == "session_in_use"
    assert f"session job in {original}" in failed.message
    assert users(place)[-1] == THINK
