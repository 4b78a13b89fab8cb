"""A parked turn whose question a person answers with a retry runs again only when no other turn runs."""

from __future__ import annotations

from tests.support.place import Place
from tests.support.processes import until

from outlast.records.types import GateOpened, TurnRetried
from outlast.runtime.client import Client

FIRST_HANGS = "[[effect:{turn} {attempt}]][[touch:started]][[1?hang]][[say:finished]]"
BUSY = "[[effect:{turn}]][[touch:busy]][[wait:go]][[say:finished]]"


def asked_about_one_while_two_runs(place: Place) -> str:
    """The gate of the parked turn `one`; its session's new owner is at turn `two`."""
    place.send("job", FIRST_HANGS, key="one", agent="curious")
    place.start("resume", "job")
    place.until_there("started")
    place.send("job", BUSY, key="two", agent="curious")
    for child in place.children:
        if child.running:
            child.kill()
    place.kill_leftovers()
    place.start("resume", "job", "--json")
    place.until_there("busy")
    return place.journal("job").the(GateOpened).gate


def test_an_answer_that_means_a_retry_waits_for_the_running_turn(place: Place) -> None:
    gate = asked_about_one_while_two_runs(place)
    owner = place.children[-1]
    asking = place.start("answer", "job", gate, "retry")

    async def waits(client: Client) -> bool:
        return any(entry.kind == "answer" for entry in await client.store.pending("job"))

    until(lambda: place.ask(waits), "the command is admitted")
    # Commands are taken in their order: when this one is settled, the owner has looked at the other.
    place.ask(lambda client: client.session("job").cancel("nothing", actor="test"))
    assert not place.journal("job").bodies(TurnRetried)
    place.go()
    assert owner.wait().outcomes[-2:] == ["done", "done"], owner.told()
    assert asking.wait().status == 0, asking.told()
    journal = place.journal("job")
    assert not journal.state.gates
    journal.assert_every_input_ends_once()
    place.assert_effects_once("one 1", "one 2", "two")
