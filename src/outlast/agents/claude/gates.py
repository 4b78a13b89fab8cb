"""What Claude Code asks of its client: permissions and questions as gates, with each choice's answer made
ready.

The answers travel in the gate's payload, so that an answer can be given by a later owner, and so that a
choice that was never offered has no answer to give."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from outlast.agents.claude.wire import EMPTY, decode, plain
from outlast.agents.contract import GateRequested
from outlast.agents.turnwise import bounded
from outlast.records.types import Choice

QUESTION_LIMIT = 8 * 1024
_REJECTED = "The user rejected this."
_PERSISTENT = {
    "localSettings": "kept in the project's local settings",
    "projectSettings": "kept in the project's settings",
    "userSettings": "kept in the user's settings",
}
_ALLOW_ONCE = Choice(id="allow_once", label="Allow once", kind="allow_once")
_REJECT_ONCE = Choice(id="reject_once", label="Reject", kind="reject_once")


class Payload(msgspec.Struct, frozen=True):
    """The payload of a gate: Claude Code's id of the request, and the response for each choice."""

    id: str
    responses: dict[str, msgspec.Raw]


class _Asked(msgspec.Struct, frozen=True):
    tool_name: str
    input: msgspec.Raw = EMPTY
    description: str = ""
    decision_reason: str = ""
    permission_suggestions: tuple[msgspec.Raw, ...] | None = None


class _Rule(msgspec.Struct, frozen=True):
    tool_name: str = msgspec.field(name="toolName")
    content: str = msgspec.field(default="", name="ruleContent")


class _Suggestion(msgspec.Struct, frozen=True):
    type: str
    rules: tuple[_Rule, ...] = ()
    directories: tuple[str, ...] = ()
    mode: str = ""
    destination: str = ""


class _Option(msgspec.Struct, frozen=True):
    label: str
    description: str = ""


class _Question(msgspec.Struct, frozen=True):
    question: str
    options: tuple[_Option, ...] = ()
    several: bool = msgspec.field(default=False, name="multiSelect")


class _Questions(msgspec.Struct, frozen=True):
    questions: tuple[_Question, ...]


_Offers = Iterator[tuple[Choice, dict[str, object]]]


def gate_request(request: str, asked: msgspec.Raw) -> GateRequested | None:
    """The gate for a `can_use_tool` request, or None when a person can't answer it by choosing."""
    about = decode(asked, _Asked)
    if about is None:
        return None
    if about.tool_name == "AskUserQuestion":
        return _question(request, about)
    return _gate(request, "permission", _permission(about), _permissions(about))


def _permission(about: _Asked) -> str:
    lines = [f"Use {about.tool_name}?", about.decision_reason, bounded(plain(about.input), QUESTION_LIMIT)]
    return "\n".join(line for line in lines if line)


def _permissions(about: _Asked) -> _Offers:
    # Without an `updatedInput` the call is made with its own input (measured).
    yield _ALLOW_ONCE, {"behavior": "allow"}
    always = _always(about.permission_suggestions or ())
    if always is not None:
        label, suggestions = always
        yield (
            Choice(id="allow_always", label=label, kind="allow_always"),
            {"behavior": "allow", "updatedPermissions": suggestions},
        )
    yield _REJECT_ONCE, {"behavior": "deny", "message": _REJECTED}


def _always(suggestions: tuple[msgspec.Raw, ...]) -> tuple[str, list[msgspec.Raw]] | None:
    """What "always" means, in words, and the changes that do it: the rules that Claude Code proposes, and its
    wider proposals, such as another mode, only where it proposes no rule."""
    known = [(raw, about) for raw in suggestions if (about := decode(raw, _Suggestion)) is not None]
    rules = [one for one in known if one[1].type == "addRules"]
    taken = rules + [one for one in known if one[1].type == "addDirectories"] if rules else known
    words = [words for _, about in taken if (words := _in_words(about))]
    if len(words) != len(taken) or not words:
        return None  # What can't be named is not offered.
    return f"Always allow: {'; '.join(words)}", [raw for raw, _ in taken]


def _in_words(about: _Suggestion) -> str:
    where = _PERSISTENT.get(about.destination, "for this session")
    if about.type == "addRules":
        rules = ", ".join(
            f"{rule.tool_name}({rule.content})" if rule.content else rule.tool_name for rule in about.rules
        )
        return f"{rules} ({where})" if rules else ""
    if about.type == "addDirectories":
        return f"work in {', '.join(about.directories)} ({where})"
    if about.type == "setMode":
        return f"the mode {about.mode} ({where})"
    return ""


def _question(request: str, about: _Asked) -> GateRequested | None:
    """One question with options to choose one of; several at once, or several answers, is more than a choice
    can say."""
    asked = decode(about.input, _Questions)
    if asked is None or len(asked.questions) != 1:
        return None
    question = asked.questions[0]
    if question.several or not question.options:
        return None
    given = decode(about.input, dict[str, msgspec.Raw]) or {}

    def offers() -> _Offers:
        for option in question.options:
            label = f"{option.label}: {option.description}" if option.description else option.label
            answers = {**given, "answers": {question.question: option.label}}
            yield Choice(id=option.label, label=label), {"behavior": "allow", "updatedInput": answers}

    return _gate(request, "question", question.question, offers())


def _gate(request: str, kind: str, question: str, offers: _Offers) -> GateRequested:
    choices: list[Choice] = []
    responses: dict[str, msgspec.Raw] = {}
    for choice, response in offers:
        name = choice.id if choice.id not in responses else f"{choice.id}_{len(responses)}"
        choices.append(Choice(id=name, label=choice.label, kind=choice.kind))
        responses[name] = msgspec.Raw(msgspec.json.encode(response))
    return GateRequested(
        gate=request,
        kind="permission" if kind == "permission" else "question",
        question=bounded(question, QUESTION_LIMIT),
        choices=tuple(choices),
        payload=msgspec.json.encode(Payload(request, responses)),
    )
