"""The merged configuration: sources in rising order, mistakes named with key and file, trust."""

import os
from pathlib import Path

import pytest

from outlast.agents import Claude, Codex, Command
from outlast.agents.absent import AbsentAgent
from outlast.agents.contract import Agent
from outlast.agents.registry import usable
from outlast.config import Flags, TrustState, load_config
from outlast.config.files import read_project_file
from outlast.config.load import trust_of
from outlast.errors import ConfigError

USER = """
[agents.mine]
kind = "command"
command = ["python3", "mine.py"]
idle_timeout = "10m"
model = "small"
"""


class Place:
    """A home, a project folder, and the environment of a command that runs there."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = root / "project"
        for folder in (self.home / ".config" / "outlast", self.project / "src"):
            folder.mkdir(parents=True)
        self.environ = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"}

    def user(self, text: str) -> None:
        (self.home / ".config" / "outlast" / "config.toml").write_text(text)

    def own(self, text: str) -> None:
        (self.project / "outlast.toml").write_text(text)

    def trust(self, *, yes: bool = True) -> None:
        file = read_project_file(str(self.project))
        assert file is not None
        trust_of(self.environ).decide(file, trusted=yes)


def used(place: Place) -> dict[str, Agent]:
    """The agents, as who uses each of them gets them."""
    agents = load_config(place.environ, str(place.project)).agents()
    return {name: usable(agent) for name, agent in agents.items()}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- sources ------------------------------------------------------------------------------------


def test_without_any_file_the_store_is_in_the_state_folder(place: Place) -> None:
    config = load_config(place.environ, str(place.project))
    assert config.store_url == f"sqlite://{place.home}/.local/state/outlast/outlast.db"
    assert config.notices == ()


def test_the_users_file_describes_agents(place: Place) -> None:
    place.user(USER)
    agent = load_config(place.environ, str(place.project)).agents()["mine"]
    assert isinstance(agent, Command)
    assert agent.command == ("python3", "mine.py")
    assert agent.idle_timeout == 600.0
    assert agent.total_timeout is None


def test_xdg_config_home_says_where_the_users_file_is(place: Place, tmp_path: Path) -> None:
    place.user(USER)
    other = tmp_path / "elsewhere" / "outlast"
    other.mkdir(parents=True)
    (other / "config.toml").write_text('store = "sqlite:///var/x.db"')
    config = load_config(place.environ | {"XDG_CONFIG_HOME": str(other.parent)}, str(place.project))
    assert config.store_url == "sqlite:///var/x.db"
    assert "mine" not in config.agent_settings


def test_outlast_config_names_the_users_file_and_must_be_there(place: Place, tmp_path: Path) -> None:
    named = tmp_path / "named.toml"
    with pytest.raises(ConfigError, match="which is not there"):
        load_config(place.environ | {"OUTLAST_CONFIG": str(named)}, str(place.project))
    named.write_text(USER)
    assert (
        "mine"
        in load_config(place.environ | {"OUTLAST_CONFIG": str(named)}, str(place.project)).agent_settings
    )


def test_flags_win_over_the_environment_over_the_project_over_the_user(place: Place) -> None:
    place.user('store = "sqlite:///user.db"')
    place.own('store = "sqlite:///project.db"')
    place.trust()
    at = str(place.project)
    assert load_config(place.environ, at).store_url == "sqlite:///project.db"
    environ = place.environ | {"OUTLAST_STORE": "sqlite:///environ.db"}
    assert load_config(environ, at).store_url == "sqlite:///environ.db"
    assert load_config(environ, at, Flags(store="sqlite:///flag.db")).store_url == "sqlite:///flag.db"


def test_a_project_changes_single_keys_of_an_agent(place: Place) -> None:
    place.user(USER)
    place.own('[agents.mine]\nmodel = "large"\n')
    agent = load_config(place.environ, str(place.project)).agents()["mine"]
    assert isinstance(agent, Command)
    assert (agent.model, agent.command) == ("large", ("python3", "mine.py"))


def test_without_a_home_there_is_no_users_file_and_no_error_where_state_is_named(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwd.getpwuid", _nobody)
    environ = {"PATH": "/usr/bin:/bin", "OUTLAST_STATE_DIR": str(tmp_path / "state")}
    assert load_config(environ, str(place.project)).store_url == f"sqlite://{tmp_path}/state/outlast.db"


def _nobody(uid: int) -> None:
    raise KeyError(uid)


# --- agents ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ('["python3", "./agent.py", "-v"]', ("python3", "{folder}/agent.py", "-v")),
        ('["../bin/agent"]', ("{above}/bin/agent",)),
        ('["tools/agent", "tools/data"]', ("{folder}/tools/agent", "tools/data")),
        ('[".tools/agent"]', ("{folder}/.tools/agent",)),
        ('["agent", "agent.py", "https://x/y"]', ("agent", "agent.py", "https://x/y")),
        ('["/opt/agent", "../x"]', ("/opt/agent", "{above}/x")),
    ],
)
def test_a_relative_path_of_a_command_lies_beside_the_file_that_says_it(
    place: Place, said: str, meant: tuple[str, ...]
) -> None:
    place.own(f'[agents.mine]\nkind = "command"\ncommand = {said}\n')
    place.trust()
    expected = tuple(word.format(folder=place.project, above=place.project.parent) for word in meant)
    for workspace in (place.project, place.project / "src"):
        assert load_config(place.environ, str(workspace)).agents()["mine"] == Command(expected)


def test_who_is_asked_to_trust_a_file_sees_the_paths_as_they_are_meant(place: Place) -> None:
    place.own('[agents.mine]\nkind = "command"\ncommand = ["./agent"]\n')
    project = load_config(place.environ, str(place.project / "src")).project
    assert project is not None
    assert project.programs == (f"mine: {place.project}/agent",)


MCP = """
[agents.codex.mcp_servers.tickets]
command = "./server"
args = ["--data", "../data", "plain"]
env = { LOG = "much" }

