"""Anthropic's Claude Code: one process with stream-json in both directions, folded from its frames.

`agent` is the configuration and the launch, `fold` the pure fold; `requests` is all that we write, `frames`
all that we read, `messages`, `gates` and `failures` translate, `turn` says how a turn ends, `transcript`
looks at what the program keeps on disk. What was measured of the program is in docs/agents.md."""

from outlast.agents.claude.agent import Claude

__all__ = ["Claude"]
