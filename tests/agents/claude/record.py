"""Record conversations of the real Claude Code with the scripted model: `python tests/agents/claude/record.py
[NAME …]`.

Needs the extra `outlast[claude]` or `claude` on PATH. Each scenario drives the program through the adapter's
own fold and writes `recorded/NAME.jsonl`, one step a line: `wanted` (what the session wants from here on),
`in`, `out`, `closed`, `eof`, `exit`. What the fold does not read of the larger frames is left out: the
program's own instructions are none of ours. Paths and addresses of the machine are replaced. Run it again for
a new version of the program and look at the difference: it is what changed in the protocol."""

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
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from outlast.agents.claude import Claude
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
from outlast.ids import derived_id
from outlast.records.types import Content
from outlast.testing.scripted_model import Conversation, Reply, ScriptedModel, reply_to_markers
from outlast.testing.scripted_model import ToolCall as ModelCall
from outlast.testing.scripted_model.conversation import Json

RECORDED = Path(__file__).parent / "recorded"
DEADLINE = 30.0
WORKS = (ToolCall, Delta)
"""What shows that the model has answered."""
MODEL = "claude-sonnet-4-5"
E = TypeVar("E", bound=AgentEvent)

_KEPT = {
    "init": ("type", "subtype", "session_id", "model", "permissionMode"),
    "entry": ("type", "uuid", "attachment"),
    "attachment": ("type", "source_uuid"),
}


def prompt(request_id: str, text: str, attempt: int = 1, *, continues: bool = False) -> Prompt:
    """A prompt as the session would give it."""
    return Prompt(request_id, attempt, request_id, (Content(text=text),), continues)


class Life:
    """One life of Claude Code, driven by the fold; every step is recorded in order."""

    def __init__(self, lab: Lab, agent: Claude, session: str, *, confirmed: bool) -> None:
        self.lab = lab
        self.steps: list[dict[str, object]] = []
        self.events: list[AgentEvent] = []
        self.wanted = Wanted()
        launch = agent.launch(
            LaunchContext("session", "main", str(lab.workspace), lab.environ, session, confirmed)
        )
        self.fold = agent.fold(FoldContext("session", "main", str(lab.workspace), session, confirmed))
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
        self.steps.append({"context": {"session": session, "confirmed": confirmed}})
        self.want()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip(b"\n"))
        self.lines.put(None)

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
        """Read one line of the program and write what follows from it."""
        line = self.lines.get(timeout=DEADLINE)
        if line is None:
            raise EOFError("claude ended")
        events = self._out(line)
        self._write()
        return events

    def _out(self, line: bytes) -> list[AgentEvent]:
        self.steps.append({"out": line.decode()})
        events = self.fold.apply_out(line)
        self.events += events
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
        """Close the program's stdin and read it to its end."""
        if not self.process.stdin or not self.process.stdin.closed:
            self._close(self.fold.last_input + 1)
        self._drain()

    def kill(self) -> None:
        """Kill the program, and read what it had still written."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self._drain()

    def _drain(self) -> None:
        while (line := self.lines.get(timeout=DEADLINE)) is not None:
            self._out(line)
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
        home = root / ".claude"
        self.workspace.mkdir()
        home.mkdir()
        self.stderr = (root / "stderr.log").open("ab")
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "CLAUDE_CONFIG_DIR": str(home),
            "ANTHROPIC_BASE_URL": model.root_url,
            "ANTHROPIC_API_KEY": "sk-ant-dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1",
            "LANG": "C.UTF-8",
        }
        self.session = derived_id("recorded", name)
        self.lives: list[Life] = []

    def life(self, *, confirmed: bool = False, asks: bool = False) -> Life:
        """Start the program in the scenario's session. `asks`: the user's settings allow nothing."""
        allowed = [] if asks else ["Bash"]
        settings = msgspec.json.encode({"permissions": {"allow": allowed}})
        (self.root / ".claude" / "settings.json").write_bytes(settings)
        life = Life(self, Claude(model=MODEL), self.session, confirmed=confirmed)
        self.lives.append(life)
        return life

    @property
    def transcript(self) -> Path:
        """The session's transcript."""
        (path,) = self.root.rglob(f"projects/*/{self.session}.jsonl")
        return path

    def save(self) -> None:
        """Write each life's steps, less what is the program's own and what is the machine's."""
        for number, life in enumerate(self.lives, 1):
            suffix = f"-{number}" if len(self.lives) > 1 else ""
            text = "".join(msgspec.json.encode(_less(step)).decode() + "\n" for step in life.steps)
            (RECORDED / f"{self.name}{suffix}.jsonl").write_text(self._scrub(text))

    def _scrub(self, text: str) -> str:
        text = text.replace(str(self.workspace), "/workspace").replace(str(self.root), "/home/user")
        plain = re.sub(r"[^a-zA-Z0-9]", "-", str(self.root))
        text = text.replace(plain, "-home-user")
        for payload in re.findall(r'"payload":"([^"]+)"', text):
            decoded = base64.b64decode(payload).decode()
            clean = decoded.replace(str(self.workspace), "/workspace").replace(str(self.root), "/home/user")
            text = text.replace(payload, base64.b64encode(clean.encode()).decode())
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", text)


