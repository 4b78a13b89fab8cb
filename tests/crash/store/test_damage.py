"""Real damage to a store's files: it is named, what comes before it is read, the named command mends it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.cli.support import Shell
from tests.support.processes import PATIENCE
from tests.support.stores import admit
from tests.unit.journal.test_journal import accepted, opened

from outlast.errors import IntegrityError
from outlast.journal import read_records
from outlast.store.sqlite.layout import Layout
from outlast.store.url import open_store

pytestmark = pytest.mark.slow

SESSIONS = ("a", "b", "c")
INPUTS = 60

WRITER = """
import asyncio, sys
from tests.unit.journal.test_journal import accepted, opened
from outlast.store.url import open_store
async def main(url, *names):
    store = await open_store(url)
    journals = [await opened(store, name) for name in names]
    for number in range(10_000):
        for journal in journals:
            await journal.append([accepted(f"r{number}", "x" * 400)])
        print(journals[-1].state.seq, flush=True)
        if not sys.stdin.readline():
            return
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    place = Shell(tmp_path / "place")
    yield place
    place.close()


@pytest.fixture(autouse=True)
def _place(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()


def written(shell: Shell) -> Path:
    """Three journals over some pages, closed: all of them are in the database's file."""

    async def write() -> None:
        store = await open_store(shell.url)
        journals = [await opened(store, name) for name in SESSIONS]
        for number in range(INPUTS):
            for journal in journals:
                await journal.append([accepted(f"r{number}", "x" * 200)])
        await store.close()

    asyncio.run(_in_place(shell, write))
    return shell.state / "outlast.db"


async def _in_place(shell: Shell, work: Callable[[], Any]) -> Any:
    before = os.environ.get("OUTLAST_STATE_DIR")
    os.environ["OUTLAST_STATE_DIR"] = str(shell.state)
    try:
        return await work()
    finally:
        if before is None:
            del os.environ["OUTLAST_STATE_DIR"]
        else:
            os.environ["OUTLAST_STATE_DIR"] = before


def readable(shell: Shell, session: str) -> tuple[list[int], IntegrityError | None]:
    """What a reader is given, and what it is refused with."""
    given: list[int] = []

    async def read() -> IntegrityError | None:
        try:
            store = await open_store(shell.url)
        except IntegrityError as error:
            return error
        try:
            async for record in read_records(store, session):
                given.append(record.seq)
        except IntegrityError as error:
            return error
        finally:
            await store.close()
        return None

    return given, asyncio.run(_in_place(shell, read))


def doctor(shell: Shell) -> list[dict[str, Any]]:
    """Its findings that are no praise."""
    ran = shell.run("doctor", "--json")
    found: list[dict[str, Any]] = ran.lines[0]["findings"]
    mine = ("store", "journals", "witness", "blobs", "list")
    return [one for one in found if one["check"] in mine and one["level"] in ("warning", "fault")]


def root(database: Path, name: str) -> int:
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    page = int(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get)
    connection.close()
    return page


def leaf(database: Path, name: str) -> int:
    """A page of a table or index in the middle of it."""
    page = root(database, name)
    data = database.read_bytes()
    while data[(page - 1) * 8192] in (2, 5):
        start = (page - 1) * 8192
        count = int.from_bytes(data[start + 3 : start + 5], "big")
        place = start + 12 + 2 * (count // 2)
        cell = start + int.from_bytes(data[place : place + 2], "big")
        page = int.from_bytes(data[cell : cell + 4], "big")
    return page


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


PAGES = {
    "a leaf of the records is zeroed": ("record", leaf, bytes(8192)),
    "a leaf of the records is noise": ("record", leaf, b"\xa5" * 8192),
    "the root of the records is zeroed": ("record", root, bytes(8192)),
    "a leaf of the records' index is zeroed": ("sqlite_autoindex_record_1", leaf, bytes(8192)),
    "the root of the index is zeroed": ("sqlite_autoindex_record_1", root, bytes(8192)),
    "the catalog is zeroed": ("catalog", root, bytes(8192)),
    "the tombstones are noise": ("settled", root, b"\xa5" * 8192),
    "the inbox is zeroed": ("inbox", root, bytes(8192)),
}


@pytest.mark.parametrize("damage", PAGES)
def test_a_damaged_page_is_named_and_what_can_be_read_is_saved(shell: Shell, damage: str) -> None:
    database = written(shell)
    whole = {name: readable(shell, name)[0] for name in SESSIONS}
    table, which, data = PAGES[damage]
    page = which(database, table)
    overwrite(database, (page - 1) * 8192, data)
    before = {name: readable(shell, name) for name in SESSIONS}
    for name, (given, refused) in before.items():
        assert given == whole[name][: len(given)]
        assert refused is not None or given == whole[name]
    found = doctor(shell)
    assert [one for one in found if one["remedy"] == "outlast repair --database"], found
    ran = shell.run("repair", "--database", "--json")
    assert ran.code == 0, ran
    assert ran.lines[0]["repaired"]
    assert (Path(ran.lines[0]["quarantine"]) / "database.db").stat().st_size >= 8192
    for name in SESSIONS:
        given, refused = readable(shell, name)
        assert given[: len(before[name][0])] == before[name][0], "no record is lost that was readable before"
        if given and refused is not None:
            assert shell.run("repair", name).code in (0, 5)
    if table != "record":
        assert shell.run("verify", "--all").code == 0
        assert doctor(shell) == []
        assert {row["id"] for row in shell.sessions()} == set(SESSIONS)
    assert shell.run("repair", "--database", "--json").lines[0]["repaired"] is False


def test_index_lost(shell: Shell) -> None:
    """The list is a projection: lost with its page, it is made anew from the journals."""
    database = written(shell)
    listed = shell.sessions()
    overwrite(database, (root(database, "catalog") - 1) * 8192, bytes(8192))
    assert shell.run("ls").code == 5
    assert shell.run("repair", "--database").code == 0
    assert sorted(shell.sessions(), key=lambda row: row["id"]) == sorted(listed, key=lambda row: row["id"])


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM catalog",
        "UPDATE catalog SET seq = seq - 1, title = 'old'",
        "UPDATE catalog SET seq = 10000",
    ],
    ids=["rows missing", "rows of before", "rows of a time that never came"],
)
def test_a_list_that_is_not_the_journals_is_named_and_made_anew(shell: Shell, change: str) -> None:
    """Its pages are sound and its rows are not those that the journals make."""
    database = written(shell)
    listed = sorted(shell.sessions(), key=lambda row: row["id"])
    connection = apsw.Connection(str(database))
    connection.execute(change)
    connection.close()
    found = [finding for finding in doctor(shell) if finding["check"] == "list"]
    assert {finding["session"] for finding in found} == set(SESSIONS)
    assert {finding["remedy"] for finding in found} == {"outlast repair --database"}
    assert shell.run("repair", "--database").code == 0
    assert sorted(shell.sessions(), key=lambda row: row["id"]) == listed
    assert doctor(shell) == []


