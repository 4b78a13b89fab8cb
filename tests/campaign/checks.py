"""What must hold of a told story, however often it was cut off: read from its journal, its inbox, its agents'
effects and the processes that are left."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.driver import Kill, Run
from tests.campaign.story import AROUND, INPUTS, RETRIED, SESSION
from tests.support.journals import Journal

from outlast.errors import OutlastError
from outlast.keep import AgentFolder, Unknown, Verified, tree_dead
from outlast.records import effects as e
from outlast.records import types as t
from outlast.runtime.client import Client
from outlast.state.catalog import catalog_entry
from outlast.state.invariants import violations
from outlast.store.contract import Entry, Tombstone
from outlast.store.url import sqlite_url

PATIENCE = 10.0
"""Seconds for what nobody can tell now to become clear."""


@dataclass(slots=True)
class Verdict:
    """Everything that is wrong, in words; nothing where all is well."""

    lost: list[str] = field(default_factory=list)
    """What was acknowledged and is nowhere."""
    doubled: list[str] = field(default_factory=list)
    """What happened twice and was asked for once."""
    broken: list[str] = field(default_factory=list)
    """Invariants, and what else must hold."""

    @property
    def wrong(self) -> list[str]:
        kinds = (("lost", self.lost), ("doubled", self.doubled), ("broken", self.broken))
        return [f"{kind}: {what}" for kind, found in kinds for what in found]


@dataclass(frozen=True, slots=True)
class Story:
    """What a told story left behind."""

    told: list[str]
    effects: list[str]
    """What the agents did outside."""
    outside: list[str]
    """What the effects around turns did."""
    journal: Journal
    pending: list[Entry]
    settled: dict[str, Tombstone | None]


def judge(run: Run) -> Verdict:
    """The verdict on one run."""
    verdict = Verdict()
    if run.trespassed:
        verdict.broken.append(run.trespassed)
    try:
        story = asyncio.run(_read(run.root))
    except OutlastError as error:
        verdict.broken.append(f"the journal cannot be read: {error}")
        return verdict
    _nothing_doubled(story, verdict)
    _no_effect_doubled(story, run.killed, verdict)
    verdict.broken += [str(violation) for violation in violations(story.journal.records)]
    if run.stuck:
        verdict.broken.append(f"the story was never told to its end: {run.stuck}")
        return verdict
    _nothing_lost(story, verdict)
    _order_and_ids(story, verdict)
    _one_session(story, verdict)
    _told_to_its_end(story, verdict)
    if all(is_the_owners(kill) for kill in run.schedule):
        _as_if_nothing_was(story, verdict)
    _nothing_lives(run.root, verdict)
    return verdict


def is_the_owners(kill: Kill) -> bool:
    """Whether this kill takes the owner alone, so that agents live on: then nothing may be different."""
    return kill.victims != "all" and not _in_the_shim(kill.point)


def _in_the_shim(point: str) -> bool:
    from tests.campaign.census import points_of_the_shim

    return point in points_of_the_shim()


async def _read(root: Path) -> Story:
    async with Client(sqlite_url(root / "state" / "outlast.db"), label="the campaign") as client:
        told = _lines(root / "told")
        journal = await Journal.read(client.store, SESSION)
        listed = await client.store.listed(SESSION)
        if listed is None or listed.entry != catalog_entry(journal.state):
            raise OutlastError("the list does not say what the journal says")
        return Story(
            told=list(dict.fromkeys(told)),
            effects=_lines(root / "effects"),
            outside=_lines(root / "outside"),
            journal=journal,
            pending=await client.store.pending(SESSION),
            settled={key: await client.store.settled(SESSION, key) for key in set(told)},
        )


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []


def _nothing_lost(story: Story, verdict: Verdict) -> None:
    """Each request that was acknowledged is settled, by a record that is there and names it; each turn that
    ended as done has had its effect."""
    records = {record.seq: record for record in story.journal.records}
    for key, tombstone in story.settled.items():
        record = records.get(tombstone.seq) if tombstone is not None else None
        if record is None:
            verdict.lost.append(f"request {key} was acknowledged and is not settled")
        elif key not in (record.cause, getattr(record.body, "request_id", None)):
            verdict.broken.append(f"request {key} is settled by record {record.seq}, of {record.cause}")
    verdict.lost += [f"request {entry.request_id} still waits" for entry in story.pending]
    accepted = {body.request_id for body in story.journal.bodies(t.InputAccepted)}
    cancelled = {body.request_id for body in story.journal.bodies(t.InputCancelled)}
    missing = [key for key in story.told if key in INPUTS and key not in accepted | cancelled]
    verdict.lost += [f"input {key} was never accepted" for key in missing]
    for turn in {record.turn for record in story.journal.of("TurnDone")}:
        attempt = story.journal.bodies(t.TurnAttemptStarted, turn)[-1].attempt
        if f"{turn} {attempt}" not in story.effects:
            verdict.lost.append(f"turn {turn} is done, and its effect is nowhere")
        owed = [f"{name} {SESSION}/{turn}/{attempt}/{name}" for name in AROUND]
        verdict.lost += [
            f"turn {turn} is done, and nothing outside says {line!r}"
            for line in owed
            if line not in story.outside
        ]


def _nothing_doubled(story: Story, verdict: Verdict) -> None:
    """No effect twice, and no turn run again that nobody asked to be run again."""
    counts = Counter(story.effects)
    verdict.doubled += [f"effect {line!r} {count} times" for line, count in counts.items() if count > 1]
    for key, count in Counter(body.request_id for body in story.journal.bodies(t.InputAccepted)).items():
        if count > 1:
            verdict.doubled.append(f"input {key} was accepted {count} times")
    for turn in INPUTS:
        runs = [line for line in counts if line.startswith(f"{turn} ")]
        retried = story.journal.bodies(t.TurnRetried, turn)
        allowed = 1 + sum(body.by != t.BY_ON_INTERRUPT for body in retried)
        if len(runs) > allowed or (turn not in RETRIED and allowed > 1):
            verdict.doubled.append(f"turn {turn} ran {len(runs)} times and was to run {allowed} times")
    answered = [
        body for body in story.journal.bodies(t.GateResolved) if body.reason in ("answered", "policy")
    ]
    if max(Counter(body.gate for body in answered).values(), default=0) > 1:
        verdict.doubled.append("a gate was answered twice")


def _no_effect_doubled(story: Story, killed: int, verdict: Verdict) -> None:
    """A checked effect happens once under its key, any other once for each body that the journal names; a
    body begins again for a kill only. An agent that is done is not asked again for the sake of an effect."""
    intended = {f"{body.name} {body.key}": body for body in story.journal.bodies(e.EffectIntended)}
    bodies = Counter(body.effect for body in story.journal.bodies(e.EffectDispatched))
    for line, count in Counter(story.outside).items():
        intent = intended.get(line)
        if intent is None:
            verdict.broken.append(f"{line!r} happened outside, and the journal never intended it")
        elif count > (1 if intent.replay == "check" else bodies[intent.effect]):
            verdict.doubled.append(f"{line!r} happened outside {count} times")
    for line, intent in intended.items():
        if bodies[intent.effect] > 1 + killed:
            verdict.doubled.append(f"{line!r} began {bodies[intent.effect]} times, {killed} were killed")
    for done in story.journal.of("HostDone"):
        after = story.journal.records[done.seq :]
        later = [record for record in after if record.turn == done.turn]
        if any(isinstance(record.body, e.HostDone | t.TurnAttemptStarted) for record in later):
            verdict.doubled.append(f"turn {done.turn} went to an agent again, although its agent was done")
        closed = [record.type for record in later if record.type in (*ENDINGS, "TurnParked")]
        if closed != ["TurnDone"][: len(closed)]:
            verdict.broken.append(f"turn {done.turn} ended as {closed}, although its agent was done")


def _one_session(story: Story, verdict: Verdict) -> None:
    """The agent's own session is chosen once, and each agent goes on in it."""
    sessions = story.journal.bodies(t.AgentSessionChanged)
    chosen = [body.provider_session for body in sessions if body.source == "chosen"]
    others = {body.provider_session for body in sessions} - set(chosen)
    if len(chosen) != 1 or others:
        verdict.broken.append(f"agents' sessions were chosen as {chosen}, others are {sorted(others)}")


