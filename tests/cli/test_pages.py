"""docs/cli.md is what the commands say of themselves; docs/configuration.md is what the code accepts."""

import ast
import re
import runpy
import shlex
import sys
from pathlib import Path

from tests.cli.support import Shell

import outlast
from outlast.cli.app import COMMANDS
from outlast.config.load import NEEDS_TRUST
from outlast.config.settings import AgentSettings, decode_settings

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_command_reference_is_current() -> None:
    page = runpy.run_path(str(DOCS / "make_cli.py"))["page"]()
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == page, "run `make docs` and commit the page"


def test_an_error_never_sends_anybody_to_a_command_that_is_not_there() -> None:
    sources = Path(outlast.__file__).parent.rglob("*.py")
    named = {name for file in sources for name in re.findall(r"`outlast ([a-z]+)", file.read_text("utf-8"))}
    assert {"resume", "doctor"} <= named
    assert named <= set(COMMANDS)


def test_nothing_that_a_user_is_told_points_at_a_page_that_an_installation_has_not_got() -> None:
    told = []
    for file in Path(outlast.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        prose = {
            id(statement.value) for statement in ast.walk(tree) if isinstance(statement, ast.Expr)
        }  # docstrings are for readers of the source
        told += [
            f"{file.name}: {node.value!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and id(node) not in prose and "docs/" in str(node.value)
        ]
    assert told == []
    assert "docs/" not in runpy.run_path(str(DOCS / "make_cli.py"))["reference"]()


def test_who_has_no_agent_is_told_how_to_get_one(shell: Shell) -> None:
    shell.config.write_text("")
    for arguments in (("run", "hello"), ("agents",), ("doctor",)):
        # A Python that holds the tested agents would find them.
        ran = shell.process(*arguments, environ=shell.environ | {"PYTHONPATH": str(_without_wheels(shell))})
        told = ran.out + ran.err
        assert "make agents" in told
        assert f"describe an agent in {shell.config}: [agents.mine]" in told
        assert "outlast[codex]" not in told


def _without_wheels(shell: Shell) -> Path:
    """A folder that, on the path, hides the wheels of the agents."""
    folder = shell.folder / "hidden"
    for name in ("codex_cli_bin", "claude_agent_sdk"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").touch()
    return folder


def test_the_agent_in_twenty_lines_runs_as_it_is_written(shell: Shell) -> None:
    text = (DOCS / "agents.md").read_text(encoding="utf-8")
    section = text.partition("### An agent in twenty lines")[2].partition("\n### ")[0]
    shell.environ["PATH"] = f"{Path(sys.executable).parent}:{shell.environ['PATH']}"
    for language, name in (("python", "agent.py"), ("toml", "outlast.toml")):
        code = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[0]
        (shell.folder / name).write_text(code)
    assert len((shell.folder / "agent.py").read_text().splitlines()) <= 20
    (commands,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    trust, run = (shlex.split(command) for command in commands.splitlines())
    assert trust == ["outlast", "trust"]
    assert run[0] == "outlast"
    assert shell.process(*trust[1:]).code == 0
    ran = shell.process(*run[1:])
    assert (ran.code, ran.out) == (0, "You said: hello\n")
    below = shell.folder / "below"
    below.mkdir()
    assert shell.process(*run[1:], "--workspace", str(below)).out == "You said: hello\n"


def test_the_example_holds_every_key_and_is_accepted() -> None:
    import tomllib

    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    settings = decode_settings(tomllib.loads(example), "the page")
    agent = settings.agents["mine"]
    assert [name for name in AgentSettings.__struct_fields__ if getattr(agent, name) is None] == []
    assert settings.store
    assert settings.workspace


def test_the_defaults_of_the_example_are_the_defaults() -> None:
    import tomllib

    from msgspec.structs import replace

    from outlast.agents import Codex, Command
    from outlast.config.agents import build_agent

    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    said = decode_settings(tomllib.loads(example), "the page").agents["mine"]
    said = replace(said, mcp_servers=None)
    command = build_agent("mine", said.without(frozenset({"sandbox", "approval", "permission_mode"})))
    assert command == Command(["python3", "./agent.py"], env=["MY_KEY"], model="…")
    codex = build_agent(
        "mine",
        replace(
            said.without(frozenset({"command", "stdin", "require_nonce", "permission_mode"})), kind="codex"
        ),
    )
    assert codex == Codex(env=("MY_KEY",), model="…")


def test_every_key_that_needs_trust_is_named_on_the_page() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    section = text.partition("## A project's own file")[2].partition("Elsewhere")[0]
    assert set(re.findall(r"`(\w+)`", section)) == NEEDS_TRUST | {"store"}
