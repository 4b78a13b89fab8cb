"""Freeze a told story's journal: `python -m tests.campaign.freeze NAME [KILL …]` writes NAME.jsonl into
`tests/data/journals`, without the names of this machine. Kills are written as for `python -m tests.campaign`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.campaign.__main__ import schedule_of
from tests.campaign.checks import judge
from tests.campaign.driver import run
from tests.campaign.story import SESSION

from outlast.keep.proc import boot_id
from outlast.records.codec import chain_of, is_blob_ref, outline_of, record_of
from outlast.records.envelope import Record
from outlast.runtime.client import Client
from outlast.runtime.home import machine_id
from outlast.store.contract import Row
from outlast.store.url import sqlite_url

JOURNALS = Path(__file__).parents[1] / "data" / "journals"


def thaw(path: Path) -> list[Record]:
    """The records of a frozen journal; the chain is checked."""
    records: list[Record] = []
    previous = b""
    for line in path.read_text("utf-8").splitlines():
        fields = json.loads(line)
        for name in ("id", "chain", "cursor"):
            fields[name] = None if fields[name] is None else bytes.fromhex(fields[name])
        row = Row(**fields | {"body": fields["body"].encode()})
        assert chain_of(previous, SESSION, row) == row.chain, f"record {row.seq} was changed"
        outline = outline_of(row.body) if is_blob_ref(row.body) else None
        records.append(record_of(row, SESSION, outline))
        previous = row.chain
    return records


def frozen(rows: list[Row], root: Path) -> Iterator[str]:
    """Rows as lines, with other names for what is this machine's, chained anew."""
    names = {str(root): "/story", machine_id(): "machine", boot_id(): "boot"}
    previous = b""
    for stored in rows:
        body = stored.body.decode()
        for name, other in names.items():
            body = body.replace(name, other)
        row = stored._replace(body=body.encode())
        previous = chain_of(previous, SESSION, row)
        fields = row._asdict() | {"body": body, "chain": previous}
        for name in ("id", "chain", "cursor"):
            fields[name] = None if fields[name] is None else fields[name].hex()
        yield json.dumps(fields, separators=(",", ":"))


async def _rows(root: Path) -> list[Row]:
    async with Client(sqlite_url(root / "state" / "outlast.db"), label="freeze") as client:
        return await client.store.read(SESSION, 0)


def main() -> None:
    name, *kills = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "told"
        done = run(root, schedule_of(kills))
        wrong = judge(done).wrong
        if wrong:
            raise SystemExit("\n".join(wrong))
        JOURNALS.mkdir(parents=True, exist_ok=True)
        lines = frozen(asyncio.run(_rows(root)), root)
        (JOURNALS / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
