"""`outlast demo`: the promise, kept before your eyes."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("demo")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Play in this new folder and leave it, to look at with `outlast show`.",
)
def demo_command(keep: Path | None) -> int:
    """Kill an agent and its runtime in mid turn, and watch the session come back.

    A bundled agent, a throw-away folder, real processes and real SIGKILLs. At the end the effects are
    counted: none is lost, none is doubled; exits 1 if a count is wrong.
    """
    from outlast.demo import main

    return main(keep)
