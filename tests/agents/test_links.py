"""The programs that `make agents` puts beside outlast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outlast.agents.claude.binary import find_claude, version_of
from outlast.agents.codex.binary import find_codex
from outlast.agents.codex.binary import version_of as version_of_codex

ROOT = Path(__file__).parents[2]


@pytest.mark.real_agent
def test_codex_and_claude_stand_by_their_names_in_an_environment_with_agents(tmp_path: Path) -> None:
    """A wheel hides its program among its modules: the pages say `claude -p …`, and no shell found it."""
    for _ in range(2):  # also where they are there already
        subprocess.run([sys.executable, ROOT / "scripts/link_agents.py", tmp_path], check=True, timeout=60)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    for name, version in (
        ("codex", version_of_codex(find_codex(None, environ))),
        ("claude", version_of(find_claude(None, environ))),
    ):
        said = subprocess.run(
            [tmp_path / name, "--version"],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert version in said.stdout
