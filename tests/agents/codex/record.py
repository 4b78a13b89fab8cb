"""Record conversations of the real codex with the scripted model: `python tests/agents/codex/record.py
[NAME …]`.

Needs the extra `outlast[codex]` or `codex` on PATH. Each scenario drives the program through the adapter's
own fold and writes `recorded/NAME.jsonl`, one step a line: `wanted` (what the session wants from here on),
`in`, `out`, `closed`, `eof`, `exit`. Paths, addresses and names of the machine are replaced. Run it again
for a new version of codex and look at the difference: it is what changed in the protocol."""

from __future__ import annotations

import base64
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from outlast.agents.codex import Codex
from outlast.agents.contract import (
    AgentEvent,
    CloseStdin,
    Delta,
    ExitInfo,
    FoldContext,
    GateAnswer,
    GateRequested,
    Landed,
    LaunchContext,
    Prompt,
    SessionObserved,
    ToolCall,
    TurnEnded,
    Wanted,
)
from outlast.records.types import Content
from outlast.testing.scripted_model import Conversation, Reply, ScriptedModel, reply_to_markers
from outlast.testing.scripted_model import ToolCall as ModelCall
from outlast.testing.scripted_model.conversation import Json

RECORDED = Path(__file__).parent / "recorded"
DEADLINE = 30.0
E = TypeVar("E", bound=AgentEvent)

