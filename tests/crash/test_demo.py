"""`outlast demo` on real processes: what a new user runs first is true, and says so when it is not."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="leftovers are looked for in /proc"
)

PATIENCE = 60.0


@contextmanager
def demo(tmp_path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`outlast demo`, its output in a pipe, its throw-away folder under `tmp_path`."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "outlast", "demo", *arguments],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(temporary), "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # It ends what it has started; SIGKILL would leave that behind.
        process.communicate(timeout=PATIENCE)


def wait_until(fact: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < ends, "in vain"
        time.sleep(0.01)


def processes_of(tmp_path: Path) -> list[str]:
    """Everything that runs with this test's folder in its arguments, environment or as its place."""
    mark, found = str(tmp_path).encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            seen = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            seen += str((entry / "cwd").readlink()).encode()
        except OSError:
            continue
        if mark in seen and int(entry.name) != os.getpid():
            found.append(seen.decode(errors="replace"))
    return found


def test_four_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        said, complaints = running.communicate(timeout=PATIENCE)
    assert (running.returncode, complaints) == (0, "")
    rungs = re.findall(r"^(\d)  ([A-Z ]+)  ", said, re.MULTILINE)
    assert [name for _, name in rungs] == [
        "THE AGENT DIES",
        "THE RUNTIME DIES",
        "BOTH DIE",
        "TWO RUNTIMES AT ONCE",
    ]
    assert "turn-1 failed: crashed, signal 9" in said
    assert re.search(r"attached to agent (\d+); the restore took \d+ ms", said)
    assert re.search(r"turn-2 is done: the same turn, the same agent \d+", said)
    assert "turn-3 is interrupted, not run again" in said
    assert re.search(r"runtime \d+ is refused \(exit 4\)", said)
    for name in ("inputs lost", "effects lost", "effects doubled", "ids changed", "processes left"):
        assert re.search(rf"✓ {name} +0 ", said), name
    assert "Nothing lost, nothing doubled" in said
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 80
    assert list((tmp_path / "temporary").iterdir()) == []
    assert processes_of(tmp_path) == []


def test_an_effects_file_with_a_line_too_many_exits_1_and_says_so(tmp_path: Path) -> None:
    effects = tmp_path / "kept" / "effects.log"
    with demo(tmp_path, "--keep", "kept") as running:
        wait_until(lambda: effects.exists() and effects.read_bytes().endswith(b"\n"))
        first = effects.read_text(encoding="utf-8").splitlines(keepends=True)[0]
        with effects.open("a", encoding="utf-8") as file:
            file.write(first)
        said, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 1
    assert re.search(r"✗ effects doubled +1 ", said)
    assert "NOT AS PROMISED: effects doubled: 1." in said
    assert effects.read_text(encoding="utf-8").count(first) == 2
    assert (tmp_path / "kept" / "state" / "outlast.db").exists()
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_stopped_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "turn-1: agent" in line:
                break
        assert processes_of(tmp_path) != []
        running.send_signal(number)
        running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert list((tmp_path / "temporary").iterdir()) == []
    assert processes_of(tmp_path) == []


def test_a_demo_whose_reader_goes_ends_quietly_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        running.stdout = None
        assert running.wait(PATIENCE) == 0
        assert running.stderr.read() == ""
    assert list((tmp_path / "temporary").iterdir()) == []
    assert processes_of(tmp_path) == []


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine").write_text("mine", encoding="utf-8")
    with demo(tmp_path, "--keep", "kept") as running:
        said, complaints = running.communicate(timeout=PATIENCE)
    assert (running.returncode, said) == (2, "")
    assert "kept is not empty" in complaints
    assert [entry.name for entry in kept.iterdir()] == ["mine"]
