"""The journal of one session: its single writer under a lease, its readers and followers."""

from outlast.journal.follow import CaughtUp, Follower, follow
from outlast.journal.reader import load_state, read_records
from outlast.journal.writer import Journal, Proposal

__all__ = ["CaughtUp", "Follower", "Journal", "Proposal", "follow", "load_state", "read_records"]
