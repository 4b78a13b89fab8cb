"""`outlast.blocking`: the handles for callers without an event loop, with a real store and a real agent."""

import gc
import inspect
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import outlast.blocking
from outlast.agents import Command
from outlast.errors import ForkedError, UsageError
from outlast.journal import CaughtUp
from outlast.records.envelope import Record
from outlast.runtime import client, handles, runtime
from outlast.runtime.backing import Backing
from outlast.store.url import sqlite_url
from outlast.testing import agents

DEADLINE = 30.0


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path / "state"))
    return sqlite_url(tmp_path / "state" / "outlast.db")


@pytest.fixture
def opened(url: str, tmp_path: Path) -> Iterator[outlast.blocking.BlockingRuntime]:
    agent = Command(agents.command(agents.SCRIPTED, "--effects", str(tmp_path / "effects")), stdin="open")
    with outlast.blocking.runtime(url, agents={"scripted": agent}) as face:
        yield face


def finished(face: outlast.blocking.BlockingRuntime, name: str, *prompts: str) -> outlast.blocking.Session:
    """A session whose turns are done and whose agent is gone."""
    session = face.session(name)
    for prompt in prompts:
        session.send(prompt)
    session = face.restore(name)
    session.quiet()
    session.finish()
    return session


@pytest.mark.parametrize(
    ("waiting", "asynchronous"),
    [
        (outlast.blocking.Session, handles.Session),
        (outlast.blocking.Turn, handles.Turn),
        (outlast.blocking.BlockingRuntime, runtime.Runtime),
        (outlast.blocking.BlockingClient, client.Client),
        (outlast.blocking.runtime, runtime.Runtime),
        (outlast.blocking.connect, client.connect),
    ],
)
def test_every_asynchronous_handle_has_a_waiting_twin(waiting: object, asynchronous: object) -> None:
    """Same names, same parameters, same defaults; what only handles ask for is left out."""
    if not isinstance(waiting, type):
        assert parameters(waiting) == parameters(asynchronous)
        return
    inner = {name for name in vars(Backing) if not name.startswith("_")}
    if asynchronous is client.Client:
        inner.add("close")  # leaving the block does it
    for name, method in inspect.getmembers(asynchronous, inspect.isfunction):
        if not name.startswith("_") and name not in inner:
            assert parameters(getattr(waiting, name)) == parameters(method), name


def parameters(function: object) -> list[tuple[str, object, object]]:
    assert callable(function)
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind, p.default) for p in found if p.name != "self"]


def test_a_turn_is_sent_followed_and_looked_at(opened: outlast.blocking.BlockingRuntime) -> None:
    session = opened.session("s")
    turn = session.send("[[say:hello]]", key="K")
    outcome = turn.result()
    assert (turn.id, outcome.outcome, outcome.text) == ("K", "done", "hello")
    assert turn.session is session
    types = []
    for item in session.follow():
        if isinstance(item, CaughtUp):
            break
        assert isinstance(item, Record)
        types.append(item.type)
    assert types[:3] == ["Fence", "SessionStarted", "LoopStarted"]
    assert "TurnDone" in types
    assert session.outcome("K").text == "hello"
    assert [shown.outcome for shown in session.view().turns] == ["done"]
    assert session.gates() == []
    session.quiet()
    session.finish()


def test_a_session_is_owned_and_its_queue_drained(opened: outlast.blocking.BlockingRuntime, url: str) -> None:
    finished(opened, "s", "[[say:first]]")
    with outlast.blocking.connect(url) as elsewhere:
        for prompt in ("[[say:second]]", "[[say:third]]"):
            elsewhere.session("s").send(prompt)
    assert [turn.action for turn in opened.plan_restore("s").turns] == []
    session = opened.own("s")
    assert session is not None
    assert [outcome.text for outcome in session.drain()] == ["second", "third"]
    session.detach()