def _order_and_ids(story: Story, verdict: Verdict) -> None:
    """Inputs are taken in the order in which they were acknowledged, turns begin in it and keep their ids."""
    accepted = [body.request_id for body in story.journal.bodies(t.InputAccepted)]
    asked = [key for key in story.told if key in accepted]
    if accepted != asked:
        verdict.broken.append(f"accepted in the order {accepted}, acknowledged in {asked}")
    started = list(dict.fromkeys(record.turn for record in story.journal.of("TurnStarted")))
    if started != [key for key in accepted if key in started]:
        verdict.broken.append(f"begun in the order {started}")
    bodies = story.journal.bodies(t.TurnStarted)
    indexes = {body.request_id: body.index for body in bodies}
    if list(indexes.values()) != list(range(1, len(indexes) + 1)):
        verdict.broken.append(f"turns are numbered {indexes}")
    if len(story.journal.of("SessionStarted")) != 1 or len(story.journal.of("LoopStarted")) != 1:
        verdict.broken.append("the session or its loop began anew")


def _told_to_its_end(story: Story, verdict: Verdict) -> None:
    state = story.journal.state
    left = [*state.open_turns, *state.queue, *state.gates, *(set(state.parked) - RETRIED)]
    if left:
        verdict.broken.append(f"left open: {left}")
    if state.stopped != "closed":
        verdict.broken.append("the session was never closed")
    started = {record.turn for record in story.journal.of("TurnStarted")}
    for turn in set(INPUTS) - {"withdrawn"} - started:
        verdict.lost.append(f"turn {turn} never began")


