"""Damaged journals at the command line: shown up to the fault, verified, sealed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path

import apsw
import pytest
from tests.cli.support import Shell, is_alive, until

from outlast.records.codec import chain_of
from outlast.store.contract import Row, Tip
from outlast.store.sqlite.layout import Layout
from outlast.store.sqlite.packing import unpacking
from outlast.store.sqlite.witness import Witness

SQLiteValue = str | int | bytes | float | None


def change(shell: Shell, sql: str, values: tuple[SQLiteValue, ...] = ()) -> None:
    connection = apsw.Connection(str(shell.state / "outlast.db"))
    connection.execute(sql, values)
    connection.close()


def rows(connection: apsw.Connection) -> list[Row]:
    """Newest first."""
    found: list[Row] = []
    unpacked = unpacking(found, lambda _: None)
    for _, *values in connection.execute("SELECT * FROM record ORDER BY seq"):
        found.append(unpacked(values))
    return found[::-1]


def records(shell: Shell) -> int:
    connection = apsw.Connection(str(shell.state / "outlast.db"))
    count = int(connection.execute("SELECT max(seq) FROM record WHERE s = 1").get)
    connection.close()
    return count


@pytest.fixture
def two_turns(shell: Shell) -> Shell:
    assert shell.run("run", "-a", "scripted", "--session", "s", "first").code == 0
    assert shell.run("run", "--session", "s", "second").code == 0
    return shell


def seq_of_second_input(shell: Shell) -> int:
    accepted = shell.records("s", "InputAccepted")
    return int(accepted[1]["seq"])


def test_a_sound_session_verifies(two_turns: Shell) -> None:
    line = two_turns.json("verify", "s")
    assert line["ok"]
    assert (line["session"], line["records"], line["fault"], line["remedy"]) == (
        "s",
        records(two_turns),
        None,
        None,
    )
    ran = two_turns.run("verify", "--all")
    assert ran.code == 0
    assert "all as they were stored" in ran.out


def test_show_and_tail_work_up_to_the_fault_and_say_so(two_turns: Shell) -> None:
    seq = seq_of_second_input(two_turns)
    change(two_turns, "UPDATE record SET at = at + 1 WHERE seq = ?", (seq,))
    ran = two_turns.run("show", "s", "--json")
    assert ran.code == 5
    (shown,) = ran.lines
    assert [turn["input"] for turn in shown["turns"]] == ["first"]
    assert shown["fault"]["seq"] == seq
    assert ran.error["error"] == "integrity"
    ran = two_turns.run("show", "s")
    assert ran.code == 5
    assert "first" in ran.out
    assert "second" not in ran.out.partition("turns")[2]
    assert f"record {seq} of the journal of s" in ran.err
    ran = two_turns.run("tail", "s", "--json", "--internal")
    assert (ran.code, [line["seq"] for line in ran.lines]) == (5, list(range(1, seq)))
    assert ran.error["error"] == "integrity"
    assert two_turns.run("ls").code == 0
    ran = two_turns.run("verify", "s", "--json")
    assert ran.code == 5
    (verdict,) = ran.lines
    assert (verdict["fault"]["kind"], verdict["fault"]["seq"], verdict["records"]) == ("record", seq, seq - 1)
    assert verdict["remedy"] == "outlast repair s"


def test_a_newer_record_is_shown_as_unknown_and_nothing_runs(two_turns: Shell) -> None:
    """The chain still vouches for it, so the other outlast can go on with the session."""

    connection = apsw.Connection(str(two_turns.state / "outlast.db"))
    last = rows(connection)[0]
    newer = last._replace(seq=last.seq + 1, type="TurnDreamt", v=3, id=os.urandom(16), body=b'{"secret":1}')
    newer = newer._replace(chain=chain_of(last.chain, "s", newer))
    connection.execute("INSERT INTO record VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", newer)
    connection.close()
    ran = two_turns.run("tail", "s", "--json")
    assert ran.code == 0
    assert (ran.lines[-1]["type"], ran.lines[-1]["v"], ran.lines[-1]["body"]) == ("TurnDreamt", 3, None)
    assert "unknown" in ran.lines[-1]
    ran = two_turns.run("tail", "s")
    assert "TurnDreamt" in ran.out
    assert "secret" not in ran.out
    ran = two_turns.run("show", "s", "--json")
    assert ran.code == 5
    assert [turn["input"] for turn in ran.lines[0]["turns"]] == ["first", "second"]
    assert two_turns.json("verify", "s")["newer"] == {"seq": newer.seq, "type": "TurnDreamt", "v": 3}
    for arguments in (("resume", "s"), ("run", "--session", "s", "third")):
        ran = two_turns.run(*arguments, "--json")
        assert ran.code == 5, ran
        assert ran.error["error"] == "unsupported_record"
        assert "TurnDreamt version 3" in ran.error["message"]
    assert records(two_turns) == newer.seq, "nothing was written"


def test_a_seal_finds_a_rewrite_that_chain_and_witness_cannot(two_turns: Shell, tmp_path: Path) -> None:
    head = tmp_path / "head.json"
    ran = two_turns.run("seal", "s", "--export", str(head))
    assert ran.code == 0, ran
    key = two_turns.state / "seal.key"
    assert key.stat().st_mode & 0o777 == 0o600
    (seal,) = two_turns.json("verify", "s")["seals"]
    assert (seal["seq"], seal["result"]) == (records(two_turns), "holds")
    rewrite(two_turns)
    found = two_turns.run("verify", "s", "--json")
    assert found.code == 5
    assert found.lines[0]["fault"] is None
    assert found.lines[0]["seals"][0]["result"] == "broken"
    (two_turns.state / "outlast.d" / "seals").rename(tmp_path / "seals")
    assert two_turns.run("verify", "s").code == 0
    ran = two_turns.run("verify", "s", "--head", str(head))
    assert ran.code == 5
    assert "BROKEN" in ran.out
    (tmp_path / "seals").rename(two_turns.state / "outlast.d" / "seals")
    assert two_turns.run("seal", "s").code == 5, "a broken seal is not replaced in passing"
    assert two_turns.run("seal", "s", "--anew").code == 0
    assert two_turns.run("verify", "s").code == 0


def rewrite(shell: Shell) -> None:
    """Change the last record's time, its chain, and what the witness knows of it."""

    connection = apsw.Connection(str(shell.state / "outlast.db"))
    store = str(connection.execute("SELECT id FROM store").get)
    last, before = rows(connection)[:2]
    other = last._replace(at=last.at + 1)
    other = other._replace(chain=chain_of(before.chain, "s", other))
    connection.execute(
        "UPDATE record SET at = ?, chain = ? WHERE seq = ?", (other.at, other.chain, other.seq)
    )
    connection.close()
    witness = Witness(Layout.of(shell.state / "outlast.db").witness, store, write=True)
    witness.write([(1, Tip(other.seq, other.epoch, other.chain))])
    witness.close()


