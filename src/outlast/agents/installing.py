"""How to come by the programs that are agents by name: one wording, wherever one is missing.

outlast is on no package index: whatever answers to its name there is somebody else's.
"""

from __future__ import annotations


def how_to_install(*programs: str) -> str:
    """What to do to have one of `programs`, as a part of a sentence."""
    on_path = " or ".join(f"`{program}`" for program in programs)
    extra = programs[0] if len(programs) == 1 else "all"
    return f"put {on_path} on PATH, or run `make agents` or `pip install '.[{extra}]'` in outlast's checkout"