ENDINGS = ("TurnDone", "TurnFailed", "TurnInterrupted")
AS_TOLD: dict[str, Sequence[str]] = {
    "one": ["TurnDone"],
    "two": ["TurnDone"],
    "three": ["TurnInterrupted"],
    "four": ["TurnDone"],
    "five": ["TurnDone"],
    "six": ["TurnFailed", "TurnDone"],
    "seven": ["TurnInterrupted", "TurnDone"],
}
EFFECTS = Counter(
    ["one 1", "two 1", "answered", "three 1", "four 1", "five 1", "six 1", "six 2", "seven 1", "seven 2"],
)


def _as_if_nothing_was(story: Story, verdict: Verdict) -> None:
    """Owners alone died: every turn ends as it would have, and every effect is there."""
    as_told = dict(AS_TOLD)
    if _ended_unowned(story, "six"):
        as_told["six"] = ["TurnInterrupted", "TurnDone"]
    for turn, endings in as_told.items():
        found = [record.type for record in story.journal.of(*ENDINGS, turn=turn)]
        if found != endings:
            verdict.broken.append(f"turn {turn} ended as {found}, although its agent lived")
    if Counter(story.effects) != EFFECTS:
        verdict.broken.append(f"effects are {story.effects}")


def _ended_unowned(story: Story, turn: str) -> bool:
    """Whether its agent, which ends itself, did so before the next owner looked: what nobody saw fail is
    interrupted (docs/decisions/0007)."""
    attempts = story.journal.of("TurnAttemptStarted", turn=turn)
    endings = story.journal.of(*ENDINGS, turn=turn)
    if not attempts or not endings:
        return False
    between = story.journal.records[attempts[0].seq : endings[0].seq - 1]
    restored = [record.body for record in between if isinstance(record.body, t.RestoreStarted)]
    return any("the agent exited with status 3" in fact for body in restored for fact in body.facts)


def _nothing_lives(root: Path, verdict: Verdict) -> None:
    for path in sorted(root.glob("state/outlast.d/agents/*/gen-*")):
        generation = AgentFolder(path.parent).generation(int(path.name.rpartition("-")[2]))
        # A process that has nothing to do with it may hide its environment for a moment, as each does when
        # it begins: then nobody can tell.
        deadline = time.monotonic() + PATIENCE
        while isinstance(found := tree_dead(generation), Unknown) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not isinstance(found, Verified):
            verdict.broken.append(f"{path.name}: {found.evidence}")
