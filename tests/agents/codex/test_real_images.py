"""Images of an input reach the real codex, and stay in its thread."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.codex.real import CodexPlace, codex_place

pytestmark = pytest.mark.real_agent


@pytest.fixture
def place(tmp_path: Path) -> Iterator[CodexPlace]:
    with codex_place(tmp_path / "place") as made:
        yield made


def png(width: int) -> bytes:
    """A square of noise, which no compression makes small."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + os.urandom(3 * width) for _ in range(width))
    head = struct.pack(">IIBBBBB", width, width, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + data + chunk(b"IEND", b"")


def seen(data: bytes) -> str:
    """What the scripted model keeps of a picture."""
    return f"image/png {len(data)} bytes sha256:{hashlib.sha256(data).hexdigest()}"


def test_attachment_lost_a_queued_image_is_given_as_it_is_and_stays(place: CodexPlace) -> None:
    """A small one from the command line; a large one, kept as a blob, waits in the queue of a dead owner."""
    small, large = png(4), png(400)
    for name, data in (("small.png", small), ("large.png", large)):
        place.file(name).write_bytes(data)
    said = ("-a", "codex", "--session", "job")
    assert place.call("run", *said, "--key", "one", "--image", "small.png", "look").status == 0
    assert place.told().of_kind("image")[-1].text == seen(small)

    sent = place.call("send", "--image", "large.png", "--image", "small.png", "job", "and these")
    assert sent.status == 0, sent
    resumed = place.resume()
    assert (resumed.status, resumed.outcomes) == (0, ["done"]), resumed
    assert [item.text for item in place.told().of_kind("image")] == [seen(small), seen(large), seen(small)]
    assert [item.text for item in place.told().of_kind("user")] == ["look", "and these"]
    shown = place.show("job")
    assert "[image large.png]" in str(shown)
    assert len(str(shown)) < 20_000
    place.assert_one_thread()
