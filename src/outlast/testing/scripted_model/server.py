"""The scripted model server: threads of the standard library, on loopback only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeAlias

from outlast.testing.scripted_model.anthropic import AnthropicDialect
from outlast.testing.scripted_model.chat import ChatDialect
from outlast.testing.scripted_model.conversation import (
    Conversation,
    HttpError,
    Json,
    JsonObject,
    ModelRequest,
    Reply,
    Script,
    StreamCut,
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
from outlast.testing.scripted_model.pairing import find_pairing_fault
from outlast.testing.scripted_model.reading import read_json
from outlast.testing.scripted_model.responses import ResponsesDialect

_Request: TypeAlias = socket.socket | tuple[bytes, socket.socket]

DIALECTS: tuple[Dialect, ...] = (ResponsesDialect(), ChatDialect(), AnthropicDialect())
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)
_JOIN_SECONDS = 5.0
_SIDE_ANSWER = Reply(text='{"title": "scripted"}')


class ScriptedModel:
    """A model that answers by script, for driving real agents offline.

    Use it as a context manager: it listens on a free port of 127.0.0.1 while the block runs, and leaving
    the block ends it at once, also when replies hang. `script` decides each reply (default: the markers of
    `markers`). With `strict`, a history whose calls and results don't pair up is answered with status 400,
    as real back ends do. `log` is a file to which each request is appended as a JSON line when it arrives.
    `models` are the names that `GET …/models` lists.

    Requests are kept in memory in the order of their arrival; `requests` is a snapshot of them. What an agent
    asks beside its conversation (a title, its quota) is answered without the script and kept apart, in
    `side_requests`.
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
        self.halfway = threading.Event()
        """Set once a reply has stopped in the middle of its text."""
        self.script_error: Exception | None = None
        self._nonce = secrets.token_hex(4)
        self._arrived = threading.Condition()
        self._requests: list[ModelRequest] = []
        self._side_requests: list[ModelRequest] = []
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
        """What agents of OpenAI's APIs call their base URL, for example `http://127.0.0.1:40123/v1`."""
        return f"{self.root_url}/v1"

    @property
    def root_url(self) -> str:
        """The address without a path: what Claude Code takes as `ANTHROPIC_BASE_URL`."""
        if self._server is None:
            raise RuntimeError("the scripted model is not listening: use it in a `with` block")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def requests(self) -> tuple[ModelRequest, ...]:
        """The requests so far, oldest first, refused ones too."""
        with self._arrived:
            return tuple(self._requests)

    @property
    def side_requests(self) -> tuple[ModelRequest, ...]:
        """What agents asked beside their conversations so far, oldest first."""
        with self._arrived:
            return tuple(self._side_requests)

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
        self, dialect: Dialect, parsed: Parsed, headers: Mapping[str, str], *, side: bool = False
    ) -> tuple[ModelRequest, Identity]:
        """Record a request. The record is complete before the reply begins, so that a killed agent leaves
        it."""
        fault = find_pairing_fault(parsed.items) if self.strict else None
        with self._arrived:
            request = ModelRequest(
                number=len(self._requests) + len(self._side_requests) + 1,
                api=dialect.api,
                model=parsed.model,
                stream=parsed.stream,
                items=parsed.items,
                tools=parsed.tools,
                headers={name: value for name, value in headers.items() if not _SECRET_HEADER.search(name)},
                refused=dialect.refusal(fault) if fault else None,
                side=side,
            )
            (self._side_requests if side else self._requests).append(request)
            if self._log is not None:
                self._log.write(json.dumps(request.as_json(), ensure_ascii=True).encode() + b"\n")
            self._arrived.notify_all()
        return request, Identity(self._nonce, request.number)

    def decide(self, request: ModelRequest) -> Reply:
        """Ask the script, unless the request is beside the conversation. What it raises is kept for the end
        of the block and answered with status 500."""
        if request.side:
            return _SIDE_ANSWER
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
        path = self.path.partition("?")[0]
        names = self.server.model.models
        if path.endswith("/models"):
            data: list[Json] = [_model(name) for name in names]
            self._send(200, {"object": "list", "data": data, "models": [], "has_more": False})
        elif path.rpartition("/models/")[2] in names:
            self._send(200, _model(path.rpartition("/models/")[2]))
        else:
            self._send(404, _plain_error("not_found", f"nothing is served at {self.path}"))

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        try:
            body = read_json(self.rfile, self.headers)
        except MalformedRequestError as error:
            self.close_connection = True
            self._send(400, _plain_error("invalid_request_error", str(error)))
            return
        for dialect in DIALECTS:
            try:
                counted = dialect.count(path, body)
                if counted is not None:
                    self._send(200, counted)
                    return
                if dialect.serves(path):
                    parsed = dialect.parse(body)
                    break
            except MalformedRequestError as error:
                self._send(400, dialect.error(HttpError(400, "invalid_request_error", str(error))))
                return
        else:
            self._send(404, _plain_error("not_found", f"the scripted model has no API at {path}"))
            return
        side = dialect.is_side_request(body, dict(self.headers.items()))
        with contextlib.suppress(_ClosingError):
            self._answer(dialect, parsed, side=side)

    def _answer(self, dialect: Dialect, parsed: Parsed, *, side: bool) -> None:
        model = self.server.model
        request, identity = model.receive(dialect, parsed, dict(self.headers.items()), side=side)
        if request.refused:
            reply = Reply(error=HttpError(400, "invalid_request_error", request.refused))
        else:
            reply = model.decide(request)
        if isinstance(reply.error, HttpError):
            self._refuse(dialect, reply.error)
        elif parsed.stream:
            self._stream(dialect, parsed, reply, identity)
        else:
            self._pause(reply.hang_seconds + reply.slow_seconds)
            whole = reply.error is None or isinstance(reply.error, StreamCut)
            status = 200 if whole else dialect.failed_document_status
            self._send(
                status, dialect.document(parsed, reply, identity), cut=whole and reply.error is not None
            )

    def _stream(self, dialect: Dialect, parsed: Parsed, reply: Reply, identity: Identity) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("connection", "close")
        self.end_headers()
        steps = dialect.stream(parsed, reply, identity)
        for step in islice(steps, reply.error.events) if isinstance(reply.error, StreamCut) else steps:
            if isinstance(step, Pause) and step.until is not None:
                self._wait(step.until)
            elif isinstance(step, Pause):
                self._pause(step.seconds)
            else:
                self.wfile.write(_sse(step))
                self.wfile.flush()

    def _pause(self, seconds: float) -> None:
        if self.server.model.closing.wait(seconds):
            self.close_connection = True
            raise _ClosingError

    def _wait(self, awaited: threading.Event) -> None:
        self.server.model.halfway.set()
        while not awaited.wait(0.05):
            self._pause(0.0)

    def _refuse(self, dialect: Dialect, error: HttpError) -> None:
        headers = dict(error.headers)
        if error.retry_after is not None:
            headers["retry-after"] = f"{error.retry_after:g}"
        self._send(error.status, dialect.error(error), headers)

    def _send(
        self,
        status: int,
        document: JsonObject | None,
        headers: Mapping[str, str] | None = None,
        *,
        cut: bool = False,
    ) -> None:
        data = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = self.close_connection or cut
        self.wfile.write(data[: len(data) // 2] if cut else data)


def _sse(event: Event) -> bytes:
    data = event.data if isinstance(event.data, str) else json.dumps(event.data)
    name = f"event: {event.name}\n" if event.name else ""
    return f"{name}data: {data}\n\n".encode()


def _plain_error(code: str, message: str) -> JsonObject:
    return {"error": {"message": message, "type": code, "code": code, "param": None}}


def _model(name: str) -> JsonObject:
    """A model as both OpenAI and Anthropic list it."""
    ours: JsonObject = {"id": name, "object": "model", "created": 0, "owned_by": "scripted"}
    return {**ours, "type": "model", "display_name": name, "created_at": "2025-01-01T00:00:00Z"}
