"""Chat completions and Anthropic Messages: the same scripts, checks and records in other words."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest

from outlast.testing.scripted_model import Conversation, Reply, ScriptedModel, StreamError, ToolCall

PIXELS = b"\x89PNG not really"
PICTURE = f"image/png {len(PIXELS)} bytes sha256:{hashlib.sha256(PIXELS).hexdigest()}"
CLAUDE_CODE = {"User-Agent": "claude-cli/2.1.332 (external, sdk-cli)"}


class Speaker:
    """Speaks one API to the model as an agent does, in words that are the same for all."""

    path: str
    tool: Mapping[str, Any]

    def __init__(self, model: ScriptedModel) -> None:
        address = urlsplit(model.root_url)
        assert address.hostname == "127.0.0.1"
        self.connection = http.client.HTTPConnection(address.hostname, address.port or 0, timeout=30)

    def post(
        self, *messages: Mapping[str, Any], headers: Mapping[str, str] | None = None, **body: Any
    ) -> tuple[http.client.HTTPResponse, bytes]:
        document = {"model": "mock-1", "messages": list(messages), "tools": [self.tool], **body}
        self.connection.request("POST", self.path, json.dumps(document), dict(headers or {}))
        response = self.connection.getresponse()
        return response, response.read()

    def document(self, *messages: Mapping[str, Any], **body: Any) -> dict[str, Any]:
        response, data = self.post(*messages, **body)
        assert response.status == 200, data
        return dict(json.loads(data))

    def events(self, *messages: Mapping[str, Any], **body: Any) -> list[str]:
        response, data = self.post(*messages, stream=True, **body)
        assert response.status == 200, data
        return data.decode().strip().split("\n\n")

    def call(self, call_id: str) -> dict[str, Any]:
        raise NotImplementedError

    def result(self, call_id: str, text: str = "out") -> dict[str, Any]:
        raise NotImplementedError

    def answer(self, document: Mapping[str, Any]) -> str:
        raise NotImplementedError

    def asked(self, document: Mapping[str, Any]) -> tuple[str, Any, dict[str, Any]]:
        """The id and arguments of the one call of a reply, and the reply as the history holds it."""
        raise NotImplementedError

    def streamed(self, events: Sequence[str]) -> str:
        raise NotImplementedError


class Anthropic(Speaker):
    path = "/v1/messages?beta=true"
    tool: Mapping[str, Any] = {"name": "Bash", "input_schema": {}}

    def call(self, call_id: str) -> dict[str, Any]:
        return assistant([{"type": "tool_use", "id": call_id, "name": "Bash", "input": {}}])

    def result(self, call_id: str, text: str = "out") -> dict[str, Any]:
        return user([{"type": "tool_result", "tool_use_id": call_id, "content": text}])

    def answer(self, document: Mapping[str, Any]) -> str:
        assert document["stop_reason"] == "end_turn"
        return "".join(block["text"] for block in document["content"])

    def asked(self, document: Mapping[str, Any]) -> tuple[str, Any, dict[str, Any]]:
        assert document["stop_reason"] == "tool_use"
        [block] = document["content"]
        return block["id"], block["input"]["command"], assistant(document["content"])

    def streamed(self, events: Sequence[str]) -> str:
        deltas = [data_of(event)["delta"] for event in events if "content_block_delta" in event]
        return "".join(delta["text"] for delta in deltas)


class Chat(Speaker):
    path = "/v1/chat/completions"
    tool: Mapping[str, Any] = {"type": "function", "function": {"name": "bash"}}

    def call(self, call_id: str) -> dict[str, Any]:
        function = {"name": "bash", "arguments": "{}"}
        return assistant(None) | {"tool_calls": [{"id": call_id, "type": "function", "function": function}]}

    def result(self, call_id: str, text: str = "out") -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call_id, "content": text}

    def answer(self, document: Mapping[str, Any]) -> str:
        [choice] = document["choices"]
        assert choice["finish_reason"] == "stop"
        return str(choice["message"]["content"])

    def asked(self, document: Mapping[str, Any]) -> tuple[str, Any, dict[str, Any]]:
        [choice] = document["choices"]
        assert choice["finish_reason"] == "tool_calls"
        [call] = choice["message"]["tool_calls"]
        return call["id"], json.loads(call["function"]["arguments"])["command"], choice["message"]

    def streamed(self, events: Sequence[str]) -> str:
        assert events[-1] == "data: [DONE]"
        return "".join(data_of(event)["choices"][0]["delta"].get("content", "") for event in events[:-1])


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def data_of(event: str) -> dict[str, Any]:
    return dict(json.loads(event.partition("data: ")[2]))


@contextlib.contextmanager
def speaking(kind: type[Speaker], model: ScriptedModel) -> Iterator[Speaker]:
    speaker = kind(model)
    try:
        yield speaker
    finally:
        speaker.connection.close()


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(params=[Anthropic, Chat])
def speaker(model: ScriptedModel, request: pytest.FixtureRequest) -> Iterator[Speaker]:
    with speaking(request.param, model) as speaker:
        yield speaker


@pytest.fixture
def anthropic(model: ScriptedModel) -> Iterator[Speaker]:
    with speaking(Anthropic, model) as speaker:
        yield speaker


@pytest.fixture
def chat(model: ScriptedModel) -> Iterator[Speaker]:
    with speaking(Chat, model) as speaker:
        yield speaker


def test_texts_are_echoed_and_counted(speaker: Speaker) -> None:
    assert speaker.answer(speaker.document(user("one"))) == "ECHO 1: one"
    history = [user("one"), assistant("ECHO 1: one"), user("two\r\n ✓")]
    assert speaker.answer(speaker.document(*history)) == "ECHO 2: two\r\n ✓"


def test_a_stream_holds_the_same_text_in_its_pieces(speaker: Speaker) -> None:
    events = speaker.events(user("[[slow:0.01]] long enough for ten"))
    assert speaker.streamed(events) == "ECHO 1: [[slow:0.01]] long enough for ten"


def test_tool_markers_call_the_shell_tool_one_after_the_other(speaker: Speaker) -> None:
    history = [user("[[tools:2:echo {i}]]")]
    for number in range(2):
        call, command, reply = speaker.asked(speaker.document(*history))
        assert command == f"echo {number}"
        history += [reply, speaker.result(call, f"out {number}")]
    assert speaker.answer(speaker.document(*history)) == "DONE 2: out 1"


def test_an_anthropic_stream_has_the_events_of_a_call(anthropic: Speaker) -> None:
    events = [data_of(event) for event in anthropic.events(user("[[tool:touch done]]"))]
    assert [event["type"] for event in events] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert json.loads(events[3]["delta"]["partial_json"])["command"] == "touch done"
    assert events[5]["delta"]["stop_reason"] == "tool_use"


def test_a_chat_stream_counts_tokens_when_it_is_asked_to(chat: Speaker) -> None:
    plain = chat.events(user("one"))
    counted = chat.events(user("one"), stream_options={"include_usage": True})
    assert len(counted) == len(plain) + 1
    assert data_of(counted[-2])["usage"]["total_tokens"] > 0


def test_dangling_call_is_refused_in_the_words_of_the_api(
    anthropic: Speaker, chat: Speaker, model: ScriptedModel
) -> None:
    response, data = anthropic.post(user("one"), anthropic.call("c1"), user("two"))
    assert response.status == 400
    error = json.loads(data)
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert "without `tool_result` blocks immediately after: c1" in error["error"]["message"]
    assert model.requests[-1].refused == error["error"]["message"]
    response, data = chat.post(user("one"), chat.call("c1"), user("two"))
    assert response.status == 400
    assert "did not have response messages: c1" in json.loads(data)["error"]["message"]


@pytest.mark.parametrize("twice", [False, True])
def test_orphan_result_and_result_twice_are_refused(speaker: Speaker, *, twice: bool) -> None:
    result = speaker.result("c1")
    history = [user("one"), *([speaker.call("c1"), result, result] if twice else [result])]
    response, data = speaker.post(*history)
    assert response.status == 400
    assert "c1" in json.loads(data)["error"]["message"]


def test_a_call_whose_result_comes_after_a_text_of_the_same_message_is_refused(anthropic: Speaker) -> None:
    late = user([{"type": "text", "text": "first"}, *anthropic.result("c1")["content"]])
    assert anthropic.post(user("one"), anthropic.call("c1"), late)[0].status == 400


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "at least one message"),
        ([user([{"type": "text", "text": " "}])], "non-whitespace"),
        ([{"role": "wizard", "content": "x"}], "wizard"),
        ([user([7])], "must be an object"),
    ],
)
def test_a_message_that_is_not_of_the_api_is_refused(
    anthropic: Speaker, messages: list[Any], fault: str
) -> None:
    response, data = anthropic.post(*messages)
    assert response.status == 400
    assert fault in json.loads(data)["error"]["message"]


@pytest.mark.parametrize(("status", "word"), [(401, "authentication_error"), (529, "overloaded_error")])
def test_an_error_of_anthropic_has_the_type_of_its_status(anthropic: Speaker, status: int, word: str) -> None:
    response, data = anthropic.post(user(f"[[err:{status}]]"))
    assert response.status == status
    assert json.loads(data)["error"]["type"] == word


def test_an_error_marker_may_say_when_to_try_again(speaker: Speaker) -> None:
    response, _ = speaker.post(user("[[err:429:7]]"))
    assert (response.status, response.getheader("retry-after")) == (429, "7")
    assert speaker.post(user("[[err:429]]"))[0].getheader("retry-after") is None


def test_a_failure_inside_the_stream_or_instead_of_the_document() -> None:
    def fail(_: Conversation) -> Reply:
        return Reply(error=StreamError("overloaded_error", "too much"))

    with ScriptedModel(fail) as model:
        for kind in (Anthropic, Chat):
            with speaking(kind, model) as speaker:
                last = data_of(speaker.events(user("go"))[-1])
                assert last["error"]["message"] == "too much"
                assert speaker.post(user("go"))[0].status == 500


@pytest.mark.parametrize("kind", [Anthropic, Chat])
def test_a_reply_stops_halfway_until_it_is_let_go_on(kind: type[Speaker]) -> None:
    go_on = threading.Event()
    received: list[str] = []
    stopped = Reply(text="first half", halfway=go_on)
    with ScriptedModel(lambda _: stopped) as model, speaking(kind, model) as speaker:
        read = threading.Thread(target=lambda: received.append(speaker.streamed(speaker.events(user("x")))))
        read.start()
        assert model.halfway.wait(30)
        assert not received
        go_on.set()
        read.join(30)
    assert received == ["first half"]


def test_closing_ends_a_reply_that_stopped_halfway() -> None:
    stopped = Reply(text="first half", halfway=threading.Event())
    with ScriptedModel(lambda _: stopped) as model, speaking(Anthropic, model) as speaker:
        read = threading.Thread(target=speaker.post, args=(user("x"),), kwargs={"stream": True})
        read.start()
        assert model.halfway.wait(30)
        model.close()
        read.join(30)
        assert not read.is_alive()


def test_a_side_request_of_claude_code_uses_no_script_up(model: ScriptedModel) -> None:
    said: list[str] = []

    def script(conversation: Conversation) -> Reply:
        said.append(conversation.last_user_text)
        return Reply(text="answer")

    model.script = script
    with speaking(Anthropic, model) as speaker:
        quota: dict[str, Any] = {"headers": CLAUDE_CODE, "tools": [], "max_tokens": 1}
        title: dict[str, Any] = {
            "headers": CLAUDE_CODE,
            "tools": [],
            "output_config": {"format": {"type": "json_schema"}},
        }
        assert "answer" not in speaker.answer(speaker.document(user("quota"), **quota))
        assert json.loads(speaker.answer(speaker.document(user("name it"), **title)))["title"]
        speaker.document(user("small"), headers=CLAUDE_CODE, tools=[], model="claude-haiku-4-5")
        assert speaker.answer(speaker.document(user("one"), headers=CLAUDE_CODE)) == "answer"
        assert speaker.answer(speaker.document(user("two"), tools=[], model="claude-haiku-4-5")) == "answer"
    assert said == ["one", "two"]
    assert [request.items[-1].text for request in model.requests] == ["one", "two"]
    assert [request.items[-1].text for request in model.side_requests] == ["quota", "name it", "small"]


def test_counting_tokens_is_no_request_of_the_model(anthropic: Speaker, model: ScriptedModel) -> None:
    anthropic.path = "/v1/messages/count_tokens"
    few = anthropic.document(user("one"))["input_tokens"]
    assert anthropic.document(user("one" * 100))["input_tokens"] > few > 0
    assert model.requests == ()


def test_what_claude_code_asks_before_it_begins_is_answered(anthropic: Speaker) -> None:
    statuses = []
    for method, path in [("HEAD", "/"), ("GET", "/v1/models?limit=1000"), ("GET", "/v1/models/mock-1")]:
        anthropic.connection.request(method, path)
        response = anthropic.connection.getresponse()
        statuses.append((response.status, b"mock-1" in response.read()))
    assert statuses == [(200, False), (200, True), (200, True)]


def test_what_is_added_in_the_users_name_is_not_said_by_the_user(
    anthropic: Speaker, model: ScriptedModel
) -> None:
    blocks = ["<system-reminder>[[err:500]]</system-reminder>", "said", "in two blocks"]
    interrupted = user([{"type": "text", "text": "[Request interrupted by user]"}])
    content = [{"type": "text", "text": text} for text in blocks]
    assert anthropic.answer(anthropic.document(interrupted, user(content))) == "ECHO 1: said\nin two blocks"
    assert [item.kind for item in model.requests[-1].items] == ["context", "context", "user"]


def test_a_reminder_behind_an_output_is_recorded_but_not_repeated(
    anthropic: Speaker, model: ScriptedModel
) -> None:
    output = "hi\n\n<system-reminder>\nmany tokens left\n</system-reminder>"
    history = [user("[[tool:echo hi]]"), anthropic.call("c1"), anthropic.result("c1", output)]
    assert anthropic.answer(anthropic.document(*history)) == "DONE 1: hi"
    assert model.requests[-1].items[-1].text == output


def test_pictures_are_recorded_by_type_size_and_digest(
    anthropic: Speaker, chat: Speaker, model: ScriptedModel
) -> None:
    data = base64.b64encode(PIXELS).decode()
    url = f"data:image/png;base64,{data}"
    source = {"type": "base64", "media_type": "image/png", "data": data}
    text = {"type": "text", "text": "look"}
    anthropic.document(user([{"type": "image", "source": source}, text]))
    chat.document(user([{"type": "image_url", "image_url": {"url": url}}, text]))
    chat.connection.request(
        "POST",
        "/v1/responses",
        json.dumps({"input": [user([{"type": "input_image", "image_url": url}, text])]}),
    )
    assert chat.connection.getresponse().status == 200
    for request in model.requests:
        assert [(item.kind, item.text) for item in request.items] == [("image", PICTURE), ("user", "look")]


def test_parallel_calls_are_answered_in_any_order(speaker: Speaker, model: ScriptedModel) -> None:
    def script(conversation: Conversation) -> Reply:
        calls = tuple(ToolCall(name, {"command": name}) for name in ("one", "two"))
        return Reply(
            text="both" if conversation.results else "calling", calls=() if conversation.results else calls
        )

    model.script = script
    reply = speaker.document(user("go"))
    if isinstance(speaker, Anthropic):
        ids = [block["id"] for block in reply["content"] if block["type"] == "tool_use"]
        history = [
            assistant(reply["content"]),
            user([*speaker.result(ids[1])["content"], *speaker.result(ids[0])["content"]]),
        ]
    else:
        message = reply["choices"][0]["message"]
        ids = [call["id"] for call in message["tool_calls"]]
        history = [message, speaker.result(ids[1]), speaker.result(ids[0])]
    assert speaker.answer(speaker.document(user("go"), *history)) == "both"
