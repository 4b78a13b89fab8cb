"""The configuration of a command agent, and what it launches."""

import os
from pathlib import Path

import pytest

from outlast.agents import Command
from outlast.agents.contract import Agent, FoldContext, LaunchContext
from outlast.errors import AgentError, ConfigError, InvalidRecordError


def program(path: Path, *, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def launch_in(workspace: Path, **environ: str) -> LaunchContext:
    return LaunchContext("s", "main", str(workspace), environ, None, confirmed=False)


def test_a_command_is_an_agent_of_plain_values() -> None:
    agent: Agent = Command(["python3", "agent.py"], env=["MY_KEY"])
    assert agent == Command(("python3", "agent.py"), env=("MY_KEY",))
    assert hash(agent) == hash(Command(("python3", "agent.py"), env=("MY_KEY",)))
    assert (agent.kind, agent.adapter, agent.model) == ("command", "command/1", None)
    assert agent.versions() == {"adapter": "command/1"}
    assert (agent.on_interrupt, agent.after_failure) == ("skip", "continue")
    assert (agent.idle_timeout, agent.total_timeout, agent.idle_park, agent.orphan_grace) == (
        600,
        None,
        900,
        600,
    )
    assert agent.capabilities.resume
    assert not agent.capabilities.many_turns


@pytest.mark.parametrize(
    "settings",
    [
        {"command": []},
        {"command": [""]},
        {"command": "python agent.py"},
        {"command": ["a\0b"]},
        {"command": ["a", 1]},
        {"command": ["a"], "env": "KEY"},
        {"command": ["a"], "env": ["OUTLAST_STORE"]},
        {"command": ["a"], "env": ["KEY=value"]},
        {"command": ["a"], "stdin": "shut"},
        {"command": ["a"], "on_interrupt": "redo"},
        {"command": ["a"], "after_failure": "stop"},
        {"command": ["a"], "idle_timeout": 0},
        {"command": ["a"], "total_timeout": -1.0},
        {"command": ["a"], "orphan_grace": float("inf")},
        {"command": ["a"], "idle_park": float("nan")},
        {"command": ["a"], "idle_timeout": 1e300},
        {"command": ["a"], "idle_timeout": True},
        {"command": ["a"], "idle_timeout": "600"},
    ],
)
def test_a_setting_that_means_nothing_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Command(**settings)  # type: ignore[arg-type]


def test_a_bare_name_is_looked_up_on_the_agents_path(tmp_path: Path) -> None:
    found = program(tmp_path / "bin" / "my-agent")
    spec = Command(["my-agent", "--fast"]).launch(launch_in(tmp_path, PATH=f"relative:{found.parent}", X="1"))
    assert spec.argv == (str(found), "--fast")
    assert spec.env == {"PATH": f"relative:{found.parent}"}
    assert spec.cwd == str(tmp_path)


def test_a_relative_path_is_of_the_workspace(tmp_path: Path) -> None:
    found = program(tmp_path / "tools" / "agent")
    assert Command(["tools/agent"]).launch(launch_in(tmp_path)).argv == (str(found),)
    assert Command([str(found)]).launch(launch_in(tmp_path)).argv == (str(found),)


def test_a_program_is_never_chosen_by_where_one_happens_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "my-agent")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AgentError, match="my-agent is not on PATH"):
        Command(["my-agent"]).launch(launch_in(tmp_path, PATH=f".{os.pathsep}"))


def test_a_link_to_a_program_is_launched_as_it_is_named(tmp_path: Path) -> None:
    link = tmp_path / "agent"
    link.symlink_to(program(tmp_path / "real" / "interpreter"))
    assert Command([str(link)]).launch(launch_in(tmp_path)).argv == (str(link),)


def test_what_cannot_be_launched_is_said(tmp_path: Path) -> None:
    program(tmp_path / "plain", mode=0o644)
    for command, says in (
        ("./none", "is not there"),
        ("./plain", "is not executable"),
        (str(tmp_path), "is not there"),
        ("no-such-agent", "is not on PATH"),
    ):
        with pytest.raises(AgentError, match=says):
            Command([command]).launch(launch_in(tmp_path, PATH="/usr/bin:/bin"))
    with pytest.raises(AgentError, match="workspace"):
        Command(["sh"]).launch(launch_in(tmp_path / "gone", PATH="/bin"))


def test_a_required_nonce_needs_a_secret() -> None:
    context = FoldContext("s", "main", "/w", None, confirmed=False)
    with pytest.raises(AgentError, match="secret"):
        Command(["a"], require_nonce=True).fold(context)


@pytest.mark.parametrize(
    "state", [b"", b"{}x", b'{"version":2}', b'{"turn":1}', b'{"other":1}', b"[" * 99_999]
)
def test_a_state_that_is_not_ours_is_refused(state: bytes) -> None:
    context = FoldContext("s", "main", "/w", None, confirmed=False)
    with pytest.raises(InvalidRecordError):
        Command(["a"]).fold(context, state)
