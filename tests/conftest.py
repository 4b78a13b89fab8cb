"""What every test has: bounded, repeatable property tests, and a state folder that is thrown away."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline: how fast a machine is today is no property of the code.
settings.register_profile("test", max_examples=100, deadline=None, derandomize=True, database=None)
settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20000")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("test")

# A shell that runs the tests in the background leaves SIGINT ignored, and every process that a test starts
# would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def throw_away_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test, nor a process that it starts with this environment, reaches the user's own sessions."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTLAST_STATE_DIR", str(folder))
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        patch.setenv("OUTLAST_FAULTS_TESTING", "1")
        yield folder
