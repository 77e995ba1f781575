"""Node classes: nodes that agree in every column that a predicate reads, including copies of templates."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from operator import is_
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.taints import taint_key
from kscale.scheduling.devices.claims import Devices
from kscale.scheduling.profile import CORDON, CSI, DEVICES, FEATURES, HOSTNAME, NAME, TAINTS, Context, NodeFacts
from kscale.snapshot.snapshot import BeforeLosses, Snapshot

__all__ = ["Domains", "NodeClasses"]


_OWN, _NONE = -2, -1


class Domains:
    """The topology keys of an engine, in the order of ``keys``."""

    def __init__(self, engine: _engine.Engine, snapshot: Snapshot, keys: Iterable[str], extra: Sequence[NodeFacts]):
        self._snapshot = snapshot
        self._new: dict[tuple[str, str], int] = {}
        self.keys: dict[str, int] = {}
        for key in keys:
            label = snapshot.columns.label(key)
            domains = len(label.values)
            if key != HOSTNAME:
                values = {facts.labels[key] for facts in extra if key in facts.labels}
                for value in sorted(values - label.index.keys()):
                    self._new[key, value] = domains
                    domains += 1
            self.keys[key] = engine.add_key(label.ids, domains)

    def get_copy_domains(self, facts: NodeFacts) -> list[int]:
        """Return a new node's domain for each key: -1 = no such label, -2 = a domain that only this node has."""
        return [self._get_copy_domain(key, facts) for key in self.keys]

    def _get_copy_domain(self, key: str, facts: NodeFacts) -> int:
        """Return the domain of a new node for one key: -1 = no such label, -2 = a domain of its own."""
        if key == HOSTNAME:
            return _OWN
        value = facts.labels.get(key)
        if value is None:
            return _NONE
        domain = self._snapshot.columns.label(key).index.get(value)
        return self._new[key, value] if domain is None else domain


Codes = NDArray[np.int64]


class _CachedNodeClasses(dict[frozenset[str], tuple[Any, ...]]):
    """Node classes of a snapshot's nodes by columns, cached with the snapshot."""


class _ClassesWithExtra(dict[frozenset[str], tuple[tuple[NodeFacts, ...], NDArray[np.int32]]]):
    """Class of each node and of extra nodes by columns, with the extra nodes; cached with the snapshot of the nodes."""


class _DeviceContents(msgspec.Struct, frozen=True):
    """Device contents of the existing nodes, as numbers of distinct contents; cached with a snapshot."""

    codes: Codes
    known: dict[Hashable, int]


