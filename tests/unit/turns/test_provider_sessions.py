"""What a program keeps of its session: captured in few pieces, put back, and told where it ends too early."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as replace_fields
from tests.support.agents import Keeping

from outlast.agents import Codex, provider_state
from outlast.agents.contract import Failure
from outlast.agents.provider_state import StateFile, StatePlace
from outlast.errors import AgentError, IntegrityError
from outlast.journal import Journal
from outlast.keep import Claim
from outlast.records.agent_state import AgentSessionDecided, AgentStateRestored, LostChoice
from outlast.records.envelope import Draft
from outlast.records.types import (
    AgentEventRecorded,
    AgentSessionChanged,
    Body,
    CallObserved,
    CommandSettled,
    Content,
    Fence,
    InputAccepted,
    TurnDone,
    TurnFailed,
    TurnParked,
    TurnRetried,
    TurnStarted,
)
from outlast.state.model import Loop
from outlast.store.contract import Store
from outlast.store.url import open_store
from outlast.testing.journals import JournalBuilder
from outlast.turns.hosting import Hosting
from outlast.turns.launch import LaunchFailure
from outlast.turns.provider import ProviderSession
from outlast.turns.receipt import receipt
from outlast.turns.telling import ADOPTED, given_to, record_of


@dataclass
class Kept:
    """A session whose agent keeps the file `thr`."""

    store: Store
    journal: Journal
    provider: ProviderSession
    file: Path

    async def append(self, *bodies: Body) -> None:
        await self.journal.append([Draft(body, loop="main", turn="t") for body in bodies])

    async def decide(self, choice: LostChoice) -> None:
        await self.append(AgentSessionDecided(provider_session="thr", choice=choice, by="me"))

    @property
    def loop(self) -> Loop:
        return self.journal.state.loops["main"]

    def write(self, data: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(data)


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    store = await open_store("memory://")
    lease = await store.acquire("session")
    journal = await Journal.open(store, lease)
    drafts = JournalBuilder().running("t").drafts[1:]
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="me")), *drafts])
    claim = Claim(store.store_id, "lineage", lease.epoch, "me")
    environ = {"HOME": str(tmp_path)}
    hosting = Hosting("session", str(tmp_path), tmp_path / "d" / "agents", claim, "m", b"", environ)
    agent = Keeping(["true"], home=tmp_path / "home")
    agent.home.mkdir()
    provider = ProviderSession(journal, agent, "main", hosting)
    made = Kept(store, journal, provider, agent.home / "thr")
    bound = AgentSessionChanged(
        provider="command", provider_session="thr", state="confirmed", source="observed"
    )
    await made.append(bound)
    yield made
    await store.close()


async def blobs_of(kept: Kept) -> bytes:
    captured = kept.loop.captured
    assert captured is not None
    return b"".join([await kept.store.get_blob(piece.digest) for piece in captured.pieces])


@pytest.mark.parametrize("lives", [1, 2])
async def test_a_file_that_is_too_large_to_capture_is_told_once_in_a_life_of_the_agent(
    kept: Kept, lives: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(provider_state, "CAP", 10)
    kept.write(b"more than ten bytes\n")
    for _ in range(lives):
        await kept.provider.prepare()
        for _ in range(3):
            await kept.provider.capture()
    assert len(caplog.records) == lives
    told = caplog.records[-1].getMessage()
    assert str(kept.file) in told
    assert "`outlast retry session --reseed`" in told
    for raw in ("Error", ".py", "Traceback"):
        assert raw not in told


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
async def test_what_parks_for_an_unusable_home_does_not_say_to_run_the_command_again(
    kept: Kept, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would put another input behind the one that is parked: `outlast retry` is told beside it."""

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number), str(kept.file))

    monkeypatch.setattr(type(kept.provider.agent), "find_state", refused)
    with pytest.raises(LaunchFailure) as caught:
        await kept.provider.prepare()
    assert caught.value.failure.code == "home_unusable"
    assert str(kept.file) in caught.value.failure.message
    assert "again" not in caught.value.failure.message


