"""An agent gets the variables that are on a list, and no others."""

import pytest

from outlast.agents.environment import MARKERS, SAFE_NAMES, agent_environment, check_names
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
