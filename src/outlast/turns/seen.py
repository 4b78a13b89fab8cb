"""The spool's frames in the words of the agent contract (pure)."""

from __future__ import annotations

from outlast.agents.contract import ExitInfo
from outlast.keep import ExitRecord, SpoolFrame
from outlast.keep.frames import FILE_LIMIT
from outlast.keep.reader import Exit, InputLine, KillBegun, OutputChunk, StdinClosed
from outlast.turns.intake import ExitSeen, InputSeen, KillSeen, OutputSeen, Seen, StdinClosedSeen


def seen_in(frame: SpoolFrame) -> Seen | None:
    """What an adapter folds of a frame; None for one that concerns the owner of the shim only."""
    match frame:
        case OutputChunk():
            return OutputSeen(frame.data, frame.stdout, frame.eof)
        case InputLine():
            return InputSeen(frame.line, frame.seq)
        case StdinClosed() if not frame.by_agent:
            return StdinClosedSeen(frame.seq)
        case KillBegun():
            return KillSeen()
        case Exit():
            return ExitSeen(exit_info(frame.record))
        case _:
            return None


def exit_info(record: ExitRecord) -> ExitInfo:
    """The exit in the words of the agent contract."""
    return ExitInfo(
        status=record.exit_status,
        signal=record.signal,
        oom=record.oom,
        killed=bool(record.killed),
        limited=record.killed == FILE_LIMIT,
        verified=record.verified,
        last_input=record.last_input,
        read_input=record.read_input,
    )
