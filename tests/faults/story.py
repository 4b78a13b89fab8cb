"""A short story whose every command may meet a fault: two inputs, a question, an answer, two ends.

It is told to the end whatever is refused on the way. What a command refuses it has to explain; what holds it
up it has to name; and once the disk takes writes again, the same command has to do its work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.support.journals import Journal
from tests.support.place import Place
from tests.support.processes import Child, Finished, until

from outlast.errors import OutlastError
from outlast.records.types import TurnFailed, TurnInterrupted

ASKS = "[[effect:{turn}]][[gate:g:go on?:yes,no]][[say:finished {turn}]]"
SAYS = "[[effect:{turn}]][[messages:20]][[say:finished {turn}]]"
TRIES = 4
"""Of one command."""


@dataclass
class Story:
    """Told at `place` with the plan `faults`, which raises nothing any more once the file `space` exists."""

    place: Place
    faults: str
    space: Path
    refused: list[Finished] = field(default_factory=list)
    """Commands that have failed, each with its reason."""
    waited: list[str] = field(default_factory=list)
    """What commands have said while they waited."""

    def tell(self) -> Journal:
        """To its end; the journal then."""
        run = ("run", "-a", "asking", "--session", "job", "--key", "one", "--json", ASKS)
        self._command(*run)
        self._command("send", "job", "--key", "two", "--json", SAYS)
        for _ in range(2 * TRIES):
            journal = self.place.journal("job")
            for gate in list(journal.state.gates):
                self._command("answer", "job", gate, "yes", "--json")
            for turn in self._to_retry(journal):
                self._command("retry", "job", turn, "--json")
            if not (journal.state.open_turns or journal.state.queue or self._waits()):
                return journal
            self._command("resume", "job", "--json")
        raise AssertionError(f"the story never ends: {self.place.journal('job').types}; {self.refused}")

    def _waits(self) -> bool:
        return bool(self.place.ask(lambda client: client.store.pending("job")))

    def _to_retry(self, journal: Journal) -> list[str]:
        """Turns that failed before their agent had done anything."""
        last: dict[str, str] = {}
        for record in journal.of("TurnFailed", "TurnInterrupted", "TurnRetried", "TurnDone"):
            last[record.turn or ""] = record.type
        failed = [turn for turn, ended in last.items() if ended in ("TurnFailed", "TurnInterrupted")]
        return [turn for turn in failed if turn not in self.place.effects]

    def _command(self, *arguments: str) -> None:
        for _ in range(TRIES):
            child = self.place.start(*arguments, faults=self.faults)
            until(lambda c=child: not c.running or _has_said_why(c), f"{arguments} ends, or says why not")  # type: ignore[misc]
            if child.running:
                self.waited.append(_notices(child))
                self.space.touch()
            ended = child.wait()
            # 6: a question is open. A turn that failed has its reason in the journal.
            if ended.status in (0, 6) or (ended.status == 1 and ended.outcomes and not ended.errors):
                return
            self.refused.append(ended)
            self.space.touch()
        raise AssertionError(f"{arguments} is refused for ever: {self.refused[-1]}")


def _has_said_why(child: Child) -> bool:
    return '"notice"' in _notices(child)


def _notices(child: Child) -> str:
    return child.err.read_text("utf-8", "replace")


def assert_nothing_lost_or_doubled(story: Story, journal: Journal) -> None:
    """Every input was carried out once, and every refusal says what, why and what to do."""
    place = story.place
    journal.assert_every_input_ends_once()
    assert len(place.effects) == len(set(place.effects)), place.effects
    assert set(place.effects) == {"one", "two"}, (place.effects, journal.types, story.refused)
    for body in journal.bodies(TurnFailed):
        assert body.receipt.failed_phase == "host_launch", body
        assert body.receipt.error.message
    for cut in journal.bodies(TurnInterrupted):
        assert cut.evidence, cut
    for refused in story.refused:
        assert refused.errors, refused
        error = refused.errors[-1]
        assert error["message"], refused
        assert error["hint"], refused
        assert error["error"] != "internal", refused
        assert "Traceback" not in refused.stderr, refused


def session_is_whole(place: Place) -> bool:
    """Whether the journal can be read whole; False where there is none yet."""
    try:
        return bool(place.journal("job").records)
    except OutlastError:
        return False
