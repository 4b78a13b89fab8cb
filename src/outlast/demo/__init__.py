"""`outlast demo`: kills an agent and its runtime in mid turn, restores them, and counts what came of it.

Real processes in a throw-away folder; nothing of the user's own sessions is touched.
"""

from __future__ import annotations

from outlast.demo.performance import main

__all__ = ["main"]
