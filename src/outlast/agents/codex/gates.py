"""What codex asks of its client: approvals and questions as gates, with each choice's answer made ready.

The answers travel in the gate's payload, so that an answer can be given by a later owner, and so that a
choice that was never offered has no answer to give."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from outlast.agents.codex.wire import RpcId
from outlast.agents.contract import GateRequested
from outlast.agents.shapes import decode, plain
from outlast.agents.turnwise import OFFER_MOST, bounded, distinct, oversize
from outlast.records.types import Choice

_QUESTION_LIMIT = 8 * 1024

Kind = str
_RAW_ACCEPT = msgspec.Raw(b'"accept"')
_FOR_SESSION = msgspec.Raw(b'"acceptForSession"')
_DECLINE = msgspec.Raw(b'{"decision":"decline"}')


class Payload(msgspec.Struct, frozen=True):
    """The payload of a gate: codex's id of the request, and the result to answer for each choice."""

    id: RpcId
    results: dict[str, msgspec.Raw]


class _CommandApproval(msgspec.Struct, frozen=True, rename="camel"):
    command: str | None = None
    cwd: str | None = None
    reason: str | None = None
    network_approval_context: msgspec.Raw = msgspec.Raw(b"null")
    available_decisions: tuple[msgspec.Raw, ...] | None = None


class _FileApproval(msgspec.Struct, frozen=True, rename="camel"):
    item_id: str
    reason: str | None = None
    grant_root: str | None = None


class _PermissionApproval(msgspec.Struct, frozen=True, rename="camel"):
    permissions: dict[str, msgspec.Raw]
    reason: str | None = None


class _Option(msgspec.Struct, frozen=True):
    label: str
    description: str = ""


class _Question(msgspec.Struct, frozen=True):
    id: str
    question: str
    options: tuple[_Option, ...] | None = None


class _UserInput(msgspec.Struct, frozen=True):
    questions: tuple[_Question, ...]


class _Schema(msgspec.Struct, frozen=True):
    required: tuple[str, ...] = ()


class _Elicitation(msgspec.Struct, frozen=True, rename="camel"):
    mode: str
    server_name: str = ""
    message: str = ""
    requested_schema: _Schema = _Schema()


class _Decision(msgspec.Struct, frozen=True):
    decision: msgspec.Raw


def gate_name(request: RpcId) -> str:
    """The gate's name: codex's id of its request, unique in one life of the process."""
    return msgspec.json.encode(request).decode()


def is_asking(method: str) -> bool:
    """Whether a request of this method asks a person for something."""
    return method in _READERS


def gate_request(request: RpcId, method: str, params: msgspec.Raw, changes: str) -> GateRequested | None:
    """The gate for a request of codex, or None when a person can't answer it by choosing, also where that is
    larger than is kept.

    `changes` is the input of the file change that the request is about, if it is about one.
    """
    reader = _READERS.get(method)
    asked = reader(params, changes) if reader is not None else None
    if asked is None:
        return None
    kind, question, offers = asked
    offered = list(offers)
    names = distinct([choice.id for choice, _ in offered])
    choices = [replace(choice, id=name) for name, (choice, _) in zip(names, offered, strict=True)]
    results = {name: result for name, (_, result) in zip(names, offered, strict=True)}
    payload = msgspec.json.encode(Payload(request, results))
    if oversize(choices, payload):
        return None
    return GateRequested(
        gate=gate_name(request),
        kind="permission" if kind == "permission" else "question",
        question=bounded(question, _QUESTION_LIMIT),
        choices=tuple(choices),
        payload=payload,
    )


_Offers = Iterator[tuple[Choice, msgspec.Raw]]
_Asked = tuple[Kind, str, _Offers]


def _command(params: msgspec.Raw, changes: str) -> _Asked | None:
    asked = decode(params, _CommandApproval)
    if asked is None:
        return None
    what = asked.command or plain(asked.network_approval_context) or "an action"
    where = f" in {asked.cwd}" if asked.cwd else ""
    return "permission", _question(f"Run {what}{where}?", asked.reason), _decisions(asked.available_decisions)


def _file(params: msgspec.Raw, changes: str) -> _Asked | None:
    asked = decode(params, _FileApproval)
    if asked is None:
        return None
    root = f" and allow writes under {asked.grant_root}" if asked.grant_root else ""
    question = f"Apply these changes{root}?\n{changes}" if changes else f"Change files{root}?"
    return "permission", _question(question, asked.reason), _decisions(None)