[agents.codex.mcp_servers.far]
url = "https://x/mcp"
"""


def test_mcp_servers_are_beside_the_file_that_says_them_and_need_trust(place: Place) -> None:
    place.own(MCP)
    config = load_config(place.environ, str(place.project))
    assert config.project is not None
    assert config.project.left_out == ("agents.codex.mcp_servers",)
    above = place.project.parent
    assert config.project.programs == (
        f"codex, MCP server tickets: {place.project}/server --data {above}/data plain",
    )
    assert config.agents()["codex"] == Codex()
    place.trust()
    agent = load_config(place.environ, str(place.project / "src")).agents()["codex"]
    assert isinstance(agent, Codex)
    assert agent.mcp_servers == {
        "tickets": {
            "command": f"{place.project}/server",
            "args": ["--data", f"{above}/data", "plain"],
            "env": {"LOG": "much"},
        },
        "far": {"url": "https://x/mcp"},
    }


def test_mcp_servers_are_for_programs_that_have_such(place: Place) -> None:
    place.user('[agents.claude.mcp_servers.x]\ncommand = "/x"\n')
    agent = load_config(place.environ, str(place.project)).agents()["claude"]
    assert isinstance(agent, Claude)
    assert agent.mcp_servers == {"x": {"command": "/x"}}
    place.user('[agents.mine]\nkind = "command"\ncommand = ["x"]\nmcp_servers = {}\n')
    with pytest.raises(ConfigError, match="for agents of kind codex or claude"):
        used(place)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("mcp_servers = 3", "has to be a table; it is a number"),
        (
            'command = "python3 x"',
            'command` in {file}:1 has to be a list of texts, like ["one", "two"]; it is one text',
        ),
        ('command = ["x", 3]', 'has to be a list of texts, like ["one", "two"]; it is a list'),
        ('stdin = "maybe"', 'stdin` in {file}:1 has to be "close" or "open"; it is another text'),
        ('require_nonce = "yes"', "has to be true or false; it is another text"),
        ("model = 5", "has to be a text in quotes; it is a number"),
        ("idle_timeout = 10", 'has to be a length of time in quotes, like "90s" or "10m"; it is a number'),
        ("isolate = true", 'has to be "none"; it is true'),
        ('env = "KEY=sk-secret"', "has to be a list of texts"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_in_plain_words(place: Place, line: str, told: str) -> None:
    place.user(f'[agents.mine]\nkind = "command"\n{line}\n')
    with pytest.raises(ConfigError) as caught:
        used(place)
    assert told.format(file=place.home / ".config/outlast/config.toml") in str(caught.value)
    assert "secret" not in str(caught.value)
    if "list of texts" in told:
        name = line.partition(" ")[0]
        assert caught.value.hint == f'a list stands in brackets, also one of a single word: {name} = ["…"]'


def test_codex_works_by_name_when_it_is_on_path(place: Place, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    agents = load_config(place.environ | {"PATH": str(program.parent)}, str(place.project)).agents()
    assert isinstance(agents["codex"], Codex)


def test_a_claude_agent_takes_a_program_a_model_and_a_mode(place: Place) -> None:
    place.user('[agents.claude]\ncommand = ["/opt/claude"]\nmodel = "m"\npermission_mode = "plan"\n')
    agent = load_config(place.environ, str(place.project)).agents()["claude"]
    assert agent == Claude(binary="/opt/claude", model="m", permission_mode="plan")


def test_a_codex_agent_takes_a_program_and_a_model(place: Place) -> None:
    place.user('[agents.codex]\ncommand = ["/opt/codex"]\nmodel = "m"\ntotal_timeout = "none"\n')
    agent = load_config(place.environ, str(place.project)).agents()["codex"]
    assert agent == Codex(binary="/opt/codex", model="m", total_timeout=None)


@pytest.mark.parametrize("kind", ["acp", "opencode", "gemini", "native"])
def test_a_kind_that_comes_later_is_refused_as_such(place: Place, kind: str) -> None:
    place.user(f'[agents.x]\nkind = "{kind}"\n')
    with pytest.raises(ConfigError, match="not available in this version"):
        used(place)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[agents.x]\nkind = "comand"\n', "agents.x.kind"),
        ('[agents.x]\nkind = "command"\ncomand = ["a"]\n', "agents.x.comand"),
        ('[agents.x]\nkind = "command"\ncommand = "a b"\n', "agents.x.command"),
        ('[agents.x]\nkind = "command"\ncommand = ["a"]\nidle_timeout = 10\n', "agents.x.idle_timeout"),
        ('[agents.x]\nkind = "command"\ncommand = ["a"]\nidle_timeout = "10"\n', "agents.x.idle_timeout"),
        ('[agents.x]\nkind = "command"\ncommand = ["a"]\non_interrupt = "again"\n', "agents.x.on_interrupt"),
        ('[agents.x]\nkind = "command"\ncommand = ["a"]\nisolate = "pidns"\n', "agents.x.isolate"),
        ('[agents]\nx = "python"\n', "agents.x"),
        ('agents = "x"\n', "agents"),
        ("stroe = 1\n", "stroe"),
        ("store = 1\n", "store"),
        ('[workspace]\non_divergence = "overwrite"\n', "workspace.on_divergence"),
        ("[workspace]\nexclusiv = true\n", "workspace.exclusiv"),
        ("[workspace\n", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_its_file(place: Place, text: str, named: str) -> None:
    place.user(text)
    with pytest.raises(ConfigError) as caught:
        used(place)
    assert named in caught.value.message
    assert "config.toml" in caught.value.message


WRONG_TABLES = """
[agents.one]
kind = "command"
comand = ["a"]

