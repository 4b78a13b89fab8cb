"""Where Claude Code's program is: the native one, because a wrapper that dies alone leaves the real program
running."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from outlast.agents.installing import how_to_install, is_native, named_program
from outlast.errors import AgentError

_WHEEL = "claude_agent_sdk"
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:[-+.][\w.]+)?")
_SAID = re.compile(rb'"version"\s*:\s*"([^"]+)"')
_SAYS_ITS_VERSION = 4096
"""Bytes at the beginning of a package's description in which its version stands."""


def find_claude(configured: str | None, environ: Mapping[str, str]) -> Path:
    """The program to launch: the configured one, else `claude` on PATH, else the one in the installed wheel.

    For npm's wrapper on PATH it is the native program that the wrapper would run, where that is there.
    Raises AgentError when there is none."""
    if configured is not None:
        return native_of(named_program("Claude Code", Path(configured), environ))
    found = shutil.which("claude", path=environ.get("PATH", ""))
    if found is not None:
        return native_of(Path(found))
    wheel = _wheel()
    if wheel is not None:
        return wheel
    raise AgentError(
        "Claude Code is not installed: there is no `claude` on PATH and no wheel that carries it",
        hint=f"{how_to_install('claude')}; or name the program, as `command` in the configuration",
    )


def native_of(program: Path) -> Path:
    """The native program behind npm's wrapper, or the program itself. Layouts known: the platform's package
    beside the wrapper's or in its `node_modules`."""
    real = program.resolve()
    if is_native(real):
        return program
    return next((native for native in _natives(_package_of(real)) if is_native(native)), program)


def _package_of(script: Path) -> Path:
    return script.parent.parent if script.parent.name == "bin" else script.parent


def _natives(package: Path) -> Iterator[Path]:
    for root in (package.parent, package / "node_modules" / "@anthropic-ai"):
        yield from sorted(root.glob("claude-code-*/claude"))
        yield from sorted(root.glob("claude-code-*/bin/claude"))


def _wheel() -> Path | None:
    spec = find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "_bundled" / "claude"
    return program if program.is_file() else None


def version_of(program: Path) -> str:
    """The program's version by what lies beside it: the wheel's own file, the package's description, or the
    name of the file (the native installer names it so); `unknown` without any of them."""
    real = program.resolve()
    if _VERSION.fullmatch(real.name):
        return real.name
    for text in (_first(real.parent / "claude.version"), _described(real)):
        found = _VERSION.search(text)
        if found is not None:
            return found[0]
    return "unknown"


def _described(real: Path) -> str:
    for folder in (real.parent, real.parent.parent):
        said = _SAID.search(_read(folder / "package.json"))
        if said is not None:
            return said[1].decode(errors="replace")
    return ""


def _first(path: Path) -> str:
    return _read(path).decode(errors="replace")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_SAYS_ITS_VERSION)
    except OSError:
        return b""
