"""Finding what a selector matches, and which selectors match, without trying all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from kscale.objects.selectors import Selector

__all__ = ["LabelIndex", "SelectorIndex"]

T = TypeVar("T")
_Pair = tuple[str, str, str]  # namespace, key, value


def _exact_pair(selector: Selector) -> tuple[str, str] | None:
    """A label that everything selected has, if there is one."""
    for item in selector.requirements:
        if item.operator in ("in", "=", "==") and len(item.values) == 1:
            return item.key, item.values[0]
    return None


class LabelIndex(Generic[T]):
    """Labelled items (by identity, in insertion order) by namespace and label."""

    def __init__(self) -> None:
        self._all: dict[str, dict[int, tuple[Mapping[str, str], T]]] = {}
        self._by_pair: dict[_Pair, dict[int, tuple[Mapping[str, str], T]]] = {}

    def add(self, namespace: str, labels: Mapping[str, str], item: T) -> None:
        """Add an item."""
        self._all.setdefault(namespace, {})[id(item)] = labels, item
        for key, value in labels.items():
            self._by_pair.setdefault((namespace, key, value), {})[id(item)] = labels, item

    def remove(self, namespace: str, labels: Mapping[str, str], item: T) -> None:
        """Remove it again; ``labels`` as they were when it was added."""
        del self._all[namespace][id(item)]
        for key, value in labels.items():
            del self._by_pair[namespace, key, value][id(item)]

    def matching(self, namespace: str, selector: Selector) -> Iterator[T]:
        """What the selector matches."""
        pair = _exact_pair(selector)
        candidates = self._all.get(namespace, {}) if pair is None else self._by_pair.get((namespace, *pair), {})
        return (item for labels, item in list(candidates.values()) if selector.matches(labels))


class SelectorIndex(Generic[T]):
    """Items with a selector each, by namespace and a label that it requires."""

    def __init__(self) -> None:
        self._general: dict[str, dict[int, tuple[Selector, T]]] = {}
        self._by_pair: dict[_Pair, dict[int, tuple[Selector, T]]] = {}

    def _home(self, namespace: str, selector: Selector) -> dict[int, tuple[Selector, T]]:
        pair = _exact_pair(selector)
        if pair is None:
            return self._general.setdefault(namespace, {})
        return self._by_pair.setdefault((namespace, *pair), {})

    def add(self, namespace: str, selector: Selector, item: T) -> None:
        """Add an item."""
        self._home(namespace, selector)[id(item)] = selector, item

    def remove(self, namespace: str, selector: Selector, item: T) -> None:
        """Remove it again."""
        del self._home(namespace, selector)[id(item)]

    def matching(self, namespace: str, labels: Mapping[str, str]) -> Iterator[T]:
        """The items whose selector matches the labels."""
        for selector, item in list(self._general.get(namespace, {}).values()):
            if selector.matches(labels):
                yield item
        for key, value in labels.items():
            for selector, item in list(self._by_pair.get((namespace, key, value), {}).values()):
                if selector.matches(labels):
                    yield item
