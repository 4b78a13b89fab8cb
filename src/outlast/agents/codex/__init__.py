"""OpenAI's Codex: the native `codex app-server` protocol, folded from the frames of both directions.

`agent` is the configuration and the launch, `fold` the pure fold; `requests` is all that we write,
`responses` and `notices` all that we read, `items`, `gates` and `failures` translate. What was measured of
the program is in docs/agents.md."""

from outlast.agents.codex.agent import Codex

__all__ = ["Codex"]
