"""The demo's agent: it does steps, and each step leaves one line in the effects file, as a payment would.

`python3 -I -S agent.py EFFECTS MARK` speaks the `Command` protocol (docs/agents.md), standard library only.
The prompt says how many steps, and before which ones it has to wait until the demo lets it go on:
"6 steps, wait before 3 and 5" waits for the files `go/TURN.3` and `go/TURN.5`. MARK is there to be seen in
the list of processes. It ends itself after LIMIT seconds, whatever happens around it.
"""

import json
import os
import re
import sys
import time
from pathlib import Path

LIMIT = 120.0
POLL = 0.005


def say(**line: object) -> None:
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def wait_for(file: Path, ends: float) -> None:
    while not file.exists():
        if time.monotonic() > ends:
            sys.exit(f"nobody made {file} within {LIMIT:.0f} seconds")
        time.sleep(POLL)


def leave_effect(file: str, text: str) -> None:
    """One write at the end of the file, on the disk when this returns."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main(effects: str) -> None:
    ends = time.monotonic() + LIMIT
    line = sys.stdin.buffer.readline()
    if not line:
        return
    prompt = json.loads(line)
    turn = prompt["turn"]
    count, *held = map(int, re.findall(r"\d+", prompt["input"][0]["text"]))
    say(type="session", id=prompt["resume"] or f"agent-session-{os.getpid()}", nonce=prompt["nonce"])
    for step in range(1, count + 1):
        say(type="tool", id=f"step-{step}", name=f"step {step}", status="started")
        if step in held:
            wait_for(Path("go", f"{turn}.{step}"), ends)
        leave_effect(effects, f"{turn} step {step} agent {os.getpid()}\n")
        say(type="tool", id=f"step-{step}", name=f"step {step}", status="completed")
    say(type="message", role="assistant", text=f"{count} steps are done")
    say(type="done", stop_reason="end_turn", nonce=prompt["nonce"])


if __name__ == "__main__":
    main(sys.argv[1])
