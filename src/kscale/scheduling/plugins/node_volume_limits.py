"""NodeVolumeLimits: attachable volumes per driver (``plugins/nodevolumelimits``, the CSI one).

Decided in C++: ``engine/node_volume_limits.hpp`` counts handles per node and driver; a volume's handle depends on the
node's CSINode only through migration of in-tree volumes. This module decides on volumes that cannot be resolved, and on
required drivers that are missing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.api.storage import CSINode, PersistentVolumeClaim
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.plugins.base import ExplainContext, NodeFilter, Numbers, Part, Plugin, Rows
from kscale.scheduling.profile import CSI, NAME, Context, NodeFacts
from kscale.scheduling.status import Status, error, unresolvable, unschedulable
from kscale.scheduling.volumes import (
    TranslationError,
    Volumes,
    cached_per_snapshot,
    claim_names,
    class_name,
    get_counted_plugins,
    in_tree_index,
    inline,
    not_found,
    not_owned,
    provisioned_by,
    translate_volume,
)
from kscale.snapshot.classes.interner import PodClass
from kscale.snapshot.snapshot import BeforeLosses

__all__ = ["NodeVolumeLimits", "VolumeNumbers", "find_unchecked_csi_rules"]

_Attached = tuple[str, str, int]
"""(driver, volume handle, index of the in-tree plug-in from which it has to be migrated or -1)."""


def _resolve_claim(claim: PersistentVolumeClaim, volumes: Volumes) -> _Attached | None:
    """Return the volume that a claim attaches; None if no CSI driver serves it, or if it cannot be translated to CSI.

    If the volume does not exist, the result is the one that the claim's storage class would provision, with a handle
    made from the claim's name; None if there is no such class, or if the class has no provisioner.
    """
    volume = volumes.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        storage_class = volumes.storage_class(class_name(claim))
        if storage_class is None or not storage_class.provisioner:
            return None
        driver_and_plugin = provisioned_by(storage_class.provisioner)
        return (
            None
            if driver_and_plugin is None
            else (driver_and_plugin[0], f"\0{claim.namespace}/{claim.name}", driver_and_plugin[1])
        )
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle, -1
    try:
        return translate_volume(volume)
    except TranslationError:
        return None


def _resolve(pod: PodClass, volumes: Volumes, *, incoming: bool) -> tuple[_Attached, ...] | Status:
    """Return the pod's attachable volumes, each once, or the status of the first problem.

    ``incoming``: a missing claim is a problem; if False, the claim is ignored.
    """
    volumes_used: dict[_Attached, None] = {}
    for volume in pod.volumes:
        try:
            attached = inline(volume)
        except TranslationError:  # see _untranslated
            continue
        if attached is not None:
            volumes_used[attached] = None
    for name, ephemeral in claim_names(pod):
        claim = volumes.claim(pod.namespace, name)
        if claim is None:
            if incoming:
                missing = not_found("persistentvolumeclaim", name)
                return unresolvable(f"looking up PVC {pod.namespace}/{name}: {missing}")
            continue
        if ephemeral and (problem := not_owned(pod, claim)):
            return error(problem)
        attached = _resolve_claim(claim, volumes)
        if attached is not None and attached[0] and attached[1]:
            volumes_used[attached] = None
    return tuple(volumes_used)


def _find_translation_error(pod: PodClass) -> Status | None:
    """Return the error of an inline volume that has no CSI equivalent; None if there is none."""
    for volume in pod.volumes:
        try:
            inline(volume)
        except TranslationError as problem:
            return error(f"converting volume({volume.name}) from inline to csi: {problem}")
    return None


def _limits(csi_node: CSINode | None) -> dict[str, int]:
    """Return driver -> maximum number of volumes on the node, for drivers with a limit."""
    if csi_node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _attachments(ctx: Context) -> dict[str, list[tuple[str, str]]]:
    """Return node name -> CSI volumes that VolumeAttachment objects report there."""
    handles_by_node: dict[str, dict[tuple[str, str], None]] = {}
    volumes = Volumes.of(ctx)
    for entry in ctx.informers.attachments:
        name = entry.spec.source.persistent_volume_name
        volume = volumes.volume(name) if name else None
        if volume is not None and volume.spec.csi is not None:
            handle = (entry.spec.attacher, volume.spec.csi.volume_handle)
            handles_by_node.setdefault(entry.spec.node_name, {})[handle] = None
    return {node: list(handles) for node, handles in handles_by_node.items()}


def _has_ephemeral_claim(pod: PodClass) -> bool:
    """Check whether a volume of the class is a generic ephemeral claim."""
    return any(volume.ephemeral is not None for volume in pod.volumes)


class _BrokenNodes(dict[str, str]):
    """Nodes with placed pods whose generic ephemeral claim belongs to another pod -> upstream's text. Cached with a
    snapshot.
    """

    @classmethod
    def of(cls, ctx: Context) -> _BrokenNodes:
        """Return upstream's error by name of each node with a placed pod whose ephemeral claim belongs to another pod.

        Cached with the snapshot.
        """
        return ctx.snapshot.memo.get(cls, lambda: cls._build(ctx))

    @classmethod
    def _build(cls, ctx: Context) -> _BrokenNodes:
        """Compute the result of :meth:`of`; the error is that of the node's first such pod in the order of classes."""
        snapshot, broken = ctx.snapshot, cls()
        losses = BeforeLosses.find(snapshot)
        if losses is not None and losses.snapshot.memo.find(cls) == broken:  # nor are there any among fewer pods
            return broken
        for which, pod in enumerate(snapshot.placed_classes):
            if pod.volumes and _has_ephemeral_claim(pod):
                status = _resolve(pod, Volumes.of(ctx), incoming=False)
                if isinstance(status, Status):
                    for n in snapshot.nodes_of_class(which):
                        broken.setdefault(snapshot.nodes[n], status.reasons[0])
        return broken

    def __hash__(self) -> int:  # type: ignore[override]  # a dict is unhashable, but this one never changes
        return id(self)


