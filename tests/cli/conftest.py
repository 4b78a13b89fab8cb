"""Shells for the tests of the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.support import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    place = Shell(tmp_path)
    yield place
    place.close()
