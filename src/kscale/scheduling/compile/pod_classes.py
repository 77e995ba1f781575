"""Compiles pod classes: PreFilter verdicts, static filter verdicts and the counters that each class reads.

The results are cached with the cluster from snapshot to snapshot. They are recomputed only for classes whose plug-ins
depend on objects that changed (:meth:`kscale.scheduling.plugins.base.Plugin.get_dependencies`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import cached_property, partial
from operator import is_
from typing import Any, Final, TypeVar
from weakref import ref

import msgspec
import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.api.storage import CSINode
from kscale.objects.nodegroup import NodeTemplate
from kscale.scheduling.compile.node_classes import NodeClasses
from kscale.scheduling.devices.claims import Claims
from kscale.scheduling.plugins import PROFILE, implementing
from kscale.scheduling.plugins.base import NOTHING, NodeFilter, Part, Plugin, Rows
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.inter_pod_affinity import InterPodAffinity, TermNumbers
from kscale.scheduling.plugins.node_volume_limits import NodeVolumeLimits
from kscale.scheduling.plugins.pod_topology_spread import spreads_over_hosts
from kscale.scheduling.profile import NAME, Context, NodeFacts, SchedulerProfile
from kscale.scheduling.status import ERROR, UNRESOLVABLE, UNSCHEDULABLE, Status
from kscale.snapshot.caches import TypedCache
from kscale.snapshot.classes.interner import Interner, PodClass
from kscale.snapshot.columns import FIXED_RESOURCES
from kscale.snapshot.snapshot import BeforeLosses, Snapshot

__all__ = [
    "CompiledPod",
    "CompiledPodCache",
    "NodeFilterKey",
    "NodeFilters",
    "PodClasses",
    "PodCompiler",
    "PreFilterOutcome",
    "PreFilterReport",
    "SharedPodClasses",
    "StaticRows",
    "prefilter_report",
    "run_prefilters",
]


class PreFilterOutcome(msgspec.Struct, frozen=True):
    """Combined result of the PreFilters. ``failure``: the pod fits no node; ``plugin`` may be empty then. ``nodes``:
    the only nodes to check, if not None, as selected by the plug-ins ``choosers``.
    """

    plugin: str = ""
    failure: Status | None = None
    nodes: frozenset[str] | None = None
    choosers: tuple[str, ...] = ()


PASSED = PreFilterOutcome()

_WITH_PREFILTER = implementing("prefilter")


class PreFilterReport(msgspec.Struct):
    """Results of all PreFilters, each run alone, even after one that fails: skipped (sorted), failures and node sets in
    order.
    """

    skipped: list[str] = msgspec.field(default_factory=list)
    failures: list[tuple[str, Status]] = msgspec.field(default_factory=list)
    node_sets: list[tuple[str, frozenset[str]]] = msgspec.field(default_factory=list)


def run_prefilters(pod: PodClass, ctx: Context, plugins: Iterable[Plugin] = _WITH_PREFILTER) -> PreFilterOutcome:
    """Run PreFilters in profile order, and return the combined outcome.

    The first failure that is not Unschedulable ends the phase, as does an intersection of node sets without nodes.
    Otherwise the last Unschedulable failure is reported.
    """
    pending: tuple[str, Status] | None = None
    nodes: frozenset[str] | None = None
    choosers: list[str] = []
    disabled = ctx.profile.disabled_prefilters
    for plugin in plugins:
        result = NOTHING if plugin.name in disabled else plugin.prefilter(pod, ctx)
        if result is NOTHING:
            continue
        status = result.failure
        if status is not None and status.code == UNSCHEDULABLE:
            pending = plugin.name, status
            continue
        if status is not None:
            if status.code == ERROR:
                status = Status(ERROR, (f'running PreFilter plugin "{plugin.name}": {status.reasons[0]}',))
            return PreFilterOutcome(plugin.name, status)
        if result.nodes is not None:
            choosers.append(plugin.name)
            nodes = result.nodes if nodes is None else nodes & result.nodes
            if not nodes:
                return PreFilterOutcome("", Status(UNRESOLVABLE, (_format_no_nodes_left(choosers),)))
    if pending is None and nodes is None:
        return PASSED
    plugin_name, failure = pending or ("", None)
    return PreFilterOutcome(plugin_name, failure, nodes, tuple(choosers))


def _format_no_nodes_left(choosers: list[str]) -> str:
    """Return upstream's reason if the node sets of these plug-ins have no node in common."""
    if len(choosers) == 1:
        return f"node(s) didn't satisfy plugin {choosers[0]}"
    return f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(choosers))}] simultaneously"


