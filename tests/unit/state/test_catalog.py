"""How a session stands in lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.records import types as t
from outlast.state.catalog import catalog_entry, status
from outlast.state.model import State
from outlast.state.title import one_line
from outlast.store.contract import CatalogEntry
from outlast.testing.journals import JournalBuilder


def held(journal: JournalBuilder) -> JournalBuilder:
    return journal.add(t.LoopChanged(state="held"))


STATUS = {
    "idle at first": (JournalBuilder(), "idle"),
    "idle with an input that waits": (JournalBuilder().accept("a"), "idle"),
    "running": (JournalBuilder().running("a"), "running"),
    "waiting for an answer": (JournalBuilder().running("a").ask("a", "q"), "waiting"),
    "running while a gate of no turn is open": (JournalBuilder().running("a").ask(None, "q"), "running"),
    "idle after a turn": (JournalBuilder().running("a").done("a"), "idle"),
    "failed after an interrupted turn, too": (JournalBuilder().running("a").interrupt("a"), "failed"),
    "failed": (JournalBuilder().running("a").fail("a"), "failed"),
    "idle when the queue goes on after a failure": (
        JournalBuilder().running("a").fail("a").accept("b"),
        "idle",
    ),
    "parked": (JournalBuilder().running("a").park("a"), "parked"),
    "running beside a parked turn": (JournalBuilder().running("a").park("a").running("b", 2), "running"),
    "parked by a held queue": (held(JournalBuilder().accept("a")), "parked"),
    "idle when nothing is held back": (held(JournalBuilder()), "idle"),
    "stopped": (JournalBuilder().add(t.SessionStopped(reason="closed")), "stopped"),
    "idle when it reopens": (JournalBuilder().add(t.SessionStopped(reason="closed")).accept("a"), "idle"),
}


@pytest.mark.parametrize("name", STATUS)
def test_the_status_of_a_session(name: str) -> None:
    journal, expected = STATUS[name]
    assert status(journal.state()) == expected


def test_a_session_that_only_has_an_owner_is_new() -> None:
    journal = JournalBuilder()
    del journal.drafts[1:]
    entry = catalog_entry(journal.state())
    assert (entry.state, entry.agent, entry.seq) == ("new", "", 1)
    assert status(State("session")) == "new"


def test_the_entry_of_a_session() -> None:
    state = JournalBuilder().running("a").accept("b", "c").ask("a", "q").state()
    assert catalog_entry(state) == CatalogEntry(
        session="session",
        seq=state.seq,
        title="a title",
        state="waiting",
        agent="agent",
        workspace="/w",
        created_at=state.created_at,
        last_activity_at=state.last_activity_at,
        turns=1,
        queued=2,
        open_gates=1,
        labels=(),
    )


@given(st.text(max_size=2000))
def test_a_title_is_one_short_printable_line(text: str) -> None:
    title = one_line(text)
    assert len(title) <= 80
    assert title.isprintable()
    assert title == title.strip()


def test_a_first_input_of_any_length_gives_a_title() -> None:
    """A first input of any length and shape still gives the session a title."""
    assert one_line("\n\n\t  fix\r\n the\0tests  ") == "fix the tests"
    assert one_line("x" * 1_000_000) == "x" * 79 + "…"
