"""Catalogues of instance types: capacity, allocatable resources and prices of a cloud's machines."""

from __future__ import annotations

from kscale.capacity.catalogue.reading import keep, known_catalogues, path_of, read_catalogue, read_prices
from kscale.capacity.catalogue.types import Catalogue, InstanceType, Overhead, UnknownTypeError

__all__ = [
    "Catalogue",
    "InstanceType",
    "Overhead",
    "UnknownTypeError",
    "keep",
    "known_catalogues",
    "path_of",
    "read_catalogue",
    "read_prices",
]
