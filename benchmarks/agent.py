"""The benchmarks' agent, for `Command`: it does what the last line of its prompt says.

"say 512" answers with 512 characters; "steps 10 and hang" tells of ten steps, then stays for ever (no longer
than LIMIT seconds). The standard library alone, so that little of what is measured is the agent.
"""

import json
import os
import re
import sys
import time

LIMIT = 120.0


def say(**line: object) -> None:
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line:
        return
    prompt = json.loads(line)
    order = prompt["input"][0]["text"].rpartition("\n")[2]
    count = int(re.findall(r"\d+", order)[0])
    say(type="session", id=prompt["resume"] or "bench", nonce=prompt["nonce"])
    if order.startswith("steps"):
        for step in range(1, count + 1):
            say(type="tool", id=f"step-{step}", name="step", status="started")
            say(type="tool", id=f"step-{step}", name="step", status="completed")
        time.sleep(LIMIT)
        return
    say(type="message", role="assistant", text="y" * count)
    say(type="done", stop_reason="end_turn", nonce=prompt["nonce"])


if __name__ == "__main__":
    main()
