"""Turns that failed and are tried again by themselves, on real processes: whoever dies in the wait, the next
attempt comes once, and not before its time."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from tests.support.journals import Journal
from tests.support.place import Place
from tests.support.processes import Child, until

from outlast.records.types import (
    CommandSettled,
    InputReturned,
    LoopChanged,
    PlannedRetry,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
    TurnStarted,
)

pytestmark = pytest.mark.slow

LONG = "[[1?fail:429:900:slow down]][[1?exit:0]][[effect:{turn}]][[say:finished]]"
"""A first attempt that fails and asks for a quarter of an hour; a second one that does it."""
SHORT = "[[1?fail:429:1:slow down]][[1?exit:0]][[effect:{turn}]][[say:finished]]"
"""The same with a pause of a second."""
QUICK = "[[effect:{turn}]]"


def waiting(place: Place, text: str = LONG, *, agent: str = "plain", faults: str | None = None) -> Child:
    """A runtime whose turn `one` has failed and waits, and one more input in the queue."""
    runtime = place.start("run", "-a", agent, "--session", "job", "--key", "one", text, faults=faults)
    place.until_recorded("job", "TurnRetried")
    place.send("job", QUICK, key="two", agent=agent)
    return runtime


def planned(journal: Journal) -> PlannedRetry:
    retry = journal.bodies(TurnFailed, "one")[0].receipt.retry
    assert retry is not None
    return retry


def assert_tried_once_more(place: Place) -> Journal:
    """One retry, one attempt after it, done; and then the queue."""
    journal = place.journal("job")
    assert [body.by for body in journal.bodies(TurnRetried)] == ["policy:rate_limited"]
    assert [body.attempt for body in journal.bodies(TurnAttemptStarted, "one")] == [1, 2]
    ends = [record.turn for record in journal.of("TurnDone")]
    assert ends == ["one", "two"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")
    return journal


def assert_in_time(journal: Journal) -> None:
    """The second attempt came no earlier than planned."""
    due = datetime.fromisoformat(planned(journal).not_before).timestamp()
    second = journal.of("TurnAttemptStarted", turn="one")[1]
    assert second.at / 1_000_000 >= due - 0.001  # the journal has the time in microseconds


def test_a_turn_that_waits_is_seen_and_tried_now_if_a_person_wants_it(place: Place) -> None:
    """`show`, `ls` and `plan` say until when and because of what; the queue waits behind the turn."""
    runtime = waiting(place)
    retry = planned(place.journal("job"))
    assert (retry.mode, retry.retry, retry.of) == ("again", 1, 8)
    assert 900 <= retry.wait <= 910
    (turn,) = (turn for turn in place.show("job")["turns"] if turn["turn"] == "one")
    assert (turn["outcome"], turn["waits"]["code"]) == ("running", "rate_limited")
    assert turn["waits"]["message"] == "429: slow down"
    (row,) = json.loads(place.call("ls", "--json").stdout)
    assert (row["status"], row["waits"]) == ("running", turn["waits"])
    assert "(waits until " in place.call("ls").stdout.decode()
    assert "waits until " in place.call("show", "job").stdout.decode()
    plan = json.loads(place.call("plan", "job", "--json").stdout)
    assert plan["waits"] == [{"turn": "one", **turn["waits"]}]

    assert place.call("retry", "job").stdout == b"the turn begins again\n"
    ended = runtime.wait()
    assert (ended.status, ended.stdout) == (0, b"finished\n")
    assert "it is sent again by itself at" in ended.stderr
    journal = assert_tried_once_more(place)
    assert journal.the(CommandSettled).command == "retry"


def test_a_wait_ends_by_itself(place: Place) -> None:
    assert waiting(place, SHORT).wait().status == 0
    assert_in_time(assert_tried_once_more(place))


def test_owner_killed_in_the_wait(place: Place) -> None:
    """The next owner waits for the rest, and tries it once."""
    waiting(place, SHORT).kill()
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["done", "done"], resumed
    journal = assert_tried_once_more(place)
    assert journal.the(InputReturned).request_id == "one"
    assert_in_time(journal)


def test_owners_killed_in_the_wait_one_after_another(place: Place) -> None:
    """However many, the wait is the same one and the retry is made once."""
    waiting(place).kill()
    due = planned(place.journal("job")).not_before
    for owners in (2, 3):
        owner = place.start("resume", "job")
        until(lambda: _is_at_work(place, owners), f"owner {owners} waits: {owner.told()}")  # noqa: B023
        owner.kill()
    (turn,) = (turn for turn in place.show("job")["turns"] if turn["turn"] == "one")
    moved = datetime.fromisoformat(turn["waits"]["until"]) - datetime.fromisoformat(due)
    assert abs(moved.total_seconds()) < 1
    owner = place.start("resume", "job", "--json")
    place.call("retry", "job")
    assert owner.wait().outcomes == ["done", "done"]
    assert_tried_once_more(place)


def _is_at_work(place: Place, owners: int) -> bool:
    journal = place.journal("job")
    return journal.epochs == owners and bool(journal.state.open_turns)


POINTS = [
    "turn.terminal.before_append@1",
    "turn.terminal.after_append@1",
    "turn.attempt.before_append@2",
    "turn.attempt.after_append@2",
    "turn.start.after@2",
    "turn.reserve.before_append@2",
    "turn.terminal.before_append@2",
]
"""Where an owner dies that plans a retry, waits, or makes it."""


@pytest.mark.parametrize("point", POINTS)
def test_owner_killed_beside_each_step_of_a_retry(place: Place, point: str) -> None:
    child = place.start(
        *("run", "-a", "plain", "--session", "job", "--key", "one", SHORT), faults=f"{point}=kill"
    )
    assert child.wait().status == -9
    place.send("job", QUICK, key="two")
    resumed = place.call("resume", "job", "--json")
    assert resumed.outcomes == ["done", "done"], resumed
    journal = place.journal("job")
    assert [body.by for body in journal.bodies(TurnRetried)] == ["policy:rate_limited"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


@pytest.mark.parametrize("command", ["cancel", "kill", "close", "skip"])
@pytest.mark.parametrize("owner", ["lives", "dead"])
def test_a_wish_works_at_once_in_a_wait(place: Place, command: str, owner: str) -> None:
    runtime = waiting(place)
    if owner == "dead":
        runtime.kill()
    assert place.call(command, "job").status == 0
    if owner == "lives":
        runtime.wait()
    if command == "skip":
        if owner == "dead":
            place.call("resume", "job")
        place.assert_effects_once("two")
    else:
        assert place.effects == []
    state = place.journal("job").state
    if command == "close":
        # A closed session keeps its queue. A turn that waited in it waits on.
        assert state.stopped == "closed"
    else:
        assert "one" not in state.queue
        assert state.loops[state.root or ""].held is (command in ("cancel", "kill"))
    assert not state.open_turns
    assert len(place.journal("job").bodies(TurnAttemptStarted, "one")) == 1


# --- what is not tried again -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("plain", "[[error:429:slow down]]"),
        ("plain", "[[tool:a:sh:started]][[fail:429::slow down]]"),
        ("plain", "[[fail:weather::it rains]]"),
        ("once", "[[fail:429::slow down]]"),
    ],
)
def test_what_could_be_done_twice_is_a_persons(place: Place, agent: str, text: str) -> None:
    """No word of the agent's, a call without an outcome, an unknown kind, one without a policy, or a
    configuration that says so."""
    with place.config.open("a", encoding="utf-8") as config:
        plain = place.config.read_text("utf-8").partition("[agents.plain]")[2].partition("[agents.")[0]
        config.write(f"[agents.once]{plain}retry_attempts = 0\n")
    ended = place.call("run", "-a", agent, "--session", "job", "--key", "one", text)
    assert ended.status == 1
    journal = place.journal("job")
    assert journal.the(TurnFailed).receipt.retry is None
    assert not journal.bodies(TurnRetried)
    assert "what to do:" in ended.stderr


def test_what_was_done_is_gone_on_from_and_not_done_again(place: Place) -> None:
    """With calls that have ended the agent is asked to go on: its prompt says so."""
    text = "[[1?steps:1]][[1?fail:529:1:busy]][[1?exit:0]][[2?prompt:second]][[2?say:finished]]"
    ended = place.call("run", "-a", "plain", "--session", "job", "--key", "one", text)
    assert (ended.status, ended.stdout) == (0, b"finished\n")
    assert "it goes on by itself at" in ended.stderr
    journal = place.journal("job")
    assert journal.the(TurnRetried).mode == "continue"
    assert journal.the(TurnFailed).receipt.error.code == "provider_overloaded"
    place.assert_effects_once("one 0")
    prompt = json.loads(place.file("second").read_text("utf-8"))
    assert (prompt["continue"], prompt["attempt"]) == (True, 2)


# --- what parks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("insufficient_quota:7800:no money", "it is renewed in 2 h 10 min, "),
        ("insufficient_quota::no money", "the quota is used up: insufficient_quota: no money"),
        ("auth_failed::who are you", "who are you"),
        ("429:7800:slow down", "the provider asks to be left alone for 2 h 10 min, until "),
    ],
)
def test_a_long_pause_parks_the_turn_and_holds_the_queue(place: Place, failure: str, said: str) -> None:
    text = f"[[touch:begun]][[wait:go]][[1?fail:{failure}]][[1?exit:0]][[effect:{{turn}}]]"
    runtime = place.start("run", "-a", "plain", "--session", "job", "--key", "one", text)
    place.until_there("begun")
    place.send("job", QUICK, key="two")
    place.until_recorded("job", "InputAccepted", turn=None)
    place.go()
    ended = runtime.wait()
    assert "parked" in ended.stderr
    assert said in ended.stderr

    journal = place.journal("job")
    assert said in journal.the(TurnParked).detail
    assert journal.the(LoopChanged).state == "held"
    assert place.effects == []
    (turn, _) = place.show("job")["turns"]
    assert (turn["outcome"], said in turn["reason"]) == ("parked", True)

    place.call("retry", "job")
    assert place.call("resume", "job", "--json").outcomes == ["done", "done"]
    place.assert_effects_once("one", "two")
    assert len(place.journal("job").bodies(TurnDone)) == 2


def test_the_begun_turn_of_a_later_owner_is_the_same_one(place: Place) -> None:
    """Identity-drift: returned and begun again, the turn keeps id, index and what it is tried again for."""
    waiting(place).kill()
    assert place.call("retry", "job").status == 0
    assert place.call("resume", "job", "--json").outcomes == ["done", "done"]
    journal = assert_tried_once_more(place)
    assert [body.index for body in journal.bodies(TurnStarted, "one")] == [1, 1]
    assert not journal.bodies(TurnInterrupted)