def prefilter_report(pod: PodClass, ctx: Context, plugins: Iterable[Plugin] = PROFILE) -> PreFilterReport:
    """Run all enabled PreFilters, also after one has failed, and return the result of each."""
    report = PreFilterReport()
    for plugin in plugins:
        if plugin.name in ctx.profile.disabled_prefilters:
            continue
        result = plugin.prefilter(pod, ctx)
        if result.failure is not None:
            report.failures.append((plugin.name, result.failure))
        elif plugin.skips(pod, ctx):
            report.skipped.append(plugin.name)
        elif result.nodes is not None:
            report.node_sets.append((plugin.name, result.nodes))
    report.skipped.sort()
    return report


NodeFilterKey = tuple[int, Hashable]
"""(ordinal of the plug-in, key of the node filter)."""

NodeFilters = tuple[tuple[NodeFilterKey, NodeFilter], ...]

_MAX_PROFILES: Final = 4
_FIXED: Final = frozenset(FIXED_RESOURCES)
_WITH_DEPENDENCIES: Final = implementing("get_dependencies")


class _Phases:
    """Plug-ins that take part in each phase of compiling a class."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        plugins = tuple(plugins)
        self.prefilters = implementing("prefilter", plugins)
        self.node_filters = implementing("get_node_filter", plugins)
        self.counters = implementing("get_counters", plugins)


_ALL: Final = _Phases(PROFILE)
_PLAIN: Final = _Phases(plugin for plugin in PROFILE if plugin.checks_plain_pods)


class CompiledPod(msgspec.Struct, eq=False):
    """Inputs of the verdicts on a class; classes may share one.

    ``counters``: (name of a plug-in, the counters that it reads); ``columns``: node columns that node filters and
    PreFilters read; ``dependencies``: the objects that all of this depends on; ``checked_for``: version of the
    plug-ins' shared dependencies for which these were last compared.
    """

    outcome: PreFilterOutcome
    node_filters: NodeFilters
    counters: tuple[tuple[str, Any], ...]
    columns: frozenset[str]
    dependencies: tuple[Any, ...]
    checked_for: int


class CompiledPodCache(msgspec.Struct, eq=False):
    """Compiled pods by class, for one profile and mode."""

    _class: dict[int, PodClass] = {}
    _compiled: dict[int, CompiledPod] = {}
    _shared_dependencies: tuple[Any, ...] = ()
    _version: int = 0
    insertions: int = 0
    """Counts the calls of :meth:`insert`."""

    def get(self, pod: PodClass) -> CompiledPod | None:
        """Return the cached compiled pod of a class; None if there is none."""
        index = pod.index
        return self._compiled[index] if self._class.get(index) is pod else None  # numbers of classes are reused

    def insert(self, pod: PodClass, compiled: CompiledPod) -> None:
        """Cache the compiled pod of a class."""
        self.insertions += 1
        self._compiled[pod.index] = compiled
        self._class[pod.index] = pod

    def version_of(self, shared_dependencies: tuple[Any, ...]) -> int:
        """Return the version of the plug-ins' shared dependencies; 1 higher than before if an object was replaced.

        Objects are compared by identity with those of the last call.
        """
        if not _is_identical(self._shared_dependencies, shared_dependencies):
            self._shared_dependencies = shared_dependencies
            self._version += 1
        return self._version


class _CompiledPodCaches(msgspec.Struct, eq=False):
    """Compiled pods for each profile and mode used recently; cached with an interner."""

    _entries: list[tuple[SchedulerProfile, bool, bool, CompiledPodCache]] = []

    def of(self, profile: SchedulerProfile, *, csi: bool, dra: bool) -> CompiledPodCache:
        """Return the compiled pods of a profile and a mode; create an empty cache if there is none.

        The mode: whether limits of CSI volumes (``csi``) and devices (``dra``) count.
        """
        for entry in self._entries:
            if entry[1:3] == (csi, dra) and entry[0] == profile:
                return entry[3]
        cache = CompiledPodCache()
        self._entries = [(profile, csi, dra, cache), *self._entries[: _MAX_PROFILES - 1]]
        return cache


class PodCompiler:
    """Compiles the classes of a context. ``cache``: those that were compiled before."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.cache = ctx.snapshot.interner.memo.get(_CompiledPodCaches, _CompiledPodCaches).of(
            ctx.profile, csi=ctx.csi, dra=ctx.dra
        )
        self._pairs: dict[NodeFilterKey, tuple[NodeFilterKey, NodeFilter]] = {}
        self._shared_filters: dict[NodeFilters, tuple[NodeFilters, frozenset[str]]] = {}
        self._plain: dict[tuple[int, int, str, frozenset[str]], CompiledPod] = {}
        self._may_be_plain = not ctx.profile.default_constraints
        self._devices = ctx.dra  # not whether a device class provides a resource, as one may be added later

    @property
    def state(self) -> tuple[object, int, int]:
        """Return (cache, number of insertions into it, version of the plug-ins' shared dependencies).

        These stay equal as long as no compiled pod changes.
        """
        return self.cache, self.cache.insertions, self._version

    @cached_property
    def _version(self) -> int:
        """Return the version of the plug-ins' shared dependencies."""
        return self.cache.version_of(
            tuple(each for plugin in _WITH_DEPENDENCIES for each in plugin.get_shared_dependencies(self._ctx))
        )

    def get(self, pod: PodClass) -> CompiledPod:
        """Compile a class, or return it from the cache if nothing changed."""
        cached = self.cache.get(pod)
        if cached is not None and (not cached.dependencies or cached.checked_for == self._version):
            return cached
        if self.is_plain(pod):
            key = pod.tolerations_id, pod.selection_id, pod.node_name, pod.features
            compiled = self._plain.get(key)
            if compiled is None:
                compiled = self._plain[key] = self._compile(pod, (), _PLAIN)
            self.cache.insert(pod, compiled)
            return compiled
        dependencies = self._get_dependencies(pod)
        if dependencies is None:
            return self._compile(pod, ())
        if cached is not None and _is_identical(cached.dependencies, dependencies):
            cached.checked_for = self._version
            return cached
        compiled = self._compile(pod, dependencies)
        self.cache.insert(pod, compiled)
        return compiled

    def is_plain(self, pod: PodClass) -> bool:
        """Check whether verdicts on the class depend only on its tolerations, selection, node name and features.

        False if the pod has anything else that a plug-in may read.
        """
        if pod.volumes or pod.ports or pod.claims or pod.spread or not self._may_be_plain:
            return False
        if pod.affinity or pod.anti_affinity or pod.preferred_affinity or pod.preferred_anti_affinity:
            return False
        return not self._devices or _FIXED.issuperset(pod.demand)

    def _get_dependencies(self, pod: PodClass) -> tuple[Any, ...] | None:
        """Return the objects that verdicts on a class depend on; None if the verdicts cannot be cached."""
        objects: list[Any] = []
        for plugin in _WITH_DEPENDENCIES:
            dependencies = plugin.get_dependencies(pod, self._ctx)
            if dependencies is None:
                return None
            objects += dependencies
        return tuple(objects)

    def _compile(self, pod: PodClass, dependencies: tuple[Any, ...], phases: _Phases = _ALL) -> CompiledPod:
        """Run the PreFilters, and collect counters and, unless a PreFilter fails, node filters.

        ``dependencies``: what the result depends on, stored in it; ``phases``: the plug-ins to ask in each phase.
        """
        ctx, disabled = self._ctx, self._ctx.profile.disabled_filters
        outcome = run_prefilters(pod, ctx, phases.prefilters)
        filter_pairs: list[tuple[NodeFilterKey, NodeFilter]] = []
        for plugin in phases.node_filters if outcome.failure is None else ():
            node_filter = plugin.get_node_filter(pod, ctx) if plugin.name not in disabled else None
            if node_filter is not None:
                key = plugin.ordinal, node_filter.key
                filter_pairs.append(self._pairs.setdefault(key, (key, node_filter)))
        counters = [(plugin.name, plugin.get_counters(pod, ctx)) for plugin in phases.counters]
        node_filters, columns = self._share_node_filters(tuple(filter_pairs))
        return CompiledPod(
            outcome=outcome,
            node_filters=node_filters,
            counters=tuple(each for each in counters if each[1] is not None),
            columns=columns if outcome.nodes is None else columns | {NAME},
            dependencies=dependencies,
            checked_for=self._version if dependencies else -1,
        )

    def _share_node_filters(self, node_filters: NodeFilters) -> tuple[NodeFilters, frozenset[str]]:
        """Return the node filters and the columns that they read, shared by all classes with the same filters.

        Sharing reduces the cost of garbage collection if there are many different pods.
        """
        shared = self._shared_filters.get(node_filters)
        if shared is None:
            columns = frozenset[str]().union(*(node_filter.columns for _, node_filter in node_filters))
            shared = self._shared_filters[node_filters] = node_filters, columns
        return shared


