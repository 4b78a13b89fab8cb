"""Words that are shown while they are written, and the records that come after them."""

from outlast.cli.text import LiveText, pieces_of
from outlast.records import types as t
from outlast.testing.journals import JournalBuilder

JOINED = t.InputJoined(request_id="b")
CUT = t.ReplyInterrupted(text="The first rep")
WHOLE = t.AgentEventRecorded(kind="message", text="Another reply")


def shown(live: LiveText) -> list[str]:
    """What the records of a turn in which a steer cut a reply off show."""
    journal = JournalBuilder().running("a").accept("b").add(JOINED, CUT, WHOLE, turn="a")
    return [
        piece.text for record in journal.records()[-3:] for piece in pieces_of(record, live) if piece.text
    ]


def test_a_reply_after_one_that_was_cut_off_is_not_shown_twice() -> None:
    live = LiveText()
    live.delta("The first rep")
    live.delta("Another reply")
    assert shown(live) == ["input b has joined turn a", "[cut off] The first rep"]


def test_without_live_words_only_the_whole_reply_is_shown_as_the_agents_words() -> None:
    assert shown(LiveText()) == ["input b has joined turn a", "[cut off] The first rep", "Another reply"]
