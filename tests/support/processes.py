"""Real processes of a test: bounded, ended by their pid, with an environment of named variables only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

PATIENCE = 60.0
"""Seconds after which a fact that has not come true fails its test."""

T = TypeVar("T")


def until(fact: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """What `fact` gives, once it gives something true; for facts that no event tells."""
    deadline = time.monotonic() + seconds
    while not (found := fact()):
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.01)
    return found


@dataclass(frozen=True)
class Finished:
    """How a process ended. `status` is negative for the signal that ended it."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def outcomes(self) -> list[str]:
        """The outcome of each turn, as `run --json` and `resume --json` print them."""
        return [line["outcome"] for line in self.lines if "outcome" in line]

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The error lines of `--json` on standard error."""
        lines = [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{")]
        return [line for line in lines if "error" in line]


@dataclass
class Child:
    """A process that the test has started. Its output goes to files: nothing here can fill a pipe."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        output: Path,
        stdin: bytes | None = None,
    ) -> Child:
        """`output` is the path of its two output files, without their endings."""
        out, err = output.with_suffix(".out"), output.with_suffix(".err")
        given = output.with_suffix(".in")
        given.write_bytes(stdin or b"")
        with given.open("rb") as fed, out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                argv, env=dict(env), cwd=cwd, stdin=fed, stdout=stdout, stderr=stderr, start_new_session=True
            )
        return cls(process, out, err)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """kill -9, and it is gone when this returns."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_stopped(self) -> None:
        """Until SIGSTOP has taken hold of it."""

        def look() -> bool:
            return _status(self.pid) == "T"

        until(look, f"process {self.pid} is stopped: {self.told()}")

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, seconds: float = PATIENCE) -> Finished:
        """Until it has ended by itself."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it never ended: {self.told()}") from None
        return Finished(status, self.out.read_bytes(), self.err.read_text("utf-8"))

    def told(self) -> str:
        """What it has printed so far, for a failure's message."""
        said = self.out.read_bytes()[-2000:].decode("utf-8", "replace")
        return f"{said}\n{self.err.read_text('utf-8', 'replace')[-2000:]}"


def _status(pid: int) -> str | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()[0]


def peak_memory(pid: int) -> int:
    """The most memory that the living process has ever had resident, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell VmHWM")


def kill(pid: int) -> None:
    """kill -9, taken as it comes: it may have ended with another one."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def processes_of(root: Path) -> dict[int, str]:
    """Every living process that has to do with the folder `root`: by its command line, its environment, the
    folder that it is in or a file that it has open. A process that hides its environment is still found by
    the others."""
    found: dict[int, str] = {}
    mark = os.fsencode(root)
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        pid = int(process.name)
        if _status(pid) not in (None, "Z", "X") and _concerns(process, mark):
            found[pid] = _command_line(process)
    return found


def _concerns(process: Path, mark: bytes) -> bool:
    for file in ("cmdline", "environ"):
        try:
            if mark in (process / file).read_bytes():
                return True
        except OSError:
            continue
    links = [process / "cwd"]
    with suppress(OSError):
        links += (process / "fd").iterdir()
    for link in links:
        try:
            if os.fsencode(link.readlink()).startswith(mark):
                return True
        except OSError:
            continue
    return False


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "?"
