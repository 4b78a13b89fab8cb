"""What a turn costs as its session grows, and how long a restore takes; prints JSON.

    python benchmarks/turns.py [--turns 1000]

Each turn is a real one: a bundled agent under guard and shim, a prompt, a message, an end, all durable. The
ratio compares the median of the last tenth with that of the second tenth (the first one warms caches up).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

import outlast
from outlast.agents import Command
from outlast.testing.agents import ECHO, command


async def measure(folder: Path, turns: int) -> dict[str, object]:
    """Run the turns one after another, then restore the session."""
    url = f"sqlite://{folder}/bench.db"
    agents = {"echo": Command(command(ECHO))}
    seconds: list[float] = []
    async with outlast.Runtime(url, agents=agents) as runtime:
        session = runtime.session("bench", workspace=folder)
        for number in range(turns):
            begun = time.perf_counter()
            outcome = await (await session.send(f"turn {number}")).result()
            outcome.raise_for_failure()
            seconds.append(time.perf_counter() - begun)
    restores: list[float] = []
    for _ in range(5):
        async with outlast.Runtime(url, agents=agents) as runtime:
            begun = time.perf_counter()
            live = await runtime.restore("bench")
            restores.append(time.perf_counter() - begun)
            view = await live.view()
    tenth = max(1, turns // 10)
    early, late = statistics.median(seconds[tenth : 2 * tenth]), statistics.median(seconds[-tenth:])
    return {
        "turns": turns,
        "records": view.seq,
        "turn_ms": {"second_tenth": round(early * 1e3, 2), "last_tenth": round(late * 1e3, 2)},
        "turn_ratio": round(late / early, 2),
        "restore_ms": round(statistics.median(restores) * 1e3, 2),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measure(Path(folder), arguments.turns)), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
