"""What the model of a session knows of the journal it wrote."""

from __future__ import annotations

from dataclasses import dataclass, field

from outlast.records import types as t
from outlast.records.envelope import Cursor, Record
from outlast.store.contract import Row


@dataclass(slots=True)
class ExpectedEffect:
    """An effect around a turn."""

    effect: str
    replay: t.EffectReplay
    bodies: int = 0
    outcome: str = ""
    by: str = ""


@dataclass(slots=True)
class ExpectedTurn:
    """An input from its acceptance on, as the model of `journals` sees it."""

    request: str
    order: int
    """Its place in the order of acceptance."""
    on_interrupt: t.OnInterrupt | None
    index: int = 0
    attempts: int = 0
    tries: int = 0
    """Attempts for which its input was reserved."""
    since_progress: int = 0
    retries: int = 0
    """By a policy, since it last made progress or a person opened it."""
    delayed: bool = False
    mode: str = "first"
    attempt: t.TurnAttemptStarted | None = None
    reserved: bool = False
    reserved_seq: int = 0
    given: bool = False
    """It was reserved for the agent to join the running turn, and waits until that is decided."""
    calls: list[str] = field(default_factory=list)
    before_parked: str = ""
    """The outcome that a skip leaves: that of the end before it was parked, else `cancelled`."""
    owed: list[t.PlannedEffect] = field(default_factory=list)
    host_done: bool = False
    effects: list[ExpectedEffect] = field(default_factory=list)
    """Of its newest host step that was done."""

    @property
    def left(self) -> bool:
        """Whether there is an effect that a person could settle."""
        return self.host_done and any(effect.outcome != "done" for effect in self.effects)


@dataclass(slots=True)
class Expected:
    """What must be true of the session after the journal, by books kept apart from the fold's."""

    epoch: int = 0
    queue: list[ExpectedTurn] = field(default_factory=list)
    running: ExpectedTurn | None = None
    parked: dict[str, ExpectedTurn] = field(default_factory=dict)
    unsuccessful: ExpectedTurn | None = None
    outcome: str = ""
    """Of `unsuccessful`: failed, interrupted or cancelled."""
    gates: dict[str, str] = field(default_factory=dict)
    """Open gate -> its turn."""
    turns: int = 0
    held: bool = False
    stopped: bool = False
    restoring: bool = False
    provider_session: str | None = None
    confirmed: bool = False
    decided: str | None = None
    untold: int | None = None
    captured: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    """What was accepted as it is, until it is lost or captured."""
    """Pieces of the newest capture."""
    launched: tuple[str | None, bool] | None = None
    """The provider session that the newest agent life was started with, and whether that was confirmed."""
    cursor: Cursor | None = None
    outcomes: dict[str, str] = field(default_factory=dict)
    """Every accepted input that was not joined to a turn -> what became of it, as `show` calls it."""


@dataclass(frozen=True, slots=True)
class GeneratedJournal:
    session: str
    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    ends: tuple[int, ...]
    """Seqs at which an atomic batch ends: where a crash can cut the journal."""
    expected: Expected
