"""PodTopologySpread: how unevenly matching pods may be spread over a label's values (``plugins/podtopologyspread``).

The engine keeps one counter row per (namespace, key, selector, inclusion rules): pods per domain, registered domains
and their minimum. Pods whose constraints share a row share the counting.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kscale.objects.core import TopologySpreadConstraint
from kscale.objects.selectors import IN, Requirement, Selector, SelectorError, compile_selector
from kscale.objects.taints import first_untolerated
from kscale.scheduling.plugins.base import (
    NOTHING,
    SKIP,
    TAINTS,
    Plugin,
    PreFilter,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from kscale.scheduling.plugins.node_affinity import selection_columns, selects

if TYPE_CHECKING:
    from kscale.scheduling.context import Context, NodeFacts
    from kscale.snapshot.interner import PodClass

__all__ = ["MISSING_KEY", "SKEW", "HardConstraint", "PodTopologySpread", "SpreadRow", "hard_constraints"]

_REASON = "node(s) didn't match pod topology spread constraints"
SKEW: Status = unschedulable(_REASON)
MISSING_KEY: Status = unresolvable(f"{_REASON} (missing required label)")


@dataclass(frozen=True, slots=True)
class SpreadRow:
    """What identifies a counter row. ``selection``, ``tolerations``: facets of the pod, where a policy honors them."""

    namespace: str
    key: str
    selector: Selector
    selection: int | None
    tolerations: int | None
    keys: frozenset[str]

    def counts(self, pod: PodClass) -> bool:
        """Whether a placed pod of this class counts. A selector of everything counts nothing: upstream's shortcut."""
        if self.selector.empty or pod.terminating or pod.namespace != self.namespace:
            return False
        return self.selector.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class HardConstraint:
    """A DoNotSchedule constraint of a pod, with its row."""

    row: SpreadRow
    max_skew: int
    min_domains: int
    self_match: bool


def hard_constraints(pod: PodClass, ctx: Context) -> tuple[HardConstraint, ...]:
    """The pod's own hard constraints in spec order, or the profile's defaults if it has none at all.

    Raises SelectorError when a selector of a hard constraint is broken.
    """
    found: list[tuple[TopologySpreadConstraint, Selector]] = []
    if pod.spread:
        for constraint in pod.spread:
            if constraint.when_unsatisfiable != "DoNotSchedule":
                continue
            selector = compile_selector(constraint.label_selector)
            labels = pod.labels or {}
            extra = tuple(Requirement(key, IN, (labels[key],)) for key in constraint.match_label_keys if key in labels)
            if extra and not selector.nothing:
                selector = Selector(selector.requirements + extra)
            found.append((constraint, selector))
    else:
        hard = [c for c in ctx.profile.default_constraints or () if c.when_unsatisfiable == "DoNotSchedule"]
        default = _default_selector(pod, ctx) if hard else Selector()
        if not default.empty:
            found = [(constraint, default) for constraint in hard]
    keys = frozenset(constraint.topology_key for constraint, _ in found)
    return tuple(
        HardConstraint(
            row=SpreadRow(
                namespace=pod.namespace,
                key=constraint.topology_key,
                selector=selector,
                selection=pod.selection_id if (constraint.node_affinity_policy or "Honor") == "Honor" else None,
                tolerations=pod.tolerations_id if constraint.node_taints_policy == "Honor" else None,
                keys=keys,
            ),
            max_skew=constraint.max_skew,
            min_domains=1 if constraint.min_domains is None else constraint.min_domains,
            self_match=selector.matches(pod.labels),
        )
        for constraint, selector in found
    )


_OWNERS = {"ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}


def _default_selector(pod: PodClass, ctx: Context) -> Selector:
    """Of the services that select the pod and of the controller that owns it; empty = none."""
    wanted: dict[str, str] = {}
    labels = pod.labels or {}
    for service in ctx.informers.services.get(pod.namespace, ()):
        chosen = service.spec.selector
        if chosen is not None and all(labels.get(key) == value for key, value in chosen.items()):
            wanted.update(chosen)
    more: tuple[Requirement, ...] = ()
    if pod.owner is not None:
        version, kind, name = pod.owner
        known = _OWNERS.get(kind) == version
        controller = ctx.informers.controllers.get((kind, pod.namespace, name)) if known else None
        selector = controller.spec.selector if controller is not None else None
        if isinstance(selector, dict):
            wanted.update(selector)
        elif selector is not None:
            more = compile_selector(selector).requirements
    return Selector(tuple(Requirement(key, IN, (value,)) for key, value in sorted(wanted.items())) + more)


class PodTopologySpread(Plugin):
    """No domain gets more than ``maxSkew`` above the least."""

    name = "PodTopologySpread"
    ordinal = 11

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        try:
            constraints = hard_constraints(pod, ctx)
        except SelectorError as problem:
            text = f"get constraints from pod: obtaining pod's hard topology spread constraints: {problem}"
            return PreFilter(failure=error(text))
        return NOTHING if constraints else SKIP

    def eligibility_columns(self, pod: PodClass, row: SpreadRow) -> frozenset[str]:
        """Node columns that decide whether a row counts a node."""
        columns = set(row.keys)
        if row.selection is not None:
            columns |= selection_columns(pod)
        if row.tolerations is not None:
            columns.add(TAINTS)
        return frozenset(columns)

    def eligible(self, pod: PodClass, row: SpreadRow, node: NodeFacts) -> bool:
        """Whether a row counts a node: it has all keys of the pod, and passes what the policies honor."""
        if not all(key in node.labels for key in row.keys):
            return False
        if row.selection is not None and not selects(pod, node):
            return False
        return row.tolerations is None or first_untolerated(pod.tolerations, node.taints) is None

    def row_key(self, row: SpreadRow) -> Hashable:
        """Rows with equal keys are one row."""
        return row
