"""A file of settings as plain data: JSON or YAML, one document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from kscale.errors import InputError, Problem
from kscale.objects.decode import syntax_problem
from kscale.objects.repeated_keys import refuse_repeated_keys
from kscale.snapshot.packing import unpacked

__all__ = ["read_plain"]


def read_plain(raw: bytes, source: str, what: str, number: str = "a list of at least one") -> Any:
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
