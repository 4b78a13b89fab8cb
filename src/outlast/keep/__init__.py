"""Agents that outlive their runtime: guard, shim, spool, and the owner's side of them.

An owner looks (`probe`), raises the floor (`raise_floor`, or `ShimClient.fence` to a living shim), starts
(`start_idle`, `ShimClient.connect`, `attach`, `start`) or attaches, feeds (`input`), follows (`wait_tip`,
`SpoolReader`), and detaches or ends (`kill`). Everything that an agent said and was told is in the spool,
in one order, for the living and for the dead.
"""

from __future__ import annotations

from outlast.keep.client import ShimClient
from outlast.keep.dead import Alive, Unknown, Verified, kill_marked, tree_dead
from outlast.keep.errors import (
    AttachRefusedError,
    BelowFloorError,
    CopiedFolderError,
    FolderLockHeldError,
    ForeignFolderError,
    InputRefusedError,
    KeepError,
    LaunchFailedError,
    NoRoomError,
    RequestRefusedError,
    ShimBusyError,
    ShimGoneError,
    ShimSilentError,
    ShimStoppedError,
    SpoolCorruptError,
    SpoolGapError,
    StartFailedError,
    TreeNotDeadError,
)
from outlast.keep.exchange import Accepted, Attached, LaunchRequest, ShimStatus, Started
from outlast.keep.facts import (
    FolderFacts,
    GenerationFacts,
    InputSeen,
    Landing,
    landing,
    never_read,
    probe,
)
from outlast.keep.folder import AgentFolder, Claim, Generation, raise_floor
from outlast.keep.link import Lost
from outlast.keep.reader import SpoolFrame, SpoolReader
from outlast.keep.records import ExitRecord
from outlast.keep.standstill import stopped, terminate, wake
from outlast.keep.start import start_idle
from outlast.keep.strays import Stray, strays

__all__ = [
    "Accepted",
    "AgentFolder",
    "Alive",
    "AttachRefusedError",
    "Attached",
    "BelowFloorError",
    "Claim",
    "CopiedFolderError",
    "ExitRecord",
    "FolderFacts",
    "FolderLockHeldError",
    "ForeignFolderError",
    "Generation",
    "GenerationFacts",
    "InputRefusedError",
    "InputSeen",
    "KeepError",
    "Landing",
    "LaunchFailedError",
    "LaunchRequest",
    "Lost",
    "NoRoomError",
    "RequestRefusedError",
    "ShimBusyError",
    "ShimClient",
    "ShimGoneError",
    "ShimSilentError",
    "ShimStatus",
    "ShimStoppedError",
    "SpoolCorruptError",
    "SpoolFrame",
    "SpoolGapError",
    "SpoolReader",
    "StartFailedError",
    "Started",
    "Stray",
    "TreeNotDeadError",
    "Unknown",
    "Verified",
    "kill_marked",
    "landing",
    "never_read",
    "probe",
    "raise_floor",
    "start_idle",
    "stopped",
    "strays",
    "terminate",
    "tree_dead",
    "wake",
]
