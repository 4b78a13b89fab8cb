"""The real programs of the matrix, each in a place of its own with the strict model."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from tests.agents.claude import real as claude
from tests.agents.codex import real as codex

from outlast.agents.claude import binary as claude_binary
from outlast.agents.codex import binary as codex_binary
from outlast.testing.scripted_model import Conversation, Reply

AgentPlace: TypeAlias = codex.CodexPlace | claude.ClaudePlace

SLOWLY = "say it slowly"
"""The model stops in the middle of its final text to this, until the test lets it go on."""


@dataclass(frozen=True)
class Program:
    """A real agent. `agent` may do all, `asks` asks before it runs what `asking(COMMAND)` makes the model
    want; `kill` is kill -9 of it and all that it has started, its shim and guard live on."""

    name: str
    agent: str
    asks: str
    asking: Callable[[str], str]
    version: Callable[[], str]
    place: Callable[[Path, bool], AbstractContextManager[AgentPlace]]
    """In a folder; whether it is to ask."""

    def pid(self, place: AgentPlace) -> int:
        """Of the program itself, once it lives."""
        return place.codex if isinstance(place, codex.CodexPlace) else place.claude

    def kill(self, place: AgentPlace) -> None:
        """kill -9 of the program and all that it has started; its shim and guard live on."""
        if isinstance(place, codex.CodexPlace):
            place.kill_codex()
        else:
            place.kill_claude()


def _held(reply: Reply, conversation: Conversation, goes_on: threading.Event) -> Reply:
    held = SLOWLY in conversation.last_user_text and not reply.calls
    return replace(reply, halfway=goes_on) if held else reply


class _CodexModel(codex.Model):
    def _reply(self, conversation: Conversation) -> Reply:
        return _held(super()._reply(conversation), conversation, self._thinks)


class _ClaudeModel(claude.Model):
    def _reply(self, conversation: Conversation) -> Reply:
        return _held(super()._reply(conversation), conversation, self._thinks)


@contextmanager
def _codex_place(root: Path, asks: bool) -> Iterator[AgentPlace]:
    model = _CodexModel()
    with model:
        yield from _until_nothing_is_left(codex.CodexPlace(root, model))


@contextmanager
def _claude_place(root: Path, asks: bool) -> Iterator[AgentPlace]:
    model = _ClaudeModel()
    with model:
        place = claude.ClaudePlace(root, model)
        if asks:
            place.write_settings({})
        yield from _until_nothing_is_left(place)


def _until_nothing_is_left(place: AgentPlace) -> Iterator[AgentPlace]:
    try:
        yield place
        place.assert_nothing_left()
    finally:
        place.end()


PROGRAMS = (
    Program(
        name="codex",
        agent="codex",
        asks="careful",
        asking=lambda command: f"escalate {command}",
        version=lambda: codex_binary.version_of(codex_binary.find_codex(None, os.environ)),
        place=_codex_place,
    ),
    Program(
        name="Claude Code",
        agent="claude",
        asks="claude",
        asking=lambda command: f"[[tool:{command}]]",
        version=lambda: claude_binary.version_of(claude_binary.find_claude(None, os.environ)),
        place=_claude_place,
    ),
)
