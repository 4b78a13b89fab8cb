"""The name of an agent is given to the other real program between two runs: nothing is launched, and neither
program's home is touched, until it is given back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.agents.claude import real as claude
from tests.agents.codex import real as codex
from tests.support.processes import Finished

from outlast.records.types import AgentSessionChanged, TurnAttemptStarted, TurnFailed

pytestmark = pytest.mark.real_agent

KINDS = {
    "claude": f'model = "{claude.MODEL}"\n',
    "codex": 'sandbox = "danger-full-access"\napproval = "never"\n',
}


class Both:
    """A place where `mine` is whichever program is wanted."""

    def __init__(self, root: Path, models: tuple[claude.Model, codex.Model]) -> None:
        self.place = claude.ClaudePlace(root, models[0])
        home = root / "codex"
        home.mkdir()
        text = codex.CODEX.format(base_url=models[1].base_url, approval="never", sandbox="danger-full-access")
        (home / "config.toml").write_text(text, "utf-8")
        self.place.variables |= {"CODEX_HOME": str(home), "OPENAI_API_KEY": "dummy"}
        self.homes = {"claude": self.place.home, "codex": home}
        self._others = self.place.config.read_text("utf-8")

    def is_now(self, kind: str) -> None:
        said = f'\n[agents.mine]\nkind = "{kind}"\non_lost = "reseed"\n{KINDS[kind]}'
        self.place.config.write_text(self._others + said, "utf-8")

    def run(self, prompt: str, key: str) -> Finished:
        return self.place.call("run", "-a", "mine", "--session", "job", "--key", key, prompt)

    def files(self, kind: str) -> list[Path]:
        return sorted(self.homes[kind].rglob("*"))


@pytest.mark.parametrize(("had", "other"), [("claude", "codex"), ("codex", "claude")])
def test_the_other_program_is_not_launched(tmp_path: Path, had: str, other: str) -> None:
    """Also after a failed turn; it begins a session of its own once a person says so."""
    models = claude.Model(), codex.Model()
    with models[0], models[1]:
        both = Both(tmp_path / "place", models)
        place = both.place
        try:
            both.is_now(had)
            assert both.run("first", "one").status == 0
            assert both.run("[[err:400]]", "two").status == 1
            before, attempts = both.files(other), len(place.journal("job").bodies(TurnAttemptStarted))
            both.is_now(other)
            planned = place.call("plan", "job").stdout.decode()
            assert f"one of {had}, and mine stands for {other} now" in planned
            refused = both.run("second", "three")
            assert (refused.status, "session_mismatch" in refused.stderr) == (1, True), refused
            journal = place.journal("job")
            assert journal.bodies(TurnFailed)[-1].receipt.error.code == "session_mismatch"
            assert len(journal.bodies(TurnAttemptStarted)) == attempts
            assert {body.state for body in journal.bodies(AgentSessionChanged)} == {"bound", "confirmed"}
            assert both.files(other) == before
            both.is_now(had)
            again = both.run("third", "four")
            assert again.status == 0, again
            both.is_now(other)
            both.run("fourth", "five")
            assert place.call("retry", "job", "--fresh").status == 0
            begun = place.call("resume", "job")
            assert begun.status == 0, begun
            assert place.journal("job").bodies(AgentSessionChanged)[-1].provider == other
        finally:
            place.end()
            shutil.rmtree(tmp_path / "place", ignore_errors=True)