[agents."two".mcp_servers.x]
command = "/x"

[agents.three]
kind = "command"
"""


def test_a_broken_table_is_only_that_agents(place: Place) -> None:
    """Each is known by name, and raises its own error with the place that it has; the others work."""
    place.user(f"{USER}{WRONG_TABLES}")
    agents = load_config(place.environ, str(place.project)).agents()
    assert isinstance(agents["mine"], Command)
    file = place.home / ".config/outlast/config.toml"
    for name, line in (("one", 8), ("two", 12), ("three", 15)):
        assert isinstance(agents[name], AbsentAgent)
        with pytest.raises(ConfigError, match=f"{file}:{line}") as caught:
            usable(agents[name])
        assert name in caught.value.message


def test_a_broken_table_of_an_installed_program_is_not_passed_over(place: Place, tmp_path: Path) -> None:
    """It would run with other settings than the user had written."""
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    place.environ["PATH"] = str(program.parent)
    place.user('[agents.codex]\nsandbox = "read-onyl"\n')
    assert isinstance(load_config(place.environ, str(place.project)).agents()["codex"], AbsentAgent)


@pytest.mark.parametrize("whose", ["user", "project"])
def test_a_table_that_is_broken_in_one_file_is_not_taken_from_the_other(place: Place, whose: str) -> None:
    wrong = '[agents.mine]\nidle_timeout = "soon"\n'
    place.user(wrong if whose == "user" else USER)
    place.own(USER if whose == "user" else wrong)
    place.trust()
    with pytest.raises(ConfigError, match=r"agents\.mine\.idle_timeout"):
        used(place)


def test_a_mistyped_key_comes_with_the_one_that_was_meant(place: Place) -> None:
    place.user('[agents.x]\nkind = "command"\ncomand = ["a"]\n')
    with pytest.raises(ConfigError, match="did you mean `command`"):
        used(place)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[agents.x]\nkind = "command"\n', "no `command`"),
        (
            '[agents.x]\nkind = "command"\ncommand = ["a"]\nenv = ["OUTLAST_STORE"]\n',
            "outlast's own variable",
        ),
        ('[agents.x]\nkind = "codex"\nstdin = "open"\n', "for agents of kind command"),
        (
            '[agents.x]\nkind = "command"\ncommand = ["a"]\nsandbox = "read-only"\n',
            "for agents of kind codex",
        ),
        ('[agents.x]\nkind = "codex"\npermission_mode = "plan"\n', "for agents of kind claude"),
        ('[agents.x]\nkind = "claude"\nsandbox = "read-only"\n', "for agents of kind codex"),
        ('[agents.x]\ncommand = ["a"]\n', "what kind of agent"),
    ],
)
def test_an_agent_that_cannot_be_is_named(place: Place, text: str, why: str) -> None:
    place.user(text)
    with pytest.raises(ConfigError, match=why) as caught:
        used(place)
    assert "x" in caught.value.message


def test_a_file_that_is_not_utf8_is_refused_with_the_place(place: Place) -> None:
    (place.home / ".config" / "outlast" / "config.toml").write_bytes(b"store = '\xff'")
    with pytest.raises(ConfigError, match="byte 9 is invalid"):
        load_config(place.environ, str(place.project))


# --- trust ----------------------------------------------------------------------------------------

PROJECT = """
store = "sqlite:///tmp/theirs.db"
[agents.theirs]
kind = "command"
command = ["./evil.sh", "with space"]
[agents.mine]
command = ["./evil.sh"]
env = ["SECRET"]
model = "large"
[workspace]
exclusive = false
"""


def test_a_projects_programs_count_only_in_a_trusted_folder(place: Place) -> None:
    place.user(USER)
    place.own(PROJECT)
    config = load_config(place.environ, str(place.project))
    agents = config.agents()
    assert "theirs" not in agents
    assert isinstance(agents["mine"], Command)
    assert agents["mine"].command == ("python3", "mine.py")
    assert agents["mine"].env == ()
    assert agents["mine"].model == "large"
    assert "theirs.db" not in config.store_url

    place.trust()
    trusted = load_config(place.environ, str(place.project))
    assert isinstance(trusted.agents()["theirs"], Command)
    assert trusted.agents()["mine"].command == (f"{place.project}/evil.sh",)  # type: ignore[attr-defined]
    assert trusted.store_url == "sqlite:///tmp/theirs.db"
    assert trusted.notices == ()


def test_an_untrusted_folder_does_not_loosen_what_codex_may_do(place: Place) -> None:
    place.user('[agents.codex]\nsandbox = "read-only"\napproval = "untrusted"\n')
    place.own('[agents.codex]\nsandbox = "danger-full-access"\napproval = "never"\n')
    codex = load_config(place.environ, str(place.project)).agents()["codex"]
    assert isinstance(codex, Codex)
    assert (codex.sandbox, codex.approval) == ("read-only", "untrusted")


def test_what_was_left_out_is_told_in_one_line_with_the_command_that_lets_it_count(place: Place) -> None:
    place.own(PROJECT)
    (notice,) = load_config(place.environ, str(place.project)).notices
    assert "\n" not in notice
    assert "store, agents.theirs.kind, agents.theirs.command" in notice
    assert f"outlast trust {place.project}" in notice


def test_the_file_of_a_folder_above_is_found_from_below(place: Place) -> None:
    place.user(USER)
    place.own(PROJECT)
    place.trust()
    assert "theirs" in load_config(place.environ, str(place.project / "src")).agent_settings


def test_a_file_that_changed_since_it_was_trusted_is_asked_about_again(place: Place) -> None:
    place.own(PROJECT)
    place.trust()
    place.own(PROJECT + "\n# a new line\n")
    config = load_config(place.environ, str(place.project))
    assert config.project is not None
    assert config.project.trust is TrustState.CHANGED
    assert "theirs" not in config.agent_settings
    assert "has changed since it was trusted" in config.notices[0]


def test_a_no_is_remembered(place: Place) -> None:
    place.own(PROJECT)
    place.trust(yes=False)
    config = load_config(place.environ, str(place.project))
    assert config.project is not None
    assert config.project.trust is TrustState.REFUSED


def test_trust_in_one_folder_is_no_trust_in_a_copy_of_it(place: Place, tmp_path: Path) -> None:
    place.own(PROJECT)
    place.trust()
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "outlast.toml").write_text(PROJECT)
    assert "theirs" not in load_config(place.environ, str(clone)).agent_settings


def test_a_folder_is_the_same_through_a_link(place: Place, tmp_path: Path) -> None:
    place.user(USER)
    place.own(PROJECT)
    place.trust()
    link = tmp_path / "link"
    link.symlink_to(place.project)
    assert "theirs" in load_config(place.environ, str(link)).agent_settings


BROKEN = {
    "unclosed": "[broken\n",
    "unknown": "unknown = 1\n",
    "unavailable": '[agents.x]\nkind = "acp"\n',
    "nested": f"a = {'[' * 5000}{']' * 5000}\n",
    "nested tables": f"a = {'{a=' * 5000}",
    "deep": f"[{'.'.join('a' * 20_000)}]\n",
    "deep key": f"{'.'.join('a' * 20_000)} = 1\n",
    "digits": f"a = {'1' * 5000}\n",
    "no date": "a = 0000-00-00\n",
    "large": f"# {'x' * 70_000}\n",
    "long name": f"{'x' * 60_000} = 1\n",
    "no time": '[agents.mine]\nidle_timeout = "0s"\n',
    "no end": f'[agents.mine]\nidle_timeout = "{"9" * 400}s"\n',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_of_an_untrusted_folder_breaks_nothing(place: Place, text: str) -> None:
    place.user(USER)
    place.own(text)
    config = load_config(place.environ, str(place.project))
    assert "mine" in config.agents()
    (notice,) = config.notices
    assert "was not used" in notice
    assert len(notice) < 1000
    place.trust()
    if (file := read_project_file(str(place.project))) is not None and file.problem is None:
        with pytest.raises(ConfigError):
            used(place)


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_the_users_own_broken_file_is_an_error_that_names_it(place: Place, text: str) -> None:
    place.user(text)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        used(place)


def test_a_file_that_cannot_be_read_breaks_nothing(place: Place) -> None:
    (place.project / "outlast.toml").symlink_to("/proc/self/mem")  # reading it is an error, also for root
    config = load_config(place.environ, str(place.project))
    assert "was not used" in config.notices[0]
    assert "cannot be read: Input/output error" in config.notices[0]


def test_a_notice_stays_a_line_whatever_the_file_says(place: Place) -> None:
    place.own("".join(f'[agents.a{number}]\nkind = "command"\n' for number in range(1000)))
    config = load_config(place.environ, str(place.project))
    assert "agents.a0.kind" in config.notices[0]
    assert "and 996 more" in config.notices[0]
    assert len(config.notices[0]) < 1000


def test_a_decision_is_readable_by_the_user_alone(place: Place) -> None:
    place.own(PROJECT)
    place.trust()
    folder = place.home / ".local" / "state" / "outlast" / "trust"
    (record,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert record.stat().st_mode & 0o777 == 0o600


def test_a_damaged_decision_is_no_trust(place: Place) -> None:
    place.own(PROJECT)
    place.trust()
    (record,) = (place.home / ".local" / "state" / "outlast" / "trust").iterdir()
    record.write_bytes(os.urandom(20))
    assert "theirs" not in load_config(place.environ, str(place.project)).agent_settings


def test_taking_trust_back_is_possible_without_the_file(place: Place) -> None:
    place.own(PROJECT)
    place.trust()
    (place.project / "outlast.toml").unlink()
    trust = trust_of(place.environ)
    assert trust.forget(place.project)
    assert not trust.forget(place.project)
    place.own(PROJECT)
    assert "theirs" not in load_config(place.environ, str(place.project)).agent_settings
