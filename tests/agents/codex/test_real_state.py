"""What codex keeps of a thread is gone, damaged or older than it was: put back, or one verdict and a choice.

The real codex; the strict model shows what it was told."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import ONCE, CodexPlace, codex_place
from tests.support.processes import Finished

from outlast.records.agent_state import AgentSessionDecided, AgentStateCaptured, AgentStateRestored
from outlast.records.types import (
    AgentSessionChanged,
    GateOpened,
    InputReserved,
    LoopChanged,
    TurnDone,
    TurnFailed,
    TurnParked,
)

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def two_turns(place: CodexPlace) -> Path:
    """A session with two turns that has ended; codex's rollout of it."""
    assert place.run("first").wait().status == 0
    assert place.run(ONCE, key="two").wait().status == 0
    (rollout,) = place.rollouts
    return rollout


def users(place: CodexPlace) -> list[str]:
    """What the user has said, in the newest request to the model."""
    return [item.text for item in place.told().of_kind("user")]


# --- gone ---------------------------------------------------------------------------------------


def test_transcript_gone(place: CodexPlace) -> None:
    """It is put back from what was captured: the same thread, the whole history, nothing said twice."""
    two_turns(place)
    shutil.rmtree(place.home / "sessions")
    assert place.run("third", key="three").wait().status == 0

    journal = place.journal("job")
    assert journal.the(AgentStateRestored).through_turn == "two"
    assert users(place) == ["first", ONCE, "third"]
    assert len(place.told().of_kind("call")) == len(place.told().of_kind("result")) == 1
    place.assert_one_thread()
    assert place.lines("begun") == 1


def test_a_session_goes_on_on_another_machine(place: CodexPlace) -> None:
    """Another state folder and another home of codex, with nothing in it but its configuration."""
    two_turns(place)
    place.state.rename(place.root / "brought")
    place.state = place.root / "brought"
    shutil.rmtree(place.home)
    place.home = place.root / "other" / "codex"
    place.home.mkdir(parents=True)
    place.write_codex_config(approval="on-request", sandbox="workspace-write")
    place.variables["CODEX_HOME"] = str(place.home)
    assert place.run("third", key="three").wait().status == 0

    assert users(place) == ["first", ONCE, "third"]
    place.assert_one_thread()


def test_what_is_captured_is_the_whole_rollout_in_few_pieces(place: CodexPlace) -> None:
    """After each turn; the blobs of pieces that became one are needed no more."""
    for number in range(6):
        assert place.run(f"number {number}", key=f"turn-{number}").wait().status == 0
    captures = place.journal("job").bodies(AgentStateCaptured)
    (rollout,) = place.rollouts
    assert captures[-1].size == rollout.stat().st_size
    assert [body.through_turn for body in captures] == [f"turn-{number}" for number in range(6)]
    assert len(captures[-1].pieces) <= 3
    assert captures[-1].version


# --- gone for good ------------------------------------------------------------------------------


def gone_for_good(place: CodexPlace) -> Finished:
    """Neither codex nor the store has the thread any more."""
    two_turns(place)
    shutil.rmtree(place.home / "sessions")
    shutil.rmtree(place.state / "outlast.d" / "blobs")
    return place.run("third", key="three").wait()


def test_silent_fresh(place: CodexPlace) -> None:
    """A verdict and a question; nothing is begun under the old name, and what is sent meanwhile waits."""
    failed = gone_for_good(place)
    asked = len(place.model.requests)
    waits = place.run("fourth", key="four").wait()

    assert failed.status == 6, failed
    assert "session_missing" in failed.stderr
    assert waits.status == 6, waits
    assert "outlast answer job" in waits.stderr
    journal = place.journal("job")
    assert journal.the(TurnFailed, "three").receipt.error.code == "session_missing"
    assert not journal.bodies(InputReserved, "three")
    assert not journal.bodies(InputReserved, "four")
    assert journal.bodies(TurnParked, "three")
    assert [body.state for body in journal.bodies(AgentSessionChanged)][-1] == "lost"
    assert len(place.model.requests) == asked
    assert len(place.threads) == 1


def test_a_reseeded_session_knows_what_happened(place: CodexPlace) -> None:
    gone_for_good(place)
    (gate,) = [body.gate for body in place.journal("job").bodies(GateOpened)]
    answered = place.call("answer", "job", gate, "reseed")
    resumed = place.resume()

    assert answered.status == 0, answered
    assert resumed.outcomes == ["done"], resumed
    (said,) = users(place)
    assert said.startswith("[outlast: a record of what happened so far]")
    assert "User: first" in said
    assert "Your call of command (completed)" in said
    assert said.endswith("\nthird")
    journal = place.journal("job")
    assert len(place.threads) == 2
    assert [(b.state, b.reason != "") for b in journal.bodies(AgentSessionChanged)][-2] == ("reseeded", True)
    assert place.run("fifth", key="five").wait().status == 0
    assert users(place) == [said, "fifth"]


