"""How much memory the commands need that show a turn: none of them holds its text."""

import os
from contextlib import suppress
from pathlib import Path
from subprocess import Popen

import pytest
from tests.cli.support import Shell, until
from tests.support.processes import peak_memory

MEBIBYTE = 1024 * 1024
FEW, MANY = 4, 80
"""Mebibytes of text in one turn."""

pytestmark = pytest.mark.slow


def peak_of(process: Popen[str], output: Path) -> int:
    """The most memory that the process has until its output is read to its end, in bytes; it has to end
    well. The output goes to a file."""
    assert process.stdout is not None
    peak, looked_at = 0, -MEBIBYTE
    with output.open("wb") as file:
        while chunk := os.read(process.stdout.fileno(), 65536):
            file.write(chunk)
            if file.tell() - looked_at >= MEBIBYTE:
                looked_at = file.tell()
                with suppress(AssertionError):  # it has ended, and left its last words in the pipe
                    peak = max(peak, peak_memory(process.pid))
    assert process.wait(30) == 0
    return peak


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_run_does_not_hold_the_text_of_a_turn(shell: Shell, tmp_path: Path, options: tuple[str, ...]) -> None:
    peaks = {}
    for size in (FEW, MANY):
        output = tmp_path / "output"
        process = shell.start("run", "-a", "scripted", *options, f"[[text:{size}]]")
        peaks[size] = peak_of(process, output)
        # In JSON it stands in the records and in the outcome.
        assert output.stat().st_size >= (2 if options else 1) * size * MEBIBYTE
    assert peaks[MANY] - peaks[FEW] < (MANY - FEW) * MEBIBYTE


@pytest.mark.parametrize("prompt", ["[[wait:go]][[text:{}]]", "[[wait:go]][[text:{}]][[wait:on]]"])
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_resume_does_not_hold_the_text_of_a_turn(
    shell: Shell, tmp_path: Path, options: tuple[str, ...], prompt: str
) -> None:
    """Neither of one that ended while nobody was there, nor of one that goes on."""
    attaches = "on" in prompt.split("]]")[-2]
    peaks = {}
    for size in (FEW, MANY):
        session, output = f"s{size}", tmp_path / "output"
        for file in ("go", "on"):
            (shell.folder / file).unlink(missing_ok=True)
        owner = shell.start("run", "-a", "scripted", "--session", session, prompt.format(size))
        until(lambda: bool(shell.records(session, "InputReserved")), "the agent to be at work")  # noqa: B023
        owner.kill()
        owner.communicate(timeout=30)
        (shell.folder / "go").touch()
        if not attaches:
            until(lambda: shell.json("plan", session)["turns"][0]["action"] == "settle", "its end")  # noqa: B023
        (shell.folder / "on").touch()
        peaks[size] = peak_of(shell.start("resume", session, *options), output)
        assert output.stat().st_size >= (2 if options else 1) * size * MEBIBYTE
    assert peaks[MANY] - peaks[FEW] < (MANY - FEW) * MEBIBYTE
