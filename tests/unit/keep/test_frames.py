"""Frames, fields and the small record files: what is written is what is read, or an error that says where."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.keep import fields, frames, layout

payloads = st.binary(max_size=300)


@given(st.lists(payloads, max_size=8), st.integers(1, 50))
def test_frames_come_back_whole_however_the_stream_is_cut(bodies: list[bytes], step: int) -> None:
    stream = b"".join(frames.encode(frames.INPUT, body, seq=n, offset=7) for n, body in enumerate(bodies))
    decoder = frames.Decoder()
    found = []
    for at in range(0, len(stream), step):
        found += decoder.feed(stream[at : at + step])
    assert [(frame.seq, frame.payload) for frame in found] == list(enumerate(bodies))


@given(payloads, st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_never_taken_for_a_frame(body: bytes, place: int, bit: int) -> None:
    data = bytearray(frames.encode(frames.OUTPUT, body, seq=3, offset=9, time=5))
    data[place % len(data)] ^= 1 << bit
    try:
        found = frames.decode(bytes(data))
    except frames.FrameDamaged:
        return
    # A larger length only makes the frame look incomplete.
    assert found is None


def test_a_payload_over_one_mebibyte_is_refused() -> None:
    with pytest.raises(ValueError, match="at most"):
        frames.encode(frames.OUTPUT, bytes(frames.MAX_PAYLOAD + 1))


@given(
    st.dictionaries(
        st.text(max_size=10),
        st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.lists(st.binary(), max_size=4)),
        max_size=6,
    )
)
def test_fields_come_back_as_they_were(values: dict[str, fields.Value]) -> None:
    found = fields.Fields(fields.pack(values))
    for name, value in values.items():
        if isinstance(value, int):
            assert found.integer(name) == value
        elif isinstance(value, str):
            assert found.text(name) == value
        elif isinstance(value, bytes):
            assert found.blob(name) == value
        elif value is None:
            assert found.optional(name) is None
        else:
            assert found.blobs(name) == value


@given(st.binary(max_size=60))
def test_bytes_that_are_no_fields_are_an_error_of_their_own(data: bytes) -> None:
    with contextlib.suppress(fields.FieldsDamaged):
        fields.Fields(data)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(fields.FieldsDamaged, match="epoch"):
        fields.Fields(fields.pack({"lineage": "x"})).integer("epoch")


@pytest.fixture
def folder_fd(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_a_write_that_is_torn_leaves_the_record_before_it(folder_fd: int, tmp_path: Path) -> None:
    record = layout.Record.create(b"floor", dir_fd=folder_fd)
    record.write({"epoch": 1})
    before = (tmp_path / "floor").read_bytes()
    record.write({"epoch": 2})
    after = (tmp_path / "floor").read_bytes()
    for torn in (10, 45, 50):
        for slot in (0, 1):
            at = slot * layout.SLOT
            (tmp_path / "floor").write_bytes(before[:at] + after[at : at + torn] + before[at + torn :])
            found = record.read()
            assert found is not None
            assert found.integer("epoch") == 1
    os.close(record.fd)


def test_damage_to_one_slot_costs_nothing(folder_fd: int, tmp_path: Path) -> None:
    record = layout.Record.create(b"floor", dir_fd=folder_fd)
    for epoch in (1, 2, 3):
        record.write({"epoch": epoch})
        whole = (tmp_path / "floor").read_bytes()
        for slot in (0, 1):
            at = slot * layout.SLOT
            for harm in (bytes(layout.SLOT), b"\xff" * layout.SLOT):
                (tmp_path / "floor").write_bytes(whole[:at] + harm + whole[at + layout.SLOT :])
                found = record.read()
                assert found is not None
                assert found.integer("epoch") == epoch
        (tmp_path / "floor").write_bytes(whole)
    os.close(record.fd)


def test_a_record_that_was_placed_is_there_whole_or_said_to_be_damaged(
    folder_fd: int, tmp_path: Path
) -> None:
    assert layout.read_placed(b"id", dir_fd=folder_fd) is None
    layout.Record.place(b"id", {"shim_pid": 7}, dir_fd=folder_fd)
    found = layout.read_placed(b"id", dir_fd=folder_fd)
    assert found is not None
    assert found.integer("shim_pid") == 7
    for left in (b"", bytes(2 * layout.SLOT), b"?" * 100):
        (tmp_path / "id").write_bytes(left)
        with pytest.raises(fields.FieldsDamaged):
            layout.read_placed(b"id", dir_fd=folder_fd)


def test_a_record_file_damaged_in_both_slots_is_not_taken_for_an_empty_one(
    folder_fd: int, tmp_path: Path
) -> None:
    record = layout.Record.create(b"floor", dir_fd=folder_fd)
    record.write({"epoch": 1})
    record.write({"epoch": 2})
    (tmp_path / "floor").write_bytes(b"\x01" * 2 * layout.SLOT)
    with pytest.raises(fields.FieldsDamaged):
        record.read()
    os.close(record.fd)


def test_a_new_record_file_is_empty_and_has_its_full_size(folder_fd: int, tmp_path: Path) -> None:
    record = layout.Record.create(b"exit", dir_fd=folder_fd)
    assert record.read() is None
    assert (tmp_path / "exit").stat().st_size == 2 * layout.SLOT
    assert (tmp_path / "exit").stat().st_mode & 0o777 == 0o600
    os.close(record.fd)
