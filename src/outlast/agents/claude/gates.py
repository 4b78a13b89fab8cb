"""What Claude Code asks of its client: permissions and questions as gates, with each choice's answer made
ready.

The answers travel in the gates' payloads, so that an answer can be given by a later owner, and so that a
choice that was never offered has no answer to give. A request with several questions is a gate for each; it
is answered once all of them are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

import msgspec

from outlast.agents.claude.wire import EMPTY
from outlast.agents.contract import GateRequested
from outlast.agents.shapes import decode, plain
from outlast.agents.turnwise import OFFER_MOST, bounded, distinct
from outlast.records.types import Choice

QUESTION_LIMIT = 8 * 1024
QUESTIONS_MOST = 16
"""Questions of one request. Claude Code itself lets the model ask four (measured)."""
COMBINED_MOST = 6
"""Options of a question with several answers: each combination of them is a choice, and 64 can still be read.
Claude Code itself lets the model offer four (measured)."""
OPTIONS_MOST = 100
"""Options of a question with one answer."""
INPUT_MOST = 256 * 1024
"""Bytes of a request with questions: it is kept once, for the answer repeats it."""
OFFERED_MOST = 64 * 1024
"""Characters of all choices that the questions of a request make. An option's label stands in up to 32."""
_NONE = "none of these"
_REJECTED = "The user rejected this."
_PERSISTENT = {
    "localSettings": "kept in the project's local settings",
    "projectSettings": "kept in the project's settings",
    "userSettings": "kept in the user's settings",
}
_ALLOW_ONCE = Choice(id="allow_once", label="Allow once", kind="allow_once")
_REJECT_ONCE = Choice(id="reject_once", label="Reject", kind="reject_once")


class UnaskableError(Exception):
    """A person can't answer it by choosing; says why."""


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a gate: Claude Code's id of the request, and the response for each choice. For a
    question it is what is said to `question` by each choice, and the whole request's `input`, of which the
    gate is the `part`-th of `parts`, from 1; the input is in the first one alone."""

    id: str
    responses: dict[str, msgspec.Raw] = {}
    question: str = ""
    answers: dict[str, str] = {}
    input: msgspec.Raw = EMPTY
    part: int = 1
    parts: int = 1

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of all gates of the request."""
        return tuple(_name(self.id, part, self.parts) for part in range(1, self.parts + 1))


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


def gate_requests(request: str, asked: msgspec.Raw) -> list[GateRequested]:
    """The gates for a `can_use_tool` request. Raises UnaskableError."""
    about = decode(asked, _Asked)
    if about is None:
        raise UnaskableError("it has not the shape of a request")
    if about.tool_name == "AskUserQuestion":
        return _questions(request, about)
    return [_permission_gate(request, about)]


def is_of(gate: str, request: str) -> bool:
    """Whether the gate is one of the request's."""
    return gate == request or gate.startswith(f"{request}{_PART}")


def response(answered: Mapping[str, tuple[Payload, str]], payload: Payload) -> msgspec.Raw | None:
    """What Claude Code is told, given the choices that were made, by gate; None as long as one is missing.
    Raises KeyError for a choice that was not offered."""
    if not payload.question:
        return payload.responses[answered[payload.id][1]]
    if any(gate not in answered for gate in payload.gates):
        return None
    parts = [answered[gate] for gate in payload.gates]
    answers = {part.question: part.answers[choice] for part, choice in parts}
    given = decode(parts[0][0].input, dict[str, msgspec.Raw]) or {}
    allowed = {"behavior": "allow", "updatedInput": {**given, "answers": answers}}
    return msgspec.Raw(msgspec.json.encode(allowed))


