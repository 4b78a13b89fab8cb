"""The scripted model server: threads of the standard library, on loopback only."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import secrets
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeAlias, cast

from outlast.testing.scripted_model.conversation import (
    Conversation,
    HttpError,
    Json,
    JsonObject,
    ModelRequest,
    Reply,
    Script,
)
from outlast.testing.scripted_model.dialect import (
    Dialect,
    Event,
    Identity,
    MalformedRequestError,
    Parsed,
    Pause,
)
from outlast.testing.scripted_model.markers import reply_to_markers
from outlast.testing.scripted_model.pairing import pairing_fault
from outlast.testing.scripted_model.responses import ResponsesDialect

_Request: TypeAlias = socket.socket | tuple[bytes, socket.socket]

DIALECTS: tuple[Dialect, ...] = (ResponsesDialect(),)
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_BODY_LIMIT = 256 * 1024 * 1024
_JOIN_SECONDS = 5.0


class ScriptedModel:
    """A model that answers by script, for driving real agents offline.

    Use it as a context manager: it listens on a free port of 127.0.0.1 while the block runs, and leaving
    the block ends it at once, also when replies hang. `script` decides each reply (default: the markers of
    `markers`). With `strict`, a history whose calls and results don't pair up is answered with status 400,
    as real back ends do. `log` is a file to which each request is appended as a JSON line when it arrives.
    `models` are the names that `GET …/models` lists.

    Requests are kept in memory in the order of their arrival; `requests` is a snapshot of them.
    """

    def __init__(
        self,
        script: Script = reply_to_markers,
        *,
        strict: bool = True,
        port: int = 0,
        log: str | os.PathLike[str] | None = None,
        models: tuple[str, ...] = ("mock-1",),
    ) -> None:
        self.script = script
        self.strict = strict
        self.models = models
        self.closing = threading.Event()
        self.script_error: Exception | None = None
        self._nonce = secrets.token_hex(4)
        self._arrived = threading.Condition()
        self._requests: list[ModelRequest] = []
        self._port = port
        self._log_path = log
        self._log: BinaryIO | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ScriptedModel:
        """Listen. Raises `OSError` when the port is taken or the log can't be opened."""
        if self._server is not None or self.closing.is_set():
            raise RuntimeError("a ScriptedModel listens once: make another one")
        server = _Server(self, self._port)
        try:
            self._log = Path(self._log_path).open("ab", buffering=0) if self._log_path is not None else None
        except OSError:
            server.server_close()
            raise
        self._server = server
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="scripted-model"
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, then raise what a script raised, so that a fault in it is not taken for a fault of the
        agent."""
        self.close()
        if self.script_error is not None and error is None:
            raise self.script_error

    def close(self) -> None:
        """Stop listening, end every reply, and wait for the server's threads. May be called again."""
        self.closing.set()
        server, self._server = self._server, None
        if server is not None and self._thread is not None:
            server.shutdown()
            self._thread.join()
            server.end_connections()
            server.server_close()
        log, self._log = self._log, None
        if log is not None:
            log.close()

    @property
    def base_url(self) -> str:
        """What agents call their base URL, for example `http://127.0.0.1:40123/v1`."""
        if self._server is None:
            raise RuntimeError("the scripted model is not listening: use it in a `with` block")
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The requests so far, oldest first, refused ones too."""
        with self._arrived:
            return tuple(self._requests)

    def wait_for(self, wanted: Callable[[ModelRequest], bool], *, timeout: float = 30.0) -> ModelRequest:
        """Wait until a request for which `wanted` is true has arrived, and return the first one.

        Raises `TimeoutError` after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        seen = 0
        with self._arrived:
            while True:
                for request in self._requests[seen:]:
                    if wanted(request):
                        return request
                seen = len(self._requests)
                if not self._arrived.wait(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"none of {seen} requests was the awaited one within {timeout:g} s")

    def receive(
        self, dialect: Dialect, parsed: Parsed, headers: Mapping[str, str]
    ) -> tuple[ModelRequest, Identity]:
        """Record a request. The record is complete before the reply begins, so that a killed agent leaves
        it."""
        with self._arrived:
            request = ModelRequest(
                number=len(self._requests) + 1,
                api=dialect.api,
                model=parsed.model,
                stream=parsed.stream,
                items=parsed.items,
                tools=parsed.tools,
                headers={name: value for name, value in headers.items() if not _SECRET_HEADER.search(name)},
                refused=pairing_fault(parsed.items) if self.strict else None,
            )
            self._requests.append(request)
            if self._log is not None:
                self._log.write(json.dumps(request.as_json(), ensure_ascii=True).encode() + b"\n")
            self._arrived.notify_all()
        return request, Identity(self._nonce, request.number)

    def decide(self, request: ModelRequest) -> Reply:
        """Ask the script. What it raises is kept for the end of the block and answered with status 500."""
        try:
            return self.script(Conversation(request))
        except Exception as error:  # noqa: BLE001 - a script may raise anything; nothing of it is lost
            self.script_error = self.script_error or error
            return Reply(error=HttpError(500, "script_error", f"the script raised {error!r}"))


