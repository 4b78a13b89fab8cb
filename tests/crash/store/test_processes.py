"""Several processes and one store: killed, stopped, racing."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import apsw
import pytest
from tests.support.stores import PATIENCE, admit, append, in_time, other, rows, seqs

from outlast.errors import ForkedError, IntegrityError, LeaseHeldError, StoreBusyError
from outlast.store.contract import AcquireOptions, Append, Store
from outlast.store.sqlite.layout import Layout
from outlast.store.sqlite.reading import list_sessions
from outlast.store.sqlite.store import Address, SqliteStore
from outlast.store.sqlite.turnstile import Turnstile
from outlast.store.url import database_path, open_store, sqlite_url


async def test_nothing_that_was_acknowledged_is_lost(url: str, tmp_path: Path) -> None:
    """Killed at some moment between appends: every acknowledged record is there, and at most one more."""
    for round_ in range(3):
        with other(url, tmp_path) as process:
            process.ask("acquire", "s")
            process.say("append_many", "s", 10_000)
            last = 0
            for _ in range(20 + 7 * round_):
                last = process.hear()
            process.kill()
            # What was said before the kill is still in the pipe.
            while (said := process.hear()) is not None:
                last = said
        store = await open_store(url)
        assert len(await seqs(store, "s")) in (last, last + 1)
        await store.acquire("s")
        await store.close()


@pytest.mark.parametrize(
    ("point", "stored"), [("before_commit", False), ("after_commit", True)], ids=["before", "after"]
)
async def test_killed_around_a_commit(url: str, tmp_path: Path, point: str, stored: bool) -> None:
    """Between commit and acknowledgement a record is stored; the same append or admission again says so."""
    with other(url, tmp_path, f"store.append.{point}@1=kill") as process:
        process.ask("acquire", "s")
        assert process.ask("append", "s", 3) is None
    with other(url, tmp_path, f"store.admit.{point}@1=kill") as process:
        assert process.ask("admit", "s", "r") is None
    with other(url, tmp_path, f"store.acquire.{point}@1=kill") as process:
        assert process.ask("acquire", "s2") is None
    store = await open_store(url)
    assert await seqs(store, "s") == ([1, 2, 3] if stored else [])
    assert (await admit(store, "s", "r")).created != stored
    # A lease that was granted and never used frees itself.
    assert await store.holder("s2") is None
    await store.acquire("s2")
    await store.close()


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
async def test_killed_around_a_release(url: str, tmp_path: Path, point: str) -> None:
    """Given back or not: the session is free, and nothing of it is lost."""
    with other(url, tmp_path, f"store.release.{point}@1=kill") as process:
        process.ask("acquire", "s")
        process.ask("append", "s", 2)
        assert process.ask("release", "s") is None
        assert process.process.wait(PATIENCE) == -signal.SIGKILL
    with other(url, tmp_path, f"store.release.{point}@1=kill") as process:
        process.ask("acquire", "s")
        assert process.ask("close") is None
        assert process.process.wait(PATIENCE) == -signal.SIGKILL
    store = await open_store(url)
    assert await store.holder("s") is None
    assert await append(store, await store.acquire("s")) == 3
    await store.close()


@pytest.mark.parametrize("point", ["before_fsync", "after_fsync", "before_rename", "after_rename"])
async def test_killed_while_a_blob_is_put(url: str, tmp_path: Path, point: str) -> None:
    """It is there whole or not at all, and putting it again is enough."""
    digest = hashlib.sha256(b"content").hexdigest()
    with other(url, tmp_path, f"store.blob.{point}=kill") as process:
        assert process.ask("put_blob", "content") is None
        assert process.process.wait(PATIENCE) == -signal.SIGKILL
    store = await open_store(url)
    if point == "after_rename":
        assert await store.get_blob(digest) == b"content"
    else:
        with pytest.raises(IntegrityError, match="missing"):
            await store.get_blob(digest)
    assert await store.put_blob(b"content") == digest
    assert await store.get_blob(digest) == b"content"
    await store.close()


async def test_without_a_handle_of_a_process_it_is_not_ended(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(url)
    with other(url, tmp_path) as process:
        process.ask("acquire", "s")
        monkeypatch.delattr(os, "pidfd_open")
        with pytest.raises(LeaseHeldError, match=f"no safe handle of process {process.pid}"):
            await store.acquire("s", AcquireOptions(take_over=True))
        assert process.ask("append", "s") == 1
    await store.close()


async def test_double_writer(url: str, tmp_path: Path) -> None:
    """Two processes that take one session at once: one owner, the other names it."""
    with other(url, tmp_path) as one, other(url, tmp_path) as two:
        for round_ in range(10):
            one.say("acquire", f"s{round_}")
            two.say("acquire", f"s{round_}")
            answers = [one.hear(), two.hear()]
            assert sorted(isinstance(answer, int) for answer in answers) == [False, True]
            assert "error: lease_held" in answers


async def test_a_dead_owner_is_succeeded_at_once(url: str, tmp_path: Path) -> None:
    store = await open_store(url)
    with other(url, tmp_path) as process:
        epoch = process.ask("acquire", "s")
        process.ask("append", "s")
        with pytest.raises(LeaseHeldError) as refused:
            await store.acquire("s")
        assert refused.value.holder == f"other {process.pid}"
        assert (await store.list()) == []
        process.kill()
        assert await store.holder("s") is None
        lease = await store.acquire("s")
        assert lease.epoch > epoch
        assert await append(store, lease) == 2
    await store.close()
    assert list(Layout.of(database_path(url, {})).nodes.iterdir()) == []


async def test_the_dead_that_owned_nothing_are_swept_and_the_living_are_not(url: str, tmp_path: Path) -> None:
    nodes = Layout.of(database_path(url, {})).nodes
    with ExitStack() as stack:
        dead = [stack.enter_context(other(url, tmp_path)) for _ in range(3)]
        idle, owner = (stack.enter_context(other(url, tmp_path)) for _ in range(2))
        for number, process in enumerate((*dead, idle, owner)):
            process.ask("acquire", f"s{number}")
        for number, process in enumerate((*dead, idle)):
            process.ask("release", f"s{number}")
        for process in dead:
            process.kill()
        unknown = stack.enter_context(other(url, tmp_path, "store.acquire.before_commit=kill"))
        assert unknown.ask("acquire", "s9") is None
        assert len(list(nodes.iterdir())) == 6
        store = await open_store(url)
        await store.acquire("s0")
        await store.acquire("s1")  # the bell of the first grant has rung: the files are gone
        connection = apsw.Connection(str(database_path(url, {})), flags=apsw.SQLITE_OPEN_READONLY)
        known = [row[0] for row in connection.execute("SELECT id FROM node")]
        connection.close()
        assert len(known) == 3  # idle, owner, and this process
        assert sorted(path.name for path in nodes.iterdir()) == sorted(known)
        assert idle.ask("acquire", "s2") > 0
        assert owner.ask("append", "s4") == 1
        await store.close()


async def test_a_waiter_succeeds_an_owner_that_dies(url: str, tmp_path: Path) -> None:
    store = await open_store(url)
    with other(url, tmp_path) as process:
        process.ask("acquire", "s")
        waiting = asyncio.create_task(store.acquire("s", AcquireOptions(wait=PATIENCE)))
        await asyncio.sleep(0)
        process.kill()
        assert (await waiting).name == "s"
    await store.close()


async def test_a_stopped_owner_is_never_evicted_without_being_told_to(url: str, tmp_path: Path) -> None:
    store = await open_store(url)
    with other(url, tmp_path) as process:
        process.ask("acquire", "s")
        process.stop()
        with pytest.raises(LeaseHeldError):
            await store.acquire("s", AcquireOptions(wait=0.2))
        process.go_on()
        assert process.ask("append", "s") == 1
    await store.close()


async def test_zombie_writer(url: str, tmp_path: Path) -> None:
    """A stopped owner that is taken over is dead before its successor starts."""
    store = await open_store(url)
    with other(url, tmp_path) as process:
        process.ask("acquire", "s")
        process.ask("append", "s")
        process.stop()
        lease = await store.acquire("s", AcquireOptions(take_over=True))
        assert process.process.wait(PATIENCE) == -signal.SIGKILL
        assert await append(store, lease) == 2
    await store.close()


async def test_a_copy_of_the_database_alone_never_ends_the_originals_owner(url: str, tmp_path: Path) -> None:
    with other(url, tmp_path) as owner:
        owner.ask("acquire", "s")
        owner.ask("append", "s")
        place = tmp_path / "copy"
        place.mkdir()
        original = apsw.Connection(str(database_path(url, {})))
        copy = apsw.Connection(str(place / "x.db"))
        with copy.backup("main", original, "main") as copying:
            copying.step()
        original.close()
        copy.close()
        store = await open_store(sqlite_url(place / "x.db"))
        with pytest.raises(LeaseHeldError, match=f"process {owner.pid} lives") as refused:
            await store.acquire("s", AcquireOptions(take_over=True))
        assert "end that process yourself" in str(refused.value.hint)
        await store.close()
        assert owner.ask("append", "s") == 2


async def test_an_owner_whose_lock_file_was_swept_away_is_named_and_not_ended(
    url: str, tmp_path: Path
) -> None:
    store = await open_store(url)
    with other(url, tmp_path) as owner:
        owner.ask("acquire", "s")
        for file in Layout.of(database_path(url, {})).nodes.iterdir():
            file.unlink()
        with pytest.raises(LeaseHeldError, match=f"process {owner.pid} lives"):
            await store.acquire("s", AcquireOptions(take_over=True))
        assert owner.ask("append", "s") == 1
        owner.kill()
        lease = await store.acquire("s", AcquireOptions(take_over=True))
        assert await append(store, lease) == 2
    await store.close()


async def test_with_the_kill_left_out_the_old_owner_is_still_refused_for_good(
    url: str, tmp_path: Path
) -> None:
    with other(url, tmp_path) as old, other(url, tmp_path, "takeover.kill=skip") as new:
        old.ask("acquire", "s")
        old.ask("acquire", "s2")
        old.ask("append", "s")
        old.stop()
        epoch = new.ask("acquire", "s", 0, True)
        assert isinstance(epoch, int)
        old.go_on()
        assert old.ask("append", "s") == "error: fenced"
        assert old.ask("lost", "s")
        # Declared dead, it owns nothing any more and gets nothing new.
        assert old.ask("append", "s2") == "error: fenced"
        assert old.ask("acquire", "s3") == "error: fenced"
        assert new.ask("append", "s") == 2
        assert new.ask("seqs", "s") == [1, 2]


async def test_without_the_fence_the_old_owner_would_write(url: str, tmp_path: Path) -> None:
    """The control: with the fence left out on purpose its record lands, so the tests above can see it."""
    with other(url, tmp_path, "store.fence=skip") as old, other(url, tmp_path, "takeover.kill=skip") as new:
        old.ask("acquire", "s")
        old.stop()
        new.ask("acquire", "s", 0, True)
        assert new.ask("append", "s") == 1
        old.go_on()
        assert old.ask("append", "s") == 2
        # What it wrote has an epoch that is past: a reader of the journal sees that it must not be there.
        assert new.ask("epochs", "s") == [2, 1]


async def test_an_owner_hears_that_it_was_declared_dead_without_writing(url: str, tmp_path: Path) -> None:
    with other(url, tmp_path) as old, other(url, tmp_path, "takeover.kill=skip") as new:
        old.ask("acquire", "s")
        old.say("until_lost", "s")
        new.ask("acquire", "s", 0, True)
        assert await in_time(asyncio.to_thread(old.hear)) is True


async def test_a_take_over_from_an_ancestor_is_refused(url: str, tmp_path: Path) -> None:
    store = await open_store(url)
    await store.acquire("s")
    with other(url, tmp_path) as process:
        assert await process.ask_meanwhile("acquire", "s", 0, True) == "error: lease_held"
    assert await store.holder("s") is not None
    await store.close()


async def test_a_change_in_another_process_is_heard(url: str, tmp_path: Path) -> None:
    store = await open_store(url)
    lease = await store.acquire("s")
    with other(url, tmp_path) as process:
        process.say("change", "s")
        assert await asyncio.to_thread(process.hear) == "waiting"
        await append(store, await store.acquire("unrelated"))
        await append(store, lease)
        assert await asyncio.to_thread(process.hear) == 1
        with store.changes("s") as changed:
            process.say("admit", "s", "r")
            await in_time(changed.wait())
        assert await asyncio.to_thread(process.hear) is True
    assert [e.request_id for e in await store.pending("s")] == ["r"]
    await store.close()


async def test_a_listing_tells_living_owners_from_dead_ones(url: str, tmp_path: Path) -> None:
    store = await open_store(url)
    with other(url, tmp_path) as one, other(url, tmp_path) as two:
        for name, process in (("a", one), ("b", two), ("c", two)):
            process.ask("admit", name, "r")
            process.ask("acquire", name)
        one.kill()
        owners = {row.entry.session: row.owner and row.owner.pid for row in await store.list()}
        assert owners == {"a": None, "b": two.pid, "c": two.pid}
    await store.close()


FORK_WITH_THREADS = "ignore:This process .* is multi-threaded:DeprecationWarning"


@pytest.mark.filterwarnings(FORK_WITH_THREADS)
async def test_a_forked_child_owns_nothing_and_writes_nothing(url: str) -> None:
    store = await open_store(url)
    lease = await store.acquire("s")
    child = os.fork()
    if child == 0:
        os._exit(_in_a_fork(store, Append("s", rows(lease, 0, 1), 0, lease)))
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert await append(store, lease) == 1
    await store.close()


async def test_lock_leak(url: str, tmp_path: Path) -> None:
    """What a process held is free when it dies, also in the middle of its turn, while a child that it forked
    lives on."""
    store = await open_store(url)
    with other(url, tmp_path, "store.append.before_commit@1=kill") as process:
        process.ask("acquire", "s")
        child = process.ask("fork")
        try:
            assert process.ask("append", "s") is None
            assert (await admit(store, "s", "r")).created
            assert await append(store, await store.acquire("s")) == 1
        finally:
            os.kill(child, signal.SIGKILL)
    await store.close()


def _in_a_fork(store: Store, batch: Append) -> int:
    """0 if every call was refused."""

    async def appended() -> int:
        return await store.append(batch)

    for call in (appended(), store.tip("s"), store.acquire("s2")):
        try:
            call.send(None)
        except ForkedError:
            continue
        return 1
    closing = store.close()
    try:
        closing.send(None)
    except StopIteration:
        return 0
    return 2


async def test_a_store_whose_only_process_was_killed_is_listed(url: str, tmp_path: Path) -> None:
    with other(url, tmp_path) as process:
        process.ask("admit", "s", "r")
        process.ask("acquire", "s")
        process.ask("append", "s")
    [listed] = list_sessions(database_path(url, {}))
    assert (listed.entry.session, listed.pending, listed.owner) == ("s", 1, None)


async def test_five_first_runs_at_once_make_one_store(url: str, tmp_path: Path) -> None:
    def first_run(number: int) -> object:
        with other(url, tmp_path) as process:
            return process.ask("admit", f"s{number}", "r")

    with ThreadPoolExecutor(5) as pool:
        answers = await asyncio.to_thread(lambda: list(pool.map(first_run, range(5))))
    assert answers == [True] * 5
    store = await open_store(url)
    assert len(await store.list()) == 5
    await store.close()


async def test_starved_writer(url: str, tmp_path: Path) -> None:
    """Of eight writers at once each gets its turns: when the first is done, no other is far behind."""
    turns = 100
    with ExitStack() as stack:
        writers = [stack.enter_context(other(url, tmp_path)) for _ in range(8)]
        for number, writer in enumerate(writers):
            writer.ask("acquire", f"s{number}")
        for number, writer in enumerate(writers):
            writer.say("append_many", f"s{number}", turns)
        while (said := await asyncio.to_thread(writers[0].hear)) != turns:
            assert isinstance(said, int)
        store = await open_store(url)
        written = [(await store.tip(f"s{number}")).seq for number in range(8)]
        await store.close()
    assert min(written) > turns // 8, written


async def test_a_limit_on_files_refuses_and_nothing_acknowledged_is_lost(url: str, tmp_path: Path) -> None:
    with other(url, tmp_path) as process:
        process.ask("acquire", "s")
        process.ask("append", "s", 5)
        process.ask("limit_files", 64 * 1024)
        written = 5
        while isinstance(answer := process.ask("append", "s", 20), int):
            written = answer
        assert answer == "error: store_limit"
        assert process.ask("admit", "s", "r") == "error: store_limit"
        assert process.ask("lost", "s") is False
        process.ask("limit_files", 0)
        assert process.ask("append", "s", 1) == written + 1
        assert process.ask("admit", "s", "r") is True
        assert process.ask("seqs", "s") == list(range(1, written + 2))


async def test_optimistic_stuck(url: str, tmp_path: Path) -> None:
    """An input that could not be stored is nowhere: not in the list, not waiting, not taken for sent when it
    comes again."""
    with other(url, tmp_path) as process:
        process.ask("admit", "s", "first")
        process.ask("limit_files", 8 * 1024)
        for name, request in (("s", "second"), ("new", "first")):
            assert process.ask("admit", name, request, "x" * 100_000) == "error: store_limit"
        store = await open_store(url)
        assert [row.entry.session for row in await store.list()] == ["s"]
        assert [entry.request_id for entry in await store.pending("s")] == ["first"]
        process.ask("limit_files", 0)
        assert process.ask("admit", "s", "second", "x" * 100_000) is True
        assert [entry.request_id for entry in await store.pending("s")] == ["first", "second"]
        await store.close()


async def test_glued_append(url: str, tmp_path: Path) -> None:
    """A process dies in the middle of a write: half a frame stands at the end of the log. What the next one
    appends is not glued to it."""
    with other(url, tmp_path) as process:
        process.ask("acquire", "s")
        process.ask("append", "s", 3)
    whole = log_of(url).read_bytes()
    log_of(url).write_bytes(whole + whole[-4000:-1000])
    store = await open_store(url)
    lease = await store.acquire("s")
    assert await append(store, lease, 2) == 5
    await store.close()
    again = await open_store(url)
    assert await seqs(again, "s") == [1, 2, 3, 4, 5]
    assert (await again.tip("s")).seq == 5
    await again.close()


async def test_torn_tail(url: str, tmp_path: Path) -> None:
    """One bad frame in the log drops all commits after it: SQLite says nothing, the witness does."""
    with other(url, tmp_path) as process:
        process.ask("acquire", "s")
        process.ask("append", "s", 1)
        size = log_of(url).stat().st_size
        process.ask("append", "s", 1)
        process.ask("append", "s", 1)
    data = bytearray(log_of(url).read_bytes())
    data[size + 100] ^= 0xFF
    log_of(url).write_bytes(data)
    store = await open_store(url)
    assert await seqs(store, "s") == [1]
    for look in (store.tip("s"), store.acquire("s")):
        with pytest.raises(IntegrityError, match="record 1, but record 3"):
            await look
    await store.close()


def log_of(url: str) -> Path:
    database = database_path(url, {})
    return database.with_name(database.name + "-wal")


async def test_a_process_that_is_stopped_in_its_transaction_is_named(url: str, tmp_path: Path) -> None:
    with other(url, tmp_path, "store.append.before_commit@1=stop") as process:
        process.ask("acquire", "s")
        process.say("append", "s")
        await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        store = await SqliteStore.open(Address(url, database_path(url, {}), "me", busy_seconds=0.2))
        with pytest.raises(StoreBusyError, match=rf"process {process.pid} \(.*, state T\)"):
            await admit(store, "s", "r")
        process.go_on()
        assert await asyncio.to_thread(process.hear) == 1
        assert (await admit(store, "s", "r")).created
        await store.close()


async def test_a_turn_that_is_taken_does_not_stop_readers(url: str) -> None:
    store = await open_store(url)
    await admit(store, "s", "r")
    turnstile = Turnstile(Layout.of(database_path(url, {})))
    with turnstile.turn(0):
        assert len(await store.list()) == 1
        assert len(await store.pending("s")) == 1
    turnstile.close()
    await store.close()
