"""What comes after a COMMIT fails nothing, and whoever waits for the writer hears of its end."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import admit, append, entry, in_time, row, seqs

from outlast.errors import AmbiguousAppendError, StoreError
from outlast.faults import point
from outlast.store.contract import Admission, Append, Store
from outlast.store.sqlite.engine import Engine
from outlast.store.sqlite.layout import Layout
from outlast.store.sqlite.operations import Admit, Operation
from outlast.store.sqlite.transaction import Effects
from outlast.store.sqlite.witness import Witness
from outlast.store.url import database_path, open_store, sqlite_url

NUMBERS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.ENOTDIR, errno.ENOENT, errno.EBADF)


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.__getitem__)
async def test_what_is_committed_is_told_as_stored_though_the_witness_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    lease = await store.acquire("s")
    with monkeypatch.context() as broken:
        broken.setattr(Witness, "write", failing(number))
        assert await append(store, lease) == 1
    assert await append(store, lease) == 2
    assert not lease.lost.is_set()


@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.__getitem__)
async def test_a_lease_is_granted_though_its_epoch_cannot_be_remembered(
    url: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = await open_store(url)
    with monkeypatch.context() as broken:
        broken.setattr("outlast.store.sqlite.engine.make_private_folder", failing(number))
        lease = await store.acquire("s")
    assert await append(store, lease) == 1
    await store.close()


async def test_a_step_after_the_commit_that_fails_is_not_the_callers_failure(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await store.acquire("s")

    def broken(name: str) -> bool:
        return failing(errno.EIO)() if name.endswith(".after_commit") else point(name)

    monkeypatch.setattr("outlast.store.sqlite.engine.point", broken)
    assert await append(store, lease) == 1
    assert (await admit(store, "s", "r")).created
    assert await append(store, lease) == 2


@pytest.mark.parametrize("state", ["/dev/null", "/proc/nowhere"])
async def test_a_named_store_needs_no_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.delenv("OUTLAST_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", state)
    for expected in (1, 2):
        store = await open_store(sqlite_url(tmp_path / "x.db"))
        assert await append(store, await store.acquire("s")) == expected
        await store.close()


async def test_the_state_folder_is_for_this_user_only(tmp_path: Path, url: str) -> None:
    before = os.umask(0o022)
    try:
        store = await open_store(url)
        await store.acquire("s")
        await store.close()
    finally:
        os.umask(before)
    folders = [tmp_path / "state", tmp_path / "state" / "epochs"]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


async def test_a_dead_nodes_file_that_cannot_be_removed_stops_no_writer(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Layout.of(database_path(url, {})).nodes / "dead").mkdir()
    real = Engine.execute

    def execute(engine: Engine, group: Sequence[Operation]) -> tuple[list[object], Effects]:
        outcomes, effects = real(engine, group)
        effects.dead.append("dead")
        return outcomes, effects

    monkeypatch.setattr(Engine, "execute", execute)
    assert (await in_time(admit(store, "s", "r1"))).created
    assert (await in_time(admit(store, "s", "r2"))).created


@pytest.mark.parametrize("step", ["execute", "ring"])
@pytest.mark.parametrize("failure", [MemoryError, SystemExit, RuntimeError])
async def test_whoever_waits_for_a_writer_that_ends_hears_of_it(
    url: str, monkeypatch: pytest.MonkeyPatch, step: str, failure: type[BaseException]
) -> None:
    store = await open_store(url)
    lease = await store.acquire("s")

    def end(_: Engine, given: Sequence[Operation] | Effects) -> Any:
        # The bell of the grant may ring only now.
        if not isinstance(given, Effects) or "append" in given.points:
            raise failure("the thread ends")

    monkeypatch.setattr(Engine, step, end)
    first = asyncio.ensure_future(store.append(Append("s", (row(1, lease.epoch),), 0, lease)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    later = asyncio.create_task(admit(store, "s", "r"))
    outcomes = await in_time(asyncio.gather(first, later, return_exceptions=True))
    if step == "execute":
        assert isinstance(outcomes[0], AmbiguousAppendError)
    else:
        assert outcomes[0] == 1  # it was committed before the thread ended
    assert isinstance(outcomes[1], StoreError)
    assert not isinstance(outcomes[1], AmbiguousAppendError)
    # For good: nothing waits for a thread that is gone, and nothing is owned without it.
    assert lease.lost.is_set()
    with pytest.raises(StoreError, match="ended"):
        await in_time(admit(store, "s", "r2"))
    monkeypatch.undo()
    await in_time(store.close())
    again = await open_store(url)
    assert await seqs(again, "s") == ([] if step == "execute" else [1])
    await again.close()


async def test_an_operation_that_breaks_takes_no_other_with_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await store.acquire("s")

    def broken(self: Admit, txn: object) -> object:
        raise AssertionError("made to break")

    with monkeypatch.context() as patched:
        patched.setattr(Admit, "run", broken)
        outcomes = await asyncio.gather(append(store, lease), admit(store, "s", "r"), return_exceptions=True)
    assert outcomes[0] == 1
    assert isinstance(outcomes[1], StoreError)
    assert await append(store, lease) == 2


async def test_each_caller_of_a_failed_group_has_an_error_of_its_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await store.acquire("s")
    monkeypatch.setattr(
        "outlast.store.sqlite.engine.point",
        lambda name: failing(errno.EIO)() if name.endswith("before_commit") else point(name),
    )
    calls = [store.admit(Admission(f"s{i}", "r", "input", b"", opening=entry(f"s{i}"))) for i in range(3)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {StoreError} | {type(outcomes[0])}
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert all(str(outcome) == str(outcomes[0]) for outcome in outcomes)
    assert not lease.lost.is_set()
