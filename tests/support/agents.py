"""Agents as tests of the runtime need them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outlast.agents import Command
from outlast.agents import command_wire as wire
from outlast.agents.command_fold import CommandFold
from outlast.agents.contract import (
    AgentEvent,
    Capabilities,
    CloseStdin,
    Fold,
    FoldContext,
    InputLine,
    Wanted,
)
from outlast.agents.provider_state import StateFile, StatePlace, StateSummary

_SERVES = """
import json, os, signal, sys, time
from pathlib import Path
def write(data):
    while data: data = data[os.write(1, data):]
def say(kind, **fields): write(json.dumps({"type": kind, **fields}).encode() + b"\\n")
def done(text="well"):
    say("message", role="assistant", text=text)
    say("done", stop_reason="end_turn")
def until(name):
    while not os.path.exists(name): time.sleep(0.005)
for line in sys.stdin.buffer:
    exec("\\n".join(part["text"] for part in json.loads(line)["input"]), globals())
"""


@dataclass(frozen=True)
class Keeping(Command):
    """A program with one file for each session."""

    home: Path = Path()

    def state_home(self, environ: Mapping[str, str]) -> Path:
        return self.home

    def find_state(self, place: StatePlace) -> StateFile | None:
        path = self.home / place.provider_session
        return StateFile(path, path.name) if os.path.lexists(path) else None

    def state_path(self, place: StatePlace, name: str) -> Path:
        return self.home / name

    def state_damage(self, path: Path, provider_session: str) -> str:
        return "it has a NUL" if b"\0" in path.read_bytes() else ""

    def summary(self, path: Path, provider_session: str) -> StateSummary:
        return StateSummary()


class ManyTurns(Command):
    """A program whose process stays after a turn."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(many_turns=True)


class Serving(ManyTurns):
    """A program that takes one prompt after another, each a piece of Python that it executes. There are
    `say(kind, **fields)`, `done(text)`, `write(bytes)` and `until(file)` for it."""

    def fold(self, context: FoldContext, state: bytes | None = None) -> Fold:
        return _Serving(context, stdin="open", require_nonce=False, state=state)


def serving(kind: type[Serving] = Serving, **settings: Any) -> Serving:
    """Such a program; it runs in the workspace."""
    return kind((sys.executable, "-I", "-S", "-c", _SERVES), stdin="open", **settings)


class _Serving(CommandFold):
    @property
    def ending(self) -> bool:
        return self._state.eof

    def apply_in(self, line: bytes, seq: int) -> list[AgentEvent]:
        if self._state.ended and not isinstance(wire.decode_input(line), wire.Answer | None):
            self._state = type(self._state)(provider_session=self._state.provider_session)
        return super().apply_in(line, seq)

    def next(self, wanted: Wanted) -> InputLine | CloseStdin | None:
        if self._state.ended and not wanted.cancel and not self._state.eof:
            fresh = wanted.prompt is not None and wanted.prompt.turn != self._state.turn
            return self._prompt(wanted.prompt) if fresh and wanted.prompt is not None else None
        return super().next(wanted)