class NodeClasses:
    """Classes of the existing nodes (0..N-1) and of ``extra`` nodes (N..): ``of[i]`` is a node's class.

    ``exemplars``: the first node of each class. ``group(columns)``: groups of classes that agree in a subset of the
    columns, so that a verdict is computed once per group.
    """

    def __init__(self, ctx: Context, extra: Sequence[NodeFacts], columns: frozenset[str]) -> None:
        self.ctx = ctx
        self.extra = extra
        self.columns = columns
        self.existing = len(ctx.snapshot.columns)
        self.size = self.existing + len(extra)
        self._facts: dict[int, NodeFacts] = {}
        self._groups: dict[frozenset[str], tuple[list[int], NDArray[np.int32]]] = {}
        cached = None
        if not extra and columns.isdisjoint((CSI, DEVICES)):  # only the snapshot's nodes matter
            cached = ctx.snapshot.memo.get(_CachedNodeClasses, _CachedNodeClasses)
        if cached is None or columns not in cached:
            class_of, exemplars = _number_codes(self._select_codes(columns))
            parts: tuple[Any, ...] = class_of, exemplars.tolist(), self._groups
            if cached is not None:
                cached[columns] = parts
        else:
            parts = cached[columns]
        self.of: NDArray[np.int32] = parts[0]
        self.exemplars: list[int] = parts[1]
        self._groups = parts[2]

    def __len__(self) -> int:
        return len(self.exemplars)

    def facts(self, i: int) -> NodeFacts:
        """Return the facts of a node by number; extra nodes follow the existing ones."""
        if i >= self.existing:
            return self.extra[i - self.existing]
        facts = self._facts.get(i)
        if facts is None:
            facts = self._facts[i] = self.ctx.node(i)
        return facts

    def list_exemplars(self, sources: Sequence[object]) -> list[tuple[Hashable, object]]:
        """Return (key, object) of the first node of each class, for caches of verdicts on nodes.

        Two nodes that exist at the same time have different keys. The object of an extra node is the template that it
        is a copy of (``sources``: in the order of the extra nodes).
        """
        objects, existing = self.ctx.snapshot.columns.objects, self.existing
        return [
            (id(objects[i]), objects[i])
            if i < existing
            else ((id(sources[i - existing]), self.extra[i - existing].name), sources[i - existing])
            for i in self.exemplars
        ]

    def group(self, columns: frozenset[str]) -> tuple[list[int], NDArray[np.int32]]:
        """Group the classes that agree in ``columns``. Returns (number of one node of each group, group of each class).

        The result is cached; do not modify it.
        """
        cached = self._groups.get(columns)
        if cached is None:
            group, first = _number_codes(self._combine(columns, self.exemplars))
            cached = [self.exemplars[i] for i in first.tolist()], group
            self._groups[columns] = cached
        return cached

    def evaluate(self, columns: frozenset[str], verdict: Callable[[NodeFacts], Any]) -> NDArray[np.bool_]:
        """Return whether ``verdict`` of a node of each class is true: bool[classes].

        ``verdict`` is called once per group of classes that agree in ``columns``.
        """
        nodes, group = self.group(columns)
        truth = np.fromiter((bool(verdict(self.facts(i))) for i in nodes), dtype=bool, count=len(nodes))
        result: NDArray[np.bool_] = truth[group]
        return result

    def values(self, columns: frozenset[str], value: Callable[[NodeFacts], int]) -> NDArray[np.int64]:
        """Return ``value`` of each existing node: int64[existing nodes]. Calls ``value`` once per group."""
        nodes, group = self.group(columns)
        group_values = np.fromiter((value(self.facts(i)) for i in nodes), dtype=np.int64, count=len(nodes))
        result: NDArray[np.int64] = group_values[group][self.of[: self.existing]]
        return result

    def _select_codes(self, columns: frozenset[str]) -> Codes:
        """Return codes as :meth:`_combine` does, but without computing them again after a loss of nodes.

        After a loss, a node's code is the number of its class in the snapshot before the loss. These classes are cached
        with that snapshot, as long as the extra nodes are the identical objects.
        """
        losses = BeforeLosses.find(self.ctx.snapshot)
        if losses is None or not columns.isdisjoint((CSI, DEVICES)):
            return self._combine(columns)
        cached, extra = losses.snapshot.memo.get(_ClassesWithExtra, _ClassesWithExtra), (*self.extra,)
        facts, class_of = cached.get(columns, ((), None))
        if class_of is None or len(facts) != len(extra) or not all(map(is_, facts, extra)):
            class_of = NodeClasses(Context(losses.snapshot, self.ctx.profile), extra, columns).of
            cached[columns] = extra, class_of
        first_extra = len(class_of) - len(extra)
        return class_of.take(np.append(losses.nodes, np.arange(first_extra, len(class_of)))).astype(np.int64)

    def _combine(self, columns: frozenset[str], nodes: list[int] | None = None) -> Codes:
        """Return codes that are equal for nodes that agree in all of the columns: int64[nodes].

        ``nodes``: the nodes to include (None: all).
        """
        codes = np.zeros(self.size if nodes is None else len(nodes), dtype=np.int64)
        for column in sorted(columns) if len(codes) else ():
            part = self.codes(column) if nodes is None else self.codes(column)[nodes]
            low = part.min()
            width = int(part.max() - low) + 1
            if width == 1:
                continue
            codes = codes * width + (part - low)
            if codes.max() > 1 << 40:  # keep the product of widths inside int64
                codes = np.unique(codes, return_inverse=True)[1]
        return codes

    def codes(self, column: str) -> Codes:
        """Return codes that are equal for nodes that agree in the column: int64[nodes], the extra nodes last.

        Of taints, only those with the effects NoSchedule and NoExecute are compared. ``column``: one of the constants
        of :mod:`kscale.scheduling.profile` (``NAME``, ``TAINTS``, ...) or the key of a label.
        """
        if column == NAME:
            return np.arange(self.size, dtype=np.int64)
        nodes = self.ctx.snapshot.columns
        if column == CORDON:
            return self._with_extra(nodes.unschedulable, [int(facts.unschedulable) for facts in self.extra])
        if column == TAINTS:
            return self._taints()
        if column == DEVICES:
            return self._devices
        if column in (FEATURES, CSI):
            return self._opaque(column)
        label = nodes.label(column)
        new: dict[str, int] = {}
        ids = []
        for facts in self.extra:
            value = facts.labels.get(column)
            if value is None:
                ids.append(-1)
            else:
                ids.append(label.index.get(value, -1))
                if ids[-1] < 0:
                    ids[-1] = new.setdefault(value, len(label.values) + len(new))
        return self._with_extra(label.ids, ids)

    def _with_extra(self, existing: NDArray[Any], extra: list[int]) -> Codes:
        """Return the codes of existing nodes, followed by those of extra nodes: int64[nodes]."""
        codes = existing.astype(np.int64)
        return np.concatenate([codes, np.array(extra, dtype=np.int64)]) if extra else codes

    def _taints(self) -> Codes:
        """Return codes that are equal for nodes with the same NoSchedule and NoExecute taints: int64[nodes]."""
        nodes = self.ctx.snapshot.columns
        if not self.extra:
            return nodes.taint_ids.astype(np.int64)
        codes_by_key = {**nodes.taint_index}
        ids = []
        for facts in self.extra:
            key = taint_key(tuple(t for t in facts.taints if t.effect in ("NoSchedule", "NoExecute")))
            ids.append(codes_by_key.setdefault(key, len(codes_by_key)))
        return self._with_extra(nodes.taint_ids, ids)

    @cached_property
    def _devices(self) -> Codes:
        """Return codes that are equal for nodes with the same device contents: int64[nodes]."""
        existing = self.ctx.snapshot.memo.get(_DeviceContents, lambda: self._device_contents({}, range(self.existing)))
        extra = self._device_contents(dict(existing.known), range(self.existing, self.size))
        return np.concatenate([existing.codes, extra.codes])

    def _device_contents(self, known: dict[Hashable, int], nodes: range) -> _DeviceContents:
        """Assign numbers to the device contents of ``nodes``; equal contents get equal numbers.

        ``known``: numbers assigned earlier, by content; new ones are added.
        """
        devices = Devices.of(self.ctx)
        contents = (devices.content(self.facts(i)) for i in nodes)
        codes = np.fromiter((known.setdefault(content, len(known)) for content in contents), np.int64, len(nodes))
        return _DeviceContents(codes, known)

    def _opaque(self, column: str) -> Codes:
        """Return codes of a column whose values are compared as whole objects (features or CSINode): int64[nodes]."""
        numbers: dict[Any, int] = {}
        codes = np.empty(self.size, dtype=np.int64)
        for i in range(self.size):
            if column == FEATURES:
                features = (
                    self.extra[i - self.existing].features
                    if i >= self.existing
                    else frozenset(self.ctx.snapshot.columns.objects[i].status.declared_features)
                )
                codes[i] = numbers.setdefault(features, len(numbers))
            else:
                csi = (
                    self.extra[i - self.existing].csi_node
                    if i >= self.existing
                    else self.ctx.csi_node(self.ctx.snapshot.nodes[i])
                )
                codes[i] = numbers.setdefault(_csi_key(csi), len(numbers))
        return codes


def _number_codes(codes: Codes) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Assign numbers to codes in order of appearance; return (number of each entry, first position of each number)."""
    width = int(codes.max(initial=-1)) + 1
    if width <= 1:
        return np.zeros(len(codes), dtype=np.int32), np.zeros(width, dtype=np.int64)
    if width > 4 * len(codes):
        codes = np.unique(codes, return_inverse=True)[1]
        width = int(codes.max(initial=-1)) + 1
    seen = np.full(width, len(codes), dtype=np.int64)
    seen[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last write, the first position, wins
    first = np.sort(seen[seen < len(codes)])
    number = np.zeros(width, dtype=np.int32)
    number[codes[first]] = np.arange(len(first), dtype=np.int32)
    return number[codes], first


def _csi_key(csi: Any) -> Any:
    """Return a key that is equal for CSINodes with the same drivers, limits and annotations; None for None."""
    if csi is None:
        return None
    drivers = tuple((d.name, d.allocatable.count if d.allocatable else None) for d in csi.spec.drivers)
    return drivers, tuple(sorted((csi.metadata.annotations or {}).items()))
