"""The command group: finds a command's module when it is called, and shows every error once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, TextIO

import click

from outlast.cli.exits import Exit
from outlast.cli.output import open_missing_streams, point_at_nothing, reader_gone, speak_utf8, visible

if TYPE_CHECKING:
    from outlast.cli.failures import Failure


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command lives, and its line in `outlast --help`: listing commands must not import them."""

    module: str
    help: str


COMMANDS: dict[str, CommandEntry] = {
    "run": CommandEntry("run", "Give an agent a prompt and follow it to the end."),
    "attach": CommandEntry("attach", "Follow a session live, type, answer, cancel, detach again."),
    "resume": CommandEntry("resume", "Restore a session and drain its queue."),
    "send": CommandEntry("send", "Queue a prompt for a session, from any process."),
    "answer": CommandEntry("answer", "Answer a question that a session waits for."),
    "adopt": CommandEntry("adopt", "Make a session of one that an agent began elsewhere."),
    "ls": CommandEntry("ls", "List sessions, newest activity first."),
    "show": CommandEntry("show", "Show one session: turns, queue, questions, restores."),
    "tail": CommandEntry("tail", "Print a session's records."),
    "wait": CommandEntry("wait", "Wait until a session has nothing left to do."),
    "cancel": CommandEntry("commands", "Cancel the running turn; the queue is held."),
    "kill": CommandEntry("commands", "End a session's agent with its whole process tree."),
    "close": CommandEntry("commands", "End a session the normal way; its next input reopens it."),
    "retry": CommandEntry("commands", "Send a failed or parked turn to its agent again."),
    "skip": CommandEntry("commands", "Give a parked or held turn up; the queue goes on."),
    "settle": CommandEntry("settling", "Say whether a step around a turn was done; the turn goes on."),
    "plan": CommandEntry("planning", "Show what a restore would do, and why; changes nothing."),
    "verify": CommandEntry("verify", "Check that a session's journal is what was stored."),
    "seal": CommandEntry("seal", "Seal a session's journal, so that a rewrite of it shows."),
    "repair": CommandEntry("repair", "End a damaged journal before its fault; keep the rest in quarantine."),
    "backup": CommandEntry("backup", "Write the whole store to a file, while its owners work."),
    "agents": CommandEntry("agents", "List the agents that are here and what each can do."),
    "trust": CommandEntry("trust", "Let a folder's outlast.toml name programs."),
    "doctor": CommandEntry("doctor", "Check store, leases, shims, disk, permissions and agents."),
    "demo": CommandEntry("demo", "Kill an agent and its runtime in mid turn, and watch the session return."),
    "bench": CommandEntry("bench", "Measure this machine."),
}


FILES = 64
"""Descriptors: an owner with its store, its shim and what it starts needs about half of them."""


FILE_SIZE = 64 << 20
"""Bytes: the store and what an agent has written are in files, and those of a small store are smaller."""


class Debug:
    """In the context of a command: `--debug` was given."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(f"outlast.cli.{entry.module}"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from difflib import get_close_matches

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = get_close_matches(args[0], COMMANDS, n=1, cutoff=0.7)
            hint = f", did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="outlast", message="outlast %(version)s")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Keeps AI agent sessions alive: they come back after their terminal, their agent, their runtime or
    their machine died.

    A session is named by its id, a unique beginning of it, or its label.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run_command_line(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code and prints at most one error."""
    open_missing_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    end = given.index("--") if "--" in given else len(given)
    options = given[:end]
    # Accepted before and after the command's name, like --json.
    given = [option for option in options if option != "--debug"] + given[end:]
    try:
        code = _call(given, debug="--debug" in options)
        sys.stdout.flush()
    except click.ClickException as error:
        return _report(_usage_failure(error), options)
    except click.exceptions.Abort:
        return _report(_failure(KeyboardInterrupt()), options)
    except KeyboardInterrupt as error:
        return _report(_failure(error), options)
    except Exception as error:  # noqa: BLE001 - the edge: every error ends here, told in one line
        if isinstance(error, BrokenPipeError) and reader_gone(sys.stdout):
            point_at_nothing(sys.stdout)
            return Exit.OK
        if "--debug" in options:
            import traceback

            with _tolerated(sys.stderr):
                sys.stderr.write(visible(traceback.format_exc()))
        return _report(_failure(error), options)
    return int(code)


def _call(arguments: list[str], *, debug: bool) -> int:
    """Not by `cli.main`, which makes every closed pipe a silent exit of its own."""
    _refuse_too_few_files()
    _refuse_small_files()
    if "_OUTLAST_COMPLETE" in os.environ:  # the shell asks how a word goes on
        cli.main(arguments, prog_name="outlast")
    try:
        with cli.make_context("outlast", arguments, obj=Debug() if debug else None) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    return result if isinstance(result, int) else Exit.OK


def _refuse_too_few_files() -> None:
    """Raises UsageError, before a file that cannot be opened looks like a store that cannot."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < FILES:
        from outlast.errors import UsageError

        raise UsageError(
            f"this process may open no more than {limit} files, outlast needs {FILES}",
            hint="raise the limit, for instance with `ulimit -n 1024`",
        )


def _refuse_small_files() -> None:
    """Raises UsageError, before a file that may not grow looks like a full disk."""
    from outlast.errors import RAISE_FILE_SIZE, UsageError, file_size_limit

    limit = file_size_limit()
    if limit is not None and limit < FILE_SIZE:
        raise UsageError(
            f"this process may write no file larger than {limit:,} bytes, outlast needs {FILE_SIZE:,}",
            hint=RAISE_FILE_SIZE,
        )


def _failure(error: BaseException) -> Failure:
    from outlast.cli.failures import failure_of

    return failure_of(error)


def _usage_failure(error: click.ClickException) -> Failure:
    from outlast.cli.failures import ErrorLine, Failure

    context = getattr(error, "ctx", None)
    path = context.command_path if isinstance(context, click.Context) else "outlast"
    hint = f"`{path} --help` shows how to call it"
    if isinstance(error, click.NoSuchOption):
        hint = f"a prompt that begins with a dash goes after `--`; {hint}"
    elif "unexpected extra argument" in error.format_message() and path.split()[-1] in ("run", "send"):
        hint = f"put the prompt in quotes; {hint}"
    message = error.format_message().rstrip(".")
    return Failure(ErrorLine("usage", message, hint), Exit.USAGE)


def _report(failure: Failure, options: Sequence[str]) -> int:
    text = failure.as_text()
    if "--json" in options:
        text = failure.as_json()
        speak_utf8(sys.stderr)
    with _tolerated(sys.stdout):
        sys.stdout.flush()
    with _tolerated(sys.stderr):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    if failure.afterwards is not None:
        with _tolerated(sys.stderr):
            failure.afterwards()
    return failure.exit_code


@contextmanager
def _tolerated(stream: TextIO) -> Iterator[None]:
    """A stream that cannot be written is pointed at nothing: an error that nobody can be told of must not
    become another one in the interpreter's last flush."""
    try:
        yield
    except OSError:
        point_at_nothing(stream)
