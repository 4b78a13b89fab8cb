"""Where configuration files are, and reading them: each once, as bytes, so that what was trusted is what is
used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outlast.errors import ConfigError
from outlast.files import open_regular

PROJECT_FILE = "outlast.toml"
SIZE_LIMIT = 64 * 1024
"""Bytes of a file."""
DOTS = 200
"""In one line: the parser's time grows with the square of a key's depth, or worse, and a clone's file is
parsed unasked."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file as it was read: its real path, its bytes and their digest."""

    path: Path
    data: bytes
    problem: str | None = None
    """Why it could not be read, or not whole."""

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def digest(self) -> str:
        import hashlib

        return hashlib.sha256(self.data).hexdigest()

    def places(self) -> dict[str, str]:
        """By agent, where its table is, for a message: FILE:LINE, of those that a usual header begins."""
        import re

        header = re.compile(r"""\s*\[\s*agents\s*\.\s*([\w-]+|"[^"]*"|'[^']*')\s*[].]""")
        places: dict[str, str] = {}
        for number, line in enumerate(self.data.decode("utf-8", "replace").split("\n"), 1):
            found = header.match(line)
            if found is not None:
                places.setdefault(found[1].strip("\"'"), f"{self.path}:{number}")
        return places

    def parse(self) -> dict[str, object]:
        """The document. Raises ConfigError with line and column."""
        import tomllib

        if self.problem is not None:
            raise ConfigError(f"{self.path} {self.problem}")
        for number, line in enumerate(self.data.split(b"\n"), 1):
            if line.count(b".") > DOTS:
                raise ConfigError(f"{self.path}: line {number} has more than {DOTS} dots")
        try:
            return tomllib.loads(self.data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.path} is not UTF-8: byte {error.start} is invalid") from None
        except RecursionError:
            raise ConfigError(f"{self.path} is nested too deeply") from None
        except ValueError as error:  # also what the parser lets through, of an integer without end for one
            raise ConfigError(f"{self.path} is not valid TOML: {error}") from None


def read_user_file(environ: Mapping[str, str], home: Path | None) -> ConfigFile | None:
    """The user's file, None where there is none.

    `OUTLAST_CONFIG` names it; then it must be there. Else `$XDG_CONFIG_HOME/outlast/config.toml`, else
    `~/.config/outlast/config.toml`; without a home there is no such file. Raises ConfigError.
    """
    path = user_path(environ, home)
    found = None if path is None else _read(path)
    named = environ.get("OUTLAST_CONFIG")
    if found is None and named:
        raise ConfigError(f"OUTLAST_CONFIG names {named}, which is not there")
    return found


def user_path(environ: Mapping[str, str], home: Path | None) -> Path | None:
    """Where the user's file is, or would be; None without a home."""
    named = environ.get("OUTLAST_CONFIG")
    if named:
        return Path(named)
    base = environ.get("XDG_CONFIG_HOME", "")
    if not base.startswith("/"):  # the XDG specification: relative paths are invalid and ignored
        if home is None:
            return None
        base = str(Path(home, ".config"))
    return Path(base, "outlast", "config.toml")


def read_project_file(workspace: str) -> ConfigFile | None:
    """The nearest `outlast.toml` in the workspace or above it. One that cannot be read says so by its
    `problem`; in a folder above, which is not ours to read, it says nothing about this workspace."""
    try:
        folder = Path(os.path.realpath(workspace))
    except FileNotFoundError:  # the current folder was deleted: nothing lies in it
        return None
    for candidate in (folder, *folder.parents):
        path = candidate / PROJECT_FILE
        try:
            found = _read_file(path)
        except OSError as error:
            if candidate != folder:
                continue
            return ConfigFile(path, b"", f"cannot be read: {error.strerror}")
        if found is not None:
            return found
    return None


def _read(path: Path) -> ConfigFile | None:
    """The user's own file. Raises ConfigError."""
    try:
        return _read_file(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _read_file(path: Path) -> ConfigFile | None:
    """The file, as far as it is read; None where there is none. Raises OSError."""
    try:
        with open_regular(path) as file:
            data = file.read(SIZE_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    problem = f"is larger than {SIZE_LIMIT} bytes" if len(data) > SIZE_LIMIT else None
    return ConfigFile(Path(os.path.realpath(path.parent), path.name), data, problem)