def _less(step: dict[str, object]) -> dict[str, object]:
    """A step without what the fold does not read of the frames that hold the program's own texts."""
    out = step.get("out")
    if not isinstance(out, str):
        return step
    frame: dict[str, Any] = msgspec.json.decode(out)
    if frame["type"] == "transcript_mirror":
        frame["entries"] = [_entry(entry) for entry in frame["entries"]]
        del frame["filePath"]
    elif frame["type"] == "control_response" and "commands" in frame["response"].get("response", {}):
        frame["response"]["response"] = {}
    elif frame.get("subtype") == "init":
        frame = {name: frame[name] for name in _KEPT["init"]}
    elif frame["type"] == "result":
        frame.pop("subagent_stats", None)
    return {"out": msgspec.json.encode(frame).decode()}


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    kept = {name: entry[name] for name in _KEPT["entry"] if name in entry}
    if "attachment" in kept:
        attachment = kept["attachment"]
        kept["attachment"] = {name: attachment[name] for name in _KEPT["attachment"] if name in attachment}
    return kept


def script(conversation: Conversation) -> Reply:
    """The markers, and a few calls that no marker makes."""
    text, results = conversation.last_user_text, conversation.results
    if results or not text.startswith("call "):
        return reply_to_markers(conversation)
    _, tool, argument = text.split(" ", 2)
    calls: dict[str, ModelCall] = {
        "write": ModelCall("Write", {"file_path": argument, "content": "hello\n"}),
        "background": ModelCall(
            "Bash", {"command": argument, "description": "in the background", "run_in_background": True}
        ),
        "task": ModelCall(
            "Task",
            {
                "description": "inner",
                "prompt": argument,
                "subagent_type": "general-purpose",
                "run_in_background": False,
            },
        ),
    }
    if tool in calls:
        return Reply(calls=(calls[tool],))
    options: list[Json] = [
        {"label": "red", "description": "warm"},
        {"label": "blue", "description": "cold"},
    ]
    questions: list[Json] = [
        {"question": f"Which {name}?", "header": name, "options": options, "multiSelect": name.endswith("s")}
        for name in argument.split()
    ]
    return Reply(calls=(ModelCall("AskUserQuestion", {"questions": questions}),))


SCENARIOS: dict[str, Callable[[Lab], None]] = {}


def scenario(run: Callable[[Lab], None]) -> Callable[[Lab], None]:
    """Register a scenario under its name."""
    SCENARIOS[run.__name__.replace("_", "-")] = run
    return run


@scenario
def turns(lab: Lab) -> None:
    life = lab.life()
    life.turn("r1", "hello\r\n ✓ end ")
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
    life.until(Delta)
    life.want(cancel=True)
    life.until(TurnEnded)
    life.want(prompt=None, cancel=False)
    life.turn("r3", "go on")
    life.end()


@scenario
def steered(lab: Lab) -> None:
    life = lab.life()
    life.until(SessionObserved)

    def begin(turn: str, text: str) -> None:
        """Until the turn's prompt has landed and it works: either may come first."""
        seen = len(life.events)
        life.want(prompt=prompt(turn, text), steer=(), cancel=False)
        while not all(any(isinstance(one, kind) for one in life.events[seen:]) for kind in (Landed, WORKS)):
            life.step()

    def steer(key: str) -> None:
        life.want(steer=(prompt(key, f"{key} joins"),))

    begin("r1", "[[tool:sleep 1; echo x]]")
    steer("s1")
    life.until(TurnEnded)
    begin("r2", "[[slow:2]] " + "words " * 40)
    steer("s2")
    life.until(TurnEnded)
    begin("r3", "[[tool:sleep 30; echo x]]")
    steer("s3")
    life.want(cancel=True)
    life.until(TurnEnded)
    begin("r4", "[[tool:sleep 2; echo x]]")
    steer("s4")
    life.kill()


