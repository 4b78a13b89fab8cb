"""Advice that several commands give, in words that also help where outlast's pages are not at hand."""

from __future__ import annotations

from collections.abc import Mapping

from outlast.agents.installing import how_to_install


def how_to_have_an_agent(environ: Mapping[str, str]) -> str:
    """What to do where no agent is configured or installed."""
    from outlast.config.files import user_path
    from outlast.config.load import home_of

    file = user_path(environ, home_of(environ)) or "the file that OUTLAST_CONFIG names"
    example = '[agents.mine] with kind = "command" and command = ["python3", "/path/to/agent.py"]'
    return f"{how_to_install('codex', 'claude')}; or describe an agent in {file}: {example}"
