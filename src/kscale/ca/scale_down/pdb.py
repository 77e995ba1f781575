"""Disruption budgets during one pass of scale-down (upstream: ``core/scaledown/pdb/basic.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import methodcaller

import msgspec

from kscale.ca import unremovable_reasons
from kscale.ca.unremovable_reasons import BlockingPod
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import object_key
from kscale.objects.api.policy import PodDisruptionBudget
from kscale.objects.selectors import Selector, SelectorError, SelectorIndex, compile_selector
from kscale.snapshot.caches import cached_by_identity
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "PdbCheck",
    "RemainingPdb",
    "RemainingPdbTracker",
    "build_pdb_tracker",
    "filter_readable_budgets",
    "get_cached_pdb_tracker",
]


_NamespaceAndLabels = tuple[str, tuple[tuple[str, str], ...]]
"""Namespace and labels of pods."""


_copy = methodcaller("__copy__")


class RemainingPdb(msgspec.Struct, kw_only=True):
    """One budget; ``disruptions_allowed`` falls as pods are charged and may become negative."""

    name: str
    namespace: str
    disruptions_allowed: int
    selector: Selector

    @property
    def key(self) -> str:
        """Return ``namespace/name`` of the budget."""
        return object_key(self.namespace, self.name)

    def matches(self, pod: Pod) -> bool:
        """Check whether the budget covers the pod."""
        return pod.metadata.namespace == self.namespace and self.selector.matches(pod.metadata.labels)


class PdbCheck(msgspec.Struct, kw_only=True, frozen=True):
    """Whether the pods can be removed at all, whether all at once, and the first pod that prevents it."""

    can_remove: bool
    in_parallel: bool
    blocking: BlockingPod | None = None


class RemainingPdbTracker:
    """Budgets in list order. A tracker has one owner; :meth:`fork` gives an independent copy."""

    __slots__ = ("_covering", "_index", "family", "pdbs")

    def __init__(self, budgets: Iterable[PodDisruptionBudget] = ()) -> None:
        """Initialize the tracker. Raises :class:`kscale.objects.selectors.SelectorError` with upstream's text for an
        invalid selector.
        """
        self.pdbs = [
            RemainingPdb(
                name=budget.metadata.name,
                namespace=budget.metadata.namespace,
                disruptions_allowed=budget.status.disruptions_allowed,
                selector=compile_selector(budget.spec.selector),
            )
            for budget in budgets
        ]
        self._index: SelectorIndex[int] = SelectorIndex()
        for i, pdb in enumerate(self.pdbs):
            self._index.add(pdb.namespace, pdb.selector, i)
        self.family = object()
        """Identity that forks of one tracker share; their budgets cover the same pods."""
        self._covering: dict[_NamespaceAndLabels, tuple[int, ...]] = {}  # forks share this cache

    def fork(self) -> RemainingPdbTracker:
        """Return an independent copy."""
        copy = RemainingPdbTracker()
        copy.pdbs = [*map(_copy, self.pdbs)]
        copy._index, copy._covering, copy.family = self._index, self._covering, self.family
        return copy

    def covering(self, pod: Pod) -> tuple[int, ...]:
        """Return the positions in ``pdbs`` of the budgets that cover the pod, ascending."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels or {}
        if namespace not in self._index:
            return ()
        key = namespace, tuple(labels.items())
        positions = self._covering.get(key)
        if positions is None:
            positions = self._covering[key] = tuple(sorted(self._index.matching(namespace, labels)))
        return positions

    def matching(self, pod: Pod) -> list[RemainingPdb]:
        """Return the budgets that cover the pod, in list order."""
        return [self.pdbs[i] for i in self.covering(pod)]

    def can_remove(self, pods: Sequence[Pod]) -> PdbCheck:
        """Check whether the budgets allow these pods to be removed, and whether all of them at once.

        A pod blocks the removal if a budget allows no disruption. If some pods only cannot be removed at once, the last
        of them is the blocking one.
        """
        in_parallel = True
        blocking = None
        for pdb in self.pdbs:
            count = 0
            for pod in pods:
                if not pdb.matches(pod):
                    continue
                count += 1
                if pdb.disruptions_allowed < 1:
                    return PdbCheck(can_remove=False, in_parallel=False, blocking=_build_blocking_pod(pod))
                if pdb.disruptions_allowed < count:
                    in_parallel = False
                    blocking = _build_blocking_pod(pod)
        return PdbCheck(can_remove=True, in_parallel=in_parallel, blocking=blocking)

    def remove(self, pods: Iterable[Pod]) -> None:
        """Subtract the pods from the allowed disruptions of every budget that covers them."""
        for pod in pods:
            for pdb in self.matching(pod):
                pdb.disruptions_allowed -= 1


def _build_blocking_pod(pod: Pod) -> BlockingPod:
    """Build the blocking pod whose budget allows no disruption."""
    return BlockingPod(pod=pod.key, reason=unremovable_reasons.NOT_ENOUGH_PDB)


def filter_readable_budgets(budgets: Iterable[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    """Return the budgets before the first one with an invalid selector.

    Upstream continues with these when it reads the budgets a second time.
    """
    readable = []
    for budget in budgets:
        try:
            compile_selector(budget.spec.selector)
        except SelectorError:
            break
        readable.append(budget)
    return readable


def get_cached_pdb_tracker(snapshot: Snapshot) -> RemainingPdbTracker:
    """Return the tracker of a snapshot's budgets, cached while the budgets are the same. Fork it before charging it.

    Raises InputError for a budget with an invalid selector.
    """
    return cached_by_identity(snapshot.interner.memo, ("budgets",), [snapshot.informers.budgets], build_pdb_tracker)[0]


def build_pdb_tracker(budgets: Sequence[PodDisruptionBudget]) -> RemainingPdbTracker:
    """Build a tracker of these budgets. Raises InputError that names each budget with an invalid selector."""
    try:
        return RemainingPdbTracker(budgets)
    except SelectorError:
        problems = []
        for budget in budgets:
            try:
                RemainingPdbTracker([budget])
            except SelectorError as error:
                problems.append(Problem(str(error), object=f"PodDisruptionBudget {budget.key}", field="spec.selector"))
        raise InputError(problems) from None
