"""An agent that the kernel kills for want of memory, in a cgroup with a limit, and one killed by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.memory import memory_cgroup, within
from tests.support.place import Place
from tests.support.processes import Child

from outlast.records.types import ReceiptError, TurnFailed

pytestmark = pytest.mark.slow
LIMIT = 320 * 1024 * 1024
EAT = "[[eat:1000]]"
HOG = "data = [bytearray(b'x' * 4096) * 256 for _ in range(1000)]"


def run(place: Place, text: str, cgroup: Path) -> Child:
    """`outlast run` and all that it starts, in the cgroup."""
    arguments = ("run", "-a", "plain", "--session", "job", "--key", "one", text)
    return place.start_program(
        *within(cgroup), sys.executable, "-m", "outlast", *arguments, env=place.environ()
    )


def error_of(place: Place) -> ReceiptError:
    return place.journal("job").the(TurnFailed).receipt.error


def kill_agent(place: Place) -> None:
    pid = next(pid for pid, line in place.leftovers.items() if "scripted.py" in line)
    os.kill(pid, signal.SIGKILL)


def test_an_agent_that_the_kernel_killed_for_want_of_memory(place: Place) -> None:
    with memory_cgroup("agent", LIMIT) as cgroup:
        ended = run(place, EAT, cgroup).wait()
        assert ended.status == 1, ended
        error = error_of(place)
        assert (error.code, error.signal) == ("oom_killed", 9)
        assert "Give it more memory or smaller work" in ended.stderr
        place.assert_nothing_left()


def test_the_child_that_a_wrapper_waited_for(place: Place) -> None:
    """A shell says by its own status that its command was killed."""
    argv = place.config.read_text("utf-8")
    wrapped = argv.replace('command = ["', 'command = ["/bin/sh", "-c", "\\"$0\\" \\"$@\\"; exit $?", "')
    place.config.write_text(wrapped, "utf-8")
    with memory_cgroup("wrapper", LIMIT) as cgroup:
        run(place, EAT, cgroup).wait()
        error = error_of(place)
        assert (error.code, error.exit_status) == ("oom_killed", 137)
        place.assert_nothing_left()


def test_a_kill_by_hand_is_none(place: Place) -> None:
    """Also while the kernel kills another program elsewhere for that."""
    with memory_cgroup("killed", LIMIT) as cgroup, memory_cgroup("other", 64 * 1024 * 1024) as other:
        runtime = run(place, "[[touch:begun]][[wait:go]]", cgroup)
        place.until_there("begun")
        hog = subprocess.run([*within(other), sys.executable, "-c", HOG], check=False)
        assert hog.returncode == -signal.SIGKILL
        kill_agent(place)
        runtime.wait()
        error = error_of(place)
        assert (error.code, error.signal) == ("crashed", 9)
        place.assert_nothing_left()
