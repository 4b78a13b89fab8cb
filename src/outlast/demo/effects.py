"""The effects file: one line per step that was really done. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(r"(?P<turn>\S+) step (?P<step>\d+) agent (?P<agent>\d+)")


@dataclass(frozen=True, slots=True)
class Effect:
    """Step `step` of `turn`, done by the process `agent`."""

    turn: str
    step: int
    agent: int


@dataclass(frozen=True, slots=True)
class Effects:
    """What the file holds, in its order; `strange` are lines that no step writes."""

    done: tuple[Effect, ...]
    strange: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        return len(self.done) + len(self.strange)

    def of(self, turn: str) -> list[Effect]:
        return [effect for effect in self.done if effect.turn == turn]


def parse(text: str) -> Effects:
    """Read the whole file. Raises nothing: what is no effect is `strange`."""
    done, strange = [], []
    for line in _lines(text):
        found = _LINE.fullmatch(line)
        if found is None:
            strange.append(line)
        else:
            done.append(Effect(found["turn"], int(found["step"]), int(found["agent"])))
    return Effects(tuple(done), tuple(strange))


def _lines(text: str) -> Iterable[str]:
    return text.removesuffix("\n").split("\n") if text else ()
