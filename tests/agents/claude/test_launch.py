from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from outlast.agents.claude import Claude
from outlast.agents.claude.binary import find_claude, version_of
from outlast.agents.claude.transcript import find_transcript, is_folder_of
from outlast.agents.contract import LaunchContext
from outlast.errors import AgentError, ConfigError

ELF = b"\x7fELF and more"
SESSION = "01a227de-0000-7000-8000-000000000001"


def program(path: Path, content: bytes = ELF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)


def transcript(home: Path, folder: str, session: str = SESSION, text: str = "{}\n") -> Path:
    path = home / "projects" / folder / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def opening(
    home: Path, *, session: str | None = SESSION, confirmed: bool = False, given: bool = False, agent: Claude
) -> str:
    """The last argument of the launch: what it says of the session."""
    environ = {"PATH": str(program(home / "bin" / "claude").parent), "CLAUDE_CONFIG_DIR": str(home)}
    launch = agent.launch(LaunchContext("session", "main", "/some/space", environ, session, confirmed, given))
    return launch.argv[-1]


def test_the_program_on_path_comes_before_the_wheel(tmp_path: Path) -> None:
    native = program(tmp_path / "bin" / "claude")
    assert find_claude(None, {"PATH": str(native.parent)}) == native


def test_the_configured_program_comes_first(tmp_path: Path) -> None:
    native, other = program(tmp_path / "a" / "claude"), program(tmp_path / "b" / "claude")
    assert find_claude(str(other), {"PATH": str(native.parent)}) == other


@pytest.mark.parametrize(
    "layout",
    [
        "@anthropic-ai/claude-code-linux-x64/claude",
        "@anthropic-ai/claude-code/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
    ],
)
def test_wrapper_kill_npms_wrapper_is_replaced_by_the_program_it_runs(tmp_path: Path, layout: str) -> None:
    modules = tmp_path / "lib" / "node_modules"
    script = program(modules / "@anthropic-ai/claude-code/cli-wrapper.cjs", b"#!/usr/bin/env node\n")
    native = program(modules / layout)
    command = tmp_path / "bin" / "claude"
    command.parent.mkdir()
    command.symlink_to(script)
    assert find_claude(None, {"PATH": str(command.parent)}) == native


def test_a_wrapper_of_an_unknown_layout_is_run_as_it_is(tmp_path: Path) -> None:
    script = program(tmp_path / "bin" / "claude", b"#!/bin/sh\n")
    assert find_claude(None, {"PATH": str(script.parent)}) == script


def test_the_wheels_program_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "claude_agent_sdk"
    native = program(package / "_bundled" / "claude")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "_bundled" / "claude.version").write_text("2.1.332 (Claude Code)")
    monkeypatch.delitem(sys.modules, "claude_agent_sdk", raising=False)
    monkeypatch.syspath_prepend(str(package.parent))
    assert find_claude(None, {"PATH": str(tmp_path)}) == native
    assert version_of(native) == "2.1.332"


@pytest.mark.usefixtures("no_wheel")
def test_without_a_program_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="put `claude` on PATH, or"):
        find_claude(None, {"PATH": str(tmp_path)})
    with pytest.raises(AgentError, match="is not there"):
        find_claude(str(tmp_path / "missing"), {"PATH": ""})


def test_the_version_is_read_from_what_lies_beside_the_program(tmp_path: Path) -> None:
    assert version_of(program(tmp_path / "plain" / "bin" / "claude")) == "unknown"
    assert version_of(program(tmp_path / "versions" / "2.1.4")) == "2.1.4"
    npm = program(tmp_path / "claude-code" / "bin" / "claude")
    (tmp_path / "claude-code" / "package.json").write_text('{"name": "x", "version": "2.1.5"}')
    assert version_of(npm) == "2.1.5"


def test_env_marker_claude_gets_only_the_variables_that_are_let_through(tmp_path: Path) -> None:
    """`CLAUDECODE` in its environment would make it think that it runs inside itself."""
    native = program(tmp_path / "bin" / "claude")
    environ = {
        "PATH": str(native.parent),
        "HOME": str(tmp_path),
        "CLAUDE_CONFIG_DIR": str(tmp_path),
        "CLAUDECODE": "1",
        "CLAUDE_CODE_ENTRYPOINT": "cli",
        "MY_KEY": "mine",
        "OTHER_KEY": "other",
    }
    context = LaunchContext("session", "main", str(tmp_path), environ, SESSION, False)
    launch = Claude(env=("MY_KEY",)).launch(context)
    assert launch.cwd == str(tmp_path)
    names = ("PATH", "HOME", "CLAUDE_CONFIG_DIR", "MY_KEY")
    assert dict(launch.env) == {name: environ[name] for name in names}


