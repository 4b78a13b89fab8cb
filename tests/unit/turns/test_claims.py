"""Who drives a provider's session, whatever the store."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from outlast.errors import UsageError
from outlast.keep.proc import boot_id, start_ticks
from outlast.records.types import Process
from outlast.turns import claims
from outlast.turns.claims import (
    ClaimBusyError,
    Holder,
    SessionClaim,
    claim_name,
    claims_folder,
    give_up,
    give_up_all,
    look,
    peek,
    put_down,
    take,
    this_process,
)

NAME = "claim"


def claim(session: str, *, alive: bool = False, folder: str | None = None) -> SessionClaim:
    me = Process(role="shim", pid=os.getpid(), start_ticks=start_ticks(os.getpid()) or 0)
    return SessionClaim(
        store="/store",
        session=session,
        folder=folder or f"/nowhere/{session}",
        generation="gen-000001",
        processes=[me] if alive else [],
        boot_id=boot_id() if alive else "",
    )


def test_the_first_has_it_and_is_found(tmp_path: Path) -> None:
    assert look(tmp_path, NAME) is None
    mine = claim("a", alive=True)
    assert take(tmp_path, NAME, mine) is None
    assert look(tmp_path, NAME) == mine


def test_double_writer_while_the_other_lives(tmp_path: Path) -> None:
    first = claim("a", alive=True)
    take(tmp_path, NAME, first)
    assert take(tmp_path, NAME, claim("b", alive=True)) == first
    assert look(tmp_path, NAME) == first


def test_a_dead_one_keeps_nobody_out(tmp_path: Path) -> None:
    take(tmp_path, NAME, claim("a"))
    second = claim("b", alive=True)
    assert take(tmp_path, NAME, second) is None
    assert look(tmp_path, NAME) == second


def in_store(store: Path, session: str, **more: object) -> SessionClaim:
    """Of a session whose agent has ended, or has never begun."""
    store.mkdir(exist_ok=True)
    told = {"folder": str(store / "agents" / session), "generation": ""} | more
    return SessionClaim(store=str(store), session=session, **told)  # type: ignore[arg-type]


def test_a_session_that_may_go_on_keeps_another_out_though_nothing_of_it_lives(tmp_path: Path) -> None:
    """Of the same store or another one, until it has given up or its store is gone."""
    first, second = in_store(tmp_path / "one", "a"), in_store(tmp_path / "two", "b")
    take(tmp_path, NAME, first)
    assert take(tmp_path, NAME, in_store(tmp_path / "one", "c")) == first
    assert take(tmp_path, NAME, second) == first
    assert str(tmp_path / NAME) in first.told(tmp_path / NAME)
    (tmp_path / "one").rmdir()
    assert take(tmp_path, NAME, second) is None
    give_up(tmp_path, NAME, second.folder)
    assert take(tmp_path, NAME, in_store(tmp_path / "three", "c")) is None


def test_the_same_session_of_a_copied_store_goes_on_where_nothing_lives(tmp_path: Path) -> None:
    take(tmp_path, NAME, in_store(tmp_path / "one", "a"))
    copy = in_store(tmp_path / "copy", "a")
    assert take(tmp_path, NAME, copy) is None
    assert look(tmp_path, NAME) == copy


def test_a_store_that_ends_with_its_process_holds_nothing_afterwards(tmp_path: Path) -> None:
    """Though its folder was left."""
    me = this_process()
    gone = Holder(me.pid, me.start_ticks - 1)
    for ends, other in ((me, True), (gone, False)):
        first = in_store(tmp_path / "one", "a", lives_with=ends, boot_id=boot_id())
        (tmp_path / NAME).unlink(missing_ok=True)
        take(tmp_path, NAME, first)
        assert take(tmp_path, NAME, in_store(tmp_path / "two", "b")) == (first if other else None)


def test_what_is_about_to_be_adopted_is_claimed_while_that_process_lives(tmp_path: Path) -> None:
    """And then by the session's owner, whose claim it does not replace."""
    me, store = this_process(), tmp_path / "one"
    about = in_store(store, "a", folder="", lives_with=me, boot_id=boot_id())
    another = in_store(store, "b", folder="", lives_with=me, boot_id=boot_id())
    assert take(tmp_path, NAME, about) is None
    assert take(tmp_path, NAME, another) == about
    put_down(tmp_path, NAME, another)
    assert look(tmp_path, NAME) == about
    put_down(tmp_path, NAME, about)
    assert look(tmp_path, NAME) is None

    take(tmp_path, NAME, about)
    owner = in_store(store, "a")
    assert take(tmp_path, NAME, owner) is None
    assert take(tmp_path, NAME, about) is None
    assert look(tmp_path, NAME) == owner
    dead = in_store(store, "c", folder="", lives_with=Holder(me.pid, 1), boot_id=boot_id())
    give_up(tmp_path, NAME, owner.folder)
    take(tmp_path, NAME, dead)
    assert take(tmp_path, NAME, another) is None


def test_the_same_folder_goes_on_with_its_next_life(tmp_path: Path) -> None:
    take(tmp_path, NAME, claim("a", alive=True))
    assert take(tmp_path, NAME, claim("a", alive=True)) is None


def test_only_ones_own_is_given_up(tmp_path: Path) -> None:
    mine = claim("a")
    take(tmp_path, NAME, mine)
    give_up(tmp_path, NAME, "/nowhere/other")
    assert look(tmp_path, NAME) == mine
    give_up(tmp_path, NAME, mine.folder)
    assert look(tmp_path, NAME) is None


