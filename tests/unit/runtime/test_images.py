"""Images as blocks of an input."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import msgspec
import pytest

from outlast import Content, image
from outlast.errors import InputError, OutlastError, UsageError
from outlast.records.types import InputAccepted
from outlast.runtime.images import LIMIT, check_block
from outlast.state.messages import UserMessage

PNG = b"\x89PNG\r\n\x1a\n and so on"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0 jfif", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_an_image_is_recognised_by_its_bytes(tmp_path: Path, data: bytes, media_type: str) -> None:
    path = tmp_path / "shot.bin"
    path.write_bytes(data)
    block = image(path)
    assert (block.type, block.text, block.media_type) == ("image", "[image shot.bin]", media_type)
    assert isinstance(block.data, str)
    assert base64.b64decode(block.data) == data
    assert image(data, name="mine") == msgspec.structs.replace(block, text="[image mine]")
    check_block(block)


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"<svg>", "no image that agents take"), (b"", "no image"), (PNG + bytes(LIMIT), "bytes")],
)
def test_what_is_no_image_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "it"
    path.write_bytes(data)
    for source in (path, data):
        with pytest.raises(InputError, match=why):
            image(source)


def test_an_image_that_is_too_large_is_refused_with_its_size(tmp_path: Path) -> None:
    path = tmp_path / "big.png"
    path.write_bytes(PNG)
    os.truncate(path, LIMIT * 3)
    with pytest.raises(InputError, match=r"big\.png is too large: 62,914,560 bytes.*at most 20,971,520"):
        image(path)
    data = base64.b64encode(PNG + bytes(LIMIT)).decode()
    with pytest.raises(UsageError, match=f"too large: {len(PNG) + LIMIT:,} bytes"):
        check_block(Content(type="image", text="[image]", media_type="image/png", data=data))
    data = base64.b64encode(PNG).decode()
    with pytest.raises(UsageError, match=f"of {len(PNG)} bytes is image/png, not image/gif"):
        check_block(Content(type="image", text="[image]", media_type="image/gif", data=data))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.png cannot be read: No such file"):
        image(tmp_path / "missing.png")
    with pytest.raises(InputError, match="cannot be read"):
        image(tmp_path)


@pytest.mark.parametrize(
    "block",
    [
        Content(text="x", media_type="image/png"),
        Content(text="x", data="eA=="),
        Content(type="image", text="x"),
        Content(type="image", text="x", media_type="image/png", data="?"),
        Content(type="image", text="x", media_type="image/jpeg", data=base64.b64encode(PNG).decode()),
        Content(text="\ud800"),
    ],
)
def test_a_block_that_is_neither_text_nor_an_image_is_refused(block: Content) -> None:
    with pytest.raises(OutlastError):
        check_block(block)


def test_text_is_stored_as_it_always_was() -> None:
    body = InputAccepted(request_id="r", content=[Content(text="look"), image(PNG)])
    text, picture = msgspec.json.decode(msgspec.json.encode(body))["content"]
    assert text == {"type": "text", "text": "look"}
    assert set(picture) == {"type", "text", "media_type", "data"}
    assert msgspec.json.decode(msgspec.json.encode(body), type=InputAccepted) == body


def test_what_is_shown_of_an_image_leaves_its_bytes_out() -> None:
    content = [Content(text="look"), image(PNG, name="shot.png")]
    shown = UserMessage(seq=1, at=0, turn="t", request_id="r", content=content).to_json()
    assert shown["text"] == "look\n[image shot.png]"
    assert shown["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image", "text": "[image shot.png]", "media_type": "image/png"},
    ]
