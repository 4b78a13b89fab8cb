"""The page of the doctor's findings is whole: every check that can find something wrong has a row that says
what mends it, and every command in it is one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import outlast.cli
from outlast.cli.app import COMMANDS

SOURCE = Path(outlast.cli.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([a-z]+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)


def findings() -> set[tuple[str, str]]:
    """(check, level) of every finding that the code makes; a level that it decides as it runs counts as a
    fault."""
    found = set()
    for path in (*SOURCE.glob("check_*.py"), SOURCE / "doctor.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                check, level = node.args[0], node.args[1]
                checks = [check.value] if isinstance(check, ast.Constant) else constants(check, path)
                said = level.value if isinstance(level, ast.Constant) else "fault"
                found |= {(str(name), str(said)) for name in checks}
    return found


def constants(expression: ast.expr, path: Path) -> list[str]:
    """The names that a check's variable may have: texts of a choice in the same file."""
    assert isinstance(expression, ast.Name), ast.dump(expression)
    tree = ast.parse(path.read_text("utf-8"))
    chosen = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == expression.id
    ]
    return [
        str(node.value)
        for value in chosen
        if isinstance(value, ast.IfExp)
        for node in (value.body, value.orelse)
        if isinstance(node, ast.Constant)
    ]


def test_every_check_that_finds_something_wrong_has_its_row() -> None:
    wrong = {check for check, level in findings() if level in ("fault", "warning")}
    assert len(wrong) > 10
    assert {check for check, _, _ in ROWS} == wrong


def test_the_shape_of_its_json_names_every_check() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    named = page.partition("`check` is one of")[2].partition(".")[0]
    assert set(re.findall(r"`([a-z]+)`", named)) == {check for check, _ in findings()}


def test_every_row_says_what_mends_it_by_commands_that_there_are() -> None:
    assert ROWS
    assert [row for row in ROWS if not row[2].strip()] == []
    named = re.findall(r"`outlast ([a-z]+)", PAGE)
    assert named
    assert set(named) <= set(COMMANDS)