def test_settings_lost_the_users_own_settings_are_left_in_force(tmp_path: Path) -> None:
    """Nothing on the command line names other sources of settings, tools, hooks or servers."""
    native = program(tmp_path / "bin" / "claude")
    context = LaunchContext("session", "main", "/", {"PATH": str(native.parent)}, SESSION, True)
    said = {word.partition("=")[0] for word in Claude(model="m", permission_mode="plan").launch(context).argv}
    assert said == {
        str(native),
        "--print",
        "--verbose",
        "--input-format",
        "--output-format",
        "--include-partial-messages",
        "--replay-user-messages",
        "--session-mirror",
        "--permission-prompt-tool",
        "--model",
        "--permission-mode",
        "--resume",
    }


def test_an_id_that_was_chosen_begins_its_session_and_one_with_a_transcript_resumes_it(
    tmp_path: Path,
) -> None:
    agent = Claude()
    assert opening(tmp_path, agent=agent) == f"--session-id={SESSION}"
    transcript(tmp_path, "-some-space")
    assert opening(tmp_path, agent=agent) == f"--resume={SESSION}"


def test_silent_fresh_a_confirmed_session_is_never_begun_anew_under_its_id(tmp_path: Path) -> None:
    assert opening(tmp_path, confirmed=True, agent=Claude()) == f"--resume={SESSION}"


def test_silent_fresh_a_session_that_was_given_an_input_is_not_begun_empty_under_its_id(
    tmp_path: Path,
) -> None:
    assert opening(tmp_path, given=True, agent=Claude()) == f"--resume={SESSION}"


def test_cwd_keyed_a_transcript_is_found_also_below_another_folder(tmp_path: Path) -> None:
    other = transcript(tmp_path, "-elsewhere")
    assert find_transcript(tmp_path, "/some/space", SESSION) == other
    own = transcript(tmp_path, "-some-space")
    assert find_transcript(tmp_path, "/some/space", SESSION) == own
    assert find_transcript(tmp_path, "/some/space", "*") is None
    assert find_transcript(tmp_path / "nowhere", "/some/space", SESSION) is None


def test_a_long_folder_is_known_by_its_beginning() -> None:
    long = "/some/" + "x" * 300
    assert is_folder_of(f"-some-{'x' * 194}-1k2j3h", long)
    assert not is_folder_of("-some-" + "x" * 300, long)
    assert is_folder_of("-some-a-b-c", "/some/a.b_c")


def test_no_trace_call_what_the_transcript_mentions_is_not_told_again(tmp_path: Path) -> None:
    """Also where a name lies across two bites of a large file."""
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    agent = Claude()
    names = ["toolu_1", "toolu_2", "toolu_3"]
    assert agent.unmentioned_calls(names, SESSION, "/some/space", environ) == set(names)
    transcript(tmp_path, "-some-space", text=" " * (1024 * 1024 - 3) + "toolu_1" + " " * 100 + "(toolu_3): ")
    assert agent.unmentioned_calls(names, SESSION, "/some/space", environ) == {"toolu_2"}


@pytest.mark.parametrize(
    "other", ["call_10", "the_call_1", "call_1" + "x" * 3_000_000, "x" * 3_000_000 + "call_1"]
)
def test_no_trace_call_an_id_that_begins_or_ends_another_one_is_not_mentioned(
    tmp_path: Path, other: str
) -> None:
    """Gateways count: `call_1` stands in `call_10`."""
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    transcript(tmp_path, "-some-space", text=f'{{"id":"{other}"}}')
    assert Claude().unmentioned_calls(["call_1"], SESSION, "/some/space", environ) == {"call_1"}
    transcript(tmp_path, "-some-space", text=f'{{"id":"{other}","tool_use_id":"call_1"}}')
    assert Claude().unmentioned_calls(["call_1"], SESSION, "/some/space", environ) == set()


def test_a_home_that_is_not_there_is_said_before_claude_fails_on_it(tmp_path: Path) -> None:
    native = program(tmp_path / "bin" / "claude")
    environ = {"PATH": str(native.parent), "CLAUDE_CONFIG_DIR": str(tmp_path / "missing")}
    with pytest.raises(AgentError, match=r"CLAUDE_CONFIG_DIR is .*missing, which is no folder"):
        Claude().launch(LaunchContext("session", "main", str(tmp_path), environ, SESSION, False))


