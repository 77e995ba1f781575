"""One use of the packing engine: a snapshot, a profile, pod classes and templates, compiled to arrays.

``engine/engine.hpp`` in C++ has the engine's operations: checking a pod on a node, scanning nodes, placing, forking.

Numbers inside a session: a pod class has its position among the session's classes, a node its position in the
snapshot's node list. Nodes that are added later follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.api.core import Taint
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.compile.node_classes import Domains, NodeClasses
from kscale.scheduling.compile.pod_classes import PodClasses, PreFilterReport, SharedPodClasses, prefilter_report
from kscale.scheduling.compile.resources import DeviceCounting, Resources
from kscale.scheduling.compile.templates import Copies, names_in_selectors
from kscale.scheduling.devices.ledger import DeviceLedger
from kscale.scheduling.explain import Explainer
from kscale.scheduling.plugins import PROFILE
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.node_volume_limits import find_unchecked_csi_rules
from kscale.scheduling.plugins.pod_topology_spread import SpreadNumbers
from kscale.scheduling.profile import CSI, DEVICES, HOSTNAME, NAME, Context, SchedulerProfile
from kscale.scheduling.status import Verdict
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import FIXED_RESOURCES
from kscale.snapshot.snapshot import Snapshot

__all__ = ["ClassValues", "Session"]


class ClassValues(list[tuple[Callable[[Mapping[str, int]], float], NDArray[np.float64]]]):
    """A function of what a pod occupies, by resource, with its value for each of some classes: float64[classes]."""


class Session:
    """Compiled state for one use of the engine.

    ``pods``: classes that may be checked, by session number; ``templates``: nodes to copy; ``present``: further classes
    that are only placed or removed; ``one_by_one``: nothing is going to be placed; ``moving``: the pods run, and leave
    their nodes before they are placed again; ``exchangeable``: every placement of a pod stands for another equivalent
    pod; ``shared``: compiled classes to use again, with which the session's numbers differ (:meth:`classes_of`).

    ``engine``: the packing engine, with every existing node and the pods placed there; ``templates``: its prepared
    templates, in order. Devices that pods compete for are counted or, where that would not be exact, tracked in a
    ledger (``has_ledger``).
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pods: Iterable[PodClass],
        templates: Sequence[NodeTemplate] = (),
        profile: SchedulerProfile | None = None,
        present: Iterable[PodClass] = (),
        *,
        one_by_one: bool = False,
        moving: bool = False,
        exchangeable: bool = False,
        shared: SharedPodClasses | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.profile = profile or SchedulerProfile()
        self._ctx = ctx = Context(snapshot, self.profile)
        self._copies = copies = Copies(ctx, templates, shared)
        others = [pod for pod_classes in (*copies.pods, present) for pod in pod_classes]
        self._classes = classes = PodClasses.of(ctx, pods, others, templates, shared)
        columns = classes.columns()
        copies.add_names(
            names_in_selectors(ctx, classes.pods[: classes.own_count])
            if templates and columns & {NAME, HOSTNAME}
            else ()
        )
        self._nodes = NodeClasses(ctx, copies.facts, columns)
        devices, ledger = self._devices(one_by_one=one_by_one, moving=moving, exchangeable=exchangeable)
        classes.compile(ctx, copies.facts, None if ledger is None else ledger.may_count)
        more = [name for predicate in self.profile.predicates for name in predicate.resources]
        self._resources = Resources(ctx, classes, more, devices)
        self.has_ledger = ledger is not None
        static_verdicts, eligible = self._get_node_verdicts(shared is not None)
        self.engine = self._engine(ledger, static_verdicts)
        self._domains = Domains(self.engine, snapshot, classes.rows.keys, copies.facts)
        self._fill(eligible)
        self.templates = copies.prepare(
            self.engine,
            self._nodes,
            self._domains,
            self._resources,
            classes.parts,
            classes.number,
            classes.memo,
            exchangeable=ledger is None,
        )

    # -- building ----------------------------------------------------------------------------------------------------

    def _devices(
        self, *, one_by_one: bool, moving: bool, exchangeable: bool
    ) -> tuple[DeviceCounting | None, DeviceLedger | None]:
        """Return (counted devices, None), or (None, ledger) if counting is not exact; (None, None) without devices.

        ``one_by_one``, ``moving``, ``exchangeable``: as in :class:`Session`.
        """
        ctx, classes = self._ctx, self._classes
        if one_by_one or not classes.devices or DynamicResources.name in self.profile.disabled_filters:
            return None, None
        checked, others = classes.pods[: classes.checked], classes.pods[classes.checked : classes.own_count]
        if not any(pod.claims for pod in others) and not (
            (moving or exchangeable) and any(pod.claims for pod in checked)
        ):
            counting = DeviceCounting(ctx, checked, self._nodes)
            if counting.exact:
                return counting, None
        return None, DeviceLedger(
            ctx, classes.pods[: classes.own_count], self._copies.templates, exchangeable=exchangeable
        )

    def _get_node_verdicts(self, is_shared: bool) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
        """Return each static row's verdict on each node class, and whether each counting rule counts pods there.

        The arrays are [static rows, node classes] and [rules, node classes]; a verdict has a bit per failing plug-in.
        ``is_shared``: they are cached with the pod classes, unless they depend on CSINodes or devices.
        """
        classes, nodes = self._classes, self._nodes

        def evaluate() -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
            eligible = [nodes.evaluate(each.columns, each.counts) for each in classes.rows.eligibilities]
            counts = np.array(eligible, dtype=np.uint8).reshape(len(eligible), len(nodes))
            return classes.statics.table(nodes), counts

        if not is_shared or not nodes.columns.isdisjoint((CSI, DEVICES)):  # these are facts beside the node object
            return evaluate()
        return classes.node_verdicts.get(nodes.list_exemplars(self._copies.list_sources()), evaluate)

    def _engine(self, ledger: DeviceLedger | None, static_verdicts: NDArray[np.uint16]) -> _engine.Engine:
        """Build an engine with the nodes of the snapshot, without pods. ``ledger``: of devices, None if not used."""
        snapshot, nodes, classes = self.snapshot, self._nodes, self._classes
        disabled = sum(1 << plugin.ordinal for plugin in PROFILE if plugin.name in self.profile.disabled_filters)
        sizes = {name: size for part in classes.parts for name, size in part.engine_arguments().items()}
        engine = _engine.Engine(len(self._resources.names), disabled=disabled, **sizes)
        if ledger is not None:
            engine.set_devices(ledger)
        engine.set_statics(static_verdicts)
        engine.append_nodes(
            np.ascontiguousarray(self._resources.free(nodes.existing)),
            snapshot.columns.slots - snapshot.pod_count,
            nodes.of[: nodes.existing].copy(),
            snapshot.columns.unschedulable,
        )
        return engine

    def _fill(self, eligible: NDArray[np.uint8]) -> None:
        """Add counter rows, pod classes and the placed pods to the engine. ``eligible``: [rules, node classes]."""
        engine, classes, rows = self.engine, self._classes, self._classes.rows
        engine.set_eligibility(eligible)
        for _ in range(rows.groups):
            engine.add_group()
        engine.add_rows(*rows.arrays())
        for part in classes.parts:
            part.declare(engine, self._ctx)
        amounts = self._resources.amounts()
        engine.add_classes(*amounts, classes.static_row, classes.failed, classes.hosts, classes.extras)
        engine.populate(*classes.get_placed_pods(self.snapshot))
        for predicate in self.profile.predicates:
            resource_names = (*FIXED_RESOURCES, *predicate.resources)
            engine.add_user(predicate, [self.resources.index(name) for name in resource_names])

    def with_pods_placed(self, snapshot: Snapshot) -> Session:
        """Return a copy of this session for ``snapshot``, which has the pods that the engine placed.

        Both sessions share the engine.
        """
        result = copy(self)
        vars(result).update(snapshot=snapshot, _ctx=Context(snapshot, self.profile))
        return result

    def copy(self) -> Session:
        """Return an independent copy with an engine of its own, in the current state.

        Raises NativeError if devices are tracked in a ledger, which belongs to one engine.
        """
        result = copy(self)
        result.engine = self.engine.copy()
        return result

    # -- packing -----------------------------------------------------------------------------------------------------

    @property
    def checked_count(self) -> int:
        """Return how many classes, counted from the first, can be checked."""
        return self._classes.checked

    @property
    def has_devices(self) -> bool:
        """Return whether any pod may request devices."""
        return self._classes.devices

    @property
    def pods(self) -> Sequence[PodClass]:
        """Return the classes in order of their session numbers."""
        return self._classes.pods

    @property
    def class_values(self) -> ClassValues:
        """Return the cache of functions of a class, each with its values for all classes that can be checked.

        Callers fill it. Sessions with the same compiled classes share it.
        """
        return self._classes.memo.get(ClassValues, ClassValues)

    @property
    def resources(self) -> tuple[str, ...]:
        """Return the names of the resource columns; names that begin with a zero byte are counted devices."""
        return self._resources.names

    def number(self, pod: PodClass) -> int:
        """Return the session number of a class. Raises KeyError if the session does not have the class."""
        return self._classes.number[pod.index]

    def classes_of(self, pods: Iterable[PodClass]) -> NDArray[np.int32]:
        """Return the session numbers of pod classes: int32[n]. Raises KeyError for an unknown class."""
        number = self._classes.number
        return np.fromiter((number[pod.index] for pod in pods), dtype=np.int32)

    def numbers(self, size: int) -> NDArray[np.int32]:
        """Return session numbers by ``PodClass.index``: int32[size], -1 = not in the session.

        ``size`` must be greater than every index of the session's classes.
        """
        numbers = np.full(size, -1, dtype=np.int32)
        number_by_index = self._classes.number
        numbers[np.fromiter(number_by_index, np.int64, len(number_by_index))] = np.fromiter(
            number_by_index.values(), np.int32, len(number_by_index)
        )
        return numbers

    def fails_prefilter(self, class_number: int) -> bool:
        """Return whether a PreFilter fails, so that the class fits no node."""
        return self._classes.outcomes[class_number].failure is not None

    def node_set(self, class_number: int) -> frozenset[str] | None:
        """Return the names of the nodes that PreFilters allow; None if all nodes are allowed."""
        return self._classes.outcomes[class_number].nodes

    def prefilter(self, class_number: int) -> PreFilterReport:
        """Return what every PreFilter decides, each run alone: skipped plug-ins, failures and node sets."""
        return prefilter_report(self.pods[class_number], self._ctx)

    def free_on(self, node: int) -> tuple[dict[str, int], int]:
        """Return a node's current free amounts by resource (cpu in milli-units), and its free pod slots."""
        return self._resources.readable(self.engine.free(node).tolist()), self.engine.slots(node)

    def mask_rows_without_taint(self, taint: Taint) -> NDArray[np.uint8]:
        """Return 1 for each counter row of the engine that counts only nodes without the taint: uint8[rows]."""
        mask = np.zeros(self.engine.n_rows, dtype=np.uint8)
        part = self._classes.get_part(SpreadNumbers)
        mask[[] if part is None else part.leaving(taint)] = 1
        return mask

    @cached_property
    def unmodelled(self) -> list[str]:
        """Return :meth:`list_unmodelled` for all classes that can be checked."""
        return self.list_unmodelled(self._classes.pods[: self._classes.checked])

    def list_unmodelled(self, pods: Iterable[PodClass]) -> list[str]:
        """List short texts on what pods of the classes use and no rule considers, each once, in order of appearance."""
        ctx, copies = self._ctx, self._copies
        texts = ["resource claims of the pods that come with a new node"] if ctx.dra and copies.claims else []
        drivers = self._classes.get_requested_drivers(pods) if copies.templates else ()
        if drivers:
            texts += find_unchecked_csi_rules(drivers, copies.templates, ctx)
        return texts

    # -- explanations ------------------------------------------------------------------------------------------------

    def verdict(self, class_number: int, node: int) -> Verdict:
        """Return the verdict on a class and an existing node: ``ok``, or the first plug-in that fails, as upstream.

        ``pod`` and ``node`` of the verdict are left empty.
        """
        return self._explainer().verdict(class_number, node)

    def verdicts(self, class_number: int, node: int) -> list[Verdict]:
        """Return a verdict for each failing Filter, each run alone, in profile order.

        PreFilter node sets are not applied. A plug-in whose PreFilter skipped or failed is left out.
        """
        return self._explainer().verdicts(class_number, node)

    def failed_everywhere(self, class_number: int) -> Verdict:
        """Return the verdict on a class whose PreFilter fails, which holds for every node."""
        return self._explainer().prefilter_failed(class_number)

    def verdicts_on_copy(self, which: int, copy: int, numbers: Iterable[int]) -> dict[int, Verdict]:
        """Return class number -> verdict on copy number ``copy`` of template ``which``, for the classes ``numbers``.

        Each class is checked alone on the copy; the rest of the state is unchanged.
        """
        self.engine.fork()
        try:
            node = self.engine.add(self.templates[which], copy)
            explainer = self._explainer({node: (which, copy)})
            return {number: explainer.verdict(number, node) for number in numbers}
        finally:
            self.engine.revert()

    def _explainer(self, copies: dict[int, tuple[int, int]] | None = None) -> Explainer:
        """Return an explainer. ``copies``: (template, number of the copy) by number of the added node."""
        return Explainer(
            self._ctx,
            self.engine,
            self._classes,
            self._nodes,
            self._resources,
            self._domains,
            self._copies,
            copies or {},
        )

    # -- copies of templates -----------------------------------------------------------------------------------------

    def template_identity(self, i: int) -> tuple[object, ...] | None:
        """Return a key that is equal for templates whose copies the engine cannot distinguish.

        ``i``: number of the template. None if that is unknown: a copy's name is special, or devices are considered.
        """
        return self._copies.identity(i)

    def template_room(self, i: int) -> tuple[int, list[int]]:
        """Return the free pod slots of an empty copy of template number ``i``, and its free amounts.

        Amounts are in the order of ``resources``, cpu in milli-units.
        """
        return self._copies.room(i)
