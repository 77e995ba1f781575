"""What nodes reach of storage: found by the labels of a node, without asking every entry there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from kscale.objects.label_index import SelectorIndex
from kscale.objects.selectors import Selector

__all__ = ["Reachable"]

T = TypeVar("T")


class Reachable(Generic[T]):
    """Entries of storage classes with the nodes that each can be reached from."""

    def __init__(self) -> None:
        self._entries: list[T] = []
        self._index: SelectorIndex[tuple[int, int]] = SelectorIndex()  # (number of the entry, of the selector)
        self._columns: dict[str, set[str]] = {}

    def add(self, storage_class: str, entry: T, nodes: Iterable[Selector]) -> None:
        """Adds an entry after the others, reached from the nodes that any of the selectors selects."""
        columns = self._columns.setdefault(storage_class, set())
        for i, selector in enumerate(nodes):
            self._index.add(storage_class, selector, (len(self._entries), i))
            columns.update(requirement.key for requirement in selector.requirements)
        self._entries.append(entry)

    def columns(self, storage_class: str) -> frozenset[str]:
        """The node labels that the selectors of a storage class read."""
        return frozenset(self._columns.get(storage_class, ()))

    def among(self, storage_class: str, labels: Mapping[str, str]) -> list[T]:
        """What a node with these labels reaches of a storage class, in the order in which it was added."""
        found = {number for number, _ in self._index.matching(storage_class, labels)}
        return [self._entries[number] for number in sorted(found)]
