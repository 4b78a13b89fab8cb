"""Agents for tests and demonstrations: small programs that use the standard library alone.

`scripted` does what the markers in its prompt say, well or badly; `echo` is the example of docs/agents.md.
`talk` runs one turn of a `Command` agent on plain pipes.
"""

from __future__ import annotations

import sys
from pathlib import Path

_FOLDER = Path(__file__).parent

SCRIPTED = _FOLDER / "scripted.py"
ECHO = _FOLDER / "echo.py"


def command(program: Path, *arguments: str) -> tuple[str, ...]:
    """The command line that runs one of them: this interpreter, isolated, without site packages."""
    return (sys.executable, "-I", "-S", str(program), *arguments)
