"""Proven lower bounds on how many identical bins (nodes) a set of item classes (pods) needs. Arrays only.

Every function takes the same three or four arrays:

* ``demand`` int64[K, R]: what one item of each class takes of each resource (pods count as a resource of demand 1),
* ``count`` int64[K]: how many items of each class there are,
* ``capacity`` int64[R]: what one empty bin offers,
* ``max_per_bin`` int64[K] (optional): at most so many of a class in one bin (host ports, anti-affinity to itself).

and returns a :class:`Bound`: no packing needs fewer than ``value`` bins, and ``proof`` holds what proves it.
"""

from __future__ import annotations

from kscale.scheduling.bounds.identical_bins import (
    METHODS,
    best_bound,
    best_bound_of,
    column_generation,
    column_generation_of,
    l2,
    per_class,
    volume,
)
from kscale.scheduling.bounds.instance import Bound, Instance

__all__ = [
    "METHODS",
    "Bound",
    "Instance",
    "best_bound",
    "best_bound_of",
    "column_generation",
    "column_generation_of",
    "l2",
    "per_class",
    "volume",
]
