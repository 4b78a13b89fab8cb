"""For each invariant of records.md, journals that violate it: refused with the seq of the wrong record."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from outlast.errors import IntegrityError
from outlast.records import effects as e
from outlast.records import types as t
from outlast.records.envelope import Cursor, Draft
from outlast.state.fold import fold
from outlast.testing.journals import JournalBuilder, bodies, written

Spell = Callable[[JournalBuilder], JournalBuilder]

FENCE = t.Fence(epoch=2, holder="owner 2")
ATTACHED = t.TurnAttached(attempt=1, generation="g", spool_offset=0)
RETRIED = t.TurnRetried(by="alice", mode="again")
HEARD = t.AgentEventRecorded(kind="raw", text="noise")
RETURNED = t.InputReturned(request_id="a", evidence="no input frame")
ANSWERED = t.GateResolved(gate="q", reason="answered", answer="yes", by="alice")
SKIPPED = t.CommandSettled(request_id="c", command="skip", outcome="done")


def steered(journal: JournalBuilder) -> JournalBuilder:
    """Turn `a` runs and its agent was about to be given `b`."""
    reserved = t.InputReserved(generation="g", seq=2, key="b", digest="d")
    return journal.running("a").accept("b").add(reserved, turn="a")


INTENDED = e.EffectIntended(
    effect="x", kind="write_back", name="push", arguments_digest="d", replay="never", key="k"
)
BODY = e.EffectDispatched(effect="x", body=1)


def effect(outcome: e.EffectOutcome, by: Literal["run", "check", "person"] = "run") -> e.EffectSettled:
    return e.EffectSettled(effect="x", outcome=outcome, by=by)


def owing(journal: JournalBuilder) -> JournalBuilder:
    """Turn `a` runs and owes an effect."""
    owed = [t.PlannedEffect(name="push", phase="write_back", replay="never")]
    started = t.TurnStarted(index=1, request_id="a", effects=owed)
    return journal.accept("a").add(started, turn="a").attempt("a").reserve("a")


def around(journal: JournalBuilder) -> JournalBuilder:
    """Its host step is done."""
    return owing(journal).add(e.HostDone(stop_reason="end"), INTENDED, turn="a")


# The last record of each journal is the wrong one.
VIOLATIONS: dict[str, tuple[Spell, str]] = {
    # 1: epochs, fences
    "a Fence of the same epoch": (lambda j: j.add(t.Fence(epoch=1, holder="x")), "not above"),
    "a Fence of a lower epoch": (lambda j: j.crash(5).add(t.Fence(epoch=3, holder="x")), "not above"),
    "a session that starts twice": (lambda j: j.add(bodies.session_started("m")), "started before"),
    "a loop that starts twice": (
        lambda j: j.add(t.LoopStarted(loop="main", name="m", agent="a", agent_kind="k", parent="main")),
        "started before",
    ),
    "a second root loop": (
        lambda j: j.add(t.LoopStarted(loop="other", name="m", agent="a", agent_kind="k")),
        "a root loop already",
    ),
    "a loop of a parent that is not there": (
        lambda j: j.add(t.LoopStarted(loop="b", name="m", agent="a", agent_kind="k", parent="c")),
        "no loop c",
    ),
    # 2: turns
    "a turn that is done twice": (lambda j: j.running("a").done("a").done("a"), "not open"),
    "a turn that fails after it was done": (lambda j: j.running("a").done("a").fail("a"), "not open"),
    "a turn that is done after it failed": (lambda j: j.running("a").fail("a").done("a"), "not open"),
    "a turn that is interrupted after it was done": (
        lambda j: j.running("a").done("a").interrupt("a"),
        "not open",
    ),
    "a turn that is returned after it was done": (
        lambda j: j.running("a").done("a").add(RETURNED),
        "not open",
    ),
    "a turn that is done after it was returned": (
        lambda j: j.accept("a").start("a").add(RETURNED).done("a"),
        "not open",
    ),
    "a turn that nobody asked for": (lambda j: j.start("a"), "does not wait"),
    "a turn that starts twice": (lambda j: j.accept("a").start("a").start("a"), "does not wait"),
    "a turn that starts again after its end": (
        lambda j: j.running("a").done("a").start("a"),
        "does not wait",
    ),
    "a turn of another name than its request": (
        lambda j: j.accept("a").add(t.TurnStarted(index=1, request_id="a"), turn="b"),
        "does not bear",
    ),
    "a turn that leaves an index out": (lambda j: j.accept("a").start("a", index=2), "instead of 1"),
    "a turn that repeats an index": (
        lambda j: j.running("a").done("a").accept("b").start("b", index=1),
        "instead of 2",
    ),
    "a returned turn with a new index": (
        lambda j: j.accept("a").start("a").add(RETURNED).start("a", index=2),
        "instead of 1",
    ),
    "an attempt at no turn": (lambda j: j.attempt("a"), "not open"),
    "an input reserved for no turn": (lambda j: j.running("a").done("a").reserve("a"), "not open"),
    # 4: what an agent is given
    "an input given again after its agent had it": (
        lambda j: j.running("a").add(HEARD, turn="a", cursor=Cursor("g", 9, 9, 1)).reserve("a", 2),
        "was given",
    ),
    "an input reserved for another life": (
        lambda j: j.running("a").reserve("a", generation="h"),
        "reserved for g",
    ),
    "an attach to a turn that has ended": (
        lambda j: j.running("a").done("a").crash(2).add(ATTACHED, turn="a"),
        "not open",
    ),
    "a park of a turn that was done": (lambda j: j.running("a").done("a").park("a"), "not open"),
    "a turn parked twice": (lambda j: j.running("a").park("a").park("a"), "not open"),
    "a retry of a turn that was done": (
        lambda j: j.running("a").done("a").add(RETRIED, turn="a"),
        "neither parked",
    ),
    "a retry of a turn that runs": (lambda j: j.running("a").add(RETRIED, turn="a"), "neither parked"),
    "a retry of an older turn that was done": (
        lambda j: j.running("a").done("a").running("b", 2).fail("b").add(RETRIED, turn="a"),
        "neither parked",
    ),
    "a skip of a turn that was done": (
        lambda j: j.running("a").done("a").add(SKIPPED, turn="a"),
        "not parked",
    ),
    "a turn of an earlier owner open after a restore": (
        lambda j: j.running("a").crash(2).restored(),
        "nobody attached",
    ),
    "a turn that only an earlier owner had attached to": (
        lambda j: j.running("a").crash(2).add(ATTACHED, turn="a").crash(3).restored(),
        "nobody attached",
    ),
    "a turn that starts while another runs": (
        lambda j: j.running("a").accept("b").start("b", 2),
        "turn a of",
    ),
    "a retry while another turn runs": (
        lambda j: j.running("a").park("a").running("b", 2).add(RETRIED, turn="a"),
        "turn b of",
    ),
    # 3: inputs
    "a request accepted twice while it waits": (lambda j: j.accept("a", "a"), "accepted before"),
    "a request accepted again while it runs": (lambda j: j.running("a").accept("a"), "accepted before"),
    "a request accepted again while it is parked": (
        lambda j: j.running("a").park("a").accept("a"),
        "accepted before",
    ),
    "a request accepted again after it failed": (
        lambda j: j.running("a").fail("a").accept("a"),
        "accepted before",
    ),
    "an input cancelled while it runs": (
        lambda j: j.running("a").add(t.InputCancelled(request_id="a", reason="withdrawn")),
        "open turn",
    ),
    "an input joined that does not wait": (
        lambda j: j.running("a").add(t.InputJoined(request_id="b"), turn="a"),
        "does not wait",
    ),
    "an input joined to no running turn": (
        lambda j: j.accept("b").add(t.InputJoined(request_id="b"), turn="a"),
        "not open",
    ),
    "a turn that ends while a steer is undecided": (lambda j: steered(j).done("a"), "not decided"),
    "a turn that is parked while a steer is undecided": (lambda j: steered(j).park("a"), "not decided"),
    # 4: effects
    "an effect intended before the host step is done": (
        lambda j: owing(j).add(INTENDED, turn="a"),
        "is not done",
    ),
    "an effect intended twice": (lambda j: around(j).add(INTENDED, turn="a"), "intended before"),
    "an effect dispatched that was not intended": (
        lambda j: around(j).add(e.EffectDispatched(effect="other", body=1), turn="a"),
        "not intended",
    ),
    "an effect settled that was not dispatched": (
        lambda j: around(j).add(effect("done"), turn="a"),
        "not dispatched",
    ),
    "an effect dispatched twice whose rule is never": (
        lambda j: around(j).add(BODY, e.EffectDispatched(effect="x", body=2), turn="a"),
        "nothing says",
    ),
    "an effect dispatched again that is unknown": (
        lambda j: around(j).add(BODY, effect("unknown"), e.EffectDispatched(effect="x", body=2), turn="a"),
        "nothing says",
    ),
    "an effect dispatched again that its own body calls absent": (
        lambda j: around(j).add(BODY, effect("absent"), e.EffectDispatched(effect="x", body=2), turn="a"),
        "nothing says",
    ),
    "an effect whose second body is called its third": (
        lambda j: around(j).add(
            BODY, effect("absent", "check"), e.EffectDispatched(effect="x", body=3), turn="a"
        ),
        "follows body 1",
    ),
    "an effect settled that is done": (
        lambda j: around(j).add(BODY, effect("done"), effect("unknown"), turn="a"),
        "is done",
    ),
    "a turn done before its effects": (lambda j: around(j).done("a"), "not done"),
    "a turn done without its effects": (lambda j: owing(j).done("a"), "left out"),
    "a turn given to an agent whose host step is done": (lambda j: around(j).attempt("a", 2), "is done"),
    "a turn returned whose host step is done": (
        lambda j: around(j).add(t.InputReturned(request_id="a", evidence="x")),
        "is done",
    ),
    "a host step done twice": (
        lambda j: around(j).add(e.HostDone(stop_reason="end"), turn="a"),
        "done before",
    ),
    "a turn resumed whose host step is not done": (
        lambda j: owing(j).add(e.TurnResumed(phase="settle"), turn="a"),
        "is not done",
    ),
    "an effect of an earlier reply settled after a retry": (
        lambda j: (
            around(j).add(BODY, effect("unknown"), turn="a").fail("a").add(RETRIED, effect("done"), turn="a")
        ),
        "not intended",
    ),
    # 5: gates
    "a gate answered twice": (
        lambda j: j.running("a").ask("a", "q").add(ANSWERED, ANSWERED),
        "answered before",
    ),
    "an answer to a gate that was never asked": (lambda j: j.add(ANSWERED), "answered before, or never"),
    "a turn that is done while it asks": (lambda j: j.running("a").ask("a", "q").done("a"), "gate q is open"),
    "a turn that fails while it asks": (lambda j: j.running("a").ask("a", "q").fail("a"), "gate q is open"),
    "a turn that is interrupted while it asks": (
        lambda j: j.running("a").ask("a", "q").interrupt("a"),
        "gate q is open",
    ),
    "a turn that is parked while it asks": (
        lambda j: j.running("a").ask("a", "q").park("a"),
        "gate q is open",
    ),
    "a turn that is returned while it asks": (
        lambda j: j.running("a").ask("a", "q").add(RETURNED),
        "gate q is open",
    ),
    "a gate opened twice": (
        lambda j: j.running("a").ask("a", "q").add(bodies.permission("q"), turn="a"),
        "opened before",
    ),
    "a gate prepared again while it is open": (
        lambda j: (
            j.running("a").ask("a", "q").add(t.GatePrepared(gate="q", name="8", generation="g", payload=b""))
        ),
        "prepared before",
    ),
    # 6: restores
    "a restore done that was never started": (lambda j: j.restored(), "begun no restore"),
    "a restore done twice": (lambda j: j.crash(2).restored().restored(), "begun no restore"),
    "a restore done by another owner": (
        lambda j: j.crash(2).add(t.Fence(epoch=3, holder="x")).restored(),
        "begun no restore",
    ),
    "an errored restore that was never started": (
        lambda j: j.add(t.RestoreErrored(kind="agent", message="m")),
        "begun no restore",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_journal_that_violates_an_invariant_is_refused(name: str) -> None:
    spell, reason = VIOLATIONS[name]
    records = spell(JournalBuilder()).records()
    fold("session", records[:-1])
    with pytest.raises(IntegrityError, match=reason) as caught:
        fold("session", records)
    assert caught.value.seq == len(records)
    assert caught.value.session_id == "session"
    assert caught.value.reason in str(caught.value)


# What the envelope alone can get wrong: the last record of `records()` with other coordinates.
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seq": 6}, "a gap"),
        ({"seq": 4}, "a gap"),
        ({"epoch": 0}, "below"),
        ({"epoch": 2}, "above"),
        ({"loop": "other"}, "no loop other"),
        ({"body": t.BlobRef(digest="d", size=1)}, "was not fetched"),
        ({"type": "Fence", "body": FENCE}, "fences epoch 2 and was written under 1"),
    ],
)
def test_wrong_coordinates_are_refused(change: dict[str, Any], reason: str) -> None:
    records = JournalBuilder().accept("a").start("a").records()
    wrong = [*records[:-1], msgspec.structs.replace(records[-1], **change)]
    with pytest.raises(IntegrityError, match=reason) as caught:
        fold("session", wrong)
    assert caught.value.seq == change.get("seq", 5)


def test_a_journal_begins_with_a_fence() -> None:
    draft = Draft(bodies.session_started("l"))
    record = msgspec.structs.replace(written([draft])[0], epoch=1)
    with pytest.raises(IntegrityError, match="above that of the newest Fence") as caught:
        fold("session", [record])
    assert caught.value.seq == 1


def test_an_input_without_a_loop_is_refused() -> None:
    started = Draft(t.TurnStarted(index=1, request_id="a"), turn="a")
    accepted = Draft(t.InputAccepted(request_id="a", content=[]))
    with pytest.raises(IntegrityError, match="no loop was started"):
        fold("session", written([Draft(t.Fence(epoch=1, holder="x")), accepted, started]))
