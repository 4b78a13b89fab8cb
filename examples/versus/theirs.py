"""The same scenes with the peers, from their wheels, in their own environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from examples.versus.stage import Outcome, SceneError, Stage, kill, stage

PROGRAMS = Path(__file__).with_name("peers")


def peer(scene: Stage, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    python = os.environ.get("OUTLAST_PEERS") or str(Path(sys.prefix) / "peers/bin/python")
    if not Path(python).exists():
        raise SceneError(f"the peers' environment is missing ({python}): `make versus` makes it")
    env = {"PATH": os.defpath, "HOME": str(scene.folder), "LANGSMITH_TRACING": "false"}
    return scene.start([python, str(PROGRAMS / program), str(scene.folder), *arguments], env)


def langgraph_two_owners() -> Outcome:
    """The process is killed in node 3; two go on with the thread at once."""
    with stage() as scene:
        first = peer(scene, "thread.py", "begin")
        scene.go(1, 2)
        scene.until_in(3)
        kill(first)
        both = [peer(scene, "thread.py", "resume") for _ in range(2)]
        for owner in both:
            assert owner.stdout is not None
            owner.stdout.readline()
        for owner in both:
            assert owner.stdin is not None
            owner.stdin.write(b"go\n")
            owner.stdin.flush()
        # Both are in node 3 before either may leave it: unless one of them was refused.
        scene.until(
            lambda: scene.times(3) >= 3 or any(owner.poll() is not None for owner in both),
            "both being at work, or one refused",
        )
        scene.go(3, 4, 5, 6)
        codes = sorted(scene.until_ended(owner) for owner in both)
        ended = "both went on to the end" if codes == [0, 0] else f"exits {codes}"
        return Outcome.of(scene, "LangGraph", "two go on with it at once", 1, ended)


def dbos_killed() -> Outcome:
    """The process is killed in step 3 and again in step 5; each time it is started again and recovers."""
    with stage() as scene:
        owner = peer(scene, "workflow.py")
        scene.go(1, 2)
        for step in (3, 5):
            scene.until_in(step)
            kill(owner)
            scene.go(step, step + 1)
            owner = peer(scene, "workflow.py")
        code = scene.until_ended(owner)
        ended = "the workflow is done" if code == 0 else f"exit {code}"
        return Outcome.of(scene, "DBOS", "it is killed in steps 3 and 5", 2, ended)
