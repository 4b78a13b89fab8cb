"""What every test has: bounded, repeatable property tests."""

import os

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
