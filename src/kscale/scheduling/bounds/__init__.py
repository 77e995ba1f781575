"""Proven lower bounds on how many identical bins (nodes) a set of item classes (pods) needs. Arrays only.

Every function takes the same three or four arrays:

* ``demand`` int64[K, R]: what one item of each class uses of each resource (pods count as a resource of demand 1),
* ``count`` int64[K]: number of items of each class,
* ``capacity`` int64[R]: capacity of one empty bin,
* ``max_per_bin`` int64[K] (optional): maximum number of items of a class in one bin (host ports, anti-affinity to
  itself).

Every function returns a :class:`Bound`: no packing needs fewer than ``value`` bins, and ``proof`` has what proves it.
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