# --- damaged ------------------------------------------------------------------------------------


def without_a_line(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:8] + lines[9:])


def with_zeros(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(4096) + data[middle + 4096 :]


def with_another_number(data: bytes) -> bytes:
    return data.replace(b'"ordinal":9,', b'"ordinal":90,')


def with_another_beginning(data: bytes) -> bytes:
    return b'{"hello":"world"}\n' + data


def older(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-6])


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (without_a_line, "before line 9 is number 8 missing"),
    (with_zeros, "missing"),
    (with_another_number, "before line 10 is number 9 missing: it has 90"),
    (with_another_beginning, "its first line is not the head of a thread"),
    (older, "it ends at byte"),
]


@pytest.mark.parametrize(("damage", "where"), DAMAGES)
def test_provider_corrupt(place: CodexPlace, damage: Callable[[bytes], bytes], where: str) -> None:
    """One verdict that says what and where; put back, the thread goes on, and the original is kept aside."""
    rollout = two_turns(place)
    bad = damage(rollout.read_bytes())
    rollout.write_bytes(bad)
    failed = place.run("third", key="three").wait()

    assert failed.status == 6
    assert "session_corrupt" in failed.stderr
    assert where in place.journal("job").the(TurnFailed, "three").receipt.error.message
    assert rollout.read_bytes() == bad
    assert place.call("retry", "job", "--put-back").status == 0
    assert place.resume().outcomes == ["done"]
    assert users(place) == ["first", ONCE, "third"]
    kept = place.journal("job").the(AgentStateRestored).kept
    assert Path(kept).read_bytes() == bad
    place.assert_one_thread()


@pytest.mark.parametrize("choice", ["as-is", "reseed", "fresh"])
def test_every_choice_goes_on(place: CodexPlace, choice: str) -> None:
    rollout = two_turns(place)
    bad = without_a_line(rollout.read_bytes())
    rollout.write_bytes(bad)
    assert place.run("third", key="three").wait().status == 6
    assert place.call("retry", "job", f"--{choice}").status == 0
    resumed = place.resume()

    assert resumed.outcomes == ["done"], resumed
    assert place.run("fourth", key="four").wait().status == 0
    journal = place.journal("job")
    assert journal.the(AgentSessionDecided).choice == choice.replace("-", "_")
    assert rollout.read_bytes().startswith(bad)
    heard = {"as-is": 4, "reseed": 2, "fresh": 2}
    assert len(users(place)) == heard[choice]
    assert users(place)[-1] == "fourth"
    assert ("User: first" in users(place)[0]) == (choice == "reseed")
    assert len(place.threads) == (1 if choice == "as-is" else 2)


def test_what_cannot_be_read_is_not_resumed_as_it_is(place: CodexPlace) -> None:
    """Chosen by hand it is the same verdict again, and not offered; put back, the thread goes on."""
    rollout = two_turns(place)
    good = rollout.read_bytes()
    rollout.unlink()
    rollout.mkdir()
    assert place.run("third", key="three").wait().status == 6
    assert place.call("retry", "job", "--as-is").status == 0
    assert place.resume().outcomes == ["parked"]
    journal = place.journal("job")
    for asked in journal.bodies(GateOpened):
        assert "it cannot be read: it is no regular file" in asked.question
        assert [choice.id for choice in asked.choices] == ["put_back", "reseed", "fresh", "refuse"]
    assert not journal.bodies(InputReserved, "three")
    assert place.call("retry", "job", "--put-back").status == 0
    assert place.resume().outcomes == ["done"]
    assert rollout.read_bytes().startswith(good)
    assert users(place) == ["first", ONCE, "third"]
    place.assert_one_thread()


def test_a_choice_can_wait(place: CodexPlace) -> None:
    """Refused, the turn stays parked and the queue held; a later retry may choose otherwise."""
    rollout = two_turns(place)
    rollout.write_bytes(without_a_line(rollout.read_bytes()))
    assert place.run("third", key="three").wait().status == 6
    (gate,) = [body.gate for body in place.journal("job").bodies(GateOpened)]
    assert place.call("answer", "job", gate, "refuse").status == 0
    place.call("resume", "job", "--json")
    journal = place.journal("job")
    assert not journal.bodies(TurnDone, "three")
    assert journal.bodies(LoopChanged)
    assert place.call("retry", "job", "--put-back").status == 0
    assert place.resume().outcomes == ["done"]
    assert users(place) == ["first", ONCE, "third"]


