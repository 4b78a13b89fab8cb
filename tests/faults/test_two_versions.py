"""Two versions of outlast on one store: the older one, which runs here as it is, and one that knows one more
migration, which changes the tables under it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import apsw
import pytest
from tests.support.place import Place
from tests.support.processes import Child, Finished, until
from tests.support.store_fixtures import own_state_folder, url
from tests.support.stores import admit, append

from outlast.errors import SchemaError
from outlast.store.sqlite import schema
from outlast.store.url import database_path, open_store

pytestmark = pytest.mark.slow

__all__ = ["own_state_folder", "url"]

NEWER = """
import sys
from outlast.store.sqlite import schema
schema.VERSION += 1
script = "ALTER TABLE record RENAME COLUMN body TO content; ALTER TABLE record RENAME COLUMN content TO body;"
schema.MIGRATIONS += (schema.Migration(schema.VERSION, sys.argv[1] or script),)
from outlast.cli import main
sys.argv = ["outlast", *sys.argv[2:]]
sys.exit(main())
"""
"""`outlast ARGUMENTS` of the next version, whose migration is the first argument."""

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[say:finished {turn}]]"


def newer(place: Place, *arguments: str, migration: str = "") -> Child:
    return place.start_program(sys.executable, "-c", NEWER, migration, *arguments, env=place.environ())


def version(place: Place) -> list[int]:
    database = str(place.state / "outlast.db")
    connection = apsw.Connection(database, flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(20_000)
    try:
        return [row[0] for row in connection.execute("SELECT version FROM schema_version ORDER BY version")]
    finally:
        connection.close()


def assert_told_of_the_newer(refused: Finished) -> None:
    assert refused.status == 5, refused
    assert refused.errors[-1]["error"] == "schema", refused
    assert str(schema.VERSION + 1) in refused.errors[-1]["message"], refused
    assert "newer outlast" in refused.errors[-1]["hint"], refused


def test_half_upgrade(place: Place) -> None:
    """An owner of the older version is in mid turn: it is left alone, whoever comes with the newer version is
    told why the store is not brought up to date, and once it has ended everything goes on."""
    owner = place.start("run", "-a", "plain", "--session", "job", "--key", "one", "--json", MID_TURN)
    place.until_there("started")
    for arguments in (
        ("send", "job", "--key", "two", QUICK),
        ("resume", "job"),
        ("run", "-a", "plain", "hi"),
    ):
        refused = newer(place, *arguments, "--json").wait()
        assert refused.status == 4, refused
        assert f"pid {owner.pid} (outlast run)" in refused.errors[-1]["message"], refused
        assert refused.errors[-1]["hint"]
    assert version(place)[-1] == schema.VERSION
    place.send("job", QUICK, key="two")
    place.go()
    assert owner.wait().outcomes == ["done"], owner.told()
    place.assert_effects_once("one", "two")

    resumed = newer(place, "resume", "job", "--json").wait()
    assert (resumed.status, resumed.outcomes) == (0, []), resumed
    assert version(place)[-1] == schema.VERSION + 1


def test_half_upgrade_beside_a_dead_owner(place: Place) -> None:
    """It keeps nobody from migrating, and the newer version attaches to its agent."""
    owner = place.start("run", "-a", "plain", "--session", "job", "--key", "one", "--json", MID_TURN)
    place.until_there("started")
    owner.kill()
    resumed = newer(place, "resume", "job", "--json")
    until(lambda: version(place)[-1] == schema.VERSION + 1, "it migrates")
    place.go()
    assert resumed.wait().outcomes == ["done"], resumed.told()
    place.assert_effects_once("one")


@pytest.mark.parametrize(
    "migration",
    [
        pytest.param("", id="tables changed"),
        pytest.param("UPDATE store SET barrier = barrier + 1", id="no table changed", marks=pytest.mark.slow),
    ],
)
def test_an_older_outlast_that_runs_beside_a_newer_store_says_so_and_writes_nothing(
    place: Place, migration: str
) -> None:
    """One that owns nothing when the store is migrated: it follows, or waits for work."""
    place.send("job", QUICK, key="one")
    looking = place.start("tail", "job", "-f", "--json")
    waiting = place.start_program(sys.executable, "-c", IDLE, place.url, env=place.environ())
    until(lambda: waiting.out.read_bytes() == b"open\n", "it is open")
    assert newer(place, "resume", "job", "--json", migration=migration).wait().outcomes == ["done"]
    assert version(place)[-1] == schema.VERSION + 1

    assert_told_of_the_newer(looking.wait())
    place.go()
    ended = waiting.wait()
    assert ended.stdout.split() == [b"open", b"schema", b"schema"], ended
    for arguments in (("send", "job", "more"), ("resume", "job"), ("show", "job"), ("ls",)):
        assert_told_of_the_newer(place.call(*arguments, "--json"))
    shown = newer(place, "show", "job", "--json", migration=migration).wait().lines[-1]
    assert [turn["outcome"] for turn in shown["turns"]] == ["done"]
    place.assert_effects_once("one")


IDLE = """
import asyncio, pathlib, sys, outlast
from outlast.agents import Command
from outlast.errors import OutlastError
from outlast.testing.agents import SCRIPTED, command
async def main():
    agents = {"plain": Command(command(SCRIPTED))}
    async with outlast.Runtime(sys.argv[1], agents=agents) as runtime:
        print("open", flush=True)
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
        for name in ("job", "other"):
            try:
                await runtime.session(name, workspace=".").send("hi", agent="plain", key="k")
            except OutlastError as error:
                print(error.code, flush=True)
asyncio.run(main())
"""


def test_five_that_open_an_older_store_at_once_migrate_it_once(place: Place) -> None:
    """Each does its work; whoever comes second finds it done."""
    place.send("job", QUICK, key="zero")
    assert version(place)[-1] == schema.VERSION
    with ThreadPoolExecutor(5) as pool:
        sends = [
            (f"k{n}", pool.submit(newer, place, "send", "job", "--key", f"k{n}", QUICK)) for n in range(5)
        ]
        ended = [(key, child.result().wait()) for key, child in sends]
    assert [(key, one.status) for key, one in ended] == [(f"k{n}", 0) for n in range(5)], ended
    assert version(place) == list(range(1, schema.VERSION + 2))
    resumed = newer(place, "resume", "job", "--json").wait()
    assert resumed.outcomes == ["done"] * 6, resumed
    place.assert_effects_once("zero", *(f"k{n}" for n in range(5)))


async def test_what_cannot_be_read_any_more_is_told_as_a_newer_store_and_not_as_damage(url: str) -> None:
    store = await open_store(url)
    await append(store, await store.acquire("s"), 3)
    connection = apsw.Connection(str(database_path(url, {})))
    connection.execute("ALTER TABLE record RENAME COLUMN chain TO link")
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()
    for asked in (store.read("s", 0), store.tip("s"), store.list(), admit(store, "s", "r")):
        with pytest.raises(SchemaError, match="newer outlast"):
            await asked
    await store.close()


def test_a_list_is_shown_without_migrating(place: Place) -> None:
    place.send("job", QUICK, key="one")
    for arguments in (("ls",), ("doctor",)):
        assert newer(place, *arguments, "--json").wait().status == 0, arguments
    assert version(place)[-1] == schema.VERSION
    assert place.call("resume", "job", "--json").outcomes == ["done"]
