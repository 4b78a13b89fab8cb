"""What a session has is kept: its queue, labels, settings, agent session and place in the list, over failed
starts, broken neighbours, upgrades and long lives."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest
from tests.support.place import Place

import outlast
from outlast.agents import Command
from outlast.errors import IntegrityError
from outlast.ids import new_id
from outlast.records.types import TurnDone, TurnParked, TurnRetried
from outlast.runtime.client import Client
from outlast.state.catalog import catalog_entry
from outlast.store.contract import CatalogEntry
from outlast.testing.agents import SCRIPTED, command

pytestmark = pytest.mark.slow

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"


def kill_all(place: Place) -> None:
    """kill -9 of whatever lives: the runtime, the agent, its shim and its guard."""
    for child in place.children:
        if child.running:
            child.kill()
    place.kill_leftovers()


def listed(place: Place, session: str) -> CatalogEntry:
    row = place.ask(lambda client: client.store.listed(session))
    assert row is not None
    return row.entry


def waiting(place: Place, session: str) -> list[str]:
    """The session's inputs that have not begun, accepted or not."""
    view = place.ask(lambda client: client.session(session).view())
    return [queued.request_id for queued in view.queue]


# --- starts that come to nothing --------------------------------------------------------------------


def test_empty_save(place: Place) -> None:
    """Three starts in a row are killed, each a little further on: labels, title and queue are what they
    were, and then all of it runs."""

    async def begin(client: Client) -> None:
        session = client.session("job", workspace=place.workspace)
        await session.send(QUICK, agent="plain", key="one", title="A title", labels={"team": "blue"})
        await session.send(QUICK, key="two")

    place.ask(begin)
    for point in ("restore.begin.before_append", "restore.begin.after_append", "actor.accept.after_append"):
        killed = place.call("resume", "job", faults=f"{point}=kill")
        assert killed.status == -signal.SIGKILL, killed
        entry = listed(place, "job")
        assert (entry.title, entry.labels, entry.agent) == ("A title", (("team", "blue"),), "plain")
        assert entry.workspace == str(place.workspace)
        assert waiting(place, "job") == ["one", "two"]

    assert place.call("resume", "job", "--json").outcomes == ["done", "done"]
    assert listed(place, "job").labels == (("team", "blue"),)
    place.assert_effects_once("one", "two")


def test_index_stale(place: Place) -> None:
    """Killed right before and right after commits: what is listed is what the journal says, to the record."""
    place.send("job", QUICK, key="one")
    for fault in ("store.append.before_commit@2", "store.append.after_commit@2", "turn.events.after_append"):
        killed = place.call("resume", "job", faults=f"{fault}=kill")
        assert killed.status == -signal.SIGKILL, killed
        assert listed(place, "job") == catalog_entry(place.journal("job").state)
        assert place.ask(lambda client: client.store.find("jo")) == "job"
    assert place.call("resume", "job").status == 0
    assert listed(place, "job") == catalog_entry(place.journal("job").state)


# --- the list --------------------------------------------------------------------------------------


FIRST_INPUTS = {
    "long": "x" * 20_000,
    "huge": "\N{SNOWMAN}" * 400_000,
    "blank": "\r\n \t\n",
    "nul": "\0\x1b[2J\u202ea title",
}
FIRST_RECORDS = ("UPDATE record SET body = ? WHERE seq = 1", "UPDATE record SET body = ? WHERE seq <= 4")


def test_first_line(place: Place) -> None:
    """A session stays in the list, whatever it begins with, and whatever becomes of that: the list is not
    made from its first entry."""
    for name, text in FIRST_INPUTS.items():
        place.send(name, text, key=name)
    assert {row["id"] for row in ls(place)} == set(FIRST_INPUTS)
    assert place.call("resume", "long").status == 0
    before = ls(place)
    assert all(row["title"].isprintable() and len(row["title"]) <= 80 for row in before)
    rows = place.ask(lambda client: client.store.list())
    connection = apsw.Connection(str(place.state / "outlast.db"))
    for body in (b"", b"{", b"\0" * 4096, b"x" * 20_000):
        for sql in FIRST_RECORDS:
            connection.execute(sql, (body,))
        connection.execute("UPDATE inbox SET body = ?", (body,))
        assert place.ask(lambda client: client.store.list()) == rows
    connection.execute("DELETE FROM record WHERE seq = 1")
    connection.close()
    assert ls(place) == before


