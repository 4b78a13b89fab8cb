"""Options and arguments that several commands share, each said once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from outlast.errors import InputError, UsageError

if TYPE_CHECKING:
    from outlast.records.types import Content

F = TypeVar("F", bound=Callable[..., Any])


def json_option(help_text: str = "Print JSON; its field names are stable.") -> Callable[[F], F]:
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def approve_option(command: F) -> F:
    return click.option(
        "--approve",
        type=click.Choice(["ask", "never", "all"]),
        default="ask",
        help="How permissions are decided: by you, refused once each, or allowed once each.",
    )(command)


def session_argument(command: F) -> F:
    return click.argument("session", metavar="ID", callback=not_empty)(command)


def turn_argument(command: F) -> F:
    return click.argument("turn", metavar="[TURN]", required=False, callback=not_empty)(command)


def not_empty(context: click.Context, parameter: click.Parameter, typed: str | None) -> str | None:
    """Every id begins with an empty one, so a script whose variable is empty would act on whatever is there.
    Raises UsageError."""
    if typed == "":
        name = parameter.make_metavar(context).strip("[]")
        hint = "name the folder" if name == "DIR" else "`outlast ls` lists the sessions"
        raise UsageError(f"{name} is empty", hint=hint)
    return as_text(context, parameter, typed)


def as_text(context: click.Context, parameter: click.Parameter, typed: str | None) -> str | None:
    """What was typed, if it is text. Raises InputError."""
    try:
        (typed or "").encode("utf-8")
    except UnicodeEncodeError:
        name = parameter.make_metavar(context).strip("[]")
        raise InputError(f"{name} is not valid UTF-8: {typed!r}", hint="ids and labels are text") from None
    return typed


def prompt_argument(command: F) -> F:
    return click.argument("prompt", metavar="PROMPT|-")(command)


def read_prompt(prompt: str) -> str:
    """The prompt's text, every character as it was given; `-` reads standard input to its end.

    Raises InputError for bytes that are not UTF-8 and UsageError for a prompt without a word in it.
    """
    piped = prompt == "-"
    text = _decode_stdin(sys.stdin.buffer.read()) if piped else _decode_argument(prompt)
    if not text.strip():
        what = f"the prompt{' from standard input' if piped else ''} is {'blank' if text else 'empty'}"
        hint = "look at what writes it" if piped else "give some text, or `-` to read it from standard input"
        raise UsageError(what, hint=hint)
    return text


def image_option() -> Callable[[F], F]:
    return click.option(
        "--image",
        "images",
        metavar="FILE",
        multiple=True,
        help="An image to give with the prompt (png, jpeg, gif, webp); may be said several times.",
    )


def read_content(prompt: str, images: Sequence[str]) -> str | list[Content]:
    """The prompt's text, and the images after it. Raises what `read_prompt` raises, and InputError for a file
    that can't be read or is no image that agents take."""
    text = read_prompt(prompt)
    if not images:
        return text
    from outlast.records.types import Content
    from outlast.runtime.images import image

    return [Content(text=text), *(image(path) for path in images)]


def _decode_stdin(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"standard input is not valid UTF-8: byte {error.start} is 0x{data[error.start]:02x}",
            hint="convert it first, for instance with iconv",
        ) from None


def _decode_argument(text: str) -> str:
    # The interpreter keeps undecodable bytes of an argument as lone surrogates: give them back and look.
    data = os.fsencode(text) if any("\udc80" <= c <= "\udcff" for c in text) else None
    if data is None:
        return text
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the prompt is not valid UTF-8: byte {error.start} is 0x{data[error.start]:02x}",
            hint="convert it first, for instance with iconv",
        ) from None


def workspace_option(help_text: str) -> Callable[[F], F]:
    return click.option("--workspace", metavar="DIR", default=None, help=help_text)


def real_workspace(folder: str | None) -> str:
    """The real path of the folder to work in, the current one by default. Raises UsageError."""
    if folder == "":
        raise UsageError("--workspace is empty", hint="leave it out to work in the current folder")
    path = os.path.realpath("." if folder is None else folder)
    if not os.path.isdir(path):  # noqa: PTH112 - the path may hold surrogates; a string is what is stored
        raise UsageError(
            f"there is no folder {path}", hint="--workspace names the folder that the agent works in"
        )
    from outlast.store.url import storable

    return str(storable(Path(path), "the folder to work in", "work in one whose path is"))
