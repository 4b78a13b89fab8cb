"""The import check of pyproject.toml bites: a small package with one wrong arrow in it does not pass."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


def modules_that_rules_name() -> list[str]:
    """The rules name them without a star, so they must exist."""
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    names = [name for contract in contracts for name in contract.get("source_modules", [])]
    return [name.removeprefix("outlast.") for name in names if "*" not in name]


def check(root: Path, modules: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Hold a package `outlast` under `root`, with these modules by dotted name, against the real rules."""
    named = dict.fromkeys(modules_that_rules_name(), "") | modules
    for name, source in named.items():
        folder = root
        for package in ["outlast", *name.split(".")]:
            folder /= package
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").touch()
        (folder / "__init__.py").write_text(source)
    shutil.copy(PYPROJECT, root)
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache", "--no-logo"],
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_arrows_that_go_down_pass(tmp_path: Path) -> None:
    result = check(
        tmp_path,
        {
            "cli": "from outlast import config, runtime, server\nimport os\n",
            "server": "from outlast import runtime\n",
            "config": "from outlast import errors\n",
            "runtime": "from outlast import restore\n",
            "restore": "from outlast import store\n",
            "store": "from outlast import errors, lifecycle\nimport os\n",
            "lifecycle": "from outlast import clock, ids\n",
            "errors": "",
            "ids": "from outlast import errors\n",
            "clock": "import time\n",
            "keep.shim": "import os, socket\n",
            "testing": "from outlast import cli, store\n",
        },
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("store", "journal"),
        ("restore", "runtime"),
        ("agents", "keep"),
        ("server", "cli"),
        ("lifecycle", "store"),
        ("errors", "lifecycle"),
        ("runtime", "testing"),
        ("cli", "testing"),
    ],
)
def test_an_arrow_that_goes_up_or_sideways_is_named(tmp_path: Path, importer: str, imported: str) -> None:
    result = check(tmp_path, {importer: f"from outlast import {imported}\n", imported: ""})
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"outlast.{importer} is not allowed to import outlast.{imported}" in result.stdout


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [("records.types", "time"), ("state.fold", "os"), ("restore.plan", "random"), ("keep.shim", "json")],
)
def test_what_must_stay_pure_or_light_is_held_to_it(tmp_path: Path, module: str, forbidden: str) -> None:
    result = check(tmp_path, {module: f"import {forbidden}\n"})
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"outlast.{module} -> {forbidden}" in result.stdout


def test_a_module_without_a_place_in_the_layers_is_refused(tmp_path: Path) -> None:
    result = check(tmp_path, {"helpers": ""})
    assert result.returncode == 1, result.stdout + result.stderr
    assert "outlast.helpers" in result.stdout
