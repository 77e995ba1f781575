"""The flags of ``kscale run cluster-autoscaler``: upstream's, by upstream's names.

Types and defaults are those of :mod:`kscale.ca.options`; here is what help says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

import typer

from kscale.ca.options import AutoscalingOptions, parse_gpu_limits, parse_range
from kscale.cli.go_flags import KLOG_OFF, KLOG_REFUSED, Idle, flags_given_of, read_int
from kscale.cli.options import OptionGroup, fields
from kscale.cli.process_flags import LeaseFlags, ProcessFlags, go_duration
from kscale.errors import InputError, Problem
from kscale.objects.durations import format_duration

__all__ = ["IDLE", "OFF", "REFUSED", "AutoscalerFlags", "AutoscalerLease", "LoopFlags"]

_T = TypeVar("_T")

_LIMITS: Final = {
    "max_nodes_total": "Nodes in the cluster; 0: no limit.",
    "cores_total": "Cores in the cluster, MIN:MAX.",
    "memory_total": "GiB of memory in the cluster, MIN:MAX.",
    "gpu_total": "GPUs in the cluster, TYPE:MIN:MAX. Repeatable.",
    "capacity_quotas_enabled": "CapacityQuota objects limit the cluster, too.",
}
_STATE: Final = {
    "max_total_unready_percentage": "Above this share of unready nodes the cluster is not healthy.",
    "ok_total_unready_count": "... unless there are no more than so many.",
    "max_node_provision_time": "A node must register within this time.",
    "max_node_startup_time": "... and must be ready within this time.",
    "initial_node_group_backoff_duration": "After a failure a group is left alone for so long.",
    "max_node_group_backoff_duration": "... and after failure upon failure never longer than this.",
    "node_group_backoff_reset_timeout": "After this time without a failure, all is forgotten.",
    "force_delete_unregistered_nodes": "Even below a group's minimum.",
    "force_delete_failed_nodes": "Instances that could not be made go even below a group's minimum.",
    "node_info_cache_expire_time": "For how long a template made from a node is good.",
    "enable_graceful_degradation": "Pods that a loop has no time for wait for the next.",
    "pending_pods_batching_timeout": "... which is after this time.",
    "scan_interval": "The longest wait between two loops.",
}
_SCALE_UP: Final = {
    "scale_up_from_zero": "Act when no node is ready, too.",
    "enforce_node_group_min_size": "Groups below their minimum grow.",
    "estimator": "binpacking; basic with --profile legacy only.",
    "expander": "A chain of random, most-pods, least-waste, least-nodes, price, priority, grpc.",
    "grpc_expander_cert": "Certificates that the expander's must be signed by.",
    "grpc_expander_url": "Where the expander listens.",
    "max_nodes_per_scaleup": "At a time, for one group.",
    "max_nodegroup_binpacking_duration": "Time to estimate one group.",
    "max_binpacking_time": "... and all of them.",
    "fastpath_binpacking_enabled": "Estimate many like pods at once.",
    "balance_similar_node_groups": "Like groups grow together.",
    "balancing_ignore_label": "Does not make groups unlike. Repeatable.",
    "balancing_label": "These labels alone make groups like. Repeatable.",
    "memory_difference_ratio": "Groups whose memory differs by more are not like.",
    "max_free_difference_ratio": "... of what is free.",
    "max_allocatable_difference_ratio": "... of what is allocatable.",
    "parallel_scale_up": "Resize the chosen groups side by side.",
    "salvo_scale_up": "Several scale-ups in a loop.",
    "salvo_scale_up_budget": "... within this time.",
    "new_pod_scale_up_delay": "Younger pods wait.",
    "bypassed_scheduler_names": "Their pods count as pending before their scheduler said so. Separated by commas.",
    "allowed_scheduler_names": "Pods of others do not count. Separated by commas.",
    "expendable_pods_priority_cutoff": "Pods of lower priority do not count.",
    "scale_from_unschedulable": "Templates made from cordoned nodes are good.",
    "force_ds": "Templates hold all DaemonSet pods that fit.",
    "scaleup_simulation_for_skipped_node_groups_enabled": "Tell how groups that are left out would have done.",
    "async_node_groups": "Groups are made while the loop goes on.",
    "enable_proactive_scaleup": "Pods that controllers have not made yet count.",
    "pod_injection_limit": "... up to so many.",
    "capacity_buffer_pod_injection_enabled": "Pods of CapacityBuffers that are ready count.",
    "enable_provisioning_requests": "Serve ProvisioningRequests.",
    "provisioning_request_initial_backoff_time": "A request for which nothing was found waits for so long,",
    "provisioning_request_max_backoff_time": "... longer each time, up to this,",
    "provisioning_request_max_backoff_cache_size": "... of which so many requests are remembered; 0: all.",
    "check_capacity_batch_processing": "Several requests that only check capacity in a loop,",
    "check_capacity_provisioning_request_max_batch_size": "... up to so many,",
    "check_capacity_provisioning_request_batch_timebox": "... within this time.",
    "check_capacity_processor_instance": "Only requests that name it in their parameter processorInstance.",
    "enable_dynamic_resource_allocation": "Always.",
    "enable_csi_node_aware_scheduling": "Templates tell how many volumes a node takes.",
}
_TAINTS: Final = {
    "startup_taint": "A node that has it is not ready. Repeatable.",
    "ignore_taint": "The same, by its old name. Repeatable.",
    "status_taint": "Does not count in templates. Repeatable.",
    "startup_taint_prefix": "Of startup taints. Repeatable.",
}
_SCALE_DOWN: Final = {
    "scale_down_enabled": "Delete nodes that are not needed.",
    "scale_down_unready_enabled": "... also those that are not ready.",
    "scale_down_delay_after_add": "Nothing goes so soon after a scale-up.",
    "scale_down_delay_after_delete": "... after a node was deleted.",
    "scale_down_delay_after_failure": "... after a deletion failed.",
    "scale_down_delay_type_local": "These delays hold for a group, not for the cluster.",
    "scale_down_unneeded_time": "How long a node must be unneeded.",
    "scale_down_unready_time": "The same for a node that is not ready.",
    "scale_down_utilization_threshold": "Nodes above this share are not looked at.",
    "scale_down_gpu_utilization_threshold": "The same for nodes with GPUs.",
    "ignore_daemonsets_utilization": "DaemonSet pods count neither as used nor as available.",
    "ignore_mirror_pods_utilization": "The same for mirror pods.",
    "scale_down_non_empty_candidates_count": "So many nodes with pods are looked at in a loop.",
    "scale_down_candidates_pool_ratio": "... beside this share of all nodes,",
    "scale_down_candidates_pool_min_count": "... but at least so many.",
    "scale_down_simulation_timeout": "Time to look at them.",
    "unremovable_node_recheck_timeout": "A node that had to stay is left alone for so long.",
    "max_scale_down_parallelism": "Nodes being deleted at a time.",
    "max_drain_parallelism": "Of these, nodes being drained.",
    "node_deletion_delay_timeout": "How long annotations may delay a deletion.",
    "node_deletion_batcher_interval": "Deletions of a group are gathered for so long.",
    "node_delete_delay_after_taint": "Between the taint and the deletion.",
    "dynamic_node_delete_delay_after_taint_enabled": "... as long as the API server takes.",
    "max_pod_eviction_time": "How long an eviction is tried.",
    "max_graceful_termination_sec": "Pods get no longer to end.",
    "drain_priority_config": "PRIORITY:SECONDS,...: pods end in this order.",
    "cordon_node_before_terminating": "Nodes that go are cordoned.",
    "daemonset_eviction_for_empty_nodes": "DaemonSet pods are evicted from empty nodes.",
    "daemonset_eviction_for_occupied_nodes": "... and from others.",
    "skip_nodes_with_system_pods": "kube-system pods hold their node.",
    "blocking_system_pod_distruption_timeout": "... until they are so old.",
    "skip_nodes_with_local_storage": "Pods with local storage hold their node.",
    "skip_nodes_with_custom_controller_pods": "Pods of controllers that are not Kubernetes' own hold their node.",
    "min_replica_count": "Pods of smaller ReplicaSets hold their node.",
    "max_bulk_soft_taint_count": "Candidates tainted in a loop; 0: none.",
    "max_bulk_soft_taint_time": "... within this time.",
    "node_deletion_candidate_ttl": "For how long such a taint says since when a node is unneeded.",
}
_RELEASE_1_3: Final = {
    "profile": "Whose programs: current, or legacy for release 1.3 of 2018 and 2019 with its flags and defaults.",
    "node_autoprovisioning_enabled": "Create node groups that a scale-up needs, and delete those that nothing needs.",
    "max_autoprovisioned_node_group_count": "Create at most so many groups.",
    "max_empty_bulk_delete": "Delete at most so many empty nodes in a loop.",
}
_WHERE: Final = {
    "namespace": "Of the lease, the status and the priorities.",
    "write_status_configmap": "Show the status in a ConfigMap.",
    "status_config_map_name": "... of this name.",
    "emit_per_nodegroup_metrics": "Gauges of each group.",
    "node_removal_latency_tracking_enabled": "Measure how long nodes that are not needed stay.",
    "max_node_skip_eval_time_tracker_enabled": "Measure how long a node was not looked at.",
}
_PANELS: Final = {
    "Limits": _LIMITS, "Cluster state": _STATE, "Scale-up": _SCALE_UP, "Taints": _TAINTS, "Scale-down": _SCALE_DOWN,
    "Process": _WHERE, "Release 1.3 (--profile legacy)": _RELEASE_1_3,
}  # fmt: skip
_BY_COMMAS: Final = ("bypassed_scheduler_names", "allowed_scheduler_names")
_NO_SUCH_CLOUD: Final = "there is no such cloud provider here"

REFUSED: Final[Mapping[str, str]] = {
    "kube-api-content-type": "objects are read as JSON",
    "cluster-name": _NO_SUCH_CLOUD,
    "regional": _NO_SUCH_CLOUD,
    "nodes": "groups come from the cloud provider",
    "aws-use-static-instance-list": _NO_SUCH_CLOUD,
    "bulk-mig-instances-listing-enabled": _NO_SUCH_CLOUD,
    "gce-concurrent-refreshes": _NO_SUCH_CLOUD,
    "gce-mig-instances-min-refresh-wait-time": _NO_SUCH_CLOUD,
    "profiling": "it is Go's",
    "scheduler-verbosity": "there is no scheduler code that logs",
    "predicate-parallelism": "decisions do not depend on it",
    "enable-inter-pod-affinity-hostname-fast-path": "decisions do not depend on it",
    "feature-gates": "features have flags of their own",
    **KLOG_REFUSED,
}
"""Flags of upstream's and of other commands that would have no effect here, and why."""

