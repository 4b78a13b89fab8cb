"""`outlast doctor`: faults are found, named with what mends them, and exit 1."""

import os
import signal
import subprocess
import sys
from typing import Any

import apsw
import pytest
from tests.cli.support import Shell, is_alive, until
from tests.cli.test_integrity import spoil_root

from outlast.cli.check_machine import service_findings


def findings(shell: Shell, check: str) -> list[dict[str, Any]]:
    ran = shell.run("doctor", "--json")
    found: list[dict[str, Any]] = ran.lines[0]["findings"]
    assert ran.code == (0 if ran.lines[0]["ok"] else 1)
    return [finding for finding in found if finding["check"] == check]


def worst(found: list[dict[str, Any]]) -> dict[str, Any]:
    order = ("fault", "warning", "note", "ok")
    return min(found, key=lambda finding: order.index(finding["level"]))


def test_a_healthy_machine_has_no_fault_before_and_after_the_first_run(shell: Shell) -> None:
    assert shell.run("doctor").code == 0
    assert not shell.state.exists(), "looking makes nothing"
    shell.run("run", "-a", "scripted", "hello")
    ran = shell.run("doctor", "--json")
    assert (ran.code, ran.lines[0]["ok"]) == (0, True), ran
    assert {"filesystem", "permissions", "disk", "sqlite", "store", "journals", "agents", "shims"} <= {
        finding["check"] for finding in ran.lines[0]["findings"]
    }


def test_old_blobs_that_no_record_needs_are_counted(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "hello")
    assert "no old blob" in worst(findings(shell, "blobs"))["message"]
    blob = shell.state / "outlast.d" / "blobs" / "00" / f"00{'1' * 62}"
    blob.parent.mkdir(mode=0o700, exist_ok=True)
    blob.write_bytes(bytes(3 << 20))
    os.utime(blob, (1, 1))
    assert "1 old blobs without a record, 3.0 MiB" in worst(findings(shell, "blobs"))["message"]
    assert blob.exists(), "looking changes nothing"


def test_folders_that_others_can_read_are_named(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "hello")
    shell.state.chmod(0o755)
    (shell.state / "outlast.db").chmod(0o644)
    found = findings(shell, "permissions")
    assert worst(found)["level"] == "fault"
    assert f"chmod 600 '{shell.state}/outlast.db'" in {finding["remedy"] for finding in found}
    assert f"chmod 700 '{shell.state}'" in {finding["remedy"] for finding in found}


def test_a_store_that_is_none_is_a_fault(shell: Shell) -> None:
    shell.state.mkdir(mode=0o700)
    (shell.state / "outlast.db").write_bytes(b"no database at all" * 1000)
    assert worst(findings(shell, "store"))["level"] == "fault"
    (shell.state / "outlast.db").unlink()


def test_a_backup_that_was_put_back_is_refused_until_it_is_accepted(shell: Shell) -> None:
    """What it has lost is named first; then work goes on from what it has."""
    shell.run("run", "-a", "scripted", "--session", "s", "hello")
    backup = apsw.Connection(str(shell.folder / "copy.db"))
    with backup.backup("main", apsw.Connection(str(shell.state / "outlast.db")), "main") as copying:
        copying.step()
    backup.close()
    shell.run("run", "--session", "s", "more")
    for file in shell.state.glob("outlast.db*"):
        file.unlink()
    (shell.folder / "copy.db").rename(shell.state / "outlast.db")
    (shell.state / "outlast.db").chmod(0o600)
    refused = shell.run("run", "--session", "s", "and more")
    assert refused.code != 0
    assert "outlast doctor --after-restore" in refused.err + shell.run("resume", "s").err
    assert shell.run("doctor").code == 1
    assert shell.run("doctor", "--after-restore").code == 0
    assert shell.run("run", "--session", "s", "and more").code == 0


@pytest.mark.parametrize("way", ["emptied", "removed"])
def test_a_witness_that_was_lost_is_named_for_good(shell: Shell, way: str) -> None:
    """Work goes on, but who relies on it must hear that it could not tell for a while."""
    shell.run("run", "-a", "scripted", "--session", "s", "hello")
    assert findings(shell, "witness") == []
    witness = shell.state / "outlast.d" / "witness"
    if way == "emptied":
        os.truncate(witness, 0)
    else:
        witness.unlink()
    assert "by the next command" in worst(findings(shell, "witness"))["message"]
    assert findings(shell, "journals") == []
    assert shell.run("run", "--session", "s", "go on").code == 0
    (found,) = findings(shell, "witness")
    assert found["level"] == "warning"
    assert "it was begun anew" in found["message"]
    assert worst(findings(shell, "journals"))["level"] == "ok"


def test_a_first_run_that_was_cut_off_is_no_fault(shell: Shell) -> None:
    shell.state.mkdir(mode=0o700)
    (shell.state / "outlast.db").touch(mode=0o600)
    assert worst(findings(shell, "store"))["level"] == "note"
    assert shell.run("run", "-a", "scripted", "hello").code == 0
    assert worst(findings(shell, "store"))["level"] == "ok"


def test_an_agent_folder_that_cannot_be_looked_at_is_named(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "hello")
    folder = shell.state / "outlast.d" / "agents" / "strange"
    (folder / "lock").mkdir(parents=True)
    found = worst(findings(shell, "shims"))
    assert found["level"] == "warning"
    assert f"{folder} cannot be looked at" in found["message"]


