"""No durable step without a fault point beside it, and no point that is never killed at."""

from __future__ import annotations

import ast

import pytest
from tests.campaign.census import bare_steps, points, points_of_the_shim, steps_without_a_point

WITHOUT: dict[str, str] = {
    "config/trust.py:Trust.decide": "a person's answer; one that is lost is asked for again",
    "config/trust.py:Trust.forget": "the same",
    "faults.py:point": "it is the point",
    "keep/points.py:point": "it is the point",
    "keep/body.py:Body._retry": "passes keep.spool.append below",
    "keep/body.py:Body._store": "passes keep.spool.append below",
    "keep/inputs.py:Inputs._store": "passes keep.spool.append and keep.input.sync below",
    "keep/inputs.py:Inputs.close": "passes keep.spool.append and keep.input.sync below",
    "keep/guard.py:_Guard._record": "its one caller passes keep.guard.before and .after",
    "keep/layout.py:Record.create": "an empty record is no record; its callers pass points of their own",
    "keep/layout.py:_sync": "part of a record's write: its callers pass keep.id, keep.exit and others",
    "keep/layout.py:write_all": "part of Record.write and of a segment's head",
    "keep/layout.py:write_floor": "its callers pass keep.floor and keep.raise_floor",
    "keep/proc.py:signal_group": "its caller passes keep.kill.term",
    "keep/proc.py:signal_process": "its callers pass keep.kill, keep.guard.kill and keep.kill_marked",
    "keep/client.py:ShimClient.status": "asks, and changes nothing",
    "keep/spool.py:Spool._cut_back": "takes back what no reader takes for a frame",
    "keep/spool.py:Spool._discard": "removes a segment that says nothing",
    "keep/spool.py:sync": "its callers pass keep.input.sync and keep.spool.before_sync",
    "store/sqlite/engine.py:Engine._commit": "its caller passes store.OPERATION.before_commit and after",
    "store/memory/tables.py:_remove": "what a process kept of a store that ends with it",
    "store/sqlite/backup.py:_draft": "removes what no backup is made of",
    "store/sqlite/rebuild.py:_salvage": "a draft, until rebuild.before_rename",
    "store/sqlite/quarantine.py:_keep_rows": "a draft, until repair.quarantine.before_rename",
    "store/sqlite/quarantine.py:_write": "the same",
    "store/sqlite/quarantine.py:copy_pages": "the same",
    "store/sqlite/layout.py:flush_folder": "after the rename or mkdir that it makes last",
    "store/sqlite/witness.py:Witness._put": "its caller passes store.witness.before and .after",
    "store/sqlite/witness.py:Witness.begin_anew": "a witness that was cut off says nothing, as none does",
}
"""Function -> why it needs none of its own."""


def test_every_durable_step_has_a_point_beside_it() -> None:
    bare = {step.place: step for step in steps_without_a_point()}
    new = [step for place, step in bare.items() if place not in WITHOUT]
    assert not new, f"name a fault point in these functions (outlast.faults.point): {new}"


def test_what_is_let_off_is_there_and_needs_it() -> None:
    bare = {step.place for step in steps_without_a_point()}
    assert sorted(set(WITHOUT) - bare) == []


@pytest.mark.parametrize(
    "step",
    [
        "os.fsync(fd)",
        "os.rename(a, b)",
        "draft.rename(path)",
        "os.replace(a, b)",
        "draft.replace(path)",
        "os.kill(pid, 9)",
        "shutil.rmtree(path)",
        "await patience.append(journal, drafts)",
        "await self._journal.append(drafts)",
        "cursor.execute('COMMIT')",
    ],
)
def test_a_new_step_without_a_point_is_found(step: str) -> None:
    bare = ast.parse(f"async def new():\n    {step}\n")
    assert [found.place for found in bare_steps(bare, "turns/new.py")] == ["turns/new.py:new"]
    named = ast.parse(f"async def new():\n    point('new.before')\n    {step}\n")
    assert bare_steps(named, "turns/new.py") == []


@pytest.mark.parametrize(
    "call", ["text.replace('a', 'b')", "msgspec.structs.replace(x, y=1)", "names.append(1)", "replace(self)"]
)
def test_what_lasts_no_longer_than_the_process_needs_none(call: str) -> None:
    assert bare_steps(ast.parse(f"def new():\n    {call}\n"), "turns/new.py") == []


def test_points_are_found_in_owner_and_shim() -> None:
    """The scan itself works: one of each way to name a point."""
    assert {
        "turn.terminal.before_append",
        "store.append.after_commit",
        "restore.begin.before_append",
    } <= points()
    assert "keep.pipe.before" in points_of_the_shim()
    assert "keep.attach.before" not in points_of_the_shim()
