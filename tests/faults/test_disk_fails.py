"""A database whose log cannot be written or synced any more, at any of its commits: the owner ends and says
so, what it had acknowledged is there, and the next process sees what is stored and goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.support.place import Place

pytestmark = pytest.mark.slow

FAILING = Path(__file__).parent / "failing_disk.py"
SAYS = "[[effect:{turn}]][[say:finished {turn}]]"
RUN = ("run", "--session", "job", "--key", "one", "--json", SAYS)


def rows() -> list[object]:
    """Every sync of a run, and writes of its log: a commit is several."""
    found: list[object] = []
    for what, at, short in (("sync", range(1, 13), 6), ("write", range(1, 60, 4), 17)):
        found += [pytest.param(what, n, marks=() if n == short else pytest.mark.slow) for n in at]
    return found


@pytest.mark.parametrize(("what", "nth"), rows())
def test_an_owner_whose_disk_fails_for_good_ends_with_a_word_and_nothing_is_lost(
    place: Place, tmp_path: Path, what: str, nth: int
) -> None:
    first = ("run", "-a", "plain", "--session", "job", "--key", "zero", SAYS)
    assert place.call(*first).status == 0
    argv = (sys.executable, str(FAILING), what, str(nth), str(tmp_path / "never"), *RUN)
    failed = place.start_program(*argv, env=place.environ()).wait()
    if failed.status != 0:
        error = failed.errors[-1]
        assert error["error"] in ("ambiguous_append", "lease_lost", "restore"), failed
        assert "disk" in error["hint"], failed
    assert "Traceback" not in failed.stderr, failed
    journal = place.journal("job")
    again = place.call(*RUN)
    assert again.status == 0, again
    after = place.journal("job")
    assert after.records[: len(journal.records)] == journal.records
    after.assert_every_input_ends_once()
    assert [record.turn for record in after.of("TurnDone")] == ["zero", "one"]
    place.assert_effects_once("zero", "one")