def test_a_seal_goes_on_to_hold_while_the_session_goes_on(two_turns: Shell) -> None:
    assert two_turns.run("seal", "s").code == 0
    assert two_turns.run("run", "--session", "s", "third").code == 0
    assert two_turns.json("verify", "s")["seals"][0]["result"] == "holds"
    assert two_turns.run("seal", "s").code == 0


@pytest.mark.parametrize("wrong", ["missing", "short", "open"])
def test_a_key_that_is_none_is_refused(two_turns: Shell, tmp_path: Path, wrong: str) -> None:
    key = tmp_path / "key"
    if wrong != "missing":
        key.write_bytes(b"k" * (8 if wrong == "short" else 32))
        key.chmod(0o644 if wrong == "open" else 0o600)
    ran = two_turns.run("seal", "s", "--key", str(key))
    assert ran.code == 2, ran
    assert str(key) in ran.err
    assert not (two_turns.state / "outlast.d" / "seals").exists()


def test_a_seal_whose_key_is_not_here_is_said_to_be_unchecked(two_turns: Shell, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    assert two_turns.run("seal", "s", "--key", str(key)).code == 0
    assert two_turns.json("verify", "s")["seals"][0]["result"] == "no_key"
    assert two_turns.json("verify", "s", "--key", str(key))["seals"][0]["result"] == "holds"


def test_what_is_damaged_is_not_sealed(two_turns: Shell) -> None:
    change(two_turns, "UPDATE record SET at = at + 1 WHERE seq = 5")
    ran = two_turns.run("seal", "s", "--json")
    assert (ran.code, ran.error["error"]) == (5, "integrity")


# --- backup ---


def put_back(shell: Shell, backup: Path, aside: Path) -> None:
    """As docs/integrity.md says."""
    aside.mkdir()
    for file in [*shell.state.glob("outlast.db*"), shell.state / "outlast.d"]:
        file.rename(aside / file.name)
    subprocess.run(["tar", "-xf", str(backup), "-C", str(shell.state)], check=True)


def test_a_backup_comes_back_whole_and_has_to_be_accepted_first(two_turns: Shell, tmp_path: Path) -> None:
    two_turns.run("run", "--session", "s", "x" * 300_000)
    assert two_turns.run("seal", "s").code == 0
    before = two_turns.run("tail", "s", "--json", "--internal").out
    backup = tmp_path / "kept.tar"
    made = two_turns.json("backup", str(backup))
    assert (made["sessions"], made["damage"]) == (1, [])
    assert made["blobs"] >= 1
    assert backup.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob(".kept*")) == []
    assert two_turns.run("run", "--session", "s", "lost with the machine").code == 0
    put_back(two_turns, backup, tmp_path / "aside")
    folder = two_turns.state / "outlast.d"
    made_by_tar = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in made_by_tar} == {0o700}
    assert {path.name for path in made_by_tar} >= {"outlast.d", "blobs", "seals"}
    assert two_turns.run("tail", "s", "--json", "--internal").out == before
    assert two_turns.json("verify", "s")["seals"][0]["result"] == "holds"
    looked = two_turns.run("doctor", "--json")
    faults = [one for one in looked.lines[0]["findings"] if one["level"] == "fault"]
    assert [(one["check"], one["remedy"]) for one in faults] == [("store", "outlast doctor --after-restore")]
    for arguments in (
        ("run", "--session", "s", "too early"),
        ("send", "s", "too early"),
        ("resume", "s"),
        ("cancel", "s"),
        ("kill", "s"),
    ):
        refused = two_turns.run(*arguments, "--json")
        assert (refused.code, refused.error["error"]) == (5, "store_behind"), refused
        assert "outlast doctor --after-restore" in refused.error["hint"]
    assert two_turns.run("doctor", "--after-restore").code == 0
    assert two_turns.run("run", "--session", "s", "after").code == 0
    assert two_turns.json("verify", "s")["ok"]
    assert two_turns.run("doctor").code == 0


