"""MCP servers of the configuration reach the real codex, in every life of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import CodexPlace, codex_place

from outlast.records.types import CallObserved
from outlast.testing.scripted_model import Conversation, Reply, ToolCall

pytestmark = pytest.mark.real_agent

SERVER = Path(__file__).with_name("echo_server.py")

AGENT = """
[agents.tooled]
kind = "codex"
sandbox = "danger-full-access"
approval = "never"

[agents.tooled.mcp_servers.echo]
command = "{python}"
args = ["{server}"]
env = {{ ECHO_CALLS = "{calls}" }}

[agents.tooled.mcp_servers.gone]
command = "./no-such-server"
"""


def calls_the_server(conversation: Conversation) -> Reply:
    if conversation.results:
        return Reply(text=f"it said {conversation.results[-1]}")
    return Reply(calls=(ToolCall("echo", {"text": conversation.last_user_text}, namespace="mcp__echo"),))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        with made.config.open("a", encoding="utf-8") as config:
            config.write(AGENT.format(python=sys.executable, server=SERVER, calls=made.workspace / "calls"))
        made.model.script = calls_the_server
        yield made


def test_settings_lost_a_resumed_codex_has_its_mcp_servers(place: CodexPlace) -> None:
    """It keeps none of them with its thread. One that does not start is told, and costs no turn."""
    first = place.run("one", agent="tooled").wait()
    again = place.run("two", key="two", agent="tooled").wait()

    assert (first.status, again.status) == (0, 0), (first, again)
    assert b"echo: two" in again.stdout
    assert place.file("calls").read_text("utf-8").splitlines() == ["one", "two"]
    names = {call.name for call in place.journal("job").bodies(CallObserved)}
    assert names == {"echo.echo"}
    assert "the MCP server gone did not start" in first.stderr
    place.assert_one_thread()


def test_env_leak_a_server_gets_a_variable_that_no_file_has(place: CodexPlace) -> None:
    """Named in `env_vars`, and let through to codex by its `env`."""
    text = place.config.read_text("utf-8")
    calls = place.workspace / "calls"
    text = text.replace(f'env = {{ ECHO_CALLS = "{calls}" }}', 'env_vars = ["ECHO_CALLS"]')
    text = text.replace('kind = "codex"\nsandbox', 'kind = "codex"\nenv = ["ECHO_CALLS"]\nsandbox')
    place.config.write_text(text, "utf-8")
    hidden = place.root / "s3cr3t-name"
    place.variables["ECHO_CALLS"] = str(hidden)
    assert place.run("one", agent="tooled").wait().status == 0
    assert hidden.read_text("utf-8").splitlines() == ["one"]
    files = [path for path in (*place.state.rglob("*"), *place.home.rglob("*")) if path.is_file()]
    assert files
    assert [path for path in files if b"s3cr3t-name" in path.read_bytes()] == []
