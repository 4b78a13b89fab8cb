"""What an error advises can be done as it is written: it names the session, and the thing that is wrong."""

from __future__ import annotations

import ast
import errno
import re
from pathlib import Path

import pytest
from tests.cli.support import Shell

import outlast
from outlast.errors import OutlastError, StoreAccessError, StoreFullError, naming
from outlast.store.sqlite.layout import unwritable

SOURCE = Path(outlast.__file__).parent
_SESSION = (
    "answer|attach|cancel|close|kill|plan|repair|resume|retry|seal|send|settle|show|skip|tail|verify|wait"
)
BARE = re.compile(rf"`outlast ({_SESSION})( --(?!all|database)[a-z-]+)*`")


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("`outlast verify` says more", "`outlast verify s` says more"),
        ("`outlast resume --take-over` ends it", "`outlast resume s --take-over` ends it"),
        ("`outlast retry` or `outlast skip`", "`outlast retry s` or `outlast skip s`"),
        ("`outlast verify --all`", "`outlast verify --all`"),
        ("`outlast repair --database`", "`outlast repair --database`"),
        ("`outlast attach other`", "`outlast attach other`"),
        ("`outlast doctor` looks", "`outlast doctor` looks"),
    ],
)
def test_a_command_that_lacks_its_session_is_given_it(hint: str, told: str) -> None:
    assert OutlastError("", hint=hint, session_id="s").hint == told
    assert OutlastError("", hint=hint).hint == hint
    assert "'a session'" in naming("`outlast show`", "a session")


def test_no_error_of_the_source_advises_a_command_without_its_session() -> None:
    """One that knows no session writes ID, so that it is seen that one is needed. What fails a turn goes into
    its receipt, beside which the session's own next step is shown."""
    wrong = []
    for file in {*SOURCE.rglob("*.py")} - {*(SOURCE / "turns").glob("*.py")}:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and not {"session_id", "pid"} & {kw.arg for kw in node.keywords}:
                given = [kw.value for kw in node.keywords if kw.arg == "hint"]
                said = [
                    str(part.value)
                    for hint in given
                    for part in ast.walk(hint)
                    if isinstance(part, ast.Constant)
                ]
                wrong += [f"{file.name}:{node.lineno}: {text}" for text in said if BARE.search(text)]
    assert wrong == []


def test_the_list_of_commands_of_a_session_is_that_of_the_command_line() -> None:
    import click

    from outlast.cli.app import COMMANDS, cli

    context = click.Context(cli)
    takes = {
        name
        for name in COMMANDS
        if (command := cli.get_command(context, name)) is not None
        and any(isinstance(each, click.Argument) and each.name == "session" for each in command.params)
    }
    assert set(_SESSION.split("|")) == takes


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_what_lacks_space_is_told_to_make_some(tmp_path: Path, number: int) -> None:
    error = unwritable(tmp_path, OSError(number, "refused"))
    assert type(error) is StoreFullError
    assert "space" in (error.hint or "") or number == errno.EROFS


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ENOENT, errno.EIO, errno.EMFILE])
def test_what_may_not_be_written_is_not_told_to_free_space(tmp_path: Path, number: int) -> None:
    error = unwritable(tmp_path, OSError(number, "refused", str(tmp_path / "witness")))
    assert (type(error), error.code) == (StoreAccessError, "store_access")
    assert "space" not in (error.hint or "")
    assert f"{tmp_path / 'witness'}: refused" in error.message, "the file that was refused is named"


def test_a_place_where_no_store_can_be_made_is_no_full_disk(shell: Shell) -> None:
    shell.environ["OUTLAST_STORE"] = "sqlite:///proc/nowhere/outlast.db"
    ran = shell.run("run", "-a", "scripted", "--json", "hello")
    assert (ran.code, ran.error["error"]) == (1, "store_access"), ran
    assert "OUTLAST_STATE_DIR" in ran.error["hint"]
