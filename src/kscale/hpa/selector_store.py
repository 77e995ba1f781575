"""Which HPAs of a namespace select which pods: two that share a pod block each other.

Upstream: ``pkg/controller/podautoscaler`` (``BiMultimap`` / the optimised selector store).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kscale.objects.label_index import SelectorIndex
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import NOTHING, Selector

__all__ = ["SelectorStore"]


class SelectorStore:
    """Selectors of registered HPAs by namespace and name. Single owner: not for use from several threads at once."""

    __slots__ = ("_index", "_namespaces", "version")

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, Selector]] = {}
        self._index: SelectorIndex[str] = SelectorIndex()
        self.version = 0
        """Another number after every change."""

    def put_if_absent(self, namespace: str, name: str, selector: str | None = None) -> bool:
        """Register an HPA and its ``selector`` (None: it matches nothing yet); False, and nothing changed, where it
        already is."""
        if self.registered(namespace, name):
            return False
        self._put(namespace, name, _parsed(selector))
        self.version += 1
        return True

    def put_if_present(self, namespace: str, name: str, selector: str | None) -> bool:
        """Set the selector of a registered HPA; False, and nothing changed, where it is not registered."""
        if not self.registered(namespace, name):
            return False
        new, old = _parsed(selector), self._namespaces[namespace][name]
        if new is not old:  # texts that were parsed before give the same one
            self._index.remove(namespace, old, name)
            self._put(namespace, name, new)
            self.version += 1
        return True

    def delete(self, namespace: str, name: str) -> bool:
        """Forget an HPA; the entry of a namespace goes with its last one."""
        if not self.registered(namespace, name):
            return False
        names = self._namespaces[namespace]
        self._index.remove(namespace, names.pop(name), name)
        self.version += 1
        if not names:
            del self._namespaces[namespace]
        return True

    def _put(self, namespace: str, name: str, selector: Selector) -> None:
        self._namespaces.setdefault(namespace, {})[name] = selector
        self._index.add(namespace, selector, name)

    def registered(self, namespace: str, name: str) -> bool:
        """Whether an HPA is registered."""
        return name in self.entries(namespace)

    def copy(self) -> SelectorStore:
        """A store of its own with the same entries."""
        other = SelectorStore()
        for namespace, names in self._namespaces.items():
            for name, selector in names.items():
                other._put(namespace, name, selector)
        return other

    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with a registered HPA."""
        return tuple(self._namespaces)

    def entries(self, namespace: str) -> Mapping[str, Selector]:
        """The selectors of a namespace by name."""
        return self._namespaces.get(namespace, {})

    def matching(self, namespace: str, label_sets: Iterable[Mapping[str, str] | None], limit: int = 0) -> list[str]:
        """Names of the HPAs whose selector matches any of the ``label_sets``, sorted; at most ``limit`` (0: all)."""
        if namespace not in self._index:
            return []
        found: set[str] = set()
        for labels in {tuple(sorted((labels or {}).items())) for labels in label_sets}:
            found.update(self._index.matching(namespace, dict(labels)))
        return sorted(found)[: limit or None]


def _parsed(selector: str | None) -> Selector:
    return NOTHING if selector is None else parse_selector(selector)
