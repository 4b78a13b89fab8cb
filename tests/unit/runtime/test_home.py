"""What a runtime keeps of its own beside the store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from outlast.runtime.home import secret


def test_shared_temp(tmp_path: Path) -> None:
    """Eight first uses at the same moment, in one process, meet in one whole secret and leave nothing else
    behind."""
    together = Barrier(8)

    def first_use(folder: Path) -> bytes:
        together.wait(20)
        return secret(folder)

    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            (found,) = set(pool.map(first_use, [folder] * 8))
            assert len(found) == 32
            assert [path.name for path in folder.iterdir()] == ["secret"]