def test_a_torn_tail_is_no_damage(place: CodexPlace) -> None:
    """Codex mends it, and the thread goes on."""
    rollout = two_turns(place)
    with rollout.open("ab") as file:
        file.write(b'{"timestamp":"2026-01-01T00:00:00.000Z","ordin')
    assert place.run("third", key="three").wait().status == 0
    assert users(place) == ["first", ONCE, "third"]
    assert place.run("fourth", key="four").wait().status == 0
    place.assert_one_thread()


def test_on_lost_chooses_without_a_person(place: CodexPlace) -> None:
    text = place.config.read_text("utf-8").replace("[agents.codex]\n", '[agents.codex]\non_lost = "reseed"\n')
    place.config.write_text(text, "utf-8")
    rollout = two_turns(place)
    rollout.write_bytes(without_a_line(rollout.read_bytes()))
    done = place.run("third", key="three").wait()

    assert done.status == 0, done
    assert place.journal("job").the(AgentSessionDecided).by == "on_lost"
    (said,) = users(place)
    assert "User: first" in said
    assert len(place.threads) == 2


def test_a_thread_of_38_megabytes(place: CodexPlace) -> None:
    """It is resumed, captured, and put back like any other."""
    rollout = two_turns(place)
    with rollout.open("ab") as file:
        ordinal = len(rollout.read_bytes().splitlines())
        filler = "x" * 100_000
        for number in range(380):
            file.write(
                b'{"timestamp":"2026-11-30T00:00:00.000Z","ordinal":%d,"type":"event_msg","payload":'
                b'{"type":"agent_message","message":"%s"}}\n' % (ordinal + number, filler.encode())
            )
    assert place.run("third", key="three").wait().status == 0
    captured = place.journal("job").bodies(AgentStateCaptured)[-1]
    assert captured.size == rollout.stat().st_size > 38_000_000
    shutil.rmtree(place.home / "sessions")
    assert place.run("fourth", key="four").wait().status == 0
    assert users(place) == ["first", ONCE, "third", "fourth"]
    place.assert_one_thread()


def test_what_codex_does_not_take_as_it_is_can_still_be_put_back(place: CodexPlace) -> None:
    rollout = two_turns(place)
    name = rollout.stem[-36:].encode()
    rollout.write_bytes(rollout.read_bytes().replace(name, b"0" * 8 + name[8:]))
    place.run("third", key="three").wait()
    for choice, outcomes in (("--as-is", ["parked"]), ("--put-back", ["done"])):
        assert place.call("retry", "job", choice).status == 0
        place.resume()
        assert [turn["outcome"] for turn in place.show("job")["turns"]][-1:] == outcomes
    assert users(place) == ["first", ONCE, "third"]


# --- killed at each step --------------------------------------------------------------------------

STEPS = [
    "turn.provider_captured.before_append",
    "turn.provider_captured.after_append",
    "state.put_back.before_rename",
    "state.put_back.after_rename",
    "turn.provider_restored.before_append",
    "turn.provider_restored.after_append",
    "provider.claim.before_write",
    "provider.claim.before_rename",
    "provider.claim.after_write",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_runtime_that_is_killed_there_loses_nothing(place: CodexPlace, step: str) -> None:
    """The next one puts the thread back as it was captured; what is not in that is told."""
    two_turns(place)
    shutil.rmtree(place.home / "sessions")
    place.run("third", key="three", faults=f"{step}=kill").wait()
    resumed = place.resume()
    assert resumed.outcomes in ([], ["done"]), resumed
    assert not list(place.home.rglob("*.outlast-draft"))
    shutil.rmtree(place.home / "sessions")
    assert place.run("fourth", key="four").wait().status == 0

    journal = place.journal("job")
    assert journal.bodies(TurnDone, "three")
    heard = users(place)
    assert heard[:2] == ["first", ONCE]
    assert heard[-1].endswith("fourth")
    assert sum("third" in text for text in heard) == 1
    journal.assert_every_input_ends_once()
    place.assert_one_thread()
    assert place.lines("begun") == 1


def test_a_runtime_that_is_killed_when_it_has_decided_begins_anew_once(place: CodexPlace) -> None:
    text = place.config.read_text("utf-8").replace("[agents.codex]\n", '[agents.codex]\non_lost = "reseed"\n')
    place.config.write_text(text, "utf-8")
    rollout = two_turns(place)
    rollout.write_bytes(without_a_line(rollout.read_bytes()))
    place.run("third", key="three", faults="turn.begins_anew.after_append=kill").wait()
    assert place.resume().outcomes == ["done"]
    assert len(place.journal("job").bodies(AgentSessionDecided)) == 1
    assert len(place.threads) == 2
    (said,) = users(place)
    assert "User: first" in said
