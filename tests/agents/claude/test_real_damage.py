"""What Claude Code keeps of a session is damaged or older than it was: one verdict and a choice, each of
which goes on.

The real Claude Code would say nothing: it passes over what it can't read, with all that hung on it. The
strict model shows what it was told."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import ONCE, ClaudePlace, claude_place

from outlast.records.agent_state import AgentSessionDecided, AgentStateCaptured, AgentStateRestored
from outlast.records.types import GateOpened, InputReserved, LoopChanged, TurnDone, TurnFailed

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        yield made


def two_turns(place: ClaudePlace) -> Path:
    """A session with two turns that has ended; Claude Code's transcript of it."""
    assert place.run("first").wait().status == 0
    assert place.run(ONCE, key="two").wait().status == 0
    (transcript,) = place.transcripts
    return transcript


def entry(lines: list[bytes], mark: bytes) -> int:
    """The line in which an entry of the conversation stands."""
    return next(at for at, line in enumerate(lines) if mark in line)


def without_a_line(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[entry(lines, b'"assistant"')]
    return b"".join(lines)


def with_zeros(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(4096) + data[middle + 4096 :]


def all_zeros(data: bytes) -> bytes:
    return bytes(len(data))


def in_another_order(data: bytes) -> bytes:
    """An answer before its prompt: its lines have no numbers, but each entry names the one before it."""
    lines = data.splitlines(keepends=True)
    prompt, answer = entry(lines, b'"first"'), entry(lines, b'"assistant"')
    lines[prompt], lines[answer] = lines[answer], lines[prompt]
    return b"".join(lines)


def with_another_beginning(data: bytes) -> bytes:
    return b'{"hello":"world"}\n' + data


def of_another_session(data: bytes) -> bytes:
    (session,) = set(re.findall(rb'"sessionId":"([^"]+)"', data))
    return data.replace(session, b"01a227de-0000-7000-8000-000000000001")


def older(data: bytes) -> bytes:
    return b"".join(data.splitlines(keepends=True)[:-6])


def empty(data: bytes) -> bytes:
    return b""


DAMAGES: list[tuple[Callable[[bytes], bytes], str]] = [
    (without_a_line, "goes on from an entry that is not there"),
    (with_zeros, "not what was captured"),
    (all_zeros, "no line of it can be read"),
    (in_another_order, "goes on from an entry that is not there"),
    (with_another_beginning, "not what was captured"),
    (of_another_session, "another session"),
    (older, "it ends at byte"),
    (empty, ""),
]


@pytest.mark.parametrize(("damage", "where"), DAMAGES)
def test_provider_corrupt_a_damage_is_one_verdict_and_put_back(
    place: ClaudePlace, damage: Callable[[bytes], bytes], where: str
) -> None:
    """It says what and where, nothing was asked of a model, and the file is as it was found; put back, the
    session goes on, and what was there is kept aside."""
    transcript = two_turns(place)
    bad = damage(transcript.read_bytes())
    transcript.write_bytes(bad)
    asked = len(place.model.requests)
    failed = place.run("third", key="three").wait()

    assert failed.status == 6, failed
    assert "session_corrupt" in failed.stderr
    assert where in place.journal("job").the(TurnFailed, "three").receipt.error.message
    assert not place.journal("job").bodies(InputReserved, "three")
    assert len(place.model.requests) == asked
    assert transcript.read_bytes() == bad
    assert place.call("retry", "job", "--put-back").status == 0
    assert place.resume().outcomes == ["done"]
    assert place.asked()[-1] == ["first", ONCE, "third"]
    kept = place.journal("job").the(AgentStateRestored).kept
    assert Path(kept).read_bytes() == bad
    place.assert_one_session()
    assert place.lines("begun") == 1


@pytest.mark.parametrize("damage", [without_a_line, with_zeros])
@pytest.mark.parametrize("choice", ["as-is", "reseed", "fresh"])
def test_every_choice_goes_on(place: ClaudePlace, damage: Callable[[bytes], bytes], choice: str) -> None:
    """As it is: what Claude Code can still read of it."""
    transcript = two_turns(place)
    bad = damage(transcript.read_bytes())
    transcript.write_bytes(bad)
    assert place.run("third", key="three").wait().status == 6
    assert place.call("retry", "job", f"--{choice}").status == 0
    resumed = place.resume()

    assert resumed.outcomes == ["done"], resumed
    assert place.run("fourth", key="four").wait().status == 0
    journal = place.journal("job")
    assert journal.the(AgentSessionDecided).choice == choice.replace("-", "_")
    assert transcript.read_bytes().startswith(bad)
    heard = place.asked()[-1]
    assert "third" in heard[-2]
    assert heard[-1] == "fourth"
    assert ("User: first" in heard[0]) == (choice == "reseed")
    assert len(place.sessions) == (1 if choice == "as-is" else 2)
    journal.assert_every_input_ends_once()


@pytest.mark.parametrize("damage", [all_zeros, empty])
def test_endless_launches_what_cannot_be_read_at_all_as_it_is_is_a_verdict_again(
    place: ClaudePlace, damage: Callable[[bytes], bytes]
) -> None:
    """Claude Code can neither resume such an id nor begin under it: another choice goes on."""
    transcript = two_turns(place)
    transcript.write_bytes(damage(transcript.read_bytes()))
    assert place.run("third", key="three").wait().status == 6
    assert place.call("retry", "job", "--as-is").status == 0
    assert place.resume().outcomes == ["parked"]
    failures = len(place.journal("job").bodies(TurnFailed, "three"))
    assert failures == 2
    place.resume()
    assert len(place.journal("job").bodies(TurnFailed, "three")) == failures
    assert place.call("retry", "job", "--fresh").status == 0
    assert place.resume().outcomes == ["done"]
    assert place.asked()[-1] == ["third"]
    assert len(place.sessions) == 2
    place.journal("job").assert_every_input_ends_once()


def test_a_choice_can_wait(place: ClaudePlace) -> None:
    """Refused, the turn stays parked and the queue held; a later retry may choose otherwise."""
    transcript = two_turns(place)
    transcript.write_bytes(without_a_line(transcript.read_bytes()))
    assert place.run("third", key="three").wait().status == 6
    (gate,) = [body.gate for body in place.journal("job").bodies(GateOpened)]
    assert place.call("answer", "job", gate, "refuse").status == 0
    place.resume()
    journal = place.journal("job")
    assert not journal.bodies(TurnDone, "three")
    assert journal.bodies(LoopChanged)
    assert place.call("retry", "job", "--put-back").status == 0
    assert place.resume().outcomes == ["done"]
    assert place.asked()[-1] == ["first", ONCE, "third"]


@pytest.mark.parametrize(("on_lost", "heard"), [("reseed", 1), ("fresh", 0)])
def test_on_lost_chooses_without_a_person(place: ClaudePlace, on_lost: str, heard: int) -> None:
    with place.config.open("a", encoding="utf-8") as config:
        config.write(f'on_lost = "{on_lost}"\n')
    transcript = two_turns(place)
    transcript.write_bytes(without_a_line(transcript.read_bytes()))
    done = place.run("third", key="three").wait()

    assert done.status == 0, done
    decided = place.journal("job").the(AgentSessionDecided)
    assert (decided.by, decided.choice) == ("on_lost", on_lost)
    (said,) = place.asked()[-1]
    assert said.count("User: first") == heard
    assert len(place.sessions) == 2


@pytest.mark.parametrize("torn", [b'{"parentUuid":"', b"\0" * 512])
def test_a_torn_tail_is_no_damage(place: ClaudePlace, torn: bytes) -> None:
    """Claude Code goes on behind it, on a new line."""
    transcript = two_turns(place)
    with transcript.open("ab") as file:
        file.write(torn)
    assert place.run("third", key="three").wait().status == 0
    assert place.asked()[-1] == ["first", ONCE, "third"]
    assert place.run("fourth", key="four").wait().status == 0
    assert place.asked()[-1] == ["first", ONCE, "third", "fourth"]
    place.assert_one_session()


def test_a_session_of_38_megabytes(place: ClaudePlace) -> None:
    """It is resumed, captured, and put back like any other. It is large by lines that
    Claude Code writes beside the conversation: the model is not given them."""
    transcript = two_turns(place)
    assert transcript.stem == place.sessions[0]
    with transcript.open("ab") as file:
        for number in range(380):
            said = {"role": "user", "content": [{"type": "text", "text": "x" * 100_000}]}
            line = {
                "type": "api-request-blob",
                "sessionId": transcript.stem,
                "hash": f"{number}",
                "message": said,
            }
            file.write(json.dumps(line).encode() + b"\n")
    assert place.run("third", key="three").wait().status == 0
    captured = place.journal("job").bodies(AgentStateCaptured)[-1]
    assert captured.size == transcript.stat().st_size > 38_000_000
    shutil.rmtree(place.home / "projects")
    assert place.run("fourth", key="four").wait().status == 0
    assert place.asked()[-1] == ["first", ONCE, "third", "fourth"]
    place.assert_one_session()
