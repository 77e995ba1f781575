"""One scale-up of release 1.3: resource limits, templates and autoprovisioned groups (upstream: ``core/scale_up.go``).

A group that does not exist stands for a machine type. Its nodes get the labels of the node selector whose pods request
the most CPU. A machine type without GPUs also has a variant for every GPU type that pods request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replace_input
from typing import Final

import msgspec
from msgspec.structs import replace

from kscale.ca.cluster_state import ClusterStateRegistry, count_upcoming_nodes, is_safe_to_scale_up
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, TRANSIENT_ERROR, AutoscalerError
from kscale.ca.events import build_status_events
from kscale.ca.expander.chain import EXPANDER_FILTERS, RANDOM_EXPANDER, ExpanderStep, choose_random
from kscale.ca.expander.types import ExpanderInput, Option, PodRun, Rng
from kscale.ca.gpu import DEFAULT_GPU_LABEL, get_target_gpus
from kscale.ca.legacy.estimators import estimate_basic, estimate_legacy_binpacking
from kscale.ca.metrics import build_observation
from kscale.ca.node_group_set import (
    Comparator,
    DifferenceRatios,
    GroupSize,
    ScaleUpInfo,
    balance_scale_up_between_groups,
    find_similar_node_groups,
)
from kscale.ca.nodes import TO_BE_DELETED_TAINT, is_ready
from kscale.ca.options import AutoscalingOptions, ResourceLimiter
from kscale.ca.scale_up.executor import ExecutorAction, execute_scale_ups_steps
from kscale.ca.templates import build_daemon_set_pod
from kscale.effects import CreateGroup, Emit, Moment, Observe, Progress, StepsOf
from kscale.errors import InputError, Problem
from kscale.objects.api.apps import DaemonSet
from kscale.objects.api.core import Node, Pod
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate, ProviderError
from kscale.objects.pod_owners import controller_of, is_mirror_pod
from kscale.objects.pod_resources import CPU, MEMORY
from kscale.objects.quantity import Quantity
from kscale.objects.workloads import should_run
from kscale.scheduling.equivalent_pods import number_controllers_and_shapes
from kscale.scheduling.profile import HOSTNAME, SchedulerProfile
from kscale.scheduling.session import Session
from kscale.scheduling.status import Verdict
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.pods.record import PodRecord
from kscale.snapshot.snapshot import Snapshot

__all__ = [
    "LEGACY_EXPANDERS",
    "UNKNOWN_LIMIT",
    "LegacyOption",
    "LegacyOrchestratorAction",
    "LegacyScaleUpResult",
    "NodeGroupCandidates",
    "apply_resources_limits",
    "build_legacy_candidates",
    "build_legacy_templates",
    "choose_best_label_set",
    "compute_resources_delta",
    "compute_resources_left_limits",
    "count_legacy_upcoming_nodes",
    "find_exceeded_resources",
    "legacy_scale_up_steps",
]


UNKNOWN_LIMIT: Final = 2**63 - 1
"""Remainder of a limit whose usage is unknown. The limit blocks the scale-up."""

_ZERO_QUANTITY = Quantity.zero()


def _get_cores_and_memory(node: Node) -> tuple[int, int]:
    """Return the node's capacity as (cores, bytes); fractions of a core are rounded up."""
    capacity = node.status.capacity or {}
    return capacity.get(CPU, _ZERO_QUANTITY).value(), capacity.get(MEMORY, _ZERO_QUANTITY).value()


