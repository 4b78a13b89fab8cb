"""How `outlast` starts: what it imports, what it lists, how it fails."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.support import OUTLAST, Shell

from outlast.cli.app import COMMANDS, cli

HEAVY = ("asyncio", "rich", "psutil", "outlast.journal", "outlast.runtime", "tomllib")


@pytest.mark.parametrize(
    ("arguments", "more"),
    [(["--help"], ("msgspec", "hashlib", "outlast.store")), (["ls"], ("hashlib",)), (["ls", "--json"], ())],
)
def test_help_and_ls_import_no_event_loop(shell: Shell, arguments: list[str], more: tuple[str, ...]) -> None:
    shell.run("run", "-a", "scripted", "hello")
    shell.environ["OUTLAST_CONFIG"] = ""
    program = (
        "import sys; from outlast.cli import main; code = main(sys.argv[1:]);"
        f"print([name for name in {HEAVY + more!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=shell.folder,
        env=shell.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done
    assert done.stderr == "[]\n"


def test_every_command_of_the_list_is_there_with_the_same_first_line() -> None:
    import click

    context = click.Context(cli)
    for name, entry in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.help
        assert entry.help.endswith(".")


def test_without_a_command_the_help_is_shown(shell: Shell) -> None:
    assert "Commands:" in shell.run().out


def test_a_mistyped_command_comes_with_the_one_that_was_meant(shell: Shell) -> None:
    ran = shell.run("resme", "x")
    assert ran.code == 2
    assert ran.err.startswith("outlast: there is no command 'resme', did you mean 'resume'? `outlast --help`")


def test_an_error_is_one_line_and_json_with_json(shell: Shell) -> None:
    plain = shell.run("show", "x")
    assert plain.err == "outlast: no session x. `outlast ls` lists them\n"
    told = json.loads(shell.run("show", "--json", "x").err)
    assert told == {
        "error": "session_not_found",
        "message": "no session x",
        "hint": "`outlast ls` lists them",
        "session": "x",
    }


def test_debug_shows_the_traceback_before_and_after_the_command(shell: Shell) -> None:
    for arguments in (("--debug", "show", "x"), ("show", "x", "--debug")):
        ran = shell.process(*arguments)
        assert ran.code == 3
        assert "Traceback" in ran.err
        assert ran.err.splitlines()[-1].startswith("outlast: no session x")


def test_without_home_and_state_folder_the_error_names_what_helps(shell: Shell) -> None:
    environ = {"PATH": "/usr/bin:/bin", "HOME": "not-absolute", "OUTLAST_STATE_DIR": str(shell.state)}
    assert shell.process("ls", environ=environ).code == 0


def test_a_store_of_another_program_is_refused_and_not_touched(shell: Shell) -> None:
    shell.state.mkdir()
    database = shell.state / "outlast.db"
    database.write_bytes(b"something else entirely, of another program" * 100)
    before = database.read_bytes()
    for arguments in (("ls",), ("run", "-a", "scripted", "hello")):
        ran = shell.process(*arguments)
        assert ran.code == 5, ran
        assert len(ran.err.splitlines()) == 1
    assert database.read_bytes() == before
    database.unlink()


def test_a_state_folder_of_any_name_works(shell: Shell) -> None:
    shell.state = shell.state.parent / "with space que?ry ha#sh ünïcode \N{ROCKET} per%cent"
    shell.environ["OUTLAST_STATE_DIR"] = str(shell.state)
    assert shell.run("run", "-a", "scripted", "hello").out == "hello\n"
    assert (shell.state / "outlast.db").exists()


def test_a_state_folder_behind_a_link_is_the_same_store(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "hello")
    link = shell.state.parent / "link"
    link.symlink_to(shell.state)
    environ = {**shell.environ, "OUTLAST_STATE_DIR": str(link)}
    assert shell.run("run", "--session", "s", "again", environ=environ).code == 0
    assert shell.sessions()[0]["turns"] == 2


@pytest.mark.parametrize(
    "named", ["OUTLAST_STATE_DIR={}", "XDG_STATE_HOME={}", "OUTLAST_STORE=sqlite://{}/outlast.db"]
)
def test_a_state_folder_that_is_no_text_is_refused_before_anything_is_stored(
    shell: Shell, named: str
) -> None:
    """Its agents' folders stand in the journal, which holds text."""
    folder = os.fsdecode(os.fsencode(shell.state.parent) + b"/caf\xe9")
    name, _, value = named.format(folder).partition("=")
    environ = {key: shell.environ[key] for key in shell.environ if key != "OUTLAST_STATE_DIR"}
    ran = shell.process("run", "-a", "scripted", "hello", environ={**environ, name: value})
    assert (ran.code, ran.out) == (2, "")
    assert "the path of the store is not valid UTF-8" in ran.err
    assert "OUTLAST_STATE_DIR or OUTLAST_STORE" in ran.err
    assert not Path(folder).exists()


def test_a_workspace_that_is_no_text_is_refused(shell: Shell) -> None:
    folder = os.fsdecode(os.fsencode(shell.folder) + b"/caf\xe9")
    Path(folder).mkdir()
    ran = shell.process("run", "-a", "scripted", "--workspace", folder, "hello")
    assert ran.code == 2
    assert "the path of the folder to work in is not valid UTF-8" in ran.err
    assert shell.sessions() == []


@pytest.mark.parametrize("option", ["--key", "--session"])
def test_an_id_that_is_no_text_is_refused(shell: Shell, option: str) -> None:
    ran = shell.run("run", "--json", "-a", "scripted", option, "caf\udce9", "hello")
    assert (ran.code, ran.error["error"]) == (2, "input"), ran
    assert "ID is not valid UTF-8" in ran.error["message"]


@pytest.mark.parametrize("arguments", [("run", "-a", "scripted", "hi"), ("attach",), ("resume", "s")])
def test_a_current_folder_that_was_deleted_is_named_where_it_matters(
    shell: Shell, arguments: tuple[str, ...]
) -> None:
    script = 'cd gone && rmdir ../gone && exec "$@"'
    (shell.folder / "gone").mkdir()
    ran = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *OUTLAST, *arguments],
        cwd=shell.folder, env=shell.environ, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert ran.returncode == 2, ran
    assert ran.stderr == "outlast: the current folder is not there any more. go to another one\n"


def test_who_only_looks_needs_no_current_folder(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "hello")
    (shell.folder / "gone").mkdir()
    ran = subprocess.run(
        ["/bin/sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh", *OUTLAST, "show", "s"],
        cwd=shell.folder, env=shell.environ, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran


@pytest.mark.parametrize("limit", [5, 20])
def test_too_few_files_are_an_error_in_one_line(shell: Shell, limit: int) -> None:
    process = shell.start(
        "run", "-a", "scripted", "hello",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
    )  # fmt: skip
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    (line,) = err.splitlines()
    assert line.startswith(f"outlast: this process may open no more than {limit} files")
    assert "ulimit -n" in line
