"""Bodies, cursors, ids, blob references and the chain as bytes."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import InputError, InvalidRecordError, UnsupportedRecordError
from outlast.ids import derived_id, derived_uuid
from outlast.records import types as t
from outlast.records.codec import (
    blob_ref,
    chain_of,
    check_text,
    decode_body,
    decode_cursor,
    encode_blob_ref,
    encode_body,
    encode_cursor,
    is_blob_ref,
    outline_of,
    output_record_id,
    record_of,
    row_of,
)
from outlast.records.envelope import Cursor, Draft, Record, Stamp
from outlast.records.public import public_json, public_line
from outlast.records.registry import REGISTRY, Registry, Upcast
from outlast.records.uuids import uuid_bytes, uuid_text
from outlast.store.contract import Row

STAMP = Stamp(7, 2, derived_uuid("a record"), 1_764_428_400_000_001)
DIGEST = "ab" * 32


def row(draft: Draft, previous: bytes = b"", session: str = "session") -> Row:
    return row_of(draft, encode_body(draft.body), STAMP, session, previous)


# --- bodies ---


def unicode_text() -> st.SearchStrategy[str]:
    return st.text(st.characters(exclude_categories=["Cs"]))


@given(unicode_text())
def test_text_mangled(text: str) -> None:
    """Whatever text is accepted comes back unchanged, byte for byte."""
    body = t.InputAccepted(request_id="r", content=[t.Content(text=check_text(text))])
    assert decode_body("InputAccepted", 1, encode_body(body)) == body


def test_nul_in_output() -> None:
    """A NUL in a tool's output, and line ends of every kind, are kept."""
    body = t.CallObserved(call="c", name="sh", status="completed", output="a\0b\r\nc\rd\n\x1b[0m -- 😀")
    assert decode_body("CallObserved", 1, encode_body(body)) == body


def test_a_dictionary_is_stored_in_one_order_only() -> None:
    first = t.TurnDone(stop_reason="end", usage={"a": 1, "b": 2})
    second = t.TurnDone(stop_reason="end", usage={"b": 2, "a": 1})
    assert encode_body(first) == encode_body(second)


@pytest.mark.parametrize(
    "body",
    [
        t.TurnDone(stop_reason=3),  # type: ignore[arg-type]
        t.SessionStopped(reason=object()),  # type: ignore[arg-type]
        t.LoopChanged(state="asleep"),  # type: ignore[arg-type]
        t.TurnStarted(index="one", request_id="r"),  # type: ignore[arg-type]
        t.SessionStopped(reason="\ud800"),
        t.TurnFailed(
            receipt=t.Receipt(
                attempt=1,
                completed_phases=[],
                failed_phase="accept",
                error=t.ReceiptError(code="c", message="m", retry_after=math.nan),
            )
        ),
    ],
)
def test_a_value_that_would_not_come_back_is_not_stored(body: t.Body) -> None:
    with pytest.raises(InvalidRecordError):
        encode_body(body)


def test_a_body_that_is_no_record_type_is_not_stored() -> None:
    with pytest.raises(UnsupportedRecordError, match="BlobRef"):
        encode_body(t.BlobRef(digest=DIGEST, size=1))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"reason":1}',
        b"{}",
        b'{"reason":"r","more":1}',
        b'{"reason":"\xff"}',
        b'{"reason":"\\ud800"}',
        b'{"reason":"r"}{',
        b'{"reason":"r"}\0',
    ],
)
def test_bytes_that_are_no_such_body_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecordError, match="SessionStopped"):
        decode_body("SessionStopped", 1, data)


@given(st.binary(), st.sampled_from(REGISTRY.names))
def test_any_bytes_are_a_body_or_an_invalid_record(data: bytes, name: str) -> None:
    try:
        body = decode_body(name, 1, data)
    except InvalidRecordError:
        return
    assert type(body).__name__ == name


def test_downgrade() -> None:
    """A newer version of a type is refused by name, and so is a type that is not known."""
    with pytest.raises(UnsupportedRecordError) as newer:
        decode_body("TurnDone", 2, b'{"stop_reason":"end"}')
    assert "TurnDone version 2" in str(newer.value)
    assert "TurnDone up to version 1" in str(newer.value)
    with pytest.raises(UnsupportedRecordError, match="TurnDreamt version 1"):
        decode_body("TurnDreamt", 1, b"{}")


