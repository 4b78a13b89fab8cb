"""The agent of these scenes, for `Command`: six steps, each of which leaves one line in the effects file.

    python3 -I -S agent.py FOLDER

A step leaves its effect, then waits for the file FOLDER/go-STEP, then is done: so that it can be killed when
its effect is there and its outcome is not. It ends itself after LIMIT seconds.
"""

import json
import os
import sys
import time
from pathlib import Path

STEPS, LIMIT = 6, 90.0


def say(**line: object) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def leave_effect(folder: Path, step: int) -> None:
    """One write at the end of the file, on the disk when this returns."""
    file = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"step {step} process {os.getpid()}\n".encode())
    os.fsync(file)
    os.close(file)


def main(folder: Path) -> None:
    ends = time.monotonic() + LIMIT
    prompt = json.loads(sys.stdin.buffer.readline() or b"null")
    if prompt is None:
        return
    say(type="session", id=prompt["resume"] or "steps", nonce=prompt["nonce"])
    for step in range(1, STEPS + 1):
        say(type="tool", id=f"step-{step}", name=f"step {step}", status="started")
        leave_effect(folder, step)
        while not (folder / f"go-{step}").exists():
            if time.monotonic() > ends:
                sys.exit(1)
            time.sleep(0.005)
        say(type="tool", id=f"step-{step}", name=f"step {step}", status="completed")
    say(type="done", stop_reason="end_turn", nonce=prompt["nonce"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
