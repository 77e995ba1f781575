"""Similar node groups: which groups may grow, which are similar, and how new nodes are divided between them.

Upstream: ``processors/nodegroupset``, and filterValidScaleUpNodeGroups, ComputeSimilarNodeGroups and balanceScaleUps in
``core/scaleup/orchestrator``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kscale.ca.cluster_state import ClusterStateRegistry, get_backoff_status, is_group_healthy
from kscale.ca.errors import CLOUD_PROVIDER_ERROR, INTERNAL_ERROR, AutoscalerError
from kscale.ca.options import AutoscalingOptions
from kscale.ca.quota import ExceededQuota, QuotaTracker
from kscale.effects import Moment
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.argument_types import typed
from kscale.objects.go_numbers import wrap_int64
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate, ProviderError
from kscale.objects.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, occupancy, to_integers
from kscale.objects.quantity import Quantity

__all__ = [
    "ATOMIC_LIMIT_REASON",
    "AWS_IGNORED_LABELS",
    "AZURE_IGNORED_LABELS",
    "BACKOFF_REASON",
    "BASIC_IGNORED_LABELS",
    "COMPARATOR_IGNORED_LABELS",
    "GCE_IGNORED_LABELS",
    "MAX_LIMIT_REACHED_REASON",
    "NOT_READY_REASON",
    "Comparator",
    "DifferenceRatios",
    "FilteredGroups",
    "GroupSize",
    "ScaleUpInfo",
    "SimilarGroups",
    "Similarity",
    "TemplateProfile",
    "balance_scale_up_between_groups",
    "balance_scale_ups",
    "build_group_size",
    "compare_templates",
    "compute_similar_node_groups",
    "filter_valid_scale_up_groups",
    "find_differences",
    "find_not_ready_reason",
    "find_sharing_groups",
    "find_similar_node_groups",
    "is_within_quotas",
    "is_zero_or_max_group",
]


class GroupSize(msgspec.Struct, kw_only=True, frozen=True):
    """Inputs of balancing for a group: its id, ``target`` size and ``max`` size.

    ``target_error``: the provider's error if it could not return the target size, else None.
    """

    id: str
    target: int = 0
    max: int = 0
    target_error: str | None = None


class ScaleUpInfo(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Growth of a node group.

    Attributes
    ----------
    group : str
        Id of the node group.
    current : int
        Number of nodes now.
    new : int
        Number of nodes after the scale-up.
    max : int
        Maximum number of nodes.
    """

    group: str
    current: int
    new: int
    max: int

    def __str__(self) -> str:
        return f"{{{self.group} {self.current}->{self.new} (max: {self.max})}}"


@typed
def balance_scale_up_between_groups(groups: Sequence[GroupSize], new_nodes: int) -> list[ScaleUpInfo]:
    """Split ``new_nodes`` between the groups, always adding to the smallest group that has room.

    Returns a resize for each group that grows; nodes for which no group has room are dropped. Raises AutoscalerError
    without groups, and if the target size of a group is unknown.
    """
    if not groups:
        raise AutoscalerError(INTERNAL_ERROR, "Can't balance scale up between 0 groups")
    for group in groups:
        if group.target_error is not None:
            raise AutoscalerError(CLOUD_PROVIDER_ERROR, f"failed to get node group size: {group.target_error}")
    # [size so far, limit, group]
    slots: list[list[Any]] = sorted(([g.target, g.max, g] for g in groups if g.target != g.max), key=itemgetter(0))
    left = min(new_nodes, sum(max(0, limit - size) for size, limit, _ in slots))
    start = current = 0
    if len(slots) == 1 and left > 0:  # fast path: a single group is not extended node by node
        slots[0][0] += left
        left = 0
    while left > 0:
        if slots[current][0] < slots[current][1]:
            slots[current][0] += 1
            left -= 1
        else:
            slots[start], slots[current] = slots[current], slots[start]
            start += 1
        # After a swap this compares the group that came from the front, as upstream does.
        following = current + 1
        current = following if following < len(slots) and slots[current][0] > slots[following][0] else start
    return [
        ScaleUpInfo(group=group.id, current=group.target, new=size, max=group.max)
        for size, _, group in slots
        if size != group.target
    ]


