"""What an agent's own transcript tells: evidence for a restore, never the truth of a session."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable


def open_regular(path: Path) -> BinaryIO:
    """The file, to be read. Raises OSError, also for what is no regular file: to open a pipe or a device may
    take for ever."""
    if stat.S_ISREG(path.stat().st_mode):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return os.fdopen(file, "rb")
        os.close(file)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript as it was found on disk."""

    path: Path
    keys: frozenset[str]
    """Message keys of the prompts that it holds."""
    loose: bool = False
    """It ends with a prompt whose key is not in it yet, so that a key that is missing proves nothing."""
    damage: str = ""
    """What of it is lost or not what it should be, as a part of a sentence; empty where nothing is."""
    taken_back: frozenset[str] = frozenset()
    """Those of the keys whose prompts the program goes on from no more."""

    def lacks(self, key: str) -> bool:
        """Whether it proves that the agent never stored the prompt with this key."""
        return not self.damage and not self.loose and key not in self.keys

    def holds(self, key: str) -> bool | None:
        """Whether the program goes on from the prompt with this key; None where that can't be told."""
        if key in self.keys:
            return key not in self.taken_back
        return False if self.lacks(key) else None


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """A prompt that was, or may have been, given in one of the first `attempts` attempts of its turn."""

    request_id: str
    attempts: int


@runtime_checkable
class ReadsTranscript(Protocol):
    """An adapter whose program's transcript can be read, and bears the request ids of the prompts."""

    def read_transcript(self, provider_session: str, environ: Mapping[str, str]) -> Transcript | None:
        """The transcript, None where there is none or it can't be read. `environ` is the runtime's
        environment. Reads the whole file: not for an event loop."""
        ...


@runtime_checkable
class HoldsPrompts(Protocol):
    """An adapter that can look whether its program's transcript holds a prompt: what the program goes on
    from, whatever the journal knows of it."""

    def holds_prompt(
        self, prompt: SentPrompt, provider_session: str, workspace: str, environ: Mapping[str, str]
    ) -> bool | None:
        """None where that can't be told. Reads the whole file: not for an event loop. Raises OSError."""
        ...


@runtime_checkable
class DropsCalls(Protocol):
    """An adapter whose program writes its transcript after the fact: a call that had started when it was cut
    off may stand nowhere in it, and then no model is told of the call."""

    def unmentioned_calls(
        self, calls: Sequence[str], provider_session: str, workspace: str, environ: Mapping[str, str]
    ) -> frozenset[str]:
        """Of these ids of calls those that the session's transcript does not mention; all where there is no
        transcript. Reads the whole file: not for an event loop. Raises OSError."""
        ...
