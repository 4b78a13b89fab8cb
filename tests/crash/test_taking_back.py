"""A cancel that finds nothing at work: what a person has taken back is not run, whoever owns the session."""

from __future__ import annotations

import json

import pytest
from tests.support.place import Place
from tests.support.processes import Finished

from outlast.records.types import CommandSettled, InputAccepted, InputCancelled, LoopChanged, TurnInterrupted
from outlast.runtime.client import Client
from outlast.runtime.handles import Settled

pytestmark = pytest.mark.slow

FAILS_ONCE = "[[effect:{turn} {attempt}]][[1?exit:3]][[say:finished]]"
QUICK = "[[effect:{turn}]][[say:finished {turn}]]"


def failed(place: Place) -> None:
    """Turn `one` has failed, and nobody owns the session."""
    place.send("job", FAILS_ONCE, key="one")
    assert place.call("resume", "job", "--json").outcomes == ["failed"]


def retried(place: Place) -> None:
    """A retry of it waits for the next owner."""
    failed(place)
    assert place.call("retry", "job").stdout.startswith(b"kept for the session's next owner")


def cancelled_by_the_api(place: Place) -> Settled:
    return place.ask(lambda client: client.session("job").cancel(actor="test"))


def pending(place: Place) -> list[str]:
    async def kinds(client: Client) -> list[str]:
        return [entry.kind for entry in await client.store.pending("job")]

    return place.ask(kinds)


def told(ran: Finished) -> tuple[int, str]:
    return ran.status, ran.stdout.decode().strip()


def test_a_retry_that_waits_for_an_owner_is_seen(place: Place) -> None:
    """By whoever lists, shows or waits; a turn that was done since hides nothing."""
    failed(place)
    place.send("job", QUICK, key="two")
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    assert place.show("job")["session"]["status"] == "idle"
    assert place.call("retry", "job", "one").status == 0
    shown = place.show("job")
    assert shown["session"]["status"] == "detached"
    (waiting,) = shown["commands"]
    assert (waiting["command"], waiting["turn"], waiting["by"]) == ("retry", "one", "cli")
    assert b"decided, and not yet carried out: nobody owns the session\n  retry one by cli" in (
        place.call("show", "job").stdout
    )
    waited = place.call("wait", "job")
    assert (
        waited.status,
        "what was decided about session job waits, and nobody runs it" in waited.stderr,
    ) == (
        1,
        True,
    )
    assert "outlast resume job" in waited.stderr
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    assert place.show("job")["commands"] == []
    assert place.call("wait", "job").status == 0
    place.assert_effects_once("one 1", "one 2", "two")


def test_a_retry_that_waits_is_taken_back_by_the_command_cancel(place: Place) -> None:
    retried(place)
    assert told(place.call("cancel", "job")) == (0, "cancelled")
    assert pending(place) == []
    assert place.journal("job").of("TurnInterrupted")[-1].body == TurnInterrupted(
        index=1, reason="cancelled", evidence="no agent had been given it"
    )
    assert place.call("resume", "job", "--json").outcomes == []
    place.assert_effects_once("one 1")
    assert place.call("retry", "job").status == 0
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    place.assert_effects_once("one 1", "one 2")


@pytest.mark.slow
def test_a_retry_and_its_cancel_that_both_wait_run_nothing(place: Place) -> None:
    retried(place)
    assert cancelled_by_the_api(place).result == "queued"
    assert pending(place) == ["retry", "cancel"]
    place.call("resume", "job", "--json")
    assert pending(place) == []
    place.call("resume", "job", "--json")
    place.assert_effects_once("one 1")
    place.journal("job").assert_every_input_ends_once()


def test_a_cancel_holds_the_inputs_that_wait_for_an_owner(place: Place) -> None:
    """Those that were sent before it; the next one sets the queue going, as after any cancel."""
    failed(place)
    place.send("job", QUICK, key="two")
    place.send("job", QUICK, key="three")
    said = "no turn was running; the queue is held (2 waiting)"
    assert told(place.call("cancel", "job")) == (0, said)
    assert place.show("job")["session"]["status"] == "parked"
    assert place.call("wait", "job").status == 1
    assert place.call("resume", "job", "--json").outcomes == ["done", "done"]
    place.assert_effects_once("one 1", "two", "three")


def test_a_cancel_that_waits_with_the_inputs_before_it_holds_them_until_a_resume(place: Place) -> None:
    """Also where one batch of the resume takes all of them: it carries the cancel out and goes on, as after
    one that was carried out before it; the session is new."""
    place.send("job", QUICK, key="one")
    place.send("job", QUICK, key="two")
    assert cancelled_by_the_api(place).result == "queued"
    assert place.call("resume", "job", "--json").outcomes == ["done", "done"]
    journal = place.journal("job")
    assert [body.request_id for body in journal.bodies(InputAccepted)] == ["one", "two"]
    assert [body.state for body in journal.bodies(LoopChanged)] == ["held", "active"]
    assert journal.the(CommandSettled).outcome == "done"
    journal.assert_every_input_ends_once()


def test_an_input_that_waits_is_cancelled_by_the_beginning_of_its_id(place: Place) -> None:
    failed(place)
    place.send("job", QUICK, key="first-of-two")
    place.send("job", QUICK, key="second-of-two")
    cancelled = place.call("cancel", "job", "first")
    assert told(cancelled) == (0, "cancelled"), cancelled
    assert place.journal("job").the(InputCancelled) == InputCancelled(
        request_id="first-of-two", reason="cancelled"
    )
    assert place.call("resume", "job", "--json").outcomes == ["done"]
    place.assert_effects_once("one 1", "second-of-two")
    late = place.call("cancel", "job", "second", "--json")
    assert (late.status, json.loads(late.stdout)["result"]) == (4, "too_late")
    assert told(place.call("cancel", "job", "second")) == (4, "not cancelled: that turn is over")
    unknown = place.call("cancel", "job", "third")
    assert (unknown.status, "no turn 'third'" in unknown.stderr) == (3, True)


def test_a_turn_that_is_sent_again_is_announced_by_its_input(place: Place) -> None:
    """A retry that a visitor has recorded is returned to the queue by the owner that runs it."""
    retried(place)

    async def visit(client: Client) -> None:
        del client
        import outlast
        from outlast.agents import Command
        from outlast.testing.agents import SCRIPTED, command

        agent = Command(command(SCRIPTED, "--effects", str(place.effects_file)))
        async with outlast.Runtime(place.url, agents={"plain": agent}) as runtime:
            session = await runtime.visit("job")
            assert session is not None
            await session.quiet()

    place.ask(visit)
    planned = place.call("plan", "job")
    assert b"no attempt had started since it was reopened (attempt 1 was before)" in planned.stdout
    resumed = place.call("resume", "job")
    assert "\n> [[effect" in resumed.stderr, resumed
    place.assert_effects_once("one 1", "one 2")
