"""PodTopologySpread: how unevenly matching pods may be spread over a label's values (``plugins/podtopologyspread``).

Decided in C++: ``engine/pod_topology_spread.hpp``, by one counter row for each (namespace, key, selector, inclusion
rules): pods per domain, registered domains and their minimum. Pods whose constraints share a row share the counting.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from kscale._native import _engine
from kscale.objects.api.core import Taint, TopologySpreadConstraint
from kscale.objects.selectors import IN, Requirement, Selector, SelectorError, compile_selector
from kscale.objects.taints import first_untolerated
from kscale.scheduling.plugins.base import (
    NOTHING,
    Eligibility,
    ExplainContext,
    Numbers,
    Part,
    Plugin,
    PreFilter,
    Row,
    Rows,
)
from kscale.scheduling.plugins.node_fields import selection_columns, selects
from kscale.scheduling.profile import HOSTNAME, TAINTS, ZONE, Context, NodeFacts
from kscale.scheduling.status import error, unresolvable, unschedulable
from kscale.snapshot.classes.interner import PodClass

__all__ = [
    "SYSTEM_DEFAULTS",
    "Constraint",
    "PodTopologySpread",
    "SpreadNumbers",
    "SpreadRow",
    "eligibility",
    "hard_constraints",
    "soft_constraints",
    "spreads_over_hosts",
]

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable="ScheduleAnyway"),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway"),
)
"""Default constraints for pods of services and controllers, if neither pod nor profile has constraints."""

_REASON = "node(s) didn't match pod topology spread constraints"


class _Inclusion(msgspec.Struct, frozen=True):
    """Which nodes count: those that have all ``keys`` and, if a policy honours them, pass the pod's selection and
    tolerations (facets of the pod).
    """

    keys: frozenset[str]
    selection: int | None
    tolerations: int | None


class SpreadRow(msgspec.Struct, frozen=True):
    """Identity of a counter row."""

    namespace: str
    key: str
    selector: Selector
    inclusion: _Inclusion

    def counts(self, pod: PodClass) -> bool:
        """Check whether placed pods of a class count.

        An empty selector, which would select every pod, counts none, as in upstream. Terminating pods do not count.
        """
        if self.selector.empty or pod.terminating or pod.namespace != self.namespace:
            return False
        return self.selector.matches(pod.labels)


class Constraint(msgspec.Struct, frozen=True):
    """A constraint of a pod, with its row."""

    row: SpreadRow
    max_skew: int
    min_domains: int
    self_match: bool


def hard_constraints(pod: PodClass, ctx: Context) -> tuple[Constraint, ...]:
    """Return the pod's hard constraints (DoNotSchedule) in spec order; empty if there are none.

    If the pod has no constraints at all, not even soft ones, the profile's hard defaults apply. They need a service or
    a known controller that selects the pod. Raises SelectorError if a selector of a hard constraint is invalid.
    """
    if not pod.spread and not ctx.profile.default_constraints:
        return ()
    return _constraints(pod, ctx, "DoNotSchedule", ctx.profile.default_constraints or (), require_all_keys=True)


def soft_constraints(pod: PodClass, ctx: Context) -> tuple[tuple[Constraint, ...], bool]:
    """Return (soft constraints, ScheduleAnyway; whether only nodes that have all their topology keys are compared).

    The constraints are the pod's own in spec order. If the pod has no constraints at all, not even hard ones, the
    profile's soft defaults apply, or the system's defaults if the profile has none. Defaults need a service or a known
    controller that selects the pod. Raises SelectorError if a selector of a soft constraint is invalid.
    """
    defaults = ctx.profile.default_constraints
    require_all_keys = bool(pod.spread) or defaults is not None
    constraints = SYSTEM_DEFAULTS if defaults is None else defaults
    return _constraints(pod, ctx, "ScheduleAnyway", constraints, require_all_keys=require_all_keys), require_all_keys


def _constraints(
    pod: PodClass, ctx: Context, action: str, defaults: tuple[TopologySpreadConstraint, ...], *, require_all_keys: bool
) -> tuple[Constraint, ...]:
    """Return the pod's constraints whose ``whenUnsatisfiable`` is ``action``.

    If the pod has no constraints at all, those of ``defaults`` are returned, but only if a service or a known
    controller selects the pod. ``require_all_keys``: whether only nodes with the topology keys of all returned
    constraints count. Raises SelectorError if a selector is invalid.
    """
    selected: list[tuple[TopologySpreadConstraint, Selector]] = []
    if pod.spread:
        for constraint in pod.spread:
            if constraint.when_unsatisfiable != action:
                continue
            selector = compile_selector(constraint.label_selector)
            labels = pod.labels or {}
            extra = tuple(Requirement(key, IN, (labels[key],)) for key in constraint.match_label_keys if key in labels)
            if extra and not selector.nothing:
                selector = Selector(selector.requirements + extra)
            selected.append((constraint, selector))
    else:
        default_constraints = [constraint for constraint in defaults if constraint.when_unsatisfiable == action]
        default = _default_selector(pod, ctx) if default_constraints else Selector()
        if not default.empty:
            selected = [(constraint, default) for constraint in default_constraints]
    keys = frozenset(constraint.topology_key for constraint, _ in selected) if require_all_keys else frozenset()
    return tuple(
        Constraint(
            row=SpreadRow(
                namespace=pod.namespace,
                key=constraint.topology_key,
                selector=selector,
                inclusion=_Inclusion(
                    keys=keys,
                    selection=pod.selection_id if (constraint.node_affinity_policy or "Honor") == "Honor" else None,
                    tolerations=pod.tolerations_id if constraint.node_taints_policy == "Honor" else None,
                ),
            ),
            max_skew=constraint.max_skew,
            min_domains=1 if constraint.min_domains is None else constraint.min_domains,
            self_match=selector.matches(pod.labels),
        )
        for constraint, selector in selected
    )


_OWNERS = {"ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}


def _default_selector(pod: PodClass, ctx: Context) -> Selector:
    """Return the combined selector of the services that select the pod and of the controller that owns it.

    Only ReplicationControllers, ReplicaSets and StatefulSets count as controllers. The selector is empty if there are
    neither services nor a controller. Raises SelectorError if the controller's selector is invalid.
    """
    match_labels: dict[str, str] = {}
    labels = pod.labels or {}
    for service in ctx.informers.services.get(pod.namespace, ()):
        chosen = service.spec.selector
        if chosen is not None and all(labels.get(key) == value for key, value in chosen.items()):
            match_labels.update(chosen)
    more: tuple[Requirement, ...] = ()
    if pod.owner is not None:
        version, kind, name = pod.owner
        is_supported = _OWNERS.get(kind) == version
        controller = ctx.informers.controllers.get((kind, pod.namespace, name)) if is_supported else None
        selector = controller.spec.selector if controller is not None else None
        if isinstance(selector, dict):
            match_labels.update(selector)
        elif selector is not None:
            more = compile_selector(selector).requirements
    return Selector(tuple(Requirement(key, IN, (value,)) for key, value in sorted(match_labels.items())) + more)


def eligibility(inclusion: _Inclusion, pod: PodClass) -> Eligibility:
    """Return the rule which nodes count for constraints of the pod that have this ``inclusion``."""
    columns = set(inclusion.keys)
    if inclusion.selection is not None:
        columns |= selection_columns(pod)
    if inclusion.tolerations is not None:
        columns.add(TAINTS)

    def counts(node: NodeFacts) -> bool:
        if not all(key in node.labels for key in inclusion.keys):
            return False
        if inclusion.selection is not None and not selects(pod, node):
            return False
        return inclusion.tolerations is None or first_untolerated(pod.tolerations, node.taints) is None

    return Eligibility(frozenset(columns), counts)


class SpreadNumbers(Part):
    """Counter rows of the constraints that classes have. ``constraints``: those of a class, by its index."""

    def __init__(self, rows: Rows) -> None:
        self.constraints: dict[int, tuple[Constraint, ...]] = {}
        self._rows = rows
        self._numbers: dict[SpreadRow, int] = {}
        self._eligibility: dict[_Inclusion, Eligibility] = {}
        self._honouring: dict[int, PodClass] = {}

    def add_class(self, pod: PodClass, counters: Any) -> None:
        """Add a counter row for each hard constraint of the class."""
        self.constraints[pod.index] = counters
        for constraint in counters:
            self.number(constraint.row, pod)

    def may_count(self, pod: PodClass) -> bool:
        """Return whether the class has hard constraints."""
        return pod.index in self.constraints

    def number(self, row: SpreadRow, pod: PodClass) -> int:
        """Return the index of a counter row. A new row is added first; ``pod``: the class whose constraint needs it."""
        number = self._numbers.get(row)
        if number is None:
            counter = Row(row.key, row.counts, row.selector, eligibility=self._eligible(row.inclusion, pod))
            number = self._numbers[row] = self._rows.add(counter)
            if row.inclusion.tolerations is not None:
                self._honouring[number] = pod
        return number

    def _eligible(self, inclusion: _Inclusion, pod: PodClass) -> Eligibility:
        """Return the result of :func:`eligibility`, cached by ``inclusion``."""
        eligible = self._eligibility.get(inclusion)
        if eligible is None:
            eligible = self._eligibility[inclusion] = eligibility(inclusion, pod)
        return eligible

    def entry(self, pod: PodClass, ctx: Context, *, checked: bool) -> dict[str, Any]:
        """Return ``spread``: (row, ``maxSkew``, ``minDomains``, 1 if the pod counts itself) of each hard constraint.

        Empty without constraints, and unless ``checked``.
        """
        constraints = self.constraints.get(pod.index) if checked else None
        if not constraints:
            return {}
        return {
            "spread": [(self._numbers[c.row], c.max_skew, c.min_domains, int(c.self_match)) for c in constraints],
        }

    def leaving(self, taint: Taint) -> list[int]:
        """Return the numbers of the counter rows that count only nodes without the taint."""
        return [
            number
            for number, pod in self._honouring.items()
            if first_untolerated(pod.tolerations, (taint,)) is not None
        ]


class PodTopologySpread(Plugin):
    """No domain exceeds the minimum by more than ``maxSkew``."""

    name = "PodTopologySpread"
    statuses: ClassVar = {
        _engine.SKEW: unschedulable(_REASON),
        _engine.MISSING_KEY: unresolvable(f"{_REASON} (missing required label)"),
    }

    def prefilter(self, pod: PodClass, ctx: Context) -> PreFilter:
        """Return a failure if a constraint's selector is invalid."""
        try:
            hard_constraints(pod, ctx)
        except SelectorError as problem:
            text = f"get constraints from pod: obtaining pod's hard topology spread constraints: {problem}"
            return PreFilter(failure=error(text))
        return NOTHING

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether the pod has no hard constraints. Raises SelectorError if the selector of one is invalid."""
        return not hard_constraints(pod, ctx)

    def part(self, rows: Rows) -> Part:
        """Return a new part that counts pods by topology domain."""
        return SpreadNumbers(rows)

    def get_counters(self, pod: PodClass, ctx: Context) -> tuple[Constraint, ...] | None:
        """Return the hard constraints; None if there are none, or if a selector is invalid."""
        if not pod.spread and not ctx.profile.default_constraints:
            return None
        try:
            return hard_constraints(pod, ctx) or None
        except SelectorError:  # its PreFilter fails; no counter is read
            return None

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        """Return the services and controllers if default constraints apply to the pod, otherwise nothing."""
        if pod.spread or not ctx.profile.default_constraints:
            return ()
        return ctx.informers.services, ctx.informers.controllers

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        """Return the services and controllers, from which selectors of default constraints follow."""
        return ctx.informers.services, ctx.informers.controllers

    def explain_failure(
        self, code: int, failed_index: int, pod: PodClass, node: int, context: ExplainContext
    ) -> Numbers:
        """Return one dict with the values of the constraint that failed.

        ``constraint``: its position among the hard constraints. ``topologyKey``; ``domain``: the node's domain, None
        without the label. Unless the label is missing: ``matching``: number of matching pods in the domain; ``self``: 1
        if the pod itself matches; ``minimum``: lowest number of matching pods in any domain, 0 if there are fewer
        domains than ``minDomains``; ``maxSkew``.
        """
        part = context.part(SpreadNumbers)
        constraint = part.constraints[pod.index][failed_index]
        key = constraint.row.key
        numbers = {"constraint": failed_index, "topologyKey": key, "domain": context.facts(node).labels.get(key)}
        if code == _engine.MISSING_KEY:
            return (numbers,)
        counts, registered, domains, minimum = context.engine.row(part.number(constraint.row, pod))
        domain = context.engine.domain(context.key(key), node)
        is_registered = domain < len(registered) and registered[domain] > 0
        return (
            numbers
            | {
                "matching": int(counts[domain]) if is_registered else 0,
                "self": int(constraint.self_match),
                "minimum": 0 if domains < constraint.min_domains else int(minimum),
                "maxSkew": constraint.max_skew,
            },
        )


def spreads_over_hosts(pod: PodClass) -> bool:
    """Check whether any of the pod's own spread constraints, soft ones included, has the hostname as topology key."""
    return any(constraint.topology_key == HOSTNAME for constraint in pod.spread or ())