def test_a_broken_configuration_is_a_fault_and_the_rest_is_still_looked_at(shell: Shell) -> None:
    shell.config.write_text("stroe = 'x'\n")
    found = findings(shell, "configuration")
    assert worst(found)["level"] == "fault"
    assert "stroe" in found[0]["message"]
    assert findings(shell, "disk")


def test_every_broken_agent_table_is_a_fault_of_its_own(shell: Shell) -> None:
    first = len(shell.config.read_text().splitlines()) + 1
    with shell.config.open("a") as config:
        config.write("[agents.x]\nkind = 'comand'\n[agents.y]\nkind = 'command'\n")
    faults = [each for each in findings(shell, "configuration") if each["level"] == "fault"]
    told = [each["message"] for each in faults]
    assert f"`agents.x.kind` in {shell.config}:{first}: there is no agent kind 'comand'" in told
    assert f"agent y: it has no `command` (in {shell.config}:{first + 2})" in told
    assert any("agent scripted" in each["message"] for each in findings(shell, "agents"))
    rows = {row["name"]: row for row in shell.json("agents")}
    assert "comand" in rows["x"]["problem"]
    assert rows["scripted"]["problem"] is None
    assert "wrong: " in shell.run("agents").out


@pytest.mark.parametrize(
    "address", ["postgres://x/y", "nonsense", "sqlite:///tmp", "sqlite:///dev/null/x.db"]
)
def test_a_store_that_cannot_be_is_a_fault_and_an_error_of_every_command(shell: Shell, address: str) -> None:
    shell.environ["OUTLAST_STORE"] = address
    (found,) = findings(shell, "store")
    assert found["level"] == "fault"
    assert findings(shell, "agents")
    for arguments in (("ls",), ("show", "x"), ("run", "-a", "scripted", "hello")):
        ran = shell.run(*arguments)
        assert ran.code == 2, ran
        assert found["message"] in ran.err


def test_an_agent_whose_program_is_missing_is_named(shell: Shell) -> None:
    shell.agents(gone=("/no/such/program",))
    assert any("agent gone cannot be launched here" in f["message"] for f in findings(shell, "agents"))


def test_processes_that_a_dead_agent_left_behind_are_a_fault(shell: Shell) -> None:
    run = shell.start(
        "run", "-a", "scripted", "--session", "s", "[[shell:sleep 60]][[touch:here]][[wait:go]]"
    )
    until((shell.folder / "here").exists, "the agent to be at work")
    (started,) = shell.records("s", "TurnAttemptStarted")
    run.kill()
    run.communicate(timeout=30)
    assert worst(findings(shell, "shims"))["session"] == "s"
    pids = [process["pid"] for process in started["body"]["processes"]]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: each would mend what the other leaves
        for pid in pids:
            os.kill(pid, number)
    until(lambda: not any(map(is_alive, pids)), "guard and shim to be gone")
    orphans = findings(shell, "orphans")
    assert worst(orphans)["level"] == "fault"
    assert "outlast kill s" in orphans[0]["remedy"]
    assert shell.run("kill", "s").code == 0
    assert findings(shell, "orphans") == []


def test_a_process_that_is_stopped_inside_a_transaction_is_named(shell: Shell) -> None:
    shell.run("run", "-a", "scripted", "hello")
    turn = shell.state / "outlast.d" / "turn"
    lock = "f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX); os.kill(os.getpid(), signal.SIGSTOP)"
    program = f"import fcntl, os, signal, sys; {lock}"
    holder = subprocess.Popen([sys.executable, "-c", program, turn])
    try:
        os.waitpid(holder.pid, os.WUNTRACED)
        found = worst(findings(shell, "transaction"))
        assert (found["level"], found["remedy"]) == ("fault", f"kill -CONT {holder.pid}")
    finally:
        holder.kill()
        holder.wait()


@pytest.mark.parametrize(
    ("cgroup", "level"),
    [
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-terminal.scope\n", "ok"),
        ("0::/user.slice/user-1000.slice/user@1000.service\n", "ok"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "ok"),
        ("0::/system.slice/outlast.service\n", "warning"),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/outlast.service\n", "warning"),
        ("0::/\n", "ok"),
        ("", "ok"),
    ],
)
def test_a_service_that_would_end_agents_is_recognised_by_its_cgroup(cgroup: str, level: str) -> None:
    (finding,) = service_findings(cgroup)
    assert finding.level == level


def put_back(shell: Shell) -> None:
    """As a database is that came out of a backup."""
    connection = apsw.Connection(str(shell.state / "outlast.db"))
    connection.execute("UPDATE store SET backup_at = 1")
    connection.close()


@pytest.mark.parametrize("table", ["catalog", "record"])
@pytest.mark.parametrize("option", [(), ("--after-restore",)], ids=["looks", "accepts"])
def test_a_damaged_page_does_not_end_the_doctor_where_agents_have_been(
    shell: Shell, table: str, option: tuple[str, ...]
) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "hello")
    if option:
        put_back(shell)
    spoil_root(shell, table)
    ran = shell.run("doctor", "--json", *option)
    assert ran.code == 1, ran
    found = {(one["check"], one["level"]): one for one in ran.lines[0]["findings"]}
    assert found["store", "fault"]["remedy"] == "outlast repair --database"
    assert {check for check, _ in found} >= {"shims", "agents"}
    if option and table == "catalog":
        assert "cannot be told" in found["restored", "warning"]["message"]
    assert shell.run("repair", "--database").code == 0
