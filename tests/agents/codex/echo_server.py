"""An MCP server with one tool, which says what it is told, and writes down that it did."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    calls = Path(os.environ["ECHO_CALLS"])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        params = message.get("params", {})
        result: dict[str, object] = {}
        match message["method"]:
            case "initialize":
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "echo", "version": "1"},
                }
            case "tools/list":
                schema = {"type": "object", "properties": {"text": {"type": "string"}}}
                result = {"tools": [{"name": "echo", "description": "echo", "inputSchema": schema}]}
            case "tools/call":
                with calls.open("a", encoding="utf-8") as file:
                    file.write(params["arguments"]["text"] + "\n")
                result = {"content": [{"type": "text", "text": "echo: " + params["arguments"]["text"]}]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
