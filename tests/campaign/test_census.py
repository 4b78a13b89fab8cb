"""No durable step without a fault point beside it, and no point that is never killed at."""

from __future__ import annotations

import ast

import pytest
from tests.campaign.census import bare_steps, points, points_of_the_shim, steps_without_a_point

WITHOUT: dict[str, tuple[str, str]] = {
    "agents/provider_state.py:_sweep": ("draft.unlink", "a draft that is left is swept at the next look"),
    "agents/provider_state.py:_new_draft": ("draft.unlink", "the same, and nothing is in it yet"),
    "config/trust.py:Trust.decide": (
        "os.fsync, temporary.replace",
        "a person's answer; one that is lost is asked for again",
    ),
    "config/trust.py:Trust.forget": ("path.unlink", "the same"),
    "faults.py:point": ("os.kill", "it is the point"),
    "keep/points.py:point": ("os.kill", "it is the point"),
    "keep/body.py:Body._retry": ("self._spool.append", "passes keep.spool.append below"),
    "keep/body.py:Body._store": ("self._spool.append", "passes keep.spool.append below"),
    "keep/inputs.py:Inputs._store": (
        "self._spool.append",
        "passes keep.spool.append and keep.input.sync below",
    ),
    "keep/inputs.py:Inputs.close": (
        "self._spool.append",
        "passes keep.spool.append and keep.input.sync below",
    ),
    "keep/guard.py:_Guard._record": ("record.write", "its one caller passes keep.guard.before and .after"),
    "keep/layout.py:Record.create": (
        "os.fsync, os.fsync",
        "an empty record is no record; its callers pass points of their own",
    ),
    "keep/layout.py:_sync": (
        "os.fdatasync, os.fsync",
        "part of a record's write: its callers pass keep.id, keep.exit and others",
    ),
    "keep/layout.py:write_all": ("os.pwrite", "part of Record.write and of a segment's head"),
    "keep/layout.py:write_floor": ("record.write", "its callers pass keep.floor and keep.raise_floor"),
    "keep/proc.py:signal_group": ("os.killpg", "its caller passes keep.kill.term"),
    "keep/proc.py:signal_process": (
        "os.kill",
        "its callers pass keep.kill, keep.guard.kill and keep.kill_marked",
    ),
    "keep/client.py:ShimClient.status": ("self._ask", "asks, and changes nothing"),
    "keep/spool.py:Spool._cut_back": ("os.ftruncate", "takes back what no reader takes for a frame"),
    "keep/spool.py:Spool._discard": ("os.unlink", "removes a segment that says nothing"),
    "keep/spool.py:sync": (
        "os.fdatasync, os.fsync",
        "its callers pass keep.input.sync and keep.spool.before_sync",
    ),
    "store/sqlite/engine.py:Engine._commit": (
        "self._cursor.execute",
        "its caller passes store.OPERATION.before_commit and after",
    ),
    "store/memory/tables.py:_remove": ("shutil.rmtree", "what a process kept of a store that ends with it"),
    "store/sqlite/backup.py:_draft": ("left.unlink", "removes what no backup is made of"),
    "store/sqlite/rebuild.py:_salvage": ("target.execute", "a draft, until rebuild.before_rename"),
    "store/sqlite/quarantine.py:_keep_rows": ("os.fsync", "a draft, until repair.quarantine.before_rename"),
    "store/sqlite/quarantine.py:_write": ("os.fsync", "the same"),
    "store/sqlite/quarantine.py:copy_pages": ("os.fsync", "the same"),
    "files.py:flush_folder": ("os.fsync", "after the rename or mkdir that it makes last"),
    "store/sqlite/witness.py:Witness._put": (
        "os.pwrite",
        "its caller passes store.witness.before and .after",
    ),
    "store/sqlite/witness.py:Witness.begin_anew": (
        "os.ftruncate, os.pwrite",
        "a witness that was cut off says nothing, as none does",
    ),
    "agents/provider_state.py:keep_aside": ("kept.unlink", "half a copy that nobody was told of"),
    "keep/layout.py:Record.place": (
        "os.fsync",
        "after the rename, between two points: a kill finds the new name",
    ),
    "store/sqlite/blobs.py:Blobs._write": ("draft.unlink", "takes back a draft that nobody was told of"),
    "turns/running.py:BodyLock.release": ("self._path.unlink", "what is left of it is locked by nobody"),
    "turns/claims.py:_write": ("draft.unlink", "takes back a draft, which is no claim"),
}
"""Function -> its steps without a point, and why they need none of their own."""


def bare() -> dict[str, str]:
    """Function -> its steps without a point, in their order."""
    places: dict[str, list[str]] = {}
    for step in sorted(steps_without_a_point(), key=lambda step: (step.place, step.line)):
        places.setdefault(step.place, []).append(step.call)
    return {place: ", ".join(calls) for place, calls in places.items()}


def test_every_durable_step_has_a_point_beside_it() -> None:
    new = {place: calls for place, calls in bare().items() if WITHOUT.get(place, ("", ""))[0] != calls}
    assert not new, f"name a fault point (outlast.faults.point) before each of these, or let it off: {new}"


def test_what_is_let_off_is_there_and_needs_it() -> None:
    assert sorted(set(WITHOUT) - set(bare())) == []


STEPS = [
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
]


@pytest.mark.parametrize("step", STEPS)
def test_a_new_step_without_a_point_is_found(step: str) -> None:
    assert found_in(step) == [step_of(step)]
    assert found_in("point('new.before')", step) == []
    assert found_in(step, "point('new.after')") == []


@pytest.mark.parametrize("step", STEPS)
def test_a_second_step_that_has_no_point_of_its_own_is_found(step: str) -> None:
    """That its function passes one for another step is no use to it."""
    first = "await patience.append(journal, drafts, at='new.first')"
    assert found_in("point('new.before')", "draft.rename(path)", step) == [step_of(step)]
    assert found_in("draft.rename(path)", step, "point('new.after')") == ["draft.rename", step_of(step)]
    assert found_in("draft.rename(path)", "point('new.between')", step) == []
    assert found_in(first, step) == []
    assert found_in(first, step, step) == [step_of(step)]


def found_in(*lines: str) -> list[str]:
    """The steps without a point in a function of these lines."""
    function = "async def new():\n" + "".join(f"    {line}\n" for line in lines)
    return [step.call for step in bare_steps(ast.parse(function), "turns/new.py")]


def step_of(line: str) -> str:
    return line.removeprefix("await ").partition("(")[0]


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