class _NodeLimits:
    """Limits of nodes. Updated if CSINodes change.

    ``limits``: by driver, then by CSINode name; ``drivers``: those with a limit on some node. ``plugins``: by CSINode
    name, a bit for each in-tree plug-in whose volumes it counts; ``migrated``: the same by node, uint32[nodes].
    """

    def __init__(self, names: tuple[str, ...], csi_nodes: Mapping[str, CSINode], last: _NodeLimits | None) -> None:
        self._of = names, csi_nodes
        is_same = last is not None and last.csi_nodes is csi_nodes
        before = last.known if last is not None else {}
        self.known: dict[str, tuple[CSINode, dict[str, int], int]] = before if is_same else {}
        """CSINode name -> the CSINode, its limits, and the in-tree plug-ins whose volumes it serves."""
        for name, csi_node in csi_nodes.items() if not is_same else ():
            entry = before.get(name)
            if entry is None or entry[0] is not csi_node:
                entry = csi_node, _limits(csi_node), get_counted_plugins(csi_node)
            self.known[name] = entry
        self.limits: dict[str, dict[str, int]] = last.limits if last is not None and is_same else {}
        self.plugins: dict[str, int] = last.plugins if last is not None and is_same else {}
        for name, (_, limits, plugins) in self.known.items() if not is_same else ():
            self.plugins[name] = plugins
            for driver, limit in limits.items():
                self.limits.setdefault(driver, {})[name] = limit
        self.drivers = frozenset(
            driver for driver, limits in self.limits.items() if not limits.keys().isdisjoint(names)
        )
        if last is not None and last.drivers == self.drivers:
            self.drivers = last.drivers
        self._columns: dict[str, NDArray[np.int32]] = {}
        self._before: tuple[_NodeLimits, NDArray[np.int64]] | None = None
        """Limits of these and further nodes, and which of them are these nodes."""

    @cached_property
    def migrated(self) -> NDArray[np.uint32]:
        """Return, for each node, the bits of the in-tree plug-ins whose volumes its CSINode counts: uint32[nodes]."""
        if self._before is not None:
            return self._before[0].migrated.take(self._before[1])
        names, plugins = self._of[0], self.plugins
        return np.array([plugins.get(name, 0) for name in names], dtype=np.uint32)

    @property
    def csi_nodes(self) -> Mapping[str, CSINode]:
        """Return the CSINodes by name from which the limits were built."""
        return self._of[1]

    @classmethod
    def of(cls, ctx: Context) -> _NodeLimits:
        """Return the cached limits of the snapshot's nodes, built again if nodes or CSINodes changed."""
        names, csi_nodes = ctx.snapshot.nodes, ctx.informers.csi_nodes

        def renew(last: _NodeLimits | None) -> _NodeLimits:
            if last is not None and last.is_of(names, csi_nodes):
                return last
            result, losses = cls(names, csi_nodes, last), BeforeLosses.find(ctx.snapshot)
            before = None if losses is None else losses.snapshot.memo.find(cls)
            if losses is not None and before is not None and before.is_of(losses.snapshot.nodes, csi_nodes):
                result._before = before, losses.nodes
            return result

        return cached_per_snapshot(ctx.snapshot, cls, renew)

    def is_of(self, names: tuple[str, ...], csi_nodes: Mapping[str, CSINode]) -> bool:
        """Check whether the limits were built from these node names and CSINodes."""
        return self._of[0] is names and self._of[1] is csi_nodes

    def column(self, driver: str) -> NDArray[np.int32]:
        """Return each node's limit for a driver's volumes, -1 = no limit: int32[nodes]."""
        column = self._columns.get(driver)
        if column is None and self._before is not None:
            column = self._columns[driver] = self._before[0].column(driver).take(self._before[1])
        if column is None:
            limits = self.limits.get(driver, {})
            column = np.array([limits.get(name, -1) for name in self._of[0]], dtype=np.int32)
            self._columns[driver] = column
        return column


