"""A file of settings as plain data: JSON or YAML, one document."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Final

import msgspec

from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.decode import syntax_problem
from kscale.objects.repeated_keys import refuse_repeated_keys
from kscale.snapshot.packing import unpacked

__all__ = ["read_plain", "read_plain_file"]

_NUMBER: Final = "a list of at least one"


def read_plain_file(path: str | os.PathLike[str], what: str, number: str = _NUMBER) -> Any:
    """:func:`read_plain` of a file. Raises InputError, also for one that cannot be read."""
    try:
        raw = read_file(path)
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), source=str(path))) from None
    return read_plain(raw, str(path), what, number)


def read_plain(raw: bytes, source: str, what: str, number: str = _NUMBER) -> Any:
    """The data in a file's bytes (packed or not). ``what`` is looked for in it, and how many (``number``). Raises
    InputError with ``source`` and the place."""
    found_text = unpacked(raw, source)
    if isinstance(found_text, Problem):
        raise InputError(found_text)
    text = bytes(found_text)
    name = source.removesuffix(".gz").removesuffix(".zst")
    if text.lstrip()[:1] in (b"[", b"{") and not name.endswith((".yaml", ".yml")):
        try:
            data = msgspec.json.decode(text)
            refuse_repeated_keys(text)
            return data
        except InputError as error:
            raise InputError([replace(problem, source=source) for problem in error.problems]) from None
        except RecursionError:
            raise InputError(Problem("nested too deeply to be read", source)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if isinstance(error, msgspec.DecodeError):
                raise InputError(syntax_problem(error, text, source)) from None
            raise InputError(Problem(f"not UTF-8: {error}", source)) from None
    from kscale.snapshot.yaml_documents import only_document

    found = only_document(text, source)
    if found is None:
        raise InputError(Problem(f"no {what} in it: {number} is expected", source))
    return found
