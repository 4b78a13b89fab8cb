"""What fails once an input is stored says so: it is not to be sent again."""

import sqlite3

import pytest
from tests.cli.support import Shell


def faulty(shell: Shell, *points: str) -> dict[str, str]:
    plan = ",".join(f"{point}=raise:ENOSPC" for point in points)
    return {**shell.environ, "OUTLAST_FAULTS": plan, "OUTLAST_FAULTS_TESTING": "1"}


@pytest.mark.parametrize(
    "point",
    [
        "restore.acquire.before",
        pytest.param("restore.probe.before", marks=pytest.mark.slow),
        pytest.param("restore.begin.before_append", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_cannot_go_on_names_what_is_stored_and_resume_runs_it_once(
    shell: Shell, point: str
) -> None:
    environ = faulty(shell, point)
    ran = shell.process(
        "run", "--json", "-a", "scripted", "--session", "s", "[[effect:{turn}]]", environ=environ
    )
    assert ran.code == 1, ran
    turn = ran.lines[0]["turn"]
    assert ran.error["session"] == "s"
    assert "No space left on device" in ran.error["message"]
    assert f"the input is stored, as turn {turn} of session s" in ran.error["message"]
    assert "`outlast resume s` goes on with it" in ran.error["hint"]
    assert "run the same command again" not in ran.error["hint"]
    assert shell.run("resume", "s").code == 0
    assert shell.effects.read_text() == f"{turn}\n"


def test_it_is_told_to_people_too_and_the_way_back_stays_resume(shell: Shell) -> None:
    ran = shell.process(
        "run", "-a", "scripted", "--session", "s", "hi", environ=faulty(shell, "restore.acquire.before")
    )
    assert ran.code == 1
    error, back = ran.err.splitlines()
    assert back == "to come back: outlast resume s"
    assert "the input is stored, as turn" in error


def test_the_exit_code_is_that_of_what_failed(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "one")
    with sqlite3.connect(shell.state / "outlast.db") as database:
        database.execute("UPDATE record SET at = at + 1 WHERE seq = 4")
    database.close()
    ran = shell.run("run", "--json", "--session", "s", "two")
    assert (ran.code, ran.error["error"]) == (5, "integrity"), ran
    assert "the input is stored, as turn" in ran.error["message"]


def test_what_fails_before_an_input_is_stored_does_not_speak_of_it(shell: Shell) -> None:
    ran = shell.run("run", "--json", "-a", "nobody", "hi")
    assert ran.code == 3
    assert "stored" not in ran.err