# --- older versions ---


class _Met1(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    who: str


class _Met2(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    people: list[str]


class Met(t.Body, frozen=True, kw_only=True):
    VERSION = 3

    people: list[str]
    place: str


def _to_2(old: msgspec.Struct) -> _Met2:
    assert isinstance(old, _Met1)
    return _Met2([old.who])


def _to_3(old: msgspec.Struct) -> Met:
    assert isinstance(old, _Met2)
    return Met(people=old.people, place="unknown")


UPCASTS = {("Met", 1): Upcast(_Met1, _to_2), ("Met", 2): Upcast(_Met2, _to_3)}


def test_an_old_version_is_read_as_the_newest_one() -> None:
    registry = Registry([Met], UPCASTS)
    assert registry.decode("Met", 1, b'{"who":"ann"}') == Met(people=["ann"], place="unknown")
    assert registry.decode("Met", 2, b'{"people":["ann"]}') == Met(people=["ann"], place="unknown")
    assert registry.decode("Met", 3, b'{"people":[],"place":"p"}') == Met(people=[], place="p")


def test_an_old_version_is_checked_as_strictly_as_when_it_was_the_newest() -> None:
    registry = Registry([Met], UPCASTS)
    with pytest.raises(InvalidRecordError):
        registry.decode("Met", 1, b'{"who":1}')
    with pytest.raises(InvalidRecordError):
        registry.decode("Met", 2, b'{"who":"ann"}')


def test_a_registry_without_an_upcast_for_every_old_version_is_refused() -> None:
    with pytest.raises(ValueError, match="'Met', 2"):
        Registry([Met], {("Met", 1): UPCASTS["Met", 1]})


# --- blob references ---


def test_a_blob_reference_is_told_from_every_body() -> None:
    reference = encode_blob_ref(DIGEST, 300_000)
    assert is_blob_ref(reference)
    assert blob_ref(reference) == t.BlobRef(digest=DIGEST, size=300_000)
    for name in REGISTRY.names:
        with pytest.raises(InvalidRecordError):
            REGISTRY.decode(name, 1, reference)


FROZEN_REFERENCE = (
    b'{"$blob":{"digest":"%b","size":300041},'
    b'"outline":{"request_id":"r","content":[{"type":"text","text":"%b"}],"on_interrupt":"hold"}}'
)


def test_a_reference_keeps_what_is_folded_in_the_same_bytes_for_ever() -> None:
    body = t.InputAccepted(request_id="r", content=[t.Content(text="x" * 300_000)], on_interrupt="hold")
    stored = encode_blob_ref(DIGEST, 300_041, body.outline())
    assert stored == FROZEN_REFERENCE % (DIGEST.encode(), b"x" * 640)
    assert blob_ref(stored) == t.BlobRef(digest=DIGEST, size=300_041)
    kept = outline_of(stored)
    assert kept is not None
    assert decode_body("InputAccepted", 1, kept) == body.outline()
    assert outline_of(encode_blob_ref(DIGEST, 300_041)) is None


@pytest.mark.parametrize(
    "body",
    [
        t.InputAccepted(request_id="r", content=[t.Content(text="x" * 300_000)] * 3, joins="t"),
        t.InputAccepted(request_id="r", content=[]),
        t.AgentEventRecorded(kind="message", text="x" * 300_000, count=3),
        t.CallObserved(call="c", name="n", status="completed", input="x" * 9_000, output="x" * 300_000),
        t.ReplyInterrupted(text="x" * 300_000),
    ],
    ids=lambda body: type(body).__name__,
)
def test_an_outline_is_small_and_of_the_same_type(body: t.Body) -> None:
    outline = body.outline()
    assert type(outline) is type(body)
    assert len(encode_body(outline)) < 2_000


def test_a_reference_in_a_record_of_a_version_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnsupportedRecordError, match="InputAccepted version 9"):
        decode_body("InputAccepted", 9, encode_blob_ref(DIGEST, 1))


def test_a_reference_that_is_damaged_is_refused() -> None:
    for damaged in (b'{"$blob":{"digest":1}}', b'{"$blob":{"digest":"d","size":1},"outline":{}'):
        with pytest.raises(InvalidRecordError):
            blob_ref(damaged)


def test_a_record_with_a_blob_has_the_reference_until_the_body_is_given() -> None:
    body = t.InputAccepted(request_id="r", content=[t.Content(text="x" * 300_000)])
    data = encode_body(body)
    stored = row_of(Draft(body), encode_blob_ref(DIGEST, len(data)), STAMP, "session", b"")
    assert record_of(stored, "session").body == t.BlobRef(digest=DIGEST, size=len(data))
    assert record_of(stored, "session").public
    assert record_of(stored, "session", data).body == body


# --- ids and cursors ---


@given(st.uuids())
def test_a_uuid_has_one_text_and_sixteen_bytes(value: Any) -> None:
    assert uuid_bytes(str(value)) == value.bytes
    assert uuid_text(value.bytes) == str(value)


@pytest.mark.parametrize("text", ["", "x", "0" * 32, "A0000000-0000-7000-8000-000000000000", "1-" * 16 + "1"])
def test_what_is_no_uuid_in_its_usual_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidRecordError):
        uuid_bytes(text)


