"""Every option of the Cluster Autoscaler, with upstream's flag names in snake_case and upstream's defaults.

Durations are :class:`datetime.timedelta`. Upstream documents what each option does. Options that only concern a
running process (addresses, leases, logging) belong to the drivers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

import msgspec

from kscale.errors import InputError, Problem
from kscale.imports import lazy_pattern
from kscale.objects.argument_types import check_fields
from kscale.objects.go_numbers import parse_int64, wrap_int32
from kscale.objects.nodegroup import NodeGroupAutoscalingOptions

__all__ = [
    "CURRENT_PROFILE",
    "LEGACY_DEFAULTS",
    "LEGACY_FLAGS",
    "LEGACY_ONLY_OPTIONS",
    "LEGACY_PROFILE",
    "PROFILES",
    "AutoscalingOptions",
    "DrainPriority",
    "GpuLimits",
    "ResourceLimiter",
    "ResourceRange",
    "ScaleDownOptions",
    "ScaleUpOptions",
    "default_options",
    "fits_int64",
    "parse_drain_priority_config",
    "parse_gpu_limits",
    "parse_range",
]

CURRENT_PROFILE = "current"
LEGACY_PROFILE = "legacy"
PROFILES = (CURRENT_PROFILE, LEGACY_PROFILE)

LEGACY_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {"expander": "random", "expendable_pods_priority_cutoff": 0, "scale_down_delay_after_delete": timedelta(seconds=10)}
)
"""Options whose default was another one in release 1.3."""

LEGACY_ONLY_OPTIONS = ("node_autoprovisioning_enabled", "max_autoprovisioned_node_group_count", "max_empty_bulk_delete")
"""Options that have an effect in release 1.3 only."""

LEGACY_FLAGS = frozenset(
    {
        "namespace", "scale_down_enabled", "scale_down_delay_after_add", "scale_down_delay_after_delete",
        "scale_down_delay_after_failure", "scale_down_unneeded_time", "scale_down_unready_time",
        "scale_down_utilization_threshold", "scan_interval", "max_nodes_total", "scale_down_non_empty_candidates_count",
        "scale_down_candidates_pool_ratio", "scale_down_candidates_pool_min_count", "cores_total", "memory_total",
        "gpu_total", "max_graceful_termination_sec", "max_total_unready_percentage", "ok_total_unready_count",
        "max_node_provision_time", "estimator", "expander", "write_status_configmap", "balance_similar_node_groups",
        "expendable_pods_priority_cutoff", "skip_nodes_with_system_pods", "skip_nodes_with_local_storage",
        "min_replica_count", *LEGACY_ONLY_OPTIONS,
    }
)  # fmt: skip
"""Options that release 1.3 has a flag for."""

GIB = 1 << 30
_INTEGER_PATTERN = lazy_pattern(r"[+-]?[0-9]+\Z")


def fits_int64(number: int) -> bool:
    """Return whether the number fits Go's int64, like every amount of a flag."""
    return -(1 << 63) <= number < 1 << 63


class ResourceRange(msgspec.Struct, frozen=True):
    """A ``min:max`` pair of a flag."""

    min: int
    max: int


class GpuLimits(msgspec.Struct, frozen=True):
    """One ``--gpu-total``: the GPU type (value of the provider's GPU label) and how many devices of it."""

    type: str
    min: int
    max: int


class ResourceLimiter(msgspec.Struct, kw_only=True):
    """Cluster-wide limits of the cloud provider: resource -> amount (cpu in cores, memory in bytes, GPUs by type).

    ``max``: how much of it the cluster may have after a scale-up; ``min``: how much of it scale-down leaves at least. A
    resource without entry is not limited; an entry of 0 in ``max`` allows nothing (to the legacy profile it is none).
    """

    min: dict[str, int] = msgspec.field(default_factory=dict)
    max: dict[str, int] = msgspec.field(default_factory=dict)


class DrainPriority(msgspec.Struct, frozen=True):
    """Pods of this priority and above (up to the next entry) get this many seconds to shut down."""

    priority: int
    shutdown_grace_period_seconds: int