def test_a_damaged_list_is_shown_as_far_as_it_can_be_read(shell: Shell) -> None:
    async def many() -> None:
        store = await open_store(shell.url)
        for number in range(400):
            await admit(store, f"session-{number}", "r")
        await store.close()

    asyncio.run(_in_place(shell, many))
    database = shell.state / "outlast.db"
    page = leaf(database, "catalog")
    assert page != root(database, "catalog")
    overwrite(database, (page - 1) * 8192, bytes(8192))
    ran = shell.run("ls", "--json")
    assert (ran.code, ran.error["error"]) == (5, "integrity")
    assert 0 < len(ran.lines[0]) < 400
    assert shell.run("repair", "--database").code == 0
    assert len(shell.sessions()) == 400


def test_a_record_on_a_damaged_page_is_cut_after_the_database_is_sound_again(shell: Shell) -> None:
    database = written(shell)
    page = leaf(database, "record")
    overwrite(database, (page - 1) * 8192, bytes(8192))
    kept = {name: readable(shell, name)[0] for name in SESSIONS}
    refused = shell.run("repair", "a")
    assert refused.code == 5
    assert "outlast repair --database" in refused.err
    verdicts = [verdict for verdict in shell.run("verify", "--all", "--json").lines if not verdict["ok"]]
    assert {verdict["remedy"] for verdict in verdicts} == {"outlast repair --database"}
    assert shell.run("repair", "--database").code == 0
    verdicts = shell.run("verify", "--all", "--json").lines
    assert {verdict["session"] for verdict in verdicts if not verdict["ok"]} == set(SESSIONS)
    for name in SESSIONS:
        ran = shell.json("repair", name)
        assert ran["kept"] == len(kept[name])
        assert ran["lost_to"] == 3 + INPUTS
    assert shell.run("verify", "--all").code == 0
    assert doctor(shell) == []


