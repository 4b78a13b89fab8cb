"""What an agent's environment holds: a list of names, never the runtime's whole environment.

An inherited variable can switch a program into another mode, carry a credential, or tell a program that
it runs inside an agent. So a name gets in by being listed here or in the agent's configuration.
docs/security.md says why each group is in or out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from outlast.errors import AgentError, ConfigError

_HOME = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "TMPDIR")
_XDG = (
    "XDG_CACHE_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
)
_LOCALE = ("LANG", "LANGUAGE", "TZ", "TZDIR", "TERM", "COLORTERM")
_PROXIES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)
_AUTHORITIES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
)
SAFE_NAMES = frozenset((*_HOME, *_XDG, *_LOCALE, *_PROXIES, *_AUTHORITIES))
SAFE_PREFIX = "LC_"

OWN_PREFIX = "OUTLAST_"
MARKERS = frozenset(
    (
        "AI_AGENT",
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SSE_PORT",
        "CODEX_SANDBOX",
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_THREAD_ID",
        "GEMINI_CLI",
        "OPENCODE",
    )
)
"""Names by which an agent tells its children that they run inside it; a child that believes it may keep
no transcript, or refuse to start."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_WORDS = re.compile(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])")
# They are often written as one with what stands before them (PGPASSWORD, SSHPASS, TS_AUTHKEY). To find them
# anywhere in a word would hide what is no secret: AUTHOR, KEYBOARD, TOKENIZERS.
_SECRET_WORD = re.compile(
    r"(?:COOKIES?|HEADERS?|\w*(?:KEYS?|PASS|AUTH|AUTHORIZATION|TOKENS?|SECRETS?|PASSWORDS?|PASSWD|PASSPHRASE"
    r"|CREDENTIALS?))\d*"
)
_NO_SECRETS = frozenset({"ASKPASS", "BYPASS", "COMPASS", "DONKEY", "HOTKEY", "HOTKEYS", "MONKEY", "TURKEY"})
_PLACES = frozenset({"FILE", "PATH", "DIR", "DIRECTORY", "FOLDER", "HOME", "SOCK", "SOCKET", "NAME"})
_FILE = re.compile(r"(?:~|\.\.?)?/\S*\.[a-z0-9]{1,5}")


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Values of variables that are called as secrets are: an agent may have been given and print them. What
    is called as the place or the name of one, and what is the path of a file, is none."""
    return [value for name, value in environ.items() if _names_secret(name) and not _FILE.fullmatch(value)]


def _names_secret(name: str) -> bool:
    words = [word.upper() for word in _WORDS.split(name) if word]
    secret = any(_SECRET_WORD.fullmatch(word) for word in words if word not in _NO_SECRETS)
    return secret and words[-1] not in _PLACES


def agent_environment(environ: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    """The variables of `environ` that an agent gets: the safe list and `names`. Raises ConfigError as
    `check_names` does."""
    allowed = SAFE_NAMES.union(check_names(names))
    return {
        name: value
        for name, value in sorted(environ.items())
        if name in allowed or name.startswith(SAFE_PREFIX)
    }


def name_home(env: dict[str, str], variable: str, home: Path) -> None:
    """Let `variable` of an agent's environment, where it is set, name `home` whole: the agent runs in another
    folder. Raises AgentError where that is no folder."""
    if not env.get(variable):
        return
    if not home.is_dir():
        raise AgentError(f"{variable} is {home}, which is no folder", hint=f"create it, or unset {variable}")
    env[variable] = str(home)


def check_names(names: Iterable[str]) -> tuple[str, ...]:
    """`names` if they can be let through to an agent. Raises ConfigError for what is no name, for
    outlast's own variables and for the markers of other agents."""
    checked = tuple(names)
    for name in checked:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"env names the variables to let through to the agent, and {name!r} is not a name",
                hint="write the name alone: the value is taken from outlast's own environment",
            )
        if name.startswith(OWN_PREFIX) or name in MARKERS:
            whose = "outlast's own variable" if name.startswith(OWN_PREFIX) else "a surrounding agent's mark"
            raise ConfigError(f"{name} is {whose} and never reaches an agent", hint="take it out of env")
    return checked
