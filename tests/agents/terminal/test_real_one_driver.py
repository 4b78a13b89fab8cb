"""Two runtimes never drive one session of a real program: of one store or of two, at work or idle, started
one after the other or at once."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.agents.codex.real import THINK, WAIT
from tests.agents.matrix.life import OWNER
from tests.agents.matrix.programs import AgentPlace, Program
from tests.support.processes import until

from outlast.records.types import InputReserved, TurnDone, TurnFailed

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]


def copy_the_store(place: AgentPlace) -> Path:
    """A second store on the machine that has the same session."""
    copy = place.root / "copy"
    shutil.copytree(place.state, copy, ignore=shutil.ignore_patterns("sock"))
    return copy


@contextmanager
def in_store(place: AgentPlace, state: Path) -> Iterator[None]:
    """What is started and looked at is another store's."""
    original, place.state = place.state, state
    try:
        yield
    finally:
        place.state = original


def run(program: Program, prompt: str, key: str) -> tuple[str, ...]:
    return ("run", "-a", program.agent, "--session", "job", "--key", key, prompt)


def refused(place: AgentPlace, key: str) -> str:
    """That the turn failed before it was given, because another life drives the session: whose."""
    journal = place.journal("job")
    error = journal.the(TurnFailed, key).receipt.error
    assert error.code == "session_in_use"
    assert not journal.bodies(InputReserved, key)
    return error.message


def assert_a_plan_says_so(place: AgentPlace, who: str) -> None:
    """And looks only: the claims are as they were, and no lease is taken."""
    before, epochs = kept_claims(place), place.journal("job").epochs
    plan = json.loads(place.call("plan", "job", "--json").stdout)
    (planned,) = plan["next_sessions"]
    assert (planned["action"], planned["error"], planned["reason"]) == ("refuse", "session_in_use", who)
    assert [fact for fact in plan["facts"] if fact.endswith(f"the agent's own session is in use: {who}")]
    assert (kept_claims(place), place.journal("job").epochs) == (before, epochs)


def kept_claims(place: AgentPlace) -> dict[Path, tuple[bytes, int]]:
    files = [path for path in place.root.rglob(".outlast/claims/*") if path.is_file()]
    assert files
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_of_two_stores_the_one_waits_for_the_other_ones_turn(program: Program, place: AgentPlace) -> None:
    """Afterwards it may, and its model knows what the other one's was told."""
    assert place.call(*run(program, "first", "one")).status == 0
    copy, original = copy_the_store(place), place.state
    owner = place.start(*run(program, THINK, "two"))
    place.until_model_is_asked(THINK)
    asked = len(place.model.requests)
    with in_store(place, copy):
        whose = f"session job in {original / 'outlast.d'}"
        assert_a_plan_says_so(place, f"an agent of {whose} drives the same session")
        assert place.call(*run(program, "third", "three")).status == 1
        assert f"session job in {original}" in refused(place, "three")
    assert len(place.model.requests) == asked
    place.model.go_on()
    assert owner.wait().status == 0
    with in_store(place, copy):
        assert place.call("retry", "job").status == 0
        assert place.resume().outcomes == ["done"]
    assert [item.text for item in place.told().of_kind("user")] == ["first", THINK, "third"]


def test_an_idle_agent_of_another_store_keeps_its_session(program: Program, place: AgentPlace) -> None:
    place.send("job", "first", key="one", agent=program.agent)
    owner = place.start_program(sys.executable, "-c", OWNER, env=place.environ())
    place.until_recorded("job", "AgentStateCaptured")
    agent = program.pid(place)
    with in_store(place, copy_the_store(place)):
        assert place.call(*run(program, "second", "two")).status == 1
        refused(place, "two")
    assert program.pid(place) == agent
    place.send("job", "third", key="three", agent=program.agent)
    place.until_recorded("job", "TurnDone", turn="three")
    place.go("leave")
    assert owner.wait().status == 0, owner.told()
    assert [item.text for item in place.told().of_kind("user")] == ["first", "third"]


def test_of_two_stores_that_start_at_once_one_drives_the_session(program: Program, place: AgentPlace) -> None:
    assert place.call(*run(program, "first", "one")).status == 0
    stores = (place.state, copy_the_store(place))
    prompts = [f"{THINK} {number}" for number in range(len(stores))]
    runs = []
    for state, prompt in zip(stores, prompts, strict=True):
        with in_store(place, state):
            runs.append(place.start(*run(program, prompt, "two")))
    until(lambda: any(not each.running for each in runs), "one is refused")
    place.until_model_is_asked(THINK)
    loser = next(number for number, each in enumerate(runs) if not each.running)
    with in_store(place, stores[loser]):
        refused(place, "two")
    place.model.go_on()
    assert sorted(each.wait().status for each in runs) == [0, 1]
    said = [item.text for request in place.model.requests for item in request.of_kind("user")]
    assert prompts[1 - loser] in said
    assert prompts[loser] not in said


def test_of_two_runtimes_of_one_store_one_goes_on_with_the_turn(program: Program, place: AgentPlace) -> None:
    owner = place.start(*run(program, WAIT, "one"))
    place.until_there("begun")
    place.until_recorded("job", "CallObserved", turn="one")
    agent = program.pid(place)
    owner.kill()
    resumed = [place.start("resume", "job", "--json") for _ in range(2)]
    place.until_recorded("job", "RestoreDone")
    place.go()
    ended = [each.wait() for each in resumed]
    assert 0 in [each.status for each in ended], ended
    assert agent not in place.leftovers
    journal = place.journal("job")
    assert len(journal.bodies(TurnDone, "one")) == len(journal.bodies(InputReserved, "one")) == 1
    journal.assert_every_input_ends_once()
    assert (place.lines("begun"), place.lines("ended")) == (1, 1)
