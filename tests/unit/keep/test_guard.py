"""The guard and the pid of a shim that is no more."""

from __future__ import annotations

import subprocess
import sys

GUARD = """
import os, time
from outlast.keep import guard, proc
sent = []
proc.signal_process = lambda pid, number: sent.append(number)
orphan = os.fork()
if orphan == 0:
    os._exit(3)
shim = os.fork()
if shim == 0:
    time.sleep(0.05)
    os._exit(7)
one = guard._Guard(shim, -1, -1, -1)
one.pass_on(15, None)
before = len(sent)
waitpid = os.waitpid
def reaped(pid, options):
    found = waitpid(pid, options)
    if found[0] == shim:
        one.pass_on(15, None)
    return found
os.waitpid = reaped
status = one._wait_for_shim()
one.pass_on(15, None)
print(before, len(sent), os.waitstatus_to_exitcode(status))
"""


def test_a_signal_to_the_guard_never_reaches_whoever_has_the_dead_shims_pid() -> None:
    """From the moment in which the shim is reaped its pid may be another process's."""
    command = [sys.executable, "-c", GUARD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split() == ["1", "1", "7"]
