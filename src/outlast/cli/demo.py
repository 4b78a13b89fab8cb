"""`outlast demo`: the promise, kept before your eyes."""

from __future__ import annotations

import click


@click.command("demo")
def demo_command() -> int:
    """Kill an agent and its runtime in mid turn, and watch the session come back.

    A bundled agent, a throw-away folder, real processes and real SIGKILLs. At the end the effects are
    counted: none is lost, none is doubled; exits 1 if a count is wrong.
    """
    from outlast.demo import main

    return main()