def ls(place: Place) -> list[dict[str, Any]]:
    told = place.call("ls", "--json")
    assert told.status == 0, told
    rows: list[dict[str, Any]] = json.loads(told.stdout)
    return rows


# --- a broken session among others ------------------------------------------------------------------


READ = "SELECT body FROM record WHERE seq = 1 AND s = (SELECT s FROM session WHERE name = 'broken')"
WRITE = "UPDATE record SET body = ? WHERE seq = 1 AND s = (SELECT s FROM session WHERE name = 'broken')"


@contextmanager
def damaged(place: Place) -> Iterator[None]:
    """One changed byte in the first record of the session `broken`, put right at the end."""

    def put(body: bytes) -> None:
        connection = apsw.Connection(str(place.state / "outlast.db"))
        connection.execute(WRITE, (body,))
        connection.close()

    connection = apsw.Connection(str(place.state / "outlast.db"))
    whole = connection.execute(READ).get
    connection.close()
    assert isinstance(whole, bytes)
    put(bytes([whole[0] ^ 1]) + whole[1:])
    try:
        yield
    finally:
        put(whole)


def send_to_all(place: Place, prompt: str, key: str) -> list[str]:
    """One runtime is sent an input for each session at once; the outcomes, or what was raised."""

    async def send(runtime: outlast.Runtime, name: str) -> str:
        session = runtime.session(name, workspace=place.workspace)
        outcome = await (await session.send(prompt, key=key)).result()
        await session.finish()
        return outcome.outcome

    async def run() -> list[str]:
        agent = Command(command(SCRIPTED, "--effects", str(place.effects_file)))
        async with outlast.Runtime(place.url, agents={"plain": agent}) as runtime:
            sent = [send(runtime, name) for name in ("a", "broken", "c")]
            ended = await asyncio.gather(*sent, return_exceptions=True)
        return [end if isinstance(end, str) else type(end).__name__ for end in ended]

    return asyncio.run(run())


def test_recover_all_poison(place: Place) -> None:
    """The session that cannot be read is refused by name, the ones before and after it run."""
    assert send_to_all(place, "hello", "first") == ["done"] * 3
    with damaged(place):
        assert send_to_all(place, "[[effect:{session}]]", "next") == ["done", IntegrityError.__name__, "done"]
        place.assert_effects_once("a", "c")


def test_partial_restore_save(place: Place) -> None:
    """One session of many fails to restore: what the others do is stored, and of the failed one nothing is
    changed, so that it goes on once it is mended."""
    assert send_to_all(place, "hello", "first") == ["done"] * 3
    before = listed(place, "broken")
    with damaged(place):
        send_to_all(place, "[[effect:{session}]]", "next")
        assert [listed(place, name).turns for name in ("a", "c")] == [2, 2]
        assert listed(place, "broken") == before
        pending = place.ask(lambda client: client.store.pending("broken"))
        assert [entry.request_id for entry in pending] == ["next"]
    assert place.call("resume", "broken", "--json").outcomes == ["done"]
    place.assert_effects_once("a", "broken", "c")


# --- the same settings, the same agent session ------------------------------------------------------


def test_settings_lost(place: Place) -> None:
    """After a crash the agent has the environment, the folder and the rights that its configuration gives
    it, wherever it is resumed from; and without that configuration it does not run at all."""
    argv = command(SCRIPTED, "--effects", str(place.effects_file))
    section = f'[agents.keyed]\nkind = "command"\ncommand = {json.dumps(argv)}\nenv = ["MY_KEY"]\n'
    plain = place.config.read_text("utf-8")
    place.config.write_text(plain + section, "utf-8")
    place.variables["MY_KEY"] = "letmein"
    look = "[[env:env-{turn}]][[prompt:got-{turn}]]"
    place.send("job", look, key="one", agent="keyed")
    assert place.call("resume", "job").status == 0
    place.send("job", "[[touch:started]][[hang]]", key="two", agent="keyed")
    place.start("resume", "job")
    place.until_there("started")
    kill_all(place)
    place.send("job", look, key="three", agent="keyed")
    place.config.write_text(plain, "utf-8")
    refused = place.call("resume", "job", "--json")
    assert refused.status == 3, refused
    assert "there is no agent named keyed" in refused.errors[-1]["message"]
    place.config.write_text(plain + section, "utf-8")
    assert place.call("resume", "job", "--json").outcomes == ["interrupted", "done"]

    first, later = (json.loads(place.file(f"env-{turn}").read_text("utf-8")) for turn in ("one", "three"))
    ours = {name for name in first if name.startswith("OUTLAST")}
    assert {name: first[name] for name in first if name not in ours} == {
        name: later[name] for name in later if name not in ours
    }
    assert later["MY_KEY"] == "letmein"
    prompts = [json.loads(place.file(f"got-{turn}").read_text("utf-8")) for turn in ("one", "three")]
    assert prompts[0]["workspace"] == prompts[1]["workspace"] == str(place.workspace)


