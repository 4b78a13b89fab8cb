"""Where a spool ends without a whole frame: a write that never ended, or damage that hides what was there."""

from __future__ import annotations

from outlast.keep import frames, proc
from outlast.keep.fields import Fields, FieldsDamaged

_PAGE = 4096


def written_in_this_boot(segment: bytes) -> bool:
    """Whether the machine has been up since the segment, of which these are the first bytes, was begun: what
    was written then is all there, whatever was synced. True also where its head cannot be read."""
    try:
        found = frames.decode(segment)
        return found is None or Fields(found[0].payload).text("boot") == proc.boot_id()
    except (frames.FrameDamaged, FieldsDamaged):
        return True


def is_torn(rest: bytes, *, this_boot: bool) -> bool:
    """Whether `rest`, from the end of the last whole frame to the end of the segment, is a write that never
    ended. False: something in it was whole once, and is damaged.

    A write that was cut off is too short. Only a power cut leaves blocks of zeros in what was not synced.
    """
    if not this_boot and _lost_pages(rest):
        return True
    try:
        if frames.peek(rest, 0) is not None and frames.decode(rest) is not None:
            return False  # it is no tail at all
    except frames.FrameDamaged:
        return False
    return not (_is_whole_but_for_its_length(rest) or _holds_a_frame(rest))


def _lost_pages(rest: bytes) -> bool:
    """Whether it ends in zeros, or lacks a page in the middle."""
    return not rest.rstrip(b"\0")[frames.HEADER_SIZE :] or rest.endswith(b"\0") or bytes(_PAGE) in rest


def _is_whole_but_for_its_length(rest: bytes) -> bool:
    length = len(rest) - frames.HEADER_SIZE
    if not 0 <= length <= frames.MAX_PAYLOAD:
        return False
    try:
        return frames.decode(frames.with_length(rest, length)) is not None
    except frames.FrameDamaged:
        return False


def _holds_a_frame(rest: bytes) -> bool:
    at = rest.find(frames.MAGIC, 1)
    while at >= 0:
        try:
            if frames.decode(rest, at) is not None:
                return True
        except frames.FrameDamaged:
            pass
        at = rest.find(frames.MAGIC, at + 1)
    return False
