"""The autoscalers of a scenario: which provisioner runs, the node groups that stand for the NodePools' offerings, each
autoscaler with its flags, and the VPA webhook at pod creation.
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace as with_fields

from kscale.ca.entry_points import find_option_problems
from kscale.ca.flag_parsing import parse_flags
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.legacy.metrics import LEGACY_GPU_LABEL
from kscale.ca.options import CURRENT_PROFILE, LEGACY_PROFILE, AutoscalingOptions
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.karpenter import NodePools, PoolGroups, groups_of_pools, node_pools_from, read_node_pools
from kscale.capacity.karpenter.node_claim import OfferedPools
from kscale.capacity.karpenter.node_pools import CAPACITY_TYPE, NODE_POOL
from kscale.capacity.records import UNLIMITED
from kscale.drivers.cluster_autoscaler import AutoscalerProcess, ClusterAutoscaler, CurrentNodes
from kscale.drivers.driver import Driver
from kscale.drivers.horizontal_autoscaler import HorizontalAutoscaler
from kscale.drivers.process import HealthCheck, HealthCheckOptions
from kscale.drivers.vpa_admission import AdmissionController
from kscale.drivers.vpa_recommender import VpaRecommender
from kscale.drivers.vpa_registration import RegistrationOptions
from kscale.drivers.vpa_updater import VpaUpdater
from kscale.effects import Action, Moment, Outcome, run_virtually
from kscale.errors import InputError
from kscale.hpa.options import HPAOptions
from kscale.objects.api.core import Node, Pod, Taint
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import NodeGroup
from kscale.simulation.karpenter import KarpenterOptions, KarpenterState, karpenter_drivers
from kscale.simulation.scenario import (
    CLUSTER_AUTOSCALER,
    KARPENTER,
    ControllerFlags,
    Controllers,
    KarpenterEntry,
    Scenario,
    Values,
    check_options,
    options_of,
)
from kscale.vpa.options import AdmissionOptions, RecommenderOptions, UpdaterOptions
from kscale.world.simulated.api_server import json_patch
from kscale.world.simulated.world import DeferredCheckpoints, SimulatedWorld

__all__ = ["Admitting", "Autoscalers", "SimulatedPools", "provisioner_of", "read_pools"]

_FIELD: Final = "controllers.karpenter"
_TYPE, _ZONE = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone"
_NAMED: Final = 3


def provisioner_of(scenario: Scenario, values: Values) -> str:
    """Return the name of the program that adds and removes nodes; empty if there is none.

    Mistakes are added to ``values``: Karpenter is chosen, but not configured (the result is then empty), or both
    programs are configured and none is chosen (the result is then the Cluster Autoscaler).
    """
    controllers = scenario.controllers
    configured = [
        name
        for name, entry in ((CLUSTER_AUTOSCALER, controllers.cluster_autoscaler), (KARPENTER, controllers.karpenter))
        if entry is not None
    ]
    chosen = scenario.provisioner
    if chosen == KARPENTER and controllers.karpenter is None:
        values.wrong("provisioner", f"{KARPENTER} needs {_FIELD}, with NodePools and a catalogue")
        return ""
    if chosen:
        return chosen
    if len(configured) > 1:
        values.wrong("controllers", f"provisioner says which of {' and '.join(configured)} runs")
    return configured[0] if configured else ""


@dataclass(frozen=True)
class SimulatedPools:
    """NodePools as groups of the simulated cloud. ``warnings``: what of them is not simulated, and why."""

    pools: NodePools
    converted: PoolGroups
    options: KarpenterOptions
    warnings: Sequence[str]

    def state(self, groups: Iterable[NodeGroup]) -> KarpenterState:
        """Return the initial state of Karpenter's controllers. ``groups``: all groups, with templates."""
        by_name = {group.id: group for group in groups}
        own = [by_name[offering.group] for offering in self.converted.offerings]
        return KarpenterState(self.pools, OfferedPools(self.pools, self.converted, own), by_name, self.options)

    def startup_taints(self, name: str) -> tuple[Taint, ...]:
        """Return the taints that new nodes of a NodePool have until they are initialized.

        Empty if there is no such NodePool.
        """
        specs = (pool.spec.template.spec for pool in self.pools.pools if pool.name == name)
        return tuple(taint for spec in specs for taint in spec.startup_taints)


