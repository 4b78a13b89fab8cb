"""The doctor looks at the blobs: what a collection would free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from outlast import clock
from outlast.cli.findings import Finding, Patient
from outlast.store.contract import DAY

if TYPE_CHECKING:
    from outlast.store.sqlite.reading import Reader


def check_blobs(patient: Patient, reader: Reader) -> Iterator[Finding]:
    from outlast.store.sqlite.blobs import Blobs
    from outlast.store.sqlite.collection import in_batches, unneeded

    before = clock.now() - int(DAY * 1_000_000)
    sizes = [
        file.size
        for files in in_batches(Blobs(patient.layout.blobs), before)
        for file in unneeded(reader, files)
    ]
    if not sizes:
        yield Finding("blobs", "ok", "no old blob is without a record")
        return
    yield Finding(
        "blobs",
        "ok",
        f"{len(sizes)} old blobs without a record, {sum(sizes) / (1 << 20):.1f} MiB:"
        " whoever owns a session next removes them",
    )
