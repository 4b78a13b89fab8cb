"""Any text, any folder, any environment, any disk: unchanged, or refused with a clear error."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.place import Place, place_at
from tests.support.processes import until

from outlast.errors import InputError
from outlast.records.types import InputAccepted, TurnAttached

QUICK = "[[effect:{turn}]][[say:finished {turn}]]"
MID_TURN = "[[effect:{turn}]][[touch:started]][[wait:go]][[messages:40]][[say:finished {turn}]]"

HARD = (
    "--a dash first\r\n\r\n\ttab, nul \0 bell \a, e\u0301 \u00e9, "
    "\U0001f9d1\u200d\U0001f680, \u2028 \ufeff end \r\n "
)


def text_that_arrived(place: Place, name: str = "got") -> str:
    """What the agent was given, from the prompt's line exactly as it came."""
    line = json.loads(place.until_there(name))
    text = "".join(block["text"] for block in line["input"])
    assert isinstance(text, str)
    return text


# --- texts -----------------------------------------------------------------------------------------


def test_text_mangled(place: Place) -> None:
    """Each character of a hard text and a mebibyte more, through standard input: what the agent gets, what
    the journal holds and what the agent says back is the same text."""
    text = HARD + "x" * (1 << 20) + HARD
    given = text + "[[prompt:got]]"
    ran = place.call("run", "-a", "plain", "--session", "job", "--key", "k", "-", stdin=given.encode())
    assert ran.status == 0, ran
    assert text_that_arrived(place) == given
    (accepted,) = place.journal("job").bodies(InputAccepted)
    assert [block.text for block in accepted.content] == [given]

    said = place.call("run", "-a", "plain", "--json", "-", stdin=text.encode())
    assert said.lines[-1]["text"] == text


@pytest.mark.slow
def test_text_mangled_through_the_api(place: Place) -> None:
    text = HARD + "[[prompt:got]]"
    place.send("job", text, key="one")
    assert place.call("resume", "job").status == 0
    assert text_that_arrived(place) == text


def test_leading_dashes_as_an_argument(place: Place) -> None:
    text = "--json -- [[prompt:got]]"
    assert place.call("run", "-a", "plain", "--", text).status == 0
    assert text_that_arrived(place) == text


def test_lone_surrogates_are_refused(place: Place) -> None:
    """Bytes that are not UTF-8, however they come, and a lone surrogate: nothing is stored."""
    for refused in (
        place.call("run", "-a", "plain", "--json", "-", stdin=b"caf\xe9"),
        place.call("run", "-a", "plain", "--json", os.fsdecode(b"caf\xe9")),
        place.call("run", "-a", "plain", "--json", "-", stdin=b"\xed\xa0\x80"),
    ):
        assert refused.status == 2, refused
        (error,) = refused.errors
        assert error["error"] == "input"
        assert "UTF-8" in error["message"]
        assert error["hint"]
    with pytest.raises(InputError, match="surrogate"):
        place.send("job", "half an emoji \ud83e", key="one")
    assert json.loads(place.call("ls", "--json").stdout) == []


# --- folders and environments ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "with spaces, a ? a # a % and %41",
        pytest.param("\u00e9t\u00e9 \U0001f9d1\u200d\U0001f680 \u00fc", marks=pytest.mark.slow),
        pytest.param("a" * 200 + "/" + "b" * 200, marks=pytest.mark.slow),
    ],
    ids=["signs", "unicode", "long"],
)
def test_state_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """Also behind a symbolic link: the runtime dies, the next one attaches."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real", target_is_directory=True)
    with place_at(tmp_path / "place", state=link / name) as place:
        runtime = place.start("run", "-a", "plain", "--session", "job", "--key", "one", MID_TURN)
        place.until_there("started")
        runtime.kill()
        owner = place.start("resume", "job", "--json")
        place.until_recorded("job", "TurnAttached")
        place.go()
        assert owner.wait().outcomes == ["done"]
        assert (tmp_path / "real" / name / "outlast.db").is_file()
        place.assert_effects_once("one")


def test_no_home(place: Place) -> None:
    place.variables = {"HOME": ""}
    assert place.call("run", "-a", "plain", "--session", "job", QUICK).status == 0
    assert json.loads(place.call("ls", "--json").stdout)[0]["id"] == "job"


def test_old_locale(place: Place) -> None:
    """`LANG=C` and `LC_ALL=C`: the text is the same text, in and out."""
    place.variables = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}
    text = "caf\u00e9 \U0001f680"
    ran = place.call("run", "-a", "plain", "--session", "job", "--json", "-", stdin=text.encode())
    assert ran.status == 0, ran
    assert ran.lines[-1]["text"] == text
    argument = place.call("run", "--session", "job", text)
    assert argument.status == 0, argument
    shown = place.call("show", "job")
    assert shown.status == 0, shown


@pytest.mark.parametrize(
    "way", ["| true", ">&-", *(pytest.param(way, marks=pytest.mark.slow) for way in ("2>&-", "<&-"))]
)
def test_closed_pipe(place: Place, way: str) -> None:
    """The reader of the output goes away, or there never was one: the work is done all the same."""
    script = f'{{ "$@"; echo $? >status; }} {way}'
    argv = (sys.executable, "-m", "outlast", "run", "-a", "plain", "--session", "job", "--key", "one")
    told = place.start_program("/bin/sh", "-c", script, "sh", *argv, QUICK, env=place.environ()).wait()

    assert place.file("status").read_text().strip() == "0", told
    assert "Traceback" not in told.stderr
    place.journal("job").assert_every_input_ends_once()
    place.assert_effects_once("one")


# --- disks -----------------------------------------------------------------------------------------


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, timeout=20, check=False).returncode == 0


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Place]:
    """A place whose state lies on a filesystem of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if not shutil.which("mount") or not mount("-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(disk)):
        pytest.skip("only root may mount a small filesystem; CI runs this in its run as root (.ci/run)")
    try:
        with place_at(tmp_path / "place", state=disk / "state") as place:
            yield place
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=20)