# --- the log -----------------------------------------------------------------------------------


def killed_with_a_log(shell: Shell, rounds: int = 20) -> tuple[Path, int]:
    """A writer of three journals, killed; what it had acknowledged is in the log. Gives the last seq."""
    environ = shell.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, shell.url, *SESSIONS],
        env=environ,
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    for _ in range(rounds):
        seq = int(writer.stdout.readline())
        writer.stdin.write("\n")
        writer.stdin.flush()
    seq = int(writer.stdout.readline())
    writer.kill()
    writer.communicate(timeout=PATIENCE)
    log = shell.state / "outlast.db-wal"
    assert log.stat().st_size > 32 + 3 * 8216
    return log, seq


FRAME = 24 + 8192


@pytest.mark.parametrize("way", ["a flipped byte", "torn", "cut off", "noise"])
def test_a_log_that_lost_its_end_is_told_by_the_witness_with_both_ends(shell: Shell, way: str) -> None:
    log, seq = killed_with_a_log(shell)
    middle = 32 + (log.stat().st_size - 32) // FRAME // 2 * FRAME
    match way:
        case "a flipped byte":
            with log.open("r+b") as file:
                file.seek(middle + 100)
                (byte,) = file.read(1)
                file.seek(middle + 100)
                file.write(bytes([byte ^ 4]))
        case "torn":
            os.truncate(log, middle + 1000)
        case "cut off":
            os.truncate(log, middle)
        case _:
            overwrite(log, middle, os.urandom(FRAME))
    for name in SESSIONS:
        given, refused = readable(shell, name)
        assert refused is not None
        assert refused.noted >= seq
        assert f"{len(given)} < {refused.noted}" in refused.reason
        assert given == list(range(1, len(given) + 1))
    found = doctor(shell)
    assert {one["session"] for one in found if one["level"] == "fault"} == set(SESSIONS)
    assert all("outlast repair" in one["remedy"] for one in found)
    connection = apsw.Connection(str(shell.state / "outlast.db"))
    assert connection.execute("PRAGMA integrity_check").get == "ok", "SQLite itself sees nothing"
    connection.close()
    for name in SESSIONS:
        kept = len(readable(shell, name)[0])
        if kept < 3:
            continue
        ran = shell.json("repair", name)
        assert (ran["kept"], ran["lost_to"] >= seq) == (kept, True)
        assert shell.json("verify", name)["ok"]


def test_a_session_that_was_lost_whole_is_missed_and_lends_its_place_to_nobody(shell: Shell) -> None:
    connection = apsw.Connection(str(written(shell)))
    connection.execute("DELETE FROM record WHERE s = 3; DELETE FROM session WHERE s = 3")
    connection.execute("DELETE FROM catalog WHERE s = 3; DELETE FROM lease WHERE s = 3")
    connection.execute("UPDATE sqlite_sequence SET seq = 2 WHERE name = 'session'")
    connection.close()
    (found,) = doctor(shell)
    assert (found["check"], found["level"]) == ("witness", "fault")
    assert found["message"].startswith("1 session that")
    assert shell.run("run", "-a", "scripted", "--session", "new", "hello").code == 0
    assert shell.json("verify", "new")["ok"]