def test_what_waits_in_a_store_that_is_put_back_is_held_until_a_person_decides(
    two_turns: Shell, tmp_path: Path
) -> None:
    """Inputs that waited in the backup were carried out before it was put back."""
    assert two_turns.run("run", "-a", "scripted", "--session", "quiet", "hello").code == 0
    for key in ("first", "second"):
        assert two_turns.run("send", "s", "--key", key, "[[effect:{turn}]]").code == 0
    backup = tmp_path / "kept.tar"
    assert two_turns.run("backup", str(backup)).code == 0
    assert two_turns.run("resume", "s").code == 0
    assert two_turns.effects.read_text() == "first\nsecond\n"
    put_back(two_turns, backup, tmp_path / "aside")
    found = two_turns.run("doctor", "--after-restore", "--json").lines[0]["findings"]
    (named,) = [one for one in found if one["check"] == "restored"]
    assert (named["session"], named["level"]) == ("s", "warning")
    assert named["message"].endswith("first, second")
    assert "outlast retry s INPUT" in named["remedy"]
    assert "restored" not in {one["check"] for one in two_turns.json("doctor")["findings"]}
    assert two_turns.run("send", "s", "--key", "new", "[[effect:{turn}]]").code == 0
    resumed = two_turns.run("resume", "s")
    assert resumed.code == 1
    assert "outlast retry s first runs it again" in resumed.err
    assert "outlast skip s second leaves it" in resumed.err
    assert two_turns.effects.read_text() == "first\nsecond\nnew\n", "what is sent afterwards is no matter"
    outcomes = {turn["turn"]: turn["outcome"] for turn in two_turns.json("show", "s")["turns"]}
    assert (outcomes["first"], outcomes["second"], outcomes["new"]) == ("parked", "parked", "done")
    assert two_turns.run("skip", "s", "first").code == 0
    assert two_turns.run("retry", "s", "second").code == 0
    assert two_turns.run("resume", "s").code == 0
    assert two_turns.effects.read_text() == "first\nsecond\nnew\nsecond\n"
    assert two_turns.json("verify", "s")["ok"]


