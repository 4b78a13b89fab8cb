from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from outlast.testing.scripted_model import (
    Conversation,
    HttpError,
    Reply,
    ScriptedModel,
    StreamCut,
    StreamError,
    ToolCall,
)

SHELL = [{"type": "function", "name": "exec_command"}]
HANGS_FOR_LONG = 600


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "exec_command", "arguments": "{}"}


def output(call_id: str, text: str = "out") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


class Client:
    """Speaks to the model as an agent does."""

    def __init__(self, base_url: str) -> None:
        address = urlsplit(base_url)
        assert address.hostname == "127.0.0.1"
        self.connection = http.client.HTTPConnection(address.hostname, address.port or 0, timeout=30)

    def post(
        self, *items: Mapping[str, Any], headers: Mapping[str, str] | None = None, **body: Any
    ) -> tuple[http.client.HTTPResponse, bytes]:
        document = {"model": "mock-1", "input": list(items), "tools": SHELL, **body}
        self.connection.request("POST", "/v1/responses", json.dumps(document), dict(headers or {}))
        response = self.connection.getresponse()
        return response, response.read()

    def document(self, *items: Mapping[str, Any], **body: Any) -> dict[str, Any]:
        response, data = self.post(*items, **body)
        assert response.status == 200, data
        return dict(json.loads(data))

    def events(self, *items: Mapping[str, Any], **body: Any) -> list[dict[str, Any]]:
        response, data = self.post(*items, stream=True, **body)
        assert response.status == 200, data
        assert response.getheader("content-type") == "text/event-stream"
        events = []
        for block in data.decode().strip().split("\n\n"):
            name, _, payload = block.partition("\n")
            event = json.loads(payload.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            events.append(event)
        return events


@contextlib.contextmanager
def client_of(model: ScriptedModel) -> Iterator[Client]:
    client = Client(model.base_url)
    try:
        yield client
    finally:
        client.connection.close()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def client(model: ScriptedModel) -> Iterator[Client]:
    with client_of(model) as client:
        yield client


def text_of(document: Mapping[str, Any]) -> str:
    [message] = document["output"]
    return str(message["content"][0]["text"])


def test_without_markers_the_text_comes_back_with_the_number_of_user_texts(client: Client) -> None:
    assert text_of(client.document(user("one"))) == "ECHO 1: one"
    assert text_of(client.document(user("one"), user("two\r\n  ✓"))) == "ECHO 2: two\r\n  ✓"


def test_what_an_agent_adds_in_the_users_name_is_not_a_user_text(
    client: Client, model: ScriptedModel
) -> None:
    added = user("<environment_context>\n[[err:500]]</environment_context>")
    assert text_of(client.document(added, user("hello"))) == "ECHO 1: hello"
    assert [item.kind for item in model.requests[-1].items] == ["context", "user"]


def test_a_stream_has_the_events_of_a_message_in_order(client: Client) -> None:
    events = client.events(user("hello"))
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(8))
    completed = events[-1]["response"]
    assert text_of(completed) == "ECHO 1: hello"
    assert completed["usage"]["total_tokens"] > 0


def test_a_slow_text_comes_in_ten_pieces(client: Client) -> None:
    events = client.events(user("[[slow:0.01]] a text that is long enough"))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert len(deltas) == 10
    assert "".join(deltas) == "ECHO 1: [[slow:0.01]] a text that is long enough"


def test_tool_markers_call_the_shell_tool_of_the_agent_and_end_with_a_text(client: Client) -> None:
    history: list[dict[str, Any]] = [user("[[tools:2:echo {i}; true]]")]
    for number in range(2):
        [asked] = client.document(*history)["output"]
        assert asked["name"] == "exec_command"
        assert json.loads(asked["arguments"]) == {"cmd": f"echo {number}; true"}
        history += [asked, output(asked["call_id"], f"out {number}")]
    assert text_of(client.document(*history)) == "DONE 2: out 1"


def test_a_streamed_call_carries_its_arguments(client: Client) -> None:
    events = client.events(user("[[tool:touch done]]"))
    done = next(event for event in events if event["type"] == "response.function_call_arguments.done")
    assert json.loads(done["arguments"]) == {"cmd": "touch done"}
    [item] = events[-1]["response"]["output"]
    assert item["call_id"]


def test_an_agent_without_a_shell_tool_is_told_so(client: Client) -> None:
    assert text_of(client.document(user("[[tool:true]]"), tools=[])).startswith("NO SHELL TOOL")


def test_an_error_marker_answers_with_the_status(client: Client) -> None:
    response, data = client.post(user("[[err:503]]"))
    assert response.status == 503
    assert json.loads(data)["error"]["message"] == "scripted error 503"


