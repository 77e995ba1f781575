"""The user's own catalogues: imported once, known by their names. Files in the user's data directory. kscale's own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kscale.capacity.catalogue.machine import Kept
from kscale.capacity.catalogue.table import read_table, write_table
from kscale.capacity.catalogue.types import Catalogue
from kscale.errors import InputError
from kscale.files import replace_file
from kscale.objects.decode import escaped

__all__ = ["data_directory", "is_stored", "keep", "known_catalogues", "path_of"]

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
    return _folder() / f"{name}.csv"


def _folder() -> Path:
    return data_directory() / "catalogues"


def is_stored(source: str | os.PathLike[str]) -> bool:
    """Return whether this is the file of an imported catalogue, or the name of one without a file of that name."""
    path = Path(source)
    return path.parent == _folder() or (not path.exists() and path.name in known_catalogues())


def known_catalogues() -> list[str]:
    """The names, in order."""
    try:
        return sorted(path.stem for path in _folder().glob("*.csv"))
    except OSError:
        return []


def keep(catalogue: Catalogue, name: str) -> Path:
    """Write a catalogue under a name; one of that name is replaced.

    Raises InputError if the file cannot be written, and for types that could not be read back: nothing is written then.
    """
    path = path_of(name)
    text = write_table(catalogue)
    try:
        read_table(text, str(path), Kept())
    except InputError as error:
        types = dict(enumerate(catalogue, start=2))  # the header is row 1
        problems = []
        for problem in error.problems:
            row = problem.object.removeprefix("row ")
            kind = types.get(int(row)) if row.isdecimal() else None
            where = problem.object if kind is None else f"type {escaped(kind)}"
            problems.append(replace(problem, source=catalogue.source, object=where))
        raise InputError(problems) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text.encode())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    return path
