"""Tools for testing programs that are built on outlast, and outlast itself.

Nothing in the library imports this package.
"""