BASIC_IGNORED_LABELS = (
    "kubernetes.io/hostname",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "beta.kubernetes.io/fluentd-ds-ready",
    "kops.k8s.io/instancegroup",
)
GCE_IGNORED_LABELS = ("topology.gke.io/zone",)
AWS_IGNORED_LABELS = (
    "alpha.eksctl.io/instance-id",
    "alpha.eksctl.io/nodegroup-name",
    "eks.amazonaws.com/nodegroup",
    "k8s.amazonaws.com/eniConfig",
    "lifecycle",
    "topology.ebs.csi.aws.com/zone",
    "topology.k8s.aws/zone-id",
)
_AZURE_POOL_LABELS = ("kubernetes.azure.com/agentpool", "agentpool")
AZURE_IGNORED_LABELS = (
    *_AZURE_POOL_LABELS,
    "topology.disk.csi.azure.com/zone",
    "aksEngineVersion",
    "creationSource",
    "poolName",
    "resourceNameSuffix",
    "kubernetes.azure.com/node-image-version",
    "kubernetes.azure.com/consolidated-additional-properties",
)

COMPARATOR_IGNORED_LABELS: dict[str, tuple[str, ...]] = {
    "generic": BASIC_IGNORED_LABELS,
    "aws": BASIC_IGNORED_LABELS + AWS_IGNORED_LABELS,
    "azure": BASIC_IGNORED_LABELS + AZURE_IGNORED_LABELS,
    "gce": BASIC_IGNORED_LABELS + GCE_IGNORED_LABELS,
    "label": (),
    "legacy": (
        "kubernetes.io/hostname",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/fluentd-ds-ready",
    ),
}
"""The comparators and the labels each ignores; ``label`` compares a given list of labels and nothing else,
``legacy`` is that of release 1.3."""


class DifferenceRatios(msgspec.Struct, kw_only=True, frozen=True):
    """Maximum difference of two quantities, as a fraction of the larger one (upstream's flags of the same names).

    - ``max_allocatable_difference_ratio``: of every resource that pods can use (``allocatable``).
    - ``max_free_difference_ratio``: of what the template's own pods leave of it.
    - ``memory_difference_ratio``: of the memory of the node's capacity; the rest of the capacity must be equal.
    """

    max_allocatable_difference_ratio: float = 0.05
    max_free_difference_ratio: float = 0.05
    memory_difference_ratio: float = 0.015


class Comparator(msgspec.Struct, kw_only=True, frozen=True):
    """Comparison of node groups: its ``kind`` (a key of :data:`COMPARATOR_IGNORED_LABELS`) and ``ratios``.

    ``ignored_labels`` are ignored in addition to those of the kind (empty: no others); ``labels`` are the only inputs
    of the kind ``label`` (empty: all groups are similar).

    Upstream's default processor is ``Comparator()`` whatever the flags say; only the aws, azure and gce builds read
    ``--balancing-ignore-label`` and the ratio flags. ``--balancing-label`` replaces them all.

    Raises InputError for any other kind.
    """

    kind: str = "generic"
    ratios: DifferenceRatios = DifferenceRatios()
    ignored_labels: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in COMPARATOR_IGNORED_LABELS:
            raise InputError(f"Comparator: no kind {self.kind!r}; there are {', '.join(COMPARATOR_IGNORED_LABELS)}")

    @staticmethod
    def from_options(options: AutoscalingOptions, kind: str = "generic") -> Comparator:
        """Return the comparator of an autoscaler with these options that was built for the provider ``kind``.

        If ``balancing_label`` is set, only these labels are compared and ``kind`` is ignored. Otherwise the kind
        ``generic`` ignores all options. Raises InputError for an unknown kind, unless it is ignored.
        """
        if options.balancing_label:
            return Comparator(kind="label", labels=tuple(options.balancing_label))
        if kind == "generic":
            return Comparator()
        return Comparator(
            kind=kind,
            ratios=DifferenceRatios(
                max_allocatable_difference_ratio=options.max_allocatable_difference_ratio,
                max_free_difference_ratio=options.max_free_difference_ratio,
                memory_difference_ratio=options.memory_difference_ratio,
            ),
            ignored_labels=tuple(options.balancing_ignore_label),
        )