@scenario
def approvals(lab: Lab) -> None:
    life = lab.life(asks=True)
    for number, (text, choice) in enumerate(
        [
            ("[[tool:touch one]]", "allow_once"),
            ("[[tool:touch two]]", "reject_once"),
            ("[[tool:touch three]]", "allow_everything"),
            ("[[tool:touch four]]", "allow_always"),
            (f"call write {lab.root}/five", "reject_once"),
            ("call question colour", "blue"),
        ]
    ):
        life.want(prompt=prompt(f"r{number}", text))
        life.answer(life.until(GateRequested), choice)
        life.until(TurnEnded)
        life.want(prompt=None, answers=())
    life.turn("always", "[[tool:touch four]]")
    life.want(prompt=prompt("many", "call question colour sizes"))
    gates: list[GateRequested] = []
    while not gates:
        gates = [event for event in life.step() if isinstance(event, GateRequested)]
    chosen = zip(gates, ("red", "red, blue"), strict=True)
    life.want(answers=tuple(GateAnswer(gate.gate, gate.payload, choice) for gate, choice in chosen))
    life.until(TurnEnded)
    life.want(prompt=None, answers=())
    life.want(prompt=prompt("cancelled", "[[tool:touch six]]"))
    life.until(GateRequested)
    life.want(cancel=True)
    life.until(TurnEnded)
    life.want(prompt=None, cancel=False)
    life.end()


@scenario
def killed(lab: Lab) -> None:
    life = lab.life()
    life.turn("r1", "hello")
    life.want(prompt=prompt("r2", "[[tool:echo begun > begun; sleep 2; echo ended > ended]]"))
    life.until(ToolCall)
    while not life.lab.transcript.read_bytes().count(b'"tool_use"'):
        life.step()
    life.kill()
    life = lab.life(confirmed=True)
    life.until(SessionObserved)
    life.turn("r3", "what happened?")
    life.end()


@scenario
def killed_while_asking(lab: Lab) -> None:
    life = lab.life(asks=True)
    life.want(prompt=prompt("r1", "[[tool:touch one]]"))
    life.until(GateRequested)
    life.kill()
    life = lab.life(asks=True)
    life.until(SessionObserved)
    life.turn("r2", "what happened?")
    life.end()


@scenario
def failures(lab: Lab) -> None:
    life = lab.life()
    for code in ("429", "401", "402", "403", "500", "529", "400"):
        life.turn(code, f"[[err:{code}]]")
    life.end()


@scenario
def known_already(lab: Lab) -> None:
    """The same message again, as a store that was put back would send it."""
    life = lab.life()
    life.turn("r1", "hello")
    life.end()
    life = lab.life(confirmed=True)
    life.turn("r1", "hello")
    life.turn("r2", "go on")
    life.end()


@scenario
def missing(lab: Lab) -> None:
    life = lab.life(confirmed=True)
    while not life.fold.ending:
        life.step()
    life.end()


@scenario
def torn_at_its_beginning(lab: Lab) -> None:
    """A transcript without one whole line: its id can be neither resumed nor used."""
    life = lab.life()
    life.turn("r1", "hello")
    life.end()
    lab.transcript.write_bytes(lab.transcript.read_bytes()[:40])
    life = lab.life()
    while not life.fold.ending:
        life.step()
    life.end()


@scenario
def in_the_background(lab: Lab) -> None:
    """Claude Code takes up by itself what its own command has left, and a subagent has calls."""
    life = lab.life()
    life.turn("r1", "call background sleep 1; echo x")
    while b'"origin"' not in bytes(str(life.steps[-1].get("out", "")), "utf-8"):
        life.step()
    life.turn("r2", "and now?")
    life.turn("r3", "call task [[tool:echo inner]]")
    life.end()


def main(names: list[str]) -> None:
    """Record the named scenarios, or all."""
    RECORDED.mkdir(exist_ok=True)
    for name in names or list(SCENARIOS):
        with tempfile.TemporaryDirectory() as folder, ScriptedModel(script, models=(MODEL,)) as model:
            lab = Lab(name, Path(folder).resolve(), model)
            try:
                SCENARIOS[name](lab)
            finally:
                for life in lab.lives:
                    if life.process.poll() is None:
                        os.killpg(life.process.pid, signal.SIGKILL)
                        life.process.wait()
                lab.stderr.close()
            lab.save()
            print(f"recorded {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
