"""The launch protocol, all interleavings: lock, floor, two-step START, three owners.

Each owner looks, raises the floor, fences or attaches, starts a shim, attaches, sends START; it may stop
between any two steps for as long as it likes (another's steps come in between), and may crash. Shims time
out while idle, crash, and are crashed under a running agent, which then lives until the guard has ended it.
Guards are killed too: then whoever wants the folder ends what carries the marker. The rules are those of
`outlast.keep.shim`, `desk` and `folder`; the real processes are tested in tests/crash/keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

MOST_SHIMS = 3
TWO_AGENTS, STALE_START = "two agents", "a START ran after a later owner had come"


class Owner(NamedTuple):
    epoch: int
    step: str = "look"
    shim: int = -1


class Shim(NamedTuple):
    epoch: int
    phase: str = "new"
    owner: int = -1
    agent: bool = False
    """An agent process of this shim lives."""
    guard: bool = True


class World(NamedTuple):
    owners: tuple[Owner, ...]
    shims: tuple[Shim, ...] = ()
    lock: int = -1
    floor: int = 0
    highest: int = 0
    """The highest epoch that has raised the floor or attached."""
    stale_start: bool = False

    def owner(self, index: int, **change: Any) -> World:
        owners = list(self.owners)
        owners[index] = owners[index]._replace(**change)
        return self._replace(owners=tuple(owners))

    def shim(self, index: int, **change: Any) -> World:
        shims = list(self.shims)
        shims[index] = shims[index]._replace(**change)
        return self._replace(shims=tuple(shims))

    def release(self, index: int, phase: str) -> World:
        world = self.shim(index, phase=phase, owner=-1)
        return world._replace(lock=-1) if world.lock == index else world


class Rules(NamedTuple):
    lock: bool = True
    floor: bool = True
    tree_dead: bool = True
    marker: bool = True
    """What guard and shim have left behind is looked for, not taken for dead with them."""


def owner_steps(world: World, me: int, rules: Rules) -> Iterator[World]:
    owner = world.owners[me]
    if owner.step in ("done", "lost", "crashed"):
        return
    cut = world
    for index, shim in enumerate(world.shims):
        if shim.owner == me:
            cut = cut.shim(index, owner=-1)
    yield cut.owner(me, step="crashed")
    if owner.step == "look":
        yield from look(world, me, rules)
    elif owner.step == "floor":
        yield raise_floor(world, me, rules)
    elif owner.step == "spawn" and len(world.shims) < MOST_SHIMS:
        spawned = world._replace(shims=(*world.shims, Shim(owner.epoch)))
        yield spawned.owner(me, step="wait", shim=len(world.shims))
    elif owner.step == "wait":
        phase = world.shims[owner.shim].phase
        if phase not in ("new", "locked"):
            yield world.owner(me, step="attach" if phase in ("idle", "running") else "look")
    elif owner.step == "attach":
        yield attach(world, me, rules)
    elif owner.step == "start":
        yield start(world, me, rules)


def raise_floor(world: World, me: int, rules: Rules) -> World:
    epoch = world.owners[me].epoch
    if world.lock != -1 and rules.lock:
        return world.owner(me, step="look")
    if rules.floor and epoch < world.floor:
        return world.owner(me, step="lost")
    raised = world._replace(floor=max(world.floor, epoch), highest=max(world.highest, epoch))
    return raised.owner(me, step="spawn")


def look(world: World, me: int, rules: Rules) -> Iterator[World]:
    if world.lock == -1 or not rules.lock:
        yield world.owner(me, step="floor")
    if world.lock != -1 and world.shims[world.lock].phase in ("idle", "running"):
        yield world.owner(me, step="attach", shim=world.lock)
        yield fence(world, me, rules)
    for index, shim in enumerate(world.shims):
        if shim.phase == "crashed" and shim.agent and not shim.guard and world.lock == -1:
            yield world.shim(index, agent=False)


def fence(world: World, me: int, rules: Rules) -> World:
    """Raise the living shim's floor and cut off the owner of a lower epoch, without attaching."""
    epoch = world.owners[me].epoch
    if not rules.floor:
        return world
    if epoch < world.floor:
        return world.owner(me, step="lost")
    world = world._replace(floor=epoch, highest=epoch)
    owner = world.shims[world.lock].owner
    below = owner != -1 and world.owners[owner].epoch < epoch
    return world.shim(world.lock, owner=-1) if below else world


