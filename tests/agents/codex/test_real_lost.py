"""What a thread of the real codex has lost of a turn: nothing that ran is given again, nobody is asked to go
on with what its thread was never given, and a new thread is told what happened."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import ONCE, THINK, CodexPlace, codex_place
from tests.agents.codex.test_real_retries import LIMITED, PROMPT, prompts, refuses, waits
from tests.support.processes import PATIENCE, until

from outlast.records.agent_state import AgentSessionDecided, AgentStateRestored
from outlast.records.types import AgentSessionChanged, CallObserved, InputReserved, TurnDone, TurnInterrupted
from outlast.testing.scripted_model import Conversation, Reply

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def killed_after_a_call(place: CodexPlace, prompt: str, *, key: str) -> None:
    """A turn whose command has run once, and whose model was thinking when all of it was killed."""
    usual, thought = place.model.script, threading.Event()

    def script(conversation: Conversation) -> Reply:
        if conversation.results:
            thought.wait(PATIENCE)
        return usual(conversation)

    place.model.script = script
    place.run(f"{prompt} {ONCE}", key=key)
    until(lambda: place.lines("begun"), "the command has run")
    place.model.wait_for(lambda request: any(item.kind == "result" for item in request.items))
    until(
        lambda: any(call.status == "completed" for call in place.journal("job").bodies(CallObserved)),
        "the call's end is recorded",
    )
    place.kill_all()
    place.model.script = usual
    thought.set()


def test_a_prompt_that_ran_is_not_given_again_because_its_rollout_was_rolled_back(place: CodexPlace) -> None:
    assert place.run("first").wait().status == 0
    (rollout,) = place.rollouts
    before = rollout.read_bytes()
    killed_after_a_call(place, "work", key="two")
    rollout.write_bytes(before)
    assert b"turn two: interrupt" in place.call("plan", "job").stdout
    assert place.resume().outcomes == ["interrupted"]
    assert place.lines("begun") == 1


def test_a_turn_that_was_rolled_back_is_told_once_with_the_next_prompt(place: CodexPlace) -> None:
    """What it had done and said; a thread that ends where the capture does shows no damage."""
    assert place.run("first").wait().status == 0
    (rollout,) = place.rollouts
    before = rollout.read_bytes()
    killed_after_a_call(place, "work", key="two")
    rollout.write_bytes(before)
    assert place.resume().outcomes == ["interrupted"]
    assert (
        b"holds nothing of turn two any more, which the next prompt tells" in place.call("plan", "job").stdout
    )
    place.model.script = lambda conversation: Reply("understood")
    assert place.run("what now?", key="three").wait().status == 0
    first, said = [item.text for item in place.told().of_kind("user")]
    assert first == "first"
    assert f"User: work {ONCE}" in said
    assert "Your call of command (completed)" in said
    assert said.endswith("\nwhat now?")
    restored = place.journal("job").the(AgentStateRestored)
    assert restored.reason == "its file holds nothing of turn two any more"
    assert b"holds nothing of turn" not in place.call("plan", "job").stdout

    place.kill_all()
    assert place.run("and now?", key="four").wait().status == 0
    assert [item.text for item in place.told().of_kind("user")] == [first, said, "and now?"]
    assert place.lines("begun") == 1
    place.assert_one_thread()


def test_a_thread_that_lacks_the_prompt_is_given_it_where_the_turn_is_to_go_on(place: CodexPlace) -> None:
    """By `on_interrupt`, after its rollout was rolled back: it is told what the turn had done."""
    setting = '[agents.codex]\non_interrupt = "continue"\n'
    place.config.write_text(place.config.read_text("utf-8").replace("[agents.codex]\n", setting), "utf-8")
    assert place.run("first").wait().status == 0
    (rollout,) = place.rollouts
    before = rollout.read_bytes()
    killed_after_a_call(place, "work", key="two")
    rollout.write_bytes(before)
    assert place.resume().outcomes == ["done"]
    assert place.journal("job").bodies(TurnInterrupted, "two")
    assert not place.journal("job").bodies(InputReserved, "two")[-1].continues
    first, said = [item.text for item in place.told().of_kind("user")]
    assert first == "first"
    assert "Your call of command (completed)" in said
    assert said.endswith(f"\nwork {ONCE}")


def test_a_prompt_that_the_model_was_told_of_is_not_given_again_either(place: CodexPlace) -> None:
    """Nothing had come of it yet: codex had said that it has it."""
    assert place.run("first").wait().status == 0
    (rollout,) = place.rollouts
    before = rollout.read_bytes()
    place.run(THINK, key="two")
    place.until_model_is_asked(THINK)
    place.kill_all()
    rollout.write_bytes(before)
    assert b"turn two: interrupt" in place.call("plan", "job").stdout
    assert place.resume().outcomes == ["interrupted"]


def refused_after_a_call(place: CodexPlace, lost: str) -> None:
    """A turn that is to go on after the model refused it; codex and its threads are gone meanwhile."""
    if lost == "for good":
        text = place.config.read_text("utf-8").replace(
            "[agents.codex]\n", '[agents.codex]\non_lost = "fresh"\n'
        )
        place.config.write_text(text, "utf-8")
    assert place.run("first", key="first").wait().status == 0
    refuses(place, LIMITED, lambda conversation: bool(conversation.results))
    runtime = waits(place, f"{PROMPT} {ONCE}")
    place.kill_codex()
    shutil.rmtree(place.home / "sessions")
    if lost == "for good":
        shutil.rmtree(place.state / "outlast.d" / "blobs")
    place.call("retry", "job")
    assert runtime.wait().status == 0
    assert len(place.journal("job").bodies(TurnDone)) == 2


def test_a_thread_that_was_put_back_with_the_prompt_is_asked_to_go_on(place: CodexPlace) -> None:
    refused_after_a_call(place, "till it is put back")
    assert place.journal("job").bodies(AgentStateRestored)
    assert prompts(place) == 1
    assert place.told().of_kind("user")[-1].text.startswith("The previous turn was interrupted.")
    assert place.lines("begun") == 1
    place.assert_one_thread()


def test_a_new_thread_is_given_the_prompt_and_not_asked_to_go_on(place: CodexPlace) -> None:
    """It knows nothing of the session, but of the turn what is known of its calls."""
    refused_after_a_call(place, "for good")
    assert place.journal("job").the(AgentSessionDecided).choice == "fresh"
    (said,) = [item.text for item in place.told().of_kind("user")]
    assert said.endswith(f"\n{PROMPT} {ONCE}")
    assert "Your call of command (completed)" in said
    assert "first" not in said.replace(PROMPT, "")


def test_a_thread_that_was_never_confirmed_is_begun_anew_and_told_what_happened(place: CodexPlace) -> None:
    killed_after_a_call(place, "the number is 42", key="one")
    shutil.rmtree(place.home / "sessions")
    assert place.run("which number?", key="two").wait().status == 0
    journal = place.journal("job")
    assert journal.the(AgentSessionDecided).by == "it was never confirmed"
    states = [body.state for body in journal.bodies(AgentSessionChanged)]
    assert states == ["bound", "lost", "reseeded", "confirmed"]
    (said,) = [item.text for item in place.told().of_kind("user")]
    assert "User: the number is 42" in said
    assert "Your call of command (completed)" in said
    assert said.endswith("\nwhich number?")
