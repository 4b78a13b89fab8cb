"""Fault points weaken no guarantee for those who did not ask for it."""

import subprocess
import sys

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