def test_wrong_adopt(place: Place) -> None:
    """Two sessions of one agent in one folder: each resumes the agent session that is its own, whichever was
    the last to write there."""
    for session in ("a", "b", "a"):
        place.send(session, "[[prompt:got-{session}]][[session:of-{session}]]", key=new_id())
        assert place.call("resume", session).status == 0
    told = [json.loads(place.file(f"got-{session}").read_text("utf-8")) for session in ("a", "b")]
    assert [line["resume"] for line in told] == ["of-a", None]


@pytest.mark.parametrize(
    "put_away", ["close", *(pytest.param(how, marks=pytest.mark.slow) for how in ("finish", "kill"))]
)
def test_hibernated_ghost(place: Place, put_away: str) -> None:
    """A session that nobody has open, that was closed, or whose owner was killed between turns is known, and
    its next prompt wakes it."""
    faults = "turn.terminal.after_append=kill" if put_away == "kill" else None
    place.call("run", "-a", "plain", "--session", "job", "--key", "one", QUICK, faults=faults)
    if put_away == "close":
        assert place.call("close", "job").status == 0
        assert listed(place, "job").state == "stopped"
    woken = place.call("run", "--session", "job", "--key", "two", "--json", QUICK)

    assert woken.outcomes == ["done"], woken
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one", "two")


# --- upgrades and long lives ------------------------------------------------------------------------

NEXT_VERSION = """
import asyncio, sys
import outlast
from outlast.agents import Command
class Newer(Command):
    adapter = property(lambda self: "command/99")
    def versions(self):
        return {"adapter": "command/99", "program": "2.0"}
outlast.__version__ = "99.0"
async def main():
    agent = Newer(sys.argv[1].split("\\n"))
    async with outlast.Runtime(agents={"holding": agent}) as runtime:
        session = await runtime.restore("job")
        await session.quiet()
        print((await session.retry("one", actor="the next version")).result)
        await session.quiet()
        await session.finish()
asyncio.run(main())
"""
"""The next version of an embedding program, with another adapter and another program behind it."""


def test_stranded_version(place: Place) -> None:
    """Work that was parked under one version is taken up by the next."""
    place.send("job", "[[touch:started]][[1?hang]][[effect:{turn}]]", key="one", agent="holding")
    place.start("resume", "job")
    place.until_there("started")
    kill_all(place)
    place.call("resume", "job")
    assert place.journal("job").the(TurnParked).reason == "held"
    place.send("job", QUICK, key="two", agent="holding")
    argv = "\n".join(command(SCRIPTED, "--effects", str(place.effects_file)))
    upgraded = place.start_program(sys.executable, "-c", NEXT_VERSION, argv, env=place.environ()).wait()

    assert (upgraded.status, upgraded.stdout) == (0, b"done\n"), upgraded
    journal = place.journal("job")
    assert journal.the(TurnRetried).by == "the next version"
    assert sorted(str(record.turn) for record in journal.of("TurnDone")) == ["one", "two"]
    place.assert_effects_once("one", "two")


def test_quadratic_size(place: Place) -> None:
    """A turn late in a session's life is stored in as many bytes as an early one."""
    for number in range(16):
        place.send("job", QUICK, key=f"turn-{number:03}")
    assert place.call("resume", "job").status == 0
    journal = place.journal("job")
    assert len(journal.bodies(TurnDone)) == 16
    connection = apsw.Connection(str(place.state / "outlast.db"), flags=apsw.SQLITE_OPEN_READONLY)
    sizes = dict(
        connection.execute("SELECT turn, sum(length(body)) FROM record WHERE turn <> '' GROUP BY turn")
    )
    connection.close()
    first, last = sizes["turn-001"], sizes["turn-015"]
    assert 0 < last <= first + 64, sizes
