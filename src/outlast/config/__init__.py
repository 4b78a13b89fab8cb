"""Configuration: which store, which agents, and what a folder's own file may say.

`load_config` merges, in rising order, the user's `config.toml`, the project's `outlast.toml`, the
`OUTLAST_*` environment and the command line's flags. See docs/configuration.md.
"""

from outlast.config.load import Config, Flags, load_config
from outlast.config.settings import AgentSettings
from outlast.config.trust import Trust, TrustState

__all__ = ["AgentSettings", "Config", "Flags", "Trust", "TrustState", "load_config"]
