"""A real store in a folder of its own."""

from tests.support.store_fixtures import own_state_folder, store, url

__all__ = ["own_state_folder", "store", "url"]
