"""Effective limit ranges of a namespace (upstream: ``pkg/utils/limitrange``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


class LimitRanges:
    """The limit ranges of a cluster, those of a namespace in the order in which they came.

    ``items``: the first ones; :meth:`apply` and :meth:`remove` take what changes. Single owner.
    """

    __slots__ = ("_by_namespace", "_effective")

    def __init__(self, items: Iterable[LimitRange] = ()) -> None:
        self._by_namespace: dict[str, dict[str, LimitRange]] = {}
        self._effective: dict[tuple[str, str], LimitRangeItem | None] = {}
        for item in items:
            self.apply(item)

    def __repr__(self) -> str:
        return f"<LimitRanges: {sum(map(len, self._by_namespace.values()))} in {len(self._by_namespace)} namespaces>"

    def __iter__(self) -> Iterator[LimitRange]:
        return (item for known in self._by_namespace.values() for item in known.values())

    def apply(self, item: LimitRange) -> None:
        """A limit range (``item``) is there, or has changed: it takes the place of the one of its name."""
        self._by_namespace.setdefault(item.namespace, {})[item.name] = item
        self._forget(item.namespace)

    def remove(self, namespace: str, name: str) -> None:
        """A limit range is gone; one that was not there is no error."""
        known = self._by_namespace.get(namespace, {})
        known.pop(name, None)
        if not known:
            self._by_namespace.pop(namespace, None)
        self._forget(namespace)

    def _forget(self, namespace: str) -> None:
        for type_ in (CONTAINER, POD):
            self._effective.pop((namespace, type_), None)

    def effective(self, namespace: str, type_: str) -> LimitRangeItem | None:
        """The lowest maximum, highest minimum and last default of all items of a type (``type_``: Container, Pod);
        None if there is none.

        Only cpu and memory are merged; other resources of the first list that has any survive.
        """
        if namespace not in self._by_namespace:
            return None
        key = (namespace, type_)
        if key not in self._effective:
            self._effective[key] = self._merged(namespace, type_)
        return self._effective[key]

    def _merged(self, namespace: str, type_: str) -> LimitRangeItem | None:
        merged: LimitRangeItem | None = None
        for limit_range in self._by_namespace[namespace].values():
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
