"""Where codex's program is: the native one, because a wrapper that dies alone leaves the real program
running."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from outlast.agents.installing import how_to_install, is_native, named_program
from outlast.errors import AgentError

_WHEEL = "codex_cli_bin"


def find_codex(configured: str | None, environ: Mapping[str, str]) -> Path:
    """The program to launch: the configured one, else `codex` on PATH, else the one in the installed wheel.

    For npm's wrapper script on PATH it is the native program that the script would run. Raises AgentError
    when there is none."""
    if configured is not None:
        return native_of(named_program("codex", Path(configured), environ))
    found = shutil.which("codex", path=environ.get("PATH", ""))
    if found is not None:
        return native_of(Path(found))
    wheel = _wheel()
    if wheel is not None:
        return wheel
    raise AgentError(
        "codex is not installed: there is no `codex` on PATH and no wheel that carries it",
        hint=f"{how_to_install('codex')}; or name the program, as `command` in the configuration",
    )


def native_of(program: Path) -> Path:
    """The native program behind npm's wrapper script, or the program itself.

    Layouts known: the platform's package beside the wrapper's or in its `node_modules` (0.171), and the
    older one with `vendor` in the wrapper's own package."""
    real = program.resolve()
    if is_native(real) or real.name != "codex.js":
        return program
    return next((native for native in _natives(real.parent.parent) if is_native(native)), program)


def _natives(package: Path) -> Iterator[Path]:
    for root in (package.parent, package / "node_modules" / "@openai"):
        yield from sorted(root.glob("codex-*/vendor/*/bin/codex"))
    yield from sorted(package.glob("vendor/*/bin/codex"))
    yield from sorted(package.glob("vendor/*/codex/codex"))


def _wheel() -> Path | None:
    spec = find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "bin" / "codex"
    return program if program.is_file() else None


def version_of(program: Path) -> str:
    """The program's version from the description that is packed beside it, `unknown` without one."""
    try:
        described = json.loads((program.resolve().parent.parent / "codex-package.json").read_bytes())
    except (OSError, ValueError):
        return "unknown"
    version = described.get("version") if isinstance(described, dict) else None
    return version if isinstance(version, str) else "unknown"
