"""Files that are saved whole, by way of a draft: two saves at once never share one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from outlast.agents.provider_state import put_back
from outlast.cli.sealing import make_key, write_anew
from outlast.config.files import ConfigFile
from outlast.config.trust import Trust, TrustState
from outlast.runtime.home import secret
from outlast.store.sqlite.blobs import Blobs

AT_ONCE = 8
ROUNDS = 10


def content(number: int) -> bytes:
    """What one of the savers saves: more than a page of it, so that a mixture would show."""
    return bytes([number]) * 20_000


CONTENTS = [content(number) for number in range(AT_ONCE)]


def project(folder: Path) -> ConfigFile:
    return ConfigFile(folder / "outlast.toml", b"[agents]")


def save_trust(folder: Path, number: int) -> bytes:
    Trust(folder).decide(project(folder), trusted=number % 2 == 0)
    assert Trust(folder).look_up(project(folder)) in (TrustState.TRUSTED, TrustState.REFUSED)
    return b""


def save_blob(folder: Path, _: int) -> bytes:
    blobs = Blobs(folder)
    return blobs.get(blobs.put(CONTENTS[0]))


def saving(write: Callable[[Path, bytes], object]) -> Callable[[Path, int], bytes]:
    def save(folder: Path, number: int) -> bytes:
        path = folder / "saved"
        write(path, CONTENTS[number])
        found = path.read_bytes()
        assert found in CONTENTS, "a mixture, or a part"
        return b""

    return save


SAVES: dict[str, Callable[[Path, int], bytes]] = {
    "the secret behind nonces": lambda folder, _: secret(folder),
    "the key of seals": lambda folder, _: make_key(folder / "key"),
    "a seal": saving(write_anew),
    "what a provider keeps, put back": saving(lambda path, data: put_back(path, [data])),
    "an answer about a project's configuration": save_trust,
    "a blob": save_blob,
}


@pytest.mark.parametrize("what", SAVES)
def test_shared_temp(tmp_path: Path, what: str) -> None:
    """Eight saves at the same moment, in one process: each is whole, all that are to meet in one do, and
    nothing but what was saved is left behind."""
    together = Barrier(AT_ONCE)

    def save(folder: Path, number: int) -> bytes:
        together.wait(20)
        return SAVES[what](folder, number)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(ROUNDS):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            assert len(set(pool.map(save, [folder] * AT_ONCE, range(AT_ONCE)))) == 1
            left = [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]
            assert len(left) == 1, left
