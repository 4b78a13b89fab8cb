"""A file that is read is a regular one of bounded size."""

import os
from pathlib import Path

import pytest

from outlast.files import read_regular


def test_a_file_within_its_limit_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"words")
    assert read_regular(tmp_path / "file", 5) == b"words"


def test_a_file_past_its_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"words")
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_regular(tmp_path / "file", 4)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_has_no_end_or_would_be_waited_for_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    named = {"pipe": pipe, "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(named, 100)