async def accepted_of(kept: Kept) -> bytes:
    accepted = kept.loop.accepted
    assert accepted is not None
    return b"".join([await kept.store.get_blob(piece.digest) for piece in accepted.pieces])


async def test_a_growing_file_is_captured_in_few_pieces(kept: Kept) -> None:
    """As many as the logarithm of its turns, and what they were made of is needed no more."""
    digests: set[str] = set()
    for number in range(200):
        kept.write(b"line %d\n" % number)
        await kept.provider.capture("t")
        assert kept.loop.captured is not None
        digests |= {piece.digest for piece in kept.loop.captured.pieces}
        assert len(kept.loop.captured.pieces) <= 8
    assert await blobs_of(kept) == kept.file.read_bytes()
    collected = await kept.store.collect_blobs(untouched_for=-1.0)
    assert collected is not None
    assert kept.loop.captured is not None
    assert collected.blobs == len(digests) - len(kept.loop.captured.pieces)
    assert await blobs_of(kept) == kept.file.read_bytes()


async def test_what_is_not_new_is_not_recorded(kept: Kept) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    seq = kept.journal.state.seq
    await kept.provider.capture()
    kept.write(b"a torn li")
    await kept.provider.capture()
    assert kept.journal.state.seq == seq


async def test_a_file_that_is_gone_is_put_back_before_a_resume(kept: Kept) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.unlink()
    await kept.provider.prepare()
    assert kept.file.read_bytes() == b"one\n"
    assert kept.loop.untold == kept.loop.captured.through_seq if kept.loop.captured else 0


@pytest.mark.parametrize("damaged", [b"", b"on", b"ONE\ntwo\n", b"one\ntwo\n\0\n"])
async def test_provider_corrupt(kept: Kept, damaged: bytes) -> None:
    """One verdict, told once however often it is looked at; the original stays as it is."""
    kept.write(b"one\ntwo\n")
    await kept.provider.capture("t")
    kept.file.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(LaunchFailure) as failed:
            await kept.provider.prepare()
        assert failed.value.failure.code == "session_corrupt"
    assert kept.loop.provider_state == "lost"
    records = [r async for r in kept.journal.read() if r.type == "AgentSessionChanged"]
    assert len(records) == 2
    assert kept.file.read_bytes() == damaged

    await kept.decide("put_back")
    await kept.provider.prepare()
    assert kept.file.read_bytes() == b"one\ntwo\n"
    (restored,) = [r.body async for r in kept.journal.read() if isinstance(r.body, AgentStateRestored)]
    assert _content(restored.kept) == damaged
    assert kept.loop.decided is None


