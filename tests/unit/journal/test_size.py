"""What a long session costs: a turn late in its life is stored in as much as an early one."""

from __future__ import annotations

import itertools

import apsw
from tests.support.stores import admit
from tests.unit.journal.test_journal import begun, opened

from outlast.journal import Journal, Proposal
from outlast.records.envelope import Draft
from outlast.records.types import AgentEventRecorded, Content, InputAccepted, TurnDone
from outlast.store.contract import Store
from outlast.store.url import database_path


async def a_turn(store: Store, journal: Journal, number: int) -> None:
    """Admitted, accepted, begun, answered and done; but for the digits of its index every one is alike."""
    request = f"turn-{number:04}"
    await admit(store, "s", request)
    accepted = Draft(
        InputAccepted(request_id=request, content=[Content(text="hi " * 40)]), loop="main", cause=request
    )
    await journal.decide(lambda _: Proposal((accepted, begun(request, number)), ((request, 0),)))
    said = AgentEventRecorded(kind="message", text="a plain answer. " * 20)
    ended = TurnDone(stop_reason="end_turn", usage={"tokens": 1000})
    await journal.append([Draft(body, loop="main", turn=request) for body in (said, ended)])


async def test_quadratic_size(store: Store) -> None:
    """Over 300 turns neither the records of a turn grow nor what the whole store takes for a hundred of
    them; what is held of the session in memory does not grow at all."""
    journal = await opened(store)
    connection = apsw.Connection(str(database_path(store.url, {})), flags=apsw.SQLITE_OPEN_READONLY)
    pages, held = [connection.pragma("page_count")], set()
    for number in range(1, 301):
        await a_turn(store, journal, number)
        if number % 100 == 0:
            pages.append(connection.pragma("page_count"))
            state = journal.state
            held.add((len(state.queue), len(state.open_turns), len(state.parked), len(state.loops)))
    counts = connection.execute("SELECT turn, count(*), sum(length(body)) FROM record GROUP BY turn")
    records, sizes = zip(*[(count, size) for turn, count, size in counts if turn], strict=True)
    connection.close()

    assert len(sizes) == 300
    assert len(set(records)) == 1
    assert max(sizes) - min(sizes) <= len("300") - len("1"), sizes
    grown = [after - before for before, after in itertools.pairwise(pages)]
    assert max(grown) <= 1.1 * min(grown) + 4, grown
    assert held == {(0, 0, 0, 1)}