def test_accepting_a_store_that_was_not_put_back_holds_nothing(two_turns: Shell) -> None:
    assert two_turns.run("send", "s", "--key", "mine", "[[effect:{turn}]]").code == 0
    found = two_turns.run("doctor", "--after-restore", "--json").lines[0]["findings"]
    assert "restored" not in {one["check"] for one in found}
    assert two_turns.run("resume", "s").code == 0
    assert two_turns.effects.read_text() == "mine\n"


def test_a_backup_is_refused_also_where_no_epoch_was_lost(two_turns: Shell, tmp_path: Path) -> None:
    """Records can be lost without one, and on another machine nobody remembers."""
    backup = tmp_path / "kept.tar"
    assert two_turns.run("backup", str(backup)).code == 0
    put_back(two_turns, backup, tmp_path / "aside")
    for file in (two_turns.state / "epochs").iterdir():
        file.unlink()
    refused = two_turns.run("send", "s", "too early")
    assert "outlast doctor --after-restore" in refused.err
    assert two_turns.run("doctor", "--after-restore").code == 0
    assert two_turns.run("send", "s", "now").code == 0


@pytest.mark.parametrize("way", ["moved aside", "removed"])
def test_a_backup_is_not_accepted_beside_an_agent_that_lives_on(
    shell: Shell, tmp_path: Path, way: str
) -> None:
    """The folder that tells of the agent is another one, or gone."""
    run = shell.start("run", "-a", "scripted", "--session", "s", "[[touch:here]][[wait:go]]")
    until((shell.folder / "here").exists, "the agent to be at work")
    (started,) = shell.records("s", "TurnAttemptStarted")
    shim = next(each["pid"] for each in started["body"]["processes"] if each["role"] == "shim")
    backup = tmp_path / "kept.tar"
    assert shell.run("backup", str(backup)).code == 0
    run.kill()
    run.communicate(timeout=30)
    if way == "removed":
        shutil.rmtree(shell.state / "outlast.d")
        (shell.state / "outlast.d").mkdir(mode=0o700)
    put_back(shell, backup, tmp_path / "aside")
    where = "removed" if way == "removed" else str(tmp_path / "aside")
    try:
        found = shell.run("doctor", "--json").lines[0]["findings"]
        (stray,) = [one for one in found if one["check"] == "shims"]
        assert f"pid {shim}" in stray["message"]
        refused = shell.run("doctor", "--after-restore")
        assert refused.code == 4
        assert f"pid {shim}" in refused.err
        assert where in refused.err
        assert "outlast doctor --after-restore" in shell.run("send", "s", "too early").err
        assert is_alive(shim), "nothing is ended by itself"
        os.kill(shim, signal.SIGTERM)
        until(lambda: not is_alive(shim), "the agent to be ended")
        assert shell.run("doctor", "--after-restore").code == 0
    finally:
        with suppress(ProcessLookupError):
            os.kill(shim, signal.SIGTERM)


def test_a_backup_replaces_nothing_and_leaves_nothing_if_it_fails(two_turns: Shell, tmp_path: Path) -> None:
    there = tmp_path / "there.tar"
    there.write_text("mine")
    assert two_turns.run("backup", str(there)).code == 2
    assert there.read_text() == "mine"
    assert two_turns.run("backup", str(tmp_path / "no" / "where.tar")).code == 2
    full = two_turns.process("backup", "/dev/full/x")
    assert full.code == 2
    assert sorted(tmp_path.glob(".there*")) == []


