"""The agent process: how it is started, and its three pipes.

Standard library only, light parts only.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import fcntl
import os
import sys

from . import proc
from .points import point

_F_SETPIPE_SZ = 1031
_PIPE_SIZE = 1 << 20
_DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"


class LaunchFailed(Exception):  # noqa: N818 - becomes the `failed` reply
    """The program could not be executed: `number` is the errno, `stage` what was being done."""

    def __init__(self, number: int, stage: str) -> None:
        super().__init__(number, stage)
        self.number = number
        self.stage = stage


class Agent:
    """A started agent."""

    __slots__ = ("pid", "stderr", "stdin", "stdout", "ticks")

    def __init__(self, pid: int, ticks: int, stdin: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.ticks = ticks
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr


class Program:
    """What to execute. `env` is the whole environment, as `NAME=value`."""

    __slots__ = ("argv", "cwd", "env")

    def __init__(self, argv: list[bytes], env: list[bytes], cwd: bytes) -> None:
        self.argv = argv
        self.cwd = cwd
        self.env = env


def launch(program: Program, marker: str) -> Agent:
    """Start the agent: a session of its own, default signals, no descriptor but its pipes.

    Returns once its exec has succeeded. Raises LaunchFailed, and OSError when the machine has no process
    or descriptor left.
    """
    ends: list[int] = []
    try:
        for _ in range(4):
            ends += os.pipe()
        pid = os.fork()
    except OSError:
        for fd in ends:
            os.close(fd)
        raise
    in_r, in_w, out_r, out_w, err_r, err_w, say_r, say_w = ends
    if pid == 0:
        _become(program, marker, (in_r, out_w, err_w), say_w)
    for fd in (in_r, out_w, err_w, say_w):
        os.close(fd)
    said = _read_all(say_r)
    if said:
        for fd in (in_w, out_r, err_r):
            os.close(fd)
        os.waitpid(pid, 0)
        number, _, stage = said.partition(b" ")
        raise LaunchFailed(int(number), stage.decode())
    for fd in (in_w, out_r, err_r):
        os.set_blocking(fd, False)
    _widen(out_r)
    return Agent(pid, proc.start_ticks(pid) or 0, in_w, out_r, err_r)


def _read_all(fd: int) -> bytes:
    said = b""
    while True:
        more = os.read(fd, 256)
        if not more:
            os.close(fd)
            return said
        said += more


def _widen(fd: int) -> None:
    if sys.platform == "linux":
        try:
            fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE_SIZE)
        except OSError:
            # A user over the pipe-page limit keeps the default size; only throughput suffers.
            return


def _become(program: Program, marker: str, pipes: tuple[int, int, int], say: int) -> None:
    """The child: never returns."""
    stage = "prepare"
    try:
        shim = os.getppid()
        os.setsid()
        proc.die_with_parent()
        if os.getppid() != shim:
            os._exit(127)
        for target, fd in enumerate(pipes):
            os.dup2(fd, target, inheritable=True)
        os.dup2(say, 3, inheritable=False)
        os.closerange(4, 1 << 20)
        say = 3
        for number in range(1, _signal.NSIG):
            if number not in (proc.SIGKILL, 19, 32, 33):
                try:
                    _signal.signal(number, _signal.SIG_DFL)
                except (OSError, ValueError):
                    continue
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        stage = "cwd"
        os.chdir(program.cwd)
        stage = "exec"
        point("keep.exec")
        _exec(program, marker)
    except OSError as error:
        os.write(say, b"%d %s" % (error.errno or errno.EIO, stage.encode()))
    except Exception:  # noqa: BLE001 - whatever kept it from its exec, the shim must hear of it
        # A NUL in a word or in the folder's name, a variable without a name: the call itself was not made.
        os.write(say, b"%d %s" % (errno.EINVAL, stage.encode()))
    finally:
        os._exit(127)


def _exec(program: Program, marker: str) -> None:
    own = proc.MARKER + b"="
    env = {}
    for item in program.env:
        name, _, value = item.partition(b"=")
        env[name] = value
    env[own[:-1]] = marker.encode()
    name = program.argv[0]
    if b"/" in name:
        os.execve(name, program.argv, env)
    failure = OSError(errno.ENOENT, "not found")
    for folder in env.get(b"PATH", _DEFAULT_PATH).split(b":"):
        try:
            os.execve(os.path.join(folder, name), program.argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            failure = error
    raise failure
