"""The blocks of `resume --json`, from records that a real store keeps, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest

from outlast.cli.blocks import Blocks
from outlast.cli.output import Screen
from outlast.cli.present import JsonPresenter
from outlast.ids import new_id
from outlast.journal import Journal, read_records
from outlast.records.envelope import Draft
from outlast.records.types import (
    AgentEventRecorded,
    Body,
    Content,
    Fence,
    InputAccepted,
    InputReserved,
    LoopStarted,
    Manifest,
    SessionStarted,
    TurnDone,
    TurnInterrupted,
    TurnParked,
    TurnRetried,
    TurnStarted,
)
from outlast.store.url import open_store, sqlite_url


def accepted(*requests: str) -> list[Draft]:
    return [
        Draft(InputAccepted(request_id=request, content=[Content(text="hi")]), loop="main", cause=request)
        for request in requests
    ]


def of(turn: str, *bodies: Body) -> list[Draft]:
    return [Draft(body, loop="main", turn=turn) for body in bodies]


def begun(turn: str, index: int = 1) -> TurnStarted:
    return TurnStarted(index=index, request_id=turn)


def cut_off(index: int = 1) -> TurnInterrupted:
    return TurnInterrupted(index=index, reason="crash")


RETRIED = TurnRetried(by="on_interrupt", mode="again")
PARKED = TurnParked(reason="held")
DONE = TurnDone(stop_reason="end_turn")


@pytest.fixture(autouse=True)
def _own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))


async def told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *batches: Sequence[Draft], live: bool
) -> list[str]:
    """What is printed of the batches: `ids of TURN`, types of records, `OUTCOME: text`. `live`: each batch is
    shown when it is stored, not all of them at the end."""
    out = StringIO()
    monkeypatch.setattr("sys.stdout", out)
    store = await open_store(sqlite_url(tmp_path / "store.db"))
    lease = await store.acquire("s")
    journal = await Journal.open(store, lease)
    manifest = Manifest(agent="a", agent_kind="command", adapter="command", workspace="/w")
    started = SessionStarted(lineage=new_id(), manifest=manifest, fingerprint="f", title="t", workspace="/w")
    loop = LoopStarted(loop="main", name="main", agent="a", agent_kind="command")
    await journal.append(
        [Draft(Fence(epoch=lease.epoch, holder="me")), Draft(started), Draft(loop, loop="main")]
    )
    shown = journal.state.seq
    presenter = JsonPresenter(Screen({}), store)
    blocks = Blocks("s", store, presenter, {})
    for number, batch in enumerate(batches, 1):
        await journal.append(list(batch))
        if live or number == len(batches):
            async for record in read_records(store, "s", shown):
                await blocks.before(record)
                presenter.record(record)
                await blocks.after(record)
                shown = record.seq
    await blocks.finish()
    await lease.release()
    await store.close()
    return [_short(json.loads(line)) for line in out.getvalue().splitlines()]


def _short(line: dict[str, str]) -> str:
    if "outcome" in line:
        return f"{line['outcome']}: {line['text']}"
    return line["type"] if "type" in line else f"ids of {line['turn']}"


@pytest.mark.parametrize("live", [True, False])
async def test_an_end_that_its_own_batch_takes_back_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    words = [AgentEventRecorded(kind="message", text=text) for text in ("first try", "second try")]
    lines = await told(
        tmp_path, monkeypatch,
        [*accepted("a"), *of("a", begun("a"))], of("a", words[0]),
        of("a", cut_off(), RETRIED), of("a", words[1]), of("a", DONE),
        live=live,
    )  # fmt: skip
    assert lines[0] == "ids of a"
    assert [line for line in lines if line.startswith("Turn")] == [
        "TurnStarted", "TurnInterrupted", "TurnRetried", "TurnDone",
    ]  # fmt: skip
    assert [line for line in lines if ": " in line] == ["done: second try"]
    assert lines[-1] == "done: second try"


@pytest.mark.parametrize("live", [True, False])
async def test_what_ends_within_the_block_of_another_turn_is_told_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    """An input that was to join the turn, and of which nobody knows whether it did, is parked before it."""
    reserved = InputReserved(generation="g", seq=2, key="b", digest="d")
    lines = await told(
        tmp_path, monkeypatch,
        [*accepted("a", "b"), *of("a", begun("a"), reserved)],
        [*of("b", begun("b", 2), cut_off(2), PARKED), *of("a", cut_off())],
        live=live,
    )  # fmt: skip
    assert lines[-4:] == ["TurnInterrupted", "interrupted: ", "ids of b", "parked: "]
    assert [line for line in lines if line.startswith("ids")] == ["ids of a", "ids of b"]


async def test_a_turn_that_is_parked_later_has_a_block_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = await told(
        tmp_path, monkeypatch,
        [*accepted("a"), *of("a", begun("a"))], of("a", cut_off()), of("a", PARKED),
        live=True,
    )  # fmt: skip
    assert lines[-5:] == ["TurnInterrupted", "interrupted: ", "ids of a", "TurnParked", "parked: "]
