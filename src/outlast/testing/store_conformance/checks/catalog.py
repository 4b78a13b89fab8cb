"""The catalog lists and finds sessions without opening a journal, and never goes back behind one."""

from __future__ import annotations

from outlast.errors import AmbiguousIdError, SessionNotFoundError, UsageError
from outlast.store.contract import CatalogQuery, EntryKind
from outlast.testing.store_conformance.check import Subject
from outlast.testing.store_conformance.expect import equal, holds, refused
from outlast.testing.store_conformance.harness import Harness
from outlast.testing.store_conformance.material import admit, append, entry

SUBJECT = Subject("catalog")


@SUBJECT.check
async def a_row_comes_back_as_it_was_stored_and_names_its_living_owner(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    lease = await one.acquire(name)
    labels = (("k", "v"), ("é", "\U0001f642"), ("empty", ""))
    given = entry(
        name, 1, title="t\u2028\0", workspace="/w x", turns=3, queued=2, open_gates=1, labels=labels
    )
    await append(one, lease, catalog=given)
    for store in (one, two):
        row = await store.listed(name)
        equal(row and row.entry, given, "the row")
        equal(await store.entry(name), given, "the entry alone")
        equal(
            row and row.owner and (row.owner.incarnation, row.owner.epoch), (one.incarnation, lease.epoch), ""
        )
    await lease.release()
    row = await two.listed(name)
    holds(row is not None and row.owner is None, "nobody owns it any more")
    nobody = harness.name()
    holds(await two.listed(nobody) is None, "a session that is not there has no row")
    holds(await two.entry(nobody) is None, "nor an entry")


@SUBJECT.check
async def an_older_row_never_replaces_a_newer_one(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    lease = await store.acquire(name)
    for seq, title, wanted in ((1, "one", "one"), (2, "two", "two"), (1, "late", "two"), (4, "four", "four")):
        await append(store, lease, catalog=entry(name, seq, title=title))
        row = await store.listed(name)
        equal(row and row.entry.title, wanted, f"the title after a row of record {seq}")


@SUBJECT.check
async def a_session_is_listed_from_its_first_request_on(harness: Harness) -> None:
    one, two, name = await harness.open(), await harness.open(), harness.name()
    await admit(one, name, "r")
    await admit(one, name, "r2")
    kinds: tuple[EntryKind, ...] = ("cancel", "kill", "close", "answer", "retry", "skip", "hold", "adopt")
    for kind in kinds:
        await admit(one, name, kind, kind=kind)
    [row] = await two.list(CatalogQuery(prefix=name))
    seen = (row.entry, row.pending, row.decisions, row.owner)
    equal(seen, (entry(name), 2, 3, None), "the row, its inputs, its decisions, its owner")
    await append(one, await one.acquire(name), settle=("r", "cancel", "retry"))
    row_now = await two.listed(name)
    equal(row_now and (row_now.pending, row_now.decisions), (1, 2), "inputs and decisions that wait")


@SUBJECT.check
async def a_list_begins_with_the_newest_activity_and_its_filters_join(harness: Harness) -> None:
    store, base = await harness.open(), harness.name("list")
    for end, workspace, at in (("a1", "/w", 3), ("a2", "/v", 9), ("b", "/w", 5)):
        lease = await store.acquire(base + end)
        row = entry(base + end, 1, workspace=base + workspace, last_activity_at=at)
        await append(store, lease, catalog=row)

    async def ends(**given: object) -> list[str]:
        query = CatalogQuery(**given)  # type: ignore[arg-type]
        return [row.entry.session.removeprefix(base) for row in await store.list(query)]

    equal(await ends(prefix=base), ["a2", "b", "a1"], "by prefix")
    equal(await ends(prefix=base, limit=2), ["a2", "b"], "two of them")
    equal(await ends(workspace=base + "/w"), ["b", "a1"], "by workspace")
    equal(await ends(prefix=base + "a"), ["a2", "a1"], "by a longer prefix")
    equal(await ends(prefix=base + "a", workspace=base + "/w"), ["a1"], "by both")
    equal(await ends(prefix=base + "c"), [], "by a prefix that nobody has")


@SUBJECT.check
async def an_exact_id_wins_over_a_prefix_and_no_mark_is_a_wildcard(harness: Harness) -> None:
    store, base = await harness.open(), harness.name("find")
    for end in ("chat", "chat-2", "Chat-3", "x%_y", "x*"):
        await admit(store, base + end, "r")
    for asked, wanted in (
        ("chat", "chat"),
        ("chat-", "chat-2"),
        ("C", "Chat-3"),
        ("x%", "x%_y"),
        ("x*", "x*"),
    ):
        equal(await store.find(base + asked), base + wanted, f"what {asked} finds")
    for asked in ("c", "x", ""):
        with refused(AmbiguousIdError, f"{asked!r}, which several begin with"):
            await store.find(base + asked)
    for asked in ("chat-22", "x_", "%", "CHAT"):
        with refused(SessionNotFoundError, f"{asked}, which none begins with"):
            await store.find(base + asked)
    with refused(UsageError, "an empty name"):
        await store.find("")


@SUBJECT.check
async def a_name_that_was_only_owned_is_no_session(harness: Harness) -> None:
    store, name = await harness.open(), harness.name()
    await (await store.acquire(name)).release()
    with refused(SessionNotFoundError, "a name that was only owned"):
        await store.find(name)
    equal(await store.list(CatalogQuery(prefix=name)), [], "the list")
