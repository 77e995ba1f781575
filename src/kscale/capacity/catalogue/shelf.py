"""The user's own catalogues: imported once, known by their names. Files in the user's data directory. kscale's own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from kscale.capacity.catalogue.table import write_table
from kscale.capacity.catalogue.types import Catalogue
from kscale.errors import InputError
from kscale.files import replace_file

__all__ = ["data_directory", "keep", "known_catalogues", "path_of"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def data_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """``kscale`` in ``$XDG_DATA_HOME``, else in ``%LOCALAPPDATA%`` on Windows, else in ``~/.local/share``."""
    if named := environ.get("XDG_DATA_HOME"):
        return Path(named) / "kscale"
    if sys.platform == "win32" and (local := environ.get("LOCALAPPDATA")):
        return Path(local) / "kscale"
    return Path.home() / ".local" / "share" / "kscale"


def path_of(name: str) -> Path:
    """The file of a catalogue. Raises InputError for what can be no name."""
    if not _NAME.fullmatch(name):
        raise InputError(f'"{name}" can be no name of a catalogue: letters, digits, dots, dashes and underscores')
    return data_directory() / "catalogues" / f"{name}.csv"


def known_catalogues() -> list[str]:
    """The names, in order."""
    try:
        return sorted(path.stem for path in (data_directory() / "catalogues").glob("*.csv"))
    except OSError:
        return []


def keep(catalogue: Catalogue, name: str) -> Path:
    """Write a catalogue under a name; one of that name is replaced. Raises InputError where that cannot be written."""
    path = path_of(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, write_table(catalogue).encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    return path
