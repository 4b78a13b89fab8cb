"""`Command`: any program as an agent, one process a turn, JSON lines on its stdin and stdout.

The protocol is described in docs/agents.md; `testing/agents/echo.py` is a whole agent in twenty lines.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from outlast.agents.command_fold import CommandFold
from outlast.agents.contract import Capabilities, Fold, FoldContext, LaunchContext, LaunchSpec
from outlast.agents.environment import agent_environment, check_names
from outlast.agents.retry import RETRY_ATTEMPTS
from outlast.agents.settings import check_settings
from outlast.errors import AgentError, ConfigError

ADAPTER = "command/1"
LINE_LIMIT = 4 * 1024 * 1024
INPUT_LIMIT = 64 * 1024 * 1024

_WORDS: Mapping[str, tuple[str, ...]] = {"stdin": ("close", "open")}


@dataclass(frozen=True)
class Command:
    """Configuration of one command agent. Times are in seconds, None means never.

    Raises ConfigError for a command that is empty or no list of strings, for names in `env` that may not
    reach an agent, and for a time or a word that means nothing.
    """

    command: tuple[str, ...] | list[str]
    """Program and arguments, never a shell string. A name without a slash is looked up on PATH, a
    relative path in the session's workspace."""
    _: KW_ONLY
    env: tuple[str, ...] | list[str] = ()
    """Names of variables that are let through to the agent, beside the safe list."""
    model: str | None = None
    """For the manifest; the program is not told."""
    on_interrupt: Literal["skip", "continue", "retry", "hold", "ask"] = "skip"
    after_failure: Literal["continue", "hold", "withdraw"] = "continue"
    on_lost: Literal["ask", "refuse", "fresh", "reseed"] = "ask"
    retry_attempts: int = RETRY_ATTEMPTS
    """The most retries in a row of a turn that failed and can be taken up again; 0: none."""
    idle_timeout: float | None = 600.0
    """Counts only while no tool call and no gate is open."""
    total_timeout: float | None = None
    stdin: Literal["close", "open"] = "close"
    """`close`: stdin ends after the prompt. `open`: it stays open, so that gates can be answered."""
    require_nonce: bool = False
    """`session`, `gate`, `done` and `error` count only with the prompt's nonce."""
    idle_park: float | None = 900.0
    orphan_grace: float | None = 600.0
    line_limit: int = LINE_LIMIT
    """Bytes of one line of output; a longer one is kept as its beginning and its length."""

    def __post_init__(self) -> None:
        for name in ("command", "env"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(word, str) for word in value):
                raise ConfigError(f"{name} of a command agent must be a list of strings, not {value!r}")
            object.__setattr__(self, name, tuple(value))
        if not self.command or not self.command[0]:
            raise ConfigError("a command agent needs a command", hint='for example ["python3", "agent.py"]')
        if any("\0" in word for word in self.command):
            raise ConfigError("the command holds a NUL character, which no program can be given")
        check_names(self.env)
        check_settings(self, _WORDS)

    @property
    def kind(self) -> str:
        return "command"

    @property
    def adapter(self) -> str:
        return ADAPTER

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(resume=True)

    def launch(self, context: LaunchContext) -> LaunchSpec:
        """Raises AgentError when the workspace or the program is not there."""
        if not Path(context.workspace).is_dir():
            raise AgentError(
                f"the workspace {context.workspace} is not there or is no folder",
                hint="put it back, or start a session in another folder",
            )
        env = agent_environment(context.environ, self.env)
        program = find_program(self.command[0], path=env.get("PATH", os.defpath), folder=context.workspace)
        return LaunchSpec((program, *self.command[1:]), env, context.workspace, INPUT_LIMIT)

    def fold(self, context: FoldContext, state: bytes | None = None) -> Fold:
        """Raises InvalidRecordError when `state` is no dump of this adapter, and AgentError when a nonce is
        required and the context has no secret to make one from."""
        if self.require_nonce and not context.secret:
            raise AgentError("a required nonce needs a secret that no tool can guess, and there is none")
        return CommandFold(context, stdin=self.stdin, require_nonce=self.require_nonce, state=state)

    def versions(self) -> Mapping[str, str]:
        return {"adapter": ADAPTER}


def find_program(name: str, *, path: str, folder: str) -> str:
    """The absolute path of a program: by `path` when the name has no slash, else relative to `folder`.

    Relative folders on `path` are not searched: a program must not be chosen by where one happens to be.
    Raises AgentError when it is not there or cannot be executed.
    """
    if "/" in name:
        found = Path(folder, name)
        if not found.is_file():
            raise AgentError(f"the agent's program {found} is not there", hint="check `command` of the agent")
        if not os.access(found, os.X_OK):
            raise AgentError(f"the agent's program {found} is not executable", hint=f"chmod +x {found}")
        return str(found)
    for entry in filter(os.path.isabs, path.split(os.pathsep)):
        found = Path(entry, name)
        if found.is_file() and os.access(found, os.X_OK):
            return str(found)
    raise AgentError(
        f"the agent's program {name} is not on PATH", hint="install it, or give its whole path in `command`"
    )
