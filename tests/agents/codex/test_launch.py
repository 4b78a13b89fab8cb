from __future__ import annotations

import sys
from pathlib import Path

import pytest

from outlast.agents.codex import Codex
from outlast.agents.codex.binary import find_codex, version_of
from outlast.agents.contract import LaunchContext
from outlast.errors import AgentError, ConfigError

ELF = b"\x7fELF and more"


def program(path: Path, content: bytes = ELF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "codex_cli_bin", None)


def context(environ: dict[str, str], workspace: Path) -> LaunchContext:
    return LaunchContext("session", "main", str(workspace), environ, None, False)


def test_the_program_on_path_comes_before_the_wheel(tmp_path: Path) -> None:
    native = program(tmp_path / "bin" / "codex")
    assert find_codex(None, {"PATH": str(native.parent)}) == native


def test_the_configured_program_comes_first(tmp_path: Path) -> None:
    native, other = program(tmp_path / "a" / "codex"), program(tmp_path / "b" / "codex")
    assert find_codex(str(other), {"PATH": str(native.parent)}) == other


@pytest.mark.parametrize(
    "layout",
    [
        "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        "@openai/codex/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        "@openai/codex/vendor/x86_64-unknown-linux-musl/codex/codex",
    ],
)
def test_wrapper_kill_npms_wrapper_is_replaced_by_the_program_it_runs(tmp_path: Path, layout: str) -> None:
    modules = tmp_path / "lib" / "node_modules"
    script = program(modules / "@openai/codex/bin/codex.js", b"#!/usr/bin/env node\n")
    native = program(modules / layout)
    command = tmp_path / "bin" / "codex"
    command.parent.mkdir()
    command.symlink_to(script)
    assert find_codex(None, {"PATH": str(command.parent)}) == native


def test_a_wrapper_of_an_unknown_layout_is_run_as_it_is(tmp_path: Path) -> None:
    script = program(tmp_path / "bin" / "codex", b"#!/bin/sh\n")
    assert find_codex(None, {"PATH": str(script.parent)}) == script


def test_the_wheels_program_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "codex_cli_bin"
    native = program(package / "bin" / "codex")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "codex-package.json").write_text('{"version": "0.163.0"}')
    monkeypatch.delitem(sys.modules, "codex_cli_bin", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))
    assert find_codex(None, {"PATH": str(tmp_path)}) == native
    assert version_of(native) == "0.163.0"


@pytest.mark.usefixtures("no_wheel")
def test_without_a_program_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="put `codex` on PATH, or"):
        find_codex(None, {"PATH": str(tmp_path)})
    with pytest.raises(AgentError, match="is not there"):
        find_codex(str(tmp_path / "missing"), {"PATH": ""})


def test_the_version_of_a_program_without_a_description_is_unknown(tmp_path: Path) -> None:
    assert version_of(program(tmp_path / "bin" / "codex")) == "unknown"
    (tmp_path / "codex-package.json").write_text("[]")
    assert version_of(tmp_path / "bin" / "codex") == "unknown"


def test_env_marker_codex_gets_only_the_variables_that_are_let_through(tmp_path: Path) -> None:
    native = program(tmp_path / "bin" / "codex")
    environ = {
        "PATH": str(native.parent),
        "HOME": str(tmp_path),
        "CODEX_HOME": str(tmp_path),
        "CODEX_SANDBOX": "seatbelt",
        "MY_KEY": "mine",
        "OTHER_KEY": "other",
    }
    launch = Codex(env=("MY_KEY",)).launch(context(environ, tmp_path))
    assert launch.argv == (str(native), "app-server")
    assert launch.cwd == str(tmp_path)
    assert dict(launch.env) == {name: environ[name] for name in ("PATH", "HOME", "CODEX_HOME", "MY_KEY")}


def test_a_home_that_is_not_there_is_said_before_codex_fails_on_it(tmp_path: Path) -> None:
    native = program(tmp_path / "bin" / "codex")
    environ = {"PATH": str(native.parent), "CODEX_HOME": str(tmp_path / "missing")}
    with pytest.raises(AgentError, match=r"CODEX_HOME is .*missing, which is no folder"):
        Codex().launch(context(environ, tmp_path))


@pytest.mark.parametrize(
    "settings",
    [
        {"orphan_grace": float("inf")},
        {"idle_park": float("nan")},
        {"idle_timeout": -1.0},
        {"total_timeout": 1e300},
        {"on_interrupt": "redo"},
        {"mcp_servers": {"x": {}}},
        {"mcp_servers": {"x": {"command": ["a", "b"]}}},
        {"mcp_servers": {"x": {"command": "a", "args": "b"}}},
        {"mcp_servers": {"": {"command": "a"}}},
        {"mcp_servers": {"x": {"command": "a", "env": {"A": object()}}}},
    ],
)
def test_a_setting_that_means_nothing_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Codex(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("server", "where"),
    [
        ({"command": "a", "env": {"TICKETS_TOKEN": "s3cr3t-1"}}, "env.TICKETS_TOKEN"),
        ({"command": "a", "env": {"ACCESS": "ghp_abcdefghij0123"}}, "env.ACCESS"),
        ({"command": "a", "args": ["--api-key=abcd1234"]}, "args"),
        (
            {"url": "https://x/mcp", "http_headers": {"Authorization": "Bearer abc"}},
            "http_headers.Authorization",
        ),
        ({"url": "https://x/mcp", "bearer_token": "abc"}, "bearer_token"),
        ({"url": "https://me:word@x/mcp"}, "url"),
    ],
)
def test_env_leak_a_secret_that_would_be_written_down_is_refused(
    server: dict[str, object], where: str
) -> None:
    """It is named and not shown."""
    with pytest.raises(ConfigError, match="env_vars") as refused:
        Codex(mcp_servers={"x": server})
    assert where in str(refused.value)
    assert not any(word in str(refused.value) for word in ("s3cr3t", "ghp_", "abcd1234", "Bearer", "me:word"))


def test_names_of_variables_and_plain_values_are_passed_on() -> None:
    far = {"url": "https://x/mcp", "bearer_token_env_var": "TICKETS_TOKEN"}
    near = {"command": "a", "env": {"TICKETS_URL": "http://127.0.0.1:8080"}, "env_vars": ["TICKETS_TOKEN"]}
    Codex(mcp_servers={"far": far, "near": near}, env=("TICKETS_TOKEN",))


def test_a_home_and_a_program_named_from_where_we_are_are_the_same_for_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the workspace: what is checked, claimed and captured here is what it uses there."""
    work = tmp_path / "work"
    (work / "home").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    program(tmp_path / "bin" / "codex")
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": "bin", "CODEX_HOME": "home"}
    spec = Codex().launch(context(environ, work))
    assert spec.env["CODEX_HOME"] == str(tmp_path / "home")
    assert spec.argv[0] == str(tmp_path / "bin" / "codex")
    assert Codex().state_home(environ) == tmp_path / "home"
    with pytest.raises(AgentError, match=f"{tmp_path}/none"):
        Codex().launch(context(environ | {"CODEX_HOME": "none"}, work))
