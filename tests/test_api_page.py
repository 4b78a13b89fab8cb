"""The page of the Python API: its blocks run, in order, as they stand there."""

import asyncio
import inspect
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "api.md").read_text(encoding="utf-8")


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    ran = 0
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        before = set(names)
        exec(compile(block, f"docs/api.md, block {number}", "exec"), names)  # noqa: S102 - our own page
        for name in sorted(set(names) - before):
            example = names[name]
            if not inspect.isfunction(example) or not example.__code__.co_filename.startswith("docs/api.md"):
                continue
            result = example()
            if inspect.iscoroutine(result):
                asyncio.run(result)
            ran += 1
    assert ran == len(blocks) - 1  # the first says what the others use


def test_every_public_name_is_on_the_page() -> None:
    import outlast

    assert [name for name in outlast.__all__ if name not in PAGE] == []
