"""The Claude adapter: configuration, launch, and the fold of Claude Code's stream-json."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from outlast.agents.claude import keeping
from outlast.agents.claude.binary import find_claude, version_of
from outlast.agents.claude.fold import ClaudeFold
from outlast.agents.claude.requests import prompt_key
from outlast.agents.claude.servers import as_argument, check_servers
from outlast.agents.claude.transcript import claude_home, find_transcript, unmentioned
from outlast.agents.contract import Capabilities, FoldContext, LaunchContext, LaunchSpec
from outlast.agents.environment import agent_environment, name_home
from outlast.agents.mcp import McpServer
from outlast.agents.provider_state import StateFile, StatePlace, StateSummary
from outlast.agents.retry import RETRY_ATTEMPTS
from outlast.agents.settings import check_settings
from outlast.agents.transcript import SentPrompt
from outlast.errors import AgentError

ADAPTER_VERSION = "1"
PermissionMode = Literal["acceptEdits", "auto", "bypassPermissions", "dontAsk", "manual", "plan"]
_MODES = ("acceptEdits", "auto", "bypassPermissions", "dontAsk", "manual", "plan")
_OWN_NAMES = (
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_MAX_RETRIES",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_MODEL",
    "DISABLE_AUTOUPDATER",
    "DISABLE_TELEMETRY",
)
_PROTOCOL = (
    "--print",
    "--verbose",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--include-partial-messages",
    "--replay-user-messages",
    "--session-mirror",
    "--permission-prompt-tool=stdio",
)


@dataclass(frozen=True, slots=True)
class Claude:
    """Anthropic's Claude Code, one process for many turns.

    `model` None is the model of the user's own settings, and `permission_mode` None their mode: settings,
    permissions, hooks and MCP servers of the user and of the project are in force in every life of the
    process. `binary` names the program (default: `claude` on PATH, else the one in the installed wheel).
    `env` names variables that are let through beside the safe list and the program's own. `mcp_servers` are
    MCP servers by name, in Claude Code's own words; every life of the process has them, beside the user's
    own. Times are seconds; None is no limit. Raises ConfigError for a time, a word or a server that means
    nothing."""

    model: str | None = None
    permission_mode: PermissionMode | None = None
    binary: str | None = None
    env: tuple[str, ...] = ()
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict)
    idle_timeout: float | None = 600.0
    total_timeout: float | None = None
    on_interrupt: Literal["skip", "continue", "retry", "hold", "ask"] = "skip"
    after_failure: Literal["continue", "hold", "withdraw"] = "continue"
    on_lost: Literal["ask", "refuse", "fresh", "reseed"] = "ask"
    retry_attempts: int = RETRY_ATTEMPTS
    idle_park: float | None = 900.0
    orphan_grace: float | None = 600.0
    line_limit: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        modes = {} if self.permission_mode is None else {"permission_mode": _MODES}
        check_settings(self, modes)
        check_servers(self.mcp_servers)

    @property
    def kind(self) -> str:
        """The agent kind of the manifest."""
        return "claude"

    @property
    def adapter(self) -> str:
        """Name and version of the adapter."""
        return f"claude/{ADAPTER_VERSION}"

    @property
    def capabilities(self) -> Capabilities:
        """We choose the session's id; messages carry a key that Claude Code takes once; one process serves
        many turns and takes inputs while one runs."""
        return Capabilities(
            resume=True, steer=True, choose_id=True, message_key=True, images=True, many_turns=True
        )

    def launch(self, context: LaunchContext) -> LaunchSpec:
        """The command to run. Raises AgentError when the program or CLAUDE_CONFIG_DIR is not there."""
        env = self._environment(context.environ)
        name_home(env, "CLAUDE_CONFIG_DIR", claude_home(env))
        argv = [str(find_claude(self.binary, context.environ).absolute()), *_PROTOCOL]
        if self.model is not None:
            argv.append(f"--model={self.model}")
        if self.permission_mode is not None:
            argv.append(f"--permission-mode={self.permission_mode}")
        if self.mcp_servers:
            argv.append(f"--mcp-config={as_argument(self.mcp_servers)}")
        if context.provider_session is not None:
            # An id with a transcript can't be given to a new session, and one without any not be resumed:
            # that is said then, and no empty conversation is begun under the id of one that is gone.
            stored = find_transcript(claude_home(env), context.workspace, context.provider_session)
            resumes = context.confirmed or context.given or stored is not None
            argv.append(f"--{'resume' if resumes else 'session-id'}={context.provider_session}")
        return LaunchSpec(argv=tuple(argv), env=env, cwd=context.workspace)

    def fold(self, context: FoldContext, state: bytes | None = None) -> ClaudeFold:
        """The fold of one life of the process, from its beginning or from a dumped state."""
        return ClaudeFold(context, state)

    def unmentioned_calls(
        self, calls: Sequence[str], provider_session: str, workspace: str, environ: Mapping[str, str]
    ) -> frozenset[str]:
        """Of these calls those that the session's transcript does not mention: no model is told of them."""
        path = find_transcript(claude_home(self._environment(environ)), workspace, provider_session)
        return frozenset(calls) if path is None else unmentioned(path, calls)

    def holds_prompt(
        self, prompt: SentPrompt, provider_session: str, workspace: str, environ: Mapping[str, str]
    ) -> bool | None:
        """Whether the session's transcript holds the prompt, by the uuid of any attempt."""
        path = find_transcript(claude_home(self._environment(environ)), workspace, provider_session)
        if path is None:
            return None
        keys = [
            prompt_key(provider_session, prompt.request_id, attempt)
            for attempt in range(1, prompt.attempts + 1)
        ]
        return len(unmentioned(path, keys)) < len(keys)

    def state_home(self, environ: Mapping[str, str]) -> Path:
        """Claude Code's home."""
        return claude_home(environ)

    def find_state(self, place: StatePlace) -> StateFile | None:
        """The session's transcript."""
        return keeping.find_state(place)

    def named_writers(self, place: StatePlace) -> list[int]:
        """Those that Claude Code names in its own folder."""
        return keeping.named_writers(place)

    def state_path(self, place: StatePlace, name: str) -> Path:
        """Where a transcript of this name belongs."""
        return keeping.state_path(place, name)

    def state_damage(self, path: Path, provider_session: str) -> str:
        """What is wrong with a transcript."""
        return keeping.state_damage(path, provider_session)

    def summary(self, path: Path, provider_session: str) -> StateSummary:
        """What a transcript tells of its session."""
        return keeping.summary(path)

    def versions(self) -> Mapping[str, str]:
        """Of the program, as far as a file beside it tells, and of the adapter."""
        try:
            program = version_of(find_claude(self.binary, os.environ))
        except AgentError:
            program = "missing"
        return {"claude": program, "adapter": ADAPTER_VERSION}

    def _environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        return agent_environment(environ, (*_OWN_NAMES, *self.env))
