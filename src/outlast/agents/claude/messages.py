"""Messages of Claude Code as events: pure, one frame at a time."""

from __future__ import annotations

import msgspec

from outlast.agents.claude.state import State
from outlast.agents.claude.wire import Block, Frame
from outlast.agents.claude.wire import Message as WireMessage
from outlast.agents.contract import AgentEvent, Message, ToolCall
from outlast.agents.shapes import decode, plain
from outlast.agents.turnwise import bounded

_OPEN_LIMIT = 1_000
"""Calls that are followed at a time: what bounds the state."""


def said(state: State, frame: Frame) -> list[AgentEvent] | None:
    """What the model said, block by block. None: the frame has another shape than the one known.

    Of a subagent only its calls count: they do something, and what it says is for the agent alone."""
    message = decode(frame.message, WireMessage)
    if message is None:
        return None
    events: list[AgentEvent] = []
    inner = frame.parent_tool_use_id is not None
    for block in message.content:
        if block.type == "tool_use":
            events.append(_call(state, block))
        elif block.type == "text" and not inner:
            state.partial = ""
            if block.text:
                events.append(Message("assistant", block.text, cut=frame.aborted))
        elif block.type == "thinking" and not inner and block.thinking:
            events.append(Message("thought", block.thinking))
    return events


def _call(state: State, block: Block) -> ToolCall:
    if block.id in state.calls or len(state.calls) < _OPEN_LIMIT:
        state.calls[block.id] = block.name
    return ToolCall(block.id, block.name, "started", input=bounded(plain(block.input)))


def told(state: State, frame: Frame) -> list[AgentEvent] | None:
    """What came of calls. None: the frame has another shape than the one known."""
    message = decode(frame.message, WireMessage)
    if message is None:
        return []  # A text of Claude Code's own.
    return [_outcome(state, block) for block in message.content if block.type == "tool_result"]


def _outcome(state: State, block: Block) -> ToolCall:
    name = state.calls.pop(block.tool_use_id, "")
    return ToolCall(
        block.tool_use_id,
        name,
        "failed" if block.is_error else "completed",
        output=bounded(_text(block.content)),
    )


def _text(content: msgspec.Raw) -> str:
    text = decode(content, str)
    if text is not None:
        return text
    blocks = decode(content, tuple[Block, ...])
    if blocks is None:
        return plain(content)
    return "\n".join(block.text if block.type == "text" else f"[{block.type}]" for block in blocks)
