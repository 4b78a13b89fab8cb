"""One schedule of the campaign: tell the story, kill (or replace) its owner at each place in turn, tell it to
its end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.campaign import story
from tests.campaign.story import SESSION
from tests.support.forked import Forked, preload
from tests.support.processes import kill, processes_of, until

from outlast.keep import AgentFolder
from outlast.keep.facts import look
from outlast.runtime.client import Client
from outlast.store.url import sqlite_url

TESTS = Path(__file__).parents[2]
"""Where the story's processes find `tests`."""
LEG = "passages-{}"
"""Folder in which the passages up to a kill are counted, by the number of the kill."""
AWHILE = 1.5
"""Seconds for an effect that perhaps never comes."""
STARTS = 10
"""Processes that one schedule may start before it counts as going nowhere."""
PATIENCE = 100.0
"""Seconds for one process; it gives up by itself before that."""

preload(["tests.campaign.story"])

Victims = Literal["process", "all", "asleep"]


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """SIGKILL at the `nth` passage of `point`, counted over all processes since the kill before.

    `process`: who passes it kills itself. `all`: guard, shim and agent die too, once the effect `awaits` is
    there, if it ever is. `asleep`: the owner is stopped there, another one takes its session without ending
    it, then it wakes; it is killed when it has tried to go on."""

    point: str
    nth: int = 1
    victims: Victims = "process"
    awaits: str = ""

    def __str__(self) -> str:
        how = {"process": "", "all": " with all", "asleep": " asleep"}[self.victims]
        return f"{self.point}@{self.nth}{how}" + (f" after {self.awaits!r}" if self.awaits else "")


Schedule = tuple[Kill, ...]
Owner = Forked | subprocess.Popen[bytes]


def named(schedule: Schedule) -> str:
    return ", then ".join(map(str, schedule)) or "no kill"


@dataclass(slots=True)
class Run:
    """What became of a schedule. `passages` has one count per process life between kills."""

    root: Path
    schedule: Schedule
    killed: int = 0
    """Kills that came about; where a run has fewer passages than the recorded one, the rest does not."""
    statuses: list[int] = field(default_factory=list)
    passages: list[Mapping[str, int]] = field(default_factory=list)
    stuck: str = ""
    """Why the story was never told to its end."""
    trespassed: str = ""
    """What an owner wrote, into the journal or to an agent, after it was replaced."""


def run(root: Path, schedule: Schedule = (), control: str | None = None) -> Run:
    """Tell the story in `root`, which is made. `control` names a broken build (see `broken.py`)."""
    for folder in ("work", "home"):
        (root / folder).mkdir(parents=True)
    done = Run(root, schedule)
    try:
        for number, kill in enumerate((*schedule, None)):
            if not _leg(done, number, kill, control):
                break
        until(lambda: not processes_of(root), "nothing is left", 20.0)
    except AssertionError as error:
        done.stuck = str(error)
    finally:
        end_all(root)
    return done


def _leg(done: Run, number: int, kill: Kill | None, control: str | None) -> bool:
    """Processes up to this kill, or to the end of the story; False when that has come."""
    counted = done.root / LEG.format(number)
    counted.mkdir()
    plan = f"passages={counted}"
    if kill is not None:
        plan += f",{kill.point}@{kill.nth}=" + ("stop" if kill.victims == "asleep" else "kill")
    try:
        while len(done.statuses) < STARTS:
            process = _start(done, plan, control)
            replaced = True
            if kill is not None and kill.victims == "asleep":
                replaced = replace_if_asleep(done, process, counted, control)
            status = _end(process)
            done.statuses.append(status)
            reached = kill is not None and replaced and _passed(counted, kill.point) >= kill.nth
            if reached and kill is not None:
                done.killed += 1
                if kill.victims == "all" and status != 0:
                    _await_effect(done.root, kill.awaits)
                    end_all(done.root)
            if status == 0 or reached:
                return status != 0
            if status != -signal.SIGKILL:
                raise AssertionError(f"ended with {status}: {_said(done)}")
    finally:
        done.passages.append({file.name: file.stat().st_size for file in counted.iterdir()})
    raise AssertionError(f"told {STARTS} times and not over")


def _start(done: Run, plan: str, control: str | None, *, take_over: bool = False) -> Owner:
    root = done.root
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(root / "home"),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(TESTS),
        "OUTLAST_STATE_DIR": str(root / "state"),
        "OUTLAST_FAULTS": plan,
        "OUTLAST_FAULTS_TESTING": "1",
        "PYTHONWARNINGS": "error",
    }
    said = root / f"stderr-{len(done.statuses)}"
    if control is None:
        return Forked(story.main, root, take_over, env=env, cwd=root / "work", stderr=said)
    # A broken build is one from its start, and in no process that goes on to be another's.
    take = ["take-over"] if take_over else []
    with said.open("ab") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.campaign.broken", control, str(root), *take],
            env=env,
            cwd=root / "work",
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,
        )