def _permissions(params: msgspec.Raw, changes: str) -> _Asked | None:
    asked = decode(params, _PermissionApproval)
    if asked is None:
        return None
    wanted = {name: value for name, value in asked.permissions.items() if bytes(value) != b"null"}
    text = msgspec.json.encode(wanted).decode()

    def offers() -> _Offers:
        for choice, granted, scope in (
            (_ALLOW_ONCE, wanted, "turn"),
            (_ALLOW_ALWAYS, wanted, "session"),
            (_REJECT_ONCE, {}, "turn"),
        ):
            yield choice, _raw({"permissions": granted, "scope": scope})

    return "permission", _question(f"Grant these permissions: {text}?", asked.reason), offers()


def _elicitation(params: msgspec.Raw, changes: str) -> _Asked | None:
    """An MCP server asks: only what can be answered without filling in a form is put to a person."""
    asked = decode(params, _Elicitation)
    if asked is None or asked.mode not in ("form", "url") or asked.requested_schema.required:
        return None

    def offers() -> _Offers:
        yield (
            _ALLOW_ONCE,
            _raw({"action": "accept", "content": {} if asked.mode == "form" else None, "_meta": None}),
        )
        yield _REJECT_ONCE, _raw({"action": "decline", "content": None, "_meta": None})

    return "permission", f"{asked.server_name}: {asked.message}", offers()


def _user_input(params: msgspec.Raw, changes: str) -> _Asked | None:
    """One question with options; several at once, or a free text, is more than a choice can answer."""
    asked = decode(params, _UserInput)
    if asked is None or len(asked.questions) != 1 or not asked.questions[0].options:
        return None
    question, options = asked.questions[0], asked.questions[0].options

    def offers() -> _Offers:
        for option in options:
            label = f"{option.label}: {option.description}" if option.description else option.label
            answer = {"answers": {question.id: {"answers": [option.label]}}}
            yield Choice(id=option.label, label=label), _raw(answer)

    return "question", question.question, offers()


_READERS = {
    "item/commandExecution/requestApproval": _command,
    "item/fileChange/requestApproval": _file,
    "item/permissions/requestApproval": _permissions,
    "item/tool/requestUserInput": _user_input,
    "mcpServer/elicitation/request": _elicitation,
}
_ALLOW_ONCE = Choice(id="allow_once", label="Allow once", kind="allow_once")
_ALLOW_ALWAYS = Choice(id="allow_always", label="Allow for this session", kind="allow_always")
_REJECT_ONCE = Choice(id="reject_once", label="Reject", kind="reject_once")


def _decisions(available: tuple[msgspec.Raw, ...] | None) -> _Offers:
    """The decisions that codex offers, and always a plain rejection.

    codex takes `decline` also when it does not list it (measured): the model is told, and the turn goes on.
    The listed `cancel` ends the turn as well; a person cancels the turn for that."""
    for decision in (_RAW_ACCEPT, _FOR_SESSION) if available is None else available:
        choice = _choice(bytes(decision)) if len(bytes(decision)) <= OFFER_MOST else None
        if choice is not None:
            yield choice, _raw(_Decision(decision))
    yield _REJECT_ONCE, _DECLINE


def _choice(decision: bytes) -> Choice | None:
    if decision == bytes(_RAW_ACCEPT):
        return _ALLOW_ONCE
    if decision == bytes(_FOR_SESSION):
        return _ALLOW_ALWAYS
    amended = decode(decision, dict[str, msgspec.Raw]) or {}
    if "acceptWithExecpolicyAmendment" in amended:
        return Choice(id="allow_always", label="Allow commands like this from now on", kind="allow_always")
    network = decode(amended.get("applyNetworkPolicyAmendment", b"null"), _NetworkAmendment)
    if network is None:
        return None
    rule = network.network_policy_amendment
    if rule.action == "allow":
        return Choice(id="allow_always", label=f"Allow {rule.host} from now on", kind="allow_always")
    return Choice(id="reject_always", label=f"Block {rule.host} from now on", kind="reject_always")


class _NetworkRule(msgspec.Struct, frozen=True):
    host: str
    action: str


class _NetworkAmendment(msgspec.Struct, frozen=True):
    network_policy_amendment: _NetworkRule


def _question(question: str, reason: str | None) -> str:
    return f"{question}\n{reason}" if reason else question


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
