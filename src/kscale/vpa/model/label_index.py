"""Finding label sets by selector, and selectors by labels, without trying all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from kscale.objects.selectors import Selector

__all__ = ["LabelIndex", "SelectorIndex"]

T = TypeVar("T", bound=Hashable)
_Pair = tuple[str, str, str]  # namespace, key, value
_Labels = Mapping[str, str]


class LabelIndex(Generic[T]):
    """Labelled items by namespace and label, in the order in which they came."""

    __slots__ = ("_all", "_by_pair")

    def __init__(self) -> None:
        self._all: dict[str, dict[T, _Labels]] = {}
        self._by_pair: dict[_Pair, dict[T, _Labels]] = {}

    def add(self, namespace: str, labels: _Labels, item: T) -> None:
        """Adds an item."""
        self._all.setdefault(namespace, {})[item] = labels
        for key, value in labels.items():
            self._by_pair.setdefault((namespace, key, value), {})[item] = labels

    def remove(self, namespace: str, labels: _Labels, item: T) -> None:
        """Removes it again; ``labels`` as they were when it was added."""
        _drop(self._all, namespace, item)
        for key, value in labels.items():
            _drop(self._by_pair, (namespace, key, value), item)

    def matching(self, namespace: str, selector: Selector) -> Iterator[T]:
        """What the selector matches."""
        pair = selector.exact_label()
        found = self._all.get(namespace, {}) if pair is None else self._by_pair.get((namespace, *pair), {})
        return (item for item, labels in list(found.items()) if selector.matches(labels))


class SelectorIndex(Generic[T]):
    """Items with a selector each, by namespace and a label that it requires."""

    __slots__ = ("_by_pair", "_general")

    def __init__(self) -> None:
        self._general: dict[str, dict[T, Selector]] = {}
        self._by_pair: dict[_Pair, dict[T, Selector]] = {}

    def add(self, namespace: str, selector: Selector, item: T) -> None:
        """Adds an item."""
        pair = selector.exact_label()
        if pair is None:
            self._general.setdefault(namespace, {})[item] = selector
        else:
            self._by_pair.setdefault((namespace, *pair), {})[item] = selector

    def remove(self, namespace: str, selector: Selector, item: T) -> None:
        """Removes it again."""
        pair = selector.exact_label()
        if pair is None:
            _drop(self._general, namespace, item)
        else:
            _drop(self._by_pair, (namespace, *pair), item)

    def matching(self, namespace: str, labels: _Labels) -> Iterator[T]:
        """The items whose selector matches the labels."""
        for item, selector in list(self._general.get(namespace, {}).items()):
            if selector.matches(labels):
                yield item
        for key, value in labels.items():
            for item, selector in list(self._by_pair.get((namespace, key, value), {}).items()):
                if selector.matches(labels):
                    yield item


_Place = TypeVar("_Place", bound=Hashable)
_Kept = TypeVar("_Kept", _Labels, Selector)


def _drop(shelves: dict[_Place, dict[T, _Kept]], place: _Place, item: T) -> None:
    """An item leaves its shelf; an empty shelf goes."""
    shelf = shelves[place]
    del shelf[item]
    if not shelf:
        del shelves[place]