class VolumeNumbers(Part):
    """Numbers of the drivers that some class uses and some node limits, and of volumes by handle."""

    def __init__(self) -> None:
        self._asked: dict[str, None] = {}
        self.drivers: dict[str, int] = {}
        self._handles: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def add_class(self, pod: PodClass, counters: Any) -> None:
        """Record the CSI drivers of the volumes that the class attaches."""
        self._asked.update(dict.fromkeys(driver for driver, _, _ in counters))

    def finish_classes(self, pods: Sequence[PodClass], ctx: Context, copies: list[NodeFacts]) -> None:
        """Assign numbers to the drivers of added classes that limit the volumes of some existing or new node."""
        if not self._asked:
            return
        limited = _NodeLimits.of(ctx).drivers.union(*(_limits(facts.csi_node) for facts in copies))
        for driver in self._asked:
            if driver in limited:
                self.drivers.setdefault(driver, len(self.drivers))

    def is_used(self) -> bool:
        """Return whether the volumes of any driver are counted."""
        return bool(self.drivers)

    def may_count(self, pod: PodClass) -> bool:
        """Return whether pods of the class have volumes."""
        return bool(pod.volumes)

    def entry(self, pod: PodClass, ctx: Context, *, checked: bool) -> dict[str, Any]:
        """Return ``volumes`` of the class: each volume of a counted driver.

        A volume is (number of the volume, number of the driver, index of the in-tree plug-in or -1).
        """
        attached = _resolve(pod, Volumes.of(ctx), incoming=False) if pod.volumes and self.drivers else ()
        entries = [
            (self._handle(driver, handle), self.drivers[driver], plugin)
            for driver, handle, plugin in (attached if isinstance(attached, tuple) else ())
            if driver in self.drivers
        ]
        return {"volumes": entries} if entries else {}

    def _handle(self, driver: str, handle: str) -> int:
        """Return the number assigned to a volume on first use. May be called concurrently."""
        with self._lock:  # attachments are numbered per engine, and several engines may be created concurrently
            return self._handles.setdefault((driver, handle), len(self._handles))

    def declare(self, engine: _engine.Engine, ctx: Context) -> None:
        """Declare the counted drivers, with each node's limit, to the engine."""
        if not self.drivers:
            return
        of_nodes = _NodeLimits.of(ctx)
        for driver in self.drivers:
            engine.add_driver(of_nodes.column(driver))
        engine.set_migrated(of_nodes.migrated)
        index = ctx.snapshot.columns.index
        for name, attached in _attachments(ctx).items():
            for driver, handle in attached if name in index else ():
                if driver in self.drivers:
                    engine.attach(index[name], self._handle(driver, handle), self.drivers[driver])

    def build_template_arguments(self, facts: NodeFacts) -> dict[str, Any]:
        """Return the node's limit for each counted driver (-1: none), and the bits of its counted in-tree plug-ins."""
        bound = _limits(facts.csi_node)
        return {
            "limits": [bound.get(driver, -1) for driver in self.drivers],
            "migrated": get_counted_plugins(facts.csi_node),
        }


def find_unchecked_csi_rules(drivers: Sequence[str], templates: Sequence[NodeTemplate], ctx: Context) -> list[str]:
    """Return texts on rules of CSI drivers that the input contains and that are not applied to new nodes.

    ``drivers``: those whose volumes the pods use. A new node is checked with its template's CSINode. A template has no
    CSINode unless the simulation is CSI-node-aware, which upstream's is not by default.
    """
    if not drivers or NodeVolumeLimits.name in ctx.profile.disabled_filters:
        return []
    if ctx.csi and all(template.csi_node is not None for template in templates):
        return []
    which = "whose template has no CSINode" if ctx.csi else "(enable-csi-node-aware-scheduling is off)"
    limited = _NodeLimits.of(ctx).drivers.union(*(_limits(template.csi_node) for template in templates))
    texts = []
    for driver in drivers:
        if driver in limited:
            texts.append(f"attach limit of {driver} on new nodes {which}")
        if _is_driver_required(driver, Volumes.of(ctx)):
            texts.append(f"whether {driver} is installed on new nodes {which}; it counts as missing")
    return texts


