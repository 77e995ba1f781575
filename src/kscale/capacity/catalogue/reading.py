"""A catalogue in any known form: which one it is, its content says. kscale's own."""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec

from kscale.capacity.catalogue.dumps import read_dump
from kscale.capacity.catalogue.google_prices import HEADER, read_google_prices
from kscale.capacity.catalogue.machine import Kept
from kscale.capacity.catalogue.overhead import Overhead
from kscale.capacity.catalogue.price_lists import Prices, prices_of, read_price_csv, read_retail_prices, retail_pages
from kscale.capacity.catalogue.shelf import is_stored, known_catalogues, path_of
from kscale.capacity.catalogue.table import read_table
from kscale.capacity.catalogue.types import Catalogue
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.decode import syntax_problem

__all__ = ["read_catalogue", "read_prices"]

_NOTHING = ("", "null")  # also what a filter of JSON prints that found nothing


def read_catalogue(
    source: str | os.PathLike[str] | bytes, *, overhead: Overhead | None = None, max_pods: int | None = None
) -> Catalogue:
    """Read a catalogue: a path (``.gz`` or not), the name of an imported one, or the bytes of one.

    It may be kscale's own CSV (:mod:`~kscale.capacity.catalogue.table`), a provider's dump
    (:mod:`~kscale.capacity.catalogue.dumps`) or Google's price table. ``overhead``: whose formula says what pods may
    use where the source does not (None = that of the provider whose form it is; a CSV without a sign of one: nothing is
    kept); ``max_pods``: of each node, instead of what the source says.

    Rows of an imported catalogue that cannot be read are left out, each named in ``left_out``. Of any other source
    they are an error. Raises InputError, with all problems at once, by row and column or by path.
    """
    name, text = _text(source)
    kept = Kept(overhead, max_pods)
    if text.lstrip()[:1] in ("[", "{"):
        return read_dump(_json(text, name), name, kept)
    if _header(text)[:3] == list(HEADER):
        return read_google_prices(text, name, kept)
    return read_table(text, name, kept, stored=not isinstance(source, bytes) and is_stored(source))


def read_prices(source: str | os.PathLike[str] | bytes) -> Prices:
    """Prices apart from machines: a CSV of type, region and price, Azure's retail list, or any catalogue that has some.
    Raises InputError."""
    name, text = _text(source)
    if text.lstrip()[:1] in ("[", "{"):
        data = _json(text, name)
        pages = retail_pages(data)
        if pages is not None:
            return read_retail_prices(pages, name)
        return prices_of(read_dump(data, name, Kept()))
    header = _header(text)
    if "usd_per_hour" in header:
        return read_price_csv(text, name)
    if header[:3] == list(HEADER):
        return prices_of(read_google_prices(text, name, Kept()))
    return prices_of(read_table(text, name, Kept()))


def _text(source: str | os.PathLike[str] | bytes) -> tuple[str, str]:
    name, raw = ("<bytes>", source) if isinstance(source, bytes) else (str(source), _file(Path(source)))
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(Problem(f"damaged gzip file: {error}", source=name)) from None
    except UnicodeDecodeError as error:
        raise InputError(Problem(f"not UTF-8 text: {error}", source=name)) from None
    if text.strip() in _NOTHING:
        raise InputError(Problem("there is nothing in it", source=name))
    return name, text


def _file(path: Path) -> bytes:
    """A file, or an imported catalogue of that name."""
    try:
        return read_file(path)
    except FileNotFoundError:
        known = known_catalogues()
        if path.name in known:
            return read_file(path_of(path.name))
        there = f"; imported are {', '.join(known)}" if known else "; no catalogue is imported"
        text = f"No such file or directory{there if not path.suffix else ''}"
        raise InputError(Problem(text, source=str(path))) from None
    except OSError as error:
        raise InputError(Problem(error.strerror or str(error), source=str(path))) from None


def _header(text: str) -> list[str]:
    try:
        return next(csv.reader(text.splitlines()[:1]), [])
    except csv.Error:
        return []


def _json(text: str, source: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise InputError(Problem("nested too deeply to be read", source)) from None
    except msgspec.DecodeError as error:
        raise InputError(syntax_problem(error, text.encode(), source)) from None
