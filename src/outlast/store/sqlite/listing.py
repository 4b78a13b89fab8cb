"""The statements that list and find sessions by the catalog."""

from __future__ import annotations

from outlast.store.contract import DECISIONS, CatalogQuery
from outlast.store.sqlite.packing import Value
from outlast.store.sqlite.rows import CATALOG_COLUMNS

_ENTRY = f"name, {', '.join('catalog.' + column for column in CATALOG_COLUMNS.split(', '))}"
# Both counts from indexes alone. Inputs are what is no command: an index by kind would have them all twice.
_LISTED = (
    f"{_ENTRY},"
    " (SELECT count(*) FROM inbox WHERE inbox.s = catalog.s)"
    " - (SELECT count(*) FROM inbox WHERE inbox.s = catalog.s AND kind <> 'input'),"
    f" (SELECT count(*) FROM inbox WHERE inbox.s = catalog.s AND kind <> 'input' AND kind IN {DECISIONS}),"
    " lease.epoch, node.id, pid, start_ticks, boot_id, pid_ns, label"
)
_OWNER = " LEFT JOIN lease ON lease.s = catalog.s LEFT JOIN node ON node.id = lease.node"
# CROSS JOIN fixes the order: the first table is the one whose index bounds the work.
_BY_CATALOG = f"SELECT {_LISTED} FROM catalog CROSS JOIN session ON session.s = catalog.s{_OWNER}"
_BY_NAME = f"SELECT {_LISTED} FROM session CROSS JOIN catalog ON catalog.s = session.s{_OWNER}"
_NEWEST = " ORDER BY catalog.last_activity_at DESC LIMIT ?"
LIST_ALL = _BY_CATALOG + _NEWEST
LIST_WORKSPACE = f"{_BY_CATALOG} WHERE catalog.workspace = ?{_NEWEST}"
LIST_EXACT = f"{_BY_NAME} WHERE name = ?"
SELECT_CATALOG = f"SELECT {_ENTRY} FROM session CROSS JOIN catalog ON catalog.s = session.s WHERE name = ?"
LIST_PREFIX = f"{_BY_NAME} WHERE name >= ? AND name < ?{_NEWEST}"
LIST_WORKSPACE_PREFIX = f"{_BY_NAME} WHERE name >= ? AND name < ? AND catalog.workspace = ?{_NEWEST}"
_KNOWN = (
    "(EXISTS (SELECT 1 FROM catalog WHERE catalog.s = session.s)"
    " OR EXISTS (SELECT 1 FROM record WHERE record.s = session.s)"
    " OR EXISTS (SELECT 1 FROM inbox WHERE inbox.s = session.s))"
)
FIND_EXACT = f"SELECT name FROM session WHERE name = ? AND {_KNOWN}"
FIND_PREFIX = f"SELECT name FROM session WHERE name >= ? AND name < ? AND {_KNOWN} ORDER BY name LIMIT 2"


def prefixed(prefix: str) -> tuple[str, str]:
    return prefix, prefix + "\U0010ffff"


def list_statement(query: CatalogQuery) -> tuple[str, tuple[Value, ...]]:
    match query:
        case CatalogQuery(workspace=None, prefix=None):
            return LIST_ALL, (query.limit,)
        case CatalogQuery(workspace=str(workspace), prefix=None):
            return LIST_WORKSPACE, (workspace, query.limit)
        case CatalogQuery(workspace=None, prefix=str(prefix)):
            return LIST_PREFIX, (*prefixed(prefix), query.limit)
    return LIST_WORKSPACE_PREFIX, (*prefixed(query.prefix or ""), query.workspace, query.limit)
