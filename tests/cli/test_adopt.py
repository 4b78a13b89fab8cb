"""`outlast adopt`, as a script meets it."""

import json
import subprocess
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


def thread_of(place: Shell, last: int = 1) -> Path:
    """A thread of two lines, the second with this number."""
    folder = Path(place.environ["HOME"]) / ".codex" / "sessions" / "2026" / "11" / "30"
    folder.mkdir(parents=True)
    path = folder / f"rollout-2026-11-30T03-48-42-{THREAD}.jsonl"
    head = {"ordinal": 0, "type": "session_meta", "payload": {"id": THREAD, "cwd": str(place.folder)}}
    ends: dict[str, object] = {"ordinal": last, "type": "turn_context", "payload": {}}
    path.write_text("".join(json.dumps(line) + "\n" for line in (head, ends)))
    return path


@pytest.mark.parametrize("damaged", [False, True])
def test_what_would_be_adopted_is_told_in_the_shape_that_the_page_has(place: Shell, damaged: bool) -> None:
    path = thread_of(place, last=5 if damaged else 1)
    ran = place.run("adopt", "--json", "-a", "mine", THREAD)
    (told,) = ran.lines
    assert set(told) == SHAPE
    assert (told["session"], told["adopted"], told["size"]) == (None, False, path.stat().st_size)
    assert ran.code == (2 if damaged else 0), ran
    assert bool(told["refused"]) == bool(told["damage"]) == damaged
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    described = page.partition("**`adopt --json`**")[2].partition("**`send --json`**")[0]
    assert all(f'"{name}"' in described for name in SHAPE)


def test_who_has_it_open_is_named(place: Shell) -> None:
    """Its number alone tells nobody which window to look for."""
    path = thread_of(place)
    with path.open("a") as file:
        writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file)
    try:
        ran = place.run("adopt", "-a", "mine", "--yes", THREAD)
    finally:
        writer.communicate()
    assert ran.code == 4, ran
    assert f"process {writer.pid} (cat) has it open" in ran.err


def test_a_kind_of_agent_that_keeps_nothing_cannot_be_adopted_from(shell: Shell) -> None:
    ran = shell.run("adopt", "--json", "-a", "scripted", "thread")
    assert (ran.code, ran.error["error"]) == (2, "usage"), ran


STEPS = [
    "store.admit.before_commit",
    "store.admit.after_commit",
    "provider.claim.before_write",
    "provider.claim.before_rename",
    "provider.claim.after_write",
    "provider.claim.before_write@2",
    "provider.claim.before_rename@2",
    "provider.claim.after_write@2",
    "store.append.before_commit",
    "journal.append.before",
    "journal.append.after",
    "journal.append.before@2",
    "journal.append.after@2",
]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_an_adoption_that_is_killed_is_finished_by_the_same_command(place: Shell, step: str) -> None:
    """And by that alone: another session is refused what is this one's, and at no step do two have it."""
    thread_of(place)
    faults = {"OUTLAST_FAULTS_TESTING": "1", "OUTLAST_FAULTS": f"{step}=kill"}
    adopt = ("adopt", "-a", "mine", "--session", "job", "--yes", THREAD)
    killed = place.process(*adopt, environ={**place.environ, **faults})
    assert killed.code == -9, killed
    again = place.run(*adopt)
    assert again.code == 0, again
    other = place.run("adopt", "-a", "mine", "--session", "other", "--yes", THREAD)
    assert (other.code, "it is session job's" in other.err) == (4, True), other
    assert place.run(*adopt).code == 0
    assert len(place.records("job", "AgentSessionChanged")) == 1


@pytest.mark.slow
def test_adoptions_at_once_are_no_writers_to_each_other(place: Shell) -> None:
    thread_of(place)
    running = [place.start("adopt", "-a", "mine", "--session", name, "--yes", THREAD) for name in "ab"]
    ended = sorted((each.wait(30), each.communicate()[1]) for each in running)
    assert [code for code, _ in ended] == [0, 4], ended
    assert "has it open" not in ended[1][1]
    assert "it is session" in ended[1][1]


def test_an_adoption_waits_for_an_owner_that_can_claim_it(place: Shell) -> None:
    """Whoever comes for another command, where the agent is not configured, binds nothing: of two sessions
    that adopt one thread only one has it."""
    thread_of(place)
    faults = {"OUTLAST_FAULTS_TESTING": "1", "OUTLAST_FAULTS": "provider.claim.before_write@2=kill"}
    adopt = ("adopt", "-a", "mine", "--session", "job", "--yes", THREAD)
    assert place.process(*adopt, environ={**place.environ, **faults}).code == -9
    whole = place.config.read_text()
    place.config.write_text(whole.partition("[agents.mine]")[0])
    place.run("cancel", "job")
    assert place.records("job", "AgentSessionChanged") == []
    place.config.write_text(whole)
    assert place.run(*adopt).code == 0
    other = place.run("adopt", "-a", "mine", "--session", "other", "--yes", THREAD)
    assert other.code == 4, other
