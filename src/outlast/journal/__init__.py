"""The journal of one session: its single writer under a lease, its readers and followers."""

from outlast.journal.follow import CaughtUp, Follower, follow
from outlast.journal.loading import Loaded, Unfit, load, load_state
from outlast.journal.reader import read_record, read_records
from outlast.journal.writer import Journal, Proposal

__all__ = [
    "CaughtUp",
    "Follower",
    "Journal",
    "Loaded",
    "Proposal",
    "Unfit",
    "follow",
    "load",
    "load_state",
    "read_record",
    "read_records",
]
