"""`python -m outlast.testing.store_conformance URL`: does this store keep the contract?"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter

from outlast.errors import OutlastError
from outlast.testing.store_conformance import CHECKS, Check, Harness, Result, chosen, harnesses, run
from outlast.testing.store_conformance.processes import OPEN_BY_URL

_MARKS = {"ok": "ok", "skipped": "skip", "failed": "FAIL"}


def main() -> int:
    """0 when no check has failed, 1 when one has, 2 for a wrong call."""
    parser = _parser()
    options = parser.parse_args()
    checks = chosen(options.k)
    if options.list:
        for check in checks:
            print(f"{check.subject}: {check.name}")
        return 0
    if options.url is None:
        parser.error("the address of a store is needed, such as sqlite:////tmp/trial/x.db")
    if not checks:
        parser.error(f"no check has all of the words {options.k!r}; --list shows the checks")
    try:
        ways = harnesses(options.url, options.opener)
        return asyncio.run(_run(ways, checks, as_json=options.json))
    except (OutlastError, ImportError, AttributeError) as error:
        parser.error(str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m outlast.testing.store_conformance",
        description="Checks that a store keeps the contract of outlast's stores. Use a store for trials: the"
        " sessions of the checks, whose names begin with `conformance-`, stay in it.",
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="the store, such as sqlite:////tmp/trial/x.db")
    parser.add_argument("-k", metavar="WORDS", default="", help="only checks with all of these words")
    parser.add_argument("--list", action="store_true", help="list the checks and run none")
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")
    parser.add_argument(
        "--opener",
        metavar="MODULE:FUNCTION",
        default=OPEN_BY_URL,
        help="a coroutine function (url, label) that opens the store, for back ends of others",
    )
    return parser


async def _run(ways: dict[str, Harness], checks: list[Check], *, as_json: bool) -> int:
    counts: Counter[str] = Counter()
    for way, harness in ways.items():
        if not as_json:
            print(f"{way}:")
        async for result in run(harness, checks):
            counts[result.outcome] += 1
            _say(way, result, as_json=as_json)
    if as_json:
        print(json.dumps({"checks": len(CHECKS), **{key: counts[key] for key in _MARKS}}))
    else:
        print(f"{counts['ok']} ok, {counts['skipped']} skipped, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


def _say(way: str, result: Result, *, as_json: bool) -> None:
    check = result.check
    if as_json:
        said = {"way": way, "subject": check.subject, "check": check.name, "outcome": result.outcome}
        print(json.dumps(said | ({"why": result.why} if result.why else {})), flush=True)
        return
    why = "" if result.outcome == "ok" else f" ({result.why})"
    print(f"{_MARKS[result.outcome]:<4} {check.subject}: {check.name}{why}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
