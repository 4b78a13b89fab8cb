"""How `outlast` starts: what it imports, what it lists, how it fails."""

import json
import subprocess
import sys

import pytest
from tests.cli.support import Shell

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
