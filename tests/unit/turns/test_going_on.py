"""Whether a turn is gone on with: by what the agent's own transcript holds, else by what it was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from outlast.agents import Claude, Codex, Command
from outlast.agents.claude.requests import prompt_key
from outlast.agents.transcript import SentPrompt
from outlast.keep import Claim
from outlast.records import types as t
from outlast.state.model import State
from outlast.testing.journals import JournalBuilder
from outlast.turns.going_on import goes_on
from outlast.turns.hosting import Hosting

THREAD = "01a22a91-d98b-7e62-bfef-3d9e29fc6bfd"


@dataclass(frozen=True)
class Holding(Command):
    holds: bool | None = None

    def holds_prompt(
        self, prompt: SentPrompt, provider_session: str, workspace: str, environ: Mapping[str, str]
    ) -> bool | None:
        if self.holds is None and workspace == "unreadable":
            raise PermissionError
        return self.holds


def state(*, given: bool) -> State:
    session = t.AgentSessionChanged(provider="p", provider_session="thr", state="bound", source="observed")
    journal = JournalBuilder().accept("a").start("a").attempt("a").add(session, turn="a")
    if given:
        journal.reserve("a")
    journal.interrupt("a").add(t.TurnRetried(by="me", mode="continue"), turn="a")
    return journal.attempt("a", 2, "h").state()


def hosting(workspace: str = "/w") -> Hosting:
    return Hosting("s", workspace, Path("/agents"), Claim("store", "lineage", 1, "me"), "m", b"", {})


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("holds", [True, False, None])
async def test_the_agents_own_transcript_comes_first(given: bool, holds: bool | None) -> None:
    """Killed before it had stored the prompt, a program would go on with what it does not know."""
    found = await goes_on(state(given=given), "a", Holding(["x"], holds=holds), hosting())
    assert found == (given if holds is None else holds)


async def test_a_transcript_that_cannot_be_read_leaves_it_to_the_journal() -> None:
    assert await goes_on(state(given=True), "a", Holding(["x"]), hosting("unreadable"))


async def test_a_turn_that_is_to_be_given_again_is_not_gone_on_with() -> None:
    again = JournalBuilder().running("a").interrupt("a").add(t.TurnRetried(by="me", mode="again"), turn="a")
    assert not await goes_on(again.attempt("a", 2, "h").state(), "a", Holding(["x"], holds=True), hosting())


def test_claude_holds_a_prompt_of_any_attempt(tmp_path: Path) -> None:
    path = tmp_path / "projects" / "-w" / f"{THREAD}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"type":"user","uuid":"{prompt_key(THREAD, "a", 2)}"}}\n')
    environ = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    found = [Claude().holds_prompt(SentPrompt("a", n), THREAD, "/w", environ) for n in (1, 2, 3)]
    assert found == [False, True, True]
    assert Claude().holds_prompt(SentPrompt("a", 1), THREAD.replace("a", "b"), "/w", environ) is None


def test_codex_that_has_no_rollout_tells_nothing(tmp_path: Path) -> None:
    environ = {"CODEX_HOME": str(tmp_path)}
    assert Codex().holds_prompt(SentPrompt("a", 1), THREAD, "/w", environ) is None
