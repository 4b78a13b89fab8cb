"""One user's outlast in a folder of the test's own: state, configuration, workspace, effects."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.journals import Journal
from tests.support.processes import Child, Finished, kill, processes_of, until

from outlast.keep import AgentFolder, Verified, tree_dead
from outlast.records.types import OnInterrupt, WhenBusy
from outlast.runtime.client import Client
from outlast.store.url import sqlite_url
from outlast.testing.agents import SCRIPTED, command

T = TypeVar("T")

AGENTS: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "asking": {"stdin": "open"},
    "retrying": {"on_interrupt": "retry"},
    "continuing": {"on_interrupt": "continue"},
    "holding": {"on_interrupt": "hold"},
    "curious": {"on_interrupt": "ask"},
    "impatient": {"idle_timeout": "1s"},
    "strict": {"idle_timeout": "1s", "on_interrupt": "ask"},
    "patient": {"stdin": "open", "idle_timeout": "30s"},
    "short": {"stdin": "open", "orphan_grace": "1s"},
    "wary": {"require_nonce": True},
}
"""The scripted agent under several names, each with what its configuration says beside the command."""


class Place:
    """Everything lies below `root`. The first agent is `plain`; `AGENTS` names the others."""

    def __init__(self, root: Path, state: Path | None = None) -> None:
        self.root = root
        self.state = state or root / "state"
        self.workspace = root / "work"
        self.effects_file = root / "effects"
        self.config = root / "config.toml"
        self.variables: dict[str, str] = {}
        """Variables of every process beside the usual ones; an empty value takes one away."""
        self.children: list[Child] = []
        self._outputs = root / "outputs"
        for folder in (self.workspace, self._outputs, root / "home"):
            folder.mkdir(parents=True)
        self._write_config()

    def _write_config(self) -> None:
        argv = command(SCRIPTED, "--effects", str(self.effects_file))
        lines: list[str] = []
        for name, said in AGENTS.items():
            lines += [f"[agents.{name}]", 'kind = "command"', f"command = {json.dumps(argv)}"]
            lines += [f"{key} = {json.dumps(value)}" for key, value in said.items()]
        self.config.write_text("\n".join(lines) + "\n", "utf-8")

    # --- processes -----------------------------------------------------------------------------

    def environ(self, faults: str | None = None) -> dict[str, str]:
        """All that a process of this place is given."""
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root / "home"),
            "LANG": "C.UTF-8",
            "OUTLAST_CONFIG": str(self.config),
            "OUTLAST_STATE_DIR": str(self.state),
            "PYTHONWARNINGS": "error",
            **self.variables,
        }
        if faults is not None:
            env |= {"OUTLAST_FAULTS": faults, "OUTLAST_FAULTS_TESTING": "1"}
        return {name: value for name, value in env.items() if value}

    def start(self, *arguments: str, faults: str | None = None, stdin: bytes | None = None) -> Child:
        """`python -m outlast ARGUMENTS`, in the workspace."""
        return self.start_program(
            sys.executable, "-m", "outlast", *arguments, env=self.environ(faults), stdin=stdin
        )

    def start_program(self, *argv: str, env: Mapping[str, str], stdin: bytes | None = None) -> Child:
        child = Child.start(
            argv,
            env=env,
            cwd=self.workspace,
            output=self._outputs / f"{len(self.children)}",
            stdin=stdin,
        )
        self.children.append(child)
        return child

    def call(self, *arguments: str, faults: str | None = None, stdin: bytes | None = None) -> Finished:
        """The same, to its end."""
        return self.start(*arguments, faults=faults, stdin=stdin).wait()

    def show(self, session: str) -> dict[str, Any]:
        """`outlast show --json`."""
        told = self.call("show", session, "--json")
        assert told.status == 0, told
        shape: dict[str, Any] = json.loads(told.stdout)
        return shape

    # --- speaking through the store, without a process of its own --------------------------------

    @property
    def url(self) -> str:
        return sqlite_url(self.state / "outlast.db")

    def ask(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """What a client of the store finds or does."""

        async def asked() -> T:
            async with Client(self.url, label="the test") as client:
                return await work(client)

        return asyncio.run(asked())

    def send(
        self,
        session: str,
        text: str,
        *,
        key: str,
        agent: str = "plain",
        on_interrupt: OnInterrupt | None = None,
        when_busy: WhenBusy = "queue",
    ) -> None:
        """Admit an input; whoever owns the session runs it, or its next owner."""

        async def send(client: Client) -> None:
            handle = client.session(session, workspace=self.workspace)
            await handle.send(text, agent=agent, key=key, on_interrupt=on_interrupt, when_busy=when_busy)

        self.ask(send)

    def journal(self, session: str) -> Journal:
        """The session's journal as it is now, verified."""
        return self.ask(lambda client: Journal.read(client.store, session))

    def until_recorded(self, session: str, *types: str, turn: str | None = None) -> Journal:
        """The journal, once it holds a record of one of these types (of this turn)."""

        def look() -> Journal | None:
            journal = self.journal(session)
            return journal if journal.of(*types, turn=turn) else None

        told = [child.told() for child in self.children if child.running]
        found = until(look, f"{session} has {types} of {turn}; running: {told}")
        assert found is not None
        return found

    # --- the world ------------------------------------------------------------------------------

    def file(self, name: str) -> Path:
        """A file of the workspace, for agents that wait or say that they are there."""
        return self.workspace / name

    def until_there(self, name: str) -> str:
        """The content of a file of the workspace, once it is there."""
        path = self.file(name)
        until(path.exists, f"{name} is there; {[child.told() for child in self.children]}")
        return path.read_text("utf-8")

    def go(self, name: str = "go") -> None:
        """Let the agents that wait for this file go on."""
        self.file(name).touch()

    @property
    def effects(self) -> list[str]:
        """What agents have done outside, in order."""
        return self.effects_file.read_text("utf-8").splitlines() if self.effects_file.exists() else []

    def assert_effects_once(self, *expected: str) -> None:
        """Each of these effects, once, and no other; in any order."""
        assert Counter(self.effects) == Counter(expected)

    # --- the end --------------------------------------------------------------------------------

    @property
    def leftovers(self) -> dict[int, str]:
        """Living processes of this place."""
        return processes_of(self.root)

    def kill_leftovers(self) -> None:
        """kill -9 of agents, shims and guards: nobody is left to record how they ended."""
        for pid in self.leftovers:
            kill(pid)
        until(lambda: not self.leftovers, "they are dead")

    def assert_nothing_left(self) -> None:
        """No process of this place lives, and every agent life is proven to have ended."""
        until(lambda: not self.leftovers, f"all has ended, but for {self.leftovers}", 15)
        for path in sorted(self.state.glob("outlast.d/agents/*/gen-*")):
            generation = AgentFolder(path.parent).generation(int(path.name.rpartition("-")[2]))
            verdict = tree_dead(generation)
            assert isinstance(verdict, Verified), f"{path.name}: {verdict}"

    def end(self) -> None:
        """End whatever is left, by pid."""
        for child in self.children:
            if child.running:
                child.kill()
        for pid in self.leftovers:
            kill(pid)


@contextmanager
def place_at(root: Path, state: Path | None = None) -> Iterator[Place]:
    """A place that leaves no process behind, and fails the test that would."""
    place = Place(root, state)
    try:
        yield place
        place.assert_nothing_left()
    finally:
        place.end()