def read_pools(entry: KarpenterEntry, values: Values, nodes: Sequence[Node], *, unlimited: bool) -> SimulatedPools:
    """Read the NodePools and the catalogue of a scenario from its section on Karpenter (``entry``).

    Existing nodes belong to the group with their NodePool, instance type, zone and capacity type. ``unlimited``:
    whether groups have no maximum, as Karpenter applies the limits of NodePools itself. Mistakes are added to
    ``values``; after one in the NodePools or the catalogue, the result has neither NodePools nor groups.
    """
    options = options_of(KarpenterOptions, entry.flags, {}, values, _FIELD)
    try:
        if isinstance(entry.node_pools, str):
            pools = read_node_pools(values.folder / entry.node_pools)
        else:
            pools = node_pools_from(entry.node_pools, source=values.source)
        catalogue = read_catalogue(values.folder / entry.catalogue)
        catalogue.check_region(entry.region)
        kinds = list(catalogue.values())
        converted = groups_of_pools(pools, kinds, zones=entry.zones, region=entry.region, nodes=nodes)
    except InputError as error:
        values.problems += [
            each if each.source else replace(each, source=values.source, field=_FIELD) for each in error.problems
        ]
        return SimulatedPools(NodePools([]), PoolGroups([], [], [], []), options, [])
    members, unmatched = _members(converted, nodes)
    groups = [
        with_fields(
            group,
            nodes=members[group.id],
            max_size=UNLIMITED if unlimited else min(UNLIMITED, group.max_size + len(members[group.id])),
        )
        for group in converted.groups
    ]
    warnings = [f"{text} (assumed)" for text in converted.assumptions]
    if unmatched:
        more = ", ..." if len(unmatched) > _NAMED else ""
        warnings.append(f"node {', '.join(unmatched[:_NAMED])}{more}: its NodePool has no such offering, so it stays")
    warnings += [
        f"NodePool {pool.name}: policy Balanced consolidates as WhenEmptyOrUnderutilized here"
        for pool in pools.pools
        if pool.spec.disruption.consolidation_policy == "Balanced"
    ]
    return SimulatedPools(pools, replace(converted, groups=groups), options, warnings)


def _members(converted: PoolGroups, nodes: Iterable[Node]) -> tuple[dict[str, list[str]], list[str]]:
    """Return (names of nodes by group, names of the NodePools' nodes that belong to no group).

    ``converted``: the groups of the NodePools' offerings. Nodes without the label of a NodePool are left out. A node
    belongs to the offering in its zone; if there is none, to an offering without a zone.
    """
    groups = {
        (each.pool, each.kind.name, each.zone, each.capacity_type): each.group for each in reversed(converted.offerings)
    }
    members: dict[str, list[str]] = defaultdict(list)
    unmatched = []
    for node in nodes:
        labels = node.metadata.labels or {}
        if NODE_POOL not in labels:
            continue
        key = labels[NODE_POOL], labels.get(_TYPE, ""), labels.get(CAPACITY_TYPE, "")
        zones = (labels.get(_ZONE, ""), "")
        group = next((name for zone in zones if (name := groups.get((*key[:2], zone, key[2])))), "")
        if group:
            members[group].append(node.name)
        else:
            unmatched.append(node.name)
    return members, unmatched


class Admitting:
    """Passes every pod created in a world to an admission controller.

    The review takes no simulated time, as the pod's creation waits for it.
    """

    def __init__(self, controller: AdmissionController, world: SimulatedWorld) -> None:
        self._controller, self._world = controller, world

    def __call__(self, pod: Pod) -> Pod:
        """Return the pod as it is stored after the review.

        It is unchanged if the world has no VPA, or if the review answers without a patch.
        """
        if not self._world.api.get_all("VerticalPodAutoscaler"):
            return pod
        now = self._world.time.now
        data = to_dict(pod)
        request = {
            "uid": "simulated",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": pod.metadata.namespace,
            "operation": "CREATE",
            "object": data,
        }
        body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        reviewed = run_virtually(partial(self._controller.review, body), self._perform, now=now)
        answer: Any = msgspec.json.decode(reviewed.body)["response"]
        patch = answer.get("patch")
        return from_dict(json_patch(data, msgspec.json.decode(base64.b64decode(patch))), Pod) if patch else pod

    def _perform(self, action: Action, now: Moment) -> Outcome:
        """Perform an action of the admission controller in the world. It takes no time: its outcome is at ``now``."""
        return msgspec.structs.replace(self._world.perform(action, now), at=now)


_T = TypeVar("_T", bound=msgspec.Struct)
_FREQUENT: Final = "frequent-loops-enabled"
_PROFILE: Final = "profile"


