"""What `outlast doctor` finds: each with the command that mends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from outlast.config import Config
from outlast.store.sqlite.layout import Layout

Level = Literal["ok", "note", "warning", "fault"]


class Finding(msgspec.Struct, frozen=True):
    """One line of the doctor. A `fault` makes it exit 1; a `warning` is for you to judge."""

    check: str
    level: Level
    message: str
    remedy: str | None = None
    """The command, or the step, that mends it."""
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Patient:
    """What the doctor looks at."""

    config: Config
    layout: Layout
    environ: Mapping[str, str]
