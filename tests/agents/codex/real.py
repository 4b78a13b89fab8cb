"""One user's outlast with the real codex: a throw-away home, a dummy key, a scripted model on loopback."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
from tests.agents.codex.terminal import Terminal, at_terminal
from tests.support.place import Place
from tests.support.processes import PATIENCE, Child, Finished, kill, until

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

YIELD_MS = 30_000
"""How long codex lets a command run before it tells the model that it still runs: longer than any here."""

AGENTS = """
[agents.codex]
sandbox = "danger-full-access"
approval = "never"

[agents.careful]
kind = "codex"
sandbox = "read-only"
approval = "on-request"
"""

CODEX = """
model = "mock-1"
model_provider = "mock"
approval_policy = "{approval}"
sandbox_mode = "{sandbox}"

[analytics]
enabled = false

[model_providers.mock]
name = "mock"
base_url = "{base_url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 0
stream_max_retries = 0
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


class TurnContext(msgspec.Struct, frozen=True):
    """The limits that a turn ran under, as codex itself writes them down."""

    cwd: str
    approval_policy: str
    sandbox_policy: dict[str, object]


class Model(ScriptedModel):
    """Does what markers say. `escalate CMD` is a command that asks to run outside the sandbox, and a text
    with THINK in it is answered once the test lets the model go on."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self._thinks = threading.Event()

    def go_on(self) -> None:
        self._thinks.set()

    def close(self) -> None:
        self.go_on()
        super().close()

    def _reply(self, conversation: Conversation) -> Reply:
        text = conversation.last_user_text
        if THINK in text:
            self._thinks.wait(PATIENCE)
        if text.startswith("escalate ") and not conversation.results:
            arguments = {
                "cmd": text.removeprefix("escalate "),
                "sandbox_permissions": "require_escalated",
                "justification": "it has to write",
            }
            reply = Reply(calls=(ToolCall("exec_command", arguments),))
        else:
            reply = reply_to_markers(conversation)
        calls = (
            replace(call, arguments={**call.arguments, "yield_time_ms": YIELD_MS}) for call in reply.calls
        )
        return replace(reply, calls=tuple(calls))


class CodexPlace(Place):
    """A place whose agents are codex: `codex` may do all, `careful` may only read and asks for the rest."""

    def __init__(self, root: Path, model: Model) -> None:
        super().__init__(root)
        self.model = model
        self.home = root / "codex"
        self.home.mkdir()
        self.write_codex_config(approval="on-request", sandbox="workspace-write")
        with self.config.open("a", encoding="utf-8") as config:
            config.write(AGENTS)
        self.variables |= {
            "CODEX_HOME": str(self.home),
            "OPENAI_API_KEY": "dummy",
            "HTTPS_PROXY": NOWHERE,
            "HTTP_PROXY": NOWHERE,
            "NO_PROXY": "127.0.0.1",
        }
        self.program = str(find_codex(None, os.environ).resolve())

    def write_codex_config(self, *, approval: str, sandbox: str) -> None:
        """Codex's own configuration."""
        text = CODEX.format(base_url=self.model.base_url, approval=approval, sandbox=sandbox)
        (self.home / "config.toml").write_text(text, "utf-8")

    # --- processes -----------------------------------------------------------------------------

    def run(self, prompt: str, *, key: str = "one", agent: str = "codex", faults: str | None = None) -> Child:
        """`outlast run` in the session `job`."""
        return self.start("run", "-a", agent, "--session", "job", "--key", key, prompt, faults=faults)

    def start_at(self, folder: Path, *arguments: str) -> Child:
        """`outlast ARGUMENTS` in another folder than the workspace."""
        argv = (sys.executable, "-m", "outlast", *arguments)
        child = Child.start(
            argv, env=self.environ(), cwd=folder, output=self.root / f"at-{len(self.children)}"
        )
        self.children.append(child)
        return child

    def resume(self) -> Finished:
        return self.call("resume", "job", "--json")

    def at_terminal(self, *arguments: str) -> AbstractContextManager[Terminal]:
        """`outlast ARGUMENTS` at a terminal, in the workspace."""
        argv = (sys.executable, "-m", "outlast", *arguments)
        return at_terminal(argv, env={**self.environ(), "TERM": "xterm"}, cwd=self.workspace)

    @property
    def codex(self) -> int:
        """The pid of codex, once it lives."""

        def look() -> int | None:
            return next((pid for pid in self.leftovers if _program(pid) == self.program), None)

        found = until(look, "codex lives")
        assert found is not None
        return found

    @property
    def commands(self) -> list[int]:
        """What codex has started and still lives."""
        return _descendants(self.codex)

    def kill_codex(self) -> None:
        """kill -9 of codex and all that it has started; its shim and guard live on."""
        codex = self.codex
        tree = {codex, *_descendants(codex)}
        for pid in tree:
            kill(pid)
        until(lambda: not tree & set(self.leftovers), "codex is dead")

    def kill_shim(self) -> None:
        """kill -9 of codex's shim alone."""
        kill(_parent(self.codex))

    def kill_all(self) -> None:
        """kill -9 of whatever lives: codex, what it started, its shim and guard, their owner."""
        for pid in self.leftovers:
            kill(pid)
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

    def assert_one_thread(self) -> None:
        """One thread for the session's whole life, in the journal and in codex's own home."""
        assert len(self.threads) == 1
        assert [self.threads[0] in path.name for path in self.rollouts] == [True]

    def told(self) -> ModelRequest:
        """What the model was told last."""
        return self.model.requests[-1]

    def until_model_is_asked(self, text: str) -> None:
        """Until the model has been given `text` as the newest words."""
        self.model.wait_for(lambda request: text in request.items[-1].text)

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
def codex_place(root: Path) -> Iterator[CodexPlace]:
    """A place that leaves no process behind, and fails the test that would."""
    model = Model()
    with model:
        place = CodexPlace(root, model)
        try:
            yield place
            place.assert_nothing_left()
            place.assert_model_took_all()
        finally:
            place.end()
