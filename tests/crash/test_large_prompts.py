"""Prompts of many megabytes, through a real shim: each reaches its agent whole and once."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

import outlast
from outlast.agents import Command

AGENT = """
import hashlib, json, os, sys, threading
told, chatty = sys.argv[1], sys.argv[2] == "chatty"
over = threading.Event()
def talk():
    while not over.wait(0.0005):
        os.write(1, b"noise " + b"z" * 200 + b"\\n")
talking = threading.Thread(target=talk)
if chatty:
    talking.start()
for line in sys.stdin.buffer:
    said = json.loads(line)
    text = said["input"][0]["text"]
    with open(told, "a") as file:
        file.write(f"{len(text)} {hashlib.sha256(text.encode()).hexdigest()}\\n")
over.set()
if chatty:
    talking.join()
os.write(1, json.dumps({"type": "done", "nonce": said["nonce"]}).encode() + b"\\n")
"""


@pytest.mark.parametrize(("size", "manner"), [(9_000_000, "quiet"), (6_000_000, "chatty")])
async def test_a_prompt_in_many_parts_reaches_its_agent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, manner: str
) -> None:
    """The prompt goes to the spool in parts; a new segment, or what the agent says meanwhile, lies between
    them. What it is not yet seen to have been given is not given again."""
    import hashlib

    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))
    script, told = tmp_path / "agent.py", tmp_path / "told"
    script.write_text(AGENT)
    agent = Command(command=[sys.executable, "-I", "-S", str(script), str(told), manner])
    text = os.urandom(64).hex() * (size // 128)
    async with outlast.Runtime(f"sqlite://{tmp_path}/store.db", agents={"a": agent}) as runtime:
        turn = await runtime.session(workspace=tmp_path).send(text, agent="a")
        async with asyncio.timeout(60):
            outcome = await turn.result()
    assert outcome.outcome == "done"
    assert told.read_text() == f"{len(text)} {hashlib.sha256(text.encode()).hexdigest()}\n"
