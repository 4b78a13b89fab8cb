"""All checks, by part of the contract."""

from outlast.testing.store_conformance.check import Check
from outlast.testing.store_conformance.checks import (
    blobs,
    catalog,
    collection,
    fence,
    following,
    inbox,
    leases,
    ledger,
    life,
    outcomes,
    snapshots,
)

_MODULES = (
    ledger,
    outcomes,
    leases,
    fence,
    inbox,
    following,
    catalog,
    snapshots,
    blobs,
    collection,
    life,
)
CHECKS: tuple[Check, ...] = tuple(check for module in _MODULES for check in module.SUBJECT.checks)
