"""Catalogues that options name, with warnings about what was left out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kscale.cli.terminal import Terminal

if TYPE_CHECKING:
    from kscale.capacity.catalogue import Catalogue

__all__ = ["catalogue_of", "warn_of_left_out"]


def catalogue_of(name: str, terminal: Terminal) -> Catalogue:
    """Return the catalogue of a name or file, after a warning about each kind of entry left out. Raises InputError."""
    from kscale.capacity.catalogue import read_catalogue

    catalogue = read_catalogue(name)
    warn_of_left_out(catalogue, terminal)
    return catalogue


def warn_of_left_out(catalogue: Catalogue, terminal: Terminal) -> None:
    """Warn about entries of the source that are no types of the catalogue."""
    for reason, count in catalogue.left_out.items():
        terminal.warn(f"{count:,} left out: {reason}")