def compute_resources_left_limits(
    limiter: ResourceLimiter,
    groups: Iterable[NodeGroup],
    templates: Mapping[str, Node],
    nodes_without_group: Iterable[Node],
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> dict[str, int]:
    """Return how much of each limited resource may still be added, by name (computeScaleUpResourcesLeftLimits).

    A group counts with its target size, so upcoming nodes count too. A resource whose maximum is 0 or less is not
    limited. A resource that only has a minimum is limited by the largest integer. If the number of GPUs is unknown, the
    amount of every resource other than CPU and memory is :data:`UNKNOWN_LIMIT`. Raises :class:`AutoscalerError` for a
    group of unknown size, or for a group with nodes but without a template.
    """
    cores = memory = 0
    devices: dict[str, int] = {}
    devices_known = True
    for group in groups:
        if group.target_size_error is not None:
            text = f"Failed to get node group size of {group.id}:{group.target_size_error}"
            raise AutoscalerError(CLOUD_PROVIDER_ERROR, text)
        if group.size <= 0:
            continue
        node = templates.get(group.id)
        if node is None:
            raise AutoscalerError(CLOUD_PROVIDER_ERROR, f"No node info for: {group.id}")
        own = _get_cores_and_memory(node)
        cores, memory = cores + own[0] * group.size, memory + own[1] * group.size
        devices_known &= _count_gpus(devices, node, group, group.size, gpu_label)
    for node in nodes_without_group:
        own = _get_cores_and_memory(node)
        cores, memory = cores + own[0], memory + own[1]
        devices_known &= _count_gpus(devices, node, None, 1, gpu_label)
    left: dict[str, int] = {}
    for name in dict.fromkeys([*limiter.max, *limiter.min]):
        limit = limiter.max.get(name, UNKNOWN_LIMIT)
        if limit <= 0:
            continue
        total = {CPU: cores, MEMORY: memory}.get(name, devices.get(name, 0) if devices_known else None)
        left[name] = UNKNOWN_LIMIT if total is None else max(0, limit - total)
    return left


def _count_gpus(devices: dict[str, int], node: Node, group: NodeGroup | None, times: int, gpu_label: str) -> bool:
    """Add the GPUs of ``times`` nodes like this one to ``devices``, by type.

    Returns True, or False (and adds nothing) if their number is unknown.
    """
    target = _get_gpu_type_and_count(node, group, gpu_label)
    if target is None:
        return False
    if target[0]:
        devices[target[0]] = devices.get(target[0], 0) + target[1] * times
    return True


def _get_gpu_type_and_count(node: Node, group: NodeGroup | None, gpu_label: str) -> tuple[str, int] | None:
    """Return the node's GPU type and count: ``("", 0)`` without GPUs, None if the count is unknown."""
    try:
        gpus = get_target_gpus(
            gpu_label,
            node,
            group=None if group is None else group.id,
            template=None if group is None or group.template is None else group.template.node,
            template_error=None if group is None else group.template_error,
        )
    except AutoscalerError:
        return None
    return ("", 0) if gpus is None else gpus


def compute_resources_delta(
    limiter: ResourceLimiter, group: NodeGroup, node: Node, gpu_label: str = DEFAULT_GPU_LABEL
) -> dict[str, int]:
    """Return the resources that one more node of the group takes (computeScaleUpResourcesDelta).

    GPUs are included only if the limiter limits a resource other than CPU and memory. Raises :class:`AutoscalerError`
    if the number of GPUs is unknown.
    """
    cores, memory = _get_cores_and_memory(node)
    delta = {CPU: cores, MEMORY: memory}
    if any(name not in (CPU, MEMORY) for name in (*limiter.max, *limiter.min)):
        target = _get_gpu_type_and_count(node, group, gpu_label)
        if target is None:
            raise AutoscalerError(CLOUD_PROVIDER_ERROR, f"Failed to get GPUs of node group {group.id}")
        if target[0]:
            delta[target[0]] = target[1]
    return delta


def find_exceeded_resources(left: Mapping[str, int], delta: Mapping[str, int]) -> list[str]:
    """Return the sorted names of resources of which ``delta`` exceeds what is left (checkScaleUpDeltaWithinLimits).

    Resources that are not in ``left`` have no limit. If a limit is ``UNKNOWN_LIMIT``, every amount above 0 exceeds it.
    """
    return sorted(
        name
        for name, more in delta.items()
        if more > 0 and name in left and (left[name] == UNKNOWN_LIMIT or more > left[name])
    )


def apply_resources_limits(new_nodes: int, left: Mapping[str, int], delta: Mapping[str, int]) -> int:
    """Return how many of the new nodes the limits allow (applyScaleUpResourcesLimits).

    ``left``: how much may still be added, ``delta``: what one node adds, both by resource. Raises
    :class:`AutoscalerError` if the limits allow no node, or if a limit is unknown.
    """
    for name, more in delta.items():
        limit = left.get(name)
        if limit is None:
            continue
        if limit == UNKNOWN_LIMIT:
            raise AutoscalerError(INTERNAL_ERROR, f"limit unknown for resource {name}")
        if new_nodes * more > limit:
            new_nodes = limit // more
            if new_nodes < 1:
                text = f"cannot create any node; max limit for resource {name} reached"
                raise AutoscalerError(INTERNAL_ERROR, text)
    return new_nodes


_DROPPED_TAINTS = ("CriticalAddonsOnly", TO_BE_DELETED_TAINT)


def build_legacy_templates(
    nodes: Sequence[Node],
    example_of: Callable[[Node], NodeTemplate],
    daemonsets: Iterable[DaemonSet],
    groups: Groups,
    cache: Mapping[str, NodeTemplate],
) -> tuple[dict[str, NodeTemplate], dict[str, NodeTemplate]]:
    """Return the templates by group id, and the example nodes to cache for the next loop, also by group id.

    ``example_of`` returns a node with its pods; ``cache``: examples of the previous loop. The template of a group is
    the first of these that exists:

    1. its first ready and schedulable node, however young the node is
    2. the cached example, however old it is
    3. the group's own description with every DaemonSet pod that fits, resources included
    4. its first node that is not ready or not schedulable

    Groups with none of these have no template. Nodes whose group cannot be determined are ignored.
    """
    templates: dict[str, NodeTemplate] = {}
    examples = {name: template for name, template in cache.items() if name in groups}
    others: list[tuple[Node, NodeGroup]] = []
    for node in nodes:
        try:
            group = groups.find_group_of_node(node.name)
        except ProviderError:
            continue
        if group is None or group.id in templates:
            continue
        if is_ready(node) and not node.spec.unschedulable:
            templates[group.id] = examples[group.id] = _build_from_node(example_of(node), group.id)
        else:
            others.append((node, group))
    for group in groups:
        if group.id in templates:
            continue
        if group.id in examples:
            templates[group.id] = examples[group.id]
        elif group.template is not None and group.template_error is None:
            templates[group.id] = _build_from_group(group.template, daemonsets, group.id)
    for node, group in others:
        if group.id not in templates:
            templates[group.id] = _build_from_node(example_of(node), group.id)
    return templates, examples


def _sanitize_node(node: Node, group: str) -> Node:
    """Return a copy of the node as the group's template, with a new name and without taints that new nodes lack."""
    name = f"template-node-for-{group}-0"
    labels = node.metadata.labels
    if labels is not None and HOSTNAME in labels:
        labels = {**labels, HOSTNAME: name}
    taints = [taint for taint in node.spec.taints if taint.key not in _DROPPED_TAINTS]
    metadata = replace(node.metadata, name=name, uid=name, labels=labels)
    return replace(node, metadata=metadata, spec=replace(node.spec, taints=taints))


def _build_from_node(example: NodeTemplate, group: str) -> NodeTemplate:
    """Build the group's template from an example node. Keeps the mirror pods and DaemonSet pods of the example only."""

    def stays(pod: Pod) -> bool:
        owner = controller_of(pod.metadata)
        return is_mirror_pod(pod) or (owner is not None and owner.kind == "DaemonSet")

    return replace(example, node=_sanitize_node(example.node, group), pods=[pod for pod in example.pods if stays(pod)])


def _build_from_group(template: NodeTemplate, daemonsets: Iterable[DaemonSet], group: str) -> NodeTemplate:
    """Build the group's template from its own description, plus every DaemonSet pod that fits.

    Each pod is checked on the node without other DaemonSet pods, so all of them together may not fit.
    """
    node = _sanitize_node(template.node, group)
    pods = [build_daemon_set_pod(item, node.name, "0") for item in daemonsets if should_run(item, node)]
    if not pods:
        return replace(template, node=node)
    snapshot = Cluster().snapshot()
    classes = [snapshot.interner.classify(pod, placed=True) for pod in pods]
    bare = replace(template, node=node)
    session = Session(snapshot, dict.fromkeys(classes), [bare])
    copy = session.engine.add(session.templates[0], 0)
    numbers = session.classes_of(classes).tolist()
    fitting = [pod for pod, number in zip(pods, numbers, strict=True) if session.engine.check(number, copy) == 0]
    return replace(bare, pods=[*template.pods, *fitting])


DEFAULT_GPU_TYPE: Final = "nvidia-tesla-k80"
_NVIDIA_GPU: Final = "nvidia.com/gpu"
_DEFAULT_MILLI_CPU: Final = 50
"""CPU that a pod without a CPU request counts for."""
_INFRASTRUCTURE_LABEL_PARTS: Final = ("kubernetes.io", "cloud.google.com")


class NodeGroupCandidates(msgspec.Struct, kw_only=True):
    """Groups that could be created, with their templates, and log messages about the others."""

    groups: list[NodeGroup] = []
    templates: dict[str, NodeTemplate] = {}
    warnings: list[str] = []


def choose_best_label_set(pods: Iterable[Pod]) -> dict[str, str]:
    """Return the labels that suit the pods with the most CPU (``utils/labels``: BestLabelSet).

    Starts with the node selector whose pods request the most CPU. Then adds, in that order, selectors that agree with
    the chosen labels and bring no new infrastructure label. Empty without pods.
    """
    selectors: dict[tuple[tuple[str, str], ...], int] = {}
    for pod in pods:
        key = tuple(sorted((pod.spec.node_selector or {}).items()))
        selectors[key] = selectors.get(key, 0) + (_sum_requested(pod, CPU).milli_value() or _DEFAULT_MILLI_CPU)
    ranked = sorted(selectors, key=selectors.__getitem__, reverse=True)
    chosen = dict(ranked[0]) if ranked else {}
    for selector in ranked[1:]:
        if all(chosen[key] == value if key in chosen else not _is_infrastructure_label(key) for key, value in selector):
            chosen.update(selector)
    return chosen


def _is_infrastructure_label(key: str) -> bool:
    """Check whether nodes of one group differ in this label because the infrastructure sets it."""
    return any(part in key for part in _INFRASTRUCTURE_LABEL_PARTS)


def _sum_requested(pod: Pod, resource: str) -> Quantity:
    """Return the sum of the regular containers' requests of the resource."""
    asked = (container.resources.requests or {} for container in pod.spec.containers)
    return Quantity.sum(requests[resource] for requests in asked if resource in requests)


def build_legacy_candidates(
    machines: Sequence[NodeGroup],
    templates: Mapping[str, NodeTemplate],
    existing: Groups,
    pods: Sequence[Pod],
    options: AutoscalingOptions,
    gpu_label: str = DEFAULT_GPU_LABEL,
) -> NodeGroupCandidates:
    """Return the groups that could be created from the machine types for these pods.

    ``machines``: the machine types, as groups that do not exist; ``templates`` maps the id of a machine type to its
    template; ``existing``: the groups that exist. A machine type without GPUs also gets one candidate for each GPU type
    that pods request. There are no candidates without ``--node-autoprovisioning-enabled``, or if the maximum number of
    autoprovisioned groups exists already. A machine type is left out if it has no template, or (with a warning in the
    result) if its labels conflict with the labels that the pods request.
    """
    candidates = NodeGroupCandidates()
    autoprovisioned_count = sum(group.autoprovisioned for group in existing)
    if (
        not options.node_autoprovisioning_enabled
        or autoprovisioned_count >= options.max_autoprovisioned_node_group_count
    ):
        return candidates
    devices: dict[str, list[tuple[Pod, Quantity]]] = {}
    for pod in pods:
        count = _sum_requested(pod, _NVIDIA_GPU)
        if not count.is_zero:
            kind = (pod.spec.node_selector or {}).get(gpu_label, DEFAULT_GPU_TYPE)
            devices.setdefault(kind, []).append((pod, count))
    for machine in machines:
        base = templates.get(machine.id)
        if base is None:
            continue
        _add_candidate(candidates, machine, base, choose_best_label_set(pods), {})
        if _NVIDIA_GPU in (base.node.status.capacity or {}):
            continue
        for kind, asking in devices.items():
            labels = {**choose_best_label_set([pod for pod, _ in asking]), gpu_label: kind}
            variant = replace(machine, id=f"{machine.id}-{kind}")
            _add_candidate(
                candidates,
                variant,
                base,
                labels,
                {_NVIDIA_GPU: max((count for _, count in asking), key=Quantity.value)},
            )
    return candidates


def _add_candidate(
    candidates: NodeGroupCandidates,
    group: NodeGroup,
    base: NodeTemplate,
    labels: Mapping[str, str],
    devices: Mapping[str, Quantity],
) -> None:
    """Add the group to the candidates, with a template that has additional ``labels`` and ``devices``.

    ``base``: the template to extend. If ``labels`` conflict with labels of ``base``, only a warning is added.
    """
    node = base.node
    own = node.metadata.labels or {}
    wrong = sorted(key for key, value in labels.items() if own.get(key, value) != value)
    if wrong:
        pairs = ", ".join(f"{key}={labels[key]} (it has {own[key]})" for key in wrong)
        candidates.warnings.append(
            f"node group {group.id} could not be created with the labels that pods request: {pairs}"
        )
        return
    status = replace(
        node.status,
        capacity={**(node.status.capacity or {}), **devices},
        allocatable={**(node.status.allocatable or {}), **devices},
    )
    metadata = replace(node.metadata, labels={**own, **labels})
    template = replace(base, node=replace(node, metadata=metadata, status=status))
    candidates.groups.append(replace(group, template=template))
    candidates.templates[group.id] = template


LegacyOrchestratorAction = ExecutorAction | CreateGroup | Observe
"""Actions of a scale-up of release 1.3."""

_LEGACY_COMPARATOR = Comparator(kind="legacy", ratios=DifferenceRatios(memory_difference_ratio=0.0))
LEGACY_EXPANDERS = (RANDOM_EXPANDER, "most-pods", "least-waste", "price")


class LegacyOption(msgspec.Struct, kw_only=True, frozen=True):
    """A group as a way to scale up: the pods that fit its nodes (by position), and how many nodes they need."""

    group: str
    node_count: int
    pods: list[int]
    debug: str = ""


class LegacyScaleUpResult(msgspec.Struct, kw_only=True):
    """Result of a scale-up. ``left_out``: groups that were skipped or need no node, with the logged text.

    ``verdicts``: by group, why each unplaced pod does not fit; ``sharing``: the groups among which the new nodes were
    divided, starting with that of the best option; ``resized``: the sizes that the cloud accepted, and when.
    """

    scaled_up: bool = False
    error: AutoscalerError | None = None
    options: list[LegacyOption] = []
    left_out: dict[str, str] = {}
    verdicts: dict[str, dict[int, Verdict]] = {}
    steps: list[ExpanderStep] = []
    best: LegacyOption | None = None
    plan: list[ScaleUpInfo] = []
    created: list[str] = []
    resized: list[tuple[ScaleUpInfo, Moment]] = []
    sharing: list[str] = []
    remaining: list[int] = []
    awaiting: list[int] = []
    unmodelled: list[str] = []
    state: ClusterStateRegistry
    groups: Groups


def count_legacy_upcoming_nodes(state: ClusterStateRegistry, groups: Groups) -> dict[str, int]:
    """Return how many nodes each group lacks compared to its target size, by group id.

    Groups that lack no node are left out.
    """
    counts = {group.id: count_upcoming_nodes(state, group.id) for group in groups}
    return {name: count for name, count in counts.items() if count > 0}


class _LegacyOrchestrator:
    """State of one scale-up in progress."""

    def __init__(
        self,
        p: Progress,
        snapshot: Snapshot,
        pods: Sequence[PodRecord],
        groups: Groups,
        templates: Mapping[str, NodeTemplate],
        options: AutoscalingOptions,
        expander_input: ExpanderInput,
        profile: SchedulerProfile | None,
        result: LegacyScaleUpResult,
    ) -> None:
        self.p = p
        self.snapshot, self.pods, self.groups, self.templates = snapshot, pods, groups, dict(templates)
        self.options, self.expander_input, self.profile, self.result = options, expander_input, profile, result
        self.unique, self.class_of = snapshot.distinct_classes(pods)
        _, shape = number_controllers_and_shapes(pods)
        # Upstream runs the predicates once for equal pods of one controller; the first pod's verdict counts for all.
        first: dict[int, int] = {}
        self.leader = [i if s < 0 else first.setdefault(s, i) for i, s in enumerate(shape.tolist())]
        self.session = Session(snapshot, self.unique, list(self.templates.values()), profile)
        self.which = {name: i for i, name in enumerate(self.templates)}
        result.unmodelled = self.session.unmodelled
        self.passing: dict[str, list[int]] = {}

    # -- limits and upcoming nodes -------------------------------------------------------------------------------

    def get_remaining_limits(self, nodes: Sequence[Node]) -> dict[str, int]:
        """Return how much of each limited resource may still be added, by name.

        ``nodes``: the ready nodes; those without a group count with their own capacity. Raises AutoscalerError if the
        resources in use cannot be counted.
        """
        try:
            alone = [node for node in nodes if self.groups.find_group_of_node(node.name) is None]
        except ProviderError as error:
            text = "failed to filter out nodes which are from not autoscaled groups: "
            raise AutoscalerError("", text + error.message) from None
        plain = {name: item.node for name, item in self.templates.items()}
        try:
            return compute_resources_left_limits(
                self.options.resource_limiter, self.groups, plain, alone, self.expander_input.gpu_label
            )
        except AutoscalerError as error:
            raise error.with_prefix("Could not compute total resources: ") from None

    def coming(self) -> list[NodeTemplate]:
        """Return one template for each upcoming node of any group.

        Raises AutoscalerError if a group with upcoming nodes has no template.
        """
        templates: list[NodeTemplate] = []
        for name, count in count_legacy_upcoming_nodes(self.result.state, self.groups).items():
            if name not in self.templates:
                raise AutoscalerError(INTERNAL_ERROR, f"failed to find template node for node group {name}")
            templates += [self.templates[name]] * count
        return templates

    # -- options -------------------------------------------------------------------------------------------------

    def compute_option(self, group: NodeGroup, coming: Sequence[NodeTemplate]) -> None:
        """Compute the expansion option of one group.

        Adds it to ``result.options``, or the reason why there is none to ``result.left_out``. Pods that fit the group
        are removed from ``result.remaining``. Raises InputError as :meth:`_estimate` does. ``coming``: templates of the
        upcoming nodes.
        """
        result = self.result
        self.passing[group.id] = fitting = self._fitting(group.id)
        if not fitting:
            result.left_out[group.id] = f"No pod can fit to {group.id}"
            return
        result.remaining = sorted(set(result.remaining) - set(fitting))
        count, debug = self._estimate(group.id, fitting, coming)
        if count > 0:
            result.options.append(LegacyOption(group=group.id, node_count=count, pods=fitting, debug=debug))
        else:
            result.left_out[group.id] = f"No need for any nodes in {group.id}"

    def _fitting(self, group: str) -> list[int]:
        """Return the indices of the pods that fit an empty node of the group; store the verdicts on the other pods."""
        numbers = sorted({int(self.class_of[i]) for i in self.leader})
        verdicts = self.session.verdicts_on_copy(self.which[group], 0, numbers)
        of_pod = [verdicts[int(self.class_of[i])] for i in self.leader]
        self.result.verdicts[group] = {i: verdict for i, verdict in enumerate(of_pod) if not verdict.ok}
        return [i for i, verdict in enumerate(of_pod) if verdict.ok]

    def _estimate(self, group: str, pods: Sequence[int], coming: Sequence[NodeTemplate]) -> tuple[int, str]:
        """Return the number of new nodes for these pods (by position), and the basic estimator's report.

        ``coming``: templates of upcoming nodes. The report of any other estimator is empty. Raises InputError, which
        names the group, if the basic estimator would divide by zero.
        """
        template, records = self.templates[group], [self.pods[i] for i in pods]
        if self.options.estimator == "basic":
            try:
                basic = estimate_basic([r.pod for r in records], template, [item.node for item in coming])
            except InputError as error:
                of_group = [Problem(each.message, object=f"node group {group}") for each in error.problems]
                raise InputError(of_group) from None
            return basic.node_count, basic.report
        packed = estimate_legacy_binpacking(
            self.snapshot, records, template=template, coming=coming, profile=self.profile
        )
        return packed.node_count, ""

    def expand(self, rng: Rng | None) -> LegacyOption | None:
        """Return the option that the expander chooses, None without options.

        Ties are broken by ``rng``; without it, and for ``price``, the first option wins.
        """
        result, name = self.result, self.options.expander
        choices = [
            Option(
                group=option.group, node_count=option.node_count, pods=[PodRun(self.pods[i].pod) for i in option.pods]
            )
            for option in result.options
        ]
        if name != RANDOM_EXPANDER and choices:
            nodes = {group: item.node for group, item in self.templates.items()}
            filtered = EXPANDER_FILTERS[name](choices, replace_input(self.expander_input, nodes=nodes))
            result.steps = [ExpanderStep(expander=name, filtered=filtered)]
            choices = filtered.survivors
        best = choices[0] if name == "price" and choices else choose_random(choices, rng)
        return None if best is None else next(option for option in result.options if option.group == best.group)

    # -- execution -----------------------------------------------------------------------------------------------

    def create(self, group: NodeGroup) -> StepsOf[CreateGroup | Emit | Observe, NodeGroup]:
        """Create a group that does not exist yet, and return it. This happens before limits are checked.

        The group is added to ``groups``, with the template of its candidate. Raises AutoscalerError if the cloud
        refuses.
        """
        outcome = yield from self.p.act(CreateGroup(group=group.id))
        error = outcome.error
        if error is not None:
            text = f"NodeAutoprovisioning: attempt to create node group {group.id} failed: {error.message}"
            yield from self.emit_event("Warning", "FailedToCreateNodeGroup", text)
            raise AutoscalerError(error.reason or CLOUD_PROVIDER_ERROR, error.message)
        created = outcome.value
        main: NodeGroup = replace(group, exists=True, target_size=0) if created is None else created.main
        self.passing[main.id], self.templates[main.id] = self.passing[group.id], self.templates[group.id]
        self.result.created.append(main.id)
        yield from self.emit_event(
            "Normal", "CreatedNodeGroup", f"NodeAutoprovisioning: created new node group {main.id}"
        )
        yield from self.p.observe(build_observation("created_node_groups_total", group_type=""))
        self.result.groups = self.groups = Groups([*self.groups, main], self.groups.node_errors)
        return main

    def emit_event(self, kind: str, reason: str, message: str) -> StepsOf[Emit, None]:
        """Emit an event about the cluster. ``kind``: Normal or Warning."""
        return self.p.emit(*build_status_events(self.options, kind, reason, message))

    def similar_to(self, chosen: NodeGroup, best: LegacyOption, now: Moment) -> list[NodeGroup]:
        """Return the chosen group, then the similar groups that may share its new nodes.

        Every pod of ``best`` fits each of these groups, and existing ones are safe to scale up. Without
        ``balance_similar_node_groups`` only the chosen group is returned.
        """
        targets = [chosen]
        if self.options.balance_similar_node_groups:
            for name in find_similar_node_groups(
                chosen.id, [group.id for group in self.groups], self.templates, _LEGACY_COMPARATOR
            ):
                other = self.groups[name]
                takes = set(best.pods) <= set(self.passing.get(name, ()))
                if takes and (not other.exists or is_safe_to_scale_up(self.result.state, name, now, self.options)):
                    targets.append(other)
        return targets


def legacy_scale_up_steps(
    p: Progress,
    snapshot: Snapshot,
    pods: Sequence[PodRecord],
    groups: Groups,
    *,
    candidates: Sequence[NodeGroup] = (),
    nodes: Sequence[Node],
    templates: Mapping[str, NodeTemplate],
    state: ClusterStateRegistry,
    now: Moment,
    options: AutoscalingOptions,
    expander_input: ExpanderInput,
    rng: Rng | None = None,
    profile: SchedulerProfile | None = None,
) -> StepsOf[LegacyOrchestratorAction, LegacyScaleUpResult]:
    """Run ScaleUp of release 1.3 as a step machine, and return its result.

    An AutoscalerError is in the result; InputError is raised if the basic estimator would divide by zero.

    ``nodes`` are the *ready* nodes; ``candidates`` are groups that may be created; ``templates`` are by group id.
    """
    result = LegacyScaleUpResult(state=state, groups=groups, remaining=list(range(len(pods))))
    if not pods:
        return result
    run = _LegacyOrchestrator(p, snapshot, pods, groups, templates, options, expander_input, profile, result)
    try:
        yield from _run_scale_up_steps(run, candidates, nodes, now, rng)
    except AutoscalerError as error:
        result.error = error
    return result


def _run_scale_up_steps(
    run: _LegacyOrchestrator, candidates: Sequence[NodeGroup], nodes: Sequence[Node], now: Moment, rng: Rng | None
) -> StepsOf[LegacyOrchestratorAction, None]:
    """Run one scale-up: limits, options, choice and execution. The outcome is written to ``run.result``.

    Raises AutoscalerError if the maximum number of nodes is reached, or if a step fails.
    """
    result, options, gpu_label = run.result, run.options, run.expander_input.gpu_label
    left = run.get_remaining_limits(nodes)
    coming = run.coming()
    every = [*run.groups, *candidates]
    for group in every:
        reason = _explain_skipped_group(group, run.templates, result.state, now, options, left, gpu_label)
        if reason is not None:
            result.left_out[group.id] = reason
        else:
            run.compute_option(group, coming)
    best = run.expand(rng)
    if best is None or best.node_count <= 0:
        return
    result.best = best
    new_nodes = best.node_count
    if 0 < options.max_nodes_total < len(nodes) + new_nodes:
        new_nodes = options.max_nodes_total - len(nodes)
        if new_nodes < 1:
            raise AutoscalerError(TRANSIENT_ERROR, "max node total count already reached")
    chosen = next(group for group in every if group.id == best.group)
    if not chosen.exists:
        chosen = yield from run.create(chosen)
    delta = compute_resources_delta(options.resource_limiter, chosen, run.templates[chosen.id].node, gpu_label)
    new_nodes = apply_resources_limits(new_nodes, left, delta)
    targets = run.similar_to(chosen, best, now)
    result.sharing = [group.id for group in targets]
    result.plan = _balance_legacy(targets, new_nodes)
    done = yield from execute_scale_ups_steps(
        run.p, result.plan, run.groups, result.state, options=options, release_1_3=True
    )
    result.state = done.state
    result.resized = done.resized
    if done.error is not None:
        raise done.error
    result.groups = run.groups.with_targets({info.group: info.new for info in result.plan})
    result.scaled_up = True
    result.awaiting = sorted(set(range(len(run.pods))) - set(result.remaining) - set(best.pods))


def _explain_skipped_group(
    group: NodeGroup,
    templates: Mapping[str, NodeTemplate],
    state: ClusterStateRegistry,
    now: Moment,
    options: AutoscalingOptions,
    left: Mapping[str, int],
    gpu_label: str,
) -> str | None:
    """Return why a group is skipped, in the words of upstream's log; None if it is considered.

    ``templates`` are by group id; ``left``: how much of each limited resource may still be added.
    """
    if group.exists and not is_safe_to_scale_up(state, group.id, now, options):
        return f"Node group {group.id} is not ready for scaleup"
    if group.target_size_error is not None:
        return f"Failed to get node group size: {group.target_size_error}"
    if group.size >= group.max_size:
        return f"Skipping node group {group.id} - max size reached"
    template = templates.get(group.id)
    if template is None:
        return f"No node info for: {group.id}"
    try:
        delta = compute_resources_delta(options.resource_limiter, group, template.node, gpu_label)
    except AutoscalerError as error:
        return f"Skipping node group {group.id}; error getting node group resources: {error.message}"
    over = find_exceeded_resources(left, delta)
    if over:
        return f"Skipping node group {group.id}; maximal limit exceeded for [{' '.join(over)}]"
    return None


def _balance_legacy(groups: Sequence[NodeGroup], new_nodes: int) -> list[ScaleUpInfo]:
    """Split the new nodes among the groups. Returns a resize for each group that grows; none if they have no room.

    Works like :func:`balance_scale_up_between_groups`, except that a group above its maximum reduces the room of the
    other groups.
    """
    room = sum(group.max_size - group.size for group in groups)
    sizes = [GroupSize(id=group.id, target=group.size, max=group.max_size) for group in groups]
    return balance_scale_up_between_groups(sizes, min(new_nodes, room)) if room > 0 else []
