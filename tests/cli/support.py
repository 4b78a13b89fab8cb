"""A user at a shell: a folder, a state folder, a scripted agent, and `outlast` as real processes."""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import outlast
from outlast.cli import main
from outlast.errors import SchemaError
from outlast.journal import read_records
from outlast.records.public import public_json
from outlast.state.listing import listed_json
from outlast.store.sqlite.reading import list_sessions
from outlast.store.url import sqlite_url
from outlast.testing import agents

DEADLINE = 30.0
OUTLAST = (sys.executable, "-m", "outlast")
POLL = 0.01


class Shell:
    """Runs `outlast` in `folder` with a state folder of its own; `close` ends what is still there."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "work"
        self.state = root / "state"
        self.config = root / "config.toml"
        self.effects = root / "effects"
        self.folder.mkdir()
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(root),
            "OUTLAST_STATE_DIR": str(self.state),
            "OUTLAST_CONFIG": str(self.config),
            "LC_ALL": "C.UTF-8",
        }
        self.agents(scripted=agents.command(agents.SCRIPTED, "--effects", str(self.effects)))
        self._running: list[subprocess.Popen[str]] = []

    def agents(self, **commands: tuple[str, ...]) -> None:
        """Describe command agents in the user's configuration."""
        sections = [
            f'[agents.{name}]\nkind = "command"\nstdin = "open"\ncommand = {json.dumps(command)}\n'
            for name, command in commands.items()
        ]
        # A codex that cannot be found keeps the one of the test environment out of the way.
        self.config.write_text("".join(sections))

    def run(self, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> Ran:
        """Run to the end inside this process, which is several times faster than a process of its own. What
        depends on signals, terminals, locales or several processes uses `process` or `start`."""
        environ = self.environ if environ is None else environ
        out, err = io.BytesIO(), io.BytesIO()
        before, folder = dict(os.environ), Path.cwd()
        streams = sys.stdin, sys.stdout, sys.stderr
        hangup = signal.getsignal(signal.SIGHUP)
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline="\n")
            for stream in (io.BytesIO(stdin), out, err)
        )
        try:
            os.environ.clear()
            os.environ.update(environ)
            os.chdir(self.folder)
            code = main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            return Ran(code, out.getvalue(), err.getvalue())
        finally:
            signal.signal(signal.SIGHUP, hangup)
            sys.stdin, sys.stdout, sys.stderr = streams
            os.environ.clear()
            os.environ.update(before)
            os.chdir(folder)

    def process(self, *arguments: str, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> Ran:
        """Run to the end in a process of its own."""
        done = subprocess.run(
            [*OUTLAST, *arguments],
            cwd=self.folder,
            env=dict(self.environ if environ is None else environ),
            input=stdin,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start, and end with the test."""
        streams: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        process = subprocess.Popen(
            [*OUTLAST, *arguments], cwd=self.folder, env=self.environ, text=True, **(streams | options)
        )
        self._running.append(process)
        return process

    def json(self, *arguments: str) -> Any:
        """What a command prints as JSON; it has to succeed."""
        ran = self.run(*arguments, "--json")
        assert ran.code == 0, ran
        return json.loads(ran.out)

    @property
    def url(self) -> str:
        return sqlite_url(self.state / "outlast.db")

    def sessions(self) -> list[dict[str, Any]]:
        """What `ls --json` shows, without a process of its own: tests look often."""
        try:
            return [listed_json(row) for row in list_sessions(self.state / "outlast.db")]
        except SchemaError:  # it is being made just now
            return []

    def show(self, session: str) -> dict[str, Any]:
        """What `show --json` shows, without a process of its own."""
        return asyncio.run(self._view(session))

    async def _view(self, session: str) -> dict[str, Any]:
        async with outlast.connect(self.url) as client:
            return (await client.session(session).view()).to_json()

    def records(self, session: str, *types: str) -> list[dict[str, Any]]:
        """The records of these types, as `tail --json` shows them."""
        found = asyncio.run(self._records(session))
        return [record for record in found if record["type"] in types]

    async def _records(self, session: str) -> list[dict[str, Any]]:
        async with outlast.connect(self.url) as client:
            return [public_json(record) async for record in read_records(client.store, session)]

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE)
        if (self.state / "outlast.db").exists():
            for row in self.sessions():
                if row["turns"] and row["status"] in ("detached", "running", "waiting", "parked"):
                    self.run("kill", row["id"])


class Ran:
    """A process that has ended."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out_bytes = out
        self.out = out.decode("utf-8")
        self.err = err.decode("utf-8")

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error of `--json` on standard error."""
        found: list[dict[str, Any]] = [json.loads(line) for line in self.err.splitlines()]
        return next(line for line in found if "error" in line)

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n--- stderr\n{self.err}"


def until(fact: Callable[[], bool], what: str) -> None:
    """Wait for a fact, with a deadline."""
    deadline = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < deadline, f"in vain waited for {what}"
        time.sleep(POLL)


def interrupt(process: subprocess.Popen[str], number: int = signal.SIGINT) -> None:
    os.kill(process.pid, number)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def hears(pid: int, number: int) -> bool:
    """Whether a process has a handler for the signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def reader(descriptor: int) -> Callable[[], str]:
    """All that was written to a terminal so far, each time it is called."""
    os.set_blocking(descriptor, False)
    read = bytearray()

    def everything() -> str:
        with suppress(OSError):  # nothing more now, or the other end is closed
            while data := os.read(descriptor, 65536):
                read.extend(data)
        return read.decode("utf-8", "replace")

    return everything


def control_terminal() -> None:
    """Make standard input this process's controlling terminal (before it becomes `outlast`)."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def on_terminal(slave: int) -> dict[str, Any]:
    """Options of a process whose standard input and error are a terminal of its own."""
    return {"stdin": slave, "stderr": slave, "start_new_session": True, "preexec_fn": control_terminal}
