"""Every prefix of recorded real journals: a restore can begin there, converges, and repairs once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaign.freeze import JOURNALS, thaw
from tests.campaign.prefixes import check_prefixes, check_snapshots, states
from tests.campaign.story import SESSION

from outlast.state.invariants import violations

RECORDED = sorted(JOURNALS.glob("*.jsonl"))
IN_SHORT = {"everything-killed", "effect-killed"}
"""The ones whose every prefix each `make test` restores."""
recorded = pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)


def test_there_are_recorded_journals() -> None:
    assert {path.stem for path in RECORDED} >= {"told", "owner-killed", "everything-killed", "restore-killed"}
    effects = thaw(JOURNALS / "effect-killed.jsonl")
    assert {"HostDone", "EffectDispatched", "EffectSettled", "TurnResumed"} <= {r.type for r in effects}


@recorded
def test_a_recorded_journal_breaks_nothing(path: Path) -> None:
    records = thaw(path)
    assert violations(records) == []
    assert states(SESSION, records)[-1].stopped == "closed"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in IN_SHORT else pytest.mark.slow)
        for path in RECORDED
    ],
)
def test_every_prefix_is_a_state_that_a_restore_can_start_from_and_repairs_once(path: Path) -> None:
    records = thaw(path)
    assert check_prefixes(SESSION, records) > 50 * len(records)


@recorded
def test_the_fold_from_any_snapshot_comes_to_the_same_state(path: Path) -> None:
    check_snapshots(SESSION, thaw(path))