def test_a_store_that_lost_its_newest_owners_is_open_for_reading_until_that_is_accepted(shell: Shell) -> None:
    log, _ = killed_with_a_log(shell)
    os.truncate(log, 32 + 5 * FRAME)
    assert doctor(shell)
    ran = shell.run("run", "-a", "scripted", "--session", "new", "hello")
    assert "outlast doctor --after-restore" in ran.err
    shell.run("doctor", "--after-restore")
    assert shell.run("run", "-a", "scripted", "--session", "new", "hello").code == 0


def test_a_log_that_is_whole_loses_nothing(shell: Shell) -> None:
    _, seq = killed_with_a_log(shell)
    for name in SESSIONS:
        given, refused = readable(shell, name)
        assert refused is None
        assert len(given) >= seq
    assert doctor(shell) == []


# --- what lies beside the database -------------------------------------------------------------


def test_a_damaged_slot_of_the_witness_is_named_and_mended_by_the_next_record(shell: Shell) -> None:
    written(shell)
    witness = shell.state / "outlast.d" / "witness"
    with witness.open("r+b") as file:
        file.seek(4096 + 40 * 2 + 3)
        file.write(b"\xff")
    (found,) = doctor(shell)
    assert (found["check"], found["level"], found["session"]) == ("witness", "warning", "b")
    assert readable(shell, "b")[1] is None

    async def go_on() -> None:
        store = await open_store(shell.url)
        await (await opened(store, "b")).lease.release()
        await store.close()

    asyncio.run(_in_place(shell, go_on))
    assert doctor(shell) == []


def test_a_database_that_vanished_is_no_new_store(shell: Shell) -> None:
    database = written(shell)
    aside = shell.folder / "aside.db"
    database.rename(aside)
    ran = shell.run("run", "-a", "scripted", "hello", "--json")
    assert (ran.code, ran.error["error"]) == (5, "integrity")
    assert "3 journals" in ran.error["message"]
    (found,) = doctor(shell)
    assert (found["check"], found["level"]) == ("store", "fault")
    assert not database.exists()
    aside.rename(database)
    assert shell.run("verify", "--all").code == 0


def test_blobs_that_vanished_are_named_and_the_journal_is_read_on_behind_them(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "x" * 300_000).code == 0
    (blob,) = Layout.of(shell.state / "outlast.db").blobs.glob("??/" + "[0-9a-f]" * 64)
    data = blob.read_bytes()
    blob.unlink()
    (found,) = doctor(shell)
    assert (found["check"], found["level"]) == ("blobs", "fault")
    seq = shell.run("verify", "s", "--json").lines[0]["fault"]["seq"]
    assert shell.run("tail", "s", "--after", str(seq)).code == 0
    assert shell.json("repair", "s")["repaired"] is False, "the session goes on without it"
    assert shell.run("run", "--session", "s", "and on").code == 0
    blob.write_bytes(data)
    assert doctor(shell) == []


# --- killed while it mends ---------------------------------------------------------------------

