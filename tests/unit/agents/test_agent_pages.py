"""What docs/agents.md says of agents is what the code does."""

import re
import runpy
from pathlib import Path

from outlast.testing.agents import ECHO

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "agents.md").read_text(encoding="utf-8")


def test_the_table_of_failures_is_current() -> None:
    current = runpy.run_path(str(DOCS / "make_failures.py"))["current"](PAGE)
    assert current == PAGE, "run `make docs` and commit docs/agents.md"


def test_the_example_is_the_program_that_the_tests_run() -> None:
    (example,) = re.findall(r"```python\n(import json\n.*?)```", PAGE, re.DOTALL)
    assert example == ECHO.read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert len(example.splitlines()) <= 20