class Similarity(msgspec.Struct, kw_only=True, frozen=True):
    """The verdict; ``reasons`` are the texts of the first comparison that failed (sorted, without repetition).

    Upstream logs one of them: it walks the resources in random order and stops at the first difference.
    """

    similar: bool
    """Whether the groups may share a scale-up."""
    reasons: list[str] = []


_SIMILAR_RESULT = Similarity(similar=True)


class TemplateProfile:
    """Precomputed inputs of a comparison of templates: amounts in milli-units as doubles."""

    __slots__ = ("allocatable", "capacity", "free", "labels")

    def __init__(self, node: Node, pods: Iterable[Pod] = ()) -> None:
        self.capacity: dict[str, Quantity] = node.status.capacity or {}
        allocatable = node.status.allocatable or {}
        self.allocatable = {name: _to_milli(quantity) for name, quantity in allocatable.items()}
        self.free = {
            name: _to_milli(allocatable.get(name, _ZERO_QUANTITY) - requested)
            for name, requested in _sum_requests(pods).items()
        }
        self.labels: dict[str, str] = node.metadata.labels or {}


_ZERO_QUANTITY = Quantity.zero()


def _sum_requests(pods: Iterable[Pod]) -> dict[str, Quantity]:
    """Sum the requests of the pods as the scheduler's NodeInfo does: every pod is rounded up on its own.

    Basic resources are always included ("pods" is never requested), scalar ones if some pod requests them.
    """
    totals = {CPU: 0, MEMORY: 0, PODS: 0, EPHEMERAL_STORAGE: 0}
    for pod in pods:
        for name, amount in to_integers(occupancy(pod)).items():
            totals[name] = wrap_int64(totals.get(name, 0) + amount)
    return {name: Quantity.from_int(total, scale=-3 if name == CPU else 0) for name, total in totals.items()}


def _to_milli(quantity: Quantity) -> float:
    """Return the quantity in thousandths, rounded up."""
    return float(quantity.milli_value())


def _is_within_ratio(one: float, other: float, ratio: float) -> bool:
    """Check whether two amounts differ by at most ``ratio`` times the larger one."""
    larger, smaller = max(one, other), min(one, other)
    # False for a negative pair, even an equal one: its tolerance is negative.
    return larger - smaller <= larger * ratio


def _are_within_ratio(ones: Mapping[str, float], others: Mapping[str, float], ratio: float) -> bool:
    """Check whether both have the same resources, with amounts that differ by at most ``ratio`` of the larger one."""
    return ones.keys() == others.keys() and all(_is_within_ratio(ones[name], others[name], ratio) for name in ones)


def _find_capacity_reasons(one: TemplateProfile, other: TemplateProfile, memory_ratio: float) -> set[str]:
    """Return the texts why the capacities are not similar; empty if they are. Memory may differ by ``memory_ratio``."""
    reasons = set()
    for name in one.capacity.keys() | other.capacity.keys():
        ours, theirs = one.capacity.get(name), other.capacity.get(name)
        if ours is None or theirs is None:
            reasons.add(f'missing capacity "{name}"')
        elif name == MEMORY:
            if not _is_within_ratio(_to_milli(ours), _to_milli(theirs), memory_ratio):
                reasons.add("memory not within tolerance")
        elif ours != theirs:
            reasons.add(f'capacity resource "{name}" does not match')
    return reasons


def _is_same_azure_pool(one: TemplateProfile, other: TemplateProfile) -> bool:
    """Check whether both have the same non-empty name in a label of the Azure node pool."""
    return any(one.labels.get(label, "") == other.labels.get(label) != "" for label in _AZURE_POOL_LABELS)


