"""`outlast adopt`, as a script meets it."""

import json
from pathlib import Path

import pytest
from tests.cli.support import Shell

THREAD = "01a22a91-b5b5-77c1-a870-4335a64da083"
SHAPE = {
    *("provider", "provider_session", "path", "size", "workspace", "title", "turns", "said", "damage"),
    *("refused", "session", "adopted"),
}


@pytest.fixture
def place(shell: Shell) -> Shell:
    """With a codex that is never started."""
    with shell.config.open("a") as file:
        file.write('[agents.mine]\nkind = "codex"\ncommand = ["/bin/false"]\n')
    return shell


@pytest.mark.parametrize("more", [(), ("--yes",)])
def test_a_session_that_the_agent_does_not_have_is_not_found(place: Shell, more: tuple[str, ...]) -> None:
    ran = place.run("adopt", "--json", "-a", "mine", "no-such-thread", *more)
    assert (ran.code, ran.error["error"], ran.out) == (3, "session_not_found", ""), ran
    assert "codex has no session 'no-such-thread'" in ran.error["message"]
    assert place.sessions() == []


@pytest.mark.parametrize("damaged", [False, True])
def test_what_would_be_adopted_is_told_in_the_shape_that_the_page_has(place: Shell, damaged: bool) -> None:
    folder = Path(place.environ["HOME"]) / ".codex" / "sessions" / "2026" / "11" / "30"
    folder.mkdir(parents=True)
    path = folder / f"rollout-2026-11-30T03-48-42-{THREAD}.jsonl"
    head = {"ordinal": 0, "type": "session_meta", "payload": {"id": THREAD, "cwd": str(place.folder)}}
    last: dict[str, object] = {"ordinal": 5 if damaged else 1, "type": "turn_context", "payload": {}}
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, last)))
    ran = place.run("adopt", "--json", "-a", "mine", THREAD)
    (told,) = ran.lines
    assert set(told) == SHAPE
    assert (told["session"], told["adopted"], told["size"]) == (None, False, path.stat().st_size)
    assert ran.code == (2 if damaged else 0), ran
    assert bool(told["refused"]) == bool(told["damage"]) == damaged
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    described = page.partition("**`adopt --json`**")[2].partition("**`send --json`**")[0]
    assert all(f'"{name}"' in described for name in SHAPE)


def test_a_kind_of_agent_that_keeps_nothing_cannot_be_adopted_from(shell: Shell) -> None:
    ran = shell.run("adopt", "--json", "-a", "scripted", "thread")
    assert (ran.code, ran.error["error"]) == (2, "usage"), ran
