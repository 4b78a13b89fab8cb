"""Which agents can be named, and what is said of one that cannot."""

import sys
from pathlib import Path

import pytest

import outlast.agents
from outlast.agents import Claude, Codex, Command
from outlast.agents.registry import resolve
from outlast.errors import AgentNotFoundError

MINE = Command([sys.executable, "agent.py"])
BROKEN = Command(["no-such-program"])


def codex_on_path(folder: Path) -> dict[str, str]:
    program = folder / "codex"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return {"PATH": str(folder)}


@pytest.fixture(autouse=True)
def no_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this environment has installed is none of the tests'."""
    monkeypatch.setitem(sys.modules, "codex_cli_bin", None)
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)


def test_a_configured_agent_is_found_by_its_name() -> None:
    assert resolve("mine", {"mine": MINE}, {}) is MINE


def test_codex_works_by_name_when_it_is_on_path(tmp_path: Path) -> None:
    assert resolve("codex", {}, codex_on_path(tmp_path)) == Codex()


def test_claude_works_by_name_when_it_is_on_path(tmp_path: Path) -> None:
    codex_on_path(tmp_path)
    (tmp_path / "codex").rename(tmp_path / "claude")
    assert resolve("claude", {}, {"PATH": str(tmp_path)}) == Claude()


def test_a_configured_codex_is_the_one_that_is_meant(tmp_path: Path) -> None:
    agents = {"codex": Codex(model="m")}
    assert resolve("codex", agents, codex_on_path(tmp_path)) is agents["codex"]


def test_an_unknown_name_lists_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(AgentNotFoundError, match="no agent named other; there are codex, mine") as caught:
        resolve("other", {"mine": MINE}, codex_on_path(tmp_path))
    assert caught.value.hint == "add [agents.other] to the configuration"


@pytest.mark.parametrize("name", ["codex", "claude"])
def test_an_agent_that_is_not_installed_is_never_looked_for_on_a_package_index(name: str) -> None:
    """outlast is on none: what has its name there is somebody else's."""
    with pytest.raises(AgentNotFoundError) as caught:
        resolve(name, {}, {"PATH": ""})
    assert caught.value.hint is not None
    assert f"run `make agents` or `pip install '.[{name}]'` in outlast's checkout" in caught.value.hint
    assert "outlast[" not in caught.value.hint


def test_the_package_offers_its_adapters_and_nothing_else() -> None:
    assert dir(outlast.agents) == ["Claude", "Codex", "Command"]
    with pytest.raises(AttributeError):
        outlast.agents.Nobody  # noqa: B018
