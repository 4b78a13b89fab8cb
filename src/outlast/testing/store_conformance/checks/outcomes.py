"""An append whose answer was lost is resolved by the same append again, never by a look."""

from __future__ import annotations

import asyncio

from outlast.errors import AmbiguousAppendError, ConflictError, StoreError
from outlast.journal import Journal, load_state
from outlast.records.envelope import Draft
from outlast.records.types import Fence, SessionStopped
from outlast.store.contract import Append, Store, Tip
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.checks.ledger import EMPTY
from outlast.testing.store_conformance.expect import equal, holds, refused, until
from outlast.testing.store_conformance.harness import Harness, Moment
from outlast.testing.store_conformance.material import (
    admit,
    append,
    batch,
    outcome_of,
    pending,
    read_all,
    rows,
    seqs,
)

SUBJECT = Subject("outcomes")


@SUBJECT.check
async def the_same_batch_again_is_found_stored_where_it_was(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await admit(store, name, "r")
    lease = await store.acquire(name)
    lost = batch(lease, EMPTY, 3, settle=("r",))
    equal(await store.append(lost), 3, "the new tip")
    equal(await store.append(lost), 3, "the answer to the same batch again")
    await append(store, lease, 2)
    equal(await store.append(lost), 3, "the answer once the journal has gone on")
    equal(await seqs(store, name), [1, 2, 3, 4, 5], "the journal")
    equal(await pending(store, name), [], "what waits")


@SUBJECT.check
async def the_same_batch_sent_twice_at_once_is_stored_once(harness: Harness) -> None:
    """As when a first try arrives late, after its caller has asked again."""
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    tip = EMPTY
    for count in (1, 3, 2):
        lost = batch(lease, tip, count)
        outcomes = await asyncio.gather(*(outcome_of(store.append(lost)) for _ in range(4)))
        equal(outcomes, [tip.seq + count] * 4, "the answers")
        tip = await store.tip(name)
    equal(await seqs(store, name), [1, 2, 3, 4, 5, 6], "the journal")


@SUBJECT.check
async def the_same_batch_again_is_a_conflict_where_others_took_its_place(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    never_arrived = batch(lease, EMPTY, 2)
    await append(store, lease, 3)
    with refused(ConflictError, "the batch whose place is taken") as refusal:
        await store.append(never_arrived)
    equal(refusal.error.tip, 3, "the tip that the refusal names")


@SUBJECT.check
async def a_batch_of_which_only_a_part_is_there_is_a_conflict(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    made = rows(lease, EMPTY, 3)
    await store.append(Append(name, made[:2], 0, lease))
    with refused(ConflictError, "a batch that goes beyond what is stored"):
        await store.append(Append(name, made, 0, lease))
    equal(await seqs(store, name), [1, 2], "the journal")


@SUBJECT.check
async def an_owner_that_was_replaced_still_learns_that_its_batch_was_stored(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    lost, never_arrived = batch(lease, EMPTY, 2), None
    await store.append(lost)
    never_arrived = batch(lease, await store.tip(name))
    await lease.release()
    successor = await store.acquire(name)
    await append(store, successor)
    holds(await outcome_of(store.append(lost)) == 2, "the stored batch is found")
    with refused(StoreError, "the one that never arrived"):
        await store.append(never_arrived)
    equal(await seqs(store, name), [1, 2, 3], "the journal")


class Unanswered:
    """A store whose answers to appends get lost on the way, or the appends themselves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.plan: list[str] = []
        """What becomes of each of the next appends: `answer` or `request` is lost, or `late`: it arrives with
        the next one."""
        self._late: list[Append] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, given: Append) -> int:
        what = self.plan.pop(0) if self.plan else ""
        if what == "late":
            self._late.append(given)
        if what == "answer":
            await self._store.append(given)
        if what:
            raise AmbiguousAppendError("the answer was lost on purpose")
        late, self._late = self._late, []
        *_, answer = await asyncio.gather(*(self._store.append(each) for each in (*late, given)))
        return answer


@SUBJECT.check
async def a_journal_whose_answers_get_lost_has_each_record_once(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    troubled = Unanswered(store)
    lease = await store.acquire(name)
    journal = await Journal.open(troubled, lease)  # type: ignore[arg-type]
    await journal.append([Draft(Fence(epoch=lease.epoch, holder="me"))])
    plans = (
        ["answer"],
        ["request"],
        ["late"],
        ["answer", "request", "answer"],
        ["request", "late", "answer"],
    )
    for number, plan in enumerate(plans):
        troubled.plan = list(plan)
        await journal.append([Draft(SessionStopped(reason=f"{number}")), Draft(SessionStopped(reason="x"))])
    equal(await seqs(store, name), list(range(1, 12)), "the journal")
    state = await load_state(store, name)
    equal((state.seq, state.stopped), (11, "x"), "what a reader makes of it")


async def _killed(harness: Harness, moment: Moment) -> tuple[Store, str]:
    """An incarnation was killed around the commit of a batch that settles an input: who finds it, where."""
    dying, name = await harness.start_dying(moment), harness.name()
    store = await harness.open("successor")
    await admit(store, name, "r")
    lease = await dying.acquire(name)
    with refused(StoreError, "the append of an incarnation that died in it"):
        await dying.append(batch(lease, EMPTY, 3, settle=("r",)))

    async def free() -> bool:
        return await store.holder(name) is None

    await until(free, "the dead incarnation owns nothing")
    return store, name


@SUBJECT.check
async def killed_before_the_commit_nothing_of_a_batch_is_there(harness: Harness) -> None:
    store, name = await _killed(harness, "before_commit")
    lease = await store.acquire(name)
    equal((await read_all(store, name), await pending(store, name)), ([], ["r"]), "the journal, what waits")
    equal(await append(store, lease, settle=("r",)), 1, "the next tip")


@SUBJECT.check
async def killed_after_the_commit_all_of_a_batch_is_there(harness: Harness) -> None:
    store, name = await _killed(harness, "after_commit")
    lease = await store.acquire(name)
    equal((await seqs(store, name), await pending(store, name)), ([1, 2, 3], []), "the journal, what waits")
    answer = await admit(store, name, "r")
    holds(answer.settled is not None and answer.settled.seq == 1, "the input is settled by its record")
    equal(await append(store, lease), 4, "the next tip")
    holds(isinstance(await store.tip(name), Tip), "the journal is sound")