def _compare_profiles(one: TemplateProfile, other: TemplateProfile, comparator: Comparator) -> Similarity:
    """Compare two profiles by the rules of :func:`compare_templates`."""
    if comparator.kind == "label":
        same = all(
            label in one.labels and label in other.labels and one.labels[label] == other.labels[label]
            for label in comparator.labels
        )
        return Similarity(similar=same)
    if comparator.kind == "azure" and _is_same_azure_pool(one, other):
        return _SIMILAR_RESULT
    ratios = comparator.ratios
    reasons = _find_capacity_reasons(one, other, ratios.memory_difference_ratio)
    if not reasons:
        ignored = {*COMPARATOR_IGNORED_LABELS[comparator.kind], *comparator.ignored_labels}
        if not _are_within_ratio(one.allocatable, other.allocatable, ratios.max_allocatable_difference_ratio):
            reasons = {"allocatable resources not within tolerance"}
        elif not _are_within_ratio(one.free, other.free, ratios.max_free_difference_ratio):
            reasons = {"free resources not within tolerance"}
        elif _filter_labels(one.labels, ignored) != _filter_labels(other.labels, ignored):
            reasons = {"labels do not match"}
    return Similarity(similar=False, reasons=sorted(reasons)) if reasons else _SIMILAR_RESULT


def _filter_labels(labels: Mapping[str, str], ignored: set[str]) -> dict[str, str]:
    """Return the labels without those whose name is in ``ignored``."""
    return {name: value for name, value in labels.items() if name not in ignored}


def _describe_differences(one: TemplateProfile, other: TemplateProfile, comparator: Comparator) -> list[str]:
    """Describe the differences in the first respect in which the templates are not similar.

    With compared labels only these are described; otherwise capacity, allocatable, free resources or labels.
    """

    def differing(ones: Mapping[str, Any], others: Mapping[str, Any], what: str, ratio: float | None) -> list[str]:
        """Describe the entries that differ.

        ``ratio``: how much amounts (in thousandths) may differ, None for equal values.
        """
        differences = []
        for name in sorted(ones.keys() | others.keys()):
            a, b = ones.get(name), others.get(name)
            if a is None or b is None:
                differences.append(f"{what} {name}: {'absent' if a is None else a} and {'absent' if b is None else b}")
            elif ratio is None and a != b:
                differences.append(f"{what} {name}: {a} and {b}")
            elif ratio is not None and not _is_within_ratio(a, b, ratio):
                differences.append(f"{what} {name}: {a / 1000:g} and {b / 1000:g}, more than {ratio:.1%} apart")
        return differences

    if comparator.kind == "label":
        ours, theirs = (
            {key: each.labels[key] for key in comparator.labels if key in each.labels} for each in (one, other)
        )
        absent = [f"label {name}: absent" for name in comparator.labels if name not in ours and name not in theirs]
        return [*differing(ours, theirs, "label", None), *absent]
    ratios = comparator.ratios
    ignored = {*COMPARATOR_IGNORED_LABELS[comparator.kind], *comparator.ignored_labels}

    def amounts(profile: TemplateProfile) -> dict[str, Quantity]:
        return {name: amount for name, amount in profile.capacity.items() if name != MEMORY}

    def memory(profile: TemplateProfile) -> dict[str, float]:
        return {name: _to_milli(amount) for name, amount in profile.capacity.items() if name == MEMORY}

    capacity = differing(amounts(one), amounts(other), "capacity", None)
    capacity += differing(memory(one), memory(other), "capacity", ratios.memory_difference_ratio)
    return (
        capacity
        or differing(one.allocatable, other.allocatable, "allocatable", ratios.max_allocatable_difference_ratio)
        or differing(one.free, other.free, "free", ratios.max_free_difference_ratio)
        or differing(_filter_labels(one.labels, ignored), _filter_labels(other.labels, ignored), "label", None)
    )


