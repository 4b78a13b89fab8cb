"""A place of its own for every test, with nothing left behind."""

from tests.crash.conftest import place

__all__ = ["place"]
