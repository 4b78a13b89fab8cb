"""The Codex adapter: configuration, launch, and the fold of `codex app-server`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from outlast.agents.codex import keeping
from outlast.agents.codex.binary import find_codex, version_of
from outlast.agents.codex.fold import CodexFold
from outlast.agents.codex.requests import Approval, Sandbox, ThreadSettings
from outlast.agents.codex.rollout import codex_home, find_rollout, read_rollout, sessions_home, taken_back
from outlast.agents.contract import Capabilities, FoldContext, LaunchContext, LaunchSpec
from outlast.agents.environment import agent_environment, name_home
from outlast.agents.mcp import McpServer, check_mcp_servers
from outlast.agents.provider_state import StateFile, StatePlace, StateSummary
from outlast.agents.retry import RETRY_ATTEMPTS
from outlast.agents.settings import check_settings
from outlast.agents.transcript import SentPrompt, Transcript
from outlast.errors import AgentError

ADAPTER_VERSION = "1"
_OWN_NAMES = ("CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY")
_PROMPT_CHARACTERS = 1 << 20
"""It refuses more, and says that number (measured with 0.163)."""


@dataclass(frozen=True, slots=True)
class Codex:
    """OpenAI's Codex through `codex app-server`.

    `model` None is the model of the user's codex configuration. `sandbox` and `approval` are sent on every
    start and resume, whatever the user's configuration says. `binary` names the program (default: `codex`
    on PATH, else the installed wheel). `env` names variables that are let through beside the safe list and
    codex's own. `mcp_servers` are MCP servers by name, in the words of codex's own configuration; they are
    sent on every start and resume and stand beside the user's own. Times are seconds; None is no limit.
    Raises ConfigError for a time, a word or a server that means nothing."""

    model: str | None = None
    sandbox: Sandbox = "workspace-write"
    approval: Approval = "on-request"
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
        check_settings(self)
        check_mcp_servers(self.mcp_servers)

    @property
    def kind(self) -> str:
        """The agent kind of the manifest."""
        return "codex"

    @property
    def adapter(self) -> str:
        """Name and version of the adapter."""
        return f"codex/{ADAPTER_VERSION}"

    @property
    def capabilities(self) -> Capabilities:
        """Prompts carry a key that codex stores and gives back; one process serves many turns and takes
        inputs while one runs."""
        return Capabilities(
            resume=True,
            steer=True,
            message_key=True,
            images=True,
            many_turns=True,
            landing_precedes_model_call=True,
            prompt_characters=_PROMPT_CHARACTERS,
        )

    def launch(self, context: LaunchContext) -> LaunchSpec:
        """The command to run. Raises AgentError when the program or CODEX_HOME is not there."""
        env = agent_environment(context.environ, (*_OWN_NAMES, *self.env))
        name_home(env, "CODEX_HOME", codex_home(env))
        program = find_codex(self.binary, context.environ).absolute()
        return LaunchSpec(argv=(str(program), "app-server"), env=env, cwd=context.workspace)

    def fold(self, context: FoldContext, state: bytes | None = None) -> CodexFold:
        """The fold of one life of the process, from its beginning or from a dumped state."""
        settings = ThreadSettings(
            context.workspace, self.sandbox, self.approval, self.model, self.mcp_servers
        )
        return CodexFold(context, settings, ADAPTER_VERSION, state)

    def read_transcript(self, provider_session: str, environ: Mapping[str, str]) -> Transcript | None:
        """The thread's rollout, None where there is none or it can't be read."""
        home = codex_home(agent_environment(environ, (*_OWN_NAMES, *self.env)))
        try:
            path = find_rollout(home, provider_session)
            if path is None or keeping.is_indexed_elsewhere(home, provider_session):
                return None  # What codex has in another file, this one can't prove that it lacks.
            return read_rollout(path, provider_session)
        except OSError:
            return None

    def holds_prompt(
        self, prompt: SentPrompt, provider_session: str, workspace: str, environ: Mapping[str, str]
    ) -> bool | None:
        """Whether the thread's rollout holds the prompt, and codex goes on from it."""
        found = self.read_transcript(provider_session, environ)
        return None if found is None else found.holds(prompt.request_id)

    def state_home(self, environ: Mapping[str, str]) -> Path:
        """Codex's home, through a link to where its sessions really are."""
        return sessions_home(codex_home(environ))

    def find_state(self, place: StatePlace) -> StateFile | None:
        """The thread's rollout."""
        return keeping.find_state(place)

    def kept_elsewhere(self, place: StatePlace, said: str | None = None) -> str:
        """Why codex's rollout of the thread is not the one in its home."""
        return keeping.kept_elsewhere(place, said)

    def state_path(self, place: StatePlace, name: str) -> Path:
        """Where a rollout of this name belongs."""
        return keeping.state_path(place, name)

    def state_damage(self, path: Path, provider_session: str) -> str:
        """What is wrong with a rollout."""
        return keeping.state_damage(path, provider_session)

    def taken_back(self, path: Path, since: int) -> str:
        """What a rollout says of turns that were taken back."""
        return taken_back(path, since)

    def summary(self, path: Path, provider_session: str) -> StateSummary:
        """What a rollout tells of its thread."""
        return keeping.summary(path)

    def versions(self) -> Mapping[str, str]:
        """Of the program, as far as a file beside it tells, and of the adapter."""

        try:
            program = version_of(find_codex(self.binary, os.environ))
        except AgentError:
            program = "missing"
        return {"codex": program, "adapter": ADAPTER_VERSION}
