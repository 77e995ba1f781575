"""One use of the packing engine: a snapshot, a profile, the pod classes in play and the templates to copy, compiled.

Everything a predicate can say in advance becomes a bit per (pod row, node class); everything that depends on where pods
are becomes a counter. Numbers inside a session: ``pod`` = position in ``pods``; ``node`` = position in the snapshot's
node list, nodes that are added later behind it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kscale._native import _engine
from kscale.objects.nodegroup import NodeTemplate
from kscale.objects.requests import PODS, is_scalar, to_integers
from kscale.scheduling.context import HOSTNAME, Context, NodeFacts
from kscale.scheduling.counters import Counters, hostname_spread
from kscale.scheduling.devices.counting import PLENTY, DeviceCounting
from kscale.scheduling.devices.inventory import for_node
from kscale.scheduling.devices.ledger import DeviceLedger
from kscale.scheduling.node_classes import NodeClasses
from kscale.scheduling.plugins import PROFILE
from kscale.scheduling.plugins.base import NAME, Plugin
from kscale.scheduling.plugins.dynamic_resources import DynamicResources
from kscale.scheduling.plugins.node_resources_fit import NodeResourcesFit
from kscale.scheduling.plugins.node_volume_limits import attachments, limits, migrated, resolve
from kscale.scheduling.plugins.volume_restrictions import disks, exclusive_claims
from kscale.scheduling.prefilter import PreFilterOutcome, run_prefilters
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.volumes import claim_names
from kscale.snapshot.columns import FIXED_RESOURCES
from kscale.snapshot.interner import PodClass
from kscale.snapshot.snapshot import Snapshot

__all__ = ["Session"]

_FIT = NodeResourcesFit()
_STATIC: tuple[Plugin, ...] = tuple(plugin for plugin in PROFILE if type(plugin).check is not Plugin.check)
_COPY = re.compile(r"(.*)-e-(0|[1-9][0-9]{0,8})", re.DOTALL)
DYNAMIC_RESOURCES = DynamicResources.ordinal
_FRESH = "\0"  # no selector can spell out the name of a fresh copy


class _PreFilters(dict[int, PreFilterOutcome]):
    """By class, with the usual arguments of all plug-ins; kept with a snapshot."""


class _HostNamesOfCopies(dict[str, dict[int, int]]):
    """Template name -> {copy number: domain}, of host names that look like that of a copy; kept with a snapshot."""

    @classmethod
    def of(cls, index: Mapping[str, int]) -> _HostNamesOfCopies:
        found = cls()
        for value, domain in index.items():
            match = _COPY.fullmatch(value)
            if match:
                found.setdefault(match[1], {})[int(match[2])] = domain
        return found


class Session:
    """``pods``: classes whose verdicts are asked for, by session number; ``templates``: prepared nodes to copy;
    ``present``: further classes that are only placed or taken off; ``one_by_one``: nothing is going to be placed;
    ``moving``: the pods run, and leave their nodes before they are placed again; ``alike``: every placing of a pod
    stands for another pod like it.

    ``engine``: the packing engine, holding every existing node with the pods placed there. Devices that pods compete
    for are counted (``devices``) or, where that would not be exact, kept in a ledger (``ledger``).
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
        self.ctx = Context(snapshot, self.profile)
        self.number: dict[int, int] = {}
        checked = [pod for pod in pods if self._fresh(pod)]
        self._template_pods = [
            [snapshot.interner.classify(pod, placed=True) for pod in template.pods] for template in templates
        ]
        self.template_claims = any(pod.claims for found in self._template_pods for pod in found)
        others = [pod for found in (*self._template_pods, present) for pod in found if self._fresh(pod)]
        self.pods = [*checked, *others]
        self.outcomes: list[PreFilterOutcome] = self._prefilter(checked)
        self.outcomes += [PreFilterOutcome()] * len(others)
        self._checked = len(checked)
        self.counters = Counters(self.ctx, checked, self.pods)
        self._compile_nodes(templates)
        self._compile_devices(templates, one_by_one=one_by_one, moving=moving, alike=alike)
        self._compile_resources()
        self._build_engine()
        self._template_room: list[tuple[int, list[int]]] = []
        self._identities: list[str | None] = []
        for predicate in self.profile.predicates:
            wanted = (*FIXED_RESOURCES, *predicate.resources)
            self.engine.add_user(predicate, [self.resources.index(name) for name in wanted])
        self.templates = [self._template(i, template) for i, template in enumerate(templates)]

    @property
    def checked(self) -> int:
        """How many classes, the first ones, have verdicts; the others are only placed or taken off."""
        return self._checked

    def _prefilter(self, pods: Sequence[PodClass]) -> list[PreFilterOutcome]:
        """Of a snapshot that stays as it is every session finds the same: kept for those with the usual arguments."""
        profile = self.profile
        if profile.added_affinity is not None or profile.default_constraints is not None:
            return [run_prefilters(pod, self.ctx) for pod in pods]
        known = self.snapshot.memo.of(_PreFilters, _PreFilters)
        found = []
        for pod in pods:
            outcome = known.get(pod.index)
            if outcome is None:
                outcome = known[pod.index] = run_prefilters(pod, self.ctx)
            found.append(outcome)
        return found

    def _fresh(self, pod: PodClass) -> bool:
        if pod.index in self.number:
            return False
        self.number[pod.index] = len(self.number)
        return True

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _compile_nodes(self, templates: Sequence[NodeTemplate]) -> None:
        columns: set[str] = set(self.counters.columns())
        for i, pod in enumerate(self.pods[: self._checked]):
            outcome = self.outcomes[i]
            if outcome.nodes is not None:
                columns.add(NAME)
            for plugin in _STATIC:
                if plugin.name not in outcome.skipped and plugin.pod_key(pod, self.ctx) is not None:
                    columns |= plugin.columns(pod, self.ctx)
        extra: list[NodeFacts] = []
        self._extra_of: list[tuple[int, dict[int, int]]] = []
        named = columns & {NAME, HOSTNAME}
        spelled = sorted(self._spelled_names()) if named else []
        for template in templates:
            first = len(extra)
            base = template.node.metadata.name
            extra.append(self._copy_facts(template, f"{base}-e-{_FRESH}"))
            exceptions: dict[int, int] = {}
            for name in spelled:
                match = _COPY.fullmatch(name)
                if match and match[1] == base:
                    exceptions[int(match[2])] = len(extra)
                    extra.append(self._copy_facts(template, name))
            self._extra_of.append((first, exceptions))
        self.classes = NodeClasses(self.ctx, extra, frozenset(columns))

    def _spelled_names(self) -> frozenset[str]:
        """Node names and host names that some selector in play spells out."""
        found: set[str] = set()
        selectors = [pod.node_affinity for pod in self.pods] + [self.profile.added_affinity]
        for selector in selectors:
            for term in selector.node_selector_terms if selector else ():
                for requirement in (*term.match_expressions, *term.match_fields):
                    found.update(requirement.values)
        for pod in self.pods:
            found.add(pod.node_name)
            found.update((pod.node_selector or {}).values())
        if any(pod.volumes for pod in self.pods):
            found |= self.ctx.spelled_by_volumes
        return frozenset(found)

    def _copy_facts(self, template: NodeTemplate, name: str) -> NodeFacts:
        facts = self.ctx.copy_facts(template, name)
        if self.snapshot.dra and template.resource_slices:
            suffix = name.removeprefix(f"{template.node.metadata.name}-")
            self.ctx.local_slices += for_node(template.resource_slices, name, suffix)
        return facts

    # -- devices -----------------------------------------------------------------------------------------------------

    def _compile_devices(
        self, templates: Sequence[NodeTemplate], *, one_by_one: bool, moving: bool, alike: bool
    ) -> None:
        self.devices: DeviceCounting | None = None
        self.ledger: DeviceLedger | None = None
        if one_by_one or not self.ctx.dra or "DynamicResources" in self.profile.disabled_filters:
            return
        checked, others = self.pods[: self._checked], self.pods[self._checked :]
        if not any(pod.claims for pod in others) and not ((moving or alike) and any(pod.claims for pod in checked)):
            self.devices = DeviceCounting(self.ctx, checked, self.classes)
            if self.devices.exact:
                return
        self.devices = None
        self.ledger = DeviceLedger(self.ctx, self.pods, templates, alike=alike)

    def _judged(self, plugin: Plugin, pod: int) -> bool:
        """Whether a verdict of the plug-in on a pod is static."""
        return self.ledger is None or plugin.ordinal != DYNAMIC_RESOURCES or not self.ledger.concerns(pod)

    # -- resources ---------------------------------------------------------------------------------------------------

    def _compile_resources(self) -> None:
        self._demands = [_FIT.counted(pod, self.ctx) for pod in self.pods]
        scalars = {name for demand in self._demands[: self._checked] for name, amount in demand.items() if amount > 0}
        scalars |= {name for predicate in self.profile.predicates for name in predicate.resources}
        self.resources: tuple[str, ...] = (*FIXED_RESOURCES, *sorted(scalars - set(FIXED_RESOURCES)))
        self._taken = [pod.occupancy for pod in self.pods]
        if self.devices is None:
            return
        self.resources += self.devices.columns
        for i, pod in enumerate(self.pods[: self._checked] if self.devices.columns else ()):
            self._demands[i] = {**self._demands[i], **self.devices.demand(pod)}
            self._taken[i] = {**self._taken[i], **self.devices.taken(pod)}

    def _left_to_devices(self, name: str, allocatable: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Nodes on which DynamicResources sees to a resource: they have none, and a device class stands for it."""
        if not self.ctx.dra or not is_scalar(name) or not self.ctx.delegable(name):
            return None
        return allocatable <= 0

    def _free(self, name: str) -> NDArray[np.int64]:
        if self.devices is not None and name in self.devices.columns:
            return self.devices.free(name)[: self.classes.existing]
        free = self.snapshot.free(name)
        column = self.snapshot.columns.allocatable.get(name)
        delegated = self._left_to_devices(name, np.zeros_like(free) if column is None else column)
        if delegated is not None:
            free[delegated] += PLENTY
        return free

    def _vector(self, amounts: dict[str, int]) -> list[int]:
        return [amounts.get(name, 0) for name in self.resources]

    # -- engine ------------------------------------------------------------------------------------------------------

    def _build_engine(self) -> None:
        snapshot, classes = self.snapshot, self.classes
        disabled = sum(1 << plugin.ordinal for plugin in PROFILE if plugin.name in self.profile.disabled_filters)
        ports = {port for pod in self.pods for port in pod.ports}
        self._port_keys = {key: i for i, key in enumerate(dict.fromkeys((proto, n) for _, proto, n in sorted(ports)))}
        self._ports = {port: i for i, port in enumerate(p for p in sorted(ports) if p[0] != "0.0.0.0")}
        placed_ports = [(which, pod) for which, pod in enumerate(snapshot.placed_classes) if pod.ports]
        for _, pod in placed_ports:
            for ip, proto, number in pod.ports:
                if (proto, number) in self._port_keys and ip != "0.0.0.0":
                    self._ports.setdefault((ip, proto, number), len(self._ports))
        engine = _engine.Engine(len(self.resources), len(self._port_keys), len(self._ports), disabled)
        self.engine = engine
        if self.ledger is not None:
            engine.set_devices(self.ledger)
        rows, row_of = self._static_rows(disabled)
        engine.set_statics(rows)
        free = np.stack([self._free(name) for name in self.resources])
        slots = snapshot.columns.slots - snapshot.pod_count
        engine.append_nodes(
            np.ascontiguousarray(free), slots, classes.of[: classes.existing].copy(), snapshot.columns.unschedulable
        )
        self._keys: dict[str, tuple[int, NDArray[np.int32], int]] = {}
        self._new_domains: dict[tuple[str, str], int] = {}
        for key in self.counters.keys:
            self._add_key(key)
        self.counters.register(engine, classes, self._keys)
        self._compile_volumes()
        for which, pod in placed_ports:
            taken = [self._port(port) for port in pod.ports if port[1:] in self._port_keys]
            for node in snapshot.nodes_of_class(which) if taken else ():
                for pair in taken:
                    engine.use_port(int(node), pair)
        count = len(self.pods)
        engine.add_classes(
            np.array([self._vector(demand) for demand in self._demands], dtype=np.int64).reshape(
                count, len(self.resources)
            ),
            np.array([self._vector(taken) for taken in self._taken], dtype=np.int64).reshape(
                count, len(self.resources)
            ),
            row_of,
            np.array([outcome.failure is not None for outcome in self.outcomes], dtype=np.uint8),
            np.array([hostname_spread(pod) for pod in self.pods], dtype=np.uint8),
            [self._extra(i, pod) or None for i, pod in enumerate(self.pods)],
        )

    def _add_key(self, key: str) -> None:
        label = self.snapshot.columns.label(key)
        domains = len(label.values)
        if key != HOSTNAME:
            values = {facts.labels[key] for facts in self.classes.extra if key in facts.labels}
            for value in sorted(values - label.index.keys()):
                self._new_domains[key, value] = domains
                domains += 1
        self._keys[key] = self.engine.add_key(label.ids, domains), label.ids, domains

    def _domain_of(self, key: str, facts: NodeFacts) -> int:
        """Domain of a copy: -1 = no label, -2 = its own."""
        if key == HOSTNAME:
            return -2
        value = facts.labels.get(key)
        if value is None:
            return -1
        known = self.snapshot.columns.label(key).index.get(value)
        return self._new_domains[key, value] if known is None else known

    def _taken_names(self) -> dict[str, dict[int, int]]:
        """Template name -> {copy number: domain}, of the copies whose name some node has as its host name already."""
        if HOSTNAME not in self._keys:
            return {}
        index = self.snapshot.columns.label(HOSTNAME).index
        return self.snapshot.memo.of(_HostNamesOfCopies, lambda: _HostNamesOfCopies.of(index))

    def _static_rows(self, disabled: int) -> tuple[NDArray[np.uint16], NDArray[np.int32]]:
        """(uint16[rows, node classes], row of each pod): pods that agree in every static facet share a row."""
        cache: dict[tuple[int, Hashable], NDArray[np.uint16]] = {}
        rows: dict[tuple[Any, ...], int] = {}
        tables: list[NDArray[np.uint16]] = []
        row_of = np.zeros(len(self.pods), dtype=np.int32)
        for i, pod in enumerate(self.pods):
            outcome = self.outcomes[i]
            uses: list[tuple[Plugin, Hashable]] = []
            if i < self._checked:
                for plugin in _STATIC:
                    if disabled >> plugin.ordinal & 1 or plugin.name in outcome.skipped or not self._judged(plugin, i):
                        continue
                    key = plugin.pod_key(pod, self.ctx)
                    if key is not None:
                        uses.append((plugin, key))
            identity = (outcome.nodes, tuple((plugin.ordinal, key) for plugin, key in uses))
            row = rows.get(identity)
            if row is None:
                row = rows[identity] = len(tables)
                table = np.zeros(len(self.classes), dtype=np.uint16)
                if outcome.nodes is not None:
                    names = outcome.nodes
                    outside = self.classes.evaluate(frozenset({NAME}), partial(_outside, names))
                    table |= outside.astype(np.uint16)
                for plugin, key in uses:
                    part = cache.get((plugin.ordinal, key))
                    if part is None:
                        failing = self.classes.evaluate(
                            plugin.columns(pod, self.ctx), partial(_fails, plugin, pod, self.ctx)
                        )
                        part = cache[plugin.ordinal, key] = failing.astype(np.uint16) << np.uint16(plugin.ordinal)
                    table |= part
                tables.append(table)
            row_of[i] = row
        return np.stack(tables) if tables else np.zeros((1, len(self.classes)), np.uint16), row_of

    def _port(self, port: tuple[str, str, int]) -> tuple[int, int]:
        ip, proto, number = port
        return self._port_keys[proto, number], -1 if ip == "0.0.0.0" else self._ports[port]

    # -- volumes -----------------------------------------------------------------------------------------------------

    def _compile_volumes(self) -> None:
        ctx, snapshot, engine = self.ctx, self.snapshot, self.engine
        self._disk_ids: dict[tuple[str, ...], int] = {}
        self._exclusive: dict[tuple[str, str], int] = {}
        self._drivers: dict[str, int] = {}
        self._handles: dict[tuple[str, str], int] = {}
        with_volumes = [pod for pod in self.pods if pod.volumes]
        if not with_volumes:
            return
        for pod in with_volumes:
            for identity, _ in disks(pod):
                self._disk_ids.setdefault(identity, len(self._disk_ids))
            for name in exclusive_claims(pod, ctx):
                if (pod.namespace, name) not in self._exclusive:
                    users = ctx.claim_users.get((pod.namespace, name), 0)
                    self._exclusive[pod.namespace, name] = engine.add_claim(users)
        placed = [(which, pod) for which, pod in enumerate(snapshot.placed_classes) if pod.volumes]
        if self._disk_ids:
            for which, pod in placed:
                for identity, read_only in disks(pod):
                    if identity in self._disk_ids:
                        for node in snapshot.nodes_of_class(which):
                            engine.use_disk(int(node), self._disk_ids[identity], read_only)
        self._compile_limits(with_volumes, placed)

    def _compile_limits(self, wanted: list[PodClass], placed: list[tuple[int, PodClass]]) -> None:
        ctx, snapshot, engine = self.ctx, self.snapshot, self.engine
        csi_nodes = [ctx.csi_node(name) for name in snapshot.nodes]
        limit_of = [limits(csi) for csi in csi_nodes]
        copies = [limits(facts.csi_node) for facts in self.classes.extra]
        drivers = {driver for found in (*limit_of, *copies) for driver in found}
        asked: dict[str, None] = {}
        for pod in wanted:
            attached = resolve(pod, ctx, incoming=True)
            if isinstance(attached, tuple):
                asked.update(dict.fromkeys(driver for driver, _, _ in attached if driver in drivers))
        for driver in asked:
            column = np.array([found.get(driver, -1) for found in limit_of], dtype=np.int32)
            self._drivers[driver] = engine.add_driver(column)
        if not self._drivers:
            return
        engine.set_migrated(np.array([migrated(csi) for csi in csi_nodes], dtype=np.uint32))
        for which, pod in placed:
            attached = resolve(pod, ctx, incoming=False)
            for driver, handle, plugin in attached if isinstance(attached, tuple) else ():
                if driver not in self._drivers:
                    continue
                for node in snapshot.nodes_of_class(which):
                    if plugin < 0 or migrated(csi_nodes[node]) >> plugin & 1:
                        engine.use_volume(int(node), self._handle(driver, handle), self._drivers[driver])
        for name, attached_there in attachments(ctx).items():
            node_number = snapshot.columns.index.get(name)
            for driver, handle in attached_there:
                if node_number is not None and driver in self._drivers:
                    engine.use_volume(node_number, self._handle(driver, handle), self._drivers[driver], attachment=True)

    def _handle(self, driver: str, handle: str) -> int:
        return self._handles.setdefault((driver, handle), len(self._handles))

    def _extra(self, number: int, pod: PodClass) -> dict[str, Any]:
        extra = self.counters.extra(pod)
        if self.ledger is not None and self.ledger.concerns(number):
            extra["devices"] = True
        if pod.ports:
            extra["ports"] = [self._port(port) for port in pod.ports]
        if pod.volumes:
            extra["disks"] = [(self._disk_ids[identity], read_only) for identity, read_only in disks(pod)]
            extra["rwop"] = [self._exclusive[pod.namespace, name] for name in exclusive_claims(pod, self.ctx)]
            used = dict.fromkeys(name for name, ephemeral in claim_names(pod) if not ephemeral)
            extra["claims"] = [
                self._exclusive[pod.namespace, name] for name in used if (pod.namespace, name) in self._exclusive
            ]
            attached = resolve(pod, self.ctx, incoming=False)
            if isinstance(attached, tuple):
                extra["volumes"] = [
                    (self._handle(driver, handle), self._drivers[driver], plugin)
                    for driver, handle, plugin in attached
                    if driver in self._drivers
                ]
        return extra

    # -- templates ---------------------------------------------------------------------------------------------------

    def _template(self, i: int, template: NodeTemplate) -> _engine.Template:
        node, pods = template.node, self._template_pods[i]
        first, exceptions = self._extra_of[i]
        facts = self.classes.extra[first]
        of_node = self.classes.of[self.classes.existing :]
        amounts = node.status.allocatable or {}
        integers = to_integers(amounts)
        taken: dict[str, int] = {}
        for pod in pods:
            for name, amount in pod.occupancy.items():
                taken[name] = taken.get(name, 0) + amount
        bound = limits(facts.csi_node)
        free = [_wrap(integers.get(name, 0) - taken.get(name, 0)) for name in self.resources]
        for r, name in enumerate(self.resources):
            if self.devices is not None and name in self.devices.columns:
                free[r] = int(self.devices.free(name)[self.classes.existing + first])
            delegated = self._left_to_devices(name, np.array([integers.get(name, 0)]))
            if delegated is not None and delegated[0]:
                free[r] += PLENTY
        slots = (amounts[PODS].value() if PODS in amounts else 0) - len(pods)
        self._template_room.append((slots, free))
        given: dict[str, Any] = {
            "node_class": int(of_node[first]),
            "unschedulable": node.spec.unschedulable,
            "slots": slots,
            "free": free,
            "domain": [self._domain_of(key, facts) for key in self._keys],
            "pods": [self.number[pod.index] for pod in pods],
            "limits": [bound.get(driver, -1) for driver in self._drivers],
            "migrated": migrated(facts.csi_node),
            "named_key": self._keys[HOSTNAME][0] if HOSTNAME in self._keys else -1,
        }
        taken_names = self._taken_names().get(node.metadata.name)
        special = bool(exceptions or taken_names) or self.ledger is not None
        self._identities.append(None if special else repr(given))
        return _engine.Template(
            self.engine,
            **given,
            exceptions={copy: int(of_node[j]) for copy, j in exceptions.items()},
            taken=taken_names,
            number=i,
        )

    # -- use ---------------------------------------------------------------------------------------------------------

    def classes_of(self, pods: Iterable[PodClass]) -> NDArray[np.int32]:
        """Session numbers of pod classes: int32[n]."""
        number = self.number
        return np.fromiter((number[pod.index] for pod in pods), dtype=np.int32)

    def driver(self, number: int) -> str:
        """The volume driver that the engine knows by this number."""
        return next(name for name, n in self._drivers.items() if n == number)

    def free_on(self, node: int) -> tuple[dict[str, int], int]:
        """(free amounts by resource, free pod slots) of a node now."""
        amounts = zip(self.resources, self.engine.free(node).tolist(), strict=True)
        free = {name: n - PLENTY * (n > PLENTY // 2) for name, n in amounts if not name.startswith("\0")}
        return free, self.engine.slots(node)

    def template_facts(self, i: int) -> NodeFacts:
        """What predicates read of a copy of a template whose name nothing spells out."""
        return self.classes.extra[self._extra_of[i][0]]

    def template_identity(self, i: int) -> str | None:
        """Equal for templates whose copies the engine cannot tell apart; None: that is not
        known, because some copy is special by its name, or devices are in play."""
        return self._identities[i]

    def template_slots(self, i: int) -> int:
        """Free pod places on an empty copy of a template."""
        return self._template_room[i][0]

    def template_free(self, i: int) -> list[int]:
        """What an empty copy of a template has free, by ``resources``."""
        return self._template_room[i][1]

    def demand(self, pod: int, allocatable: Mapping[str, int]) -> dict[str, int]:
        """What the Fit plug-in counts of a class on a node with so much of everything."""
        found = self._demands[pod]
        if not self.ctx.dra:
            return found
        return {
            name: amount
            for name, amount in found.items()
            if not name.startswith("\0")
            and not (allocatable.get(name, 0) <= 0 and is_scalar(name) and self.ctx.delegable(name))
        }


def _outside(names: frozenset[str], node: NodeFacts) -> bool:
    return node.name not in names


def _fails(plugin: Plugin, pod: PodClass, ctx: Context, node: NodeFacts) -> bool:
    return plugin.check(pod, node, ctx) is not None


def _wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63