def test_a_damaged_journal_goes_into_a_backup_and_is_named(two_turns: Shell, tmp_path: Path) -> None:
    seq = seq_of_second_input(two_turns)
    change(two_turns, "UPDATE record SET at = at + 1 WHERE seq = ?", (seq,))
    ran = two_turns.run("backup", str(tmp_path / "kept.tar"), "--json")
    assert ran.code == 5
    (damage,) = ran.lines[0]["damage"]
    assert f"record {seq} of the journal of s" in damage
    with tarfile.open(tmp_path / "kept.tar") as archive:
        assert "outlast.db" in archive.getnames()
    change(two_turns, "DELETE FROM record WHERE seq >= ?", (seq,))
    ran = two_turns.run("backup", str(tmp_path / "again.tar"), "--json")
    assert ran.code == 5
    (damage,) = ran.lines[0]["damage"]
    assert f"the journal of s ends at record {seq - 1}" in damage


def test_damage_goes_into_a_backup_and_is_named(two_turns: Shell, tmp_path: Path) -> None:
    two_turns.run("run", "--session", "s", "x" * 300_000)
    (blob,) = (two_turns.state / "outlast.d" / "blobs").glob("??/" + "[0-9a-f]" * 64)
    data = bytearray(blob.read_bytes())
    data[100] ^= 1
    blob.write_bytes(bytes(data))
    ran = two_turns.run("backup", str(tmp_path / "kept.tar"), "--json")
    assert ran.code == 5
    assert ran.lines[0]["damage"] == [f"blob {blob.name} is changed"]
    blob.unlink()
    ran = two_turns.run("backup", str(tmp_path / "again.tar"), "--json")
    assert (ran.code, ran.lines[0]["damage"]) == (5, [f"blob {blob.name} is missing"])
    blob.mkdir()
    file = tmp_path / "third.tar"
    ran = two_turns.run("backup", str(file), "--json")
    assert (ran.code, ran.lines[0]["damage"]) == (5, [f"blob {blob.name} cannot be read: it is no file"])
    with tarfile.open(file) as archive:
        assert "outlast.db" in archive.getnames()


# --- repair ---


def test_repair_ends_the_journal_before_the_fault_and_keeps_the_rest(two_turns: Shell) -> None:
    seq = seq_of_second_input(two_turns)
    last = records(two_turns)
    before = two_turns.run("tail", "s", "--json", "--internal").lines
    change(two_turns, "UPDATE record SET at = at + 1 WHERE seq = ?", (seq,))
    assert two_turns.run("run", "--session", "s", "third").code == 5
    ran = two_turns.json("repair", "s")
    assert (ran["repaired"], ran["kept"], ran["lost_to"]) == (True, seq - 1, last)
    quarantine = Path(ran["quarantine"])
    kept = [json.loads(line) for line in (quarantine / "rows.jsonl").read_text().splitlines()]
    assert [row["seq"] for row in kept] == [{"integer": str(n)} for n in range(seq, last + 1)]
    assert [row["says"]["type"] for row in kept] == [line["type"] for line in before[seq - 1 :]]
    for row, line in zip(kept, before[seq - 1 :], strict=True):
        said = json.loads(row["says"]["body"])
        plain = {name: value for name, value in said.items() if not isinstance(value, list | dict)}
        assert line["body"] == line["body"] | plain, "beside what is stored, it shows what has its default"
    assert json.loads((quarantine / "about.json").read_text())["session"] == "s"
    after = two_turns.run("tail", "s", "--json", "--internal").lines
    assert after[: seq - 1] == before[: seq - 1]
    assert [line["type"] for line in after[seq - 1 : seq + 1]] == ["Fence", "JournalRepaired"]
    assert after[seq]["body"]["quarantine"] == quarantine.name
    assert two_turns.json("verify", "s")["ok"]
    assert two_turns.run("doctor").code == 0
    again = two_turns.json("repair", "s")
    assert again["repaired"] is False
    assert two_turns.run("tail", "s", "--json", "--internal").lines == after
    assert two_turns.run("run", "--session", "s", "third").code == 0


