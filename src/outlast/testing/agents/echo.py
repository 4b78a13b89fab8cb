"""A whole agent: it says back what it is told. `Command(["python3", "echo.py"])` runs it."""

import json
import sys


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


prompt = json.loads(sys.stdin.readline())
text = "\n".join(part["text"] for part in prompt["input"])

say(type="session", id=prompt["resume"] or f"echo-{prompt['session']}", nonce=prompt["nonce"])
say(type="tool", id="1", name="shout", status="started", input=text)
say(type="tool", id="1", name="shout", status="completed", output=text.upper())
say(type="message", role="assistant", text=f"You said: {text}")
say(type="usage", input_tokens=len(text.split()), output_tokens=2)
say(type="done", stop_reason="end_turn", nonce=prompt["nonce"])
