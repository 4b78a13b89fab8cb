"""How to come by the programs that are agents by name: one wording, wherever one is missing.

outlast is on no package index: whatever answers to its name there is somebody else's.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from outlast.errors import AgentError

_ELF = b"\x7fELF"
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


def how_to_install(*programs: str) -> str:
    """What to do to have one of `programs`, as a part of a sentence."""
    on_path = " or ".join(f"`{program}`" for program in programs)
    extra = programs[0] if len(programs) == 1 else "all"
    return f"put {on_path} on PATH, or run `make agents` or `pip install '.[{extra}]'` in outlast's checkout"


def named_program(who: str, path: Path, environ: Mapping[str, str]) -> Path:
    """The program that a configuration names for `who`. Raises AgentError where there is none to run."""
    found = shutil.which(str(path.expanduser()), path=environ.get("PATH", ""))
    if found is None:
        raise AgentError(
            f"{who}'s program {path.expanduser()} is not there or can't be run",
            hint="correct it: `command` in the configuration, `binary` in Python",
        )
    return Path(found)


def is_native(path: Path) -> bool:
    """Whether it is a program of this machine's own, and no script that runs one."""
    try:
        with path.open("rb") as program:
            magic = program.read(4)
    except OSError:
        return False
    return magic == _ELF or magic in _MACH_O
