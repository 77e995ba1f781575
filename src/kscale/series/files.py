"""Files of series: what a name says of the form, and what is in them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection
from pathlib import Path

from kscale.errors import InputError, Problem
from kscale.files import read_file

__all__ = ["content_of", "form_of"]


def form_of(path: Path, forms: Collection[str], what: str) -> str:
    """Which of ``forms`` (suffixes) a file is of by its name, packed with gzip or not; else raises ``InputError``.

    ``what``: what it holds, for the error."""
    name = path.name.lower().removesuffix(".gz")
    for form in forms:
        if name.endswith(form):
            return form
    *others, last = forms
    raise InputError(
        Problem(f"{what} is read from {', '.join(others)} or {last} (a Prometheus range answer)", str(path))
    )


def content_of(path: Path) -> bytes:
    """What a file holds, unpacked. Raises ``InputError`` when it cannot be read."""
    try:
        data = read_file(path)
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), str(path))) from None
    if path.suffix.lower() != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(Problem(f"not gzip: {error}", str(path))) from None
