"""link_agents.py DIR: the programs of the agents' wheels as `codex` and `claude` in DIR, whatever is on PATH.

A wheel hides its program among its modules, where no shell finds it.
"""

import sys
from pathlib import Path

from outlast.agents.claude.binary import find_claude
from outlast.agents.codex.binary import find_codex


def link(folder: Path) -> None:
    """Raises AgentError for a wheel that is not installed."""
    for name, program in (("codex", find_codex(None, {})), ("claude", find_claude(None, {}))):
        place = folder / name
        place.unlink(missing_ok=True)
        place.symlink_to(program)


if __name__ == "__main__":
    link(Path(sys.argv[1]))