class AutoscalingOptions(msgspec.Struct, kw_only=True, frozen=True, dict=True):
    """All options of a Cluster Autoscaler decision: upstream's flags of the same names, with its defaults.

    ``profile`` changes no other option: :meth:`for_profile` also takes the defaults of that release.

    Attributes
    ----------
    profile
        Release whose decision it is: ``current``, or ``legacy`` for release 1.3 of 2019.
    max_nodes_total
        Maximum number of nodes in the cluster; 0: no limit.
    cores_total
        Minimum and maximum number of cores in the cluster, MIN:MAX.
    memory_total
        Minimum and maximum GiB of memory in the cluster, MIN:MAX.
    gpu_total
        Minimum and maximum number of GPUs of a type in the cluster, TYPE:MIN:MAX. Repeatable.
    capacity_quotas_enabled
        Also limit the cluster by CapacityQuota objects.
    max_total_unready_percentage
        Share of unready nodes, in percent, above which the cluster is not healthy.
    ok_total_unready_count
        Number of unready nodes up to which the cluster counts as healthy, whatever their share.
    max_node_provision_time
        Time within which a new node must register.
    max_node_startup_time
        Time within which a registered node must become ready.
    initial_node_group_backoff_duration
        How long a group is not scaled up after its first failure.
    max_node_group_backoff_duration
        Longest time that a group is not scaled up after repeated failures.
    node_group_backoff_reset_timeout
        Time without a failure after which the backoff of a group starts anew.
    force_delete_unregistered_nodes
        Delete instances that never registered even if the group falls below its minimum size.
    force_delete_failed_nodes
        Delete instances whose creation failed even if the group falls below its minimum size.
    node_info_cache_expire_time
        How long a template that was made from a node is used.
    enable_graceful_degradation
        Leave pods for which a loop has no time to the next loop.
    pending_pods_batching_timeout
        Wait before the next loop after one that had no time for all pods.
    scan_interval
        Longest time between the starts of two loops.
    predicate_parallelism
        Accepted as upstream's flag; decisions here are those of 1 whatever it says.
    scale_up_from_zero
        Also scale up while no node of the cluster is ready.
    enforce_node_group_min_size
        Scale groups that are below their minimum size up to it.
    estimator
        Estimator of node counts: binpacking; basic with --profile legacy only.
    expander
        How to choose a node group: random, most-pods, least-waste, least-nodes, price, priority or grpc, or a
        list of them.
    grpc_expander_cert
        PEM file of the certificates that the gRPC expander's server certificate is checked against.
    grpc_expander_url
        Address of the gRPC expander's server.
    max_nodes_per_scaleup
        Maximum number of nodes that one scale-up adds to a group.
    max_nodegroup_binpacking_duration
        Time limit for estimating one node group.
    max_binpacking_time
        Time limit for estimating all node groups of one loop.
    fastpath_binpacking_enabled
        Estimate large numbers of equal pods by arithmetic instead of one by one.
    balance_similar_node_groups
        Spread new nodes over similar node groups.
    balancing_ignore_label
        Label that is ignored when node groups are compared for similarity. Repeatable.
    balancing_label
        Label that alone decides whether node groups are similar. Repeatable.
    memory_difference_ratio
        Largest relative difference in memory between similar node groups.
    max_free_difference_ratio
        Largest relative difference in free resources between similar node groups.
    max_allocatable_difference_ratio
        Largest relative difference in allocatable resources between similar node groups.
    parallel_scale_up
        Resize the chosen node groups in parallel.
    salvo_scale_up
        Do several scale-ups in one loop.
    salvo_scale_up_budget
        Time limit for all scale-ups of one loop.
    new_pod_scale_up_delay
        Age below which pods do not cause a scale-up.
    bypassed_scheduler_names
        Schedulers whose pods count as pending before the scheduler has tried them, separated by commas.
    allowed_scheduler_names
        Schedulers whose pods count, separated by commas; pods of other schedulers are ignored.
    expendable_pods_priority_cutoff
        Priority below which pods neither cause a scale-up nor keep a node.
    scale_from_unschedulable
        Also make templates from cordoned nodes.
    force_ds
        Put all suitable DaemonSet pods into the templates of new nodes.
    scaleup_simulation_for_skipped_node_groups_enabled
        Also report how many pods the skipped node groups would have helped.
    async_node_groups
        Create node groups in the background, while loops go on.
    enable_proactive_scaleup
        Also count pods that controllers have not created yet.
    pod_injection_limit
        Maximum number of pending pods up to which not yet created pods are added.
    capacity_buffer_pod_injection_enabled
        Count the pods of ready CapacityBuffers as pending.
    enable_provisioning_requests
        Serve ProvisioningRequests.
    provisioning_request_initial_backoff_time
        Wait before a ProvisioningRequest without capacity is tried again.
    provisioning_request_max_backoff_time
        Longest wait before a ProvisioningRequest is tried again; the wait grows each time.
    provisioning_request_max_backoff_cache_size
        Number of ProvisioningRequests whose wait is remembered; 0: all.
    check_capacity_batch_processing
        Process several check-capacity ProvisioningRequests in one loop.
    check_capacity_provisioning_request_max_batch_size
        Maximum number of check-capacity ProvisioningRequests in one loop.
    check_capacity_provisioning_request_batch_timebox
        Time limit for the check-capacity ProvisioningRequests of one loop.
    check_capacity_processor_instance
        Process only check-capacity ProvisioningRequests whose parameter processorInstance has this value.
    enable_dynamic_resource_allocation
        Enable dynamic resource allocation. It is always on; the flag is accepted for compatibility.
    enable_csi_node_aware_scheduling
        Take the volume limits of CSI drivers into account, on new nodes too.
    startup_taint
        Taint that a node has while it starts: such a node is not ready. Repeatable.
    ignore_taint
        Old name of --startup-taint. Repeatable.
    status_taint
        Taint that is left out of templates of new nodes. Repeatable.
    startup_taint_prefix
        Prefix of the keys of startup taints. Repeatable.
    scale_down_enabled
        Delete nodes that are not needed.
    scale_down_unready_enabled
        Also delete unneeded nodes that are not ready.
    scale_down_delay_after_add
        Time after a scale-up during which no node is deleted.
    scale_down_delay_after_delete
        Time after a deletion during which no further node is deleted.
    scale_down_delay_after_failure
        Time after a failed deletion during which no node is deleted.
    scale_down_delay_type_local
        Apply the delays after scale-ups and deletions to each node group instead of the whole cluster.
    scale_down_unneeded_time
        How long a node must be unneeded before it is deleted.
    scale_down_unready_time
        How long a node that is not ready must be unneeded before it is deleted.
    scale_down_utilization_threshold
        Utilization up to which a node is considered for removal.
    scale_down_gpu_utilization_threshold
        GPU utilization up to which a node with GPUs is considered for removal.
    ignore_daemonsets_utilization
        Leave DaemonSet pods out of a node's utilization.
    ignore_mirror_pods_utilization
        Leave mirror pods out of a node's utilization.
    scale_down_non_empty_candidates_count
        Maximum number of nodes with pods whose removal one loop simulates.
    scale_down_candidates_pool_ratio
        Share of all nodes that one loop considers as further candidates for removal.
    scale_down_candidates_pool_min_count
        Minimum number of nodes that one loop considers as further candidates for removal.
    scale_down_simulation_timeout
        Time limit for simulating removals in one loop.
    unremovable_node_recheck_timeout
        How long a node that cannot be removed is not checked again.
    max_scale_down_parallelism
        Maximum number of nodes that are deleted at a time.
    max_drain_parallelism
        Maximum number of nodes that are drained at a time.
    node_deletion_delay_timeout
        How long annotations of a node may delay its deletion.
    node_deletion_batcher_interval
        How long deletions of one node group are collected before they are requested.
    node_delete_delay_after_taint
        Wait between tainting a node and deleting it.
    dynamic_node_delete_delay_after_taint_enabled
        Adapt the wait between taint and deletion to the latency of the API server.
    max_pod_eviction_time
        How long the eviction of a pod is retried.
    max_graceful_termination_sec
        Longest grace period, in seconds, that an evicted pod gets.
    drain_priority_config
        Grace periods by pod priority, in the order of eviction: PRIORITY:SECONDS,...
    cordon_node_before_terminating
        Cordon nodes before they are deleted.
    daemonset_eviction_for_empty_nodes
        Evict DaemonSet pods from empty nodes before they are deleted.
    daemonset_eviction_for_occupied_nodes
        Evict DaemonSet pods from drained nodes before they are deleted.
    skip_nodes_with_system_pods
        Keep nodes with kube-system pods.
    blocking_system_pod_distruption_timeout
        Age after which kube-system pods no longer keep their node (upstream's spelling).
    skip_nodes_with_local_storage
        Keep nodes with pods that use local storage.
    skip_nodes_with_custom_controller_pods
        Keep nodes with pods whose controller is not one of Kubernetes' own.
    min_replica_count
        Minimum number of replicas of a ReplicaSet. Pods of smaller ones keep their node.
    max_bulk_soft_taint_count
        Maximum number of candidates for deletion that one loop taints; 0: none.
    max_bulk_soft_taint_time
        Time limit for tainting candidates for deletion in one loop.
    node_deletion_candidate_ttl
        How long the taint of a candidate for deletion is trusted after a restart.
    node_removal_latency_tracking_enabled
        Export a metric of how long unneeded nodes stay.
    max_node_skip_eval_time_tracker_enabled
        Export a metric of the longest time for which a node was not considered for removal.
    node_autoprovisioning_enabled
        Create node groups that a scale-up needs, and delete those that nothing needs.
    max_autoprovisioned_node_group_count
        Maximum number of groups that are created.
    max_empty_bulk_delete
        Maximum number of empty nodes that are deleted at a time.
    namespace
        Namespace of the lease, the status ConfigMap and the priority expander's ConfigMap.
    write_status_configmap
        Write the status to a ConfigMap.
    status_config_map_name
        Name of the status ConfigMap.
    emit_per_nodegroup_metrics
        Export metrics of each node group.
    """

    profile: str = CURRENT_PROFILE

    # Limits
    max_nodes_total: int = 0
    cores_total: ResourceRange = ResourceRange(0, 320_000)
    memory_total: ResourceRange = ResourceRange(0, 6_400_000)
    gpu_total: list[GpuLimits] = msgspec.field(default_factory=list)
    capacity_quotas_enabled: bool = False

    # Cluster state
    max_total_unready_percentage: float = 45.0
    ok_total_unready_count: int = 3
    max_node_provision_time: timedelta = timedelta(minutes=15)
    max_node_startup_time: timedelta = timedelta(minutes=15)
    initial_node_group_backoff_duration: timedelta = timedelta(minutes=5)
    max_node_group_backoff_duration: timedelta = timedelta(minutes=30)
    node_group_backoff_reset_timeout: timedelta = timedelta(hours=3)
    force_delete_unregistered_nodes: bool = False
    force_delete_failed_nodes: bool = False
    node_info_cache_expire_time: timedelta = timedelta(hours=87_600)
    enable_graceful_degradation: bool = False
    pending_pods_batching_timeout: timedelta = timedelta(minutes=4)
    scan_interval: timedelta = timedelta(seconds=10)
    predicate_parallelism: int = 4

    # Scale-up
    scale_up_from_zero: bool = True
    enforce_node_group_min_size: bool = False
    estimator: str = "binpacking"
    expander: str = "least-waste"
    grpc_expander_cert: str = ""
    grpc_expander_url: str = ""
    max_nodes_per_scaleup: int = 1000
    max_nodegroup_binpacking_duration: timedelta = timedelta(seconds=10)
    max_binpacking_time: timedelta = timedelta(minutes=5)
    fastpath_binpacking_enabled: bool = False
    balance_similar_node_groups: bool = False
    balancing_ignore_label: list[str] = msgspec.field(default_factory=list)
    balancing_label: list[str] = msgspec.field(default_factory=list)
    memory_difference_ratio: float = 0.015
    max_free_difference_ratio: float = 0.05
    max_allocatable_difference_ratio: float = 0.05
    parallel_scale_up: bool = False
    salvo_scale_up: bool = False
    salvo_scale_up_budget: timedelta = timedelta(minutes=1)
    new_pod_scale_up_delay: timedelta = timedelta()
    bypassed_scheduler_names: list[str] = msgspec.field(default_factory=list)
    allowed_scheduler_names: list[str] = msgspec.field(default_factory=list)
    expendable_pods_priority_cutoff: int = -10
    scale_from_unschedulable: bool = False
    force_ds: bool = False
    scaleup_simulation_for_skipped_node_groups_enabled: bool = False
    async_node_groups: bool = False
    enable_proactive_scaleup: bool = False
    pod_injection_limit: int = 5000
    capacity_buffer_pod_injection_enabled: bool = False
    enable_provisioning_requests: bool = False
    provisioning_request_initial_backoff_time: timedelta = timedelta(minutes=1)
    provisioning_request_max_backoff_time: timedelta = timedelta(minutes=10)
    provisioning_request_max_backoff_cache_size: int = 1000
    check_capacity_batch_processing: bool = False
    check_capacity_provisioning_request_max_batch_size: int = 10
    check_capacity_provisioning_request_batch_timebox: timedelta = timedelta(seconds=10)
    check_capacity_processor_instance: str = ""
    enable_dynamic_resource_allocation: bool = True
    enable_csi_node_aware_scheduling: bool = False

    # Taints
    startup_taint: list[str] = msgspec.field(default_factory=list)
    ignore_taint: list[str] = msgspec.field(default_factory=list)
    status_taint: list[str] = msgspec.field(default_factory=list)
    startup_taint_prefix: list[str] = msgspec.field(default_factory=list)

    # Scale-down
    scale_down_enabled: bool = True
    scale_down_unready_enabled: bool = True
    scale_down_delay_after_add: timedelta = timedelta(minutes=10)
    scale_down_delay_after_delete: timedelta = timedelta()
    scale_down_delay_after_failure: timedelta = timedelta(minutes=3)
    scale_down_delay_type_local: bool = False
    scale_down_unneeded_time: timedelta = timedelta(minutes=10)
    scale_down_unready_time: timedelta = timedelta(minutes=20)
    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    ignore_daemonsets_utilization: bool = False
    ignore_mirror_pods_utilization: bool = False
    scale_down_non_empty_candidates_count: int = 30
    scale_down_candidates_pool_ratio: float = 0.1
    scale_down_candidates_pool_min_count: int = 50
    scale_down_simulation_timeout: timedelta = timedelta(seconds=30)
    unremovable_node_recheck_timeout: timedelta = timedelta(minutes=5)
    max_scale_down_parallelism: int = 10
    max_drain_parallelism: int = 1
    node_deletion_delay_timeout: timedelta = timedelta(minutes=2)
    node_deletion_batcher_interval: timedelta = timedelta()
    node_delete_delay_after_taint: timedelta = timedelta(seconds=5)
    dynamic_node_delete_delay_after_taint_enabled: bool = False
    max_pod_eviction_time: timedelta = timedelta(minutes=2)
    max_graceful_termination_sec: int = 600
    drain_priority_config: str = ""
    cordon_node_before_terminating: bool = True
    daemonset_eviction_for_empty_nodes: bool = False
    daemonset_eviction_for_occupied_nodes: bool = True
    skip_nodes_with_system_pods: bool = True
    blocking_system_pod_distruption_timeout: timedelta = timedelta(hours=1)  # upstream's spelling
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    min_replica_count: int = 0
    max_bulk_soft_taint_count: int = 10
    max_bulk_soft_taint_time: timedelta = timedelta(seconds=3)
    node_deletion_candidate_ttl: timedelta = timedelta()
    node_removal_latency_tracking_enabled: bool = False
    max_node_skip_eval_time_tracker_enabled: bool = False

    # LEGACY_ONLY
    node_autoprovisioning_enabled: bool = False
    max_autoprovisioned_node_group_count: int = 15
    max_empty_bulk_delete: int = 10

    # Where it runs
    namespace: str = "kube-system"
    write_status_configmap: bool = True
    status_config_map_name: str = "cluster-autoscaler-status"
    emit_per_nodegroup_metrics: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def for_profile(cls, profile: str, **options: Any) -> AutoscalingOptions:
        """Build options with the defaults of the profile's release for those that are not in ``options``.

        :meth:`problems` reports an unknown profile.
        """
        return cls(**{**(LEGACY_DEFAULTS if profile == LEGACY_PROFILE else {}), **options, "profile": profile})

    @property
    def legacy(self) -> bool:
        """Return whether the profile is that of release 1.3."""
        return self.profile == LEGACY_PROFILE

    @property
    def counts_requested_capacity(self) -> bool:
        """Return whether capacity can be requested without pods: by capacity buffers or ProvisioningRequests."""
        return self.capacity_buffer_pod_injection_enabled or self.enable_provisioning_requests

    @cached_property
    def node_group_defaults(self) -> NodeGroupAutoscalingOptions:
        """Return the options that apply to groups without own options. Zero-or-max scaling has no flag and is off."""
        names = NodeGroupAutoscalingOptions.__struct_fields__
        return NodeGroupAutoscalingOptions(**{name: getattr(self, name) for name in names if hasattr(self, name)})

    @property
    def resource_limiter(self) -> ResourceLimiter:
        """Return the cluster-wide limits of the flags; memory converted to bytes."""
        limiter = ResourceLimiter(
            min={"cpu": self.cores_total.min, "memory": self.memory_total.min * GIB},
            max={"cpu": self.cores_total.max, "memory": self.memory_total.max * GIB},
        )
        for gpu in self.gpu_total:
            limiter.min[gpu.type] = gpu.min
            limiter.max[gpu.type] = gpu.max
        return limiter

    @property
    def expander_names(self) -> list[str]:
        """Return the names of the expanders in the order of the chain."""
        return self.expander.split(",")

    @staticmethod
    def find_foreign_options(profile: str, names: Iterable[str]) -> list[Problem]:
        """Return a problem for each option in ``names`` that the release of the profile has no flag for.

        ``names`` are the options that a user has set; all other options have no effect if the release lacks them.
        """
        if profile == LEGACY_PROFILE:
            text, wrong = "release 1.3 has no such flag", {*names} - LEGACY_FLAGS - {"profile"}
        else:
            text, wrong = "it belongs to release 1.3 (--profile legacy)", {*names} & {*LEGACY_ONLY_OPTIONS}
        return [Problem(text, field=name) for name in sorted(wrong)]

    def problems(self) -> list[Problem]:
        """Return the problems of the options, with the option's name as field.

        There are three kinds: problems for which upstream refuses to start (with its messages), an unknown profile,
        and numbers of more than 64 bits.
        """
        problems = []
        if self.profile not in PROFILES:
            text = f"unknown profile {self.profile!r}; there are {', '.join(PROFILES)}"
            problems.append(Problem(text, field="profile"))
        if self.predicate_parallelism < 1:
            text = f"Invalid value for --predicate-parallelism flag: {self.predicate_parallelism}"
            problems.append(Problem(text, field="predicate_parallelism"))
        if not self.enable_dynamic_resource_allocation:
            text = "--enable-dynamic-resource-allocation flag must be true: false"
            problems.append(Problem(text, field="enable_dynamic_resource_allocation"))
        if self.estimator not in (("binpacking", "basic") if self.legacy else ("binpacking",)):
            word = "Unrecognized" if self.legacy else "Unknown"
            problems.append(Problem(f"{word} estimator: {self.estimator}", field="estimator"))
        if self.allowed_scheduler_names:
            for name in self.bypassed_scheduler_names:
                if name not in self.allowed_scheduler_names:
                    text = (
                        "Invalid configuration. --bypassed-scheduler-names should be a subset of "
                        f"--allowed-scheduler-names. {name} not included in --allowed-scheduler-names"
                    )
                    problems.append(Problem(text, field="bypassed_scheduler_names"))
        if self.drain_priority_config:
            if self.max_graceful_termination_sec != 600:
                text = (
                    "Invalid configuration, could not use --drain-priority-config together with "
                    "--max-graceful-termination-sec"
                )
                problems.append(Problem(text, field="drain_priority_config"))
            elif not parse_drain_priority_config(self.drain_priority_config):
                text = "Invalid configuration, parsing --drain-priority-config"
                problems.append(Problem(text, field="drain_priority_config"))
        problems += self._range_problems()
        problems += [
            Problem(f"{number} is more than 64 bits hold", field=name)
            for name in self.__struct_fields__
            if isinstance(number := getattr(self, name), int) and not fits_int64(number)
        ]
        return problems

    def _range_problems(self) -> Iterable[Problem]:
        """Yield the problems of ``cores_total``, ``memory_total`` and ``gpu_total``."""
        for name in ("cores_total", "memory_total"):
            limits: ResourceRange = getattr(self, name)
            if not (fits_int64(limits.min) and fits_int64(limits.max)):
                yield Problem(f"{limits.min}:{limits.max} is more than 64 bits hold", field=name)
            if limits.min < 0:
                yield Problem("min size must be greater or equal to  0", field=name)
            elif limits.max < limits.min:
                yield Problem("max size must be greater or equal to min size", field=name)
        for gpu in self.gpu_total:
            text = f"{gpu.type}:{gpu.min}:{gpu.max}"
            try:
                parse_gpu_limits(text)
            except InputError as error:
                yield Problem(str(error), field="gpu_total")


