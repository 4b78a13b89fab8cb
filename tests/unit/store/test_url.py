"""Addresses: what they name, and what is meant when none is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outlast.errors import InputError, UsageError
from outlast.store.url import database_path, default_url, home, open_store, sqlite_url, state_dir

HOME = {"HOME": "/home/me"}


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/x.db", "/var/x.db"),
        ("sqlite:///~/x/outlast.db", "/home/me/x/outlast.db"),
        ("sqlite:///%7E/x.db", "/~/x.db"),
        ("sqlite:///a%20b/c%3Fd%23e%25.db", "/a b/c?d#e%.db"),
        ("sqlite:///gr\u00fc\u00dfe/%F0%9F%99%82.db", "/gr\u00fc\u00dfe/\U0001f642.db"),
        ("sqlite:////double/slash.db", "//double/slash.db"),
    ],
)
def test_an_address_names_a_file(url: str, path: str) -> None:
    assert database_path(url, HOME) == Path(path)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://x.db",
        "sqlite:x.db",
        "sqlite://",
        "sqlite:///folder/",
        "/var/x.db",
        "",
        "sqlite:///a?b.db",
        "sqlite:///a#b.db",
        "sqlite:///a%zz.db",
        "sqlite:///a%2",
        "sqlite:///a%\u0663\u0663.db",
        "sqlite:///a%00b",
    ],
)
def test_an_address_that_names_no_file_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        database_path(url, HOME)


@pytest.mark.parametrize("url", ["postgresql://host/db", "nats://host", "memories"])
async def test_other_schemes_are_refused_naming_what_there_is(url: str) -> None:
    with pytest.raises(UsageError, match=r"sqlite:.*memory:"):
        await open_store(url)


@pytest.mark.parametrize("url", ["memory:", "memory:/x", "memory://a/b", "memory://-a", "memory:///x.db"])
async def test_a_memory_address_is_a_name_or_nothing(url: str) -> None:
    with pytest.raises(UsageError, match="memory://NAME"):
        await open_store(url)


def test_a_store_within_one_process_has_no_file_that_a_command_could_open() -> None:
    with pytest.raises(UsageError, match="a process of its own"):
        database_path("memory://x", HOME)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_every_file_whose_name_is_text_has_an_address_that_names_it(name: str) -> None:
    assume(name.strip("/.") != "")
    path = Path("/r") / name.strip("/")
    assert database_path(sqlite_url(path), {}) == path


@pytest.mark.parametrize("url", ["sqlite:///caf%E9/x.db", "sqlite:///~/caf%E9.db", "sqlite:///caf\udce9.db"])
def test_a_file_that_no_record_could_name_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="not valid UTF-8"):
        database_path(url, HOME)


@pytest.mark.parametrize("name", ["OUTLAST_STATE_DIR", "XDG_STATE_HOME", "HOME"])
def test_a_state_folder_that_no_record_could_name_is_refused(name: str) -> None:
    environ = HOME | {name: "/caf\udce9"}
    with pytest.raises(InputError, match="not valid UTF-8"):
        database_path(default_url(environ), environ)


def test_a_link_to_a_folder_that_no_record_could_name_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    (tmp_path / "link").symlink_to(odd)
    with pytest.raises(InputError, match="not valid UTF-8"):
        database_path(sqlite_url(tmp_path / "link" / "x.db"), HOME)


def test_the_state_folder_is_the_first_that_is_named() -> None:
    assert state_dir(HOME) == Path("/home/me/.local/state/outlast")
    assert state_dir(HOME | {"XDG_STATE_HOME": "/xdg"}) == Path("/xdg/outlast")
    assert state_dir(HOME | {"XDG_STATE_HOME": "relative"}) == Path("/home/me/.local/state/outlast")
    assert state_dir({"XDG_STATE_HOME": "/xdg", "OUTLAST_STATE_DIR": "/a b?%20"}) == Path("/a b?%20")
    assert state_dir({"OUTLAST_STATE_DIR": "here"}) == Path.cwd() / "here"


def test_the_default_address_names_a_file_in_the_state_folder() -> None:
    environ = {"OUTLAST_STATE_DIR": "/a b?%20"}
    assert database_path(default_url(environ), environ) == Path("/a b?%20/outlast.db")
    assert default_url(environ | {"OUTLAST_STORE": "sqlite:///x.db"}) == "sqlite:///x.db"


def test_without_home_the_password_database_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Entry:
        pw_dir = str(tmp_path)

    monkeypatch.setattr("pwd.getpwuid", lambda uid: Entry)
    assert home({}) == tmp_path
    assert home({"HOME": ""}) == tmp_path
    Entry.pw_dir = str(tmp_path / "gone")
    with pytest.raises(UsageError, match="OUTLAST_STATE_DIR"):
        home({})

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(UsageError, match="OUTLAST_STATE_DIR"):
        default_url({})
