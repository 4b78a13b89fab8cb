"""The first records of a session: from the first input's opening to SessionStarted and LoopStarted (pure)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from outlast.agents.contract import Agent
from outlast.ids import new_id
from outlast.records.envelope import Draft
from outlast.records.types import LoopStarted, Manifest, SessionStarted
from outlast.restore.opening import Opening, decode_opening
from outlast.store.contract import Entry


def first_records(entries: Sequence[Entry], lineage: str, resolve: Callable[[str], Agent]) -> list[Draft]:
    """SessionStarted and the root LoopStarted, as the first admitted input wants them."""
    entry = next(entry for entry in entries if entry.opening_body is not None)
    opening = decode_opening(entry.opening_body or b"")
    return beginning(opening, lineage, resolve(opening.agent), entry)


def beginning(opening: Opening, lineage: str, agent: Agent, entry: Entry | None = None) -> list[Draft]:
    """SessionStarted and the root LoopStarted; `entry` is what led to them."""
    manifest = manifest_of(opening, agent)
    loop = new_id()
    cause, actor = (None, None) if entry is None else (entry.request_id, entry.actor)
    started = SessionStarted(
        lineage=lineage,
        manifest=manifest,
        fingerprint=fingerprint(manifest),
        title=opening.title,
        workspace=opening.workspace,
        labels=opening.labels,
    )
    root = LoopStarted(loop=loop, name="main", agent=opening.agent, agent_kind=agent.kind)
    return [
        Draft(body=started, cause=cause, actor=actor),
        Draft(body=root, loop=loop, cause=cause, actor=actor),
    ]


def manifest_of(opening: Opening, agent: Agent) -> Manifest:
    """Schema 1 of what the session runs under."""
    return Manifest(
        agent=opening.agent,
        agent_kind=agent.kind,
        adapter=agent.adapter,
        model=agent.model,
        workspace=opening.workspace,
        versions=dict(agent.versions()),
    )


def fingerprint(manifest: Manifest) -> str:
    """SHA-256 over the canonical fields."""
    return hashlib.sha256(msgspec.json.encode(manifest, order="deterministic")).hexdigest()
