"""A host reads a spool that grows under it, and another begins again from what it has stored."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.agents import Codex, Command
from outlast.agents.contract import Delta, FoldContext, Message, Notice
from outlast.keep import AgentFolder, Claim, Generation, frames, layout
from outlast.keep.spool import Spool
from outlast.records.envelope import Cursor
from outlast.records.types import AgentSessionChanged, AgentStateFolded
from outlast.state.model import Loop
from outlast.turns.follower import SpoolLost
from outlast.turns.host import AgentHost
from outlast.turns.hosting import Hosting
from outlast.turns.intake import Intake, Located
from outlast.turns.merge import Merger, Place
from outlast.turns.reading import read_on, take_in

AGENT = Command(["agent"])
HOSTING = Hosting("s", "/w", Path("/w"), Claim("store", "lineage", 1, "owner"), "m", b"x", {})
CONTEXT = FoldContext("s", "l", "/w", None, confirmed=False, secret=b"x")


class Life:
    """An agent life without an agent: its spool, written as the shim writes it."""

    def __init__(self, root: Path) -> None:
        self.generation: Generation = AgentFolder.create(root / "agent").generation(1)
        self.generation.path.mkdir()
        self.folder = os.open(self.generation.path, os.O_RDONLY | os.O_DIRECTORY)
        self.spool = Spool(self.folder, "boot")
        self._hosting = Hosting("s", "/w", root, Claim("store", "lineage", 1, "owner"), "m", b"x", {})

    def host(self, journaled: Cursor | None = None, start: AgentStateFolded | None = None) -> AgentHost:
        fold = AGENT.fold(CONTEXT, start.state if start else None)
        intake = Intake(fold, self.generation.name, AGENT.line_limit, journaled, start)
        return AgentHost(self.generation, intake, self._hosting, AGENT)


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    monkeypatch.setattr(layout, "SEGMENT_SIZE", 2048)
    made = Life(tmp_path)
    yield made
    os.close(made.folder)


def prompt() -> bytes:
    said = {"outlast": 1, "nonce": "n", "turn": "t", "attempt": 1, "request_id": "t", "input": []}
    return json.dumps(said | {"padding": "x" * 3000}).encode() + b"\n"


def conversation(life: Life) -> Iterator[None]:
    """A prompt in parts, while the agent talks, cuts its lines anywhere and fills segments."""
    line = prompt()
    parts = [line[at : at + 500] for at in range(0, len(line), 500)]
    said = b"".join(
        json.dumps({"type": "message", "role": "assistant", "text": f"{n} " + "y" * 150}).encode() + b"\n"
        for n in range(24)
    )
    chunk = len(said) // (3 * len(parts)) + 1
    chunks = [said[at : at + chunk] for at in range(0, len(said), chunk)]
    for n, part in enumerate(parts):
        flags = (frames.FIRST if n == 0 else 0) | (frames.MORE if n < len(parts) - 1 else 0)
        life.spool.append(frames.INPUT, part, flags=flags, seq=1)
        yield
        for output in chunks[3 * n : 3 * n + 3]:
            life.spool.append(frames.OUTPUT, output)
            yield


def texts(located: list[Located]) -> list[str]:
    return [item.event.text.split()[0] for item in located if isinstance(item.event, Message)]


def test_an_input_that_the_shim_takes_in_parts_is_folded_once_by_whoever_reads(life: Life) -> None:
    """A host that looks after each frame folds the prompt as soon as its last part is there, so that it does
    not ask for it again; and so does each host that goes on from a state stored between any two frames."""
    first, stored, told = life.host(), [], list[Located]()
    for _ in conversation(life):
        told += first.read()[0]
        stored.append((first.intake.dump(), first.intake.cursor, len(texts(told))))
    assert first.intake.fold.last_input == 1
    assert first.intake.fold.turn == "t"
    everything = [str(n) for n in range(24)]
    assert texts(told) == everything
    assert len(layout.segments(os.fsencode(life.generation.path))) > 3
    open_inputs = 0
    for state, cursor, given in stored:
        open_inputs += state.last_input == 0 and state.offset > 0
        later = life.host(cursor, state)
        rest, more = later.read()
        assert not more
        assert later.intake.fold.last_input == 1
        assert later.intake.fold.turn == "t"
        assert texts(rest) == everything[given:]
    assert open_inputs > 5


def test_a_stored_state_lets_go_of_no_part_of_an_input_that_is_still_coming(life: Life) -> None:
    host = life.host()
    for _ in conversation(life):
        host.read()
        life.spool.trim(host.intake.dump().offset)
        assert life.spool.base <= host.intake.cursor.frame
        later = life.host(host.intake.cursor, host.intake.dump())
        later.read()
        assert later.intake.fold.last_input == host.intake.fold.last_input
    assert host.intake.fold.last_input == 1


def tool_lines(life: Life, count: int) -> None:
    """A prompt, and a call for each line."""
    life.spool.append(frames.INPUT, prompt(), flags=frames.FIRST, seq=1)
    lines = [b'{"type":"tool","id":"c%d","name":"n","status":"started"}\n' % n for n in range(count)]
    for at in range(0, count, 100):
        life.spool.append(frames.OUTPUT, b"".join(lines[at : at + 100]))


async def test_who_reads_a_long_spool_lets_others_run_and_holds_little_at_a_time(life: Life) -> None:
    """Also of lines that are small beside their records."""
    tool_lines(life, 20_000)
    merger = Merger(Place("main", "t", "command"), Loop("main", "main", "a", "command"))
    held: list[int] = []

    async def flush() -> None:
        held.append(len(merger.take()))

    steps, over = 0, False

    async def others() -> None:
        nonlocal steps
        while not over:
            steps += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await read_on(life.host(), merger, flush)
    over = True
    await beside
    held.append(len(merger.take()))
    assert sum(held) == 20_000
    assert max(held) <= 1_000
    assert steps >= 20


class Living(AgentHost):
    """Its shim has told where its spool ends; there is no shim here."""

    told: int

    @property
    def tip(self) -> int:
        return self.told


async def test_what_an_agent_writes_while_it_is_read_on_is_left_unread(life: Life) -> None:
    """It may write faster than it is read, for ever."""
    tool_lines(life, 1000)
    fold = AGENT.fold(CONTEXT, None)
    intake = Intake(fold, life.generation.name, AGENT.line_limit, None, None)
    host = Living(life.generation, intake, HOSTING, AGENT)
    host.told = life.spool.tip
    over = False

    async def writes() -> None:
        for _ in range(20):
            if not over:
                life.spool.append(frames.OUTPUT, b"more\n" * 600)
            await asyncio.sleep(0)

    async def flush() -> None:
        merger.take()

    merger = Merger(Place("main", "t", "command"), Loop("main", "main", "a", "command"))
    writing = asyncio.create_task(writes())
    await read_on(host, merger, flush)
    over, tip = True, life.spool.tip
    await writing
    assert host.told <= host.position < tip


def test_what_came_before_a_damage_is_given_first_and_then_it_is_told_for_ever(life: Life) -> None:
    list(conversation(life))
    segments = [life.generation.path / os.fsdecode(layout.segment_name(b)) for b in bases(life)]
    data = bytearray(segments[-2].read_bytes())
    data[len(data) // 2] ^= 1
    segments[-2].write_bytes(data)
    host, told = life.host(), list[Located]()
    with pytest.raises(SpoolLost, match="damaged"):
        all_of(host, told)
    assert 0 < len(texts(told)) < 24
    for _ in range(2):
        with pytest.raises(SpoolLost, match="damaged"):
            host.read()


def all_of(host: AgentHost, told: list[Located]) -> None:
    more = True
    while more:
        located, more = host.read()
        told += located


def bases(life: Life) -> list[int]:
    return layout.segments(os.fsencode(life.generation.path))


def test_a_state_of_another_version_of_the_adapter_is_made_anew_from_the_spool(life: Life) -> None:
    """As far as the spool has its beginning; else it is a gap, and told as one."""
    list(conversation(life))
    strange = AgentStateFolded(
        generation=life.generation.name, offset=4000, stdout=0, last_input=1, state=b"[]"
    )
    loop = Loop("main", "main", "a", "command", folded=strange)
    for agent in (AGENT, Codex()):
        host = AgentHost.dead(HOSTING, agent, loop, life.generation)
        host.read()
        assert host.intake.fold.last_input == 1
    life.spool.trim(4096)
    with pytest.raises(SpoolLost, match="begins at"):
        AgentHost.dead(HOSTING, AGENT, loop, life.generation).read()


def test_what_an_agent_says_of_waiting_is_no_sign_of_life(life: Life) -> None:
    """It is shown as it comes, and the idle clock goes on."""
    codex = Codex()
    host = AgentHost(
        life.generation, Intake(codex.fold(CONTEXT), "g", codex.line_limit, None, None), HOSTING, codex
    )
    life.spool.append(
        frames.INPUT, b'{"id":1,"method":"thread/start","params":{}}\n', flags=frames.FIRST, seq=1
    )
    life.spool.append(frames.OUTPUT, b'{"id":1,"result":{"thread":{"id":"x"}}}\n')
    host.read()
    heard = host._follower._last_frame_at
    said = {"threadId": "x", "willRetry": True, "error": {"message": "waiting for network"}}
    life.spool.append(frames.OUTPUT, json.dumps({"method": "error", "params": said}).encode() + b"\n")
    shown: list[Delta | Notice] = []
    merger = Merger(Place("main", "t", "codex"), Loop("main", "main", "a", "codex"))
    take_in(host, merger, shown.append)
    assert shown == [Notice("codex: waiting for network")]
    assert not merger.pending
    assert host._follower._last_frame_at == heard
    life.spool.append(frames.OUTPUT, b"something else\n")
    host.read()
    assert host._follower._last_frame_at > heard


KEY = "correct-horse-battery"
FAULTS: list[tuple[str, list[dict[str, object]]]] = [
    (
        "thread/start",
        [
            {"id": 1, "result": {"thread": {"id": "x"}}},
            {"method": "error", "params": {"threadId": "x", "willRetry": True, "error": {"message": KEY}}},
        ],
    ),
    ("thread/resume", [{"id": 1, "error": {"code": -32603, "message": f"cannot read it: {KEY}"}}]),
]


@pytest.mark.parametrize(("request_name", "said"), FAULTS)
def test_what_an_agent_says_of_a_fault_is_told_without_the_secrets_that_it_was_given(
    life: Life, request_name: str, said: list[dict[str, object]]
) -> None:
    """Shown, as a notice, or recorded, as why its session is lost; a conversation is kept as it is."""
    codex = Codex()
    hosting = replace(HOSTING, environ={"OPENAI_API_KEY": KEY})
    context = replace(CONTEXT, provider_session="x" if request_name == "thread/resume" else None)
    host = AgentHost(
        life.generation, Intake(codex.fold(context), "g", codex.line_limit, None, None), hosting, codex
    )
    request = json.dumps({"id": 1, "method": request_name, "params": {"threadId": "x"}}).encode() + b"\n"
    life.spool.append(frames.INPUT, request, flags=frames.FIRST, seq=1)
    for line in said:
        life.spool.append(frames.OUTPUT, json.dumps(line).encode() + b"\n")
    shown: list[Delta | Notice] = []
    merger = Merger(Place("main", "t", "codex"), Loop("main", "main", "a", "codex"))
    while take_in(host, merger, shown.append):
        pass
    told = [*shown, *(draft.body for draft in merger.take())]
    assert any(isinstance(one, Notice | AgentSessionChanged) and "[redacted]" in repr(one) for one in told)
    assert KEY not in repr(told)
