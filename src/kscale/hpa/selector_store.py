"""Which HPAs of a namespace select which pods: two that share a pod block each other.

Upstream: ``pkg/controller/podautoscaler`` (``BiMultimap`` / the optimised selector store).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import NOTHING, Selector

__all__ = ["SelectorStore"]


class SelectorStore:
    """Selectors of registered HPAs by namespace and name. Single owner: not for use from several threads at once."""

    __slots__ = ("_namespaces", "version")

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}
        self.version = 0
        """Another number after every change."""

    def put_if_absent(self, namespace: str, name: str, selector: str | None = None) -> bool:
        """Register an HPA (None: it matches nothing yet); False, and nothing changed, where it already is."""
        names = self._namespaces.setdefault(namespace, _Namespace())
        if name in names.selectors:
            return False
        names.put(name, _parsed(selector))
        self.version += 1
        return True

    def put_if_present(self, namespace: str, name: str, selector: str | None) -> bool:
        """Set the selector of a registered HPA; False, and nothing changed, where it is not registered."""
        if not self.registered(namespace, name):
            return False
        self.version += self._namespaces[namespace].put(name, _parsed(selector))
        return True

    def delete(self, namespace: str, name: str) -> bool:
        """Forget an HPA; the entry of a namespace goes with its last one."""
        if not self.registered(namespace, name):
            return False
        names = self._namespaces[namespace]
        names.remove(name)
        self.version += 1
        if not names.selectors:
            del self._namespaces[namespace]
        return True

    def registered(self, namespace: str, name: str) -> bool:
        """Whether an HPA is registered."""
        names = self._namespaces.get(namespace)
        return names is not None and name in names.selectors

    def copy(self) -> SelectorStore:
        """A store of its own with the same entries."""
        other = SelectorStore()
        for namespace, names in self._namespaces.items():
            mine = other._namespaces[namespace] = _Namespace()
            for name, selector in names.selectors.items():
                mine.put(name, selector)
        return other

    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with a registered HPA."""
        return tuple(self._namespaces)

    def entries(self, namespace: str) -> Mapping[str, Selector]:
        """The selectors of a namespace by name."""
        names = self._namespaces.get(namespace)
        return {} if names is None else names.selectors

    def matching(self, namespace: str, label_sets: Iterable[Mapping[str, str] | None], limit: int = 0) -> list[str]:
        """Names of the HPAs whose selector matches any of the label sets, sorted; at most ``limit`` (0: all)."""
        names = self._namespaces.get(namespace)
        if names is None:
            return []
        found: set[str] = set()
        for labels in {tuple(sorted((labels or {}).items())) for labels in label_sets}:
            found.update(names.matching(labels))
        return sorted(found)[: limit or None]


class _Namespace:
    """Selectors by name; those that demand an exact label are also found by it."""

    __slots__ = ("by_label", "others", "selectors")

    def __init__(self) -> None:
        self.selectors: dict[str, Selector] = {}
        self.by_label: dict[tuple[str, str], dict[str, Selector]] = {}
        self.others: dict[str, Selector] = {}

    def _shelf(self, selector: Selector) -> dict[str, Selector]:
        label = selector.exact_label()
        return self.others if label is None else self.by_label.setdefault(label, {})

    def put(self, name: str, selector: Selector) -> bool:
        """Whether that changed anything."""
        old = self.selectors.get(name)
        if old is selector:  # texts that were parsed before give the same one
            return False
        if old is not None:
            self.remove(name)
        self.selectors[name] = self._shelf(selector)[name] = selector
        return True

    def remove(self, name: str) -> None:
        selector = self.selectors.pop(name)
        del self._shelf(selector)[name]

    def matching(self, labels: tuple[tuple[str, str], ...]) -> list[str]:
        mapping = dict(labels)
        shelves = [self.others, *(self.by_label[label] for label in labels if label in self.by_label)]
        return [name for shelf in shelves for name, selector in shelf.items() if selector.matches(mapping)]


def _parsed(selector: str | None) -> Selector:
    return NOTHING if selector is None else parse_selector(selector)