STEPS = (
    "store.acquire.before_commit",
    "store.acquire.after_commit",
    "repair.quarantine.before_rename",
    "repair.quarantine.after_rename",
    "store.cut.before_commit",
    "store.cut.after_commit",
    "store.witness.before",
    "store.release.before_commit",
)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "shorter", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["a bad record", "a lost end"]
)
def test_a_repair_that_is_killed_leaves_the_old_journal_or_the_new_one(
    shell: Shell, step: str, shorter: bool
) -> None:
    database = written(shell)
    connection = apsw.Connection(str(database))
    sql = "DELETE FROM record" if shorter else "UPDATE record SET at = at + 1"
    connection.execute(sql + " WHERE s = 2 AND seq > 40")
    connection.close()
    faults = {"OUTLAST_FAULTS": f"{step}=kill", "OUTLAST_FAULTS_TESTING": "1"}
    killed = shell.process("repair", "b", environ=shell.environ | faults)
    assert killed.code == -9, killed
    ran = shell.run("verify", "b", "--json")
    verdict = ran.lines[0]
    cut = [line for line in tail(shell, "b") if line["type"] == "JournalRepaired"]
    if verdict["ok"]:
        assert len(cut) == 1
        quarantine = shell.state / "outlast.d" / "quarantine" / cut[0]["body"]["quarantine"]
        assert json.loads((quarantine / "about.json").read_text())["lost_to"] == 3 + INPUTS
    else:
        assert cut == []
        assert verdict["fault"]["seq"] == 41
    done = shell.json("repair", "b")
    assert done["repaired"] is not verdict["ok"]
    assert shell.json("verify", "b")["ok"]
    assert len([line for line in tail(shell, "b") if line["type"] == "JournalRepaired"]) == 1
    assert doctor(shell) == []


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("whole", [False, True], ids=["a bad beginning", "nothing left"])
def test_a_beginning_anew_that_is_killed_leaves_what_was_there_or_the_new_journal(
    shell: Shell, step: str, whole: bool
) -> None:
    connection = apsw.Connection(str(written(shell)))
    sql = "DELETE FROM record WHERE s = 2" if whole else "UPDATE record SET at = 1 WHERE s = 2 AND seq = 2"
    connection.execute(sql)
    connection.close()
    faults = {"OUTLAST_FAULTS": f"{step}=kill", "OUTLAST_FAULTS_TESTING": "1"}
    anew = ("repair", "b", "--anew", "--agent", "scripted")
    killed = shell.process(*anew, environ=shell.environ | faults)
    assert killed.code == -9, killed
    before = shell.run("verify", "b", "--json").lines[0]
    done = shell.json(*anew)
    assert done["repaired"] is not before["ok"]
    (told,) = [line for line in tail(shell, "b") if line["type"] == "JournalRepaired"]
    assert (told["body"]["cut_seq"], told["body"]["lost_to"]) == (1, 3 + INPUTS)
    assert shell.json("verify", "b")["ok"]
    assert doctor(shell) == []


def tail(shell: Shell, session: str) -> list[dict[str, Any]]:
    return shell.run("tail", session, "--json", "--internal").lines


@pytest.mark.parametrize(
    "step", ["rebuild.before_rename", "rebuild.after_rename", "rebuild.before_commit", "rebuild.after_commit"]
)
def test_a_rebuild_that_is_killed_leaves_the_old_database_or_the_new_one(shell: Shell, step: str) -> None:
    database = written(shell)
    overwrite(database, (root(database, "settled") - 1) * 8192, b"\xa5" * 8192)
    faults = {"OUTLAST_FAULTS": f"{step}=kill", "OUTLAST_FAULTS_TESTING": "1"}
    killed = shell.process("repair", "--database", environ=shell.environ | faults)
    assert killed.code == -9, killed
    for name in SESSIONS:
        assert readable(shell, name) == (list(range(1, 4 + INPUTS)), None)
    assert shell.json("repair", "--database")["repaired"] is (step != "rebuild.after_commit")
    assert shell.run("verify", "--all").code == 0
    assert doctor(shell) == []


def test_who_has_the_store_open_goes_on_over_a_rebuild(shell: Shell) -> None:
    database = written(shell)

    async def over() -> int:
        store = await open_store(shell.url)
        journal = await opened(store, "a")
        overwrite(database, (root(database, "settled") - 1) * 8192, b"\xa5" * 8192)
        done = await asyncio.to_thread(shell.process, "repair", "--database", "--json")
        assert done.lines[0]["repaired"]
        await journal.append([accepted("after")])
        await store.close()
        return journal.state.seq

    seq = asyncio.run(_in_place(shell, over))
    assert readable(shell, "a") == (list(range(1, seq + 1)), None)
    assert shell.run("verify", "--all").code == 0


# --- a backup of what is damaged ----------------------------------------------------------------


def blob_put(shell: Shell) -> Path:
    """The blob of a session with one large input."""

    async def write() -> None:
        store = await open_store(shell.url)
        await (await opened(store, "large")).append([accepted("r", "x" * 400_000)])
        await store.close()

    asyncio.run(_in_place(shell, write))
    (blob,) = (shell.state / "outlast.d" / "blobs").glob("??/" + "[0-9a-f]" * 64)
    return blob


