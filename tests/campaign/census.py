"""The fault points that the code has, and the durable steps beside which there must be one, both read from
the code: a list kept by hand would be true of yesterday's."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import outlast

SOURCE = Path(outlast.__file__).parent
FACES = ("cli", "demo", "testing")
"""They store nothing but through what is below them."""
SYNCS = frozenset({"fsync", "fdatasync"})
MOVES = frozenset({"rename", "link", "rmtree", "unlink", "ftruncate", "pwrite"})
SIGNALS = frozenset({"kill", "killpg", "pidfd_send_signal"})
ORDERS = frozenset({"_ask", "_claiming", "_feed"})
"""How an owner's connection asks a shim for something."""
APPENDS = frozenset({"append", "decide", "append_output"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """A call that makes something last, in the function `place` (`folder/module.py:Class.function`)."""

    place: str
    call: str
    line: int


@cache
def points() -> frozenset[str]:
    """Every point that the code can pass."""
    return frozenset(name for _, names in _modules() for name in names)


@cache
def points_of_the_shim() -> frozenset[str]:
    """Those that guards and shims pass, and not owners: the ones of the light modules of `keep`."""
    return frozenset(
        name
        for path, names in _modules()
        for name in names
        if path.parent.name == "keep" and "from .points import" in path.read_text("utf-8")
    )


@cache
def _modules() -> tuple[tuple[Path, frozenset[str]], ...]:
    return tuple((path, frozenset(_points_in(tree))) for path, tree in _trees())


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def _points_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if _name(node.func) == "point" and node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)
            stem = _at(node)
            if stem is not None:
                yield from (f"{stem}.before_append", f"{stem}.after_append")
        elif isinstance(node, ast.AnnAssign) and _name(node.target) == "point":
            yield from _of_an_operation(node.value)


def _of_an_operation(name: ast.AST | None) -> Iterator[str]:
    """Its two points in the store's transactions."""
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield from (f"store.{name.value}.{side}_commit" for side in ("before", "after"))


def _at(call: ast.Call) -> str | None:
    """The place that an append that waits for space gives itself."""
    for keyword in call.keywords:
        if keyword.arg == "at" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# --- durable steps -----------------------------------------------------------------------------------


def steps_without_a_point() -> list[Step]:
    """Durable steps without a point of their own."""
    found: list[Step] = []
    for path, tree in _trees():
        place = path.relative_to(SOURCE)
        if place.parts[0] not in FACES:
            found += bare_steps(tree, str(place))
    return sorted(found)


def bare_steps(tree: ast.AST, module: str) -> list[Step]:
    """Those of one module, `folder/name.py`."""
    return [step for name, function in _functions(tree) for step in _bare(f"{module}:{name}", function)]


def _functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, FUNCTIONS):
            yield above + node.name, node
        yield from _functions(node, f"{above}{node.name}." if isinstance(node, ast.ClassDef) else above)


def _bare(place: str, function: ast.AST) -> Iterator[Step]:
    """The steps of one function without a point between them and the step before; a point right behind it
    serves the first one as well."""
    passed, first, unsure = False, True, list[Step]()
    for call in sorted(_within(function), key=lambda call: (call.lineno, call.col_offset)):
        if _name(call.func) == "point" or (_lasts(call) and _at(call) is not None):
            passed, unsure = True, []
        elif _lasts(call) or (_name(call.func) in ORDERS and place.startswith("keep/client.py")):
            step = Step(place, ast.unparse(call.func), call.lineno)
            yield from unsure
            unsure = [step] if first and not passed else []
            if not passed and not first:
                yield step
            passed = first = False
    yield from unsure


def _within(function: ast.AST) -> Iterator[ast.Call]:
    """The calls of a function, without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, FUNCTIONS):
            continue
        if isinstance(node, ast.Call):
            yield node
        yield from _within(node)


def _lasts(call: ast.Call) -> bool:
    name, on = _name(call.func), ""
    if isinstance(call.func, ast.Attribute):
        on = ast.unparse(call.func.value)
    if name in SYNCS | MOVES:
        return True
    if name == "replace":
        # Of a path or a file; a text's takes two arguments, a struct's takes names.
        return on == "os" or (bool(on) and len(call.args) == 1 and not call.keywords)
    if name in SIGNALS:
        return on in ("os", "signal", "process")
    if name in APPENDS:
        return on == "patience" or any(word in on for word in ("journal", "_store", "spool"))
    if name == "write":
        return any(word in on for word in ("record", "exit", "identity", "witness"))
    if name == "execute":
        text = ast.unparse(call.args[0]) if call.args else ""
        return "COMMIT" in text
    return False


# --- points that the story does not come to ----------------------------------------------------------

ELSEWHERE: dict[str, str] = {
    "backup.": "the story makes no backup; until its rename there is none",
    "keep.kill_marked.": "both guard and shim are dead and a process of the tree lives on: tests/crash/keep",
    "keep.stderr.": "an agent that fills its error log; diagnosis, no record",
    "keep.trim.": "more than 32 MiB of output, or an agent of many turns",
    "rebuild.": "the database is not damaged",
    "repair.": "the journal is not damaged",
    "restore.errored.": "a restore that fails by itself",
    "restore.gates.": "a gate without a turn, whose agent is dead",
    "restore.repairs.": "an agent that dies between two looks of one restore",
    "seal.": "nobody seals the journal; until its rename there is no seal",
    "store.relist.": "the list is not damaged",
    "store.barrier.": "a commit that fails in an unknown way: tests/crash/store",
    "store.collect.before_commit": "blobs to delete beyond the first batch",
    "store.collect.after_commit": "the same",
    "store.cut.": "the journal is not damaged",
    "store.fence": "passed only by a refusal; what it leaves out is the control `no-fence`",
    "takeover.": "an owner that lives is replaced: tests/crash/test_takeover.py",
    "provider.claim.": "an agent that keeps its sessions in files: tests/agents/codex/test_real_state.py",
    "state.keep_aside.": "the same, and a damaged one",
    "state.put_back.": "the same, and one that is gone",
    "turn.adopt.": "an agent of many turns",
    "turn.begins_anew.": "an agent whose own session is lost, and that begins anew by its settings",
    "turn.lost_session.": "an agent whose own session is lost",
    "turn.provider_": "an agent that keeps its sessions in files: tests/agents/codex/test_real_state.py",
    "turn.cut_off.": "a spool that cannot be read",
    "turn.input_lost.": "an input that is to join a running turn and whose blob is gone",
    "turn.unread.": "an agent of many turns that dies between two of them",
    "turn.last_words.": "an agent whose last words and end are read at once: not in every run",
    "turn.settle.": "more than 1 MiB of output in the spool of a dead agent",
    "turn.undelivered.": "an input that is to join a running turn and is too large for it",
}
"""Stem -> what would be needed."""


def elsewhere(point: str) -> bool:
    return any(point.startswith(stem) for stem in ELSEWHERE)