@pytest.mark.parametrize("how", ["past the cap", "cut", "cut and grown again"])
async def test_what_is_not_taken_is_told_after_a_put_back(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    kept.write(b"one\ntwo\n")
    await kept.provider.capture("t")
    before = kept.loop.captured
    if how == "cut":
        kept.file.write_bytes(b"one\n")
    elif how == "cut and grown again":
        kept.file.write_bytes(b"one\nTWO\nthree\n")
    else:
        monkeypatch.setattr(provider_state, "CAP", 10)
        kept.write(b"three\n")
    await kept.append(AgentEventRecorded(kind="message", text="more"))
    await kept.provider.capture("u")
    assert kept.loop.captured == before
    kept.file.unlink()
    await kept.provider.prepare()
    assert before is not None
    assert kept.loop.untold == before.through_seq < kept.journal.state.seq


@pytest.mark.parametrize("odd", ["folder", "pipe", "symlink loop"])
async def test_a_transcript_that_cannot_be_opened_is_a_verdict_and_kept_aside(kept: Kept, odd: str) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.unlink()
    if odd == "folder":
        kept.file.mkdir()
    elif odd == "pipe":
        os.mkfifo(kept.file)
    else:
        kept.file.symlink_to(kept.file.name)
    for choice in (None, "as_is"):
        if choice == "as_is":
            await kept.decide("as_is")
        with pytest.raises(LaunchFailure, match=r"it cannot be read: [^;]+$") as failed:
            await kept.provider.prepare()
        assert failed.value.failure.code == "session_corrupt"
    await kept.decide("put_back")
    await kept.provider.prepare()
    assert kept.file.read_bytes() == b"one\n"
    (restored,) = [r.body async for r in kept.journal.read() if isinstance(r.body, AgentStateRestored)]
    assert _is_there(restored.kept)


async def test_what_was_accepted_as_it_is_is_no_damage_later(kept: Kept) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.write_bytes(b"\0\nTWO\n")
    await kept.decide("as_is")
    await kept.provider.prepare()
    assert (kept.loop.provider_state, kept.loop.decided) == ("bound", None)
    kept.write(b"three\n")
    await kept.provider.prepare()
    assert await accepted_of(kept) == b"\0\nTWO\nthree\n"
    (before,) = (kept.file.parent.parent / "d" / "kept" / "session").iterdir()
    assert before.read_bytes() == b"one\n"


async def test_what_was_captured_stays_to_be_put_back_until_a_turn_was_done_on_what_was_accepted(
    kept: Kept,
) -> None:
    """The program may not take it: it is lost again, and its choices are the same."""
    kept.write(b"one\n")
    await kept.provider.capture("t")
    good = kept.loop.captured
    kept.file.write_bytes(b"\0\nTWO\n")
    await kept.decide("as_is")
    await kept.provider.prepare()
    kept.write(b"a turn\n")
    await kept.append(TurnFailed(receipt=receipt(1, "host_execute", Failure("unknown", "refused"))))
    await kept.provider.capture("t")
    assert kept.loop.captured == good
    assert await accepted_of(kept) == b"\0\nTWO\na turn\n"
    collected = await kept.store.collect_blobs(untouched_for=-1.0)
    assert collected is not None
    lost = AgentSessionChanged(provider="command", provider_session="thr", state="lost", source="observed")
    await kept.append(lost)
    assert kept.loop.accepted is None
    await kept.decide("put_back")
    await kept.provider.prepare()
    assert kept.file.read_bytes() == await blobs_of(kept) == b"one\n"


async def test_what_a_turn_was_done_on_is_what_is_put_back_from_then_on(kept: Kept) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.write_bytes(b"\0\nTWO\n")
    await kept.decide("as_is")
    await kept.provider.prepare()
    await kept.append(TurnDone(stop_reason="end_turn"))
    await kept.provider.capture("t")
    assert kept.loop.accepted is None
    kept.file.unlink()
    await kept.provider.prepare()
    assert kept.file.read_bytes() == b"\0\nTWO\n"


async def test_where_what_was_accepted_is_gone_what_was_captured_is_put_back(kept: Kept) -> None:
    """And nothing is found wrong with it afterwards."""
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.write_bytes(b"\0\nTWO\n")
    await kept.decide("as_is")
    await kept.provider.prepare()
    kept.file.unlink()
    for _ in range(2):
        await kept.provider.prepare()
    assert kept.file.read_bytes() == b"one\n"


async def test_what_is_mended_when_it_is_accepted_is_not_accepted_for_later_damage(kept: Kept) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.write_bytes(b"")
    await kept.decide("as_is")
    kept.file.write_bytes(b"one\n")
    await kept.provider.prepare()
    assert kept.loop.decided is None
    kept.file.write_bytes(b"ONE\n")
    with pytest.raises(LaunchFailure):
        await kept.provider.prepare()


@dataclass(frozen=True)
class Archiving(Keeping):
    """Finds a file also where it was moved to."""

    def find_state(self, place: StatePlace) -> StateFile | None:
        moved = self.home / "archived" / place.provider_session
        return StateFile(moved, f"archived/{moved.name}") if moved.exists() else super().find_state(place)


def _archive(kept: Kept) -> Path:
    """Move the session's file, as its program does; where it is then."""
    kept.provider.agent = Archiving(["true"], home=kept.file.parent)
    folder = kept.file.parent / "archived"
    folder.mkdir()
    return kept.file.rename(folder / kept.file.name)


async def test_a_file_that_was_moved_is_known_by_what_was_captured_of_it(kept: Kept) -> None:
    """Gone later, it is put back where it was moved to, and only what came after is told."""
    kept.write(b"one\n")
    await kept.provider.capture("t")
    before = kept.loop.captured
    moved = _archive(kept)
    await kept.provider.prepare()
    after = kept.loop.captured
    assert before is not None
    assert after is not None
    assert (after.name, after.pieces) == ("archived/thr", before.pieces)
    assert (after.through_turn, after.through_seq) == (before.through_turn, before.through_seq)
    moved.unlink()
    await kept.provider.prepare()
    assert moved.read_bytes() == b"one\n"
    assert kept.loop.untold == before.through_seq


async def test_a_thread_that_codex_archives_is_known_by_what_was_captured_of_it(kept: Kept) -> None:
    home = kept.file.parent / "codex"
    environ = {**kept.provider.hosting.environ, "CODEX_HOME": str(home)}
    kept.provider.agent = Codex()
    await kept.append(
        AgentSessionChanged(provider="codex", provider_session="thr", state="confirmed", source="observed")
    )
    kept.provider.hosting = replace(kept.provider.hosting, environ=environ)
    rollout = home / "sessions" / "2025" / "rollout-1-thr.jsonl"
    rollout.parent.mkdir(parents=True)
    rollout.write_text('{"type": "session_meta", "ordinal": 0, "payload": {"id": "thr"}}\n')
    await kept.provider.capture("t")
    before = kept.loop.captured
    (home / "archived_sessions").mkdir()
    rollout.rename(home / "archived_sessions" / rollout.name)
    await kept.provider.prepare()
    assert before is not None
    moved = replace_fields(before, name=f"archived_sessions/{rollout.name}")
    assert kept.loop.captured == moved
    assert before.through_turn == "t"


async def test_what_was_accepted_as_it_is_stays_so_where_the_file_was_moved(kept: Kept) -> None:
    kept.write(b"one\n\0\n")
    await kept.decide("as_is")
    await kept.provider.prepare()
    _archive(kept)
    for _ in range(2):
        await kept.provider.prepare()
    assert kept.loop.accepted is not None
    assert (kept.loop.accepted.name, kept.loop.accepted.damage) == ("archived/thr", "it has a NUL")


async def test_why_a_session_is_lost_is_recorded_without_secrets(kept: Kept) -> None:
    """Also where one is a piece of the file's path. Told once, and the choice that is made of it too."""
    secret = kept.file.parent.parent.name
    environ = {**kept.provider.hosting.environ, "PLACE_TOKEN": secret}
    kept.provider.hosting = replace(kept.provider.hosting, environ=environ)
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.write_bytes(b"ONE\n")
    for _ in range(2):
        with pytest.raises(LaunchFailure):
            await kept.provider.prepare()
    await kept.decide("as_is")
    await kept.provider.prepare()
    told = [r.body async for r in kept.journal.read() if isinstance(r.body, AgentSessionChanged)]
    assert len(secret) >= 8
    assert [said.state for said in told[1:]] == ["lost", "bound"]
    assert all("[redacted]" in said.reason and secret not in said.reason for said in told[1:])


async def test_a_capture_that_is_lost_is_missing_and_no_endless_failure(kept: Kept) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.unlink()
    digest = kept.loop.captured.pieces[0].digest if kept.loop.captured else ""
    await kept.store.collect_blobs(untouched_for=-1.0)
    _forget(kept, digest)
    with pytest.raises(LaunchFailure) as failed:
        await kept.provider.prepare()
    assert failed.value.failure.code == "session_missing"
    await kept.decide("fresh")
    await kept.provider.prepare()


def _forget(kept: Kept, digest: str) -> None:
    async def get_blob(wanted: str) -> bytes:
        raise IntegrityError("it is missing", seq=0, reason="missing")

    kept.journal.get_blob = get_blob  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("choice", [None, "fresh", "put_back"])
async def test_what_a_put_back_that_was_killed_has_left_is_swept_at_the_next_look(
    kept: Kept, choice: LostChoice | None
) -> None:
    """Where nobody writes it any more, by a name that nobody else gives."""
    kept.write(b"one\n")
    await kept.provider.capture("t")
    left = kept.file.with_name(".thr.0123456789abcdef.outlast-draft")
    written = kept.file.with_name(".other.0123456789abcdef.outlast-draft")
    others = [kept.file.with_name(name) for name in (".thr.tmp", "thr.0123456789abcdef.outlast-draft")]
    for path in (left, written, *others):
        path.write_bytes(b"one\n")
    if choice is not None:
        await kept.decide(choice)
    with written.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await kept.provider.prepare()
    assert {path.name for path in kept.file.parent.iterdir() if path.is_file()} == {
        *("thr", written.name),
        *(path.name for path in others),
    }


# --- what is told -------------------------------------------------------------------------------


async def test_a_reseeded_agent_is_told_what_happened(kept: Kept) -> None:
    """Inputs, answers and calls of earlier turns, marked; the turn's own input comes after it."""
    await kept.append(
        CallObserved(call="c", name="shell", status="started", input="rm x"),
        CallObserved(call="d", name="shell", status="started", input="ls"),
        CallObserved(call="d", name="shell", status="completed", output="x y"),
        AgentEventRecorded(kind="message", text="half done"),
        TurnDone(stop_reason="end_turn"),
    )
    await kept.journal.append(next_turn("u"))
    await kept.decide("reseed")
    turn = kept.journal.state.open_turns["u"]
    told = (await given_to(kept.journal, turn, (Content(text="go on"),))).content
    assert isinstance(told, tuple)
    record, asked = told
    assert asked.text == "go on"
    assert "You: half done" in record.text
    assert "Your call of shell (completed)\nInput: ls\nOutput: x y" in record.text
    assert "it may have run wholly or in part" in record.text
    assert "go on" not in record.text
    assert (await given_to(kept.journal, turn, (Content(text="go on"),))).content == told


async def test_nothing_is_told_where_nothing_is_missing(kept: Kept) -> None:
    turn = kept.journal.state.open_turns["t"]
    content = (Content(text="hi"),)
    assert (await given_to(kept.journal, turn, content)).content == content
    assert await record_of(kept.journal, kept.loop, turn, kept.journal.state.seq) == ""


async def test_what_is_told_is_bounded(kept: Kept) -> None:
    for number in range(40):
        await kept.append(
            AgentEventRecorded(kind="message", text=f"answer {number} " + "x" * 20_000),
            CallObserved(call=f"c{number}", name="sh", status="completed"),
        )
    await kept.append(TurnDone(stop_reason="end_turn"))
    await kept.journal.append(next_turn("u"))
    await kept.decide("reseed")
    told = (await given_to(kept.journal, kept.journal.state.open_turns["u"], (Content(text="x"),))).content
    assert isinstance(told, tuple)
    assert len(told[0].text) < 60_000
    assert "earlier entries are left out" in told[0].text
    assert "answer 39" in told[0].text


def next_turn(name: str) -> list[Draft]:
    accepted = InputAccepted(request_id=name, content=[Content(text="go on")])
    return [
        Draft(accepted, loop="main", cause=name),
        Draft(TurnStarted(index=2, request_id=name), loop="main", turn=name, cause=name),
    ]


def _is_there(path: str) -> bool:
    return os.path.lexists(path)


def _content(path: str) -> bytes:
    return Path(path).read_bytes()


async def test_a_place_that_the_program_alone_knows_is_a_verdict(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.unlink()

    def unknown(self: Keeping, place: StatePlace, name: str) -> Path:
        raise AgentError("where it belongs is not known")

    monkeypatch.setattr(Keeping, "state_path", unknown)
    with pytest.raises(LaunchFailure, match="not known") as failed:
        await kept.provider.prepare()
    assert failed.value.failure.code == "session_missing"


def host(*, started: bool) -> Any:
    return SimpleNamespace(
        folder_path="/nowhere/a", generation_name="gen-000001", processes=[], boot_id="", started=started
    )


@contextmanager
def open_elsewhere(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    hold = "import sys; f = open(sys.argv[1], 'ab'); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield holder
        holder.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_double_writer_that_makes_no_claims_keeps_the_session_from_being_resumed(kept: Kept) -> None:
    """The program in a terminal of its own, for instance."""
    kept.write(b"one\n")
    with open_elsewhere(kept.file) as holder:
        with pytest.raises(LaunchFailure, match=f"another process .*: {holder.pid};") as refused:
            await kept.provider.driver.claim(host(started=False))
        assert refused.value.failure.code == "session_in_use"
        await kept.provider.driver.claim(host(started=True))  # An agent that runs has it open itself.


@pytest.mark.parametrize(("room", "entries"), [(1, 0), (8_000, 1), (1_000_000, 11)])
async def test_a_record_leaves_room_for_the_input(kept: Kept, room: int, entries: int) -> None:
    """What fitted before fits after a session was begun anew, too."""
    for number in range(14):
        await kept.append(AgentEventRecorded(kind="message", text=f"answer {number} " + "x" * 5_000))
    await kept.append(TurnDone(stop_reason="end_turn"))
    await kept.journal.append(next_turn("u"))
    await kept.decide("reseed")
    turn, content = kept.journal.state.open_turns["u"], (Content(text="y" * 1_000),)
    told = (await given_to(kept.journal, turn, content, most=1_000 + room)).content
    assert isinstance(told, tuple)
    assert told[-1:] == content
    assert sum(len(block.text) for block in told) <= 1_000 + room
    assert "".join(block.text for block in told).count("You: answer") == entries


def failed_of(code: str) -> TurnFailed:
    return TurnFailed(receipt=receipt(1, "host_execute", Failure(code, "so it said")))


@pytest.mark.parametrize(
    "after",
    [
        TurnParked(reason="held", detail="the quota is used up"),
        TurnRetried(by="policy", mode="again"),
    ],
)
async def test_a_good_capture_is_kept_while_no_turn_was_done_on_what_was_accepted(
    kept: Kept, after: TurnParked | TurnRetried
) -> None:
    """A turn that failed and was parked, tried again or given up was not done."""
    kept.write(b"one\n")
    await kept.provider.capture("t")
    good = kept.loop.captured
    kept.file.write_bytes(b"\0\nTWO\n")
    await kept.decide("as_is")
    await kept.provider.prepare()
    await kept.append(failed_of("rate_limited"), after)
    await kept.provider.capture("t")
    if isinstance(after, TurnParked):
        await kept.append(CommandSettled(request_id="s", command="skip", outcome="done"))
    await kept.provider.capture_ended()
    assert kept.loop.captured == good


async def test_as_is_is_carried_out_where_what_was_captured_is_lost(kept: Kept) -> None:
    """It is just then that a person chooses it."""
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.file.write_bytes(b"\0\nTWO\n")
    await kept.decide("as_is")
    _forget(kept, "")
    await kept.provider.prepare()
    told = [record.body async for record in kept.journal.read()]
    reasons = [body.reason for body in told if isinstance(body, AgentSessionChanged)]
    assert "cannot be read" in reasons[-1]


async def test_silent_fresh_a_reseeded_agent_hears_of_what_was_adopted(kept: Kept) -> None:
    """Also where nothing else is to be told."""
    reason = f"{ADOPTED}: it began outside of outlast and had 7 turns"
    await kept.append(
        AgentSessionChanged(
            provider="command", provider_session="thr", state="confirmed", source="resumed", reason=reason
        ),
        failed_of("session_corrupt"),
        TurnRetried(by="me", mode="again"),
    )
    await kept.decide("reseed")
    assert "7 turns" in await record_of(kept.journal, kept.loop, kept.journal.state.open_turns["t"], 0)


@dataclass(frozen=True)
class Moving(Keeping):
    """Its program moves the file right after it was found."""

    moved: str = "archived"

    def find_state(self, place: StatePlace) -> StateFile | None:
        found = super().find_state(place)
        to = self.home / self.moved
        if found is None:
            return StateFile(to, to.name) if to.exists() else None
        found.path.rename(to)
        return found


async def test_a_file_that_is_moved_while_it_is_looked_at_is_not_lost(kept: Kept) -> None:
    kept.write(b"one\n")
    await kept.provider.capture("t")
    kept.provider.agent = Moving(["true"], home=kept.file.parent)
    await kept.provider.prepare()
    assert kept.loop.provider_state == "confirmed"
    assert [path.name for path in kept.file.parent.iterdir()] == ["archived"]