def test_a_question_is_answered(opened: outlast.blocking.BlockingRuntime) -> None:
    session = opened.session("s")
    turn = session.send("[[gate:g:Which one?:left,right]]")
    for item in session.follow():
        if isinstance(item, Record) and item.type == "GateOpened":
            break
    (gate,) = session.gates()
    assert session.answer(gate.id, "left", by="me").result == "answered"
    assert turn.result().text == "g=left"
    assert session.close(actor="me").result == "done"


def test_an_iterator_that_outlives_the_block_says_so_and_leaves_no_trace(url: str) -> None:
    with outlast.blocking.connect(url) as face:
        followed, dropped = face.session("s").follow(), face.session("s").follow()
        assert isinstance(next(followed), CaughtUp)
        assert isinstance(next(dropped), CaughtUp)
    with pytest.raises(UsageError, match="within its `with` block"):
        next(followed)
    del followed, dropped
    gc.collect()  # a finaliser that fails is a warning, and so an error


def test_an_iterator_that_is_dropped_ends_what_is_behind_it(url: str) -> None:
    with outlast.blocking.connect(url) as face:
        session = face.session("s")
        for _ in range(3):
            followed = session.follow()
            assert isinstance(next(followed), CaughtUp)
            del followed
            gc.collect()
        assert isinstance(next(session.follow()), CaughtUp)


def test_outside_of_its_block_nothing_is_begun(url: str) -> None:
    before = threading.active_count()
    face = outlast.blocking.connect(url)
    with pytest.raises(UsageError, match=r"with outlast\.blocking\.connect"):
        face.session("s")
    with pytest.raises(UsageError, match=r"with outlast\.blocking\.runtime"):
        outlast.blocking.runtime(url).own("s")
    with face:
        session = face.session("s")
        assert threading.active_count() > before
        with pytest.raises(UsageError, match="open already"), face:
            pass
    assert threading.active_count() == before
    with pytest.raises(UsageError, match="within its `with` block"):
        session.view()
    with face:  # a second time
        assert isinstance(next(face.session("s").follow()), CaughtUp)


def test_a_store_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(UsageError), outlast.blocking.connect("nowhere:"):
        pass
    assert threading.active_count() == before


def test_ctrl_c_ends_the_waiting_and_the_handles_stay_usable(url: str) -> None:
    with outlast.blocking.connect(url) as face:
        session = face.session("s")
        for _ in range(10):
            with pytest.raises(KeyboardInterrupt):
                follow_and_interrupt(session)
        assert isinstance(next(session.follow()), CaughtUp)


def follow_and_interrupt(session: outlast.blocking.Session) -> None:
    """Follow, and be interrupted (Ctrl-C) once there is nothing more to see."""
    interrupting = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
    for item in session.follow():
        assert isinstance(item, CaughtUp)
        interrupting.start()


def test_leaving_the_block_ends_what_another_thread_waits_for(url: str) -> None:
    caught_up = threading.Event()
    told: list[BaseException] = []

    def wait_for_more(session: outlast.blocking.Session) -> None:
        try:
            for _ in session.follow():
                caught_up.set()
        except UsageError as error:
            told.append(error)

    with outlast.blocking.connect(url) as face:
        thread = threading.Thread(target=wait_for_more, args=(face.session("s"),))
        thread.start()
        assert caught_up.wait(DEADLINE)
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert len(told) == 1


def test_the_loops_own_thread_is_refused_instead_of_waiting_for_itself() -> None:
    from outlast.portal import Portal

    portal = Portal()

    async def nothing() -> None:
        """Never begun."""

    async def inside() -> None:
        portal.run(nothing())

    with pytest.raises(UsageError, match="would wait for itself"):
        portal.run(inside())
    portal.stop()


def test_a_forked_child_is_refused(url: str) -> None:
    with outlast.blocking.connect(url) as face, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside a thread is what is tried here
        session = face.session("s")
        child = os.fork()
        if child == 0:
            code = 1
            with suppress(BaseException):
                try:
                    session.view()
                except ForkedError:
                    code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
