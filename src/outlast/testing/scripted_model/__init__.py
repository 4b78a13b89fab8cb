"""A scripted model server on loopback: drives real coding agents without a key and without the internet.

    with ScriptedModel() as model:
        run_the_agent(base_url=model.base_url, prompt="[[tool:touch done]]")
        assert [item.text for item in model.requests[-1].of_kind("result")]

What the model does is scripted by markers in the last user text (`[[tool:CMD]]`, `[[tools:N:CMD]]`,
`[[slow:S]]`, `[[hang:S]]`, `[[err:CODE]]`, `[[err:CODE:S]]`; without one it echoes, see `markers`) or by a
callable `script(Conversation) -> Reply`. It is strict: a history in which calls and results don't pair up is
answered with status 400, as real back ends do. It records what each request carried: that is how you see
what a model was told after a crash.

From a shell: `python -m outlast.testing.scripted_model --port 0 --log FILE` prints its base URL as a JSON
line and serves until it gets SIGINT or SIGTERM.

Speaks OpenAI's Responses API and chat completions, and Anthropic's Messages. Another API is another
`Dialect`. Standard library only.
"""

from outlast.testing.scripted_model.conversation import (
    Conversation,
    HttpError,
    Item,
    ModelRequest,
    Reply,
    Script,
    StreamCut,
    StreamError,
    ToolCall,
)
from outlast.testing.scripted_model.dialect import Dialect
from outlast.testing.scripted_model.markers import reply_to_markers
from outlast.testing.scripted_model.pairing import pairing_fault
from outlast.testing.scripted_model.server import ScriptedModel

__all__ = [
    "Conversation",
    "Dialect",
    "HttpError",
    "Item",
    "ModelRequest",
    "Reply",
    "Script",
    "ScriptedModel",
    "StreamCut",
    "StreamError",
    "ToolCall",
    "pairing_fault",
    "reply_to_markers",
]
