"""An agent that does what its prompt says, well or badly. It speaks the `Command` protocol.

Standard library only, run by its path: `python3 -I -S scripted.py [--effects FILE] [--limit SECONDS]`.
The prompt's text holds markers `[[name:arguments]]`, done in order. A prompt without markers is said back
unchanged. When the markers are through and none of them ended the turn, it says `done`.

`{turn}`, `{attempt}`, `{session}`, `{key}`, `{pid}` and, in steps, `{i}` are filled into arguments.
`[[2?name:…]]` is done in attempt 2 only. Paths are relative to the workspace. Nothing here sleeps to let time
pass: a wait is for a file or for stdin, and the process ends itself (status 99) after `--limit` seconds (60).

| marker | does |
|---|---|
| `effect:LINE` | appends LINE to the effects file (one write, synced) |
| `effect:` | appends `{turn} {attempt}` |
| `steps:N` | N tool calls, each with an effect `{turn} {i}` |
| `steps:N:FILE` | the same, each call ends when FILE (with `{i}` filled in) exists |
| `wait:FILE` | waits until FILE exists |
| `touch:FILE` | makes FILE (synced): "I am here" for a test that waits |
| `prompt:FILE` | writes the prompt's line, exactly as it came, to FILE |
| `env:FILE` | writes the environment as JSON to FILE |
| `say:TEXT`, `think:TEXT` | a message of role assistant, thought |
| `session:ID` | its session id; `session:` resumes the one that was asked for, or makes one |
| `tool:ID:NAME:STATUS` | a tool line |
| `gate:ID:QUESTION:CHOICE,CHOICE` | asks; says `ID=CHOICE` when answered, `ID closed` when stdin ends |
| `usage:NAME=N,NAME=N` | a usage line |
| `eof` | waits until stdin is closed |
| `done`, `done:REASON` | says done, and goes on with the markers after it |
| `error:CODE:MESSAGE` | says error, and goes on |
| `fail:CODE:SECONDS:MESSAGE` | the same, and that it can be taken up again after SECONDS (may be empty) |
| `nonce:none`, `nonce:wrong`, `nonce:right` | how the lines after it are signed |
| `raw:TEXT` | prints TEXT as a line |
| `hex:BYTES` | prints these bytes, with nothing after them |
| `bad-utf8` | prints a line that is not UTF-8 |
| `flood:MB` | prints that much in lines of 1 KiB that are not of the protocol |
| `messages:N` | prints N messages `message {i}` |
| `text:MB` | says that much, in messages of 1 KiB |
| `calls:N` | prints N tool lines, each of a call that starts and never ends |
| `line:MB` | prints one line of that size |
| `exit:N` | ends at once with status N, saying nothing more |
| `signal:N` | ends itself by signal N |
| `eat:MB` | takes that much memory, and uses it |
| `ignore-term` | takes SIGTERM for nothing |
| `hang` | never ends (but for the limit) |
| `close-stdout` | closes its stdout and goes on |
| `fork-exit:FILE` | a child goes on: effect, FILE made, waits for ever; the parent exits 0 |
| `daemon:FILE` | leaves a daemon (new session, twice forked, no stdout): writes its pid to FILE, stays |
| `hidden-daemon:FILE` | the same with an empty environment: nothing marks it as ours |
| `shell:COMMAND` | a shell child that goes on beside it; not waited for |
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MARKER = re.compile(r"\[\[(?:(\d+)\?)?([a-z0-9-]+)(?::(.*?))?\]\]", re.DOTALL)
POLL = 0.005
ENDED = 99


class Agent:
    def __init__(self, line: bytes, effects: str, ends: float) -> None:
        self.line = line
        self.prompt = json.loads(line)
        self.effects = effects
        self.ends = ends
        self.nonce = "right"
        self.terminal = False

    # --- saying --------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(1, data) :]

    def say(self, kind: str, **fields: object) -> None:
        if kind in ("session", "gate", "done", "error") and self.nonce != "none":
            fields["nonce"] = self.prompt["nonce"] if self.nonce == "right" else "0" * 32
        self.write(json.dumps({"type": kind, **fields}).encode() + b"\n")

    def say_session(self, name: str) -> None:
        self.say("session", id=name or self.prompt["resume"] or f"scripted-{self.prompt['turn']}")

    def say_tool(self, argument: str) -> None:
        call, name, status = argument.split(":")
        self.say("tool", id=call, name=name, status=status)

    def say_usage(self, argument: str) -> None:
        counts = (pair.split("=") for pair in argument.split(","))
        self.say("usage", **{name: int(count) for name, count in counts})

    def say_done(self, reason: str) -> None:
        self.terminal = True
        self.say("done", stop_reason=reason or "end_turn")

    def say_error(self, argument: str) -> None:
        self.terminal = True
        code, _, message = argument.partition(":")
        self.say("error", code=code, message=message, retryable=False)

    def fail(self, argument: str) -> None:
        self.terminal = True
        code, seconds, message = argument.split(":", 2)
        pause = {"retry_after": float(seconds)} if seconds else {}
        self.say("error", code=code, message=message, retryable=True, **pause)

    def ask(self, argument: str) -> None:
        gate, question, choices = argument.split(":")
        self.say("gate", id=gate, question=question, choices=choices.split(","))
        for line in iter(sys.stdin.buffer.readline, b""):
            answer = json.loads(line)
            if answer.get("type") == "answer" and answer["gate"] == gate:
                self.say("message", role="assistant", text=f"{gate}={answer['choice']}")
                return
        self.say("message", role="assistant", text=f"{gate} closed")

    def say_messages(self, count: str) -> None:
        for i in range(int(count)):
            self.say("message", role="assistant", text=f"message {i}")

    def say_text(self, megabytes: str) -> None:
        line = json.dumps({"type": "message", "role": "assistant", "text": "." * 1023}).encode() + b"\n"
        for _ in range(int(megabytes) * 16):
            self.write(line * 64)

    def say_calls(self, count: str) -> None:
        for start in range(0, int(count), 1000):
            calls = range(start, min(start + 1000, int(count)))
            lines = (f'{{"type":"tool","id":"c{i}","name":"n{i}","status":"started"}}\n' for i in calls)
            self.write("".join(lines).encode())

    def flood(self, megabytes: str) -> None:
        block = (b"." * 1023 + b"\n") * 64
        for _ in range(int(megabytes) * 16):
            self.write(block)

    def long_line(self, megabytes: str) -> None:
        block = b"x" * 65536
        for _ in range(int(megabytes) * 16):
            self.write(block)
        self.write(b"\n")

    # --- doing ---------------------------------------------------------------------------------

    def fill(self, text: str, i: int = 0) -> str:
        values = {
            "turn": self.prompt["turn"],
            "attempt": self.prompt["attempt"],
            "session": self.prompt["session"],
            "key": self.prompt["idempotency_key"],
            "pid": os.getpid(),
            "i": i,
        }
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    def effect(self, line: str, i: int = 0) -> None:
        append(self.effects, self.fill(line or "{turn} {attempt}", i) + "\n")

    def steps(self, argument: str) -> None:
        count, _, file = argument.partition(":")
        for i in range(int(count)):
            self.say("tool", id=f"step-{i}", name="step", status="started")
            self.effect("{turn} {i}", i)
            if file:
                self.wait(self.fill(file, i))
            self.say("tool", id=f"step-{i}", name="step", status="completed")

    def wait(self, file: str) -> None:
        while not Path(file).exists():
            self.pause()

    def hang(self, _: str = "") -> None:
        while True:
            self.pause()

    def pause(self) -> None:
        if time.monotonic() > self.ends:
            os._exit(ENDED)
        time.sleep(POLL)

    def wait_for_eof(self, _: str) -> None:
        while sys.stdin.buffer.readline():
            pass

    def die(self, number: str) -> None:
        os.kill(os.getpid(), int(number))
        self.hang()

    def fork_exit(self, file: str) -> None:
        if os.fork():
            os._exit(0)
        self.effect("child {turn}")
        put(file, str(os.getpid()))
        self.hang()

    def daemon(self, file: str, environment: dict[str, str] | None = None) -> None:
        if child := os.fork():
            os.waitpid(child, 0)
            return
        os.setsid()
        if os.fork():
            os._exit(0)
        seconds = str(max(1, int(self.ends - time.monotonic())))
        to_nowhere(0, 1, 2)
        script = 'echo $$ > "$1.new" && mv "$1.new" "$1" && exec sleep "$2"'
        arguments = ["sh", "-c", script, "sh", str(Path(file).absolute()), seconds]
        os.execve("/bin/sh", arguments, os.environ if environment is None else environment)

    def eat(self, megabytes: str) -> None:
        self.eaten = [bytearray(os.urandom(4096) * 256) for _ in range(int(megabytes))]

    def shell(self, command: str) -> None:
        subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL)

    # --- running -------------------------------------------------------------------------------

    def actions(self) -> dict[str, Callable[[str], object]]:
        return {
            "effect": self.effect,
            "steps": self.steps,
            "wait": self.wait,
            "touch": lambda file: put(file, ""),
            "prompt": lambda file: put(file, self.line),
            "env": lambda file: put(file, json.dumps(dict(os.environ))),
            "say": lambda text: self.say("message", role="assistant", text=text),
            "think": lambda text: self.say("message", role="thought", text=text),
            "session": self.say_session,
            "tool": self.say_tool,
            "gate": self.ask,
            "usage": self.say_usage,
            "eof": self.wait_for_eof,
            "done": self.say_done,
            "error": self.say_error,
            "fail": self.fail,
            "nonce": lambda how: setattr(self, "nonce", how),
            "raw": lambda text: self.write(text.encode() + b"\n"),
            "hex": lambda digits: self.write(bytes.fromhex(digits)),
            "bad-utf8": lambda _: self.write(b"caf\xe9 \xff\xfe \xf0\x9f\x98\n"),
            "flood": self.flood,
            "messages": self.say_messages,
            "text": self.say_text,
            "calls": self.say_calls,
            "line": self.long_line,
            "exit": lambda status: os._exit(int(status)),
            "signal": self.die,
            "eat": self.eat,
            "ignore-term": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
            "hang": self.hang,
            "close-stdout": lambda _: to_nowhere(1),
            "fork-exit": self.fork_exit,
            "daemon": self.daemon,
            "hidden-daemon": lambda file: self.daemon(file, {}),
            "shell": self.shell,
        }

    def script(self, text: str) -> Iterator[tuple[str, str]]:
        for attempt, name, argument in MARKER.findall(text):
            if not attempt or int(attempt) == self.prompt["attempt"]:
                yield name, argument if name == "steps" else self.fill(argument)

    def run(self) -> None:
        text = "\n".join(part["text"] for part in self.prompt["input"])
        actions = self.actions()
        if not MARKER.search(text):
            self.say("message", role="assistant", text=text)
        for name, argument in self.script(text):
            if name not in actions:
                self.say_error(f"protocol_error:there is no marker {name}")
                return
            actions[name](argument)
        if not self.terminal:
            self.say_done("")


def to_nowhere(*descriptors: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)


def append(file: str, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put(file: str, content: str | bytes) -> None:
    """Make `file` whole or not at all: a test may wait for its name alone."""
    fresh = f"{file}.{os.getpid()}.new"
    with Path(fresh).open("wb") as out:
        out.write(content.encode() if isinstance(content, str) else content)
        out.flush()
        os.fsync(out.fileno())
    Path(fresh).replace(file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--effects", default="effects.log")
    parser.add_argument("--limit", type=float, default=60.0)
    options = parser.parse_args()
    signal.alarm(int(options.limit) + 5)  # also ends a read of stdin that never comes
    line = sys.stdin.buffer.readline()
    if line:
        Agent(line, options.effects, time.monotonic() + options.limit).run()


if __name__ == "__main__":
    main()
