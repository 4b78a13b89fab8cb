"""What looks like a credential is told nowhere.

Pure. The text may be an agent's, of any length and kind: no pattern goes back over more than a bounded part
of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SECRETS = (
    re.compile(r"\b(?:sk|pk|rk|ghp|gho|ghs|ghu|glpat|xox[a-z])[-_][A-Za-z0-9_-]{6,}"),
    re.compile(r"\bgithub_pat_\w{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bAIza[\w-]{20,}"),
    re.compile(r"\beyJ[\w-]{8,1000}\.[\w-]{8,}(?:\.[\w-]*)?"),
    re.compile(r"(?i)(?<=\bbearer )\S+|(?<=\bbasic )[A-Za-z0-9+/=]{8,}"),
    re.compile(r"(?<=://)[^\s/@]+(?=@)"),
    re.compile(
        r"(?i)(?<![\w-])(?=[\w-]*?(?:api[_-]?key|token|secret|passwd|password|credential))[\w-]++[\"']?\s*+[=:]\s*+[\"']?"
        r"([^\s\"',;&}]{4,})"
    ),
)
_MASK = "[redacted]"


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without what looks like a credential, and without each of `secrets` (8 characters or more)."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 8:
            text = text.replace(secret, _MASK)
    for pattern in _SECRETS:
        text = pattern.sub(_mask, text)
    return text


def _mask(match: re.Match[str]) -> str:
    if match.lastindex is None:
        return _MASK
    start, whole = match.start(1) - match.start(), match[0]
    return whole[:start] + _MASK
