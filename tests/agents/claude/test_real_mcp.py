"""MCP servers of the configuration reach the real Claude Code, in every life of it, beside the user's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.claude.real import ClaudePlace, claude_place

from outlast.records.types import CallObserved, GateOpened
from outlast.testing.scripted_model import Conversation, Reply, ToolCall

pytestmark = [pytest.mark.real_agent, pytest.mark.slow]

SERVER = Path(__file__).parents[1] / "codex" / "echo_server.py"
AGENT = """
[agents.claude.mcp_servers.echo]
command = "{python}"
args = ["{server}"]
env = {{ ECHO_CALLS = "{calls}" }}

[agents.claude.mcp_servers.gone]
command = "./no-such-server"
"""
ECHO, OWN = "mcp__echo__echo", "mcp__own__echo"


def calls_a_server(conversation: Conversation) -> Reply:
    """The one that the text begins with."""
    if conversation.results:
        return Reply(text=f"it said {conversation.results[-1]}")
    tool, text = conversation.last_user_text.split(" ")
    return Reply(calls=(ToolCall(tool, {"text": text}),))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ClaudePlace]:
    with claude_place(tmp_path / "place") as made:
        with made.config.open("a", encoding="utf-8") as config:
            config.write(AGENT.format(python=sys.executable, server=SERVER, calls=made.workspace / "calls"))
        made.write_settings({"permissions": {"allow": [ECHO, OWN]}})
        made.model.script = calls_a_server
        yield made


def test_settings_lost_a_resumed_claude_has_its_servers_beside_the_users_own(place: ClaudePlace) -> None:
    """One that does not start is told, and costs no turn."""
    own = {"command": sys.executable, "args": [str(SERVER)], "env": {"ECHO_CALLS": f"{place.workspace}/own"}}
    (place.home / ".claude.json").write_text(json.dumps({"mcpServers": {"own": own}}), "utf-8")
    first = place.run(f"{ECHO} one").wait()
    again = place.run(f"{ECHO} two", key="two").wait()
    users = place.run(f"{OWN} three", key="three").wait()

    assert (first.status, again.status, users.status) == (0, 0, 0), (first, again, users)
    assert b"echo: two" in again.stdout
    assert place.file("calls").read_text("utf-8").splitlines() == ["one", "two"]
    assert place.file("own").read_text("utf-8").splitlines() == ["three"]
    names = [call.name for call in place.journal("job").bodies(CallObserved) if call.status == "completed"]
    assert names == [ECHO, ECHO, OWN]
    assert "the MCP server gone did not start" in first.stderr
    place.assert_one_session()


def test_env_leak_a_server_gets_a_variable_that_no_file_and_no_argument_has(place: ClaudePlace) -> None:
    """Claude Code puts it in the place of a reference; let through to it by `env`."""
    calls = place.workspace / "calls"
    text = place.config.read_text("utf-8").replace(f'"{calls}"', '"${THE_CALLS}"')
    place.config.write_text(
        text.replace("[agents.claude]\n", '[agents.claude]\nenv = ["THE_CALLS"]\n'), "utf-8"
    )
    hidden = place.root / "s3cr3t-name"
    place.variables["THE_CALLS"] = str(hidden)
    assert place.run(f"{ECHO} one").wait().status == 0
    assert hidden.read_text("utf-8").splitlines() == ["one"]
    files = [path for path in (*place.state.rglob("*"), *place.home.rglob("*")) if path.is_file()]
    assert files
    assert [path for path in files if b"s3cr3t-name" in path.read_bytes()] == []


def test_a_tool_of_a_server_is_asked_about_like_any_other(place: ClaudePlace) -> None:
    place.write_settings({})
    left = place.run(f"{ECHO} one").wait()
    (gate,) = place.journal("job").bodies(GateOpened)
    assert (left.status, gate.kind) == (6, "permission"), left
    assert not place.file("calls").exists()
    assert place.call("answer", "job", gate.gate, "allow_once").status == 0
    assert place.resume().outcomes == ["done"]
    assert place.file("calls").read_text("utf-8").splitlines() == ["one"]
