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

    __slots__ = ("_namespaces",)

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, Selector]] = {}

    def put_if_absent(self, namespace: str, name: str, selector: str | None = None) -> bool:
        """Register an HPA (None: it matches nothing yet); False, and nothing changed, where it already is."""
        names = self._namespaces.setdefault(namespace, {})
        if name in names:
            return False
        names[name] = _parsed(selector)
        return True

    def put_if_present(self, namespace: str, name: str, selector: str | None) -> bool:
        """Set the selector of a registered HPA; False, and nothing changed, where it is not registered."""
        names = self._namespaces.get(namespace)
        if names is None or name not in names:
            return False
        names[name] = _parsed(selector)
        return True

    def delete(self, namespace: str, name: str) -> bool:
        """Forget an HPA; the entry of a namespace goes with its last one."""
        names = self._namespaces.get(namespace)
        if names is None or name not in names:
            return False
        del names[name]
        if not names:
            del self._namespaces[namespace]
        return True

    def namespaces(self) -> tuple[str, ...]:
        """Namespaces with a registered HPA."""
        return tuple(self._namespaces)

    def matching(self, namespace: str, label_sets: Iterable[Mapping[str, str] | None], limit: int = 0) -> list[str]:
        """Names of the HPAs whose selector matches any of the label sets, sorted; at most ``limit`` (0: all)."""
        distinct = {tuple(sorted((labels or {}).items())) for labels in label_sets}
        found = []
        for name, selector in sorted(self._namespaces.get(namespace, {}).items()):
            if any(selector.matches(dict(labels)) for labels in distinct):
                found.append(name)
                if len(found) == limit:
                    break
        return found


def _parsed(selector: str | None) -> Selector:
    return NOTHING if selector is None else parse_selector(selector)
