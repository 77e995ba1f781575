"""One use of the packing engine: a snapshot, a profile, pod classes and templates, compiled to arrays.

The engine's own operations (checking a pod on a node, scanning nodes, placing, forking): ``engine/engine.hpp`` in C++.

Numbers inside a session: a class goes by its position among the session's classes, a node by its position in the
snapshot's node list; nodes that are added later come behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.api.core import Taint
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.compile.node_classes import Domains, NodeClasses
from kscale.scheduling.compile.pod_classes import PodClasses
from kscale.scheduling.compile.resources import Resources
from kscale.scheduling.compile.templates import Copies, spelled_out
from kscale.scheduling.devices.ledger import DeviceCounting, DeviceLedger
from kscale.scheduling.explain import Explainer
from kscale.scheduling.plugins import PROFILE
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.node_volume_limits import VolumeNumbers, csi_rules_not_judged
from kscale.scheduling.plugins.pod_topology_spread import SpreadNumbers
from kscale.scheduling.prefilter import PreFilterReport, prefilter_report
from kscale.scheduling.profile import HOSTNAME, NAME, Context, SchedulerProfile
from kscale.scheduling.status import Verdict
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.columns import FIXED_RESOURCES
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Session"]


class Session:
    """``pods``: classes whose verdicts are asked for, by session number; ``templates``: prepared nodes to copy;
    ``present``: further classes that are only placed or taken off; ``one_by_one``: nothing is going to be placed;
    ``moving``: the pods run, and leave their nodes before they are placed again; ``alike``: every placing of a pod
    stands for another pod like it.

    ``engine``: the packing engine, holding every existing node with the pods placed there; ``templates``: its
    templates, in order. Devices that pods compete for are counted or, where that would not be exact, kept in a ledger
    (``has_ledger``).
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
        alike: bool = False,
    ) -> None:
        self.snapshot = snapshot
        self.profile = profile or SchedulerProfile()
        self._ctx = ctx = Context(snapshot, self.profile)
        self._copies = copies = Copies(ctx, templates)
        others = [pod for found in (*copies.pods, present) for pod in found]
        self._classes = classes = PodClasses.of(ctx, pods, others, templates)
        columns = classes.columns()
        copies.spell_out(
            spelled_out(ctx, classes.pods[: classes.given]) if templates and columns & {NAME, HOSTNAME} else ()
        )
        self._nodes = NodeClasses(ctx, copies.facts, columns)
        devices, ledger = self._devices(one_by_one=one_by_one, moving=moving, alike=alike)
        classes.settle(ctx, copies.facts, ledger.concerns if ledger is not None else _nobody)
        more = [name for predicate in self.profile.predicates for name in predicate.resources]
        self._resources = Resources(ctx, classes, more, devices)
        self.has_ledger = ledger is not None
        self.engine = self._engine(ledger)
        self._domains = Domains(self.engine, snapshot, classes.rows.keys, copies.facts)
        self._fill()
        self.templates = copies.prepare(
            self.engine,
            self._nodes,
            self._domains,
            self._resources,
            classes.parts,
            classes.number,
            alike=ledger is None,
        )

    # -- building ----------------------------------------------------------------------------------------------------

    def _devices(
        self, *, one_by_one: bool, moving: bool, alike: bool
    ) -> tuple[DeviceCounting | None, DeviceLedger | None]:
        ctx, classes = self._ctx, self._classes
        if one_by_one or not classes.devices or DynamicResources.name in self.profile.disabled_filters:
            return None, None
        checked, others = classes.pods[: classes.asked], classes.pods[classes.asked : classes.given]
        if not any(pod.claims for pod in others) and not ((moving or alike) and any(pod.claims for pod in checked)):
            counting = DeviceCounting(ctx, checked, self._nodes)
            if counting.exact:
                return counting, None
        return None, DeviceLedger(ctx, classes.pods[: classes.given], self._copies.templates, alike=alike)

    def _engine(self, ledger: DeviceLedger | None) -> _engine.Engine:
        """An engine with the nodes of the snapshot."""
        snapshot, nodes, classes = self.snapshot, self._nodes, self._classes
        disabled = sum(1 << plugin.ordinal for plugin in PROFILE if plugin.name in self.profile.disabled_filters)
        sizes = {name: size for part in classes.parts for name, size in part.sizes().items()}
        engine = _engine.Engine(len(self._resources.names), disabled=disabled, **sizes)
        if ledger is not None:
            engine.set_devices(ledger)
        engine.set_statics(classes.statics.table(nodes))
        engine.append_nodes(
            np.ascontiguousarray(self._resources.free(nodes.existing)),
            snapshot.columns.slots - snapshot.pod_count,
            nodes.of[: nodes.existing].copy(),
            snapshot.columns.unschedulable,
        )
        return engine

    def _fill(self) -> None:
        """Rows, classes, and the pods that are there."""
        engine, classes, rows, nodes = self.engine, self._classes, self._classes.rows, self._nodes
        eligible = [nodes.evaluate(each.columns, each.counts) for each in rows.eligibilities]
        engine.set_eligibility(np.array(eligible, dtype=np.uint8).reshape(len(eligible), len(nodes)))
        for _ in range(rows.groups):
            engine.add_group()
        engine.add_rows(*rows.arrays())
        for part in classes.parts:
            part.declare(engine, self._ctx)
        amounts = self._resources.amounts()
        engine.add_classes(*amounts, classes.static_row, classes.failed, classes.hosts, classes.extras)
        engine.populate(*classes.placed(self.snapshot))
        for predicate in self.profile.predicates:
            wanted = (*FIXED_RESOURCES, *predicate.resources)
            engine.add_user(predicate, [self.resources.index(name) for name in wanted])

    def copy(self) -> Session:
        """The same over an engine of its own, in the state that this one's is in.

        Raises NativeError where devices are kept in a ledger: it has one engine.
        """
        made = copy(self)
        made.engine = self.engine.copy()
        return made

    # -- use ---------------------------------------------------------------------------------------------------------

    @property
    def asked(self) -> int:
        """How many classes, the first ones, have verdicts."""
        return self._classes.asked

    @property
    def pods(self) -> Sequence[PodClass]:
        """The classes by session number."""
        return self._classes.pods

    @property
    def resources(self) -> tuple[str, ...]:
        """The columns of amounts; names that begin with a zero byte are counted devices."""
        return self._resources.names

    def number(self, pod: PodClass) -> int:
        """The session number of a class. Raises KeyError."""
        return self._classes.number[pod.index]

    def classes_of(self, pods: Iterable[PodClass]) -> NDArray[np.int32]:
        """Session numbers of pod classes: int32[n]."""
        number = self._classes.number
        return np.fromiter((number[pod.index] for pod in pods), dtype=np.int32)

    def numbers(self, size: int) -> NDArray[np.int32]:
        """Session numbers by the numbers of classes, which are below ``size``: int32[size], -1 = none."""
        found = np.full(size, -1, dtype=np.int32)
        known = self._classes.number
        found[np.fromiter(known, np.int64, len(known))] = np.fromiter(known.values(), np.int32, len(known))
        return found

    def hopeless(self, number: int) -> bool:
        """Whether a PreFilter fails: the class fits no node."""
        return self._classes.outcomes[number].failure is not None

    def node_set(self, number: int) -> frozenset[str] | None:
        """The nodes that PreFilters left of all, by name; None = all."""
        return self._classes.outcomes[number].nodes

    def prefilter(self, number: int) -> PreFilterReport:
        """Every PreFilter on its own: skipped plug-ins, failures, node sets."""
        return prefilter_report(self.pods[number], self._ctx)

    def free_on(self, node: int) -> tuple[dict[str, int], int]:
        """(free amounts by resource, free pod places) of a node now."""
        return self._resources.readable(self.engine.free(node).tolist()), self.engine.slots(node)

    def leaving(self, taint: Taint) -> NDArray[np.uint8]:
        """uint8[rows]: which counter rows of the engine stop counting a node once it carries the taint."""
        found = np.zeros(self.engine.n_rows, dtype=np.uint8)
        found[self._classes.part(SpreadNumbers).leaving(taint)] = 1
        return found

    @cached_property
    def unmodelled(self) -> list[str]:
        """What pods use that no rule here looks at: short texts, each once, in order of appearance."""
        ctx, copies = self._ctx, self._copies
        found = ["resource claims of the pods that come with a new node"] if ctx.dra and copies.claims else []
        if copies.templates:
            drivers = self._classes.part(VolumeNumbers).asked_drivers
            found += csi_rules_not_judged(drivers, copies.templates, ctx)
        return found

    # -- why ---------------------------------------------------------------------------------------------------------

    def verdict(self, number: int, node: int) -> Verdict:
        """The first failing plug-in on an existing node, where upstream stops. ``pod`` and ``node`` are left empty."""
        return self._explainer().verdict(number, node)

    def verdicts(self, number: int, node: int) -> list[Verdict]:
        """Every failing Filter on its own, in profile order. PreFilter node sets are not applied; a plug-in whose
        PreFilter skipped or failed is left out."""
        return self._explainer().verdicts(number, node)

    def failed_everywhere(self, number: int) -> Verdict:
        """The verdict of a PreFilter that fails."""
        return self._explainer().prefilter_failed(number)

    def verdicts_on_copy(self, which: int, copy: int, numbers: Iterable[int]) -> dict[int, Verdict]:
        """Class number -> verdict on copy number ``copy`` of a template, alone on it, everything else as it was."""
        self.engine.fork()
        try:
            node = self.engine.add(self.templates[which], copy)
            explainer = self._explainer({node: (which, copy)})
            return {number: explainer.verdict(number, node) for number in numbers}
        finally:
            self.engine.revert()

    def _explainer(self, copies: dict[int, tuple[int, int]] | None = None) -> Explainer:
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

    def template_identity(self, i: int) -> str | None:
        """Equal for templates whose copies the engine cannot tell apart; None: that is not known, because some copy is
        special by its name, or devices are in play."""
        return self._copies.identity(i)

    def template_room(self, i: int) -> tuple[int, list[int]]:
        """(free pod places, what is free by ``resources``) of an empty copy of a template."""
        return self._copies.room(i)


def _nobody(number: int) -> bool:  # noqa: ARG001  (as a ledger's `concerns`)
    return False