def _permission_gate(request: str, about: _Asked) -> GateRequested:
    choices: list[Choice] = []
    responses: dict[str, msgspec.Raw] = {}
    for choice, told in _permissions(about):
        choices.append(choice)
        responses[choice.id] = msgspec.Raw(msgspec.json.encode(told))
    return _gate("permission", request, _permission(about), choices, Payload(request, responses))


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
    label = f"Always allow: {'; '.join(words)}"
    if len(label) + sum(len(raw) for raw, _ in taken) > OFFER_MOST:
        return None
    return label, [raw for raw, _ in taken]


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


def _questions(request: str, about: _Asked) -> list[GateRequested]:
    if len(about.input) > INPUT_MOST:
        raise UnaskableError(f"it has {len(about.input)} bytes, and {INPUT_MOST} are kept")
    asked = decode(about.input, _Questions)
    questions = () if asked is None else asked.questions
    texts = [question.question for question in questions]
    if not 0 < len(questions) <= QUESTIONS_MOST:
        raise UnaskableError(f"it has {len(questions)} questions, and can have 1 to {QUESTIONS_MOST}")
    if len(set(texts)) < len(texts) or not all(texts):
        raise UnaskableError("answers go by the questions' words, and these are empty or not different")
    for question in questions:
        _check_options(question)
    made = sum(map(_made_of, questions))
    if made > OFFERED_MOST:
        raise UnaskableError(f"its choices would have {made} characters, and {OFFERED_MOST} are kept")
    offers = [_offers(question) for question in questions]
    gates: list[GateRequested] = []
    for part, (question, offered) in enumerate(zip(questions, offers, strict=True), 1):
        parts = len(questions)
        choices, answers = _distinct(offered)
        payload = Payload(
            request,
            question=question.question,
            answers=answers,
            input=about.input if part == 1 else EMPTY,
            part=part,
            parts=parts,
        )
        text = bounded(question.question, QUESTION_LIMIT)
        text += "\n(each choice is one or more of the options)" if question.several else ""
        text += f"\n(question {part} of {parts})" if parts > 1 else ""
        gates.append(_gate("question", _name(request, part, parts), text, choices, payload))
    return gates


_Offer = tuple[str, str]
"""What is answered, and how it is shown."""


def _check_options(question: _Question) -> None:
    options, most = question.options, COMBINED_MOST if question.several else OPTIONS_MOST
    if not options or not all(option.label for option in options):
        raise UnaskableError("a question has no options, or one without a label")
    if len(options) > most:
        raise UnaskableError(f"a question has {len(options)} options, and can have {most}")


def _made_of(question: _Question) -> int:
    """Characters of the question's choices: known before they are made, for combinations multiply them."""
    labels = sum(len(option.label) for option in question.options)
    stands_in = 2 ** (len(question.options) - 1) if question.several else 1
    return labels * stands_in + sum(len(option.description) for option in question.options)


def _offers(question: _Question) -> list[_Offer]:
    """What can be answered: one option, or any of their combinations."""
    options = question.options
    single = [
        (option.label, f"{option.label}: {option.description}" if option.description else option.label)
        for option in options
    ]
    if not question.several:
        return single
    labels = [option.label for option in options]
    several = (", ".join(some) for size in range(2, len(labels) + 1) for some in combinations(labels, size))
    return [*single, *((words, words) for words in several), (_NONE, _NONE)]


def _distinct(offered: Sequence[_Offer]) -> tuple[list[Choice], dict[str, str]]:
    names = distinct([words for words, _ in offered])
    choices = [Choice(id=name, label=shown) for name, (_, shown) in zip(names, offered, strict=True)]
    return choices, {name: words for name, (words, _) in zip(names, offered, strict=True)}


_PART = "/"


def _name(request: str, part: int, parts: int) -> str:
    return request if parts == 1 else f"{request}{_PART}{part}"


def _gate(
    kind: Literal["permission", "question"], name: str, question: str, choices: list[Choice], payload: Payload
) -> GateRequested:
    return GateRequested(
        gate=name,
        kind=kind,
        question=question if kind == "question" else bounded(question, QUESTION_LIMIT),
        choices=tuple(choices),
        payload=msgspec.json.encode(payload),
    )
