"""Effective limit ranges of a namespace (upstream: ``pkg/utils/limitrange``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from kscale.objects.base import ResourceList
from kscale.objects.core import LimitRange, LimitRangeItem
from kscale.objects.quantity import Quantity
from kscale.vpa.resources import CPU, MEMORY

__all__ = ["CONTAINER", "POD", "LimitRangeError", "LimitRangeLookup", "LimitRanges", "NoLimitRanges"]

CONTAINER: Final = "Container"
POD: Final = "Pod"


class LimitRangeError(Exception):
    """The limit ranges could not be read; the text is the lister's."""


class LimitRangeLookup(Protocol):
    """Where effective limit ranges come from."""

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        """The merged limits of a namespace for containers or pods; raises :class:`LimitRangeError`."""


class NoLimitRanges:
    """No limits anywhere (what upstream falls back on when it cannot watch limit ranges)."""

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        """None."""
        del namespace, type_
        return None


@dataclass(frozen=True, slots=True)
class LimitRanges:
    """The limit ranges of a cluster, in listed order."""

    items: tuple[LimitRange, ...] = ()

    @classmethod
    def of(cls, items: Iterable[LimitRange]) -> LimitRanges:
        """From objects."""
        return cls(tuple(items))

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        """The lowest maximum, highest minimum and last default of all items of a type; None if there is none.

        Only cpu and memory are merged; other resources of the first list that has any survive.
        """
        merged: LimitRangeItem | None = None
        for limit_range in self.items:
            if limit_range.namespace != namespace:
                continue
            for item in limit_range.spec.limits:
                if item.type == type_ and not (item.max is None and item.default is None and item.min is None):
                    merged = _merge(merged, item, type_)
        return merged


def _merge(so_far: LimitRangeItem | None, item: LimitRangeItem, type_: str) -> LimitRangeItem:
    if so_far is None:
        so_far = LimitRangeItem(type=type_)
    return msgspec.structs.replace(
        so_far,
        default=item.default if item.default is not None else so_far.default,
        max=_choose(so_far.max, item.max, lambda new, old: new < old),
        min=_choose(so_far.min, item.min, lambda new, old: old < new),
    )


def _choose(
    old: ResourceList | None, new: ResourceList | None, better: Callable[[Quantity, Quantity], bool]
) -> ResourceList | None:
    if new is None:
        return old
    if old is None:
        return dict(new)
    result = dict(old)
    for name in (CPU, MEMORY):
        if name in new and (name not in result or better(new[name], result[name])):
            result[name] = new[name]
    return result
