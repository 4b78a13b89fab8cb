"""Following an agent's spool: each frame is fed to the intake once, a bite of them at a time."""

from __future__ import annotations

from outlast.agents.contract import Notice
from outlast.clock import boottime
from outlast.keep import Generation, SpoolCorruptError, SpoolFrame, SpoolGapError, SpoolReader
from outlast.turns.intake import Intake, Located, Seen
from outlast.turns.report import report
from outlast.turns.seen import seen_in

BITE = 1 << 20
"""Bytes of spool that are folded before others get their turn."""
EVENTS = 500
"""Events after which they get it too; a frame's are not parted."""


class SpoolLost(Exception):  # noqa: N818 - becomes evidence
    """What an agent said cannot be read, or understood, from here on; what came before it has been."""


def at_fault(adapter: str, what: str, error: Exception) -> SpoolLost:
    """The adapter failed, as it will each time: its fold is pure."""
    report(f"the adapter {adapter} {what}", error)
    return SpoolLost(f"the adapter {adapter} {what} ({type(error).__name__})")


class Follower:
    """Where the reading of one generation is."""

    def __init__(self, generation: Generation, intake: Intake, adapter: str) -> None:
        self._intake = intake
        self._adapter = adapter
        self._reader = SpoolReader(generation, intake.started_at_frame)
        self._resume = intake.started_at_frame
        self._last_frame_at = boottime()
        self._lost: str | None = None

    @property
    def position(self) -> int:
        """Spool offset behind what has been read."""
        return self._reader.position

    def idle_seconds(self) -> float:
        """Since the agent's newest frame, but for those in which it says only that it waits. On the clock
        that the spool's times are of."""
        return (boottime() - self._last_frame_at) / 1e9

    def read(self) -> tuple[list[Located], bool]:
        """New events, one bite of them, and whether more may be there. Raises SpoolLost, now and ever after,
        once all that came before the damage has been given."""
        located: list[Located] = []
        if self._lost is None:
            try:
                if not self._read_bite(located):
                    return located, False
            except (SpoolGapError, SpoolCorruptError) as damage:
                self._lost = damage.message
            except FileNotFoundError:
                self._lost = "its spool is not there any more"
            except SpoolLost as lost:
                self._lost = str(lost)
        if located or self._lost is None:
            return located, True
        raise SpoolLost(self._lost)

    def _read_bite(self, located: list[Located]) -> bool:
        limit = self._reader.position + BITE
        for frame in self._reader.frames():
            self._fold(frame, located)
            if frame.end >= limit or len(located) >= EVENTS:
                return True
        return False

    def _fold(self, frame: SpoolFrame, located: list[Located]) -> None:
        begin, self._resume = self._resume, frame.resume
        seen, before = seen_in(frame), len(located)
        if seen is not None:
            self._feed(seen, (begin, frame.resume), located)
        said = located[before:]
        if not said or not all(isinstance(item.event, Notice) for item in said):
            self._last_frame_at = max(self._last_frame_at, frame.time)

    def _feed(self, seen: Seen, place: tuple[int, int], located: list[Located]) -> None:
        try:
            for item in self._intake.feed(seen, *place):
                located.append(item)  # noqa: PERF402 - what comes before a fault is kept
        except Exception as error:
            raise at_fault(self._adapter, "could not read what the agent said", error) from error