@typed
def compare_templates(one: NodeTemplate, other: NodeTemplate, comparator: Comparator | None = None) -> Similarity:
    """Compare whether nodes of the templates ``one`` and ``other`` are similar enough to share a scale-up.

    Without ``comparator`` upstream's default one is used.
    """
    return _compare_profiles(
        TemplateProfile(one.node, one.pods), TemplateProfile(other.node, other.pods), comparator or Comparator()
    )


def find_differences(one: NodeTemplate, other: NodeTemplate, comparator: Comparator | None = None) -> list[str]:
    """Describe how two templates differ by the rules of :func:`compare_templates`; empty for similar templates.

    Each text names a label or resource and its two values, that of ``one`` first. Only the first comparison that fails
    is described.
    """
    comparator = comparator or Comparator()
    ours, theirs = TemplateProfile(one.node, one.pods), TemplateProfile(other.node, other.pods)
    return (
        [] if _compare_profiles(ours, theirs, comparator).similar else _describe_differences(ours, theirs, comparator)
    )


@typed
def find_similar_node_groups(
    group: str,
    groups: Sequence[str],
    templates: Mapping[str, NodeTemplate | TemplateProfile],
    comparator: Comparator | None = None,
) -> list[str]:
    """Find the groups whose templates are similar to that of a group.

    Parameters
    ----------
    group : str
        Id of the group.
    groups : sequence of str
        Ids of all groups, in the provider's order. Groups without template are skipped.
    templates : mapping of str to NodeTemplate or TemplateProfile
        Templates by id. Callers with many groups pass :class:`TemplateProfile` values.
    comparator : Comparator, optional
        Default: upstream's.

    Returns
    -------
    list of str
        Ids of the similar groups in order, without ``group`` itself.

    Raises
    ------
    AutoscalerError
        If ``group`` has no template.
    """
    comparator = comparator or Comparator()
    main = templates.get(group)
    if main is None:
        raise AutoscalerError(INTERNAL_ERROR, f"failed to find template node for node group {group}")
    profile = _to_profile(main)
    similar = []
    for other in groups:
        template = templates.get(other)
        if (
            other != group
            and template is not None
            and _compare_profiles(profile, _to_profile(template), comparator).similar
        ):
            similar.append(other)
    return similar


class SimilarGroups:
    """Results of :func:`find_similar_node_groups` for many groups; compares only groups that agree in everything exact.

    Raises nothing: a group without template has no similar ones here.
    """

    __slots__ = ("_bucket_of", "_comparator", "_profiles")

    def __init__(
        self,
        groups: Sequence[str],
        templates: Mapping[str, NodeTemplate | TemplateProfile],
        comparator: Comparator | None = None,
    ) -> None:
        self._comparator = comparator or Comparator()
        self._profiles = {name: _to_profile(templates[name]) for name in groups if name in templates}
        buckets: dict[object, list[str]] = {}
        self._bucket_of: dict[str, list[str]] = {}
        for name, profile in self._profiles.items():
            self._bucket_of[name] = bucket = buckets.setdefault(self._get_exact_key(profile), [])
            bucket.append(name)

    def _get_exact_key(self, profile: TemplateProfile) -> object:
        """Return a key that is equal for any two similar templates: everything that the comparator compares exactly."""
        comparator = self._comparator
        if comparator.kind == "label":
            return tuple(profile.labels.get(label) for label in comparator.labels)
        if comparator.kind == "azure":
            return None  # nodes of one pool are similar whatever else they are
        ignored = {*COMPARATOR_IGNORED_LABELS[comparator.kind], *comparator.ignored_labels}
        amounts = (None if name == MEMORY else amount for name, amount in profile.capacity.items())
        return (
            frozenset(zip(profile.capacity, amounts, strict=True)),
            frozenset(profile.allocatable),
            frozenset(profile.free),
            frozenset(_filter_labels(profile.labels, ignored).items()),
        )

    def find_similar(self, group: str) -> list[str]:
        """Return the groups similar to ``group``, in the given order, itself excluded; none if it has no template."""
        main = self._profiles.get(group)
        if main is None:
            return []
        return [
            other
            for other in self._bucket_of[group]
            if other != group and _compare_profiles(main, self._profiles[other], self._comparator).similar
        ]


