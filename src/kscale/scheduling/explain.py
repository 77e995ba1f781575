"""Explains why a pod does not fit a node. This module creates all texts of failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.pod_resources import to_integers
from kscale.scheduling.compile.node_classes import Domains, NodeClasses
from kscale.scheduling.compile.pod_classes import PodClasses
from kscale.scheduling.compile.resources import Resources
from kscale.scheduling.compile.templates import Copies
from kscale.scheduling.plugins import PROFILE
from kscale.scheduling.plugins.base import Numbers, Part, Plugin
from kscale.scheduling.profile import Context, NodeFacts
from kscale.scheduling.status import (
    ERROR,
    FAILING_PREDICATE,
    FILTERED_OUT,
    PREFILTER_FAILED,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Verdict,
)
from kscale.snapshot.classes.interner import PodClass

__all__ = ["Explainer"]

P = TypeVar("P", bound=Part)
_Where = Callable[[NDArray[np.int32]], NDArray[np.bool_]]
_BY_ORDINAL = {plugin.ordinal: plugin for plugin in PROFILE}


class Explainer(msgspec.Struct, eq=False):
    """Explains verdicts of a session; also the context that its plug-ins query
    (:class:`kscale.scheduling.plugins.base.ExplainContext`).

    ``added``: nodes that were added, as (template, number of the copy).
    """

    ctx: Context
    engine: _engine.Engine
    _classes: PodClasses
    _nodes: NodeClasses
    _resources: Resources
    _domains: Domains
    _copies: Copies
    _added: Mapping[int, tuple[int, int]]

    # -- verdicts ----------------------------------------------------------------------------------------------------

    def verdict(self, class_number: int, node: int) -> Verdict:
        """Return the verdict on a pod class and a node: ``ok``, or the first plug-in that fails, as upstream.

        ``pod`` and ``node`` of the verdict are left empty.
        """
        code = self.engine.check(class_number, node)
        if code == _engine.FITS:
            return Verdict(ok=True)
        if code == _engine.PREFILTER_FAILED:
            return self.prefilter_failed(class_number)
        if code == _engine.FILTERED:
            choosers = ", ".join(sorted(self._classes.outcomes[class_number].choosers))
            return _failure(choosers, UNRESOLVABLE, unexpected=FILTERED_OUT)
        ordinal, detail = code & 0xFF, code >> 8
        if ordinal == _engine.USER_PREDICATE:
            predicate = self.ctx.profile.predicates[detail]
            return _failure(predicate.name, UNSCHEDULABLE, (predicate.reason,))
        verdict = self._run_filter(_BY_ORDINAL[ordinal], class_number, node)
        if verdict is not None:
            return _broken(verdict) if verdict.code == ERROR else verdict
        # Only counted devices, which the engine treats as resources, are short: the first later plug-in that fails
        # explains it.
        running = (plugin for plugin in self._running(class_number) if plugin.ordinal > ordinal)
        later = (self._run_filter(plugin, class_number, node) for plugin in running)
        return next((failure for failure in later if failure is not None), _DEVICES_SHORT)

    def prefilter_failed(self, class_number: int) -> Verdict:
        """Return the verdict on a class whose PreFilter fails, which holds for every node."""
        outcome = self._classes.outcomes[class_number]
        assert outcome.failure is not None
        return _failure(outcome.plugin, outcome.failure.code, outcome.failure.reasons, unexpected=PREFILTER_FAILED)

    def verdicts(self, class_number: int, node: int) -> list[Verdict]:
        """Return a verdict for each failing Filter, each evaluated separately, in profile order."""
        verdicts = (self._run_filter(plugin, class_number, node) for plugin in self._running(class_number))
        return [verdict for verdict in verdicts if verdict is not None]

    def _running(self, class_number: int) -> Sequence[Plugin]:
        """Return the plug-ins whose Filter runs for a class: enabled, and its PreFilter neither skipped nor failed."""
        pod, ctx = self._classes.pods[class_number], self.ctx
        return [
            plugin
            for plugin in PROFILE
            if plugin.name not in ctx.profile.disabled_filters
            and plugin.prefilter(pod, ctx).failure is None
            and not plugin.skips(pod, ctx)
        ]

    def _run_filter(self, plugin: Plugin, class_number: int, node: int) -> Verdict | None:
        """Return the verdict of one Filter run alone; None if it passes."""
        status, numbers = plugin.explain(self._classes.pods[class_number], class_number, node, self)
        return None if status is None else _failure(plugin.name, status.code, status.reasons, numbers=numbers)

    # -- queries of plug-ins -----------------------------------------------------------------------------------------

    def facts(self, node: int) -> NodeFacts:
        """Return the facts that predicates read of a node."""
        copy = self._added.get(node)
        return self._nodes.facts(node) if copy is None else self._copies.facts_of(*copy)

    def part(self, kind: type[P]) -> P:
        """Return a plug-in's part of the engine by its type."""
        return self._classes.part(kind)

    def key(self, name: str) -> int:
        """Return the engine's number of a topology key. Raises KeyError for an unknown key."""
        return self._domains.keys[name]

    def room(self, node: int) -> tuple[dict[str, int], int]:
        """Return a node's free amounts by resource (cpu in milli-units), and its free pod slots."""
        return self._resources.readable(self.engine.free(node).tolist()), self.engine.slots(node)

    def allocatable(self, node: int) -> Mapping[str, int]:
        """Return a node's allocatable amounts by resource (cpu in milli-units)."""
        copy = self._added.get(node)
        if copy is not None:
            return to_integers(self._copies.templates[copy[0]].node.status.allocatable or {})
        columns = self.ctx.snapshot.columns.allocatable
        return {resource: int(column[node]) for resource, column in columns.items()}

    def demand(self, class_number: int, node: int) -> Mapping[str, int]:
        """Return the amounts by resource (cpu in milli-units) that NodeResourcesFit counts for a class on a node."""
        return self._resources.demand(class_number, self.allocatable(node))

    def pods_on(self, node: int, matches: Callable[[PodClass], bool]) -> list[str]:
        """Return the keys of pods on an existing node that ``matches`` accepts, in order of appearance."""
        return [key for key, pod in self.classes_on(node) if matches(pod)]

    def classes_on(self, node: int) -> Iterator[tuple[str, PodClass]]:
        """Yield the key and class of each pod on an existing node, in order of appearance."""
        snapshot = self.ctx.snapshot
        classes = snapshot.interner.classes
        for row in np.flatnonzero(snapshot.placed_node == node).tolist():
            yield snapshot.placed.key(row), classes[int(snapshot.placed_class[row])]

    def pods_in_domain(self, key: str, node: int, matches: Callable[[PodClass], bool]) -> list[str]:
        """Return the keys of pods that ``matches`` accepts in the domain of an existing node by label ``key``.

        They are in order of appearance. Empty if the node was added or does not have the label.
        """
        return self._keys(self._rows(matches, self._domain_mask(key, node)))

    def first_in_domain(self, key: str, node: int, matches: Callable[[PodClass], bool]) -> tuple[int, PodClass] | None:
        """Return (row, class) of the first placed pod that matches in the topology domain of ``node`` by label ``key``.

        None if there is none, or if ``node`` was added or does not have the label.
        """
        rows = self._rows(matches, self._domain_mask(key, node))
        if not len(rows):
            return None
        snapshot = self.ctx.snapshot
        return int(rows[0]), snapshot.interner.classes[int(snapshot.placed_class[rows[0]])]

    def pods_anywhere(self, matches: Callable[[PodClass], bool]) -> list[str]:
        """Return the keys of placed pods that ``matches`` accepts, in order of appearance."""
        return self._keys(self._rows(matches, lambda nodes: np.ones(len(nodes), dtype=bool)))

    def _domain_mask(self, key: str, node: int) -> _Where:
        """Return a function that selects, of the nodes passed to it, those in the topology domain of ``node``: bool[n].

        It excludes all nodes if ``node`` was added, or has no label ``key``.
        """
        ids = self.ctx.snapshot.columns.label(key).ids
        if node >= len(ids) or ids[node] < 0:
            return lambda nodes: np.zeros(len(nodes), dtype=bool)
        return lambda nodes: ids[nodes] == ids[node]

    def _rows(self, matches: Callable[[PodClass], bool], where: _Where) -> NDArray[np.int64]:
        """Return the sorted rows of placed pods that ``matches`` accepts on nodes that ``where`` selects: int64[n]."""
        snapshot = self.ctx.snapshot
        _, starts, order = snapshot.placed_by_class
        chosen = [np.zeros(0, dtype=np.int64)]
        for i, other in enumerate(snapshot.placed_classes):
            if matches(other):
                rows = order[starts[i] : starts[i + 1]]
                chosen.append(rows[where(snapshot.placed_node[rows])])
        return np.sort(np.concatenate(chosen))

    def _keys(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the keys (``namespace/name``) of placed pods by row."""
        return [self.ctx.snapshot.placed.key(row) for row in rows.tolist()]


def _broken(no: Verdict) -> Verdict:
    """Return the verdict ``no`` of a Filter that could not decide, with upstream's error text as its reason."""
    reasons = (f'running "{no.plugin}" filter plugin: {no.reasons[0]}',)
    return msgspec.structs.replace(no, reasons=reasons, unexpected=f'unexpected filter status "{ERROR}"')


def _failure(
    plugin: str,
    code: str,
    reasons: tuple[str, ...] = (),
    *,
    unexpected: str = "",
    numbers: Numbers = (),
) -> Verdict:
    """Build the verdict of a plug-in that rejects the pod.

    ``code``: status code; ``reasons``, ``unexpected``: upstream's texts; ``numbers``: values that explain the failure.
    """
    return Verdict(
        ok=False,
        type=FAILING_PREDICATE,
        plugin=plugin,
        code=code,
        reasons=reasons,
        unexpected=unexpected,
        numbers=numbers,
    )


_DEVICES_SHORT = _failure("DynamicResources", UNRESOLVABLE, ("cannot allocate all claims",))
