"""Journals of which nothing is left, or not their beginning: named, refused, and begun anew when asked."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.cli.support import Ran, Shell, is_alive, until

AGAIN = "outlast repair ph --anew"


def change(shell: Shell, sql: str, values: tuple[int, ...] | None = None) -> None:
    connection = apsw.Connection(str(shell.state / "outlast.db"))
    connection.execute(sql, values)
    connection.close()


def lose(shell: Shell) -> None:
    change(shell, "DELETE FROM record; DELETE FROM snapshot")


@pytest.fixture
def lost(shell: Shell) -> Shell:
    """A session with one turn behind it, and no record any more."""
    assert (
        shell.run("run", "-a", "scripted", "--session", "ph", "--key", "one", "[[effect:{turn}]]").code == 0
    )
    lose(shell)
    return shell


def faults(shell: Shell) -> list[dict[str, Any]]:
    findings = shell.run("doctor", "--json").lines[0]["findings"]
    return [found for found in findings if found["level"] == "fault"]


def remedies(shell: Shell) -> set[str]:
    return {fault["remedy"] for fault in faults(shell)}


def refused(ran: Ran) -> None:
    assert (ran.code, ran.error["error"]) == (5, "integrity"), ran
    assert AGAIN in ran.error["hint"]


@pytest.mark.parametrize("accepted", [False, True], ids=["as found", "after --after-restore"])
def test_a_session_whose_journal_is_lost_whole_is_named_and_nothing_is_queued_for_it(
    lost: Shell, accepted: bool
) -> None:
    if accepted:
        assert lost.run("doctor", "--after-restore").code == 1
    assert lost.run("ls").code == 0
    assert remedies(lost) == {f"put a backup back, or {AGAIN}"}
    found = lost.json("repair", "--database")
    assert (found["repaired"], found["unlisted"]) == (False, ["ph"])
    assert AGAIN in lost.run("repair", "--database").out
    verdict = lost.run("verify", "ph", "--json")
    assert (verdict.code, verdict.lines[0]["fault"]["kind"]) == (5, "shorter")
    assert AGAIN in verdict.lines[0]["remedy"]
    refused(lost.run("repair", "ph", "--json"))
    if accepted:
        for arguments in (
            ("send", "ph", "two"),
            ("resume", "ph"),
            ("run", "--session", "ph", "two"),
            ("cancel", "ph"),
            ("plan", "ph"),
            ("show", "ph"),
        ):
            refused(lost.run(*arguments, "--json"))
        assert lost.sessions()[0]["queued"] == 0


def test_a_lost_session_begins_anew_with_its_name_and_says_so(lost: Shell) -> None:
    before = lost.sessions()[0]
    ran = lost.json("repair", "ph", "--anew")
    assert (ran["repaired"], ran["kept"], ran["lost"]) == (True, 0, ["one"])
    about = json.loads((Path(ran["quarantine"]) / "about.json").read_text())
    assert (about["session"], about["kept"], about["lost_to"]) == ("ph", 0, ran["lost_to"])
    assert ran["lost_to"] > 1
    assert faults(lost) == []
    assert lost.json("verify", "ph")["ok"]
    after = lost.sessions()[0]
    for name in ("id", "title", "agent", "workspace"):
        assert after[name] == before[name]
    assert f"records 1 to {ran['lost_to']} were taken out" in lost.run("tail", "ph").out
    told = lost.run("run", "--session", "ph", "--key", "one", "[[effect:{turn}]]")
    assert "not known" in told.err, "what was sent before is not carried out a second time"
    assert lost.effects.read_text() == "one\n"
    assert lost.run("run", "--session", "ph", "--key", "two", "[[effect:{turn}]]").code == 0
    assert lost.effects.read_text() == "one\ntwo\n"
    assert lost.json("repair", "ph", "--anew")["repaired"] is False


def test_what_waits_for_a_lost_session_is_parked_when_it_begins_anew(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "ph", "hello").code == 0
    assert shell.run("send", "ph", "--key", "two", "[[effect:{turn}]]").code == 0
    lose(shell)
    assert shell.json("repair", "ph", "--anew")["parked"] == ["two"]
    assert shell.run("resume", "ph").code in (0, 1)
    assert not shell.effects.exists()
    assert shell.run("retry", "ph", "two").code == 0
    assert shell.run("resume", "ph").code == 0
    assert shell.effects.read_text() == "two\n"


@pytest.mark.parametrize("seq", [1, 2, 3])
def test_a_journal_without_its_beginning_is_given_up_when_asked_and_kept_readable(
    shell: Shell, seq: int
) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "ph", "first words").code == 0
    whole = shell.run("tail", "ph", "--json", "--internal").lines
    change(shell, "UPDATE record SET at = at + 1 WHERE seq = ?", (seq,))
    assert remedies(shell) == {f"put a backup back, or {AGAIN}: nothing before the fault makes a session"}
    ran = shell.json("repair", "ph", "--anew")
    kept = [json.loads(line) for line in (Path(ran["quarantine"]) / "rows.jsonl").read_text().splitlines()]
    assert [row["says"]["type"] for row in kept] == [record["type"] for record in whole]
    assert faults(shell) == []
    assert shell.run("run", "--session", "ph", "more").code == 0
    assert shell.json("verify", "ph")["ok"]


def test_an_agent_that_may_be_the_lost_sessions_own_is_not_given_a_second_one(shell: Shell) -> None:
    run = shell.start("run", "-a", "scripted", "--session", "ph", "[[touch:here]][[wait:go]]")
    until((shell.folder / "here").exists, "the agent to be at work")
    (started,) = shell.records("ph", "TurnAttemptStarted")
    shim = next(each["pid"] for each in started["body"]["processes"] if each["role"] == "shim")
    run.kill()
    run.communicate(timeout=30)
    lose(shell)
    try:
        ran = shell.run("repair", "ph", "--anew", "--json")
        assert (ran.code, ran.error["hint"]) == (4, f"`kill {shim}` ends it in order; then the same again")
        os.kill(shim, signal.SIGTERM)
        until(lambda: not is_alive(shim), "the agent to be ended")
        assert shell.json("repair", "ph", "--anew")["repaired"]
    finally:
        with suppress(ProcessLookupError):
            os.kill(shim, signal.SIGTERM)


def test_a_session_of_which_only_an_input_is_left_takes_the_agent_that_is_named(shell: Shell) -> None:
    assert shell.run("run", "-a", "scripted", "--session", "ph", "hello").code == 0
    assert shell.run("send", "ph", "--key", "two", "[[effect:{turn}]]").code == 0
    lose(shell)
    change(shell, "DELETE FROM catalog")
    assert remedies(shell) == {f"put a backup back, or {AGAIN}"}
    assert shell.run("repair", "ph", "--anew").code == 2
    assert shell.json("repair", "ph", "--anew", "--agent", "scripted")["parked"] == ["two"]
    assert faults(shell) == []
    assert shell.run("repair", "ph", "--agent", "scripted").code == 2
