"""What an agent's own transcript proves of a prompt that it does not hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from outlast.agents.transcript import Transcript
from outlast.keep import Claim
from outlast.keep.proc import boot_id
from outlast.records.agent_state import AgentStateCaptured, StatePiece
from outlast.restore.probe import _stored, _transcript
from outlast.state.model import Loop
from outlast.testing.journals import JournalBuilder
from outlast.turns.hosting import Hosting

CAPTURED = b"one\ntwo\n"


@dataclass(frozen=True)
class Reads:
    path: Path

    def read_transcript(self, provider_session: str, environ: Mapping[str, str]) -> Transcript:
        return Transcript(self.path, frozenset())


@pytest.mark.parametrize(
    ("there", "proves"),
    [(CAPTURED, True), (CAPTURED + b"three\n", True), (b"one\n", False), (b"0ne\ntwo\n", False)],
)
async def test_a_file_that_is_older_than_what_was_captured_proves_nothing(
    tmp_path: Path, there: bytes, proves: bool
) -> None:
    path = tmp_path / "transcript"
    path.write_bytes(there)
    piece = StatePiece(digest=hashlib.sha256(CAPTURED).hexdigest(), size=len(CAPTURED))
    captured = AgentStateCaptured(provider="p", provider_session="thr", name="x", pieces=[piece])
    loop = Loop("main", "main", "p", "p", provider_session="thr", captured=captured)
    hosting = Hosting("s", str(tmp_path), tmp_path, Claim("store", "lineage", 1, "me"), "m", b"", {})
    found = await _transcript(hosting, Reads(path), loop)
    assert found is not None
    assert found.lacks("a prompt") == proves
    another = AgentStateCaptured(provider="p", provider_session="other", name="x", pieces=[piece])
    loop.captured = another
    found = await _transcript(hosting, Reads(path), loop)
    assert found is not None
    assert found.lacks("a prompt")


@pytest.mark.parametrize(("stores_first", "proven"), [(True, False), (False, None)])
def test_only_of_a_program_that_stores_a_prompt_first_is_it_known_that_no_model_was_told(
    stores_first: bool, proven: bool | None
) -> None:
    state = JournalBuilder().running("t").state()
    loop, turn = state.loops["main"], state.open_turns["t"]
    assert loop.attempt is not None
    loop.attempt = msgspec.structs.replace(loop.attempt, boot_id=boot_id())
    lacks, holds = Transcript(Path("x"), frozenset()), Transcript(Path("x"), frozenset({"t"}))
    assert _stored(turn, "written", loop, lacks, stores_first=stores_first) is proven
    assert _stored(turn, "written", loop, holds, stores_first=stores_first) is True
