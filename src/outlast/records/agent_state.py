"""Records of what a provider keeps of its session: captured, put back, given up."""

from __future__ import annotations

from typing import Literal

from outlast.records.types import Body, Part

LostChoice = Literal["fresh", "reseed", "put_back", "as_is"]
"""What is done about a provider's session that cannot be resumed as it was: a new one, a new one that is told
what happened so far, the captured state in the place of what is there, or what is there."""

BY_ON_LOST = "on_lost"
BY_UNCONFIRMED = "it was never confirmed"
BY_ITSELF = frozenset({BY_ON_LOST, BY_UNCONFIRMED})
"""Who decides without a person."""


class StatePiece(Part, frozen=True, kw_only=True):
    """A blob with `size` bytes of the file."""

    digest: str
    size: int


class AgentStateCaptured(Body, frozen=True, kw_only=True):
    """The provider's own transcript, up to its last whole line, is in the store: its pieces one after the
    other. It replaces the loop's earlier capture."""

    provider: str
    provider_session: str
    name: str
    """Of its file, as the adapter finds its place by."""
    pieces: list[StatePiece]
    through_turn: str | None = None
    """The newest turn that is whole in it; None where none is."""
    through_seq: int = 0
    """The record up to which the journal is told in it."""
    version: str = ""
    """Of the program that had written it."""
    partial: bool = False
    """It was taken while a turn ran, and holds the beginning of that."""
    damage: str = ""
    """What was known to be wrong with it, and accepted."""
    accepted: bool = False
    """A person wants it resumed as it is, and the agent has done no turn on it yet: what was captured before
    is kept until then, to be put back where the agent does not take this."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(piece.size for piece in self.pieces)


class AgentStateRestored(Body, frozen=True, kw_only=True):
    """The captured transcript was put back, for the provider to resume; or what is there was found to end
    where that does, though the agent had worked on more."""

    provider: str
    provider_session: str
    through_turn: str | None = None
    through_seq: int = 0
    """The agent is told what the journal has after it."""
    reason: str = ""
    kept: str = ""
    """Where the file that was in its place is kept; empty where there was none."""


class AgentSessionDecided(Body, frozen=True, kw_only=True):
    """What becomes of the loop's provider session, decided by a person or by the agent's `on_lost`."""

    provider_session: str
    choice: LostChoice
    by: str
