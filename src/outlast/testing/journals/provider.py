"""The provider's own session in generated journals: bound, captured, lost, decided, put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from outlast.records import agent_state as a
from outlast.records import types as t
from outlast.testing.journals.expected import ExpectedTurn
from outlast.testing.journals.steers import Steers


class ProviderStates(Steers):
    """Moves that say what becomes of the provider's session."""

    def _provider_moves(self, turn: ExpectedTurn | None) -> Iterator[Callable[[], None]]:
        if self.expected.provider_session is None:
            return
        yield partial(self._capture, partial_=turn is not None)
        if turn is not None:
            yield partial(self._change, turn)
            return
        yield self._decide
        if self.expected.captured:
            yield self._put_back

    def _bind(self, turn: ExpectedTurn) -> None:
        e = self.expected
        e.provider_session, e.confirmed = self._name("thread"), False
        e.untold = 0 if e.decided == "reseed" else None
        e.decided = None
        self._write(self._of_output(self._changed("bound"), turn))

    def _change(self, turn: ExpectedTurn) -> None:
        """The session that is bound is confirmed, or lost."""
        if self._pick(3):
            self.expected.confirmed, self.expected.untold = True, None
            self._write(self._of_output(self._changed("confirmed"), turn))
        else:
            self.expected.accepted = []
            self._write(self._of_output(self._changed("lost"), turn))

    def _changed(self, state: str) -> t.AgentSessionChanged:
        return t.AgentSessionChanged(
            provider="agent",
            provider_session=self.expected.provider_session or "",
            state=state,  # type: ignore[arg-type]
            source="observed",
            reason="no such thread" if state == "lost" else "",
        )

    def _capture(self, *, partial_: bool) -> None:
        """One or two pieces more, or all in one."""
        e = self.expected
        kept = (e.accepted or e.captured) if self._pick(2) else []
        pieces, accepted = [*kept, self._name("piece")], not self._pick(4)
        if accepted:
            e.accepted = pieces
        else:
            e.captured, e.accepted = pieces, []
        captured = a.AgentStateCaptured(
            provider="agent",
            provider_session=e.provider_session or "",
            name="sessions/thread.jsonl",
            pieces=[a.StatePiece(digest=name, size=7) for name in pieces],
            through_seq=len(self._rows),
            version="1.0",
            partial=partial_,
            accepted=accepted,
        )
        self._write(self._of_loop(captured))

    def _decide(self) -> None:
        choices: list[a.LostChoice] = ["fresh", "reseed", "put_back"]
        self.expected.decided = choices[self._pick(len(choices))]
        decided = a.AgentSessionDecided(
            provider_session=self.expected.provider_session or "", choice=self.expected.decided, by="alice"
        )
        self._write(self._of_loop(decided))

    def _put_back(self) -> None:
        e = self.expected
        e.untold = len(self._rows)
        e.decided = None if e.decided == "put_back" else e.decided
        restored = a.AgentStateRestored(
            provider="agent", provider_session=e.provider_session or "", through_seq=e.untold, reason="gone"
        )
        self._write(self._of_loop(restored))
