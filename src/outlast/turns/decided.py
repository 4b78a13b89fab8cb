"""What people have decided and no owner has carried out yet: the commands that wait in the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from outlast.errors import InvalidRecordError
from outlast.records.agent_state import LostChoice
from outlast.store.contract import Entry
from outlast.turns.requests import AnswerRequest, SettleRequest, StopRequest, TurnRequest, decode


class WaitingCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command in the inbox, as `show --json` has it. `by` gave it; `turn`, or `gate` and `choice`, say
    what it is about; `effect` and `outcome` what a settle says, `session` what a retry does about the agent's
    own session."""

    request_id: str
    command: str
    turn: str | None = None
    gate: str | None = None
    choice: str | None = None
    effect: str | None = None
    outcome: Literal["done", "absent"] | None = None
    session: LostChoice | None = None
    by: str | None = None

    @property
    def typed(self) -> str:
        """As it is typed, with whole ids."""
        said = [self.command, self.gate or self.turn, self.choice, self.effect]
        if self.outcome is not None:
            said.append("--done" if self.outcome == "done" else "--not-done")
        if self.session is not None:
            said.append(f"--{self.session.replace('_', '-')}")
        return " ".join(filter(None, said))


def waiting_commands(pending: Sequence[Entry]) -> list[WaitingCommand]:
    """Those among `pending`, in their order."""
    return [_command(entry) for entry in pending if entry.kind != "input"]


def waiting_answers(pending: Sequence[Entry]) -> dict[str, WaitingCommand]:
    """By gate, the first answer to it among `pending`: that one counts."""
    found: dict[str, WaitingCommand] = {}
    for command in waiting_commands(pending):
        if command.gate is not None:
            found.setdefault(command.gate, command)
    return found


def _command(entry: Entry) -> WaitingCommand:
    """Of one that cannot be read, only what it is: its owner will refuse it."""
    told = WaitingCommand(request_id=entry.request_id, command=entry.kind, by=entry.actor)
    try:
        match entry.kind:
            case "answer":
                said = decode(AnswerRequest, entry.body)
                by = said.by or entry.actor
                return msgspec.structs.replace(told, gate=said.gate, choice=said.choice, by=by)
            case "retry" | "skip":
                asked = decode(TurnRequest, entry.body)
                return msgspec.structs.replace(told, turn=asked.turn, session=asked.session)
            case "settle":
                word = decode(SettleRequest, entry.body)
                return msgspec.structs.replace(told, turn=word.turn, effect=word.effect, outcome=word.outcome)
            case "cancel" | "kill":
                return msgspec.structs.replace(told, turn=decode(StopRequest, entry.body).turn)
            case _:
                return told
    except InvalidRecordError:
        return told