@cache
def default_options() -> AutoscalingOptions:
    """Return the options with all defaults: always the same object, so that it is validated only once."""
    return AutoscalingOptions()


ScaleUpOptions = AutoscalingOptions
ScaleDownOptions = AutoscalingOptions


def parse_range(text: str) -> ResourceRange:
    """Parse ``min:max`` of ``--cores-total`` and ``--memory-total``.

    Raises :class:`InputError` with upstream's text if the text has another form, if a number is outside of int64, or if
    not 0 <= min <= max.
    """
    parts = text.split(":")
    if len(parts) != 2:
        raise InputError(f"wrong nodes configuration: {text}")
    for what, part in zip(("min", "max"), parts, strict=True):
        if parse_int64(part) is None:
            reason = "value out of range" if _INTEGER_PATTERN.match(part) else "invalid syntax"
            text = f'strconv.Atoi: parsing "{part}": {reason}'
            raise InputError(f"failed to set {what} size: {part}, expected integer, err: {text}")
    low, high = (parse_int64(part) or 0 for part in parts)
    if low < 0:
        raise InputError("min size must be greater or equal to  0")
    if high < low:
        raise InputError("max size must be greater or equal to min size")
    return ResourceRange(low, high)


def parse_gpu_limits(text: str) -> GpuLimits:
    """Parse ``type:min:max`` of ``--gpu-total``.

    Raises :class:`InputError` with upstream's text if the text has another form, if a number is outside of int64, or if
    not 0 <= min <= max.
    """
    parts = text.split(":")
    if len(parts) != 3:
        raise InputError(f"incorrect gpu limit specification: {text}")
    for what, part in zip(("min", "max"), parts[1:], strict=True):
        if parse_int64(part) is None:
            raise InputError(f"incorrect gpu limit - {what} is not integer: {part}")
    low, high = (parse_int64(part) or 0 for part in parts[1:])
    if low < 0:
        raise InputError(f"incorrect gpu limit - min is less than 0; {text}")
    if high < 0:
        raise InputError(f"incorrect gpu limit - max is less than 0; {text}")
    if low > high:
        raise InputError(f"incorrect gpu limit - min is greater than max; {text}")
    return GpuLimits(parts[0], low, high)


def parse_drain_priority_config(text: str) -> list[DrainPriority]:
    """Parse ``priority:seconds,...`` in the given order; empty if any part is malformed, as in upstream.

    A number outside of int64 is malformed. Priorities wrap around to int32.
    """
    priorities = []
    for part in text.split(","):
        numbers = [parse_int64(number) for number in part.split(":")]
        if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
            return []
        priorities.append(DrainPriority(wrap_int32(numbers[0]), numbers[1]))
    return priorities
