"""The turnstile, the witness and the locks of the living, each by itself."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.processes import until
from tests.support.stores import PATIENCE

from outlast.errors import IntegrityError, StoreBusyError
from outlast.store.contract import Tip
from outlast.store.sqlite.incarnation import (
    Incarnation,
    Node,
    alive,
    boot_id,
    is_same_process,
    pid_namespace,
    this_process,
)
from outlast.store.sqlite.layout import Layout, prepare
from outlast.store.sqlite.takeover import end_holder
from outlast.store.sqlite.turnstile import Turnstile, gate_nap, pid_of_lock
from outlast.store.sqlite.witness import Seen, Witness, compare

LOCKS = """\
1: POSIX  ADVISORY  WRITE 100 fe:00:7 0 EOF
2: FLOCK  ADVISORY  WRITE 200 fe:00:8 0 EOF
2: -> FLOCK  ADVISORY  WRITE 300 fe:00:8 0 EOF
3: FLOCK  ADVISORY  READ 400 fe:00:9 0 EOF
4: OFDLCK ADVISORY  WRITE -1 fe:00:10 0 EOF
"""


@pytest.mark.parametrize(("inode", "pid"), [(7, 100), (8, 200), (9, None), (10, None), (11, None)])
def test_the_holder_of_a_lock_is_read_from_the_kernels_table(inode: int, pid: int | None) -> None:
    assert pid_of_lock(inode, LOCKS) == pid


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout.of(tmp_path / "x.db")
    prepare(made)
    return made


def test_one_turn_at_a_time_and_who_waits_too_long_hears_who_has_it(layout: Layout) -> None:
    one, two = Turnstile(layout), Turnstile(layout)
    with one.turn(0), pytest.raises(StoreBusyError, match=f"process {os.getpid()}"), two.turn(0.01):
        pass
    # Who gave up stands in nobody's way.
    with one.turn(0):
        pass
    with two.turn(0):
        pass
    one.close()
    two.close()


def test_who_stands_in_the_gate_is_next(layout: Layout) -> None:
    """Nobody who comes later gets the turn before it: it does not even get into the gate."""
    one, two, three = (Turnstile(layout) for _ in range(3))
    entered: list[str] = []

    def wait_for_the_turn() -> None:
        with two.turn(PATIENCE):
            entered.append("two")

    def gate_is_taken() -> bool:
        with layout.gate.open("rb") as gate:
            try:
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    waiting = threading.Thread(target=wait_for_the_turn)
    with one.turn(0):
        waiting.start()
        until(gate_is_taken, "two stands in the gate")
        with pytest.raises(StoreBusyError), three.turn(0):
            entered.append("three")
    # The turn is free or two's by now. Where two has it, three waits; it is never before two.
    with three.turn(PATIENCE):
        entered.append("three")
    waiting.join(PATIENCE)
    assert entered == ["two", "three"]
    for turnstile in (one, two, three):
        turnstile.close()


tips = st.dictionaries(
    st.integers(1, 40),
    st.builds(Tip, st.integers(1, 2**40), st.integers(1, 2**40), st.binary(min_size=16, max_size=16)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tips, max_size=4))
def test_a_witness_tells_the_last_that_was_noted(tmp_path: Path, groups: list[dict[int, Tip]]) -> None:
    path = tmp_path / os.urandom(4).hex()
    path.touch()
    witness = Witness(path, "store", write=True)
    witness.begin_anew()
    expected: dict[int, Tip] = {}
    for group in groups:
        witness.write(group.items())
        expected |= group
    witness.close()
    again = Witness(path, "store", write=False)
    assert {s: tip for s in range(45) if (tip := again.read(s))} == expected
    again.close()
    strange = Witness(path, "another store", write=False)
    assert all(strange.read(s) is None for s in range(45))
    strange.close()


def test_a_witness_is_never_ahead_of_an_intact_journal() -> None:
    noted = Tip(3, 1, b"c" * 16)
    compare("s", None, Seen(Tip(0, 0, b""), None))
    compare("s", noted, Seen(noted, b"c" * 16))
    compare("s", noted, Seen(Tip(9, 2, b"z" * 16), b"c" * 16))
    for seen in (
        Seen(Tip(2, 1, b"b" * 16), None),
        Seen(Tip(0, 0, b""), None),
        Seen(Tip(3, 1, b"x" * 16), b"x" * 16),
        Seen(Tip(9, 2, b"z" * 16), b"x" * 16),
        Seen(Tip(9, 2, b"z" * 16), None),
    ):
        with pytest.raises(IntegrityError):
            compare("s", noted, seen)


def test_an_own_incarnation_is_alive_until_it_ends(layout: Layout) -> None:
    incarnation = Incarnation(layout.nodes, this_process("me", "label"))
    assert not alive(layout.nodes, Node("me", os.getpid(), 0, "", 0, ""))
    incarnation.begin()
    assert alive(layout.nodes, incarnation.node)
    assert "label label" in (layout.nodes / "me").read_text()
    incarnation.end(remove=True)
    assert not (layout.nodes / "me").exists()


def test_pid_reuse(layout: Layout) -> None:
    """A node whose pid is now another process's counts as dead: its lock is free."""
    reused = Node("gone", os.getpid(), 1, "another boot", 0, "")
    (layout.nodes / "gone").write_text("")
    assert not alive(layout.nodes, reused)
    (layout.nodes / "gone").unlink()
    assert not alive(layout.nodes, reused)


def test_a_process_whose_start_is_unknown_is_never_taken_for_another(layout: Layout) -> None:
    """Nothing is known of a dead process's start, and of a node that was noted without it: no match."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(60)
    unknown = Node("swept", gone.pid, 0, boot_id(), pid_namespace(), "")
    assert not is_same_process(unknown, gone.pid)
    assert not alive(layout.nodes, unknown)
    end_holder(layout.nodes, "s", 1, unknown)  # nobody to end


def test_the_longer_a_writer_waits_at_the_gate_the_sooner_it_looks_again() -> None:
    looks = [gate_nap(waited / 1000) for waited in range(30)]
    assert looks == sorted(looks, reverse=True)
    assert looks[0] > 5 * looks[-1] > 0
    assert gate_nap(2.0) > looks[-1], "behind a stopped process nobody burns the processor"


def test_a_turnstile_that_was_closed_closes_nobodys_files(layout: Layout) -> None:
    """A forked child has closed it, and the numbers have been given out again."""
    turnstile = Turnstile(layout)
    turnstile.close()
    reused = [os.open(layout.bell, os.O_RDONLY) for _ in range(2)]
    turnstile.close()
    for file in reused:
        os.close(file)  # raises EBADF for one that was closed already


def test_who_lives_counts_as_alive_also_when_the_folder_was_swept(layout: Layout) -> None:
    assert alive(layout.nodes, this_process("swept", ""))
