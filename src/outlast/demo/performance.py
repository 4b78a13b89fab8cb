"""The demo from its first line to its exit status; whatever happens in between, nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from pathlib import Path

from outlast.demo.proof import Proof, prove
from outlast.demo.screen import Screen
from outlast.demo.stage import Stage
from outlast.demo.story import SESSION, Story
from outlast.demo.watch import Watch
from outlast.runtime.client import Client

INTRODUCTION = (
    "An agent works through a queue of inputs. Each of its steps appends a line to effects.log; "
    "think of a payment or an e-mail. Whatever dies, no input may be lost and no step done twice. "
    "In what follows ■ is a step that was done, □ one that was not."
)
STOPPED = 130
"""The exit status of a demo that a signal has ended."""
_STOPS = (signal.SIGTERM, signal.SIGHUP)


def main(keep: Path | None = None) -> int:
    """Play the demo on standard output. `keep` names a new folder that is left behind to be looked at.

    Returns the exit status: 0 when every count is as promised, 1 when one is not, 130 when it was stopped.
    Raises DemoError when something did not happen at all, UsageError for a folder that is not empty,
    BrokenPipeError.
    """
    screen = Screen(sys.stdout, os.environ)
    with Stage.make(keep) as stage:
        screen.title("outlast demo: real processes, real kill -9, a throw-away folder")
        screen.paragraph(INTRODUCTION)
        try:
            proof, found_in = asyncio.run(_play(screen, stage))
        except asyncio.CancelledError:
            screen.verdict(False, "stopped; what was started is ended")
            return STOPPED
        screen.proof(proof, found_in)
    _say_verdict(screen, proof)
    _say_way_on(screen, stage)
    return 0 if proof.holds else 1


async def _play(screen: Screen, stage: Stage) -> tuple[Proof, str]:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in _STOPS:
        loop.add_signal_handler(number, task.cancel)
    async with Client(stage.url, label="outlast demo") as client:
        session = client.session(SESSION, workspace=stage.workspace)
        async with Watch(session) as watch:
            story = Story(screen, stage, client, session, watch)
            await story.play()
            await watch.whole((await client.store.tip(SESSION)).seq)
            await stage.nothing_left()
            evidence = story.evidence()
    lines, records = evidence.effects.lines, len(evidence.records)
    return prove(evidence), f"counted in effects.log ({lines} lines) and the journal ({records} records)"


def _say_verdict(screen: Screen, proof: Proof) -> None:
    seconds = f"{screen.elapsed:.1f} seconds"
    if proof.holds:
        screen.verdict(True, f"Nothing lost, nothing doubled, in {seconds}.")
    else:
        wrong = ", ".join(f"{check.name}: {check.wrong}" for check in proof.checks if check.wrong)
        screen.verdict(False, f"NOT AS PROMISED: {wrong}.")


def _say_way_on(screen: Screen, stage: Stage) -> None:
    if stage.keep:
        config, state, effects = (
            shlex.quote(str(path)) for path in (stage.config_file, stage.state, stage.effects_file)
        )
        screen.plain(
            "Kept, to look around in:",
            f"  export OUTLAST_CONFIG={config} OUTLAST_STATE_DIR={state}",
            f"  outlast show {SESSION}",
            f"  outlast tail {SESSION}",
            f"  cat {effects}",
        )
    else:
        screen.plain('Now with a real agent: outlast run -a codex "…"')