class _Server(ThreadingHTTPServer):
    """Knows its connections, so that closing it can end them."""

    def __init__(self, model: ScriptedModel, port: int) -> None:
        self.model = model
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: _Request, client_address: object) -> None:
        """Serve the connection in a thread that is known before it runs."""
        assert isinstance(request, socket.socket)
        thread = threading.Thread(
            target=self._serve_connection,
            args=(request, client_address),
            name="scripted-model-reply",
            daemon=True,
        )
        with self._lock:
            self._connections[request] = thread
        thread.start()

    def _serve_connection(self, request: socket.socket, client_address: object) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            with self._lock:
                del self._connections[request]

    def end_connections(self) -> None:
        """End the connections and wait for their threads; a script that never returns is left behind, as a
        daemon."""
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in connections.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def handle_error(self, request: _Request, client_address: object) -> None:
        """A client that went away is a normal end here; anything else is reported as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _ClosingError(Exception):
    """The server closes while a reply is under way."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Requests are recorded by the model, not printed."""

    def do_HEAD(self) -> None:
        self._send(200, None)

    def do_GET(self) -> None:
        if self.path.partition("?")[0].endswith("/models"):
            data: list[Json] = [
                {"id": name, "object": "model", "created": 0, "owned_by": "scripted"}
                for name in self.server.model.models
            ]
            self._send(200, {"object": "list", "data": data, "models": []})
        else:
            self._send(404, _plain_error("not_found", f"nothing is served at {self.path}"))

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        try:
            body = self._read_json()
        except MalformedRequestError as error:
            self.close_connection = True
            self._send(400, _plain_error("invalid_request_error", str(error)))
            return
        dialect = next((dialect for dialect in DIALECTS if dialect.serves(path)), None)
        if dialect is None:
            self._send(404, _plain_error("not_found", f"the scripted model has no API at {path}"))
            return
        try:
            parsed = dialect.parse(body)
        except MalformedRequestError as error:
            self._send(400, dialect.error(HttpError(400, "invalid_request_error", str(error))))
            return
        with contextlib.suppress(_ClosingError):
            self._answer(dialect, parsed)

    def _answer(self, dialect: Dialect, parsed: Parsed) -> None:
        model = self.server.model
        request, identity = model.receive(dialect, parsed, dict(self.headers.items()))
        if request.refused:
            reply = Reply(error=HttpError(400, "invalid_request_error", request.refused))
        else:
            reply = model.decide(request)
        if isinstance(reply.error, HttpError):
            self._send(reply.error.status, dialect.error(reply.error), reply.error.retry_after)
        elif parsed.stream:
            self._stream(dialect, parsed, reply, identity)
        else:
            self._pause(reply.hang_seconds + reply.slow_seconds)
            self._send(200, dialect.document(parsed, reply, identity))

    def _stream(self, dialect: Dialect, parsed: Parsed, reply: Reply, identity: Identity) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("connection", "close")
        self.end_headers()
        for step in dialect.stream(parsed, reply, identity):
            if isinstance(step, Pause):
                self._pause(step.seconds)
            else:
                self.wfile.write(_sse(step))
                self.wfile.flush()

    def _pause(self, seconds: float) -> None:
        if self.server.model.closing.wait(seconds):
            self.close_connection = True
            raise _ClosingError

    def _send(self, status: int, document: JsonObject | None, retry_after: float | None = None) -> None:
        data = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if retry_after is not None:
            self.send_header("retry-after", f"{retry_after:g}")
        self.end_headers()
        self.wfile.write(data)

    def _read_json(self) -> JsonObject:
        raw = self._read_body()
        encoding = self.headers.get("content-encoding", "identity").lower()
        try:
            if encoding == "gzip":
                raw = gzip.decompress(raw)
            elif encoding == "deflate":
                raw = zlib.decompress(raw)
            elif encoding != "identity":
                raise MalformedRequestError(
                    f"content-encoding {encoding} is not understood: use gzip, deflate or none"
                )
            body = cast(Json, json.loads(raw))
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise MalformedRequestError(f"the body is not JSON: {error}") from error
        if not isinstance(body, Mapping):
            raise MalformedRequestError("the body must be a JSON object")
        return body

    def _read_body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        length = self.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > _BODY_LIMIT:
            raise MalformedRequestError(
                f"content-length {length} is not a number of at most {_BODY_LIMIT} bytes"
            )
        return self.rfile.read(int(length))

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = self.rfile.readline(1024).partition(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError as error:
                raise MalformedRequestError("a chunk has no size") from error
            if size < 0 or len(body) + size > _BODY_LIMIT:
                raise MalformedRequestError(f"the body is larger than {_BODY_LIMIT} bytes")
            body += self.rfile.read(size)
            self.rfile.readline(1024)
            if size == 0:
                return bytes(body)


def _sse(event: Event) -> bytes:
    data = event.data if isinstance(event.data, str) else json.dumps(event.data)
    name = f"event: {event.name}\n" if event.name else ""
    return f"{name}data: {data}\n\n".encode()


def _plain_error(code: str, message: str) -> JsonObject:
    return {"error": {"message": message, "type": code, "code": code, "param": None}}
