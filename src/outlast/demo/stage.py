"""Where the demo plays: a throw-away folder, the processes that are started in it, and their end.

Every process is known by its pid from its start, or by what outlast has recorded of it, and is ended by that.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from outlast.clock import monotonic
from outlast.demo.effects import Effect, Effects, parse
from outlast.demo.errors import DemoError
from outlast.errors import UsageError
from outlast.keep import AgentFolder, Alive, Generation, Verified, kill_marked, probe, tree_dead
from outlast.store.url import sqlite_url

AGENT = "demo"
PATIENCE = 40.0
"""Seconds that any single thing may take, on the slowest machine."""
CLEARING = 15.0
"""Seconds for what was started to be gone, after it was told to."""
POLL = 0.01

_PASSED_ON = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "PYTHONPATH", "TMPDIR", "TZ")


@dataclass
class RuntimeProcess:
    """One `outlast resume`, a process of its own; what it says goes to `log`."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_status(self) -> int | None:
        """None while it lives."""
        return self.process.poll()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def check_alive(self) -> None:
        """Raises DemoError, with the last that it said, if it has ended."""
        if self.exit_status is not None:
            said = self.said().strip().splitlines()
            raise DemoError(
                f"runtime {self.pid} ended by itself with status {self.exit_status}",
                hint=f"it said last: {said[-1]}" if said else None,
            )

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. Raises DemoError if it had ended before."""
        self.check_alive()
        self.process.kill()
        self.process.wait(CLEARING)


@dataclass
class Stage:
    """The folder and all that runs in it. Used as `with`: leaving it ends every process and removes the
    folder, unless it is to be kept."""

    folder: Path
    keep: bool
    mark: str = field(default_factory=lambda: f"outlast-demo-{secrets.token_hex(8)}")
    runtimes: list[RuntimeProcess] = field(default_factory=list)

    @classmethod
    def make(cls, keep: Path | None) -> Stage:
        """A new folder, or the empty one to be kept. Raises UsageError for one that holds something."""
        if keep is None:
            return cls(Path(tempfile.mkdtemp(prefix="outlast-demo-")), keep=False)
        folder = keep.absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise UsageError(f"{keep} is not empty", hint="name a new folder")
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"{keep} is not a folder", hint="name a new folder") from error
        return cls(folder, keep=True)

    def __enter__(self) -> Stage:
        for folder in (self.workspace / "go", self.state, self.folder / "logs"):
            folder.mkdir(mode=0o700, parents=True)
        command = [
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__).with_name("agent.py")),
            str(self.effects_file),
        ]
        words = ", ".join(json.dumps(word, ensure_ascii=False) for word in [*command, self.mark])
        text = f'[agents.{AGENT}]\nkind = "command"\ncommand = [{words}]\n'
        self.config_file.write_text(text, encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self.end_everything()
        if not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    # --- places --------------------------------------------------------------------------------

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def config_file(self) -> Path:
        return self.folder / "config.toml"

    @property
    def effects_file(self) -> Path:
        return self.folder / "effects.log"

    @property
    def url(self) -> str:
        return sqlite_url(self.state / "outlast.db")

    def environment(self) -> dict[str, str]:
        """What a runtime gets: a list of names, so that nothing of the user's own outlast is touched."""
        passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        own = {"OUTLAST_CONFIG": str(self.config_file), "OUTLAST_STATE_DIR": str(self.state)}
        return passed | own | {"OUTLAST_DEMO": self.mark}

    # --- acting --------------------------------------------------------------------------------

    def resume(self, session: str) -> RuntimeProcess:
        """Start `outlast resume SESSION`: a new runtime. A session of its own keeps Ctrl-C for us."""
        log = self.folder / "logs" / f"runtime-{len(self.runtimes) + 1}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "outlast", "resume", session],
                cwd=self.workspace,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        runtime = RuntimeProcess(process, log)
        self.runtimes.append(runtime)
        return runtime

    def let_go_on(self, turn: str, step: int) -> None:
        """Let the agent begin a step that it waits before."""
        (self.workspace / "go" / f"{turn}.{step}").touch()

    def kill_agent(self, pid: int) -> None:
        """SIGKILL. Raises DemoError if it had ended before."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError as error:
            raise DemoError(f"agent {pid} ended by itself") from error

    # --- looking -------------------------------------------------------------------------------

    def effects(self) -> Effects:
        """The effects file as it is now. A line that is not whole yet is left out."""
        try:
            text = self.effects_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return Effects(())
        return parse(text[: text.rfind("\n") + 1])

    async def steps_done(self, turn: str, count: int) -> Effect:
        """Wait until `turn` has left `count` effects; the last of them. Raises DemoError."""
        await until(lambda: len(self.effects().of(turn)) >= count, f"step {count} of {turn}")
        return self.effects().of(turn)[-1]

    async def agents_gone(self) -> None:
        """Wait until the process tree of every agent life is known to be dead. Raises DemoError."""
        await until(lambda: not list(self._living()), "the end of the agent's processes")

    def left(self) -> tuple[str, ...]:
        """What still lives of all that was started, each in words."""
        runtimes = [f"runtime {runtime.pid}" for runtime in self.runtimes if runtime.exit_status is None]
        agents = [f"{generation.path.name}: {evidence}" for generation, evidence in self._living()]
        marked = [f"process {pid}" for pid in _carrying(self.mark.encode())]
        return tuple(runtimes + agents + marked)

    async def nothing_left(self) -> tuple[str, ...]:
        """`left()`, after everything had the time to end by itself."""
        try:
            await until(lambda: not self.left(), "every process to be gone", seconds=CLEARING)
        except DemoError:
            return self.left()
        return ()

    def _living(self) -> Iterator[tuple[Generation, str]]:
        for folder in self.state.glob("outlast.d/agents/*"):
            agent = AgentFolder(folder)
            for path in folder.glob("gen-*"):
                generation = agent.generation(int(path.name.rpartition("-")[2]))
                verdict = tree_dead(generation)
                if not isinstance(verdict, Verified):
                    yield generation, verdict.evidence

    # --- ending --------------------------------------------------------------------------------

    def end_everything(self) -> None:
        """End what is still there: first the runtimes, so that nothing starts anew, then the agents."""
        for runtime in self.runtimes:
            if runtime.exit_status is None:
                runtime.process.kill()
                runtime.process.wait(CLEARING)
        ends = monotonic() + CLEARING
        while (living := [generation for generation, _ in self._living()]) and monotonic() < ends:
            for generation in living:
                _end_tree(generation)
            time.sleep(POLL)


def _end_tree(generation: Generation) -> None:
    """A dead shim's guard ends the whole tree; where the guard is dead too, its mark finds what is left."""
    facts = probe(generation.folder).latest
    if facts is not None and facts.shim is not None and facts.shim.alive:
        try:
            os.kill(facts.shim.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
    elif isinstance(tree_dead(generation), Alive):
        kill_marked(generation, seconds=1.0)


async def until(fact: Callable[[], bool], what: str, *, seconds: float = PATIENCE) -> None:
    """Wait for a fact that can only be looked for. Raises DemoError when `seconds` have passed."""
    ends = monotonic() + seconds
    while not fact():
        if monotonic() > ends:
            raise DemoError(f"waited {seconds:.0f} seconds for {what}, in vain")
        await asyncio.sleep(POLL)


def _carrying(mark: bytes) -> list[int]:
    """Processes, but for this one, with the mark in their arguments or their environment (where /proc is)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        if int(entry.name) != os.getpid() and any(
            _holds(entry / name, mark) for name in ("cmdline", "environ")
        ):
            found.append(int(entry.name))
    return found


def _holds(file: Path, mark: bytes) -> bool:
    try:
        return mark in file.read_bytes()
    except OSError:
        return False  # It has ended, or it is another user's and so none of ours.
