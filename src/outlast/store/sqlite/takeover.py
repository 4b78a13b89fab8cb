"""Ending a living owner, verified, so that its sessions can be taken over."""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from pathlib import Path

from outlast.errors import LeaseHeldError, StoreError
from outlast.faults import point
from outlast.store.sqlite.incarnation import (
    Node,
    alive,
    is_own,
    is_same_process,
    lock_owner,
    parent_of,
)

_DEATH_SECONDS = 10.0


def end_holder(nodes: Path, name: str, epoch: int, node: Node) -> None:
    """SIGKILL the process of `node` and wait until its lock is free. Blocking, at most ten seconds. Returns
    at once if it is dead already. Raises LeaseHeldError if it must not be ended from here or no lock proves
    that it owns this store, StoreError if it does not die (a process in an uninterruptible call)."""
    pid = _proven(nodes, name, epoch, node)
    if pid is None:
        return
    _refuse_own_line(name, epoch, node, pid)
    # The handle is opened before the identity is verified again: from here on no other process can be meant.
    try:
        handle = _handle(pid)
    except ProcessLookupError:
        _await_free(nodes, node)
        return
    except OSError as error:
        why = f"this system gives no safe handle of process {pid}: {error.strerror}"
        raise _refused(name, epoch, node, why) from error
    try:
        if _proven(nodes, name, epoch, node) != pid:
            return
        if not is_same_process(node, pid):
            raise _refused(name, epoch, node, f"process {pid}, which holds its lock, is not the one it names")
        point("takeover.before_kill")
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        point("takeover.killed")
        _await_end(handle, node)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise _refused(name, epoch, node, f"this user may not end process {pid}") from error
    finally:
        os.close(handle)
    _await_free(nodes, node)


def _handle(pid: int) -> int:
    """A pidfd. Raises OSError, also where there is no such call (macOS, a kernel before 5.3, a sandbox)."""
    if not hasattr(os, "pidfd_open"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.pidfd_open(pid)


def _proven(nodes: Path, name: str, epoch: int, node: Node) -> int | None:
    """The process that holds the node's lock, None if it is dead, 0 if it is out of sight. Raises
    LeaseHeldError for one that lives and of whose lock the file is gone."""
    if is_own(node.id):
        return os.getpid()
    try:
        return lock_owner(nodes / node.id)
    except FileNotFoundError:
        if not alive(nodes, node):
            return None
        # A copy of the database alone looks the same: it names the owner of the original.
        why = (
            f"process {node.pid} lives, and the file whose lock would prove that it works with this store is"
            " gone, as in a copy of the database alone"
        )
        raise _refused(name, epoch, node, why) from None


def _refuse_own_line(name: str, epoch: int, node: Node, pid: int) -> None:
    """The process itself and those it descends from: an agent's tool must not end the owner of its agent."""
    if pid == 0:
        raise _refused(name, epoch, node, "it is not visible from this process namespace")
    ancestor = os.getpid()
    while ancestor > 1:
        if ancestor == pid:
            raise _refused(name, epoch, node, "it is this process or one that started it")
        ancestor = parent_of(ancestor)


def _refused(name: str, epoch: int, node: Node, why: str) -> LeaseHeldError:
    return LeaseHeldError(
        f"{name} is owned by {node.label} (epoch {epoch}) and cannot be taken over: {why}",
        holder=node.label,
        epoch=epoch,
        hint="end that process yourself if it is to go, then resume",
        session_id=name,
    )


def _await_end(handle: int, node: Node) -> None:
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    if not poller.poll(_DEATH_SECONDS * 1000):
        raise _immortal(node)


def _await_free(nodes: Path, node: Node) -> None:
    deadline = time.monotonic() + _DEATH_SECONDS
    while alive(nodes, node):
        if time.monotonic() > deadline:
            raise _immortal(node)
        time.sleep(0.005)


def _immortal(node: Node) -> StoreError:
    return StoreError(
        f"{node.label} did not end within {_DEATH_SECONDS:g} seconds of SIGKILL; nothing was taken over",
        hint="a process in an uninterruptible system call ends only when that call does",
    )
