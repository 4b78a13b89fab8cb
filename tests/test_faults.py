"""Fault points weaken no guarantee for those who did not ask for it, and count together where asked to."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

LOOK = "from outlast.faults import point, requested; print(point('store.fence'), bool(requested()))"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"OUTLAST_FAULTS": "store.fence=skip"}, "False False"),
        ({"OUTLAST_FAULTS": "store.fence=kill"}, "False False"),
        ({"OUTLAST_FAULTS": "store.fence=skip", "OUTLAST_FAULTS_TESTING": ""}, "False False"),
        ({"OUTLAST_FAULTS": "store.fence=skip", "OUTLAST_FAULTS_TESTING": "0"}, "False False"),
        ({"OUTLAST_FAULTS_TESTING": "1"}, "False False"),
        ({"OUTLAST_FAULTS": "store.fence=skip", "OUTLAST_FAULTS_TESTING": "1"}, "True True"),
    ],
)
def test_a_plan_alone_is_not_followed(variables: dict[str, str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env=variables, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == said


@pytest.mark.parametrize("module", ["faults", "keep.points"])
def test_passages_are_counted_over_all_processes(tmp_path: Path, module: str) -> None:
    """Owners by `outlast.faults`, guards and shims by their own copy of it: the third passage of them all."""
    plan = f"passages={tmp_path},a.point@3=kill"
    loads = f"p.load({plan!r}); " if module == "keep.points" else ""
    pass_twice = f"import outlast.{module} as p; {loads}p.point('a.point'); p.point('a.point')"
    variables = {"OUTLAST_FAULTS": plan, "OUTLAST_FAULTS_TESTING": "1"}
    statuses = [
        subprocess.run([sys.executable, "-c", pass_twice], env=variables, timeout=60, check=False).returncode
        for _ in range(3)
    ]
    assert statuses == [0, -signal.SIGKILL, 0]
    assert (tmp_path / "a.point").stat().st_size == 5
