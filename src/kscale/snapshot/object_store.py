"""The objects of a cluster besides pods: nodes in list order, and everything else by kind and key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kscale.objects.core import Node
from kscale.objects.kinds import kind_of
from kscale.objects.meta import KubeObject
from kscale.objects.namespaces import with_namespace
from kscale.snapshot.columns import NodeColumns
from kscale.snapshot.informers import INFORMED_KINDS, Informers

__all__ = ["ObjectStore", "kind_name"]


class ObjectStore:
    """``objects[kind][key]``: all but nodes and pods. A single owner at a time."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, KubeObject]] = {}
        self._nodes: dict[str, KubeObject] = {}
        self._node_changes = _NodeChanges()
        self._node_columns = NodeColumns()
        self._informers = Informers.of({})
        self._changed_kinds: set[str] = set()
        self._seen: dict[str, set[str]] = {}  # of kinds that are listed anew

    def copy(self) -> ObjectStore:
        """Another store with the same objects, which goes its own way."""
        made = ObjectStore()
        made.objects = {kind: dict(found) for kind, found in self.objects.items()}
        made._nodes, made._node_changes = dict(self._nodes), self._node_changes.copy()
        made._node_columns, made._informers = self._node_columns, self._informers
        made._changed_kinds = set(self._changed_kinds)
        return made

    def of(self, kind: str) -> dict[str, KubeObject]:
        """The objects of a kind by key, in order of first appearance (not to be written to)."""
        return self._nodes if kind == "Node" else self.objects.get(kind, {})

    def put(self, item: KubeObject) -> bool:
        """Add an object, or replace the one under its key in place; whether there was one."""
        kind, item = kind_name(item), with_namespace(item)
        if kind == "Node":
            held = self._nodes
            self._node_changes.apply(item.name, self._node_columns)
        else:
            held = self.objects.setdefault(kind, {})
            if kind in INFORMED_KINDS:
                self._changed_kinds.add(kind)
        key = item.name if kind == "Node" else item.key
        known = key in held
        held[key] = item
        self.see(kind, key)
        return known

    def see(self, kind: str, key: str) -> None:
        """An object is there, whatever it looks like."""
        if kind in self._seen:
            self._seen[kind].add(key)

    def begin(self, kind: str) -> None:
        """From now on note which objects of a kind are seen. Raises RuntimeError if that goes on already."""
        if kind in self._seen:
            raise RuntimeError(f"{kind} is being listed already")
        self._seen[kind] = set()

    def end(self, kind: str) -> list[str]:
        """Note it no longer; keys of those that were not seen."""
        seen = self._seen.pop(kind)
        return [key for key in self.of(kind) if key not in seen]

    def has_version(self, kind: str, key: str, version: str) -> bool:
        """Whether the object of a key is there as it was at this version."""
        held = self.of(kind).get(key)
        return held is not None and bool(version) and held.metadata.resource_version == version

    def remove(self, kind: str, key: str, uid: str = "") -> bool:
        """Remove an object; False if there is none of this key, or only one with another UID (where both have one)."""
        held = self.of(kind).get(key)
        if held is None or not (held.metadata.uid == uid or not (held.metadata.uid and uid)):
            return False
        if kind == "Node":
            del self._nodes[key]
            self._node_changes.remove(key)
            return True
        if kind in INFORMED_KINDS:
            self._changed_kinds.add(kind)
        del self.objects[kind][key]
        return True

    def nodes(self) -> Iterator[Any]:
        """All nodes in list order."""
        return iter(self._nodes.values())

    def __iter__(self) -> Iterator[KubeObject]:
        """All objects but pods and nodes."""
        for found in self.objects.values():
            yield from found.values()

    def columns(self) -> NodeColumns:
        """The nodes as columns; only what changed is worked out again."""
        if self._node_changes:
            self._node_columns = self._node_changes.of(self._node_columns, self._nodes)
            self._node_changes = _NodeChanges()
        return self._node_columns

    def informers(self) -> Informers:
        """What informers hold; only kinds that changed are indexed again."""
        if self._changed_kinds:
            self._informers = self._informers.changed(self.objects, self._changed_kinds)
            self._changed_kinds = set()
        return self._informers


def kind_name(item: KubeObject) -> str:
    """The kind of an object, also of a struct that does not say it. Raises TypeError for no object of the API."""
    if item.kind:
        return item.kind
    found = kind_of(type(item))
    if found is None:
        raise TypeError(f"{type(item).__name__} is not a Kubernetes object that kscale knows")
    return found[1]


class _NodeChanges:
    """What happened to the nodes since their columns were made."""

    def __init__(self) -> None:
        self.removed: set[str] = set()
        self.replaced: dict[str, None] = {}
        self.appended: dict[str, None] = {}

    def copy(self) -> _NodeChanges:
        """The same, on its own."""
        made = _NodeChanges()
        made.removed, made.replaced, made.appended = set(self.removed), dict(self.replaced), dict(self.appended)
        return made

    def __bool__(self) -> bool:
        return bool(self.removed or self.replaced or self.appended)

    def apply(self, name: str, base: NodeColumns) -> None:
        """A node was added, or replaced in place."""
        in_place = name in base.index and name not in self.removed
        (self.replaced if in_place else self.appended)[name] = None

    def remove(self, name: str) -> None:
        """A node that was there was removed."""
        if name in self.appended:
            del self.appended[name]
        else:
            self.replaced.pop(name, None)
            self.removed.add(name)

    def of(self, base: NodeColumns, nodes: dict[str, Any]) -> NodeColumns:
        """The columns now."""
        if not len(base):
            return NodeColumns(nodes.values())
        replaced: list[Node] = [nodes[name] for name in self.replaced]
        return base.changed(self.removed, replaced, [nodes[name] for name in self.appended])
