"""What a later owner finds done is done: no effect twice, no second agent beside a living one, and what was
committed counts as committed."""

from __future__ import annotations

import signal
import sys

import pytest
from tests.support.place import Place
from tests.support.processes import Child, until

from outlast.records.types import (
    AgentEventRecorded,
    AgentStateFolded,
    CallObserved,
    TurnAttached,
    TurnAttemptStarted,
    TurnDone,
    TurnInterrupted,
)

pytestmark = pytest.mark.slow

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
MID_TURN = "[[effect:{turn}]][[touch:at-{session}]][[wait:go]][[say:finished {turn}]]"
CALL = "[[tool:{call}:pay:started]][[effect:{turn} {call}]][[tool:{call}:pay:completed]]"

OWNER_OF_MANY = """
import asyncio, sys
from pathlib import Path
import outlast
from outlast.agents import Command
async def main():
    async with outlast.Runtime(agents={"plain": Command(sys.argv[1].split("\\n"))}) as runtime:
        owned = [await runtime.restore(session) for session in sys.argv[2:]]
        Path("all-restored").touch()
        for session in owned:
            await session.quiet()
            await session.finish()
asyncio.run(main())
"""
"""An embedding program that restores every session that it is told of, and runs them to their end."""


def call(name: str) -> str:
    """A tool call with an effect, as the agent's markers."""
    return CALL.replace("{call}", name)


def kill_tree(place: Place) -> None:
    """kill -9 of agent, shim and guard."""
    place.kill_leftovers()


def agents_of(place: Place) -> set[int]:
    """The agents' own processes."""
    return {pid for pid, line in place.leftovers.items() if "scripted.py --effects" in line}


def test_what_an_agent_said_before_its_state_was_stored_is_kept(place: Place) -> None:
    """The next owner reads on from the state: a message that only the killed one had would be lost."""
    order = "[[text:1]][[wait:go]][[say:finished]]"
    started = ("run", "-a", "plain", "--session", "job", "--key", "one", order)
    cut = place.call(*started, faults="turn.state.after_append=kill")
    assert cut.status == -signal.SIGKILL
    place.go()
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    journal = place.journal("job")
    assert journal.bodies(AgentStateFolded)
    assert sum(said.count for said in journal.bodies(AgentEventRecorded, "one")) == 1024 + 1


def test_commit_forgotten(place: Place) -> None:
    """Killed right after the turn's end was stored and before anybody heard of it: the next owner takes it
    for the end that it is, what follows runs, and whoever asks again is told the same outcome."""
    place.send("job", QUICK, key="one")
    place.send("job", QUICK, key="two")
    cut = place.call("resume", "job", faults="turn.terminal.after_append=kill")
    assert cut.status == -signal.SIGKILL
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    again = place.call("run", "--session", "job", "--key", "one", "--json", QUICK)

    assert again.outcomes == ["done"], again
    assert again.lines[-1]["text"] == "finished one"
    journal = place.journal("job")
    assert [record.turn for record in journal.of("TurnDone")] == ["one", "two"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


def test_effect_before_checkpoint(place: Place) -> None:
    """The agent has paid and said so, and its owner dies before it has recorded a word of it; then the agent
    dies too. The call is recorded from what it had said, and nothing is paid again."""
    place.send("job", f"{call('a')}[[touch:paid]][[hang]]", key="one")
    place.send("job", QUICK, key="two")
    cut = place.call("resume", "job", faults="turn.events.before_append=kill")
    assert cut.status == -signal.SIGKILL
    place.until_there("paid")
    assert not place.journal("job").bodies(CallObserved)
    kill_tree(place)
    assert place.call("resume", "job", "--json").outcomes == ["interrupted", "done"]

    journal = place.journal("job")
    assert [c.status for c in journal.bodies(CallObserved, "one")] == ["started", "completed"]
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one a", "two")


def test_batch_granularity(place: Place) -> None:
    """Of three calls the third is at work when all die: the first two are recorded as finished, the third as
    a call without outcome, and none of them runs again."""
    third = "[[tool:c:pay:started]][[effect:{turn} c]][[hang]]"
    place.send("job", f"{call('a')}{call('b')}{third}", key="one")
    owner = place.start("resume", "job")
    until(lambda: len(place.journal("job").bodies(CallObserved)) == 5, "the third call is recorded")
    owner.kill()
    kill_tree(place)
    assert place.call("resume", "job", "--json").outcomes == ["interrupted"]

    journal = place.journal("job")
    said = [(c.call, c.status) for c in journal.bodies(CallObserved)]
    assert said == [(c, s) for c in "abc" for s in ("started", "completed")][:5]
    assert "calls without outcome: pay" in journal.the(TurnInterrupted).evidence
    place.assert_effects_once("one a", "one b", "one c")


def owner_of(place: Place, *sessions: str) -> Child:
    from outlast.testing.agents import SCRIPTED, command

    argv = "\n".join(command(SCRIPTED, "--effects", str(place.effects_file)))
    return place.start_program(sys.executable, "-c", OWNER_OF_MANY, argv, *sessions, env=place.environ())


def test_restore_beside_live(place: Place) -> None:
    """Two agents live on without their owners. A program that restores both sessions goes on with these very
    processes and starts none beside them."""
    sessions = ("job-1", "job-2")
    for session in sessions:
        owner = place.start("run", "-a", "plain", "--session", session, "--key", f"of {session}", MID_TURN)
        place.until_there(f"at-{session}")
        owner.kill()
    living = agents_of(place)
    assert len(living) == 2
    restorer = owner_of(place, *sessions)
    place.until_there("all-restored")
    assert agents_of(place) == living
    place.go()

    assert restorer.wait().status == 0, restorer.told()
    for session in sessions:
        journal = place.journal(session)
        assert len(journal.bodies(TurnAttached)) == len(journal.bodies(TurnAttemptStarted)) == 1
        assert len(journal.bodies(TurnDone)) == 1
    place.assert_effects_once("of job-1", "of job-2")


def test_glued_append(place: Place) -> None:
    """An agent dies in the middle of a line. What the next agent says first is a line of its own, and the
    half line is kept with the turn that it belongs to."""
    half = b'{"type":"message","role":"assistant","text":"half'
    place.send("job", f"[[say:whole]][[hex:{half.hex()}]][[signal:9]]", key="one")
    place.send("job", "[[say:first words]]", key="two")
    resumed = place.call("resume", "job", "--json")

    assert resumed.outcomes == ["failed", "done"], resumed
    assert [line["text"] for line in resumed.lines if "outcome" in line] == ["whole", "first words"]
    events = [r.body for r in place.journal("job").of("AgentEventRecorded", turn="one")]
    assert half.decode() in [getattr(event, "text", "") for event in events]