@pytest.mark.parametrize(
    "settings",
    [{"orphan_grace": float("inf")}, {"idle_timeout": -1.0}, {"permission_mode": "yolo"}],
)
def test_a_setting_that_means_nothing_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Claude(**settings)  # type: ignore[arg-type]


# --- MCP servers ------------------------------------------------------------------------------------

NEAR = {"command": "./server", "args": ["--all"], "env": {"TOKEN": "${TICKETS_TOKEN}", "LOG": "much"}}
FAR = {"url": "https://x/mcp", "headers": {"Authorization": "Bearer ${TICKETS_TOKEN}"}}


def test_settings_lost_each_life_is_given_the_mcp_servers_in_one_argument(tmp_path: Path) -> None:
    environ = {"PATH": str(program(tmp_path / "bin" / "claude").parent), "CLAUDE_CONFIG_DIR": str(tmp_path)}
    agent = Claude(mcp_servers={"near": NEAR, "far": FAR}, env=("TICKETS_TOKEN",))
    new, resumed = (
        LaunchContext("session", "main", "/some/space", environ, SESSION, confirmed)
        for confirmed in (False, True)
    )
    for context in (new, resumed):
        (told,) = [word for word in agent.launch(context).argv if word.startswith("--mcp-config=")]
        assert json.loads(told.removeprefix("--mcp-config=")) == {
            "mcpServers": {"near": {"type": "stdio", **NEAR}, "far": {"type": "http", **FAR}}
        }
    assert "--mcp" not in " ".join(Claude().launch(new).argv)


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ({}, "neither a `command`"),
        ({"command": "a", "args": "b"}, "neither a `command`"),
        ({"command": "a", "type": "http"}, "`type`"),
        ({"url": "https://x/mcp", "type": "stdio"}, "`type`"),
        ({"url": "https://x/mcp", "type": 3}, "`type`"),
        ({"command": "a", "env": {"A": 1}}, "`env`"),
        ({"url": "https://x/mcp", "headers": ["a"]}, "`headers`"),
        ({"command": "a", "env_vars": ["A"]}, "none of Claude Code's words"),
        ({"command": "a" * 70_000}, "bytes together"),
    ],
)
def test_a_server_that_claude_would_leave_out_without_a_word_is_refused(
    server: dict[str, object], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        Claude(mcp_servers={"x": server})


@pytest.mark.parametrize(
    ("server", "where"),
    [
        ({"command": "a", "env": {"TICKETS_TOKEN": "s3cr3t-1"}}, "env.TICKETS_TOKEN"),
        ({"command": "a", "env": {"TICKETS_TOKEN": "${A}s3cr3t-1"}}, "env.TICKETS_TOKEN"),
        ({"command": "a", "env": {"TICKETS_TOKEN": "${A:-s3cr3t-1}"}}, "env.TICKETS_TOKEN"),
        ({"command": "a", "args": ["--api-key=s3cr3t-1"]}, "args"),
        ({"url": "https://x/mcp", "headers": {"Authorization": "Bearer s3cr3t-1"}}, "headers.Authorization"),
    ],
)
def test_env_leak_a_secret_that_would_be_among_the_arguments_is_refused(
    server: dict[str, object], where: str
) -> None:
    with pytest.raises(ConfigError, match=r"\$\{NAME\}") as refused:
        Claude(mcp_servers={"x": server})
    assert where in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_a_home_and_a_program_named_from_where_we_are_are_the_same_for_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in the workspace: what is checked, claimed and captured here is what it uses there."""
    work = tmp_path / "work"
    (work / "home").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    program(tmp_path / "bin" / "claude")
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": "bin", "CLAUDE_CONFIG_DIR": "home"}
    spec = Claude().launch(LaunchContext("session", "main", str(work), environ, None, confirmed=False))
    assert spec.env["CLAUDE_CONFIG_DIR"] == str(tmp_path / "home")
    assert spec.argv[0] == str(tmp_path / "bin" / "claude")
    assert Claude().state_home(environ) == tmp_path / "home"
    with pytest.raises(AgentError, match=f"{tmp_path}/none"):
        Claude().launch(
            LaunchContext(
                "session", "main", str(work), environ | {"CLAUDE_CONFIG_DIR": "none"}, None, confirmed=False
            )
        )