class NodeVolumeLimits(Plugin):
    """The node can attach the pod's volumes in addition to those it has."""

    name = "NodeVolumeLimits"
    statuses: ClassVar = {0: unschedulable("node(s) exceed max volume count")}

    def skips(self, pod: PodClass, ctx: Context) -> bool:
        """Return whether the pod has no claims and no inline volumes of in-tree drivers."""
        return not (pod.has_claims or any(in_tree_index(volume) >= 0 for volume in pod.volumes))

    def get_node_filter(self, pod: PodClass, ctx: Context) -> NodeFilter | None:
        """Return the check for failures that no count decides, such as an unresolved volume; None if there are none."""
        if not pod.volumes or self.skips(pod, ctx):
            return None
        volumes = Volumes.of(ctx)
        attached = _resolve(pod, volumes, incoming=True)
        if isinstance(attached, Status):
            return NodeFilter(attached, frozenset(), partial(_everywhere, attached))
        broken = _BrokenNodes.of(ctx)
        untranslated = _find_translation_error(pod)
        needed = tuple((driver, plugin) for driver, _, plugin in attached if _is_driver_required(driver, volumes))
        if not needed and not broken and untranslated is None:
            return None
        migrating = tuple(dict.fromkeys(plugin for _, _, plugin in attached))

        def check(node: NodeFacts) -> Status | None:
            if untranslated is not None and node.csi_node is not None:
                return untranslated
            moved = get_counted_plugins(node.csi_node)
            drivers = {driver.name for driver in node.csi_node.spec.drivers} if node.csi_node else set()
            for driver, plugin in needed:
                if (plugin < 0 or moved >> plugin & 1) and driver not in drivers:
                    return unschedulable(f"{driver} CSI driver is not installed on the node")
            counts = any(plugin < 0 or moved >> plugin & 1 for plugin in migrating)
            if counts and node.name in broken and _limits(node.csi_node):
                return error(broken[node.name])
            return None

        key: Hashable = needed, untranslated, (migrating, broken) if broken else None
        return NodeFilter(key, frozenset({CSI, NAME}) if broken else frozenset({CSI}), check)

    def part(self, rows: Rows) -> Part:
        """Return a new part that counts volumes by CSI driver."""
        return VolumeNumbers()

    def get_counters(self, pod: PodClass, ctx: Context) -> tuple[_Attached, ...] | None:
        """Return the volumes that the pod attaches; None if there are none, or if they cannot be resolved."""
        attached = _resolve(pod, Volumes.of(ctx), incoming=True) if pod.volumes else ()
        return attached if isinstance(attached, tuple) and attached else None

    def get_dependencies(self, pod: PodClass, ctx: Context) -> tuple[Any, ...]:
        """Return the pod's claims, volumes and storage classes, the CSIDrivers and the :class:`_BrokenNodes`.

        Empty without volumes.
        """
        if not pod.volumes:
            return ()
        objects = Volumes.of(ctx).get_dependencies(pod) if pod.has_claims else ()
        return (*objects, ctx.informers.csi_drivers, _BrokenNodes.of(ctx) or None)

    def get_shared_dependencies(self, ctx: Context) -> tuple[Any, ...]:
        """Return the indexes of volumes and CSIDrivers, and the :class:`_BrokenNodes`."""
        return Volumes.of(ctx), ctx.informers.csi_drivers, _BrokenNodes.of(ctx) or None

    def get_part_dependencies(self, storage: Sequence[PodClass], ctx: Context) -> Iterable[Any]:
        """Return the set of drivers with a limit, and the storage objects of the claims of the classes ``storage``."""
        return (_NodeLimits.of(ctx).drivers, *Volumes.of(ctx).list_dependencies(storage))

    def explain_failure(
        self, code: int, failed_index: int, pod: PodClass, node: int, context: ExplainContext
    ) -> Numbers:
        """Return the name of the failed CSI ``driver``, and its ``limit`` of volumes on the node (None: unknown)."""
        driver = next(name for name, number in context.part(VolumeNumbers).drivers.items() if number == failed_index)
        return ({"driver": driver, "limit": _limits(context.facts(node).csi_node).get(driver)},)


def _everywhere(status: Status, node: NodeFacts) -> Status | None:  # noqa: ARG001  # the status is the same on every node
    """Return ``status`` (None: passes) for every node. Used as the check of a node filter."""
    return status


def _is_driver_required(driver: str, volumes: Volumes) -> bool:
    """Check whether pods must not run on nodes without the driver."""
    csi_driver = volumes.driver(driver)
    return csi_driver is not None and bool(csi_driver.spec.prevent_pod_scheduling_if_missing)