def test_unseen_only_what_says_itself_that_it_is_ones_own_is_given_up(tmp_path: Path) -> None:
    """By store, session and agent folder, whatever it is about; nothing is locked or written for a look."""
    mine, moved, other = claim("a"), claim("a", folder="/elsewhere/a"), claim("b")
    for name, each in (("one", mine), ("two", moved), ("three", other)):
        take(tmp_path, name, each)
    assert give_up_all(tmp_path, mine)
    assert [peek(tmp_path, name) for name in ("one", "two", "three")] == [None, moved, other]
    assert not give_up_all(tmp_path, mine)
    assert not give_up_all(tmp_path / "not-there", mine)
    assert peek(tmp_path / "not-there", NAME) is None


def test_a_claim_that_was_cut_off_is_none(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b'{"store":"/st')
    assert look(tmp_path, NAME) is None
    assert take(tmp_path, NAME, claim("a")) is None


def test_one_name_for_one_home_however_it_is_reached(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    names = {claim_name("codex", tmp_path / home, "t") for home in ("home", "link")}
    assert len(names) == 1
    assert claim_name("claude", tmp_path / "home", "t") not in names
    assert claim_name("codex", tmp_path / "home", "u") not in names


@pytest.mark.parametrize("name", ["HOME", "XDG_STATE_HOME", "OUTLAST_STATE_DIR"])
def test_two_stores_of_one_home_look_in_one_folder(tmp_path: Path, name: str) -> None:
    """Whatever else they were told to keep elsewhere."""
    (tmp_path / "link").symlink_to(tmp_path)
    folders = {claims_folder(tmp_path, {name: "/a"}), claims_folder(tmp_path / "link", {name: "/b"})}
    assert folders == {tmp_path / ".outlast" / "claims"}


def test_the_folder_is_the_users_alone(tmp_path: Path) -> None:
    folder = claims_folder(tmp_path, {})
    take(folder, NAME, claim("a"))
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o700, 0o700]


def test_a_home_that_nobody_may_write_has_its_claims_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    given = {"HOME": "/h", "OUTLAST_STATE_DIR": "/elsewhere"}
    assert claims_folder(tmp_path, given) == Path("/h/.local/state/outlast/claims")
    assert claims_folder(tmp_path, {**given, "XDG_STATE_HOME": "/x"}) == Path("/x/outlast/claims")
    monkeypatch.setattr("outlast.turns.claims.home", _no_home)
    with pytest.raises(UsageError):
        claims_folder(tmp_path, {})


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_claim_that_is_locked_for_ever_is_told_with_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_PATIENCE", 0.05)
    take(tmp_path, NAME, claim("a"))
    holder = os.open(tmp_path / NAME, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    told = f"process {os.getpid()} holds the lock of .*{NAME}"
    with pytest.raises(ClaimBusyError, match=told):
        take(tmp_path, NAME, claim("b"))
    with pytest.raises(ClaimBusyError, match=told):
        look(tmp_path, NAME)
    with pytest.raises(ClaimBusyError, match=told):
        give_up(tmp_path, NAME, "/nowhere/a")
    os.close(holder)
    assert look(tmp_path, NAME) == claim("a")


def _no_home(environ: object) -> Path:
    raise UsageError("there is no home folder")


@contextmanager
def full_disk(limit: int) -> Iterator[None]:
    """No file can be written past `limit` bytes."""
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("limit", [0, 40])
def test_a_claim_that_a_full_disk_does_not_take_leaves_the_one_before(tmp_path: Path, limit: int) -> None:
    """Which is still ours, and keeps others out; there is nothing left of the other."""
    mine = in_store(tmp_path / "one", "a", generation="gen-000001")
    take(tmp_path, NAME, mine)
    names = sorted(tmp_path.iterdir())
    later = in_store(tmp_path / "one", "a", generation="gen-000002")
    with full_disk(limit), pytest.raises(OSError, match="too large"):
        take(tmp_path, NAME, later)
    assert look(tmp_path, NAME) == mine
    assert take(tmp_path, NAME, in_store(tmp_path / "two", "b")) == mine
    assert sorted(tmp_path.iterdir()) == sorted([*names, tmp_path / "two"])
    assert take(tmp_path, NAME, later) is None
    assert look(tmp_path, NAME) == later


@pytest.mark.parametrize("point", ["before_write", "before_rename", "after_write"])
def test_a_claim_whose_writer_was_killed_is_the_old_one_or_the_new(tmp_path: Path, point: str) -> None:
    mine = in_store(tmp_path / "one", "a", generation="gen-000001")
    take(tmp_path, NAME, mine)
    again = (
        "import sys, msgspec; from pathlib import Path; from outlast.turns.claims import *;"
        "take(Path(sys.argv[1]), sys.argv[2], msgspec.json.decode(sys.argv[3], type=SessionClaim))"
    )
    later = in_store(tmp_path / "one", "a", generation="gen-000002")
    given = msgspec.json.encode(later).decode()
    faults = {"OUTLAST_FAULTS_TESTING": "1", "OUTLAST_FAULTS": f"provider.claim.{point}=kill"}
    argv = (sys.executable, "-c", again, str(tmp_path), NAME, given)
    assert subprocess.run(argv, env={**os.environ, **faults}, check=False).returncode == -signal.SIGKILL
    assert look(tmp_path, NAME) == (later if point == "after_write" else mine)
    assert take(tmp_path, NAME, in_store(tmp_path / "two", "b")) is not None
    assert take(tmp_path, NAME, later) is None


def test_a_claim_that_took_the_place_of_one_that_is_waited_for_is_the_one_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is another file's."""
    mine = in_store(tmp_path / "one", "a")
    real = claims._lock

    def late(file: int, path: Path) -> None:
        monkeypatch.setattr(claims, "_lock", real)
        take(tmp_path, NAME, mine)
        real(file, path)

    monkeypatch.setattr(claims, "_lock", late)
    assert take(tmp_path, NAME, in_store(tmp_path / "two", "b")) == mine
