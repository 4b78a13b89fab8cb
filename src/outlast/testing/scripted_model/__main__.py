"""`python -m outlast.testing.scripted_model`: the scripted model as a process of its own."""

from __future__ import annotations

import argparse
import json
import signal
import threading

from outlast.testing.scripted_model.server import ScriptedModel


def main() -> int:
    """Serve until SIGINT or SIGTERM; print the base URL as one JSON line when ready."""
    parser = argparse.ArgumentParser(
        prog="python -m outlast.testing.scripted_model",
        description="A scripted model server on 127.0.0.1 for driving real coding agents offline.",
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument("--log", metavar="FILE", help="append what each request carried as JSON lines")
    parser.add_argument(
        "--lenient", action="store_true", help="accept histories whose tool calls and results don't pair up"
    )
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with ScriptedModel(port=options.port, log=options.log, strict=not options.lenient) as model:
            print(json.dumps({"base_url": model.base_url}), flush=True)
            ended.wait()
    except OSError as error:
        parser.error(f"can't serve: {error}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
