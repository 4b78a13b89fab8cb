"""The built-in script: markers in the last user text say what the model does.

| marker | the model |
|---|---|
| `[[tool:CMD]]` | calls the agent's shell tool once with CMD, then closes with a text |
| `[[tools:N:CMD]]` | the same N times, one after the other; `{i}` in CMD is the call's number from 0 |
| `[[slow:S]]` | streams its text in ten pieces over S seconds |
| `[[hang:S]]` | sends the first event, then nothing for S seconds |
| `[[err:CODE]]` | fails: a number is an HTTP status, a word is the code of a failure inside the stream |
| `[[err:CODE:S]]` | fails with this HTTP status and the header `retry-after: S` |
| none | answers `ECHO n: text`, n being the number of user texts so far |

After its tool calls the model answers `DONE n: ` and the end of the last output.
"""

from __future__ import annotations

import re

from outlast.testing.scripted_model.conversation import Conversation, HttpError, Reply, StreamError

_TOOLS = re.compile(r"\[\[(?:tool|tools:(\d+)):(.*?)\]\]", re.DOTALL)
_SECONDS = re.compile(r"\[\[(slow|hang):(\d+(?:\.\d+)?)\]\]")
_ERROR = re.compile(r"\[\[err:(\w+)(?::(\d+(?:\.\d+)?))?\]\]")
_REMINDER = re.compile(r"\s*<system-reminder>.*?</system-reminder>", re.DOTALL)
_ECHO_LIMIT = 4_000
_OUTPUT_LIMIT = 400


def reply_to_markers(conversation: Conversation) -> Reply:
    """Decide the reply from the markers in the last user text."""
    text = conversation.last_user_text
    error = _ERROR.search(text)
    if error:
        return Reply(error=_scripted_error(error[1], error[2]))
    seconds = {kind: float(value) for kind, value in _SECONDS.findall(text)}
    slow, hang = seconds.get("slow", 0.0), seconds.get("hang", 0.0)
    results = conversation.results
    tools = _TOOLS.search(text)
    if tools and len(results) < int(tools[1] or 1):
        call = conversation.shell(tools[2].replace("{i}", str(len(results))))
        if call is None:
            offered = ", ".join(conversation.request.tools) or "nothing"
            return Reply(text=f"NO SHELL TOOL: the agent offers {offered}")
        return Reply(calls=(call,), hang_seconds=hang)
    if results:
        answer = f"DONE {len(results)}: {_REMINDER.sub('', results[-1]).strip()[-_OUTPUT_LIMIT:]}"
    else:
        answer = f"ECHO {len(conversation.user_texts)}: {text[:_ECHO_LIMIT]}"
    return Reply(text=answer, slow_seconds=slow, hang_seconds=hang)


def _scripted_error(code: str, seconds: str | None) -> HttpError | StreamError:
    if code.isdigit():
        wait = float(seconds) if seconds else None
        return HttpError(int(code), message=f"scripted error {code}", retry_after=wait)
    return StreamError(code, message=f"scripted failure {code}")
