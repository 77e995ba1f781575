"""Catalogues of instance types: capacity, allocatable resources and prices of a cloud's machines."""

from __future__ import annotations

from kscale.capacity.catalogue.reading import list_catalogues, path_of, read_catalogue, read_prices, store_catalogue
from kscale.capacity.catalogue.types import Catalogue, InstanceType, Overhead, UnknownTypeError

__all__ = [
    "Catalogue",
    "InstanceType",
    "Overhead",
    "UnknownTypeError",
    "list_catalogues",
    "path_of",
    "read_catalogue",
    "read_prices",
    "store_catalogue",
]
