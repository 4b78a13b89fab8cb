"""Write the table of failure kinds in docs/agents.md from the taxonomy in the code. Run by `make docs`."""

from pathlib import Path

from outlast.agents.failure import TAXONOMY, Kind
from outlast.turns.retrying import in_words

PAGE = Path(__file__).with_name("agents.md")
BEGIN, END = "<!-- failures: written by make_failures.py -->", "<!-- end of failures -->"


def table() -> str:
    """The taxonomy as a Markdown table."""
    rows = ["| code | what happened | recovery | by itself | what to do |", "|---|---|---|---|---|"]
    rows += [_row(kind) for kind in TAXONOMY.values()]
    return "\n".join(rows)


def current(page: str) -> str:
    """`page` with the table as it should be."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"docs/agents.md has lost the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _row(kind: Kind) -> str:
    recovery = f"`{kind.recovery}`" if kind.recovery else "none"
    return f"| `{kind.code}` | {kind.sentence} | {recovery} | {_by_itself(kind)} | {kind.next_step} |"


def _by_itself(kind: Kind) -> str:
    if kind.parks:
        return "parked, the queue is held"
    policy = kind.retry
    if policy is None:
        return ""
    return f"up to {policy.attempts} retries, after {policy.first:g} s to {in_words(policy.longest)}"


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
