"""The conformance suite of stores: what `outlast.store.contract.Store` promises, as checks that run against a
real store. See docs/store-conformance.md.

From a shell: `python -m outlast.testing.store_conformance URL`. From pytest or any other runner: a `Harness`
for the back end, and `run_check(harness, check)` for each of `CHECKS`.
"""

from outlast.testing.store_conformance.builtin import InMemory, Sqlite, SqliteProcesses, harnesses
from outlast.testing.store_conformance.check import Check
from outlast.testing.store_conformance.expect import NotAsPromisedError, UnsupportedError
from outlast.testing.store_conformance.harness import Harness, Incarnations, Moment, Opener
from outlast.testing.store_conformance.processes import Processes
from outlast.testing.store_conformance.runner import Result, chosen, run, run_check
from outlast.testing.store_conformance.suite import CHECKS

__all__ = [
    "CHECKS",
    "Check",
    "Harness",
    "InMemory",
    "Incarnations",
    "Moment",
    "NotAsPromisedError",
    "Opener",
    "Processes",
    "Result",
    "Sqlite",
    "SqliteProcesses",
    "UnsupportedError",
    "chosen",
    "harnesses",
    "run",
    "run_check",
]
