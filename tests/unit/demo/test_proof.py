"""The demo's proof is counted: whatever is wrong in the file, the journal or the processes shows, by name."""

from dataclasses import replace

import pytest

from outlast.demo.effects import parse
from outlast.demo.proof import Asked, Evidence, Proof, prove
from outlast.records.envelope import Record
from outlast.records.types import (
    AgentSessionChanged,
    Body,
    CallObserved,
    Content,
    Fence,
    InputAccepted,
    LoopStarted,
    Manifest,
    Receipt,
    ReceiptError,
    SessionStarted,
    TurnAttached,
    TurnAttemptStarted,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
    TurnStarted,
)

ASKED = (
    Asked("a", 3, "agent killed"),
    Asked("b", 2, "runtime killed"),
    Asked("c", 2, "both killed"),
    Asked("d", 1),
)
FILE = [
    "a step 1 agent 10",
    "b step 1 agent 11",
    "b step 2 agent 11",
    "c step 1 agent 12",
    "d step 1 agent 13",
]
MANIFEST = Manifest(agent="demo", agent_kind="command", adapter="command/1", workspace="/w")
KILLED = ReceiptError(code="crashed", message="ended by signal 9", signal=9)


class Story:
    """A journal as the demo's is, with what is left out or put in between."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._say(Fence(epoch=1, holder="one"))
        started = SessionStarted(
            lineage="l", manifest=MANIFEST, fingerprint="f", title="demo", workspace="/w", labels={}
        )
        self._say(started)
        self._say(LoopStarted(loop="main", name="main", agent="demo", agent_kind="command"))
        for asked in ASKED:
            self._say(InputAccepted(request_id=asked.turn, content=[Content(text="steps")]))
        self._begin("a", 1, calls=2)
        self._say(failed(KILLED), "a")
        self._begin("b", 2, calls=1)
        self._say(Fence(epoch=2, holder="two", previous_epoch=1))
        self._say(TurnAttached(attempt=1, generation="gen-000002", spool_offset=0), "b")
        self._step("b", 2)
        self._say(TurnDone(stop_reason="end_turn"), "b")
        self._begin("c", 3, calls=2)
        self._say(TurnInterrupted(index=3, reason="crash", evidence="it has ended"), "c")
        self._begin("d", 4, calls=1)
        self._say(TurnDone(stop_reason="end_turn"), "d")

    def _begin(self, turn: str, index: int, *, calls: int) -> None:
        self._say(TurnStarted(index=index, request_id=turn), turn)
        attempt = TurnAttemptStarted(
            attempt=1, folder="/f", generation=f"gen-{index:06d}", machine="m", boot_id="b"
        )
        self._say(attempt, turn)
        bound = AgentSessionChanged(
            provider="command", provider_session="s", state="bound", source="observed"
        )
        self._say(bound, turn)
        for step in range(1, calls + 1):
            self._step(turn, step, ended=turn in "bd" or step < calls)

    def _step(self, turn: str, step: int, *, ended: bool = True) -> None:
        self._say(CallObserved(call=f"step-{step}", name=f"step {step}", status="started"), turn)
        if ended:
            self._say(CallObserved(call=f"step-{step}", name=f"step {step}", status="completed"), turn)

    def _say(self, body: Body, turn: str | None = None) -> None:
        self.records.append(record(body, turn, seq=len(self.records) + 1))

    def without(self, kind: type[Body], turn: str | None) -> list[Record]:
        return [r for r in self.records if not (isinstance(r.body, kind) and r.turn == turn)]

    def instead(self, turn: str, kind: type[Body], body: Body) -> list[Record]:
        return [
            record(body, turn, r.seq) if isinstance(r.body, kind) and r.turn == turn else r
            for r in self.records
        ]


def record(body: Body, turn: str | None, seq: int) -> Record:
    return Record(
        seq=seq,
        epoch=1,
        uuid=seq.to_bytes(16, "big"),
        at=0,
        type=type(body).__name__,
        v=1,
        loop="main",
        turn=turn,
        cause=None,
        actor=None,
        cursor=None,
        body=body,
        chain=b"",
    )


def failed(error: ReceiptError) -> TurnFailed:
    return TurnFailed(
        receipt=Receipt(attempt=1, completed_phases=[], failed_phase="host_execute", error=error)
    )


def evidence(records: list[Record] | None = None, lines: list[str] | None = None) -> Evidence:
    return Evidence(
        session="demo",
        asked=ASKED,
        effects=parse("".join(f"{line}\n" for line in (FILE if lines is None else lines))),
        records=Story().records if records is None else records,
        runtimes=3,
        refused=1,
    )


def wrong(proof: Proof) -> dict[str, int]:
    return {check.name: check.wrong for check in proof.checks if check.wrong}


def test_all_as_promised_holds_and_the_table_says_what_was_done() -> None:
    proof = prove(evidence())
    assert proof.holds
    assert wrong(proof) == {}
    assert [(t.turn, t.ended, t.asked, t.once, t.more, t.note) for t in proof.turns] == [
        ("a", "failed", 3, 1, 0, "cut in step 2, not rerun"),
        ("b", "done", 2, 2, 0, "2 runtimes, 1 agent process"),
        ("c", "interrupted", 2, 1, 0, "cut in step 2, not rerun"),
        ("d", "done", 1, 1, 0, ""),
    ]


def test_the_cut_step_may_have_been_done_once() -> None:
    assert prove(evidence(lines=[*FILE, "a step 2 agent 10"])).holds


@pytest.mark.parametrize("line", FILE)
def test_a_doubled_line_of_any_turn_is_a_doubled_effect(line: str) -> None:
    assert wrong(prove(evidence(lines=[*FILE, line]))) == {"effects doubled": 1}


def test_a_step_of_the_cut_turn_that_a_second_agent_did_again_is_a_doubled_effect() -> None:
    assert wrong(prove(evidence(lines=[*FILE, "c step 1 agent 99"]))) == {"effects doubled": 1}


@pytest.mark.parametrize("line", FILE)
def test_a_missing_line_is_a_lost_effect(line: str) -> None:
    assert wrong(prove(evidence(lines=[kept for kept in FILE if kept != line]))) == {"effects lost": 1}


@pytest.mark.parametrize("line", ["a step 4 agent 10", "e step 1 agent 10", "half a li", ""])
def test_a_line_that_nobody_asked_for_counts(line: str) -> None:
    assert wrong(prove(evidence(lines=[*FILE, line]))) == {"effects doubled": 1}


def test_an_input_that_was_acknowledged_and_never_came_to_an_end_is_lost() -> None:
    lost = [r for r in Story().records if r.turn != "d"]
    found = wrong(prove(evidence(records=lost)))
    assert found["inputs lost"] == 1
    assert found["ids changed"] == 1
    assert found["wrong endings"] == 1


def test_a_turn_that_was_given_to_an_agent_twice_was_run_again() -> None:
    story = Story()
    again = TurnAttemptStarted(attempt=2, folder="/f", generation="gen-000009", machine="m", boot_id="b")
    assert wrong(prove(evidence(records=[*story.records, record(again, "c", 99)]))) == {"turns run twice": 1}


@pytest.mark.parametrize(
    ("turn", "kind", "body"),
    [
        ("a", TurnFailed, failed(ReceiptError(code="crashed", message="m", signal=11))),
        ("a", TurnFailed, failed(ReceiptError(code="timeout", message="m", signal=9))),
        ("a", TurnFailed, TurnInterrupted(index=1, reason="crash", evidence="e")),
        ("c", TurnInterrupted, TurnInterrupted(index=3, reason="crash")),
        ("c", TurnInterrupted, failed(KILLED)),
    ],
)
def test_a_kill_that_the_journal_tells_otherwise_is_a_wrong_ending(
    turn: str, kind: type[Body], body: Body
) -> None:
    proof = prove(evidence(records=Story().instead(turn, kind, body)))
    assert wrong(proof) == {"wrong endings": 1}


def test_a_turn_that_was_not_attached_to_did_not_survive_its_runtime() -> None:
    assert wrong(prove(evidence(records=Story().without(TurnAttached, "b")))) == {"wrong endings": 1}


def test_another_id_of_session_or_agent_session_is_seen() -> None:
    story = Story()
    other = AgentSessionChanged(provider="command", provider_session="x", state="bound", source="observed")
    assert wrong(prove(evidence(records=[*story.records, record(other, "d", 99)]))) == {"ids changed": 1}
    assert wrong(prove(evidence(records=story.without(SessionStarted, None)))) == {"ids changed": 1}


def test_an_owner_too_many_is_seen_also_without_a_higher_epoch() -> None:
    third = record(Fence(epoch=3, holder="three", previous_epoch=2), None, 99)
    assert wrong(prove(evidence(records=[*Story().records, third]))) == {"second owners": 1}
    twin = record(Fence(epoch=2, holder="three", previous_epoch=2), None, 99)
    assert wrong(prove(evidence(records=[*Story().records, twin]))) == {"second owners": 2}


def test_a_process_that_lives_on_is_named() -> None:
    proof = prove(replace(evidence(), left=("process 4711",)))
    assert wrong(proof) == {"processes left": 1}
    assert proof.checks[-1].detail == "process 4711"
