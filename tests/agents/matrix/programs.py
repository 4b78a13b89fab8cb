"""The real programs of the matrix, each in a place of its own with the strict model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.agents.codex.real import CodexPlace, Model

from outlast.agents.codex.binary import find_codex, version_of
from outlast.testing.scripted_model import Conversation, Reply

SLOWLY = "say it slowly"
"""The model stops in the middle of its final text to this, until the test lets it go on."""


class HoldingModel(Model):
    """Holds what the test holds: see THINK, and SLOWLY."""

    def _reply(self, conversation: Conversation) -> Reply:
        reply = super()._reply(conversation)
        held = SLOWLY in conversation.last_user_text and not reply.calls
        return replace(reply, halfway=self._thinks) if held else reply


@dataclass(frozen=True)
class Program:
    """`agent` may do all, `asks` asks before it runs `command_that_asks(CMD)`."""

    name: str
    agent: str
    asks: str
    version: Callable[[], str]
    place: Callable[[Path], AbstractContextManager[CodexPlace]]

    def prompt(self, command: str, *, asks: bool) -> str:
        """A prompt to which the model answers with one call of this command."""
        return f"escalate {command}" if asks else f"[[tool:{command}]]"


@contextmanager
def _codex_place(root: Path) -> Iterator[CodexPlace]:
    model = HoldingModel()
    with model:
        place = CodexPlace(root, model)
        try:
            yield place
            place.assert_nothing_left()
        finally:
            place.end()


CODEX = Program(
    name="codex",
    agent="codex",
    asks="careful",
    version=lambda: version_of(find_codex(None, os.environ)),
    place=_codex_place,
)

PROGRAMS = (CODEX,)