def _to_profile(template: NodeTemplate | TemplateProfile) -> TemplateProfile:
    """Return the profile of a template, or the argument itself if it is a profile."""
    return template if isinstance(template, TemplateProfile) else TemplateProfile(template.node, template.pods)


NOT_READY_REASON: Final = "not ready for scale-up"
BACKOFF_REASON: Final = "in backoff after failed scale-up"
MAX_LIMIT_REACHED_REASON: Final = "max node group size reached"
ATOMIC_LIMIT_REASON: Final = "atomic scale-up exceeds cluster node count limit"


class FilteredGroups(msgspec.Struct, kw_only=True):
    """Groups worth an estimate, in order, and why the others are skipped; ``exceeded``: of those that quotas hold back,
    for which resources.
    """

    valid: list[NodeGroup] = []
    skipped: dict[str, list[str]] = {}
    exceeded: dict[str, list[str]] = {}


def find_not_ready_reason(
    group: NodeGroup,
    state: ClusterStateRegistry,
    now: Moment,
    options: AutoscalingOptions,
    *,
    has_template: bool = True,
) -> str | None:
    """Return why an existing group is not safe to scale up (unhealthy or in back-off); None if it is safe.

    ``has_template``: False if the group had no template when ``state`` was updated, so that no back-off applies.
    """
    if not is_group_healthy(state, group.id, options):
        return NOT_READY_REASON
    return BACKOFF_REASON if get_backoff_status(state, group.id, now, has_template=has_template) is not None else None


def is_within_quotas(tracker: QuotaTracker, group: NodeGroup, node: Node, count: int) -> bool:
    """Check whether ``count`` new nodes stay within all quotas; False if a quota cannot be checked."""
    try:
        return not tracker.check(group, node, count).exceeded
    except AutoscalerError:
        return False


def is_zero_or_max_group(group: NodeGroup, options: AutoscalingOptions) -> bool:
    """Check whether the group may only have no nodes or its maximum. False if its options cannot be read."""
    try:
        return group.options_or(options.node_group_defaults).zero_or_max_node_scaling
    except ProviderError:
        return False


def filter_valid_scale_up_groups(
    groups: Iterable[NodeGroup],
    *,
    templates: Mapping[str, Node],
    tracker: QuotaTracker,
    state: ClusterStateRegistry,
    node_count: int,
    now: Moment,
    options: AutoscalingOptions,
    known_templates: Container[str] | None = None,
) -> FilteredGroups:
    """Separate the groups that can grow from those that cannot. The first failed check is the reason.

    ``templates`` are template nodes by group id; ``node_count`` counts all nodes, including upcoming ones.
    ``known_templates`` are the groups that had a template when the cluster state was updated (None: all had); the
    others are never in back-off.
    """
    result = FilteredGroups()
    for group in groups:
        known = known_templates is None or group.id in known_templates
        reason = find_not_ready_reason(group, state, now, options, has_template=known) if group.exists else None
        if reason is not None:
            skip_reasons = [reason]
        else:
            skip_reasons, quotas = _find_skip_reasons(group, templates, tracker, node_count, options)
            if quotas:
                result.exceeded[group.id] = [name for quota in quotas for name in quota.resources]
        if skip_reasons:
            result.skipped[group.id] = skip_reasons
        else:
            result.valid.append(group)
    return result


def _find_skip_reasons(
    group: NodeGroup, templates: Mapping[str, Node], tracker: QuotaTracker, node_count: int, options: AutoscalingOptions
) -> tuple[list[str], list[ExceededQuota]]:
    """Return why the group cannot grow (empty if it can), and the quotas that it would exceed.

    ``templates``: template nodes by group id; ``node_count``: number of all nodes, including upcoming ones.
    """
    node = templates.get(group.id)
    if group.target_size_error is not None:
        return [NOT_READY_REASON], []
    if group.size >= group.max_size:
        return [MAX_LIMIT_REACHED_REASON], []
    count = 1
    if is_zero_or_max_group(group, options):
        count = group.max_size - group.size
        if options.max_nodes_total != 0 and node_count + count > options.max_nodes_total:
            return [ATOMIC_LIMIT_REASON], []
    if node is None:
        return [NOT_READY_REASON], []
    try:
        quotas = tracker.check(group, node, count).exceeded
    except AutoscalerError:
        return [NOT_READY_REASON], []
    return [quota.message for quota in quotas], list(quotas)