OFFSETS = st.integers(0, 2**63)


@given(st.builds(Cursor, unicode_text(), OFFSETS, OFFSETS, OFFSETS))
def test_a_cursor_comes_back(cursor: Cursor) -> None:
    assert decode_cursor(encode_cursor(cursor)) == cursor


def test_a_cursor_is_written_as_ever_and_read_in_both_forms() -> None:
    cursor = Cursor("g-1", 300, 150, 2)
    assert encode_cursor(cursor) == b"\x94\xa3g-1\xcd\x01\x2c\xcc\x96\x02"
    for data in (
        encode_cursor(cursor),
        bytes.fromhex("01000000000000012c00000000000000960000000000000002672d31"),
    ):
        assert decode_cursor(data) == cursor


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x02" + b"\0" * 24, b"\x01" + b"\0" * 24 + b"\xff", b"\x94\xa1g\xff\0\0"]
)
def test_a_damaged_cursor_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        decode_cursor(data)


@pytest.mark.parametrize("cursor", [Cursor("g", -1, 0, 0), Cursor("\ud800", 0, 0, 0)])
def test_a_cursor_that_would_not_come_back_is_refused(cursor: Cursor) -> None:
    with pytest.raises(InvalidRecordError):
        encode_cursor(cursor)


@pytest.mark.parametrize(
    "draft",
    [
        Draft(t.SessionStopped(reason="r"), turn="\ud800"),
        Draft(t.SessionStopped(reason="r"), actor="\udfff"),
        Draft(t.SessionStopped(reason="r"), id="no uuid"),
    ],
)
def test_coordinates_that_would_not_come_back_are_refused(draft: Draft) -> None:
    with pytest.raises(InvalidRecordError):
        row(draft)


def test_a_record_made_from_output_has_the_same_id_whoever_makes_it() -> None:
    first = output_record_id("g", 10, 0)
    assert first == output_record_id("g", 10, 0)
    others = {output_record_id("g", 10, 1), output_record_id("g", 100, 0), output_record_id("h", 10, 0)}
    assert len(others | {first}) == 4


# --- the chain ---

FULL = row(Draft(t.SessionStopped(reason="r"), "l", "t", "c", "a", Cursor("g", 1, 2, 3)), previous=b"\1" * 16)


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 8},
        {"epoch": 3},
        {"id": b"\0" * 16},
        {"at": 1},
        {"type": "SessionStoppee"},
        {"v": 2},
        {"loop": "m"},
        {"turn": "u"},
        {"cause": "d"},
        {"actor": "b"},
        {"cursor": b"\0"},
        {"body": b"{}"},
        {"loop": None},
        {"loop": ""},
        {"turn": None},
        {"turn": ""},
        {"cause": None},
        {"cause": ""},
        {"actor": None},
        {"actor": ""},
        {"cursor": None},
        {"cursor": b""},
        {"loop": "lt", "turn": ""},
        {"loop": None, "turn": "lt"},
        {"cause": "ca", "actor": ""},
        {"type": "SessionStoppedl", "loop": ""},
    ],
    ids=str,
)
def test_every_stored_byte_counts_in_the_chain(change: dict[str, Any]) -> None:
    assert chain_of(b"\1" * 16, "session", FULL._replace(**change)) != FULL.chain


def test_null_and_empty_are_two_things_in_the_chain() -> None:
    none = FULL._replace(loop=None)
    empty = FULL._replace(loop="")
    assert chain_of(b"", "session", none) != chain_of(b"", "session", empty)


