"""The scenes with outlast, through its command line: real processes, real kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from examples.versus.stage import Outcome, Stage, kill, stage

AGENT = Path(__file__).with_name("agent.py")
WHO = "outlast"
CONFLICT = 4
"""What `outlast resume` exits with when another process owns the session."""


def environment(scene: Stage) -> dict[str, str]:
    config = scene.folder / "config.toml"
    if not config.exists():
        words = json.dumps([sys.executable, "-I", "-S", str(AGENT), str(scene.folder)])
        config.write_text(f'[agents.steps]\nkind = "command"\ncommand = {words}\n', encoding="utf-8")
        (scene.folder / "state").mkdir(mode=0o700)
    return {
        "PATH": os.defpath,
        "HOME": str(scene.folder),
        "OUTLAST_CONFIG": str(config),
        "OUTLAST_STATE_DIR": str(scene.folder / "state"),
    }


def outlast(scene: Stage, *arguments: str) -> subprocess.Popen[bytes]:
    return scene.start([sys.executable, "-P", "-m", "outlast", *arguments], environment(scene))


def run(scene: Stage) -> subprocess.Popen[bytes]:
    return outlast(scene, "run", "--session", "steps", "--agent", "steps", "six steps")


def how_it_ended(scene: Stage) -> str:
    """The outcome of the turn, as `outlast show --json` has it."""
    shown = outlast(scene, "show", "steps", "--json")
    out, _ = shown.communicate(timeout=60)
    turns = json.loads(out)["turns"]
    return "the turn is " + ", ".join(str(turn["outcome"]) for turn in turns)


def two_owners() -> Outcome:
    """The runtime is killed in step 3; two resume the session at once."""
    with stage() as scene:
        first = run(scene)
        scene.go(1, 2)
        scene.until_in(3)
        kill(first)
        both = [outlast(scene, "resume", "steps") for _ in range(2)]
        scene.until(lambda: any(owner.poll() is not None for owner in both), "one being refused")
        scene.go(3, 4, 5, 6)
        codes = sorted(scene.until_ended(owner) for owner in both)
        refused = "one owner went on, the other was refused" if codes == [0, CONFLICT] else f"exits {codes}"
        ended = f"{refused}; {how_it_ended(scene)}"
        return Outcome.of(scene, WHO, "two go on with it at once", 1, ended)


def runtime_killed() -> Outcome:
    """The runtime is killed in step 3 and again in step 5; the agent lives on under its shim."""
    with stage() as scene:
        owner = run(scene)
        scene.go(1, 2)
        for step in (3, 5):
            scene.until_in(step)
            kill(owner)
            scene.go(step, step + 1)
            owner = outlast(scene, "resume", "steps")
        scene.until_ended(owner)
        return Outcome.of(scene, WHO, "its runtime is killed in steps 3 and 5", 2, how_it_ended(scene))


def all_killed() -> Outcome:
    """Runtime and agent are killed in step 3: nobody is left who knows how the step ended."""
    with stage() as scene:
        owner = run(scene)
        scene.go(1, 2)
        scene.until_in(3)
        kill(owner)
        agent = scene.effects()[-1][1]
        os.kill(agent, signal.SIGKILL)
        scene.go(3, 4, 5, 6)
        scene.until_ended(outlast(scene, "resume", "steps"))
        name = "runtime and agent are killed in step 3"
        return Outcome.of(scene, WHO, name, 1, how_it_ended(scene))
