"""Finding label sets by selector, and selectors by labels, without trying all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Generic, TypeVar

from kscale.objects.selectors import Selector

__all__ = ["LabelIndex", "SelectorIndex"]

T = TypeVar("T", bound=Hashable)
_Label = tuple[str, str]
_Labels = Mapping[str, str]


class LabelIndex(Generic[T]):
    """Labelled items by namespace and label, in the order in which they came."""

    __slots__ = ("_all", "_by_label")

    def __init__(self) -> None:
        self._all: dict[str, dict[T, _Labels]] = {}
        self._by_label: dict[tuple[str, _Label], dict[T, _Labels]] = {}

    def add(self, namespace: str, labels: _Labels, item: T) -> None:
        """Adds an item."""
        self._all.setdefault(namespace, {})[item] = labels
        for label in labels.items():
            self._by_label.setdefault((namespace, label), {})[item] = labels

    def remove(self, namespace: str, labels: _Labels, item: T) -> None:
        """Removes it again; ``labels`` as they were when it was added."""
        _drop(self._all, namespace, item)
        for label in labels.items():
            _drop(self._by_label, (namespace, label), item)

    def matching(self, namespace: str, selector: Selector) -> Iterator[T]:
        """What the selector matches."""
        label = selector.exact_label()
        found = self._all.get(namespace, {}) if label is None else self._by_label.get((namespace, label), {})
        return (item for item, labels in list(found.items()) if selector.matches(labels))


class SelectorIndex(Generic[T]):
    """Items with a selector each, by namespace and a label that it requires (None: it requires none)."""

    __slots__ = ("_namespaces",)

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[_Label | None, dict[T, Selector]]] = {}

    def __contains__(self, namespace: str) -> bool:
        """Whether there are items of a namespace."""
        return namespace in self._namespaces

    def add(self, namespace: str, selector: Selector, item: T) -> None:
        """Adds an item."""
        shelves = self._namespaces.setdefault(namespace, {})
        shelves.setdefault(selector.exact_label(), {})[item] = selector

    def remove(self, namespace: str, selector: Selector, item: T) -> None:
        """Removes it again."""
        shelves = self._namespaces[namespace]
        _drop(shelves, selector.exact_label(), item)
        if not shelves:
            del self._namespaces[namespace]

    def matching(self, namespace: str, labels: _Labels) -> Iterator[T]:
        """The items whose selector matches the labels: those that require no label first."""
        shelves = self._namespaces.get(namespace)
        if shelves is None:
            return
        for label in (None, *labels.items()):
            for item, selector in list(shelves.get(label, {}).items()):
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