@dataclass(frozen=True, kw_only=True)
class Autoscalers:
    """The autoscalers that run in a world, as ``controllers`` configures them; mistakes are added to ``values``.

    ``overrides``: options of controllers (``cluster_autoscaler``, ``horizontal``, ...) that replace the scenario's;
    ``frequent_loops``: whether a Cluster Autoscaler with such options has frequent loops; ``karpenter``: the state of
    Karpenter's controllers if they run instead of a Cluster Autoscaler.
    """

    controllers: Controllers
    values: Values
    world: SimulatedWorld
    overrides: Mapping[str, Any]
    frequent_loops: bool
    provisioner: str
    karpenter: KarpenterState | None = None

    def drivers(self) -> list[Driver[Any]]:
        """Build the drivers, in the order of their ranks.

        If the admission controller runs, the world passes its new pods to it from now on. Mistakes of the controllers'
        flags are added to ``values``.
        """
        result: list[Driver[Any]] = []
        if (horizontal := self._options("horizontal", HPAOptions)) is not None:
            result.append(HorizontalAutoscaler(horizontal, repeats=True, aligned=True))
        if (recommender := self._options("vpa_recommender", RecommenderOptions)) is not None:
            if not recommender.use_checkpoints:
                text = "a simulated cluster has no Prometheus: the history is stored in checkpoints"
                self.values.wrong("controllers.vpaRecommender.flags.storage", text)
            result.append(VpaRecommender(recommender, storage=DeferredCheckpoints(self.world)))
        if (updater := self._options("vpa_updater", UpdaterOptions)) is not None:
            result.append(VpaUpdater(updater))
        if (admission := self._options("vpa_admission", AdmissionOptions)) is not None:
            controller = AdmissionController(admission, RegistrationOptions(register_webhook=False), holder="simulated")
            self.world.maker.admit = Admitting(controller, self.world)
            result.append(controller)
        autoscaling: AutoscalingOptions | None = self.overrides.get("cluster_autoscaler")
        flags = self.controllers.cluster_autoscaler
        frequent = self.frequent_loops
        if self.karpenter is not None:
            return [*result, *karpenter_drivers(self.karpenter)]
        for problem in () if autoscaling is None else find_option_problems(autoscaling):
            self.values.wrong(f"controllers.clusterAutoscaler.flags.{problem.field}", problem.message)
        if self.provisioner == CLUSTER_AUTOSCALER and flags is None:
            flags = ControllerFlags()
        if autoscaling is None and flags is not None:
            autoscaling, frequent = self._autoscaling_options(flags)
        if autoscaling is not None:
            if autoscaling.scan_interval <= timedelta():
                text = "between two rounds no time would pass"
                self.values.wrong("controllers.clusterAutoscaler.flags.scan-interval", text)
            health = HealthCheck(HealthCheckOptions(), self.world.time.now)
            gpu_label = LEGACY_GPU_LABEL if autoscaling.legacy else DEFAULT_GPU_LABEL
            process = AutoscalerProcess(dra=False, frequent_loops=frequent, gpu_label=gpu_label)
            driver = ClusterAutoscaler(autoscaling, process, self.world.clock, health, CurrentNodes(), repeats=True)
            driver.on_started_leading()
            result.append(driver)
        return result

    def _options(self, controller: str, struct: type[_T]) -> _T | None:
        """Return the options of a controller: those in ``overrides``, else built from the scenario's flags.

        ``controller``: its field in the scenario; ``struct``: type of its options. Mistakes are added to ``values``.
        None if the controller does not run, or refuses its entry in ``overrides``. Flags that it refuses as a whole
        give default options.
        """
        options: _T | None = self.overrides.get(controller)
        flags: ControllerFlags | None = getattr(self.controllers, controller)
        first, *others = controller.split("_")
        name = first + "".join(map(str.capitalize, others))
        if options is not None and not check_options(options, self.values, f"controllers.{name}"):
            return None
        if options is not None or flags is None:
            return options
        return options_of(struct, flags.flags, {}, self.values, f"controllers.{name}")

    def _autoscaling_options(self, given: ControllerFlags) -> tuple[AutoscalingOptions, bool]:
        """Return (options of the Cluster Autoscaler, whether it has frequent loops). ``given``: its flags.

        Mistakes are added to ``values``; if the flags cannot be read, the result is (the default options, True).
        """
        field = "controllers.clusterAutoscaler.flags"
        flags = dict(given.flags)
        profile = flags.pop(_PROFILE, CURRENT_PROFILE)
        if profile == LEGACY_PROFILE and _FREQUENT in flags:
            self.values.wrong(f"{field}.{_FREQUENT}", "release 1.3 has no such flag")
        frequent = flags.pop(_FREQUENT, profile != LEGACY_PROFILE)
        if not isinstance(frequent, bool):
            self.values.wrong(f"{field}.{_FREQUENT}", f"{frequent!r} is neither true nor false")
        texts = [
            f"{name}={str(entry).lower() if isinstance(entry, bool) else entry}"
            for name, value in flags.items()
            for entry in (value if isinstance(value, list) else [value])
        ]
        try:
            parsed = parse_flags(texts)
            for name in parsed.idle:
                if name.replace("-", "_") not in AutoscalingOptions.__struct_fields__:
                    self.values.wrong(f"{field}.{name}", "has no effect in a simulated cluster")
            options = AutoscalingOptions.for_profile(str(profile), **parsed.values)
            requested = [name for name, value in parsed.values.items() if value is not False]
            for problem in (*find_option_problems(options), *options.find_foreign_options(options.profile, requested)):
                self.values.wrong(f"{field}.{problem.field.replace('_', '-')}", problem.message)
            return options, frequent is True
        except InputError as error:
            for problem in error.problems:
                name = problem.field.replace("_", "-")
                self.values.wrong(f"{field}.{name}", problem.message)
            return AutoscalingOptions(), True