def test_nothing_that_a_cut_leaves_undecided_runs_again_by_itself(two_turns: Shell) -> None:
    """The second input's record stays, what became of it goes: only its effects know."""
    done = two_turns.effects.read_text() if two_turns.effects.exists() else ""
    (_, second) = two_turns.records("s", "TurnStarted")
    change(two_turns, "UPDATE record SET at = at + 1 WHERE seq = ?", (second["seq"],))
    ran = two_turns.json("repair", "s")
    assert ran["parked"] == [second["turn"]]
    assert two_turns.run("resume", "s").code in (0, 1)
    assert len(two_turns.records("s", "TurnAttemptStarted")) == 1
    assert (two_turns.effects.read_text() if two_turns.effects.exists() else "") == done
    shown = two_turns.show("s")
    assert [turn["outcome"] for turn in shown["turns"]] == ["done", "parked"]
    assert "not known" in shown["turns"][1]["reason"]
    assert two_turns.run("retry", "s", second["turn"]).code == 0
    assert two_turns.run("resume", "s").code == 0
    assert len(two_turns.records("s", "TurnAttemptStarted")) == 2


def test_a_request_whose_record_is_gone_does_not_run_again_under_its_key(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "first").code == 0
    assert shell.run("run", "--session", "s", "--key", "k", "second").code == 0
    (accepted,) = (line for line in shell.records("s", "InputAccepted") if line["body"]["request_id"] == "k")
    change(shell, "UPDATE record SET at = at + 1 WHERE seq = ?", (accepted["seq"],))
    ran = shell.json("repair", "s")
    assert ran["lost"] == ["k"]
    sent = shell.run("run", "--session", "s", "--key", "k", "second", "--json")
    assert (sent.lines[-1]["outcome"], sent.lines[-1]["stop_reason"]) == ("cancelled", "lost")
    assert "not known" in shell.run("run", "--session", "s", "--key", "k", "second").err
    assert len(shell.records("s", "TurnStarted")) == 1


