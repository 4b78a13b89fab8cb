"""One cell: a session is brought to a moment, something is killed, the session goes on, and what is found is
told."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tests.agents.codex.real import THINK
from tests.agents.matrix.cells import Cell, ProviderSession, When, Who
from tests.agents.matrix.programs import SLOWLY, AgentPlace, Program
from tests.support.journals import Journal
from tests.support.processes import PATIENCE, Child, until

from outlast.records.types import (
    AgentSessionChanged,
    GateOpened,
    InputReturned,
    TurnDone,
    TurnFailed,
    TurnInterrupted,
)
from outlast.runtime.client import Client

COMMAND = "echo begun >> begun"
WAITS = f"{COMMAND}; until test -e go; do sleep 0.02; done"
ENDS = ("TurnDone", "TurnFailed", "TurnInterrupted", "TurnParked")

OWNER = """
import asyncio, os
from pathlib import Path
import outlast
from outlast.config import load_config
async def main():
    agents = load_config(os.environ, os.getcwd()).agents()
    async with outlast.Runtime(agents=agents) as runtime:
        live = await runtime.restore("job")
        while not Path("leave").exists():
            await asyncio.sleep(0.02)
        await live.quiet()
        await live.finish()
asyncio.run(main())
"""
"""An embedding program that owns the session until it may leave."""


class Life:
    """A session of `program` in `place`, and whoever owns it."""

    def __init__(self, program: Program, place: AgentPlace, when: When) -> None:
        self.program = program
        self.place = place
        self.when = when
        self.agent = program.asks if when == "asking" else program.agent
        self.send("hello", "zero")
        self.owner = self.own()
        place.until_recorded("job", *ENDS, turn="zero")

    def send(self, text: str, key: str) -> None:
        self.place.send("job", text, key=key, agent=self.agent)

    def own(self) -> Child:
        return self.place.start_program(sys.executable, "-c", OWNER, env=self.place.environ())

    # --- up to the moment ----------------------------------------------------------------------

    def come_to_the_moment(self) -> None:
        """What dies next dies at `when`."""
        _MOMENTS[self.when](self)

    def before_the_first_output(self) -> None:
        os.kill(self.program.pid(self.place), signal.SIGSTOP)
        self.send(f"[[tool:{COMMAND}]]", "one")
        self.place.until_recorded("job", "InputReserved", turn="one")

    def in_the_model_call(self) -> None:
        self.send(f"{THINK} [[tool:{COMMAND}]]", "one")
        self.place.until_model_is_asked(THINK)

    def in_a_tool_call(self) -> None:
        self.send(f"[[tool:{WAITS}]]", "one")
        self.place.until_there("begun")
        self.place.until_recorded("job", "CallObserved", turn="one")

    def in_the_final_text(self) -> None:
        self.send(f"{SLOWLY} [[tool:{COMMAND}]]", "one")
        assert self.place.model.halfway.wait(PATIENCE), self.owner.told()

    def asking(self) -> None:
        self.send(self.program.asking(COMMAND), "one")
        self.place.until_recorded("job", "GateOpened", turn="one")

    def idle(self) -> None:
        self.send(f"[[tool:{COMMAND}]]", "one")
        self.place.until_recorded("job", *ENDS, turn="one")

    # --- the death, and what comes after it ----------------------------------------------------

    def kill(self, who: Who) -> None:
        """kill -9. Between two turns nothing is given to what has died before its owner has seen the end of
        it."""
        pid = self.program.pid(self.place)
        _KILLS[who](self)
        if who == "shim":
            # Its guard ends the agent: what is held must not reach that before.
            until(lambda: pid not in self.place.leftovers, "the agent is ended")
        if who in ("runtime", "both"):
            self.owner.process.wait(PATIENCE)
        elif self.when == "idle":
            until(lambda: set(self.place.leftovers) == {self.owner.pid}, "its shim and guard are gone")

    def go_on(self) -> None:
        """All that was held is let go, somebody owns the session, and the next prompt is given."""
        place = self.place
        place.model.go_on()
        place.go()
        if not self.owner.running:
            for pid in place.leftovers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self.owner = self.own()
            place.until_recorded("job", "RestoreDone")
        if self.when == "asking":
            self._approve()
        self.send("what happened?", "two")
        place.until_recorded("job", *ENDS, turn="two")

    def _approve(self) -> None:
        """Where nobody waits for the answer any more it is refused."""
        gate = self.place.journal("job").the(GateOpened).gate

        async def answer(client: Client) -> None:
            await client.session("job", workspace=self.place.workspace).answer(gate, "allow_once")

        self.place.ask(answer)

    def leave(self) -> None:
        """The owner ends the agent and itself."""
        self.place.go("leave")
        left = self.owner.wait()
        assert left.status == 0, left

    # --- what is found -------------------------------------------------------------------------

    def found(self, who: Who) -> Cell:
        """What a person can see of it."""
        place, journal = self.place, self.place.journal("job")
        journal.assert_every_input_ends_once()
        return Cell(
            program=self.program.name,
            version=self.program.version(),
            who=who,
            when=self.when,
            turn=_turn(journal),
            ran=place.lines("begun"),
            told=self._told(),
            session=_session(journal),
            answered=len(journal.bodies(TurnDone, "two")) == 1,
            refused=sum(request.refused is not None for request in place.model.requests),
        )

    def _told(self) -> int:
        request = self.place.told()
        calls = [call.call for call in request.of_kind("call") if COMMAND in call.text]
        said = request.of_kind("user", "context")
        notices = sum(item.text.count(COMMAND) for item in said if item.text.startswith("[outlast:"))
        if not calls and not notices:
            return -1
        return notices + sum(result.call in calls for result in request.of_kind("result"))


def _turn(journal: Journal) -> str:
    again = "given again, " if journal.bodies(InputReturned, "one") else ""
    ends = journal.of("TurnDone", "TurnFailed", "TurnInterrupted", turn="one")
    match ends[-1].body:
        case TurnDone():
            return f"{again}done"
        case TurnFailed(receipt=receipt):
            return f"{again}failed: {receipt.error.code}"
        case TurnInterrupted():
            return f"{again}interrupted"
    raise AssertionError(ends)


def _session(journal: Journal) -> ProviderSession:
    changes = journal.bodies(AgentSessionChanged)
    if len({change.provider_session for change in changes}) == 1:
        return "same"
    return "verdict" if any(change.state in ("lost", "reseeded") for change in changes) else "another"


_MOMENTS: Mapping[When, Callable[[Life], None]] = {
    "before the first output": Life.before_the_first_output,
    "in the model call": Life.in_the_model_call,
    "in a tool call": Life.in_a_tool_call,
    "in the final text": Life.in_the_final_text,
    "asking": Life.asking,
    "idle": Life.idle,
}
_KILLS: Mapping[Who, Callable[[Life], None]] = {
    "agent": lambda life: life.program.kill(life.place),
    "runtime": lambda life: life.owner.kill(),
    "both": lambda life: life.place.kill_all(),
    "shim": lambda life: life.place.kill_shim(),
}


def carry_out(program: Program, who: Who, when: When, root: Path) -> Cell:
    """The cell, found with real processes; none of them is left behind."""
    with program.place(root, when == "asking") as place:
        life = Life(program, place, when)
        life.come_to_the_moment()
        life.kill(who)
        life.go_on()
        life.leave()
        return life.found(who)
