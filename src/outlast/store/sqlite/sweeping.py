"""What dead processes leave behind that owned nothing: their rows and the files of their locks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from outlast.store.sqlite.incarnation import Node, alive, is_own, lock_owner
from outlast.store.sqlite.transaction import Transaction

MOST = 16
"""Looked at in one go: each new owner clears more than one process leaves."""

# Any of them, or a few of the living would hide the dead for ever.
SELECT_IDLE_NODES = (
    "SELECT id, pid, start_ticks, boot_id, pid_ns, label FROM node"
    " WHERE NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id) ORDER BY random() LIMIT ?"
)


def sweep(txn: Transaction) -> None:
    """Take a few dead incarnations without leases out of the store; their files go after the commit. Whoever
    still has a lease stays: its sessions' next owner finds it."""
    found: list[tuple[Any, ...]] = txn.cursor.execute(SELECT_IDLE_NODES, (MOST,)).fetchall()
    dead = [node.id for node in (Node(*row) for row in found) if not alive(txn.nodes, node)]
    for node in dead:
        txn.cursor.execute("DELETE FROM node WHERE id = ?", (node,))
    txn.effects.dead += dead + _without_row(txn)


def _without_row(txn: Transaction) -> list[str]:
    """Files of processes that died before the store knew them, or while they left it."""
    try:
        with os.scandir(txn.nodes) as entries:
            # Before its name is written a file is not locked yet.
            names = [entry.name for entry in entries if entry.stat(follow_symlinks=False).st_size]
    except OSError:
        return []
    stray = [name for name in names if txn.one("SELECT 1 FROM node WHERE id = ?", (name,)) is None]
    # A free lock is free for ever: its process cannot come to be known any more.
    return [name for name in stray[:MOST] if not is_own(name) and _is_free(txn.nodes / name)]


def _is_free(path: Path) -> bool:
    try:
        return lock_owner(path) is None
    except OSError:
        return False
