"""Advice that several commands give, in words that also help where outlast's pages are not at hand."""

from __future__ import annotations

from collections.abc import Mapping


def how_to_have_an_agent(environ: Mapping[str, str]) -> str:
    """What to do where no agent is configured or installed."""
    from outlast.config.files import user_path
    from outlast.config.load import home_of

    file = user_path(environ, home_of(environ)) or "the file that OUTLAST_CONFIG names"
    example = '[agents.mine] with kind = "command" and command = ["python3", "/path/to/agent.py"]'
    checkout = "run `make agents` or `pip install '.[all]'` in outlast's checkout"
    install = f"put `codex` or `claude` on PATH, or {checkout}"
    return f"{install}; or describe an agent in {file}: {example}"
