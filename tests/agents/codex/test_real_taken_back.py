"""Turns that a person takes back in codex itself: a verdict and a choice, never a history that silently lacks
what was done in them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.codex.real import ONCE, CodexPlace, codex_place
from tests.agents.codex.test_real_lost import killed_after_a_call

from outlast.records.types import InputReserved, TurnFailed
from outlast.testing.scripted_model import Reply

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


class Editor:
    """The user's own codex, as an editor drives it."""

    def __init__(self, codex: subprocess.Popen[bytes]) -> None:
        self._codex, self._number = codex, 0

    def ask(self, method: str, **params: object) -> Any:
        """The result of a request."""
        assert self._codex.stdin is not None
        assert self._codex.stdout is not None
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        self._codex.stdin.write(json.dumps(request).encode() + b"\n")
        self._codex.stdin.flush()
        while True:
            said = json.loads(self._codex.stdout.readline())
            if said.get("id") == self._number:
                return said["result"]


def take_back_the_newest_turn(place: CodexPlace) -> None:
    with subprocess.Popen(
        [place.program, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=place.environ(),
        cwd=place.workspace,
    ) as codex:
        editor, thread = Editor(codex), place.threads[0]
        client = {"name": "editor", "title": "editor", "version": "1"}
        editor.ask("initialize", clientInfo=client, capabilities={"experimentalApi": True})
        editor.ask("thread/resume", threadId=thread)
        newest = editor.ask("thread/turns/list", threadId=thread)["data"][0]["id"]
        editor.ask("thread/revert", threadId=thread, beforeTurnId=newest)
        assert codex.stdin is not None
        codex.stdin.close()
        assert codex.wait() == 0


def users(place: CodexPlace) -> list[str]:
    return [item.text for item in place.told().of_kind("user")]


@pytest.mark.parametrize("choice", ["as-is", "put-back", "reseed"])
def test_a_turn_that_was_taken_back_in_codex_is_a_verdict_and_each_choice_goes_on(
    place: CodexPlace, choice: str
) -> None:
    assert place.run("first").wait().status == 0
    assert place.run(ONCE, key="two").wait().status == 0
    take_back_the_newest_turn(place)
    failed = place.run("third", key="three").wait()

    assert failed.status == 6, failed
    error = place.journal("job").the(TurnFailed, "three").receipt.error
    assert error.code == "session_corrupt"
    assert "codex has taken turns back" in error.message
    assert not place.journal("job").bodies(InputReserved, "three")
    place.model.script = lambda conversation: Reply("understood")
    assert place.call("retry", "job", f"--{choice}").status == 0
    assert place.resume().outcomes == ["done"]
    heard = {"as-is": ["first", "third"], "put-back": ["first", ONCE, "third"]}.get(choice)
    assert users(place)[-1].endswith("third")
    if heard is None:
        assert ONCE in users(place)[0]
    else:
        assert users(place) == heard

    assert place.run("fourth", key="four").wait().status == 0
    assert users(place)[-1] == "fourth"
    assert users(place)[:-1] == (heard or users(place)[:-1])
    assert len(set(place.threads)) == (2 if choice == "reseed" else 1)
    assert place.lines("begun") == 1


def test_the_prompt_of_a_turn_that_is_taken_back_before_it_ended_is_not_given_again(
    place: CodexPlace,
) -> None:
    """Its command has run: the thread's other file shows that codex had it."""
    assert place.run("first").wait().status == 0
    killed_after_a_call(place, "work", key="two")
    take_back_the_newest_turn(place)
    assert place.resume().outcomes == ["interrupted"]
    assert place.lines("begun") == 1
    assert place.run("third", key="three").wait().status == 6
    assert place.journal("job").the(TurnFailed, "three").receipt.error.code == "session_corrupt"


def test_the_rest_of_a_thread_is_not_resumed_without_what_it_goes_on_from(place: CodexPlace) -> None:
    """The earlier file is not captured again: a verdict, and the choices work."""
    assert place.run("first").wait().status == 0
    assert place.run(ONCE, key="two").wait().status == 0
    take_back_the_newest_turn(place)
    assert place.run("third", key="three").wait().status == 6
    assert place.call("retry", "job", "--as-is").status == 0
    assert place.resume().outcomes == ["done"]
    shutil.rmtree(place.home / "sessions")
    asked = len(place.model.requests)
    assert place.run("fourth", key="four").wait().status == 1
    assert len(place.model.requests) == asked
    place.model.script = lambda conversation: Reply("understood")
    assert place.call("retry", "job", "--reseed").status == 0
    assert place.resume().outcomes == ["done"]
    (said,) = users(place)
    assert "User: third" in said
    assert said.endswith("\nfourth")
