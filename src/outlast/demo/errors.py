"""What can go wrong with the demo itself, as against what it counts."""

from __future__ import annotations

from outlast.errors import OutlastError


class DemoError(OutlastError):
    """Something that the demo waited for did not happen, or a process of its own died too early."""