def attach(world: World, me: int, rules: Rules) -> World:
    owner = world.owners[me]
    shim = world.shims[owner.shim]
    if shim.phase not in ("idle", "running"):
        return world.owner(me, step="look")
    if rules.floor and owner.epoch < world.floor:
        return world.owner(me, step="lost")
    world = world._replace(floor=max(world.floor, owner.epoch), highest=max(world.highest, owner.epoch))
    world = world.shim(owner.shim, owner=me)
    return world.owner(me, step="start" if shim.phase == "idle" else "done")


def start(world: World, me: int, rules: Rules) -> World:
    owner = world.owners[me]
    shim = world.shims[owner.shim]
    if shim.phase not in ("idle", "running"):
        return world.owner(me, step="look")
    if shim.owner != me or (rules.floor and owner.epoch < world.floor):
        return world.owner(me, step="lost")
    if shim.phase != "idle":
        return world.owner(me, step="done")
    if not shim.guard:
        # It ends: nobody would end what the agent leaves behind.
        return world.release(owner.shim, "gone").owner(me, step="look")
    world = world._replace(stale_start=world.stale_start or owner.epoch < world.highest)
    return world.shim(owner.shim, phase="running", agent=True).owner(me, step="done")


def shim_steps(world: World, index: int, rules: Rules) -> Iterator[World]:
    shim = world.shims[index]
    if shim.guard and shim.phase in ("idle", "running", "crashed"):
        yield world.shim(index, guard=False)
    if shim.phase == "new":
        yield world.shim(index, phase="gone")
        if world.lock == -1 or not rules.lock:
            yield world.shim(index, phase="locked")._replace(lock=index)
    elif shim.phase == "locked":
        yield world.release(index, "gone")
        below = rules.floor and shim.epoch < world.floor
        alive = rules.tree_dead and any(seen_alive(other, rules) for other in world.shims)
        if not below and not alive:
            yield world.shim(index, phase="idle")
    elif shim.phase == "idle":
        # The start deadline, or a crash: the lock goes either way.
        yield world.release(index, "gone")
    elif shim.phase == "running":
        yield world.release(index, "gone").shim(index, agent=False)
        yield world.release(index, "crashed")
    elif shim.phase == "crashed" and shim.agent and shim.guard:
        # The guard has ended what the shim left.
        yield world.shim(index, agent=False)


def seen_alive(shim: Shim, rules: Rules) -> bool:
    return shim.agent and (rules.marker or shim.guard or shim.phase == "running")


def bare(world: World) -> World:
    """Without what no step asks for any more: worlds that differ in nothing else are one."""
    shims = tuple(
        Shim(0, "gone") if shim.phase in ("gone", "crashed") and not shim.agent else shim
        for shim in world.shims
    )
    owners = tuple(
        owner if owner.step in ("wait", "attach", "start") else owner._replace(shim=-1)
        for owner in world.owners
    )
    return world._replace(shims=shims, owners=owners)


def explore(rules: Rules) -> tuple[int, set[str], int]:
    """Number of states, the faults found, and in how many states an agent ran."""
    first = World(owners=(Owner(1), Owner(2), Owner(3)))
    seen, waiting, running = {first}, [first], 0
    faults: set[str] = set()
    while waiting:
        world = waiting.pop()
        agents = sum(shim.agent for shim in world.shims)
        running += agents > 0
        if agents > 1:
            faults.add(TWO_AGENTS)
        if world.stale_start:
            faults.add(STALE_START)
        if faults and rules != Rules():
            break
        following = [step for me in range(3) for step in owner_steps(world, me, rules)]
        following += [step for index in range(len(world.shims)) for step in shim_steps(world, index, rules)]
        for step in map(bare, reversed(following)):
            if step not in seen:
                seen.add(step)
                waiting.append(step)
    return len(seen), faults, running


def test_one_agent_and_never_two_in_any_interleaving_of_three_owners() -> None:
    states, faults, running = explore(Rules())
    assert faults == set()
    assert states > 10_000
    assert running > 1_000


@pytest.mark.parametrize(
    ("rules", "fault"),
    [
        (Rules(floor=False), STALE_START),
        (Rules(tree_dead=False), TWO_AGENTS),
        (Rules(lock=False), TWO_AGENTS),
        (Rules(marker=False), TWO_AGENTS),
    ],
    ids=["no floor", "no proof of death", "no lock", "no marker"],
)
def test_without_one_of_its_rules_the_model_finds_the_fault(rules: Rules, fault: str) -> None:
    assert fault in explore(rules)[1]
