"""What a database that is damaged does not give of a journal, in words."""

from __future__ import annotations

import apsw

from outlast.errors import IntegrityError
from outlast.store.contract import Tip
from outlast.store.sqlite.packing import PackingError

_MENDS = "`outlast doctor` says what mends it"
_PAGE = "its database page is damaged"


def unreadable(name: str, seq: int, error: Exception) -> IntegrityError:
    """For a record that the database does not give."""
    if isinstance(error, apsw.Error):
        damaged = _PAGE
    else:
        damaged = str(error) if isinstance(error, PackingError) else "its text is no UTF-8"
    return IntegrityError(
        f"record {seq} of the journal of {name} cannot be read: {damaged}",
        seq=seq,
        reason=f"unreadable, {damaged}",
        hint=_MENDS,
        session_id=name,
    )


def missing(name: str, seq: int) -> IntegrityError:
    """For a record that is not there, and one after it is."""
    return IntegrityError(
        f"record {seq} of the journal of {name} is missing",
        seq=seq,
        reason="missing",
        hint=_MENDS,
        session_id=name,
    )


def endless(name: str, noted: Tip | None) -> IntegrityError:
    """For a journal whose end cannot be read; `noted` is where its witness has it."""
    return IntegrityError(
        f"the end of the journal of {name} cannot be read: {_PAGE}",
        seq=0,
        reason=f"unreadable, {_PAGE}",
        noted=0 if noted is None else noted.seq,
        hint=_MENDS,
        session_id=name,
    )
