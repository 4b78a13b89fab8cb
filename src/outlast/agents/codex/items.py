"""Thread items of codex as events: pure, one item at a time."""

from __future__ import annotations

import msgspec

from outlast.agents.codex.wire import Item
from outlast.agents.contract import AgentEvent, Message, ToolCall
from outlast.agents.shapes import decode, plain
from outlast.agents.turnwise import bounded

CALLS = frozenset(
    {
        "commandExecution",
        "fileChange",
        "mcpToolCall",
        "dynamicToolCall",
        "collabAgentToolCall",
        "webSearch",
        "imageGeneration",
    }
)
"""Item types that are tool calls."""

_FAILED = frozenset({"failed", "declined", "errored", "interrupted"})


def started(item: Item) -> list[AgentEvent]:
    """The events of `item/started`."""
    if item.type not in CALLS:
        return []
    return [ToolCall(item.id, call_name(item), "started", input=call_input(item))]


def completed(item: Item) -> list[AgentEvent]:
    """The events of `item/completed`."""
    if item.type in CALLS:
        status: str = "failed" if item.status in _FAILED else "completed"
        return [
            ToolCall(
                item.id,
                call_name(item),
                "failed" if status == "failed" else "completed",
                input=call_input(item),
                output=call_output(item),
            )
        ]
    role_text = _message(item)
    return [role_text] if role_text is not None and role_text.text else []


def _message(item: Item) -> Message | None:
    if item.type == "agentMessage":
        return Message("assistant", item.text)
    if item.type == "plan":
        return Message("plan", item.text)
    if item.type == "reasoning":
        return Message("thought", _reasoning(item))
    return None


def _reasoning(item: Item) -> str:
    summary = (item.summary,) if isinstance(item.summary, str) else item.summary
    content = decode(item.content, tuple[str, ...]) or ()
    return "\n\n".join(summary or content)


def call_name(item: Item) -> str:
    """What people call the tool."""
    if item.type == "mcpToolCall":
        return f"{item.server}.{item.tool}"
    if item.type in ("dynamicToolCall", "collabAgentToolCall"):
        return item.tool or item.type
    return {"commandExecution": "command", "fileChange": "edit", "webSearch": "web search"}.get(
        item.type, item.type
    )


def call_input(item: Item) -> str:
    """What the call was asked to do."""
    if item.type == "commandExecution":
        text = item.command
    elif item.type == "fileChange":
        text = "\n".join(
            f"{_change_kind(change.kind)} {change.path}\n{change.diff}" for change in item.changes
        )
    elif item.type == "webSearch":
        text = item.query
    else:
        text = plain(item.arguments)
    return bounded(text)


def call_output(item: Item) -> str:
    """What came of the call."""
    if item.type == "commandExecution":
        text = item.aggregated_output or ""
        if item.exit_code:
            text += f"\n[exit status {item.exit_code}]"
        return bounded(text)
    return bounded(plain(item.error) or plain(item.result))


class _ChangeKind(msgspec.Struct, frozen=True):
    type: str = ""


def _change_kind(kind: msgspec.Raw) -> str:
    decoded = decode(kind, _ChangeKind)
    return decoded.type if decoded is not None and decoded.type else "change"