def test_trusts_journal() -> None:
    """A row of another session, or at another place, does not fit the chain."""
    assert chain_of(b"\1" * 16, "session", FULL) == FULL.chain
    assert chain_of(b"\1" * 16, "sessioN", FULL) != FULL.chain
    assert chain_of(b"\2" * 16, "session", FULL) != FULL.chain
    assert chain_of(b"", "session", FULL) != FULL.chain


# --- rows and records ---


def test_a_row_and_its_record_say_the_same() -> None:
    draft = Draft(t.TurnDone(stop_reason="end"), "l", "t", "c", "a", Cursor("g", 1, 2, 3), derived_id("own"))
    record = record_of(row(draft), "session")
    assert record == Record(
        7,
        2,
        uuid_bytes(derived_id("own")),
        STAMP.at,
        "TurnDone",
        1,
        "l",
        "t",
        "c",
        "a",
        Cursor("g", 1, 2, 3),
        t.TurnDone(stop_reason="end"),
        row(draft).chain,
    )


def test_a_draft_without_an_id_gets_that_of_the_journal() -> None:
    assert record_of(row(Draft(t.SessionStopped(reason="r"))), "session").uuid == STAMP.uuid
    own = Draft(t.SessionStopped(reason="r"), id=derived_id("own"))
    assert record_of(row(own), "session").id == derived_id("own")


@pytest.mark.parametrize("damage", [{"body": b"{"}, {"id": b"short"}, {"cursor": b"?"}], ids=str)
def test_an_unreadable_record_names_its_session(damage: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        record_of(FULL._replace(**damage), "chat-42")
    assert caught.value.session_id == "chat-42"
    assert "`outlast verify`" not in (caught.value.hint or "")


def test_a_record_is_public_by_its_type() -> None:
    internal = Draft(t.GatePrepared(gate="g", name="n", generation="x", payload=b"secret"))
    assert not record_of(row(internal), "session").public
    assert record_of(FULL, "session").public


def test_the_shown_form_has_every_field_of_the_envelope() -> None:
    record = record_of(FULL, "session")
    assert public_json(record) == {
        "seq": 7,
        "epoch": 2,
        "id": record.id,
        "at": "2025-11-29T15:00:00.000001Z",
        "type": "SessionStopped",
        "v": 1,
        "loop": "l",
        "turn": "t",
        "cause": "c",
        "actor": "a",
        "cursor": {"generation": "g", "frame": 1, "stdout": 2, "last_input": 3},
        "body": {"reason": "r"},
        "chain": FULL.chain.hex(),
    }
    assert msgspec.json.decode(public_line(record)) == public_json(record)
    assert b"\n" not in public_line(record)


def test_the_shown_form_has_every_field_of_a_body_also_what_is_not_stored() -> None:
    process = t.Process(role="shim", pid=10, start_ticks=7)
    body = t.TurnAttemptStarted(
        attempt=1, folder="/a", generation="g", machine="m", boot_id="b", processes=[process]
    )
    shown = public_json(record_of(row(Draft(body, loop="l", turn="t")), "session"))["body"]
    assert isinstance(shown, dict)
    assert set(shown) == set(t.TurnAttemptStarted.__struct_fields__)
    assert [set(each) for each in shown["processes"]] == [set(t.Process.__struct_fields__)]
    said = t.InputAccepted(request_id="r", content=[t.Content(text="hello")])
    shown = public_json(record_of(row(Draft(said, loop="l")), "session"))["body"]
    assert isinstance(shown, dict)
    assert set(shown) == set(t.InputAccepted.__struct_fields__)
    assert shown["content"] == [{"type": "text", "text": "hello"}], "text has no media type at all"


# --- text ---


@pytest.mark.parametrize("text", ["", "a\0b", "\r\n\r\n", "  -- ", "😀", "\u2028", "\ufeff", "\uffff"])
def test_text_is_kept_as_it_is(text: str) -> None:
    assert check_text(text) == text


@pytest.mark.parametrize(("text", "place"), [("\ud800", 1), ("ab\udfff", 3), ("😀\udc00x\ud800", 2)])
def test_a_lone_surrogate_is_refused_and_its_place_named(text: str, place: int) -> None:
    with pytest.raises(InputError, match=f"the prompt holds a lone surrogate .* at character {place},"):
        check_text(text, what="prompt")