CONFIG = """
model = "mock-1"
model_provider = "mock"
web_search = "disabled"
[features]
default_mode_request_user_input = true
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


def prompt(request_id: str, text: str, attempt: int = 1, *, continues: bool = False) -> Prompt:
    """A prompt as the session would give it."""
    return Prompt(request_id, attempt, request_id, (Content(text=text),), continues)


class Life:
    """One life of codex, driven by the fold; every step is recorded in order."""

    def __init__(self, lab: Lab, agent: Codex, resume: str | None, *, confirmed: bool) -> None:
        self.lab = lab
        self.steps: list[dict[str, object]] = []
        self.events: list[AgentEvent] = []
        self.wanted = Wanted()
        launch = agent.launch(
            LaunchContext("session", "main", str(lab.workspace), lab.environ, resume, confirmed)
        )
        self.fold = agent.fold(FoldContext("session", "main", str(lab.workspace), resume, confirmed))
        self.process = subprocess.Popen(
            launch.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=lab.stderr,
            env=dict(launch.env),
            cwd=launch.cwd,
            start_new_session=True,
        )
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        context = {
            "resume": resume,
            "confirmed": confirmed,
            "sandbox": agent.sandbox,
            "approval": agent.approval,
        }
        self.steps.append({"context": context})
        self.want()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip(b"\n"))
        self.lines.put(None)

    @property
    def thread(self) -> str:
        """The thread that codex works in."""
        return next(event for event in self.events if isinstance(event, SessionObserved)).provider_session

    def want(self, **changes: object) -> None:
        """Change what the session wants, and write what follows from it."""
        fields = {name: getattr(self.wanted, name) for name in Wanted.__dataclass_fields__}
        self.wanted = Wanted(**{**fields, **changes})
        self.steps.append({"wanted": msgspec.to_builtins(self.wanted)})
        self._write()

    def _write(self) -> None:
        assert self.process.stdin is not None
        while (line := self.fold.next(self.wanted)) is not None:
            seq = self.fold.last_input + 1
            if isinstance(line, CloseStdin):
                self._close(seq)
                return
            self.steps.append({"in": line.line.decode()})
            self.process.stdin.write(line.line)
            self.process.stdin.flush()
            self.events += self.fold.apply_in(line.line.removesuffix(b"\n"), seq)

    def _close(self, seq: int) -> None:
        assert self.process.stdin is not None
        self.steps.append({"closed": seq})
        self.process.stdin.close()
        self.events += self.fold.apply_stdin_closed(seq)

    def until(self, kind: type[E], accept: Callable[[E], bool] = lambda _: True) -> E:
        """Go on until such an event comes; an id that is observed is durable at once here."""
        while True:
            new = self.step()
            for event in new:
                if isinstance(event, SessionObserved):
                    self.want(session_durable=True)
            for event in new:
                if isinstance(event, kind) and accept(event):
                    return event

    def step(self) -> list[AgentEvent]:
        """Read one line of codex and write what follows from it."""
        line = self.lines.get(timeout=DEADLINE)
        if line is None:
            raise EOFError("codex ended")
        self.steps.append({"out": line.decode()})
        events = self.fold.apply_out(line)
        self.events += events
        self._write()
        return events

    def turn(self, request_id: str, text: str, attempt: int = 1, *, continues: bool = False) -> TurnEnded:
        """One turn from its prompt to its end."""
        self.want(prompt=prompt(request_id, text, attempt, continues=continues))
        ended = self.until(TurnEnded)
        self.want(prompt=None, cancel=False, answers=())
        return ended

    def answer(self, gate: GateRequested, choice: str) -> None:
        """Answer a gate."""
        self.want(answers=(GateAnswer(gate.gate, gate.payload, choice),))

    def end(self) -> None:
        """Close codex's stdin and read it to its end."""
        self._close(self.fold.last_input + 1)
        self._drain()

    def kill(self) -> None:
        """Kill codex and what it started, and read what it had still written."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self._drain()

    def _drain(self) -> None:
        while (line := self.lines.get(timeout=DEADLINE)) is not None:
            self.steps.append({"out": line.decode()})
            self.events += self.fold.apply_out(line)
        self.steps.append({"eof": True})
        self.events += self.fold.apply_eof()
        status = self.process.wait(DEADLINE)
        info = ExitInfo(status if status >= 0 else None, -status if status < 0 else None)
        self.steps.append({"exit": msgspec.to_builtins(info)})
        self.events += self.fold.apply_exit(info)


class Lab:
    """A home, a workspace and a model for one scenario."""

    def __init__(self, name: str, root: Path, model: ScriptedModel) -> None:
        self.name, self.root, self.model = name, root, model
        self.workspace = root / "workspace"
        home = root / ".codex"
        self.workspace.mkdir()
        home.mkdir()
        (home / "config.toml").write_text(CONFIG.format(base_url=model.base_url))
        self.stderr = (root / "stderr.log").open("ab")
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "CODEX_HOME": str(home),
            "MOCK_KEY": "dummy",
            "LANG": "C.UTF-8",
        }
        self.lives: list[Life] = []

    def life(
        self,
        resume: str | None = None,
        *,
        confirmed: bool = True,
        agent: Codex = Codex(sandbox="danger-full-access", approval="never", env=("MOCK_KEY",)),  # noqa: B008
    ) -> Life:
        """Start codex."""
        life = Life(self, agent, resume, confirmed=confirmed)
        self.lives.append(life)
        return life

    def save(self) -> None:
        """Write each life's steps with the machine's own names replaced."""
        for number, life in enumerate(self.lives, 1):
            suffix = f"-{number}" if len(self.lives) > 1 else ""
            text = "".join(msgspec.json.encode(step).decode() + "\n" for step in life.steps)
            (RECORDED / f"{self.name}{suffix}.jsonl").write_text(self._scrub(text))

    def _scrub(self, text: str) -> str:
        text = text.replace(str(self.workspace), "/workspace").replace(str(self.root), "/home/user")
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", text)
        text = re.sub(r'(\\"serverName\\":\\")[^"\\]*', r"\1machine", text)
        text = re.sub(
            r'(\\"installationId\\":\\")[^"\\]*', r"\g<1>00000000-0000-0000-0000-000000000000", text
        )
        text = re.sub(r"\([A-Z]\w+ [\d.]+; x86_64\)", "(Linux; x86_64)", text)
        payloads = re.findall(r'"payload":"([^"]+)"', text)
        for payload in payloads:
            decoded = base64.b64decode(payload).decode()
            clean = decoded.replace(str(self.workspace), "/workspace")
            text = text.replace(payload, base64.b64encode(clean.encode()).decode())
        return text


def script(conversation: Conversation) -> Reply:
    """The markers, and a few calls that no marker makes."""
    text, results = conversation.last_user_text, conversation.results
    if results or not text.startswith("call "):
        return reply_to_markers(conversation)
    _, tool, argument = text.split(" ", 2)
    if tool == "escalated":
        arguments = {"cmd": argument, "sandbox_permissions": "require_escalated", "justification": "needs it"}
        return Reply(calls=(ModelCall("exec_command", arguments),))
    if tool == "patch":
        patch = f"*** Begin Patch\n*** Add File: {argument}\n+hello\n*** End Patch"
        return Reply(calls=(ModelCall("exec_command", {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF"}),))
    options: list[Json] = [
        {"label": "red", "description": "warm"},
        {"label": "blue", "description": "cold"},
    ]
    questions: list[Json] = [
        {"id": name, "header": name, "question": f"Which {name}?", "options": options}
        for name in argument.split()
    ]
    return Reply(calls=(ModelCall("request_user_input", {"questions": questions}),))


ASKING = Codex(sandbox="read-only", approval="on-request", env=("MOCK_KEY",))
SCENARIOS: dict[str, Callable[[Lab], None]] = {}


def scenario(run: Callable[[Lab], None]) -> Callable[[Lab], None]:
    """Register a scenario under its name."""
    SCENARIOS[run.__name__.replace("_", "-")] = run
    return run


@scenario
def turns(lab: Lab) -> None:
    life = lab.life()
    life.turn("r1", "hello\r\n ✓ \x00 end ")
    life.turn("r2", "[[tools:2:echo {i} | tee -a out]]")
    life.turn("r1", "hello again", attempt=2)
    life.turn("r3", "ignored", continues=True)
    life.end()


@scenario
def cancelled(lab: Lab) -> None:
    life = lab.life()
    life.want(prompt=prompt("r1", "[[tool:echo begun > begun; sleep 60; echo ended > ended]]"))
    life.until(ToolCall)
    life.want(cancel=True)
    life.until(TurnEnded)
    life.want(prompt=None, cancel=False)
    life.want(prompt=prompt("r2", "[[slow:60]] " + "words " * 40))
    lab.model.wait_for(lambda request: "words" in request.items[-1].text)
    while not life.fold.dump().count(b'"partial":{"'):
        life.step()
    life.want(cancel=True)
    life.until(TurnEnded)
    life.want(prompt=None, cancel=False)
    life.turn("r3", "go on")
    life.end()


@scenario
def steered(lab: Lab) -> None:
    life = lab.life()

    def begin(turn: str, text: str) -> None:
        life.want(prompt=prompt(turn, text), steer=(), cancel=False)
        life.until(Landed, lambda landed: landed.key == turn)

    def steer(key: str) -> None:
        life.want(steer=(prompt(key, f"{key} joins"),))

    begin("r1", "[[tool:sleep 1; echo x]]")
    life.until(ToolCall)
    steer("s1")
    life.until(TurnEnded)
    begin("r2", "[[slow:30]] " + "words " * 40)
    life.until(Delta)
    steer("s2")
    life.until(TurnEnded)
    begin("r3", "[[tool:sleep 30; echo x]]")
    life.until(ToolCall)
    steer("s3")
    life.want(cancel=True)
    life.until(TurnEnded)
    begin("r4", "[[tool:sleep 30; echo x]]")
    life.until(ToolCall)
    steer("s4")
    life.kill()


@scenario
def approvals(lab: Lab) -> None:
    life = lab.life(agent=ASKING)
    for number, (text, choice) in enumerate(
        [
            ("call escalated echo > one", "allow_once"),
            ("call escalated echo > two", "reject_once"),
            ("call escalated echo > three", "allow_everything"),
            ("call patch four", "allow_once"),
            ("call patch five", "reject_once"),
            ("call question colour", "blue"),
        ]
    ):
        life.want(prompt=prompt(f"r{number}", text))
        life.answer(life.until(GateRequested), choice)
        life.until(TurnEnded)
        life.want(prompt=None, answers=())
    life.turn("many", "call question colour size")
    life.want(prompt=prompt("cancelled", "call escalated echo > six"))
    life.until(GateRequested)
    life.want(cancel=True)
    life.until(TurnEnded)
    life.want(prompt=None, cancel=False)
    life.end()


@scenario
def killed(lab: Lab) -> None:
    life = lab.life()
    life.turn("r1", "hello")
    life.want(prompt=prompt("r2", "[[tool:echo begun > begun; sleep 60; echo ended > ended]]"))
    life.until(ToolCall)
    life.kill()
    life = lab.life(life.thread)
    life.until(SessionObserved)
    life.turn("r3", "what happened?")
    life.end()


@scenario
def killed_while_asking(lab: Lab) -> None:
    life = lab.life(agent=ASKING)
    life.want(prompt=prompt("r1", "call escalated echo > one"))
    life.until(GateRequested)
    life.kill()
    life = lab.life(life.thread, agent=ASKING, confirmed=False)
    life.until(SessionObserved)
    life.turn("r2", "what happened?")
    life.end()


@scenario
def failures(lab: Lab) -> None:
    life = lab.life()
    statuses = ("429", "401", "500", "503", "400")
    words = ("context_length_exceeded", "insufficient_quota", "rate_limit_exceeded", "server_is_overloaded")
    for code in statuses + words:
        life.turn(code, f"[[err:{code}]]")
    life.end()


@scenario
def never_stored(lab: Lab) -> None:
    life = lab.life()
    thread = life.until(SessionObserved).provider_session
    life.kill()
    for confirmed in (False, True):
        life = lab.life(thread, confirmed=confirmed)
        while not life.fold.ending:
            life.step()
        life.end()


@scenario
def two_writers(lab: Lab) -> None:
    first = lab.life()
    first.turn("r1", "hello")
    second = lab.life(first.thread)
    while not second.fold.ending:
        second.step()
    second.end()
    first.end()


@contextmanager
def lab_for(name: str) -> Iterator[Lab]:
    """A throw-away place for a scenario; whatever happens, no codex is left running."""
    with tempfile.TemporaryDirectory() as root, ScriptedModel(script) as model:
        lab = Lab(name, Path(root).resolve(), model)
        try:
            yield lab
        finally:
            for life in lab.lives:
                if life.process.poll() is None:
                    os.killpg(life.process.pid, signal.SIGKILL)
                    life.process.wait()
            lab.stderr.close()


def main() -> int:
    """Record the named scenarios, or all."""
    RECORDED.mkdir(exist_ok=True)
    for name in sys.argv[1:] or list(SCENARIOS):
        with lab_for(name) as lab:
            SCENARIOS[name](lab)
            lab.save()
            print(name, [life.fold.last_input for life in lab.lives])
            for request in lab.model.requests:
                if request.refused:
                    raise SystemExit(f"{name}: codex sent a broken history: {request.refused}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
