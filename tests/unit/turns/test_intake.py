"""Spool frames to events: each is taken once, however often and from wherever the spool is read."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from outlast.agents import Codex, Command
from outlast.agents.contract import ExitInfo, FoldContext, Message, TurnEnded
from outlast.records.envelope import Cursor
from outlast.records.types import AgentStateFolded
from outlast.turns.intake import ExitSeen, InputSeen, Intake, KillSeen, Located, OutputSeen, Seen

AGENT = Command(["agent"])
CONTEXT = FoldContext("s", "l", "/w", None, confirmed=False, secret=b"x")
PROMPT = json.dumps(
    {
        "outlast": 1,
        "nonce": "n",
        "session": "s",
        "loop": "l",
        "turn": "t",
        "attempt": 1,
        "request_id": "t",
        "idempotency_key": "s/t",
        "resume": None,
        "workspace": "/w",
        "input": [{"type": "text", "text": "go"}],
    }
).encode()


def lines(texts: list[str]) -> bytes:
    said = [{"type": "message", "role": "assistant", "text": text} for text in texts]
    return b"".join(
        json.dumps(item).encode() + b"\n" for item in [*said, {"type": "done", "stop_reason": "x"}]
    )


def spool(output: bytes, cuts: list[int]) -> list[tuple[Seen, int, int]]:
    """A prompt and `output` in chunks that end at `cuts`, then the exit; each frame with its place."""
    frames: list[tuple[Seen, int, int]] = [(InputSeen(PROMPT + b"\n", 1), 0, 100)]
    edges = sorted({0, *(cut % (len(output) + 1) for cut in cuts), len(output)})
    at = 100
    for start, stop in itertools.pairwise(edges):
        frames.append((OutputSeen(output[start:stop], start), at, at + 40 + stop - start))
        at += 40 + stop - start
    frames.append((OutputSeen(b"", len(output), end=True), at, at + 40))
    frames.append((ExitSeen(ExitInfo(status=0, signal=None)), at + 40, at + 80))
    return frames


def intake(journaled: Cursor | None = None, start: AgentStateFolded | None = None) -> Intake:
    return Intake(
        AGENT.fold(CONTEXT, start.state if start else None), "g", AGENT.line_limit, journaled, start
    )


def texts(located: list[Located]) -> list[str]:
    return [item.event.text for item in located if isinstance(item.event, Message)]


def fed(into: Intake, frames: list[tuple[Seen, int, int]]) -> list[Located]:
    return [item for seen, begin, end in frames for item in into.feed(seen, begin, end)]


said = st.lists(st.text(max_size=20), max_size=8)
cuts = st.lists(st.integers(0, 2000), max_size=8)


@given(said, cuts, st.integers(0, 20))
def test_replay_as_new(messages: list[str], edges: list[int], taken: int) -> None:
    """What the journal's cursor covers is folded again without an event; the rest comes exactly once."""
    frames = spool(lines(messages), edges)
    whole = fed(intake(), frames)
    cursor = whole[taken % len(whole)].cursor
    before = [item for item in whole if item.cursor == cursor or whole.index(item) < taken % len(whole)]
    last = max(index for index, item in enumerate(whole) if item.cursor == cursor)
    again = fed(intake(journaled=cursor), frames)
    assert before
    assert [item.event for item in again] == [item.event for item in whole[last + 1 :]]


@given(said, cuts, st.integers(0, 20))
def test_a_stored_state_goes_on_where_it_was_stored(messages: list[str], edges: list[int], at: int) -> None:
    """Reading from the stored state's frame on gives what reading from the beginning gives."""
    frames = spool(lines(messages), edges)
    first = intake()
    split = at % len(frames)
    early = fed(first, frames[:split])
    stored = first.dump()
    rest = [frame for frame in frames if frame[2] > stored.offset]
    late = fed(intake(journaled=first.cursor, start=stored), rest)
    assert texts(early) + texts(late) == messages


def test_the_end_of_the_turn_is_seen_once() -> None:
    ends = [x for x in fed(intake(), spool(lines(["a"]), [])) if isinstance(x.event, TurnEnded)]
    assert [end.event.turn for end in ends if isinstance(end.event, TurnEnded)] == ["t"]


def test_what_the_exit_said_is_taken_once() -> None:
    """An owner that dies between the last words and the terminal leaves a cursor behind them: the next one is
    told the turn's end again, and nothing else."""
    agent = Codex()
    said = b'{"method":"item/agentMessage/delta","params":{"threadId":"x","itemId":"m","delta":"ha"}}\n'
    opening = b'{"id":1,"method":"thread/start","params":{}}\n'
    opened = b'{"id":1,"result":{"thread":{"id":"x"}}}\n'
    prompt = (
        b'{"id":2,"method":"turn/start","params":{"threadId":"x","clientUserMessageId":"t","input":[]}}\n'
    )
    frames: list[tuple[Seen, int, int]] = [
        (InputSeen(opening, 1), 0, 100),
        (OutputSeen(opened, 0), 100, 200),
        (InputSeen(prompt, 2), 200, 300),
        (OutputSeen(said, len(opened)), 300, 400),
        (ExitSeen(ExitInfo(status=None, signal=9)), 400, 440),
    ]
    whole = fed(Intake(agent.fold(CONTEXT), "g", agent.line_limit, None, None, prompt=2), frames)
    assert Message("assistant", "ha", cut=True) in [item.event for item in whole]
    again = fed(Intake(agent.fold(CONTEXT), "g", agent.line_limit, whole[-1].cursor, None, prompt=2), frames)
    assert [type(item.event) for item in again] == [TurnEnded]


def test_an_agent_that_closed_its_output_and_lived_on_was_not_cancelled() -> None:
    """The kill that ends it is ours, but its own silence came first."""
    frames: list[tuple[Seen, int, int]] = [
        (InputSeen(PROMPT + b"\n", 1), 0, 100),
        (OutputSeen(b"", 0, end=True), 100, 140),
        (KillSeen(), 140, 180),
        (ExitSeen(ExitInfo(status=None, signal=9, killed=True)), 180, 220),
    ]
    into = intake()
    (end,) = [x.event for x in fed(into, frames) if isinstance(x.event, TurnEnded)]
    assert end.failure is not None
    assert end.failure.code == "protocol_error"