def _end(process: Owner) -> int:
    """How it ended by itself."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return -signal.SIGALRM


def replace_if_asleep(done: Run, sleeper: Owner, counted: Path, control: str | None) -> bool:
    """Once the owner sleeps: let another take its session and sleep before it writes; wake the first, see
    what it writes, end it; wake the other and let it tell on. The first one's end is the kill. False where
    it was not replaced: it never slept, or fell asleep while it held the database, and nobody could write.
    """
    if not _asleep(sleeper):
        return False
    other_counted = counted.with_name(f"{counted.name}-other")
    other_counted.mkdir()
    plan = f"passages={other_counted},takeover.kill=skip,restore.begin.before_append@1=stop"
    other = _start(done, plan, control, take_over=True)
    try:
        if not _asleep(other):
            return False
        before = asyncio.run(_tip(done.root))
        # One append may have been on its way when it fell asleep: that one is no try.
        begun, left = _passed(counted, "journal.append.before"), _passed(counted, "actor.release.before")
        given = _given(done.root)
        sleeper.send_signal(signal.SIGCONT)
        until(
            lambda: (
                _passed(counted, "journal.append.after") > begun
                or _passed(counted, "actor.release.before") > left
                or sleeper.poll() is not None
            ),
            "it tried to go on",
            20.0,
        )
        sleeper.kill()
        sleeper.wait()
        after = asyncio.run(_tip(done.root))
        if after > before:
            done.trespassed = f"a replaced owner wrote records {before + 1} to {after}"
        elif _given(done.root) > given:
            done.trespassed = "a replaced owner gave its agent an input"
        other.send_signal(signal.SIGCONT)
        done.statuses.append(_end(other))
        return True
    finally:
        for process in (sleeper, other):
            if process.poll() is None:
                process.kill()
                process.wait()


def run_until_replaced(root: Path, schedule: Schedule, control: str | None = None) -> Run:
    """As `run`; again, a few times, where an owner fell asleep while it held the database: nobody could
    replace it, and the schedule did not come about."""
    sleeps = any(kill.victims == "asleep" for kill in schedule)
    done = run(root, schedule, control)
    for again in range(1, 4 if sleeps else 1):
        if done.killed == len(schedule):
            break
        done = run(root.with_name(f"{root.name}-{again}"), schedule, control)
    return done


def _asleep(process: Owner) -> bool:
    """Wait until it has stopped itself: True, or has ended: False."""

    def state() -> str:
        if process.poll() is not None:
            return "ended"
        try:
            stat = Path(f"/proc/{process.pid}/stat").read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""
        return "asleep" if stat.rpartition(")")[2].split()[0] == "T" else ""

    return until(state, "it sleeps or has ended", PATIENCE) == "asleep"


async def _tip(root: Path) -> int:
    async with Client(sqlite_url(root / "state" / "outlast.db"), label="the campaign") as client:
        return (await client.store.tip(SESSION)).seq


def _given(root: Path) -> int:
    """Inputs that are in agents' spools."""
    lives = (root / "state" / "outlast.d" / "agents").glob("*/gen-*")
    generations = (AgentFolder(life.parent).generation(int(life.name.rpartition("-")[2])) for life in lives)
    return sum(look(generation).last_input for generation in generations)


def _await_effect(root: Path, line: str) -> None:
    """Bounded: a build that is right has no such effect where it was cut off."""
    effects = root / "effects"
    deadline = time.monotonic() + AWHILE
    while line and time.monotonic() < deadline:
        if effects.exists() and line in effects.read_text("utf-8").split("\n"):
            return
        time.sleep(0.005)


def _passed(counted: Path, point: str) -> int:
    try:
        return (counted / point).stat().st_size
    except FileNotFoundError:
        return 0


def _said(done: Run) -> str:
    """The newest words on standard error."""
    newest = max(done.root.glob("stderr-*"), key=lambda path: path.stat().st_mtime_ns)
    return newest.read_text("utf-8", "replace")[-2000:]


def end_all(root: Path) -> None:
    """kill -9 of whatever belongs to `root`, until nothing of it lives."""
    deadline = time.monotonic() + 20.0
    while living := processes_of(root):
        for pid in living:
            kill(pid)
        if time.monotonic() > deadline:
            raise AssertionError(f"these do not die: {living}")
        time.sleep(0.002)
