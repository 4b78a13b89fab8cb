"""Files of lines that a program only appends to: read from where they were read, compared, put back."""

from __future__ import annotations

import hashlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.agents import provider_state
from outlast.agents.provider_state import (
    NotTakenError,
    difference,
    keep_aside,
    pieces_from,
    put_back,
    writers_of,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "thread.jsonl"
    path.write_bytes(b"one\ntwo\nthree\n")
    return path


def captured(data: bytes) -> list[tuple[str, int]]:
    return [(hashlib.sha256(data).hexdigest(), len(data))]


def test_new_lines_are_read_and_a_torn_one_is_not(file: Path) -> None:
    assert b"".join(pieces_from(file, 0)) == b"one\ntwo\nthree\n"
    with file.open("ab") as more:
        more.write(b"four\nfi")
    assert b"".join(pieces_from(file, 14)) == b"four\n"
    assert not list(pieces_from(file, 19))


def test_pieces_end_with_a_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_state, "PIECE", 9)
    assert list(pieces_from(file, 0)) == [b"one\ntwo\n", b"three\n"]


def test_a_line_longer_than_a_piece_is_cut(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_state, "PIECE", 3)
    assert b"".join(pieces_from(file, 0)) == b"one\ntwo\nthree\n"


def test_a_file_that_was_cut_and_grew_again_is_not_taken_for_a_longer_one(file: Path) -> None:
    """Also where a line ends at the same byte."""
    last = captured(b"one\ntwo\nthree\n")[0]
    with file.open("ab") as more:
        more.write(b"four\n")
    assert b"".join(pieces_from(file, 14, last)) == b"four\n"
    file.write_bytes(b"one\ntwo\nTHREE\nfour\n")
    with pytest.raises(NotTakenError, match="not what it was before byte 14"):
        list(pieces_from(file, 14, last))


def test_another_file_is_not_taken_for_a_longer_one(file: Path) -> None:
    for since in (2, 100):
        with pytest.raises(NotTakenError, match=f"at byte {since}"):
            list(pieces_from(file, since))


def test_nothing_is_captured_past_the_cap(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_state, "CAP", 10)
    with pytest.raises(NotTakenError, match="no more than 10"):
        list(pieces_from(file, 0))


def test_a_longer_file_is_the_captured_one(file: Path) -> None:
    assert difference(file, captured(b"one\n")) == ""
    assert difference(file, captured(b"one\n") + captured(b"two\nthree\n")) == ""


def test_a_difference_says_where(file: Path) -> None:
    assert "after line 3" in difference(file, captured(b"one\ntwo\n") + captured(b"THREE\n"))
    assert (
        difference(file, captured(b"one\ntwo\nthree\nfour\n")) == "it ends at byte 14, and 19 were captured"
    )


def test_put_back_replaces_whole_and_keeps_what_was_there(file: Path, tmp_path: Path) -> None:
    kept = [keep_aside(file, tmp_path / "kept") for _ in range(2)]
    put_back(file, [b"a\n", b"b\n"])
    assert file.read_bytes() == b"a\nb\n"
    assert kept[0] != kept[1]
    assert {path.read_bytes() for path in kept} == {b"one\ntwo\nthree\n"}
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [file.name]
    assert file.stat().st_mode & 0o077 == 0


def test_a_copy_that_the_disk_refuses_leaves_no_half_of_it(file: Path, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="too large"):
                keep_aside(file, tmp_path / "kept")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "kept").iterdir()) == []
    assert keep_aside(file, tmp_path / "kept").name == file.name


def test_a_put_back_that_fails_leaves_what_was_there(file: Path, tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"a\n"
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        put_back(file, failing())
    assert file.read_bytes() == b"one\ntwo\nthree\n"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    target = tmp_path / "sessions" / "2026" / "thread.jsonl"
    put_back(target, [b"a\n"])
    assert target.read_bytes() == b"a\n"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_who_writes_a_file_is_found_and_who_reads_it_is_not(file: Path) -> None:
    hold = "import sys; f = open(sys.argv[1], sys.argv[2]); print(flush=True); sys.stdin.read()"
    for mode, writes in (("ab", True), ("rb", False)):
        holder = subprocess.Popen(
            [sys.executable, "-c", hold, str(file), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        holder.stdout.readline()
        assert (holder.pid in writers_of(file, "an id")) is writes
        assert (holder.pid in writers_of(file, mode)) is True
        holder.communicate()
