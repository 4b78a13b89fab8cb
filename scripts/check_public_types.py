"""Fail when a name that users import has a type that their editors cannot know.

pyright --verifytypes takes every module without an underscore for public. Here public is what the modules
below export, wherever it is defined; the rest is mypy's business.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

PUBLIC_MODULES = (
    "outlast",
    "outlast.agents",
    "outlast.errors",
    "outlast.testing",
    "outlast.testing.store_conformance",
)


def exported(module: ModuleType) -> set[str]:
    """Where the names that a module exports are defined, as dotted paths."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    places = set()
    for name in names:
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            continue
        home = getattr(value, "__module__", None) or module.__name__
        if home.partition(".")[0] == "outlast":
            places.add(f"{home}.{getattr(value, '__qualname__', name)}")
    return places


def verify() -> list[dict[str, object]]:
    """Every symbol of the package as pyright sees it, which looks at the Python that is first on PATH."""
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--ignoreexternal",
        "--verifytypes",
        "outlast",
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    result = subprocess.run(
        command, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, check=False, timeout=600
    )
    symbols: list[dict[str, object]] = json.loads(result.stdout)["typeCompleteness"]["symbols"]
    return symbols


def main() -> int:
    """0 when all is known, 1 with one line for each symbol that is not."""
    public = set().union(*(exported(importlib.import_module(name)) for name in PUBLIC_MODULES))
    checked, unclear = 0, []
    for symbol in verify():
        name = str(symbol["name"])
        if not any(name == place or name.startswith(f"{place}.") for place in public):
            continue
        checked += 1
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]:
            unclear.append(name)
    for name in unclear:
        print(f"{name}: add a type that is written down, not inferred")
    print(f"public surface: {checked} symbols, {len(unclear)} without a clear type")
    if checked == 0:
        print("pyright saw no public symbol: is the package installed in this environment?")
    return 1 if unclear or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
