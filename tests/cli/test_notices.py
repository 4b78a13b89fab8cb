"""What the library has to say beside the work reaches standard error in the command's own form."""

import asyncio
import json
import logging
import pkgutil
import warnings
from collections.abc import Mapping

import pytest
from tests.cli.support import Ran, Shell

from outlast.cli.output import Screen
from outlast.cli.present import JsonPresenter
from outlast.cli.running import run_async
from outlast.runtime.backing import Delta
from outlast.store.url import open_store

FAILS_TWICE = "restore.done.before_append=raise:ENOSPC,restore.errored.before_append=raise:ENOSPC"
TOLD = "a restore that failed could not be taken back whole"


def failing(shell: Shell, *options: str) -> Ran:
    """A run whose restore fails, and whose taking back fails too."""
    shell.run("run", "-a", "scripted", "--session", "s", "one")
    environ: Mapping[str, str] = {
        **shell.environ, "OUTLAST_FAULTS": FAILS_TWICE, "OUTLAST_FAULTS_TESTING": "1",
    }  # fmt: skip
    return shell.process("run", "--session", "s", *options, "two", environ=environ)


def test_with_json_it_is_a_notice_among_lines_of_json(shell: Shell) -> None:
    ran = failing(shell, "--json")
    lines = [json.loads(line) for line in ran.err.splitlines()]
    (notice,) = [line["notice"] for line in lines if "notice" in line]
    assert TOLD in notice


def test_for_people_it_is_one_line(shell: Shell) -> None:
    ran = failing(shell)
    (line,) = [line for line in ran.err.splitlines() if TOLD in line]
    assert line.startswith("outlast: ")
    assert "Traceback" not in ran.err


def test_with_debug_its_traceback_is_shown(shell: Shell) -> None:
    assert "Traceback" in failing(shell, "--debug").err


@pytest.mark.parametrize(
    ("command", "work"),
    [
        (("repair", "s"), "outlast.restore.repair.repair"),
        (("repair", "--database"), "outlast.restore.repair.relist"),
        (("verify", "s"), "outlast.restore.repair.look"),
        (("doctor",), "outlast.journal.integrity.verify"),
        (("bench",), "outlast.cli.measuring.measure"),
    ],
)
def test_a_command_that_looks_or_mends_tells_it_in_its_own_form(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], work: str
) -> None:
    shell.run("run", "-a", "scripted", "--session", "s", "one")
    before = pkgutil.resolve_name(work)

    async def warns(*given: object) -> object:
        logging.getLogger("outlast").warning("something is odd")
        return [] if command == ("bench",) else await before(*given)

    monkeypatch.setattr(work, warns)
    told = [json.loads(line) for line in shell.run(*command, "--json").err.splitlines()]
    assert {"notice": "outlast: something is odd"} in told


def test_warnings_and_the_event_loops_complaints_are_notices_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            for captured in (False, True):  # anew: the block has put the usual printer back
                logging.captureWarnings(captured)
            warnings.warn("an old way", UserWarning, stacklevel=1)
        context = {"message": "a callback failed", "exception": ValueError("here\nand there")}
        asyncio.get_running_loop().call_exception_handler(context)

    run_async(Screen({}, as_json=True), work())
    err = [json.loads(line)["notice"] for line in capsys.readouterr().err.splitlines()]
    assert "an old way" in err[0]
    assert err[1] == "outlast: a callback failed: ValueError: here\nand there"


async def test_what_an_agent_says_of_its_own_state_is_a_notice_with_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = await open_store("memory://")
    presenter = JsonPresenter(Screen({}, as_json=True), store)
    presenter.delta(Delta("t", "words that are not durable yet"))
    presenter.delta(Delta("t", "it waits for the network", notice=True))
    await store.close()
    told = capsys.readouterr()
    assert told.out == ""
    assert [json.loads(line) for line in told.err.splitlines()] == [{"notice": "it waits for the network"}]
