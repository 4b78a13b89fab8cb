"""A program that embeds outlast, with an effect in each phase: `python -m tests.support.effects_owner`
DATABASE FOLDER send|restore. What a body does outside is one line at the end of FOLDER/outside."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import outlast
from outlast.agents import Command
from outlast.records.effects import EffectOutcome
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command

PROMPT = "[[effect:{turn}]][[say:finished {turn}]]"


class Outside:
    """The world of the effects: a file that is only added to."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "outside"

    def add(self, given: outlast.EffectContext) -> dict[str, str]:
        line = f"{given.name} {given.key}\n".encode()
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)
        return {"text": given.text, "after": ",".join(given.results)}

    def look(self, given: outlast.EffectContext) -> EffectOutcome:
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        return "done" if f"{given.name} {given.key}" in lines else "absent"


def effects(outside: Outside) -> list[outlast.TurnEffect]:
    return [
        outlast.TurnEffect("spend", "settle", outside.add),
        outlast.TurnEffect("push", "write_back", outside.add, outside.look),
        outlast.TurnEffect("validate", "validation", outside.add, outside.look),
        outlast.TurnEffect("parse", "typed_result", outside.add, replay="safe"),
    ]


async def main(database: Path, folder: Path, how: str) -> None:
    agent = Command(command(SCRIPTED, "--effects", str(folder / "effects")))
    around = effects(Outside(folder))
    async with outlast.Runtime(sqlite_url(database), agents={"a": agent}, effects=around) as runtime:
        session = runtime.session("job", workspace=folder / "work")
        if how == "restore":
            await runtime.restore("job")
            async for outcome in session.drain():
                print(outcome.outcome, outcome.text, outcome.reason, sep="|")
        else:
            turn = await session.send(PROMPT, agent="a", key="one")
            outcome = await turn.result()
            print(outcome.outcome, outcome.text, outcome.reason, sep="|")
        if runtime.actor("job") is not None:
            await session.finish()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