def _is_identical(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Check whether two sequences have the same objects (by identity) in the same order."""
    return len(one) == len(other) and all(map(is_, one, other))


def _list_csi_nodes(ctx: Context, templates: Iterable[NodeTemplate]) -> list[CSINode]:
    """List the CSINodes of the templates that have one; copies have none unless the simulation is CSI-node-aware."""
    return [template.csi_node for template in templates if ctx.csi and template.csi_node is not None]


_Row = tuple[frozenset[str] | None, tuple[NodeFilterKey, ...]]
"""(names of nodes that PreFilters allow, or None; keys of node filters)."""


class StaticRows:
    """Rows of static verdicts; classes with the same PreFilter node set and node filters share one."""

    def __init__(self) -> None:
        self._node_filters: dict[NodeFilterKey, NodeFilter] = {}
        self._rows: dict[_Row, int] = {}
        self.row(None, ())

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, nodes: frozenset[str] | None, node_filters: NodeFilters) -> int:
        """Return the index of the row for these node filters; a new row is added. Row 0 passes all nodes.

        ``nodes``: names of the nodes that a PreFilter leaves (None: all).
        """
        keys = tuple([key for key, _ in node_filters])
        number = self._rows.get((nodes, keys))
        if number is None:
            number = self._rows[nodes, keys] = len(self._rows)
            for key, node_filter in node_filters:
                self._node_filters.setdefault(key, node_filter)
        return number

    def table(self, classes: NodeClasses) -> NDArray[np.uint16]:
        """Return the rows' verdicts: uint16[rows, node classes].

        Bit i: plug-in i fails. Bit 0: a PreFilter excludes the node.
        """
        parts: dict[NodeFilterKey, NDArray[np.uint16]] = {}
        for key, node_filter in self._node_filters.items():
            fails = classes.evaluate(node_filter.columns, node_filter.check)
            parts[key] = fails.astype(np.uint16) << np.uint16(key[0])
        table = np.zeros((len(self._rows), len(classes)), dtype=np.uint16)
        for (nodes, keys), row in zip(self._rows, table, strict=True):
            if nodes is not None:
                row |= classes.evaluate(frozenset({NAME}), partial(_outside, nodes)).astype(np.uint16)
            for key in keys:
                row |= parts[key]
        return table


def _outside(names: frozenset[str], node: NodeFacts) -> bool:
    """Check whether the node's name is not among ``names``."""
    return node.name not in names


class NodeVerdictCache(msgspec.Struct, eq=False):
    """Verdicts of the classes on single nodes, by the objects that determine them."""

    _columns: dict[Hashable, tuple[object, NDArray[np.uint16], NDArray[np.uint8]]] = {}

    def get(self, nodes: Sequence[tuple[Hashable, object]], evaluate: Callable[[], _NodeVerdicts]) -> _NodeVerdicts:
        """Return the verdicts on nodes from the cache. If one is missing, call ``evaluate`` and cache its result.

        ``nodes``: (key, object) of each node; no two existing objects have the same key. ``evaluate`` computes the
        verdicts on all of these nodes.
        """
        cached = [self._columns.get(key) for key, _ in nodes]
        if not nodes or None in cached:
            if len(self._columns) + len(nodes) > _MAX_NODE_VERDICTS:
                self._columns.clear()
            verdicts, counts = evaluate()
            for i, (key, node) in enumerate(nodes):
                self._columns[key] = node, verdicts[:, i].copy(), counts[:, i].copy()
            return verdicts, counts
        columns = [each for each in cached if each is not None]
        verdicts, counts = (np.array([each[i] for each in columns]) for i in (1, 2))
        return np.ascontiguousarray(verdicts.T), np.ascontiguousarray(counts.T)


_NodeVerdicts = tuple[NDArray[np.uint16], NDArray[np.uint8]]
_MAX_NODE_VERDICTS: Final = 1 << 12

P = TypeVar("P", bound=Part)


class _CountedPods:
    """The result of :meth:`PodClasses.get_placed_pods` for the last classes; cached with the snapshot of the pods."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: tuple[PodClasses, tuple[NDArray[np.int32], NDArray[np.int32]]] | None = None

    def get_or_find(self, classes: PodClasses, snapshot: Snapshot) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the result of ``classes.get_placed_pods(snapshot)``, cached for the ``classes`` of the last call."""
        last = self._last
        if last is None or last[0] is not classes:
            last = self._last = classes, classes.get_placed_pods(snapshot)
        return last[1]


class PodClasses:
    """Pod classes of a session, compiled.

    ``pods``: classes by number: first the ``checked`` many that may be checked, then those that are only placed or
    removed, up to ``own_count``; then placed ones that count in some counter. ``number``: number by index.
    ``outcomes``: PreFilter outcomes of the classes that may be checked. ``devices``: whether any pod may request
    devices.

    ``placed``: the classes whose pods may be placed when a session begins.

    ``rows``, ``parts``, ``statics``: what the classes add to the engine. There are only parts of plug-ins whose
    counters some class reads. Nothing changes after :meth:`compile`; then the object is cached, and reused by any
    session with the same inputs.
    """

    def __init__(
        self,
        pods: Iterable[PodClass],
        compiled: Sequence[CompiledPod],
        others: Iterable[PodClass],
        placed: Sequence[PodClass],
    ) -> None:
        self.placed = placed
        self.pods = [*pods, *others]
        self.number = {pod.index: i for i, pod in enumerate(self.pods)}
        self.checked = len(compiled)
        self.own_count = len(self.pods)
        self.outcomes: list[PreFilterOutcome] = [each.outcome for each in compiled]
        self.rows = Rows()
        self.parts: list[Part] = []
        self.statics = StaticRows()
        self.devices = False
        self._compiled_pods = compiled
        self.memo = TypedCache()
        """Cached results that depend only on these classes and the profile."""
        self.node_verdicts = NodeVerdictCache()
        self._is_compiled = False
        self._add_to_cache: Callable[[], None] | None = None  # None: they depend on more than the signature

    @classmethod
    def of(
        cls,
        ctx: Context,
        pods: Iterable[PodClass],
        others: Iterable[PodClass],
        templates: Sequence[NodeTemplate],
        shared: SharedPodClasses | None = None,
    ) -> PodClasses:
        """Return the classes of a session. The caller must call :meth:`compile` before it uses them.

        ``pods`` are classes whose pods the session checks, ``others`` those that it only places. If a session with
        identical inputs is cached, its classes are returned. With ``shared``, the result may have further classes, and
        the class numbers do not follow the order of ``pods``.
        """
        checked_pods = {pod.index: pod for pod in pods}
        compiler = PodCompiler(ctx)
        more = {pod.index: pod for pod in others if pod.index not in checked_pods}
        if shared is not None:
            covering = shared.find(ctx, compiler, checked_pods.values(), more.values(), templates)
            if covering is not None:
                return covering
        placed: Sequence[PodClass] = ctx.snapshot.placed_classes
        if shared is not None:
            checked_pods, more, placed = shared.extend(ctx, checked_pods, more)
        compiled = [compiler.get(pod) for pod in checked_pods.values()]
        classes = cls(checked_pods.values(), compiled, more.values(), placed)
        carriers = [pod for pod in (*placed, *classes.pods) if pod.anti_affinity]
        names = {name for each in compiled for name, _ in each.counters}
        if carriers:  # even a pod that reads no counters may be kept out by their anti-affinity
            names.add(InterPodAffinity.name)
        plugins = [plugin for plugin in PROFILE if plugin.name in names]
        classes.devices = ctx.dra and Claims.of(ctx).any_request_devices(classes.pods)
        if classes.devices:  # devices are counted together with those of other classes, so nothing can be cached
            classes._register_classes(plugins, carriers)
            return classes
        storage = [pod for pod in (*classes.pods[classes.checked :], *placed) if pod.volumes] if plugins else []
        around = [each for plugin in plugins for each in plugin.get_part_dependencies(storage, ctx)]
        copies = _list_csi_nodes(ctx, templates)
        signature: _Signature = [compiler.cache], compiled, [*classes.pods], placed, around, copies
        cache = ctx.snapshot.interner.memo.get(_CachedPodClasses, _CachedPodClasses)
        cached = cache.find(signature) if shared is None else None
        if cached is not None:
            return cached
        classes._register_classes(plugins, carriers)
        if shared is not None:
            are_cached = all(compiler.cache.get(pod) is each for pod, each in zip(classes.pods, compiled, strict=False))
            state = compiler.state if are_cached else ()
            classes._add_to_cache = lambda: shared.set(classes, signature, plugins, storage, state)
        else:
            classes._add_to_cache = lambda: cache.add(signature, classes)
        return classes

    def _register_classes(self, plugins: Iterable[Plugin], carriers: Sequence[PodClass]) -> None:
        """Create the :class:`Part` of each plug-in that counts pods, and enter the classes that it has to count.

        ``carriers``: classes with anti-affinity terms, of placed pods too; they may keep pods of other classes out.
        """
        part_of = {plugin.name: part for plugin in plugins if (part := plugin.part(self.rows)) is not None}
        self.parts = list(part_of.values())
        if carriers:
            self.part(TermNumbers).add_carriers(carriers)
        for pod, compiled in zip(self.pods, self._compiled_pods, strict=False):  # the first of them may be checked
            for name, counters in compiled.counters:
                part_of[name].add_class(pod, counters)

    def columns(self) -> frozenset[str]:
        """Return the node columns that verdicts and counters depend on."""
        return self.rows.columns().union(*{compiled.columns for compiled in self._compiled_pods})

    def compile(self, ctx: Context, copies: list[NodeFacts], elsewhere: Callable[[int], bool] | None) -> None:
        """Compile the classes once all inputs are known; does nothing if they are compiled.

        ``copies``: new nodes that may be added. ``elsewhere`` is called with a class number and returns whether the
        ledger, not a node filter, decides on the class's devices; None without a ledger.
        """
        if self._is_compiled:
            return
        for part in self.parts:
            part.finish_classes(self.pods[: self.checked], ctx, copies)
        entries = [self._entry(pod, ctx, checked=i < self.checked) for i, pod in enumerate(self.pods)]
        in_ledger = {i for i in range(len(self.pods)) if elsewhere(i)} if elsewhere is not None else set()
        for i in in_ledger:
            entries[i] = {**(entries[i] or {}), "devices": True}
        static_rows = []
        for i, compiled in enumerate(self._compiled_pods):
            chosen = compiled.node_filters
            if i in in_ledger:
                chosen = tuple(each for each in chosen if each[0][0] != DynamicResources.ordinal)
            static_rows.append(self.statics.row(compiled.outcome.nodes, chosen))
        counting_parts = [part for part in self.parts if part.is_used()]
        for pod in self.placed if counting_parts or self.rows.rows else ():
            if pod.index in self.number:
                continue
            if any(part.may_count(pod) for part in counting_parts) or any(self.rows.get_counting_rows(pod)):
                entry = self._entry(pod, ctx, checked=False)
                if entry is not None:
                    self.number[pod.index] = len(self.pods)
                    self.pods.append(pod)
                    entries.append(entry)
        self._set_arrays(static_rows)
        self.extras = _engine.Extras(entries)
        self._counting = [i for i, entry in enumerate(entries) if entry is not None]
        self._is_compiled = True
        add_to_cache, self._add_to_cache = self._add_to_cache, None  # it refers to this object: avoid a cycle
        if add_to_cache is not None:
            add_to_cache()

    def _entry(self, pod: PodClass, ctx: Context, *, checked: bool) -> dict[str, Any] | None:
        """Return the fields that describe a class to the engine; None if pods of the class count nowhere.

        ``checked``: verdicts on the class may be requested (see :meth:`Plugin.entry`).
        """
        spread, rows = self.rows.get_counting_rows(pod) if self.rows.rows else ([], [])
        entry: dict[str, Any] = {"spread_touch": spread} if spread else {}
        if rows:
            entry["touch"] = rows
        for part in self.parts:
            if part.may_count(pod):
                for name, value in part.entry(pod, ctx, checked=checked).items():
                    entry[name] = entry[name] + value if name in entry else value
        return entry or None

    def _set_arrays(self, static_rows: list[int]) -> None:
        """Set the arrays by class number.

        ``static_row`` int32: row of static verdicts; ``failed`` uint8: whether the PreFilter fails; ``hosts`` uint8:
        whether the class spreads over hosts.
        """
        self.static_row = np.zeros(len(self.pods), dtype=np.int32)
        self.static_row[: self.checked] = static_rows
        self.failed, self.hosts = np.zeros((2, len(self.pods)), dtype=np.uint8)
        self.failed[: self.checked] = [outcome.failure is not None for outcome in self.outcomes]
        self.hosts[:] = [pod.spread is not None and spreads_over_hosts(pod) for pod in self.pods]

    def get_placed_pods(self, snapshot: Snapshot) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return class number and node of each placed pod that counts in some counter: int32[n] each."""
        if not self._counting:  # avoids a useless scan of all placed pods
            return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        losses = BeforeLosses.find(snapshot)
        if losses is not None:
            cached = losses.snapshot.memo.get(_CountedPods, _CountedPods).get_or_find(self, losses.snapshot)
            number = np.full(len(losses.snapshot.nodes), -1, dtype=np.int32)
            number[losses.nodes] = np.arange(len(losses.nodes), dtype=np.int32)
            node = number.take(cached[1])
            stays = (node >= 0).nonzero()[0]
            return cached[0].take(stays), node.take(stays)
        numbers = np.full(len(snapshot.interner.classes), -1, dtype=np.int32)
        for i in self._counting:
            numbers[self.pods[i].index] = i
        pods = numbers.take(snapshot.placed_class)
        counted = (pods >= 0).nonzero()[0]
        return pods.take(counted), snapshot.placed_node.take(counted)

    def get_requested_drivers(self, pods: Iterable[PodClass]) -> tuple[str, ...]:
        """Return the CSI drivers of the volumes that these classes attach, each once. All must be checkable."""
        counters = (
            counter
            for pod in pods
            for name, counter in self._compiled_pods[self.number[pod.index]].counters
            if name == NodeVolumeLimits.name
        )
        return tuple(dict.fromkeys(driver for attached in counters for driver, _, _ in attached))

    def get_part(self, kind: type[P]) -> P | None:
        """Return the part of a plug-in by its type; None if no class reads its counters."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def part(self, kind: type[P]) -> P:
        """Return the part of a plug-in by its type. Some class must read its counters; see :meth:`get_part`."""
        return next(part for part in self.parts if isinstance(part, kind))


_MAX_SHARED: Final = 1 << 11


class SharedPodClasses:
    """Compiled classes of sessions whose pods and nodes differ little, such as those of what-if scenarios.

    They have the classes of all these sessions: those of pods that are not there count nowhere, so that no verdict
    depends on them. Templates, and pods that come with them, must not change. Not safe for concurrent use.
    """

    def __init__(self) -> None:
        self._classes: PodClasses | None = None
        self._signature: _Signature = ()
        self._plugins: Sequence[Plugin] = ()
        self._storage: Sequence[PodClass] = ()
        self._compiled: dict[PodClass, CompiledPod] = {}
        self._compiler_state: tuple[object, ...] = ()
        self._others: frozenset[PodClass] = frozenset()
        self._placed: frozenset[PodClass] = frozenset()
        self._covered: Callable[[], Snapshot | None] = lambda: None  # returns one that has no placed classes but these
        self._expected: tuple[dict[int, PodClass], dict[PodClass, None]] = {}, {}
        self._of_templates: dict[int, tuple[NodeTemplate, list[PodClass]]] = {}
        self._facts: dict[tuple[int, str, bool, bool], tuple[NodeTemplate, NodeFacts]] = {}

    def expect(self, pods: Iterable[PodClass], placed: Iterable[PodClass]) -> None:
        """Announce classes of later sessions, to be compiled together with the next session that needs further classes.

        ``pods``: classes that later sessions will check; ``placed``: classes whose pods will be placed.
        """
        self._expected[0].update((pod.index, pod) for pod in pods)
        self._expected[1].update(dict.fromkeys(placed))

    def classify(self, template: NodeTemplate, interner: Interner) -> list[PodClass]:
        """Return the classes of the pods that come with a template; cached by template."""
        cached = self._of_templates.get(id(template))
        if cached is None or not all(interner.classes[pod.index] is pod for pod in cached[1]):
            if len(self._of_templates) >= _MAX_SHARED:
                self._of_templates.clear()
            classes = [interner.classify(pod, placed=True) for pod in template.pods]
            cached = self._of_templates[id(template)] = template, classes
        return cached[1]

    def get_facts(self, template: NodeTemplate, name: str, ctx: Context) -> NodeFacts:
        """Return the facts of a copy of a template with a name (:meth:`Context.copy_facts`); cached by template."""
        key = id(template), name, ctx.csi, ctx.dra
        cached = self._facts.get(key)
        if cached is None:
            if len(self._facts) >= _MAX_SHARED:
                self._facts.clear()
            cached = self._facts[key] = template, ctx.copy_facts(template, name)  # keeps the template: its id stays
        return cached[1]

    def find(
        self,
        ctx: Context,
        compiler: PodCompiler,
        pods: Collection[PodClass],
        others: Iterable[PodClass],
        templates: Sequence[NodeTemplate],
    ) -> PodClasses | None:
        """Return the shared classes if they have all classes of a session, compiled from identical inputs; else None.

        ``pods``: the classes to check, which ``compiler`` compiles; ``others`` are only placed.
        """
        if self._classes is None:
            return None
        cache, _, _, _, around, csi_nodes = self._signature
        if cache[0] is not compiler.cache or not _is_identical(csi_nodes, _list_csi_nodes(ctx, templates)):
            return None
        has_all = (
            self._compiled.keys() >= {*pods}
            and self._others.issuperset(others)
            and self._has_placed_classes(ctx.snapshot)
        )
        if not has_all:
            return None
        is_unchanged = compiler.state == self._compiler_state
        if not is_unchanged and any(self._compiled[pod] is not compiler.get(pod) for pod in pods):
            return None
        now = [each for plugin in self._plugins for each in plugin.get_part_dependencies(self._storage, ctx)]
        return self._classes if _is_identical(around, now) else None

    def _has_placed_classes(self, snapshot: Snapshot) -> bool:
        """Check whether the shared classes have the classes of all placed pods of a snapshot."""
        losses = BeforeLosses.find(snapshot)
        if losses is None:
            return self._placed.issuperset(snapshot.placed_classes)
        before = losses.snapshot
        if self._covered() is not before and self._placed.issuperset(before.placed_classes):
            self._covered = ref(before)
        return self._covered() is before or self._placed.issuperset(snapshot.placed_classes)

    def extend(
        self, ctx: Context, pods: dict[int, PodClass], others: dict[int, PodClass]
    ) -> tuple[dict[int, PodClass], dict[int, PodClass], Sequence[PodClass]]:
        """Return (classes to check, classes to place, placed classes): the session's, the shared and the expected ones.

        ``pods``, ``others``: classes that the session checks, and that it only places, by index. If all of them would
        be too many to share, only the session's classes are returned. Clears the classes passed to :meth:`expect`.
        """
        placed, before, current = ctx.snapshot.placed_classes, self._classes, ctx.snapshot.interner.classes
        expected, self._expected = self._expected, ({}, {})

        def exists(pod: PodClass) -> bool:
            """Check whether the snapshot still has the class."""
            return pod.index < len(current) and current[pod.index] is pod

        known = [*expected[0].values()]
        rest, all_placed = {}, [*expected[1]]
        if before is not None:
            known += before.pods[: before.checked]
            rest = {pod.index: pod for pod in filter(exists, before.pods[before.checked : before.own_count])}
            all_placed += before.placed
        if len(known) + len(rest) + len(pods) > _MAX_SHARED:
            return pods, others, placed
        checked = {pod.index: pod for pod in filter(exists, known)} | pods
        rest = {index: pod for index, pod in (rest | others).items() if index not in checked}
        return checked, rest, [*dict.fromkeys((*filter(exists, all_placed), *placed))]

    def set(
        self,
        classes: PodClasses,
        signature: _Signature,
        plugins: Sequence[Plugin],
        storage: Sequence[PodClass],
        state: tuple[object, ...],
    ) -> None:
        """Store compiled classes in place of those before.

        ``signature``, ``plugins``, ``storage``: the inputs that they were compiled from. ``state``: that of the
        compiler (:attr:`PodCompiler.state`); empty if it does not cache them all.
        """
        self._compiler_state = state
        self._classes, self._signature, self._plugins, self._storage = classes, signature, plugins, storage
        self._compiled = dict(zip(classes.pods, signature[1], strict=False))
        self._others = frozenset(classes.pods[: classes.own_count])
        self._placed, self._covered = frozenset(classes.placed), lambda: None


_Signature = tuple[Sequence[Any], ...]
"""Lists of objects. Two signatures are equal if their objects are identical."""

_MAX_CACHED: Final = 8


class _CachedPodClasses(msgspec.Struct, eq=False):
    """The most recently compiled classes by their inputs; cached with an interner."""

    _entries: list[tuple[_Signature, PodClasses]] = []

    def find(self, signature: _Signature) -> PodClasses | None:
        """Return the classes compiled from identical inputs; None if there are none."""
        for compiled_from, classes in self._entries:
            if all(len(a) == len(b) and all(map(is_, a, b)) for a, b in zip(compiled_from, signature, strict=True)):
                return classes
        return None

    def add(self, signature: _Signature, classes: PodClasses) -> None:
        """Cache compiled classes under their signature; the oldest entry is dropped."""
        self._entries = [(signature, classes), *self._entries[: _MAX_CACHED - 1]]
