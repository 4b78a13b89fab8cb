"""What is read without a runtime: the configuration and, synchronously, the catalog. Light to import."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from outlast.cli.output import Screen, visible
from outlast.config import Config, load_config

if TYPE_CHECKING:
    from outlast.store.contract import CatalogQuery, Listed


def loaded_config(screen: Screen, session: str | None = None) -> Config:
    """The configuration here, or the one that holds for a session; its notices are told. Raises ConfigError,
    UsageError."""
    config = load_config(os.environ, ".")
    if session is not None:
        config = session_config(config, session)
    tell_notices(config, screen)
    return config


def session_config(config: Config, name: str, *, may_begin: bool = False) -> Config:
    """The configuration that holds for the session `name`: that of its own folder, wherever the command is
    called. The store stays the one in which it was looked for; without such a session nothing changes.
    `may_begin`: the name may be a new session's (see `is_meant`)."""
    workspace = _workspace_of(config, name, may_begin)
    if workspace is None or not os.path.isdir(workspace):  # noqa: PTH112 - a string is what is stored
        return config
    return replace(load_config(config.environ, workspace), store_url=config.store_url)


def _workspace_of(config: Config, name: str, may_begin: bool) -> str | None:
    from outlast.errors import AmbiguousIdError, SchemaError, SessionNotFoundError
    from outlast.store.sqlite.reading import find_session, listed_session
    from outlast.store.url import database_path

    database = database_path(config.store_url, config.environ)
    try:
        session = find_session(database, name)
    except (SessionNotFoundError, AmbiguousIdError, SchemaError):
        return None  # whoever needs the session says so
    if may_begin and not is_meant(name, session):
        return None
    row = listed_session(database, session)
    return None if row is None else row.entry.workspace


_UUID = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
_FIRST = 8
"""Digits from which on a name may stand for the UUID that it begins."""


def is_meant(typed: str, session: str) -> bool:
    """Whether `typed`, which may also be a new session's name, means the existing `session`: by its whole
    id, or as the beginning of a UUID, which nobody gives as a label."""
    return typed == session or (begins_uuid(typed) and is_uuid(session))


def is_uuid(text: str) -> bool:
    return begins_uuid(text) and len(text) == len(_UUID)


def begins_uuid(text: str) -> bool:
    """Whether it is a UUID's text or at least the first eight digits of one."""
    return _FIRST <= len(text) <= len(_UUID) and all(
        mark == "-" if place == "-" else mark in "0123456789abcdef"
        for mark, place in zip(text, _UUID, strict=False)
    )


def tell_notices(config: Config, screen: Screen) -> None:
    for notice in config.notices:
        screen.note(visible(f"outlast: {notice}"))


def list_rows(config: Config, query: CatalogQuery) -> list[Listed]:
    """The sessions of the configured store, newest activity first; none where there is no store yet."""
    from outlast.errors import SchemaError
    from outlast.store.sqlite.layout import Layout
    from outlast.store.sqlite.reading import list_sessions
    from outlast.store.sqlite.schema import is_current
    from outlast.store.url import database_path

    database = database_path(config.store_url, config.environ)
    try:
        return list_sessions(database, query)
    except SchemaError:
        # The very first command may be making the store just now; whatever else the file is raises again.
        return list_sessions(database, query) if is_current(Layout.of(database)) else []


def readable_rows(config: Config, query: CatalogQuery) -> list[Listed]:
    """Of a damaged list: the rows that can be read. Raises IntegrityError where none can be looked for."""
    from outlast.store.sqlite.reading import readable_sessions
    from outlast.store.url import database_path

    rows = readable_sessions(database_path(config.store_url, config.environ))
    return [row for row in rows if query.workspace in (None, row.entry.workspace)]