def fill(place: Place) -> Path:
    """A file that takes all the space there is."""
    disk = place.state.parent
    space = os.statvfs(disk)
    filler = disk / "filler"
    with filler.open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, space.f_bavail * space.f_frsize)
    return filler


def test_full_disk_in_mid_turn(small: Place) -> None:
    """The turn waits for space and goes on; what is refused meanwhile is refused clearly, what was
    acknowledged is there."""
    owner = small.start("run", "-a", "plain", "--session", "job", "--key", "one", "--json", MID_TURN)
    small.until_there("started")
    assert small.call("send", "job", "--key", "two", QUICK).status == 0
    until(lambda: len(small.journal("job").bodies(InputAccepted)) == 2, "the second input is accepted")
    filler = fill(small)
    small.go()
    refused = small.call("send", "job", "--key", "three", "--json", "x" * 100_000)
    assert refused.status == 1, refused
    assert refused.errors[-1]["error"] == "store_full"
    assert refused.errors[-1]["hint"]
    assert owner.running
    filler.unlink()

    done = owner.wait()
    assert (done.status, done.outcomes) == (0, ["done"]), done
    assert done.lines[-1]["text"].splitlines() == [*(f"message {i}" for i in range(40)), "finished one"]
    journal = small.journal("job")
    assert {record.turn for record in journal.of("TurnDone")} == {"one", "two"}
    journal.assert_every_input_ends_once()
    small.assert_effects_once("one", "two")


@pytest.mark.slow
def test_full_disk_at_a_restore(small: Place) -> None:
    """The runtime dies, the disk is full, the next one says so; once there is space it attaches."""
    owner = small.start("run", "-a", "plain", "--session", "job", "--key", "one", MID_TURN)
    small.until_there("started")
    owner.kill()
    filler = fill(small)
    refused = small.call("resume", "job", "--json")
    assert refused.status == 1, refused
    assert "space" in refused.errors[-1]["message"], refused
    filler.unlink()

    later = small.start("resume", "job", "--json")
    small.until_recorded("job", "TurnAttached")
    small.go()
    assert later.wait().outcomes == ["done"]
    assert len(small.journal("job").bodies(TurnAttached)) == 1
    small.assert_effects_once("one")


@pytest.mark.slow
def test_full_disk_at_the_start(small: Place) -> None:
    """Nothing fits: a clear error, and nothing half made once there is space."""
    filler = fill(small)
    refused = small.call("run", "-a", "plain", "--session", "job", "--key", "one", "--json", QUICK)
    assert refused.status == 1, refused
    assert refused.errors[-1]["error"] in ("store_full", "os"), refused
    assert "space" in refused.errors[-1]["hint"], refused
    filler.unlink()

    assert small.call("run", "-a", "plain", "--session", "job", "--key", "one", QUICK).status == 0
    small.assert_effects_once("one")


def test_read_only_disk(small: Place) -> None:
    small.send("job", QUICK, key="one")
    disk = str(small.state.parent)
    assert mount("-o", "remount,ro", disk)
    refused = [
        small.call("resume", "job", "--json"),
        small.call("send", "job", "--json", "more"),
        small.call("run", "-a", "plain", "--json", "more"),
    ]
    for one in refused:
        assert one.status == 1, one
        assert "read-only" in one.errors[-1]["message"].lower(), one
        assert one.errors[-1]["hint"]
    assert mount("-o", "remount,rw", disk)

    resumed = small.call("resume", "job", "--json")
    assert resumed.outcomes == ["done"], resumed
    small.assert_effects_once("one")


@pytest.mark.slow
def test_full_disk_kills_nobody_when_its_owner_dies_too(small: Place) -> None:
    """The owner dies while the disk is full: the agent's output waits in its pipe, not a line is lost."""
    owner = small.start("run", "-a", "plain", "--session", "job", "--key", "one", MID_TURN)
    small.until_there("started")
    filler = fill(small)
    small.go()
    os.kill(owner.pid, signal.SIGKILL)
    assert owner.wait().status == -signal.SIGKILL
    filler.unlink()

    resumed = small.call("resume", "job", "--json")
    assert resumed.outcomes == ["done"], resumed
    assert resumed.lines[-1]["text"].splitlines() == [*(f"message {i}" for i in range(40)), "finished one"]
    small.assert_effects_once("one")
