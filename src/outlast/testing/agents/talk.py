"""One turn of a `Command` agent on plain pipes: to try out an agent, without shim, journal or runtime.

talk = talk_to(Command(["python3", "agent.py"]), "hello", workspace=tmp_path)
assert talk.ended.failure is None
"""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outlast.agents.command import Command
from outlast.agents.contract import (
    AgentEvent,
    CloseStdin,
    ExitInfo,
    FoldContext,
    GateAnswer,
    GateRequested,
    LaunchContext,
    Message,
    Prompt,
    Raw,
    TurnEnded,
    Wanted,
)
from outlast.agents.peer import Line, LineSplitter, LongLine
from outlast.records.types import Content

LIVES_ON = "lives-on"
"""A file in the workspace by which an agent says that it closed its stdout and goes on."""

_CHUNK = 1 << 20


@dataclass(slots=True)
class Talk:
    """What the agent said and how it ended. Output outside the protocol is counted, not kept."""

    exit: ExitInfo | None = None
    messages: list[str] = field(default_factory=list)
    events: list[AgentEvent] = field(default_factory=list)
    """Without messages and raw output."""
    raw_lines: int = 0
    raw_bytes: int = 0

    @property
    def ended(self) -> TurnEnded:
        """The turn's one terminal. Raises AssertionError unless there is exactly one."""
        terminals = [event for event in self.events if isinstance(event, TurnEnded)]
        assert len(terminals) == 1, f"a turn ends once, this one ended {len(terminals)} times"
        return terminals[0]


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and as which turn the agent runs. `environ` stands for the runtime's environment."""

    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    session: str = "session-1"
    turn: str = "turn-1"
    attempt: int = 1
    resume: str | None = None
    secret: bytes = b"the secret of a conversation on pipes"


def talk_to(
    agent: Command,
    text: str,
    *,
    workspace: Path,
    choose: Mapping[str, str] | None = None,
    setting: Setting | None = None,
    deadline: float = 60.0,
) -> Talk:
    """Run one turn to the end of the process and return what happened. `choose` answers gates by id.

    Raises AgentError as `launch` does and TimeoutError when the agent is silent past `deadline` (seconds).
    The process is ended in any case; what it has forked is not.
    """
    pipes = _Pipes(agent, text, workspace, setting or Setting(), time.monotonic() + deadline)
    try:
        while pipes.write() and pipes.read(choose or {}):
            pass
        lingers = pipes.lingers(workspace / LIVES_ON)
    finally:
        pipes.end()
    return pipes.settle(lingers)


class _Pipes:
    def __init__(self, agent: Command, text: str, workspace: Path, setting: Setting, ends: float) -> None:
        resume = setting.resume
        launch = LaunchContext(
            setting.session, "main", str(workspace), setting.environ, resume, confirmed=resume is not None
        )
        spec = agent.launch(launch)
        self._fold = agent.fold(
            FoldContext(setting.session, "main", spec.cwd, resume, resume is not None, secret=setting.secret)
        )
        self._prompt = Prompt(setting.turn, setting.attempt, setting.turn, (Content(text=text),))
        self._answers: tuple[GateAnswer, ...] = ()
        self._splitter = LineSplitter(agent.line_limit)
        self._ends = ends
        self._talk = Talk()
        self._process = subprocess.Popen(
            spec.argv,
            env=dict(spec.env),
            cwd=spec.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def write(self) -> bool:
        """Write all that the fold asks for now; always True."""
        assert self._process.stdin is not None
        while (item := self._fold.next(Wanted(prompt=self._prompt, answers=self._answers))) is not None:
            seq = self._fold.last_input + 1
            try:
                if isinstance(item, CloseStdin):
                    self._process.stdin.close()
                else:
                    _write_all(self._process.stdin.fileno(), item.line)
            except BrokenPipeError:
                pass  # It ended before it had read; its exit tells.
            if isinstance(item, CloseStdin):
                self._take(self._fold.apply_stdin_closed(seq))
            else:
                self._take(self._fold.apply_in(item.line, seq))
        return True

    def read(self, choose: Mapping[str, str]) -> bool:
        """Take in one chunk of output; False at its end."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        ready, _, _ = select.select([descriptor], [], [], max(0.0, self._ends - time.monotonic()))
        if not ready:
            raise TimeoutError("the agent said nothing before the deadline")
        chunk = os.read(descriptor, _CHUNK)
        for line in self._splitter.feed(chunk):
            self._take(self._apply(line), choose)
        if chunk:
            return True
        if (last := self._splitter.finish()) is not None:
            self._take(self._apply(last), choose)
        self._take(self._fold.apply_eof())
        return False

    def lingers(self, lives_on: Path) -> bool:
        """Whether the process, whose output has ended, goes on by its own word."""
        while self._process.poll() is None:
            if lives_on.exists():
                return True
            if time.monotonic() > self._ends:
                raise TimeoutError("the agent closed its output and did not end before the deadline")
            time.sleep(0.005)
        return False

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def settle(self, lingered: bool) -> Talk:
        status = self._process.returncode
        self._talk.exit = ExitInfo(
            status=status if status >= 0 else None,
            signal=-status if status < 0 else None,
            killed=lingered,
            lingered=lingered,
        )
        self._take(self._fold.apply_exit(self._talk.exit))
        return self._talk

    def _apply(self, line: Line | LongLine) -> list[AgentEvent]:
        if isinstance(line, LongLine):
            return self._fold.apply_long(line.head, line.size)
        return self._fold.apply_out(line.data)

    def _take(self, events: list[AgentEvent], choose: Mapping[str, str] | None = None) -> None:
        for event in events:
            match event:
                case Raw():
                    self._talk.raw_lines += 1
                    self._talk.raw_bytes += event.dropped + len(event.text.encode())
                case Message():
                    self._talk.messages.append(event.text)
                case _:
                    self._talk.events.append(event)
            if isinstance(event, GateRequested) and choose and event.gate in choose:
                answer = GateAnswer(event.gate, event.payload, choose[event.gate])
                self._answers = (*self._answers, answer)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