def test_a_session_that_is_owned_is_not_repaired(two_turns: Shell) -> None:
    change(two_turns, "UPDATE record SET at = at + 1 WHERE seq = 5")
    holder = """
import asyncio, sys
from outlast.store.contract import AcquireOptions
from outlast.store.url import open_store
async def main():
    store = await open_store(sys.argv[1])
    await store.acquire("s", AcquireOptions())
    print("owned", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", holder, two_turns.url],
        env=two_turns.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned\n"
        ran = two_turns.run("repair", "s", "--json")
        assert (ran.code, ran.error["error"]) == (4, "lease_held")
    finally:
        owner.kill()
        owner.communicate()
    assert two_turns.json("repair", "s")["repaired"]


def remedies(shell: Shell) -> set[str]:
    """What `verify` and `doctor` name for the journal."""
    found = shell.run("doctor", "--json").lines[0]["findings"]
    told = [one["remedy"] for one in found if one["check"] == "journals"]
    return {*told, shell.run("verify", "s", "--json").lines[0]["remedy"]}


@pytest.mark.parametrize(
    "sql", ["UPDATE record SET at = at + 1 WHERE seq = 2", "DELETE FROM record WHERE seq >= 2"]
)
def test_no_repair_is_named_where_it_would_be_refused(two_turns: Shell, sql: str) -> None:
    change(two_turns, sql)
    assert two_turns.run("repair", "s").code == 5
    named = {remedy.partition(":")[0] for remedy in remedies(two_turns)}
    assert named == {"put a backup back, or outlast repair s --anew"}


def test_a_journal_without_its_beginning_is_left_as_it_is(two_turns: Shell) -> None:
    change(two_turns, "UPDATE record SET at = at + 1 WHERE seq = 2")
    count = records(two_turns)
    ran = two_turns.run("repair", "s", "--json")
    assert (ran.code, ran.error["error"]) == (5, "integrity")
    assert "nothing before it makes a session" in ran.error["message"]
    assert records(two_turns) == count


def test_a_repair_ends_the_agent_that_is_at_work_and_parks_its_turn(shell: Shell) -> None:
    prompt = "[[shell:sleep 60]][[touch:here]][[wait:go]]"
    run = shell.start("run", "-a", "scripted", "--session", "s", prompt)
    until((shell.folder / "here").exists, "the agent to be at work")
    (started,) = shell.records("s", "TurnAttemptStarted")
    run.kill()
    run.communicate(timeout=30)
    change(shell, "UPDATE record SET at = at + 1 WHERE seq = ?", (started["seq"],))
    ran = shell.json("repair", "s")
    assert ran["parked"] == [started["turn"]]
    assert not any(is_alive(process["pid"]) for process in started["body"]["processes"])
    assert [turn["outcome"] for turn in shell.show("s")["turns"]] == ["parked"]
    assert shell.run("doctor").code == 0
    assert shell.run("resume", "s").code in (0, 1)
    assert len(shell.records("s", "TurnAttemptStarted")) == 0, "nothing was begun again"


def test_what_waits_in_an_inbox_that_is_older_than_the_journal_was_is_parked(two_turns: Shell) -> None:
    """It may have been taken, and carried out, in the part that is lost."""
    (first, _) = two_turns.records("s", "InputAccepted")
    turn = first["body"]["request_id"]
    assert two_turns.run("send", "s", "--key", "waiting", "third").code == 0
    assert two_turns.run("skip", "s", turn).code in (0, 4)
    change(two_turns, "DELETE FROM record WHERE seq > ?", (seq_of_second_input(two_turns) - 1,))
    verdict = two_turns.run("verify", "s", "--json").lines[0]
    assert verdict["fault"]["kind"] == "shorter"
    ran = two_turns.json("repair", "s")
    assert "waiting" in ran["parked"]
    assert two_turns.json("verify", "s")["ok"]
    assert two_turns.run("resume", "s").code in (0, 1)
    assert len(two_turns.records("s", "TurnAttemptStarted")) == 1, "only the first turn's own"
    shown = {turn["turn"]: turn["outcome"] for turn in two_turns.show("s")["turns"]}
    assert shown["waiting"] == "parked"
    assert two_turns.run("skip", "s", "waiting").code == 0


# --- damaged pages ---


def spoil_root(shell: Shell, table: str) -> None:
    """Noise in the first page of a table; the log is in the file by then."""
    database = shell.state / "outlast.db"
    connection = apsw.Connection(str(database))
    page = int(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get)
    connection.pragma("wal_checkpoint", "truncate")
    connection.close()
    with database.open("r+b") as file:
        file.seek((page - 1) * 8192)
        file.write(b"\xff" * 200)


def test_a_key_that_was_used_stays_used_when_the_page_that_tells_of_it_is_lost(shell: Shell) -> None:
    """The journals tell of it too. Also of an input that was taken back before anybody accepted it."""
    keyed = [("one", "[[effect:1]]"), ("two", "[[effect:2]]")]
    assert shell.run("run", "-a", "scripted", "--session", "s", "--key", *keyed[0]).code == 0
    assert shell.run("send", "s", "--key", *keyed[1]).code == 0
    sent = shell.run("send", "s", "--key", "back", "[[effect:3]]", "--json").lines[0]
    assert shell.run("cancel", "s", sent["turn"]).code == 0
    assert shell.run("resume", "s").code == 0
    done = shell.effects.read_text()
    spoil_root(shell, "settled")
    (found,) = [
        one["remedy"]
        for one in shell.run("doctor", "--json").lines[0]["findings"]
        if one["check"] == "store" and one["level"] == "fault"
    ]
    assert found == "outlast repair --database"
    repaired = shell.json("repair", "--database")
    assert repaired["known_again"] >= 3
    for key, text in [*keyed, ("back", "[[effect:3]]")]:
        assert shell.run("send", "s", "--key", key, text).code == 0
    assert shell.run("resume", "s").code == 0
    assert shell.effects.read_text() == done
    assert shell.json("verify", "s")["ok"]
    accepted = [record["body"]["request_id"] for record in shell.records("s", "InputAccepted")]
    assert sorted(accepted) == sorted(set(accepted))
    assert shell.run("send", "s", "--key", "new", "[[effect:4]]").code == 0
    assert shell.run("resume", "s").code == 0
    assert shell.effects.read_text() != done


def test_inputs_that_waited_on_a_lost_page_are_said_to_be_lost(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "hello").code == 0
    assert shell.run("send", "s", "waits").code == 0
    spoil_root(shell, "inbox")
    ran = shell.run("repair", "--database")
    assert ran.code == 0
    assert "inputs that waited are lost, and of which sessions is not known" in ran.out


# --- damaged inputs ---


def flip_in_inbox(shell: Shell, request: str) -> None:
    """One bit of a prompt that waits, under the database: its pages are sound, and so is the request."""
    connection = apsw.Connection(str(shell.state / "outlast.db"))
    body = connection.execute("SELECT body FROM inbox WHERE request = ?", (request,)).get
    assert isinstance(body, bytes)
    values = (body.replace(b"effect:9", b"effect:8"), request)
    connection.execute("UPDATE inbox SET body = ? WHERE request = ?", values)
    connection.close()


def test_an_input_that_is_not_what_was_sent_is_not_carried_out(shell: Shell) -> None:
    """It is named before, and told when it is passed over; what waits behind it goes on."""
    assert shell.run("run", "-a", "scripted", "--session", "s", "[[effect:1]]").code == 0
    assert shell.run("send", "s", "--key", "bad", "[[effect:9]]").code == 0
    assert shell.run("send", "s", "--key", "good", "[[effect:2]]").code == 0
    flip_in_inbox(shell, "bad")
    verdict = shell.run("verify", "s", "--json")
    assert (verdict.code, verdict.lines[0]["ok"], verdict.lines[0]["inbox"]) == (5, False, ["bad"])
    findings = shell.run("doctor", "--json").lines[0]["findings"]
    (found,) = [one for one in findings if one["check"] == "inbox"]
    assert (found["level"], found["session"], found["remedy"]) == ("fault", "s", "outlast resume s")
    assert [one["input"] for one in shell.show("s")["queue"]] == ["(cannot be read)", "[[effect:2]]"]
    ran = shell.run("resume", "s")
    assert ran.code == 1
    assert "damaged where it waited" in ran.err
    effects = shell.effects.read_text()
    assert ("1" in effects, "2" in effects, "8" in effects, "9" in effects) == (True, True, False, False)
    (settled,) = shell.records("s", "InputCancelled")
    assert settled["body"] == {"request_id": "bad", "reason": "damaged"}
    assert shell.run("send", "s", "--key", "bad", "[[effect:9]]").code == 0
    assert shell.run("resume", "s").code == 0
    assert shell.effects.read_text() == effects, "the key was used"
    told = shell.run("run", "--session", "s", "--key", "bad", "[[effect:9]]")
    assert told.code == 1
    assert "damaged where it waited" in told.err
    assert shell.run("verify", "s").code == 0


def test_a_program_is_told_of_a_damaged_input_as_of_a_turn(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "s", "hello").code == 0
    assert shell.run("send", "s", "--key", "bad", "[[effect:9]]").code == 0
    flip_in_inbox(shell, "bad")
    ran = shell.run("resume", "s", "--json")
    assert ran.code == 1
    assert ran.lines[0] == {"session": "s", "turn": "bad"}
    assert ran.lines[-1] == {"outcome": "failed", "stop_reason": "damaged", "text": ""}


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE inbox SET kind = CAST(x'ff41ff' AS TEXT)",
        "UPDATE inbox SET kind = 'retry'",
        "UPDATE inbox SET actor = CAST(x'ff41ff' AS TEXT)",
        "UPDATE inbox SET opening = CAST(x'ff41ff' AS TEXT)",
    ],
)
def test_an_input_whose_marks_are_damaged_runs_as_it_was_sent(shell: Shell, sql: str) -> None:
    """Its body and its digest say what it is."""
    assert shell.run("run", "-a", "scripted", "--session", "s", "hello").code == 0
    assert shell.run("send", "s", "--key", "one", "[[effect:1]]").code == 0
    change(shell, sql)
    assert shell.run("resume", "s").code == 0
    assert shell.effects.read_text().count("1") == 1
    assert shell.run("verify", "s").code == 0