def backed_up(shell: Shell, file: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """What a backup that met damage says, and the members that are in it, with their sizes."""
    ran = shell.run("backup", str(file), "--json")
    assert ran.code == 5, ran
    (line,) = ran.lines
    with tarfile.open(file) as archive:
        members = {member.name: member.size for member in archive.getmembers()}
    assert "outlast.db" in members
    return line, members


SHORTER = Path("/sys/devices/system/cpu/online")
"""Says that it holds a page, and gives less."""


@pytest.mark.skipif(not SHORTER.exists(), reason="needs a file that gives less than it says")
def test_a_blob_that_cannot_be_read_to_its_end_is_damage_and_no_full_disk(
    shell: Shell, tmp_path: Path
) -> None:
    blob = blob_put(shell)
    blob.unlink()
    blob.symlink_to(SHORTER)
    line, members = backed_up(shell, tmp_path / "kept.tar")
    assert line["damage"] == [f"blob {blob.name} cannot be read: it became shorter meanwhile"]
    assert members[f"outlast.d/blobs/{blob.parent.name}/{blob.name}"] == SHORTER.stat().st_size


@pytest.mark.parametrize("data", [bytes(8192), b"\xa5" * 8192], ids=["zeroed", "noise"])
def test_where_the_list_of_blobs_is_damaged_all_blobs_go_in(
    shell: Shell, tmp_path: Path, data: bytes
) -> None:
    blob = blob_put(shell)
    database = shell.state / "outlast.db"
    for name in ("blob", "blob_by_digest"):
        overwrite(database, (root(database, name) - 1) * 8192, data)
    line, members = backed_up(shell, tmp_path / "kept.tar")
    assert line["blobs"] == 1
    assert line["damage"][0].startswith("the database is damaged")
    assert f"outlast.d/blobs/{blob.parent.name}/{blob.name}" in members


def test_the_name_of_a_blob_that_is_damaged_leads_to_no_other_file(shell: Shell, tmp_path: Path) -> None:
    blob_put(shell)
    connection = apsw.Connection(str(shell.state / "outlast.db"))
    connection.execute("INSERT INTO blob VALUES (1, '../../../config.toml')")
    connection.execute("INSERT INTO blob VALUES (1, CAST(x'ff' AS TEXT))")
    connection.close()
    line, members = backed_up(shell, tmp_path / "kept.tar")
    assert [one for one in line["damage"] if "'../../../config.toml'" in one]
    assert not [name for name in members if "config" in name]


def test_what_damage_keeps_from_being_counted_is_no_number(shell: Shell, tmp_path: Path) -> None:
    database = written(shell)
    for name in ("record", "sqlite_autoindex_record_1"):
        overwrite(database, (leaf(database, name) - 1) * 8192, bytes(8192))
    line, _ = backed_up(shell, tmp_path / "kept.tar")
    assert (line["sessions"], line["records"]) == (len(SESSIONS), None)
    assert "records that cannot be counted" in shell.run("backup", str(tmp_path / "again.tar")).out


# --- a backup beside owners at work ------------------------------------------------------------


def test_a_backup_is_of_one_moment_while_owners_write(shell: Shell, tmp_path: Path) -> None:
    """Each journal is whole up to where it was, and none is ahead of what was acknowledged."""
    environ = shell.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, shell.url, *SESSIONS],
        env=environ,
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    try:
        writer.stdin.write("\n" * 60_000)
        writer.stdin.flush()
        seq = int(writer.stdout.readline())
        made = [shell.json("backup", str(tmp_path / f"{number}.tar")) for number in range(3)]
    finally:
        writer.kill()
        writer.communicate(timeout=PATIENCE)
    assert all(each["records"] >= seq for each in made)
    (tmp_path / "back").mkdir()
    back = Shell(tmp_path / "back")
    back.state.mkdir(mode=0o700)
    subprocess.run(["tar", "-xf", str(tmp_path / "2.tar"), "-C", str(back.state)], check=True)
    lengths = [len(readable(back, name)[0]) for name in SESSIONS]
    assert [readable(back, name)[1] for name in SESSIONS] == [None] * 3
    assert sum(lengths) == made[2]["records"]
    assert max(lengths) - min(lengths) <= 1, "one round of the writer, cut anywhere"
