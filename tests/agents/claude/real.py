"""One user's outlast with the real Claude Code: a throw-away home, a dummy key, a scripted model."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.agents.codex.terminal import Terminal, at_terminal
from tests.support.place import Place
from tests.support.processes import PATIENCE, Child, Finished, kill, until

from outlast.agents.claude.binary import find_claude
from outlast.records.types import AgentSessionChanged
from outlast.testing.scripted_model import (
    Conversation,
    ModelRequest,
    Reply,
    ScriptedModel,
    reply_to_markers,
)

MODEL = "claude-sonnet-4-5"
AGENTS = f"""
[agents.claude]
model = "{MODEL}"
"""

NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: what does not go to loopback goes nowhere."""

WAIT = "[[tool:echo begun >> begun; until test -e go; do sleep 0.05; done; echo ended >> ended]]"
"""A command that begins, and goes on once the test lets it."""
TICK = "[[tool:while :; do echo tick >> ticks; sleep 0.05; done]]"
"""A command that goes on writing until it is stopped."""
ONCE = "[[tool:echo begun >> begun]]"
THINK = "think about it"
"""The model says nothing to this until the test lets it."""


class Model(ScriptedModel):
    """Does what markers say, and answers a text with THINK in it once the test lets it go on."""

    def __init__(self) -> None:
        super().__init__(self._reply, models=(MODEL,))
        self._thinks = threading.Event()

    def go_on(self) -> None:
        self._thinks.set()

    def close(self) -> None:
        self.go_on()
        super().close()

    def _reply(self, conversation: Conversation) -> Reply:
        if THINK in conversation.last_user_text:
            self._thinks.wait(PATIENCE)
        return reply_to_markers(conversation)


class ClaudePlace(Place):
    """A place whose agent is Claude Code; the user's own settings let it run every command."""

    def __init__(self, root: Path, model: Model) -> None:
        super().__init__(root)
        self.model = model
        self.home = root / "claude"
        self.home.mkdir()
        self.write_settings({"permissions": {"allow": ["Bash"]}})
        with self.config.open("a", encoding="utf-8") as config:
            config.write(AGENTS)
        self.variables |= {
            "CLAUDE_CONFIG_DIR": str(self.home),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "ANTHROPIC_BASE_URL": model.root_url,
            "ANTHROPIC_API_KEY": "sk-ant-dummy",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1",
        }
        self._program = str(find_claude(None, os.environ).resolve())

    def write_settings(self, settings: dict[str, object]) -> None:
        """The user's own settings of Claude Code."""
        (self.home / "settings.json").write_text(json.dumps(settings), "utf-8")

    # --- processes -----------------------------------------------------------------------------

    def run(self, prompt: str, *, key: str = "one", faults: str | None = None) -> Child:
        """`outlast run` in the session `job`."""
        return self.start("run", "-a", "claude", "--session", "job", "--key", key, prompt, faults=faults)

    def resume(self) -> Finished:
        return self.call("resume", "job", "--json")

    def at_terminal(self, *arguments: str) -> AbstractContextManager[Terminal]:
        """`outlast ARGUMENTS` at a terminal, in the workspace."""
        argv = (sys.executable, "-m", "outlast", *arguments)
        return at_terminal(argv, env={**self.environ(), "TERM": "xterm"}, cwd=self.workspace)

    @property
    def claude(self) -> int:
        """The pid of Claude Code, once it lives."""

        def look() -> int | None:
            return next((pid for pid in self.leftovers if _program(pid) == self._program), None)

        found = until(look, "claude lives")
        assert found is not None
        return found

    @property
    def commands(self) -> list[int]:
        """What Claude Code has started and still lives."""
        return _descendants(self.claude)

    def kill_claude(self) -> None:
        """kill -9 of Claude Code and all that it has started; its shim and guard live on."""
        claude = self.claude
        tree = {claude, *_descendants(claude)}
        for pid in tree:
            kill(pid)
        until(lambda: not tree & set(self.leftovers), "claude is dead")

    def kill_claude_alone(self) -> None:
        """kill -9 of the one process. What it has started is in sessions of its own and lives on, for its
        guard to end."""
        claude = self.claude
        kill(claude)
        until(lambda: claude not in self.leftovers, "claude is dead")

    def kill_shim(self) -> None:
        """kill -9 of its shim alone."""
        kill(_parent(self.claude))

    def kill_all(self) -> None:
        """kill -9 of whatever lives: the agent, what it started, its shim and guard, their owner."""
        for pid in self.leftovers:
            kill(pid)
        until(lambda: not self.leftovers, "all are dead")

    # --- what is seen --------------------------------------------------------------------------

    def lines(self, name: str) -> int:
        """Lines of a file of the workspace: how often a command has done something."""
        path = self.file(name)
        return len(path.read_text("utf-8").splitlines()) if path.exists() else 0

    @property
    def sessions(self) -> list[str]:
        """The sessions of Claude Code that the session has had, in order."""
        known = [body.provider_session for body in self.journal("job").bodies(AgentSessionChanged)]
        return list(dict.fromkeys(known))

    @property
    def transcripts(self) -> list[Path]:
        """Claude Code's own, of sessions and not of subagents."""
        return sorted(self.home.glob("projects/*/*.jsonl"))

    def until_stored(self, text: str) -> None:
        """Until the transcript holds `text`."""

        def look() -> bool:
            return any(text.encode() in path.read_bytes() for path in self.transcripts)

        until(look, f"the transcript holds {text!r}")

    def assert_one_session(self) -> None:
        """One session of Claude Code for the session's whole life, in the journal and in its own home."""
        assert len(self.sessions) == 1
        assert [path.stem for path in self.transcripts] == self.sessions

    def told(self) -> ModelRequest:
        """What the model was told last."""
        return self.model.requests[-1]

    def asked(self) -> list[list[str]]:
        """What people had said, in each call of the model."""
        return [[item.text for item in request.of_kind("user")] for request in self.model.requests]

    def until_model_is_asked(self, text: str) -> None:
        """Until the model has been given `text` by a person."""
        self.model.wait_for(lambda request: any(text in item.text for item in request.of_kind("user")))

    def assert_model_took_all(self) -> None:
        """The strict model refused no history: every call had its result."""
        assert [request.refused for request in self.model.requests if request.refused] == []


def _program(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:
        return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])


def _descendants(pid: int) -> list[int]:
    try:
        tasks = [(task / "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    children = [int(child) for found in tasks for child in found]
    return [found for child in children for found in (child, *_descendants(child))]


@contextmanager
def claude_place(root: Path) -> Iterator[ClaudePlace]:
    """A place that leaves no process behind, and fails the test that would."""
    model = Model()
    with model:
        place = ClaudePlace(root, model)
        try:
            yield place
            place.assert_nothing_left()
            place.assert_model_took_all()
        finally:
            place.end()
