"""Whatever an agent prints, the fold goes on; wherever it is stopped, it goes on the same."""

import json

from hypothesis import given
from hypothesis import strategies as st

from outlast.agents import Command
from outlast.agents.contract import (
    AgentEvent,
    CloseStdin,
    ExitInfo,
    Fold,
    FoldContext,
    GateAnswer,
    InputLine,
    Prompt,
    TurnEnded,
    Wanted,
)
from outlast.records.types import Content

AGENT = Command(["agent"], stdin="open")
CONTEXT = FoldContext("s", "main", "/w", "p-0", confirmed=True, secret=b"x")
PROMPT = Prompt("t", 1, "t", (Content(text="hello"),))
WANTED = Wanted(prompt=PROMPT, answers=(GateAnswer("a", b"", "yes"), GateAnswer("", b"", "no")))

words = st.sampled_from(["", "a", "b", "started", "completed", "allow_once", "assistant", "1"])
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words, st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=5,
)
fields = ["id", "text", "role", "name", "status", "input", "output", "question", "choices", "stop_reason"]
fields += ["code", "message", "retryable", "retry_after", "nonce", "tokens"]
types = st.sampled_from(["session", "message", "tool", "gate", "usage", "done", "error", "other"])
wild_lines = st.builds(
    lambda kind, rest: json.dumps({"type": kind, **rest}).encode(),
    types,
    st.dictionaries(st.sampled_from(fields), values, max_size=6),
)
good_lines = st.sampled_from(
    [
        {"type": "session", "id": "p-0"},
        {"type": "session", "id": "p-1"},
        {"type": "message", "text": "hi"},
        {"type": "tool", "id": "a", "name": "x", "status": "started"},
        {"type": "tool", "id": "a", "status": "completed", "output": [1]},
        {"type": "gate", "id": "a", "question": "?", "choices": ["yes", "no"]},
        {"type": "gate", "id": "b", "question": "?", "choices": ["allow_once"]},
        {"type": "usage", "tokens": 3},
        {"type": "done"},
        {"type": "error", "code": "429", "message": "slow"},
    ]
).map(lambda line: json.dumps(line).encode())
cut_lines = st.builds(lambda line, at: line[:at], st.one_of(wild_lines, good_lines), st.integers(0, 60))
out_lines = st.one_of(good_lines, wild_lines, cut_lines, st.binary(max_size=40))
steps = st.lists(
    st.one_of(
        out_lines.map(lambda line: ("out", line)),
        st.just(("write", b"")),
        st.binary(max_size=20).map(lambda line: ("in", line)),
        st.just(("eof", b"")),
        st.just(("exit", b"")),
        st.binary(max_size=20).map(lambda head: ("long", head)),
    ),
    max_size=15,
)


def step(fold: Fold, what: str, data: bytes) -> tuple[object, list[AgentEvent]]:
    match what:
        case "out":
            return None, fold.apply_out(data)
        case "in":
            return None, fold.apply_in(data, fold.last_input + 1)
        case "eof":
            return None, fold.apply_eof()
        case "exit":
            return None, fold.apply_exit(ExitInfo(1, None))
        case "long":
            return None, fold.apply_long(data, 10**9)
    item = fold.next(WANTED)
    if isinstance(item, InputLine):
        return item, fold.apply_in(item.line, fold.last_input + 1)
    if isinstance(item, CloseStdin):
        return item, fold.apply_stdin_closed(fold.last_input + 1)
    return item, []


@given(steps)
def test_nothing_that_is_folded_raises_and_a_turn_ends_once(script: list[tuple[str, bytes]]) -> None:
    fold = AGENT.fold(CONTEXT)
    step(fold, "write", b"")
    events = [event for what, data in script for event in step(fold, what, data)[1]]
    ends = [event for event in events if isinstance(event, TurnEnded)]
    assert len(ends) <= 1
    assert all(end.turn == "t" for end in ends)
    if any(what == "exit" for what, _ in script):
        assert len(ends) == 1


@given(steps, st.integers(0, 15))
def test_a_fold_stopped_anywhere_goes_on_the_same(script: list[tuple[str, bytes]], stop: int) -> None:
    whole, first = AGENT.fold(CONTEXT), AGENT.fold(CONTEXT)
    assert step(whole, "write", b"") == step(first, "write", b"")
    for what, data in script[:stop]:
        assert step(whole, what, data) == step(first, what, data)
    second = AGENT.fold(CONTEXT, first.dump())
    for what, data in script[stop:]:
        assert step(whole, what, data) == step(second, what, data)
    assert second.dump() == whole.dump()
    assert (second.turn, second.ending, second.open_calls, second.last_input) == (
        whole.turn,
        whole.ending,
        whole.open_calls,
        whole.last_input,
    )


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_reaches_the_agent_unchanged_in_one_line(text: str) -> None:
    item = AGENT.fold(CONTEXT).next(Wanted(prompt=Prompt("t", 1, "t", (Content(text=text),))))
    assert isinstance(item, InputLine)
    assert item.line.endswith(b"\n")
    assert len(item.line.decode().splitlines()) == 1
    assert json.loads(item.line)["input"] == [{"type": "text", "text": text}]
