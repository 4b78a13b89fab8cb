"""Every prefix of a real journal: a restore can begin there, has little to do, and has it done once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from tests.support.restores import carried_out

from outlast.agents.contract import ExitInfo
from outlast.records.envelope import Record
from outlast.records.types import OnInterrupt
from outlast.restore.facts import AgentFacts, Facts
from outlast.restore.plan import RestorePlan, plan
from outlast.state.fold import apply, digest
from outlast.state.invariants import violations
from outlast.state.model import State
from outlast.state.snapshot import snapshot_of, state_of
from outlast.turns.landing import Landing

KILLED = ExitInfo(status=None, signal=9)
LANDINGS: Sequence[Landing] = ("none", "never_written", "accepted", "unknown", "written", "foreign")
CHOICES: Sequence[OnInterrupt] = ("skip", "continue", "retry", "hold", "ask")
WITHOUT_REPAIR = {"Fence", "RestoreStarted", "TurnAttached", "TurnResumed", "RestoreDone"}


def states(session: str, records: Sequence[Record]) -> list[State]:
    """The state after each prefix, the empty one first."""
    found = [State(session)]
    for record in records:
        after = found[-1].copy()
        apply(after, record)
        found.append(after)
    return found


def found_of(state: State) -> Iterator[Facts]:
    """What a probe may find of the agent of such a state: alive, begun or not; dead with whatever its spool
    says; gone from this machine."""
    loop = state.root or "main"
    for landing, started in product(LANDINGS, (True, False)):
        yield _facts(loop, landing=landing, alive=True, started=started)
    for landing, choice, gone in product(LANDINGS, CHOICES, (True, False)):
        yield _facts(loop, landing=landing, on_interrupt=choice, gone=gone, exit=KILLED)
    for terminal in ("done", "failed", "cancelled"):
        yield _facts(loop, landing="written", terminal=terminal, exit=KILLED)
    yield Facts(agents={loop: AgentFacts(loop=loop, known=True, generation="g", landing="unknown")})
    yield Facts(agents={loop: AgentFacts(loop=loop, known=False)})


def _facts(loop: str, **more: object) -> Facts:
    agent = AgentFacts(loop=loop, known=True, generation="g", found=True, readable=True, **more)  # type: ignore[arg-type]
    return Facts(agents={loop: agent})


def check_prefixes(session: str, records: Sequence[Record]) -> int:
    """Restore each prefix, and what comes of it, with everything that may be found; the number of prefixes
    and findings."""
    count = 0
    for state in states(session, records):
        before = records[: state.seq]
        for seen in found_of(state):
            chosen = plan(state, seen)
            if not chosen.starts:
                _restore_twice(before, state, seen, chosen)
                count += 1
    return count


def _restore_twice(before: Sequence[Record], state: State, seen: Facts, chosen: RestorePlan) -> None:
    first = carried_out(state, seen, chosen)
    broken = violations([*before, *first.records])
    assert not broken, (state.seq, seen, broken)
    attached = {turn.turn for turn in chosen.turns if turn.action == "attach"}
    reopened = {turn.turn for turn in chosen.turns if turn.then in ("retry", "continue")}
    # Its effects are still to be done, or its end is to be recorded: the turn's own owner does that.
    after_host = {turn.turn for turn in first.state.open_turns.values() if turn.host_done is not None}
    assert set(first.state.open_turns) == attached | reopened | after_host, (state.seq, seen)
    second = carried_out(first.state, seen, plan(first.state, seen))
    repaired = [r for r in second.records if r.type not in WITHOUT_REPAIR]
    # One that was reopened, and that no agent was given yet, is returned to the queue, once.
    returned = [r for r in repaired if r.type == "InputReturned"]
    assert len(returned) == len(repaired) == len(reopened), (state.seq, seen, repaired)
    third = carried_out(second.state, seen, plan(second.state, seen))
    assert {record.type for record in third.records} <= WITHOUT_REPAIR, (state.seq, seen)


def check_snapshots(session: str, records: Sequence[Record]) -> None:
    """The fold from a snapshot after any record comes to where the fold from the beginning does."""
    before = states(session, records)
    end = digest(before[-1])
    for state in before[1:]:
        again = state_of(snapshot_of(state))
        for record in records[state.seq :]:
            apply(again, record)
        assert digest(again) == end, f"from a snapshot after record {state.seq}"