def compute_similar_node_groups(
    group: NodeGroup,
    groups: Groups,
    schedulable: Mapping[str, NDArray[np.bool_]],
    get_similar: Callable[[], SimilarGroups],
    is_safe: Callable[[NodeGroup], bool],
    options: AutoscalingOptions,
) -> list[str]:
    """Return the ids of groups that are similar to ``group``, safe to scale up, and take at least the same pods.

    Empty without ``--balance-similar-node-groups``, if ``group`` takes no pods, or if ``group`` may only have no nodes
    or its maximum. The order is the provider's. ``schedulable``: which equivalence groups of pods each node group
    takes, bool[P] by id; a node group without entry takes none. ``get_similar`` is called only if similarities are
    needed, as they are expensive to compute. ``is_safe`` returns whether a group may scale up.
    """
    mine = schedulable.get(group.id)
    if mine is None or not mine.any():
        return []
    if not options.balance_similar_node_groups or is_zero_or_max_group(group, options):
        return []

    def takes_the_same(name: str) -> bool:
        taken = schedulable.get(name)
        return taken is not None and not (mine & ~taken).any()

    return [
        name
        for name in get_similar().find_similar(group.id)
        if name in groups and takes_the_same(name) and is_safe(groups[name])
    ]


def build_group_size(group: NodeGroup) -> GroupSize:
    """Build the sizes that balancing reads of a group."""
    return GroupSize(id=group.id, target=group.size, max=group.max_size, target_error=group.target_size_error)


def find_sharing_groups(
    best: NodeGroup, similar: Iterable[NodeGroup], *, templates: Mapping[str, Node], tracker: QuotaTracker
) -> list[NodeGroup]:
    """Return the groups that share the new nodes: the best one, and similar ones with a template and room for a node.

    A similar group whose quotas cannot be checked has no room.
    """
    targets = [best]
    for group in similar:
        node = templates.get(group.id)
        if node is not None and is_within_quotas(tracker, group, node, 1):
            targets.append(group)
    return targets


def balance_scale_ups(
    best: NodeGroup,
    similar: Iterable[NodeGroup],
    new_nodes: int,
    *,
    templates: Mapping[str, Node],
    tracker: QuotaTracker,
) -> list[ScaleUpInfo]:
    """Split the new nodes among the best group and its similar groups, and consume the quotas in ``tracker``.

    Returns a resize for each group that grows. Similar groups without template, or without quota for one node, get no
    nodes. Nodes that quotas deny to one group are not moved to another. Raises :class:`AutoscalerError` if a target
    size cannot be read.
    """
    targets = find_sharing_groups(best, similar, templates=templates, tracker=tracker)
    by_id = {group.id: group for group in targets}
    plan = balance_scale_up_between_groups([build_group_size(group) for group in targets], new_nodes)
    capped = (_cap_by_quotas(info, by_id[info.group], templates.get(info.group), tracker) for info in plan)
    return [info for info in capped if info.new != info.current]


def _cap_by_quotas(info: ScaleUpInfo, group: NodeGroup, node: Node | None, tracker: QuotaTracker) -> ScaleUpInfo:
    """Return the resize with as many new nodes as the quotas allow, and consume them in ``tracker``.

    ``node``: template node of the group. Without it, or if a quota cannot be checked, ``info`` is returned unchanged.
    """
    delta = info.new - info.current
    if delta <= 0 or node is None:
        return info
    try:
        allowed = tracker.check(group, node, delta).allowed
        if allowed > 0:
            tracker.consume(group, node, allowed)
    except AutoscalerError:
        return info
    return replace(info, new=info.current + allowed) if allowed < delta else info
