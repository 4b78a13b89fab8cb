"""An agent gets the variables that are on a list, and no others."""

import pytest

from outlast.agents.environment import MARKERS, SAFE_NAMES, agent_environment, check_names, secrets_in
from outlast.errors import ConfigError


def test_an_agent_gets_the_safe_list_and_what_its_configuration_names() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/home/a",
        "LC_ALL": "C",
        "HTTPS_PROXY": "http://proxy:1",
        "SSL_CERT_FILE": "/ca.pem",
        "MY_KEY": "k",
        "AWS_SECRET_ACCESS_KEY": "no",
        "SSH_AUTH_SOCK": "/no",
        "PYTHONPATH": "/no",
        "LD_PRELOAD": "/no",
    }
    got = agent_environment(environ, ["MY_KEY", "NOT_SET"])
    assert got == {
        "PATH": "/bin",
        "HOME": "/home/a",
        "LC_ALL": "C",
        "HTTPS_PROXY": "http://proxy:1",
        "SSL_CERT_FILE": "/ca.pem",
        "MY_KEY": "k",
    }


def test_env_marker() -> None:
    """Neither outlast's own variables nor a surrounding agent's marks reach an agent, not even by name."""
    environ = dict.fromkeys([*MARKERS, "OUTLAST_STORE", "OUTLAST_FAULTS", "OUTLAST_AGENT"], "1") | {
        "PATH": "/bin"
    }
    assert agent_environment(environ) == {"PATH": "/bin"}
    for name in (*MARKERS, "OUTLAST_STORE"):
        with pytest.raises(ConfigError, match=name):
            agent_environment(environ, [name])


@pytest.mark.parametrize("name", ["", "A=B", "1A", "A B", "A\0", "É", "A\n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a name"):
        check_names([name])


def test_the_safe_list_holds_no_marker() -> None:
    assert not SAFE_NAMES & MARKERS
    assert not [name for name in SAFE_NAMES if name.startswith("OUTLAST_")]


SECRET = "a value that is long"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, SECRET) for name in ("OPENAI_API_KEY", "api_key", "APIKEY", "KEY", "AWS_SECRET_ACCESS_KEY")),
        *((name, SECRET) for name in ("AWS_ACCESS_KEY_ID", "SIGNING_KEYS", "DEPLOY_PRIVATEKEY", "MY_KEY_2")),
        *(
            (name, SECRET)
            for name in ("GITHUB_TOKEN", "GITHUBTOKEN", "npm_config__authToken", "TOKENS", "TOKEN2")
        ),
        *((name, SECRET) for name in ("CLIENT_SECRET", "clientSecret", "SECRET_ONE")),
        *((name, SECRET) for name in ("DB_PASS", "PGPASSWORD", "MYSQL_PASSWD", "GPG_PASSPHRASE", "passWord")),
        *((name, SECRET) for name in ("GOOGLE_CREDENTIALS", "AUTH", "BASIC_AUTH", "OAUTH", "AUTHORIZATION")),
        *((name, SECRET) for name in ("SESSION_COOKIE", "ANTHROPIC_CUSTOM_HEADERS", "EXTRA_HEADER")),
        *((name, SECRET) for name in ("SSHPASS", "TS_AUTHKEY", "AWS_SECRETKEY", "DBPASS2", "HTTPAUTH")),
        ("SIGNING_KEY", "/9j4AAQ/SkZJRg+begins=as/a/path/does"),
        ("GOOGLE_CREDENTIALS", '{"private_key": "x"}'),
    ],
)
def test_what_is_named_as_a_secret_is_one(name: str, value: str) -> None:
    assert secrets_in({name: value}) == [value]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GIT_AUTHOR_NAME", "Alice Example"),
        ("GIT_AUTHOR_EMAIL", "alice@example.org"),
        ("COMPASS_HOME", "/home/alice"),
        ("KEYBOARD_LAYOUT", "de-latin1"),
        ("MONKEY_BUSINESS", SECRET),
        ("TOKENIZERS_PARALLELISM", "false and no secret"),
        ("SECRETARY", "Alice Example"),
        ("GIT_ASKPASS", "/usr/bin/ask-for-it"),
        ("XAUTHORITY", "/home/alice/.Xauthority"),
        ("SSH_AUTH_SOCK", "/run/user/1000/ssh-agent"),
        ("PGPASSFILE", "/home/alice/.pgpass"),
        ("PASSWORD_STORE_DIR", "/home/alice/store"),
        ("TOKEN_FILE", "/run/secrets/token"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/home/alice/.aws/it"),
        ("SSH_KEY_PATH", "/home/alice/.ssh/id"),
        ("KEYCHAIN_SECRET_NAME", "outlast-at-home"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/alice/google.json"),
        ("TLS_KEY", "~/tls/server.pem"),
        ("", SECRET),
        ("_", "/usr/bin/python3"),
    ],
)
def test_what_only_sounds_like_a_secret_and_the_place_of_one_are_none(name: str, value: str) -> None:
    assert secrets_in({name: value}) == []