OFF: Final = KLOG_OFF | {
    "profiling",
    "regional",
    "aws-use-static-instance-list",
    "bulk-mig-instances-listing-enabled",
}
"""Switches among them that are off by default."""

IDLE: Final[Mapping[str, Idle]] = {"cluster-snapshot-parallelism": Idle("upstream ignores it, too", read_int)}
"""Flags that upstream takes, and that have no effect there, either."""


def _with_options(cls: type[_T]) -> type[_T]:
    """Gives a group a field for every option of a decision."""
    defaults = AutoscalingOptions()
    for panel, texts in _PANELS.items():
        for name, text in texts.items():
            default = getattr(defaults, name)
            kind, shown = _flag(name, default)
            switch = f"--{name.replace('_', '-')}"
            names = f"{switch}/--no-{switch.removeprefix('--')}" if kind is bool else switch
            cls.__annotations__[name] = Annotated[kind, typer.Option(names, help=text, rich_help_panel=panel)]
            setattr(cls, name, shown)
    return dataclass(cls)


def _flag(name: str, default: Any) -> tuple[Any, Any]:
    """The type of a flag, and its default as it is written."""
    if isinstance(default, timedelta):
        return str, format_duration(default // timedelta(microseconds=1) * 1000)
    if isinstance(default, list):
        return (str, "") if name in _BY_COMMAS else (list[str] | None, None)
    if name in ("cores_total", "memory_total"):
        return str, f"{default.min}:{default.max}"
    return type(default), default


@_with_options
class LoopFlags(OptionGroup):
    """What the decisions of a loop go by: fields named as those of :class:`kscale.ca.AutoscalingOptions`."""

    def options(self) -> AutoscalingOptions:
        """As options. Raises InputError for what upstream refuses at start-up, with its texts, and for flags that the
        release of the profile does not have."""
        defaults = AutoscalingOptions()
        written = {name: getattr(self, name) for name in fields(type(self))}
        profile = written.pop("profile")
        values = {name: _read(name, value, getattr(defaults, name)) for name, value in written.items()}
        typed = {flag.removeprefix("--").replace("-", "_") for flag in flags_given_of(self)}
        given = {name: value for name, value in values.items() if name in typed or value != getattr(defaults, name)}
        options = AutoscalingOptions.for_profile(profile, **given)
        problems = options.problems() + options.misplaced(profile, given)
        if problems:
            raise InputError([Problem(each.message, field=f"--{each.field.replace('_', '-')}") for each in problems])
        return options


def _read(name: str, value: Any, default: Any) -> Any:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(default, timedelta):
        return go_duration(value, flag)
    try:
        if name in ("cores_total", "memory_total"):
            return parse_range(value)
        if name == "gpu_total":
            return [parse_gpu_limits(text) for text in value or ()]
    except InputError as error:
        raise InputError(Problem(f"Failed to parse flags: {error}", field=flag)) from None
    if name in _BY_COMMAS:
        return [each for each in value.split(",") if each]
    return list(value or ()) if isinstance(default, list) else value


_LOOP: Final = "Loop"


@dataclass
class AutoscalerFlags(ProcessFlags):
    """What the process is told."""

    kubernetes: Annotated[
        str, typer.Option("--kubernetes", metavar="URL", help="Another API server than the kubeconfig's.")
    ] = ""
    kube_client_qps: Annotated[float, typer.Option("--kube-client-qps", help="Requests a second.")] = 5.0
    kube_client_burst: Annotated[int, typer.Option("--kube-client-burst", help="... and at once.")] = 10
    user_agent: Annotated[str, typer.Option("--user-agent", help="Who we say we are.")] = "cluster-autoscaler"
    cloud_provider: Annotated[
        str, typer.Option("--cloud-provider", metavar="NAME", help="externalgrpc, kwok, clusterapi, or static.")
    ] = "kwok"
    cloud_config: Annotated[
        str,
        typer.Option(
            "--cloud-config",
            metavar="FILE",
            help="externalgrpc: its settings; clusterapi: kubeconfig of the management cluster; static: node groups.",
        ),
    ] = ""
    static_sizes: Annotated[
        str,
        typer.Option(
            "--static-sizes",
            metavar="FILE",
            help="static: where the sizes are written that groups shall have; who creates machines reads them there.",
        ),
    ] = ""
    clusterapi_cloud_config_authoritative: Annotated[
        bool,
        typer.Option(
            "--clusterapi-cloud-config-authoritative/--no-clusterapi-cloud-config-authoritative",
            help="Without --cloud-config the management cluster is the one that this pod runs in.",
        ),
    ] = False
    node_group_auto_discovery: Annotated[
        list[str] | None,
        typer.Option(
            "--node-group-auto-discovery",
            metavar="clusterapi:KEY=VALUE,...",
            help="Which groups: namespace, clusterName, or labels. Repeatable.",
        ),
    ] = None
    record_duplicated_events: Annotated[
        bool, typer.Option("--record-duplicated-events/--no-record-duplicated-events", help="Send every event.")
    ] = False
    capacity_buffer_controller_enabled: Annotated[
        bool,
        typer.Option(
            "--capacity-buffer-controller-enabled/--no-capacity-buffer-controller-enabled",
            help="Work out what pods CapacityBuffers are.",
            rich_help_panel=_LOOP,
        ),
    ] = False
    capacity_buffer_pod_dry_run_enabled: Annotated[
        bool,
        typer.Option(
            "--capacity-buffer-pod-dry-run-enabled/--no-capacity-buffer-pod-dry-run-enabled",
            help="... asking the API server what it would make of them.",
            rich_help_panel=_LOOP,
        ),
    ] = True
    frequent_loops_enabled: Annotated[
        bool,
        typer.Option(
            "--frequent-loops-enabled/--no-frequent-loops-enabled",
            help="A loop begins when a pod waits, and after one that did something.",
            rich_help_panel=_LOOP,
        ),
    ] = True
    scheduler_config_file: Annotated[
        str,
        typer.Option(
            "--scheduler-config-file", metavar="FILE", help="Its KubeSchedulerConfiguration.", rich_help_panel=_LOOP
        ),
    ] = ""
    debugging_snapshot_enabled: Annotated[
        bool,
        typer.Option(
            "--debugging-snapshot-enabled/--no-debugging-snapshot-enabled",
            help="Serve /snapshotz: what the next loop goes by, without values of environments and annotations.",
        ),
    ] = False
    max_inactivity: Annotated[
        str, typer.Option("--max-inactivity", help="Without a loop, then not healthy.", rich_help_panel=_LOOP)
    ] = "10m"
    max_failing_time: Annotated[
        str, typer.Option("--max-failing-time", help="Without a loop that ended well.", rich_help_panel=_LOOP)
    ] = "15m"
    max_startup_time: Annotated[
        str, typer.Option("--max-startup-time", help="Until the first such loop.", rich_help_panel=_LOOP)
    ] = "20m"


@dataclass
class AutoscalerLease(LeaseFlags):
    """The lease stands in ``--namespace``, whatever ``--leader-elect-resource-namespace`` says."""

    leader_elect_resource_name: Annotated[
        str, typer.Option("--leader-elect-resource-name", help="The lease.", rich_help_panel="Leader election")
    ] = "cluster-autoscaler"
