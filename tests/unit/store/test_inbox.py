"""The inbox and the catalog. Nothing here knows which store it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.stores import admit, append, entry, rows

from outlast.errors import AmbiguousIdError, RequestCollisionError, SessionNotFoundError
from outlast.store.contract import Admission, Admitted, Append, CatalogQuery, Store
from outlast.store.url import open_store, sqlite_url


async def test_duplicate_submit(store: Store) -> None:
    """Many concurrent admissions of one request make one entry."""
    answers = await asyncio.gather(*(admit(store, "s", "r") for _ in range(6)))
    assert sorted(answer.created for answer in answers) == [False] * 5 + [True]
    assert len(await store.pending("s")) == 1


async def test_the_same_request_with_another_content_or_kind_is_a_collision(store: Store) -> None:
    await admit(store, "s", "r", b"one")
    with pytest.raises(RequestCollisionError):
        await admit(store, "s", "r", b"two")
    with pytest.raises(RequestCollisionError):
        await admit(store, "s", "r", b"one", kind="cancel")
    assert (await admit(store, "other", "r", b"two")).created


async def test_a_settled_request_is_answered_for_as_long_as_the_session_lives(url: str) -> None:
    store = await open_store(url)
    await admit(store, "s", "r", b"one")
    lease = await store.acquire("s")
    await append(store, lease, 2)
    await append(store, lease, settle=("r",))
    await store.close()
    again = await open_store(url)
    answer = await admit(again, "s", "r", b"one")
    assert not answer.created
    assert answer.settled is not None
    assert answer.settled.seq == 3
    assert answer.settled == await again.settled("s", "r")
    with pytest.raises(RequestCollisionError):
        await admit(again, "s", "r", b"two")
    assert await again.pending("s") == []
    await again.close()


async def test_pending_gives_all_unsettled_entries_in_admission_order(store: Store) -> None:
    for request in ("c", "a", "b", "d"):
        await admit(store, "s", request, request.encode())
    lease = await store.acquire("s")
    await append(store, lease, settle=("a",))
    found = await store.pending("s")
    assert [(e.request_id, e.body, e.kind, e.actor) for e in found] == [
        ("c", b"c", "input", "me"),
        ("b", b"b", "input", "me"),
        ("d", b"d", "input", "me"),
    ]
    assert [e.order for e in found] == sorted(e.order for e in found)


async def test_early_id(store: Store) -> None:
    """A session is listed as soon as its first request is admitted, before anybody owns it."""
    await admit(store, "s", "r")
    await admit(store, "s", "r2")
    [listed] = await store.list()
    assert (listed.entry.session, listed.entry.state, listed.pending, listed.owner) == ("s", "new", 2, None)
    first, second = await store.pending("s")
    assert (first.opening, first.opening_body) == (entry("s"), b"{}")
    assert (second.opening, second.opening_body) == (None, None)


async def test_a_command_to_an_unknown_session_is_refused(store: Store) -> None:
    with pytest.raises(SessionNotFoundError):
        await store.admit(Admission("nobody", "r", "cancel", b""))
    await admit(store, "s", "r")
    assert (await store.admit(Admission("s", "r2", "cancel", b""))).created


async def test_the_order_of_a_list_is_newest_activity_first_and_filters_join(store: Store) -> None:
    given = [("ab1", "/w", 3), ("ab2", "/v", 9), ("b", "/w", 5)]
    for name, workspace, at in given:
        lease = await store.acquire(name)
        listed = entry(name, 1, workspace=workspace, last_activity_at=at)
        await store.append(Append(name, rows(lease, 0, 1), 0, lease, catalog=listed))

    async def names(query: CatalogQuery) -> Sequence[str]:
        return [row.entry.session for row in await store.list(query)]

    assert await names(CatalogQuery()) == ["ab2", "b", "ab1"]
    assert await names(CatalogQuery(limit=2)) == ["ab2", "b"]
    assert await names(CatalogQuery(workspace="/w")) == ["b", "ab1"]
    assert await names(CatalogQuery(prefix="ab")) == ["ab2", "ab1"]
    assert await names(CatalogQuery(prefix="ab", workspace="/w")) == ["ab1"]


async def test_an_exact_id_wins_over_a_prefix(store: Store) -> None:
    for name in ("chat", "chat-2", "Chat-3", "x%_y"):
        await admit(store, name, "r")
    assert await store.find("chat") == "chat"
    assert await store.find("chat-") == "chat-2"
    assert await store.find("x%") == "x%_y"
    with pytest.raises(AmbiguousIdError):
        await store.find("c")
    with pytest.raises(SessionNotFoundError):
        await store.find("chat-22")


async def test_a_name_that_was_only_asked_for_is_no_session(store: Store) -> None:
    await (await store.acquire("nothing")).release()
    with pytest.raises(SessionNotFoundError):
        await store.find("nothing")
    assert await store.list() == []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(0, 4), st.sampled_from([b"x", b"y"])),
        st.tuples(st.just("settle"), st.integers(0, 4), st.just(b"")),
    ),
    max_size=12,
)


class Model:
    """The inbox of one session as a dictionary."""

    def __init__(self) -> None:
        self.pending: dict[str, bytes] = {}
        self.settled: dict[str, tuple[bytes, int]] = {}
        self.seq = 0

    def admit(self, request: str, body: bytes) -> tuple[bool, int | None] | None:
        """(created, seq of the settling record), None for a collision."""
        before = self.settled.get(request, (self.pending.get(request), None))
        if before[0] is None:
            self.pending[request] = body
            return True, None
        return (False, before[1]) if before[0] == body else None

    def settle(self, request: str) -> None:
        self.seq += 1
        self.settled[request] = (self.pending.pop(request), self.seq)


async def _answer(store: Store, request: str, body: bytes) -> tuple[bool, int | None] | None:
    try:
        answer: Admitted = await admit(store, "s", request, body)
    except RequestCollisionError:
        return None
    return answer.created, answer.settled.seq if answer.settled else None


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_the_inbox_behaves_as_its_model(
    tmp_path_factory: pytest.TempPathFactory, given_steps: list[tuple[str, int, bytes]]
) -> None:
    async def run(folder: Path) -> None:
        store = await open_store(sqlite_url(folder / "x.db"))
        model = Model()
        lease = await store.acquire("s")
        for action, number, body in given_steps:
            request = f"r{number}"
            if action == "admit":
                assert await _answer(store, request, body) == model.admit(request, body)
            elif request in model.pending:
                await append(store, lease, settle=(request,))
                model.settle(request)
        assert [(e.request_id, e.body) for e in await store.pending("s")] == list(model.pending.items())
        await store.close()

    asyncio.run(run(tmp_path_factory.mktemp("inbox")))
