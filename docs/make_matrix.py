"""Write what the real programs did when something died into docs/agents.md. Run by `make docs`; the cells are
those of docs/agents-matrix.json, which `make matrix` writes."""

import json
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
CELLS = HERE / "agents-matrix.json"
PAGE = HERE / "agents.md"
BEGIN, END = "<!-- matrix: written by make_matrix.py -->", "<!-- end of matrix -->"
_WHO = {
    "agent": "the agent and what it started",
    "runtime": "the runtime",
    "both": "all, with shim and guard",
    "shim": "the shim",
}
_TIMES = {0: "not run", 1: "run once"}

Cell = Mapping[str, str | int | bool]


def tables(cells: list[Cell]) -> str:
    """A Markdown table for each program."""
    programs = dict.fromkeys((str(cell["program"]), str(cell["version"])) for cell in cells)
    return "\n\n".join(_table(name, version, cells) for name, version in programs)


def _table(name: str, version: str, cells: list[Cell]) -> str:
    of = {(cell["when"], cell["who"]): cell for cell in cells if cell["program"] == name}
    moments = list(dict.fromkeys(str(cell["when"]) for cell in cells if cell["program"] == name))
    rows = [f"| {name} {version}, killed | {' | '.join(_WHO.values())} |", "|---" * (len(_WHO) + 1) + "|"]
    rows += [f"| {when} | {' | '.join(_words(of[when, who]) for who in _WHO)} |" for when in moments]
    return "\n".join(rows)


def _words(cell: Cell) -> str:
    words = [f"{cell['turn']}", _TIMES.get(int(cell["ran"]), f"run {cell['ran']} times")]
    if int(cell["told"]) >= 0 and cell["turn"] not in ("done", "given again, done"):
        words.append({1: "told once"}.get(int(cell["told"]), f"told {cell['told']} times"))
    if cell["session"] != "same":
        words.append("another session, and says so" if cell["session"] == "verdict" else "another session")
    return "; ".join(words)


def current(page: str) -> str:
    """`page` with the tables as they should be."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"a page has lost the lines {BEGIN} and {END}")
    cells: list[Cell] = json.loads(CELLS.read_text(encoding="utf-8"))
    return f"{before}{BEGIN}\n{tables(cells)}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