def test_an_error_marker_with_a_word_fails_inside_the_stream(client: Client) -> None:
    events = client.events(user("[[err:context_length_exceeded]]"))
    assert [event["type"] for event in events] == ["response.created", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == "context_length_exceeded"


def test_dangling_call_is_refused(client: Client, model: ScriptedModel) -> None:
    response, data = client.post(user("one"), call("c1"), user("two"))
    assert response.status == 400
    message = json.loads(data)["error"]["message"]
    assert "no tool output found for call c1" in message
    assert model.requests[-1].refused == message


def test_orphan_result_is_refused(client: Client) -> None:
    response, data = client.post(user("one"), output("c1"))
    assert response.status == 400
    assert "no tool call found for the output of call c1" in json.loads(data)["error"]["message"]


def test_result_twice_is_refused(client: Client) -> None:
    response, data = client.post(user("one"), call("c1"), output("c1"), output("c1"))
    assert response.status == 400
    assert "appears twice" in json.loads(data)["error"]["message"]


def test_a_lenient_model_accepts_any_history() -> None:
    with ScriptedModel(strict=False) as model, client_of(model) as client:
        assert text_of(client.document(user("one"), output("c1"), user("two"))) == "ECHO 2: two"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"previous_response_id": "resp_1"}, "keeps no state"),
        ({"input": 7}, "`input` must be"),
        ({"input": [7]}, "must be an object"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "unknown role 'wizard'"),
    ],
)
def test_a_request_that_is_not_of_the_api_is_refused(
    client: Client, body: dict[str, Any], fault: str
) -> None:
    response, data = client.post(**body)
    assert response.status == 400
    assert fault in json.loads(data)["error"]["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_not_a_json_object_is_refused(client: Client, body: bytes) -> None:
    client.connection.request("POST", "/v1/responses", body)
    response = client.connection.getresponse()
    assert response.status == 400
    assert "the body" in json.loads(response.read())["error"]["message"]


def test_compressed_and_chunked_bodies_are_read(client: Client) -> None:
    document = json.dumps({"model": "m", "input": "hello"}).encode()
    client.connection.request("POST", "/v1/responses", gzip.compress(document), {"content-encoding": "gzip"})
    assert text_of(json.loads(client.connection.getresponse().read())) == "ECHO 1: hello"
    parts = iter([document[:9], document[9:]])
    client.connection.request(
        "POST", "/v1/responses", parts, {"transfer-encoding": "chunked"}, encode_chunked=True
    )
    assert text_of(json.loads(client.connection.getresponse().read())) == "ECHO 1: hello"


def test_unknown_paths_are_404_and_the_models_are_listed(client: Client) -> None:
    client.connection.request("POST", "/v1/elsewhere", "{}")
    response = client.connection.getresponse()
    assert (response.status, b"no API" in response.read()) == (404, True)
    client.connection.request("GET", "/v1/models?client_version=1")
    assert json.loads(client.connection.getresponse().read())["data"][0]["id"] == "mock-1"


def test_a_request_is_recorded_with_all_that_it_carried_and_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with ScriptedModel(log=log) as model, client_of(model) as client:
        secrets = {"authorization": "Bearer dummy-1", "x-api-key": "dummy-2", "cookie": "dummy-3"}
        client.post(
            {"role": "developer", "content": "rules"},
            user("one"),
            call("c1"),
            output("c1"),
            {"type": "reasoning", "summary": []},
            {"role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
            user("two"),
            headers={**secrets, "x-agent": "tested"},
            instructions="be brief",
        )
        [request] = model.requests
        assert (request.api, request.model, request.stream, request.tools) == (
            "responses",
            "mock-1",
            False,
            ("exec_command",),
        )
        assert [(item.kind, item.text, item.call) for item in request.items] == [
            ("system", "be brief", None),
            ("system", "rules", None),
            ("user", "one", None),
            ("call", "{}", "c1"),
            ("result", "out", "c1"),
            ("other", "reasoning", None),
            ("assistant", "done", None),
            ("user", "two", None),
        ]
        assert request.headers["x-agent"] == "tested"
    [line] = log.read_text().splitlines()
    assert json.loads(line)["items"][3]["call"] == "c1"
    assert "dummy-" not in line


def test_a_script_decides_instead_of_the_markers() -> None:
    def script(conversation: Conversation) -> Reply:
        if conversation.results:
            return Reply(text="both ran: " + ", ".join(conversation.results))
        first = conversation.shell("one")
        assert first is not None
        return Reply(text="two calls", calls=(first, ToolCall("other_tool", {"n": 1})))

    with ScriptedModel(script) as model, client_of(model) as client:
        message, *calls = client.document(user("go"))["output"]
        assert message["content"][0]["text"] == "two calls"
        assert [asked["name"] for asked in calls] == ["exec_command", "other_tool"]
        results = [output(asked["call_id"], asked["name"]) for asked in calls]
        assert text_of(client.document(user("go"), *calls, *results)) == "both ran: exec_command, other_tool"


@pytest.mark.parametrize(
    ("error", "status"), [(HttpError(429, "rate_limited", retry_after=7), 429), (StreamError("x"), 200)]
)
def test_a_script_may_fail_the_request(error: HttpError | StreamError, status: int) -> None:
    with ScriptedModel(lambda _: Reply(error=error)) as model, client_of(model) as client:
        response, data = client.post(user("go"))
        assert response.status == status
        assert response.getheader("retry-after") == ("7" if status == 429 else None)
        assert json.loads(data)["error"]["code"] == error.code


def test_a_refusal_may_carry_headers() -> None:
    limited = HttpError(429, retry_after=7, headers={"x-limit-reset": "12"})
    with ScriptedModel(lambda _: Reply(error=limited)) as model, client_of(model) as client:
        response, _ = client.post(user("go"))
        assert (response.getheader("retry-after"), response.getheader("x-limit-reset")) == ("7", "12")


@pytest.mark.parametrize("events", [0, 2])
def test_a_stream_may_be_cut_after_some_events(events: int) -> None:
    cut = Reply(text="never whole", error=StreamCut(events))
    with ScriptedModel(lambda _: cut) as model, client_of(model) as client:
        response, data = client.post(user("go"), stream=True)
        assert (response.status, data.count(b"data: ")) == (200, events)
        assert b"response.completed" not in data


def test_a_document_may_be_cut_in_its_middle() -> None:
    cut = Reply(text="never whole", error=StreamCut())
    with ScriptedModel(lambda _: cut) as model, client_of(model) as client:
        with pytest.raises(http.client.IncompleteRead):
            client.post(user("go"))
        assert len(model.requests) == 1


def test_a_fault_in_a_script_is_raised_at_the_end_of_the_block() -> None:
    def script(conversation: Conversation) -> Reply:
        raise LookupError("no such chapter")

    def use() -> None:
        with ScriptedModel(script) as model, client_of(model) as client:
            response, data = client.post(user("go"))
            assert (response.status, b"no such chapter" in data) == (500, True)

    with pytest.raises(LookupError, match="no such chapter"):
        use()


def test_waiting_for_a_request_ends_when_it_arrives_or_says_that_it_did_not() -> None:
    with ScriptedModel() as model, client_of(model) as client:
        with pytest.raises(TimeoutError, match="none of 0 requests"):
            model.wait_for(lambda _: True, timeout=0.01)
        sender = threading.Thread(target=client.document, args=(user("late"),))
        sender.start()
        assert model.wait_for(lambda request: request.items[-1].text == "late").number == 1
        sender.join()


def test_call_ids_of_two_servers_differ_so_that_a_history_may_outlive_its_server() -> None:
    ids = set()
    for _ in range(2):
        with ScriptedModel() as model, client_of(model) as client:
            ids.add(client.document(user("[[tool:true]]"))["output"][0]["call_id"])
    assert len(ids) == 2


def test_never_settles_closing_ends_a_reply_that_hangs() -> None:
    received: list[bytes] = []
    with ScriptedModel() as model:
        client = Client(model.base_url)

        def read_to_the_end() -> None:
            try:
                received.append(client.post(user(f"[[hang:{HANGS_FOR_LONG}]]"), stream=True)[1])
            except (http.client.HTTPException, ConnectionError):
                received.append(b"cut off before the headers")

        reader = threading.Thread(target=read_to_the_end)
        reader.start()
        model.wait_for(lambda request: request.stream)
    reader.join(timeout=30)
    client.connection.close()
    assert len(received) == 1
    assert b"response.completed" not in received[0]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("scripted-model")]


def test_closing_ends_idle_connections() -> None:
    with ScriptedModel() as model, client_of(model) as client:
        client.document(user("kept alive"))
        model.close()
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("scripted-model")]
        with pytest.raises(RuntimeError, match="not listening"):
            _ = model.base_url


