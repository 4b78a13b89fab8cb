"""What a caller in Python hands over that is of the wrong kind, or empty where something was meant, is
refused as what it is, before anything is stored or done."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.agents import Command
from outlast.errors import InputError, UsageError
from outlast.runtime.arguments import number

SURROGATE = "\ud800"


@pytest.fixture
async def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[outlast.Runtime]:
    """Session `s` is there, owned by nobody, and has one input."""
    monkeypatch.setenv("OUTLAST_STATE_DIR", str(tmp_path))
    async with outlast.Runtime("memory://", agents={"a": Command(["a"])}) as runtime:
        monkeypatch.setattr(runtime, "serve", lambda _: None)
        await runtime.session("s").send("hi", agent="a")
        yield runtime


Call = Callable[[outlast.Session, Any], Awaitable[object]]
TEXTS: dict[str, Call] = {
    "key": lambda s, it: s.send("x", key=it),
    "agent": lambda s, it: s.send("x", agent=it),
    "actor": lambda s, it: s.send("x", actor=it),
    "actor of a command": lambda s, it: s.close(actor=it),
    "cancelled turn": lambda s, it: s.cancel(it),
    "killed turn": lambda s, it: s.kill(it),
    "retried turn": lambda s, it: s.retry(it),
    "skipped turn": lambda s, it: s.skip(it),
    "awaited turn": lambda s, it: s.outcome(it),
    "who answers": lambda s, it: s.answer("g", "c", by=it),
    "effect": lambda s, it: s.settle(it, done=True),
    "turn of an effect": lambda s, it: s.settle("e", done=True, turn=it),
}
MAY_BE_EMPTY: dict[str, Call] = {
    "title": lambda s, it: s.send("x", title=it),
    "gate": lambda s, it: s.answer(it, "c"),
    "choice": lambda s, it: s.answer("g", it),
    "label's value": lambda s, it: s.send("x", labels={"k": it}),
}


@pytest.mark.parametrize("name", [*TEXTS, *MAY_BE_EMPTY])
async def test_what_is_no_text_is_refused_by_its_name(runtime: outlast.Runtime, name: str) -> None:
    """Of a session that is there as well, which needs no title or labels."""
    call = {**TEXTS, **MAY_BE_EMPTY}[name]
    for session in (runtime.session("s"), runtime.session("new")):
        for wrong in (7, b"x", ["a"], object()):
            with pytest.raises(UsageError, match="has to be text, and is of type"):
                await call(session, wrong)
        with pytest.raises((InputError, UsageError), match=r"surrogate|control character"):
            await call(session, SURROGATE)
    assert [entry.kind for entry in await runtime.store.pending("s")] == ["input"]
    assert await runtime.store.entry("new") is None


@pytest.mark.parametrize("name", TEXTS)
async def test_what_is_empty_is_not_taken_for_what_is_left_out(runtime: outlast.Runtime, name: str) -> None:
    """A variable that was never filled would cancel whatever runs."""
    with pytest.raises(UsageError, match="is empty"):
        await TEXTS[name](runtime.session("s"), "")
    assert [entry.kind for entry in await runtime.store.pending("s")] == ["input"]


@pytest.mark.parametrize(
    "content",
    [5, None, b"x", bytearray(b"x"), ["x"], [b"x"], {"text": "x"}, [outlast.Content(text=5)], object()],  # type: ignore[arg-type]
)
async def test_what_is_no_input_is_refused(runtime: outlast.Runtime, content: Any) -> None:
    for session in (runtime.session("s"), runtime.session("new")):
        with pytest.raises(UsageError, match="has to be"):
            await session.send(content, agent="a")
    assert len(await runtime.store.pending("s")) == 1


@pytest.mark.parametrize("labels", [[], "ab", {5: "x"}, [("a", "b")]])
async def test_labels_that_are_none_are_refused(runtime: outlast.Runtime, labels: Any) -> None:
    for session in (runtime.session("s"), runtime.session("new")):
        with pytest.raises(UsageError, match="has to be"):
            await session.send("x", agent="a", labels=labels)


async def done(ask: Callable[[], object]) -> None:
    work = ask()
    if asyncio.iscoroutine(work):
        await work


@pytest.mark.parametrize("name", [5, b"s", "", ["s"], SURROGATE, Path("s")])
async def test_what_is_no_session_id_begins_and_names_no_session(runtime: outlast.Runtime, name: Any) -> None:
    client = outlast.connect("memory://")
    asked: list[Callable[[], object]] = [
        lambda: runtime.session(name),
        lambda: client.session(name),
        lambda: runtime.restore(name),
        lambda: runtime.own(name),
        lambda: runtime.visit(name),
        lambda: runtime.plan_restore(name),
    ]
    for ask in asked:
        with pytest.raises(UsageError, match="session id"):
            await done(ask)


@pytest.mark.parametrize("workspace", ["", 5, b"/w", ["/w"]])
async def test_what_is_no_folder_is_not_taken_for_the_current_one(
    runtime: outlast.Runtime, workspace: Any
) -> None:
    for backing in (runtime, outlast.connect("memory://")):
        with pytest.raises(UsageError, match="workspace"):
            backing.session("s", workspace=workspace)


@pytest.mark.parametrize(
    "wrong",
    [{"url": ""}, {"url": 5}, {"label": ""}, {"label": 5}],
)
def test_an_address_or_label_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    for make in (outlast.Runtime, outlast.connect):
        with pytest.raises(UsageError, match=r"address of the store|label"):
            make(**wrong)


@pytest.mark.parametrize(
    "agents", [["a"], {5: Command(["a"])}, {"": Command(["a"])}, {"a": ["python3"]}, "a"]
)
def test_agents_that_are_none_are_refused(agents: Any) -> None:
    with pytest.raises(UsageError, match="agent"):
        outlast.Runtime("memory://", agents=agents)


@pytest.mark.parametrize("wrong", ["1", None, True, float("nan"), -1, b"1"])
async def test_what_is_no_number_is_refused(runtime: outlast.Runtime, wrong: Any) -> None:
    with pytest.raises(UsageError, match="wait"):
        await runtime.restore("s", wait=wrong)
    if wrong is not None:
        with pytest.raises(UsageError, match="place in the journal"):
            await anext(runtime.session("s").follow(wrong))
    assert number(0.5, "wait") == 0.5
    assert number(float("inf"), "wait") == float("inf")


async def test_text_of_a_type_of_the_callers_own_is_text(runtime: outlast.Runtime) -> None:
    class Name(enum.StrEnum):
        CHAT = "chat"

    turn = await runtime.session(Name.CHAT).send(
        Name.CHAT, agent=Name("chat").replace("chat", "a"), key=Name.CHAT
    )
    assert (turn.session.id, turn.id) == ("chat", "chat")
    assert type(turn.id) is str


def test_an_image_is_made_of_a_path_or_of_bytes() -> None:
    for wrong in (5, ["a.png"], None):
        with pytest.raises(UsageError, match="from a path or from bytes"):
            outlast.image(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="its name is text"):
        outlast.image(b"", name=5)  # type: ignore[arg-type]
