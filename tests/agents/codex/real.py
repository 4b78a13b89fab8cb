"""One user's outlast with the real codex: a throw-away home, a dummy key, a scripted model on loopback."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from outlast.agents.codex.binary import find_codex
from outlast.records.types import AgentSessionChanged
from outlast.testing.scripted_model import (
    Conversation,
    ModelRequest,
    Reply,
    ScriptedModel,
    ToolCall,
    reply_to_markers,
)
from tests.support.place import Place
from tests.support.processes import Child, until

YIELD_MS = 30_000
"""How long codex lets a command run before it tells the model that it is still running: longer than a test."""

AGENTS = """
[agents.codex]
env = ["MOCK_KEY"]
sandbox = "danger-full-access"
approval = "never"

[agents.careful]
kind = "codex"
env = ["MOCK_KEY"]
sandbox = "read-only"
approval = "on-request"

[agents.usual]
kind = "codex"
env = ["MOCK_KEY"]
"""

CODEX = """
model = "mock-1"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[analytics]
enabled = false

[model_providers.mock]
name = "mock"
base_url = "{base_url}"
wire_api = "responses"
env_key = "MOCK_KEY"
request_max_retries = 0
stream_max_retries = 0
"""

NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: what does not go to loopback goes nowhere."""

WAIT = "[[tool:echo begun >> begun; until test -e go; do sleep 0.05; done; echo ended >> ended]]"
"""A command that begins, and goes on once the test lets it."""
TICK = "[[tool:while :; do echo tick >> ticks; sleep 0.05; done]]"
"""A command that goes on writing until it is stopped."""


def script(conversation: Conversation) -> Reply:
    """The markers, and `escalate CMD`: a command that asks to run outside the sandbox."""
    text = conversation.last_user_text
    if text.startswith("escalate ") and not conversation.results:
        command = text.removeprefix("escalate ")
        arguments = {"cmd": command, "sandbox_permissions": "require_escalated", "justification": "it must"}
        reply = Reply(calls=(ToolCall("exec_command", arguments),))
    else:
        reply = reply_to_markers(conversation)
    patient = tuple(replace(c, arguments={**c.arguments, "yield_time_ms": YIELD_MS}) for c in reply.calls)
    return replace(reply, calls=patient)


class TurnContext(msgspec.Struct, frozen=True):
    """What codex itself writes down of the limits that a turn ran under."""

    cwd: str
    approval_policy: str
    sandbox_policy: dict[str, object]


class CodexPlace(Place):
    """A place whose agents are codex: `codex` may do all, `careful` asks, `usual` is as a new user has it."""

    def __init__(self, root: Path, model: ScriptedModel) -> None:
        super().__init__(root)
        self.model = model
        self.home = root / "codex"
        self.home.mkdir()
        (self.home / "config.toml").write_text(CODEX.format(base_url=model.base_url), "utf-8")
        with self.config.open("a", encoding="utf-8") as config:
            config.write(AGENTS)
        self.variables |= {
            "CODEX_HOME": str(self.home),
            "MOCK_KEY": "dummy",
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1",
        }
        self._program = str(find_codex(None, os.environ).resolve())

    # --- processes -----------------------------------------------------------------------------

    def run(self, prompt: str, *, key: str = "one", agent: str = "codex", faults: str | None = None) -> Child:
        """`outlast run` in the session `job`."""
        return self.start("run", "-a", agent, "--session", "job", "--key", key, prompt, faults=faults)

    @property
    def codex(self) -> int | None:
        """The pid of the living codex."""
        return next((pid for pid in self.leftovers if _program(pid) == self._program), None)

    def kill_codex(self) -> None:
        """kill -9 of codex and all that it has started; its shim and guard live on."""
        codex = until(lambda: self.codex, "codex lives")
        assert codex is not None
        tree = [codex, *_descendants(codex)]
        for pid in tree:
            _kill(pid)
        until(lambda: not set(tree) & set(self.leftovers), "codex is dead")

    def kill_shim(self) -> None:
        """kill -9 of codex's shim alone: its parent."""
        codex = until(lambda: self.codex, "codex lives")
        assert codex is not None
        _kill(_parent(codex))

    def kill_all(self) -> None:
        """kill -9 of whatever lives: codex, what it started, shim, guard, owner."""
        for pid in self.leftovers:
            _kill(pid)
        until(lambda: not self.leftovers, "all are dead")

    # --- what is seen --------------------------------------------------------------------------

    def lines(self, name: str) -> int:
        """Lines of a file of the workspace: how often a command has done something."""
        path = self.file(name)
        return len(path.read_text("utf-8").splitlines()) if path.exists() else 0

    @property
    def threads(self) -> list[str]:
        """The codex threads that the session has had, in order."""
        known = [body.provider_session for body in self.journal("job").bodies(AgentSessionChanged)]
        return list(dict.fromkeys(known))

    def assert_one_thread(self) -> None:
        """One thread for the session's whole life, in the journal and in codex's own home."""
        assert len(self.threads) == 1
        assert [self.threads[0] in path.name for path in self.rollouts] == [True]

    @property
    def rollouts(self) -> list[Path]:
        """Codex's own transcripts."""
        return sorted((self.home / "sessions").rglob("*.jsonl"))

    @property
    def limits(self) -> list[TurnContext]:
        """The limits of each turn, in codex's own words."""
        entries = [json.loads(line) for path in self.rollouts for line in path.read_bytes().splitlines()]
        contexts = [entry["payload"] for entry in entries if entry["type"] == "turn_context"]
        return [msgspec.convert(context, TurnContext) for context in contexts]

    def assert_model_took_all(self) -> None:
        """The strict model refused no history: every call had its result."""
        assert [r.refused for r in self.model.requests] == [None] * len(self.model.requests)

    def until_model_is_asked(self, text: str) -> ModelRequest:
        """The first request whose last words are `text`."""
        return self.model.wait_for(lambda request: text in request.items[-1].text)


def _program(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])


def _descendants(pid: int) -> list[int]:
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [found for child in children for found in (child, *_descendants(child))]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@contextmanager
def codex_place(root: Path) -> Iterator[CodexPlace]:
    """A place that leaves no process behind, and fails the test that would."""
    with ScriptedModel(script) as model:
        place = CodexPlace(root, model)
        try:
            yield place
            place.assert_nothing_left()
            place.assert_model_took_all()
        finally:
            place.end()
