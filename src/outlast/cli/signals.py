"""What a signal means to a command that follows a turn."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import FrameType


class Wish(Enum):
    """What the user wants by a signal."""

    CANCEL = "cancel"
    """Cancel the turn; the queue is held."""
    DETACH = "detach"
    """Leave. The agent goes on under its shim, but for a cancel that was asked for before."""
    GO_ON = "go on"
    """The terminal is gone; the work is not."""


@dataclass(slots=True)
class SignalPolicy:
    """Ctrl-C once cancels, again before the cancel is settled detaches; SIGTERM detaches; a hang-up is no
    reason to stop."""

    cancelling: bool = False
    cancels: bool = True
    """False where the work that is left is other people's: then Ctrl-C leaves it alone."""

    def wish(self, number: int) -> Wish:
        if number == signal.SIGHUP:
            return Wish.GO_ON
        if number == signal.SIGTERM or self.cancelling or not self.cancels:
            return Wish.DETACH
        self.cancelling = True
        return Wish.CANCEL

    def settle(self) -> None:
        """The cancel has had its effect, or came too late."""
        self.cancelling = False


class Signals:
    """What a command is told by signals from the moment on that it listens, for whoever obeys them then."""

    def __init__(self) -> None:
        self.policy = SignalPolicy()
        self.wishes: asyncio.Queue[Wish] = asyncio.Queue()
        self._listening = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen until the block is left; within such a block it changes nothing."""
        if self._listening:
            yield
            return
        self._listening = True
        try:
            with listening(lambda number: self.wishes.put_nowait(self.policy.wish(number))):
                yield
        finally:
            self._listening = False


HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def listening(handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler` in the running loop for each signal, until the block is left. SIGHUP stays ignored
    where the parent had it ignored (nohup), and means nothing from then on: a terminal that closes lets its
    readers know before it signals, and what is left to do on the way out is not to be cut off by that."""
    loop = asyncio.get_running_loop()
    inherited = {number: signal.getsignal(number) for number in HANDLED}
    taken = [number for number in HANDLED if inherited[number] is not signal.SIG_IGN]
    for number in taken:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
            signal.signal(number, _overheard if number == signal.SIGHUP else inherited[number])


def _overheard(number: int, frame: FrameType | None) -> None:
    """A handler and not SIG_IGN: programs that are started from here do not inherit it."""
