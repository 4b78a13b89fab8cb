"""Beginning a new agent life: what its adapter has to say, and room for it: whatever an earlier owner left in
the folder is ended first, verified."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

from outlast.agents.contract import Agent, Failure, Fold, LaunchContext, LaunchSpec
from outlast.clock import monotonic
from outlast.errors import AgentError
from outlast.faults import point
from outlast.keep import (
    AgentFolder,
    Alive,
    Claim,
    FolderLockHeldError,
    Generation,
    LaunchFailedError,
    ShimClient,
    ShimGoneError,
    ShimSilentError,
    StartFailedError,
    TreeNotDeadError,
    Verified,
    kill_marked,
    layout,
    raise_floor,
    start_idle,
    tree_dead,
    wake,
)
from outlast.state.model import Launched
from outlast.turns.hosting import Hosting, fold_context
from outlast.turns.patience import NO_SPACE
from outlast.turns.report import report

PATIENCE = 10.0
"""Seconds for an earlier shim, or its guard, to be gone after it was told to end."""
POLL = 0.02
KEPT = 2
"""Newest lives of an agent folder that are kept to be looked at."""
SWEPT = 50
"""Old ones that go at a time."""
_SWEPT_PREFIX = "old-"


class LaunchFailure(Exception):  # noqa: N818 - becomes a receipt
    """The agent could not be started."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def no_folder(path: str) -> LaunchFailure:
    """The agent has no folder to run in."""
    return LaunchFailure(
        Failure("workspace_missing", f"the workspace {path} is not there or cannot be entered")
    )


def not_executed(error: LaunchFailedError, spec: LaunchSpec) -> LaunchFailure:
    """The shim could not execute the agent's program."""
    if error.stage == "cwd":  # The folder may have gone since the adapter looked.
        return no_folder(spec.cwd)
    if error.stage == "exec":
        why = os.strerror(error.number)
        which = ": it, or what its first line names" if error.number == errno.ENOENT else ""
        message = f"{spec.argv[0]} cannot be executed: {why}{which}"
        return LaunchFailure(Failure("launch_failed", message))
    return LaunchFailure(Failure("launch_failed", str(error)))


def at_fault(agent: Agent, what: str, error: Exception) -> LaunchFailure:
    """An adapter failed where it should have told why. What it said goes to the program's log alone: it may
    hold anything."""
    report(f"the adapter {agent.adapter} {what}", error)
    return LaunchFailure(Failure("unknown", f"the adapter {agent.adapter} {what}: {type(error).__name__}"))


def first_fold(hosting: Hosting, agent: Agent, loop: str, launched: Launched) -> Fold:
    """The fold of a life that begins. Raises LaunchFailure."""
    try:
        return agent.fold(fold_context(hosting, loop, launched), None)
    except AgentError as error:
        raise LaunchFailure(Failure("launch_failed", str(error))) from error
    except Exception as error:
        raise at_fault(agent, "could not begin to read", error) from error


def prepared(hosting: Hosting, agent: Agent, loop: str, launched: Launched) -> LaunchSpec:
    """What to execute, as the adapter says, which looks at files for that. Raises LaunchFailure."""
    context = LaunchContext(
        session=hosting.session,
        loop=loop,
        workspace=hosting.workspace,
        environ=hosting.environ,
        provider_session=launched.provider_session,
        confirmed=launched.confirmed,
        given=launched.given,
    )
    if not Path(context.workspace).is_dir():
        raise no_folder(context.workspace)
    try:
        return agent.launch(context)
    except AgentError as error:
        raise LaunchFailure(Failure("launch_failed", str(error))) from error
    except Exception as error:
        raise at_fault(agent, "could not prepare the launch", error) from error


async def begin(folder: AgentFolder, claim: Claim) -> Generation:
    """Start an idle shim that holds the folder's lock.

    Raises LaunchFailure when what was there before cannot be ended or no shim can be started, OSError when
    there is no space for one, KeepError when a later owner has been here.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        try:
            return await start_idle(folder, claim)
        except StartFailedError as failed:
            if failed.number in NO_SPACE:
                raise OSError(failed.number, failed.message) from failed
            raise LaunchFailure(Failure("unknown", str(failed))) from failed
        except (FolderLockHeldError, TreeNotDeadError) as busy:
            if asyncio.get_running_loop().time() > deadline:
                message = f"an earlier agent could not be ended: {busy.message}"
                raise LaunchFailure(Failure("unknown", message)) from busy
            await end_earlier(folder, claim)


async def end_earlier(folder: AgentFolder, claim: Claim) -> None:
    """Tell what lives in the folder to end; whoever needs it gone looks again. Raises KeepError."""
    latest = folder.latest()
    if latest is None:
        await asyncio.sleep(POLL)
        return
    wake(latest)
    try:
        client = await ShimClient.connect(latest)
    except (ShimGoneError, ShimSilentError):
        await asyncio.to_thread(kill_marked, latest, seconds=1.0)
        await asyncio.sleep(POLL)
        return
    try:
        await client.attach(claim)
        await client.kill(0.0)
    except (ShimGoneError, ShimSilentError):
        await asyncio.sleep(POLL)
    finally:
        await client.close()


async def end_living(folder: AgentFolder, claim: Claim) -> None:
    """End whatever lives in the folder, verified, without an adapter. Raises KeepError where that takes far
    too long, or a later owner has been here."""
    if not folder.path.is_dir():
        return
    deadline = monotonic() + PATIENCE
    while True:
        try:
            raise_floor(folder, claim)  # under the folder's lock: no shim lives
        except FolderLockHeldError:
            if monotonic() > deadline:
                raise
            await end_earlier(folder, claim)
        else:
            break
        await asyncio.sleep(POLL)
    await end_orphans(folder)


async def end_orphans(folder: AgentFolder) -> None:
    """End what the newest life has left behind: its guard does it, also one that was stopped, and without
    guard and shim its marker finds it. Bounded."""
    latest = folder.latest()
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while latest is not None and isinstance(await asyncio.to_thread(tree_dead, latest), Alive):
        if asyncio.get_running_loop().time() > deadline:
            return
        wake(latest)
        await asyncio.to_thread(kill_marked, latest)
        await asyncio.sleep(POLL)


async def gone(generation: Generation) -> None:
    """Until the generation's shim has let its folder go (it ends right after its last word), or there is no
    folder any more."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while asyncio.get_running_loop().time() < deadline:
        try:
            with generation.folder.locked():
                return
        except FileNotFoundError:
            return
        except FolderLockHeldError:
            await asyncio.sleep(0.005)


def sweep(folder: AgentFolder, named: frozenset[str]) -> None:
    """Remove old lives from an agent folder: not the newest two, none that the journal has `named`, and none
    of which something may still live.

    A life is renamed before it is removed, so that none is ever found in part; what a crash has left of that
    goes with the next sweep.
    """
    names = sorted(entry.name for entry in folder.path.iterdir())
    numbers = [n for n in (layout.generation_number(name.encode()) for name in names) if n is not None]
    for number in sorted(numbers)[:-KEPT][:SWEPT]:
        generation = folder.generation(number)
        if generation.name not in named and isinstance(tree_dead(generation), Verified):
            point("turn.sweep.before_rename")
            generation.path.rename(folder.path / f"{_SWEPT_PREFIX}{generation.name}")
            names.append(f"{_SWEPT_PREFIX}{generation.name}")
            point("turn.sweep.renamed")
    for name in names:
        if name.startswith(_SWEPT_PREFIX):
            point("turn.sweep.before_remove")
            shutil.rmtree(folder.path / name)
            point("turn.sweep.removed")