def test_a_reader_that_goes_away_leaves_the_model_serving(
    client: Client, model: ScriptedModel, capfd: pytest.CaptureFixture[str]
) -> None:
    body = json.dumps({"input": "[[slow:0.2]] bye", "stream": True})
    client.connection.request("POST", "/v1/responses", body)
    client.connection.close()
    model.wait_for(lambda request: request.stream)
    assert text_of(client.document(user("still there?"))) == "ECHO 1: still there?"
    model.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_as_a_process_it_prints_its_address_and_ends_on_a_signal_while_a_reply_hangs(
    tmp_path: Path, number: signal.Signals
) -> None:
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "outlast.testing.scripted_model", "--port", "0", "--log", str(log)]
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            client = Client(json.loads(process.stdout.readline())["base_url"])
            client.connection.request(
                "POST", "/v1/responses", json.dumps({"input": f"[[hang:{HANGS_FOR_LONG}]]", "stream": True})
            )
            response = client.connection.getresponse()
            assert response.readline() == b"event: response.created\n"
            process.send_signal(number)
            assert process.wait(timeout=30) == 0
            response.close()
            client.connection.close()
        finally:
            process.kill()
    assert json.loads(log.read_text())["items"][0]["text"] == f"[[hang:{HANGS_FOR_LONG}]]"


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open(
    model: ScriptedModel, tmp_path: Path
) -> None:
    port = urlsplit(model.base_url).port
    assert port is not None
    with pytest.raises(OSError, match="in use"):
        ScriptedModel(port=port).__enter__()
    with pytest.raises(FileNotFoundError):
        ScriptedModel(log=tmp_path / "missing" / "log").__enter__()
