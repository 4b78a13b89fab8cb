"""What is read without a runtime: the configuration and, synchronously, the catalog. Light to import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from outlast.cli.output import Screen, visible
from outlast.config import Config, load_config

if TYPE_CHECKING:
    from outlast.store.contract import CatalogQuery, Listed


def loaded_config(screen: Screen, workspace: str | None = None) -> Config:
    """The configuration here, its notices told. Raises ConfigError, UsageError."""
    config = load_config(os.environ, workspace or ".")
    tell_notices(config, screen)
    return config


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
