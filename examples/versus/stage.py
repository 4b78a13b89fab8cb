"""A folder, processes that are started in it, and the effects that they leave. All end with it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from outlast.keep import AgentFolder, Verified, probe, tree_dead

STEPS = 6
PATIENCE = 60.0
_EFFECT = re.compile(r"step (\d+) process (\d+)")


class SceneError(Exception):
    """Something did not come to pass within PATIENCE seconds."""


@dataclass
class Stage:
    """One scene's folder with its processes. Each step waits for leave to end: `go`."""

    folder: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Its errors go to the file `errors-N`, and its standard input and output are pipes."""
        with (self.folder / f"errors-{len(self.started)}").open("wb") as errors:
            process = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def go(self, *steps: int) -> None:
        for step in steps:
            (self.folder / f"go-{step}").touch()

    def effects(self) -> list[tuple[int, int]]:
        """(step, process) of each line that is whole."""
        try:
            text = (self.folder / "effects").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [(int(step), int(pid)) for step, pid in _EFFECT.findall(text[: text.rfind("\n") + 1])]

    def times(self, step: int) -> int:
        return Counter(done for done, _ in self.effects())[step]

    def until(self, fact: Callable[[], bool], what: str) -> None:
        """Wait for a fact. Raises SceneError that says what the processes have said last."""
        deadline = time.monotonic() + PATIENCE
        while not fact():
            if time.monotonic() > deadline:
                said = [
                    file.read_text(encoding="utf-8", errors="replace")[-400:]
                    for file in sorted(self.folder.glob("errors-*"))
                ]
                raise SceneError(f"waited {PATIENCE:.0f} s for {what}; the processes said {said}")
            time.sleep(0.01)

    def until_in(self, step: int, times: int = 1) -> None:
        """Until the effect of the step is there so many times: whoever does it is in the step then."""
        self.until(lambda: self.times(step) >= times, f"step {step}, time {times}")

    def until_ended(self, process: subprocess.Popen[bytes]) -> int:
        self.until(lambda: process.poll() is not None, f"the end of process {process.pid}")
        assert process.returncode is not None
        return process.returncode


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9, and it is gone when this returns."""
    process.kill()
    process.wait(PATIENCE)


@contextmanager
def stage() -> Iterator[Stage]:
    """A scene in a folder of its own. At its end every process is ended by its id, and the folder removed."""
    with tempfile.TemporaryDirectory(prefix="outlast-versus-") as folder:
        scene = Stage(Path(folder))
        try:
            yield scene
        finally:
            for process in scene.started:
                kill(process)
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        with suppress(BrokenPipeError):
                            pipe.close()
            _end_agents(scene.folder)


def _end_agents(folder: Path) -> None:
    """Agents outlive their runtime; the scene's do not outlive the scene."""
    for agent in folder.glob("state/*.d/agents/*"):
        facts = probe(AgentFolder(agent)).latest
        if facts is None or isinstance(tree_dead(facts.generation), Verified):
            continue
        if facts.shim is not None and facts.shim.alive:
            with suppress(ProcessLookupError):
                os.kill(facts.shim.pid, signal.SIGKILL)  # its guard ends the rest
        deadline = time.monotonic() + PATIENCE
        while not isinstance(tree_dead(facts.generation), Verified):
            if time.monotonic() > deadline:
                raise SceneError(f"the agent in {agent} does not end")
            time.sleep(0.01)


@dataclass(frozen=True)
class Outcome:
    """What a scene came to: how often each step was done, and how it ended, in words."""

    who: str
    scene: str
    kills: int
    done: tuple[int, ...]
    """Times that step 1, 2, … was done."""
    ended: str

    @classmethod
    def of(cls, scene: Stage, who: str, name: str, kills: int, ended: str) -> Outcome:
        return cls(who, name, kills, tuple(scene.times(step) for step in range(1, STEPS + 1)), ended)

    @property
    def doubled(self) -> tuple[int, ...]:
        """Steps that were done more than once."""
        return tuple(step for step, times in enumerate(self.done, 1) if times > 1)

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(step for step, times in enumerate(self.done, 1) if times == 0)
