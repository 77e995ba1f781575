"""The flags of ``kscale run cluster-autoscaler``, with upstream's names.

Types and defaults come from :mod:`kscale.ca.options`; this module adds the help texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

import typer

from kscale.ca.options import AutoscalingOptions, parse_gpu_limits, parse_range
from kscale.cli.go_flags import KLOG_IDLE, Idle, flags_given_of, idle_switches, idle_texts, read_int
from kscale.cli.options import OptionGroup, fields
from kscale.cli.process_flags import LeaseFlags, ProcessFlags, go_duration
from kscale.errors import InputError, Problem
from kscale.objects.times import format_duration

__all__ = ["IDLE", "REFUSED", "AutoscalerFlags", "AutoscalerLease", "LoopFlags"]

_T = TypeVar("_T")

_LIMITS: Final = {
    "max_nodes_total": "Maximum number of nodes in the cluster; 0: no limit.",
    "cores_total": "Minimum and maximum number of cores in the cluster, MIN:MAX.",
    "memory_total": "Minimum and maximum GiB of memory in the cluster, MIN:MAX.",
    "gpu_total": "Minimum and maximum number of GPUs of a type in the cluster, TYPE:MIN:MAX. Repeatable.",
    "capacity_quotas_enabled": "Also limit the cluster by CapacityQuota objects.",
}
_STATE: Final = {
    "max_total_unready_percentage": "Share of unready nodes, in percent, above which the cluster is not healthy.",
    "ok_total_unready_count": "Number of unready nodes up to which the cluster counts as healthy, whatever their "
    "share.",
    "max_node_provision_time": "Time within which a new node must register.",
    "max_node_startup_time": "Time within which a registered node must become ready.",
    "initial_node_group_backoff_duration": "How long a group is not scaled up after its first failure.",
    "max_node_group_backoff_duration": "Longest time that a group is not scaled up after repeated failures.",
    "node_group_backoff_reset_timeout": "Time without a failure after which the backoff of a group starts anew.",
    "force_delete_unregistered_nodes": (
        "Delete instances that never registered even if the group falls below its minimum size."
    ),
    "force_delete_failed_nodes": "Delete instances whose creation failed even if the group falls below its minimum "
    "size.",
    "node_info_cache_expire_time": "How long a template that was made from a node is used.",
    "enable_graceful_degradation": "Leave pods for which a loop has no time to the next loop.",
    "pending_pods_batching_timeout": "Wait before the next loop after one that had no time for all pods.",
    "scan_interval": "Longest time between the starts of two loops.",
}
_SCALE_UP: Final = {
    "scale_up_from_zero": "Also scale up while no node of the cluster is ready.",
    "enforce_node_group_min_size": "Scale groups that are below their minimum size up to it.",
    "estimator": "Estimator of node counts: binpacking; basic with --profile legacy only.",
    "expander": "How to choose a node group: random, most-pods, least-waste, least-nodes, price, "
    "priority or grpc, or a list of them.",
    "grpc_expander_cert": "PEM file of the certificates that the gRPC expander's server certificate is checked "
    "against.",
    "grpc_expander_url": "Address of the gRPC expander's server.",
    "max_nodes_per_scaleup": "Maximum number of nodes that one scale-up adds to a group.",
    "max_nodegroup_binpacking_duration": "Time limit for estimating one node group.",
    "max_binpacking_time": "Time limit for estimating all node groups of one loop.",
    "fastpath_binpacking_enabled": "Estimate large numbers of equal pods by arithmetic instead of one by one.",
    "balance_similar_node_groups": "Spread new nodes over similar node groups.",
    "balancing_ignore_label": "Label that is ignored when node groups are compared for similarity. Repeatable.",
    "balancing_label": "Label that alone decides whether node groups are similar. Repeatable.",
    "memory_difference_ratio": "Largest relative difference in memory between similar node groups.",
    "max_free_difference_ratio": "Largest relative difference in free resources between similar node groups.",
    "max_allocatable_difference_ratio": (
        "Largest relative difference in allocatable resources between similar node groups."
    ),
    "parallel_scale_up": "Resize the chosen node groups in parallel.",
    "salvo_scale_up": "Do several scale-ups in one loop.",
    "salvo_scale_up_budget": "Time limit for all scale-ups of one loop.",
    "new_pod_scale_up_delay": "Age below which pods do not cause a scale-up.",
    "bypassed_scheduler_names": "Schedulers whose pods count as pending before the scheduler has tried them, "
    "separated by commas.",
    "allowed_scheduler_names": "Schedulers whose pods count, separated by commas; pods of other schedulers are "
    "ignored.",
    "expendable_pods_priority_cutoff": "Priority below which pods neither cause a scale-up nor keep a node.",
    "scale_from_unschedulable": "Also make templates from cordoned nodes.",
    "force_ds": "Put all suitable DaemonSet pods into the templates of new nodes.",
    "scaleup_simulation_for_skipped_node_groups_enabled": (
        "Also report how many pods the skipped node groups would have helped."
    ),
    "async_node_groups": "Create node groups in the background, while loops go on.",
    "enable_proactive_scaleup": "Also count pods that controllers have not created yet.",
    "pod_injection_limit": "Maximum number of pending pods up to which not yet created pods are added.",
    "capacity_buffer_pod_injection_enabled": "Count the pods of ready CapacityBuffers as pending.",
    "enable_provisioning_requests": "Serve ProvisioningRequests.",
    "provisioning_request_initial_backoff_time": "Wait before a ProvisioningRequest without capacity is tried again.",
    "provisioning_request_max_backoff_time": (
        "Longest wait before a ProvisioningRequest is tried again; the wait grows each time."
    ),
    "provisioning_request_max_backoff_cache_size": "Number of ProvisioningRequests whose wait is remembered; 0: all.",
    "check_capacity_batch_processing": "Process several check-capacity ProvisioningRequests in one loop.",
    "check_capacity_provisioning_request_max_batch_size": (
        "Maximum number of check-capacity ProvisioningRequests in one loop."
    ),
    "check_capacity_provisioning_request_batch_timebox": (
        "Time limit for the check-capacity ProvisioningRequests of one loop."
    ),
    "check_capacity_processor_instance": (
        "Process only check-capacity ProvisioningRequests whose parameter processorInstance has this value."
    ),
    "enable_dynamic_resource_allocation": (
        "Enable dynamic resource allocation. It is always on; the flag is accepted for compatibility."
    ),
    "enable_csi_node_aware_scheduling": "Take the volume limits of CSI drivers into account, on new nodes too.",
}
_TAINTS: Final = {
    "startup_taint": "Taint that a node has while it starts: such a node is not ready. Repeatable.",
    "ignore_taint": "Old name of --startup-taint. Repeatable.",
    "status_taint": "Taint that is left out of templates of new nodes. Repeatable.",
    "startup_taint_prefix": "Prefix of the keys of startup taints. Repeatable.",
}
_SCALE_DOWN: Final = {
    "scale_down_enabled": "Delete nodes that are not needed.",
    "scale_down_unready_enabled": "Also delete unneeded nodes that are not ready.",
    "scale_down_delay_after_add": "Time after a scale-up during which no node is deleted.",
    "scale_down_delay_after_delete": "Time after a deletion during which no further node is deleted.",
    "scale_down_delay_after_failure": "Time after a failed deletion during which no node is deleted.",
    "scale_down_delay_type_local": "Apply the delays after scale-ups and deletions to each node group instead of the "
    "whole cluster.",
    "scale_down_unneeded_time": "How long a node must be unneeded before it is deleted.",
    "scale_down_unready_time": "How long a node that is not ready must be unneeded before it is deleted.",
    "scale_down_utilization_threshold": "Utilization up to which a node is considered for removal.",
    "scale_down_gpu_utilization_threshold": "GPU utilization up to which a node with GPUs is considered for removal.",
    "ignore_daemonsets_utilization": "Leave DaemonSet pods out of a node's utilization.",
    "ignore_mirror_pods_utilization": "Leave mirror pods out of a node's utilization.",
    "scale_down_non_empty_candidates_count": (
        "Maximum number of nodes with pods that one loop simulates the removal of."
    ),
    "scale_down_candidates_pool_ratio": "Share of all nodes that one loop considers as further candidates for removal.",
    "scale_down_candidates_pool_min_count": (
        "Minimum number of nodes that one loop considers as further candidates for removal."
    ),
    "scale_down_simulation_timeout": "Time limit for simulating removals in one loop.",
    "unremovable_node_recheck_timeout": "How long a node that cannot be removed is not checked again.",
    "max_scale_down_parallelism": "Maximum number of nodes that are deleted at a time.",
    "max_drain_parallelism": "Maximum number of nodes that are drained at a time.",
    "node_deletion_delay_timeout": "How long annotations of a node may delay its deletion.",
    "node_deletion_batcher_interval": "How long deletions of one node group are collected before they are requested.",
    "node_delete_delay_after_taint": "Wait between tainting a node and deleting it.",
    "dynamic_node_delete_delay_after_taint_enabled": (
        "Adapt the wait between taint and deletion to the latency of the API server."
    ),
    "max_pod_eviction_time": "How long the eviction of a pod is retried.",
    "max_graceful_termination_sec": "Longest grace period, in seconds, that an evicted pod gets.",
    "drain_priority_config": "Grace periods by pod priority, in the order of eviction: PRIORITY:SECONDS,...",
    "cordon_node_before_terminating": "Cordon nodes before they are deleted.",
    "daemonset_eviction_for_empty_nodes": "Evict DaemonSet pods from empty nodes before they are deleted.",
    "daemonset_eviction_for_occupied_nodes": "Evict DaemonSet pods from drained nodes before they are deleted.",
    "skip_nodes_with_system_pods": "Keep nodes with kube-system pods.",
    "blocking_system_pod_distruption_timeout": "Age after which kube-system pods no longer keep their node.",
    "skip_nodes_with_local_storage": "Keep nodes with pods that use local storage.",
    "skip_nodes_with_custom_controller_pods": "Keep nodes with pods whose controller is not one of Kubernetes' own.",
    "min_replica_count": "Pods of smaller ReplicaSets hold their node.",
    "max_bulk_soft_taint_count": "Maximum number of candidates for deletion that one loop taints; 0: none.",
    "max_bulk_soft_taint_time": "Time limit for tainting candidates for deletion in one loop.",
    "node_deletion_candidate_ttl": "How long the taint of a candidate for deletion is trusted after a restart.",
}
_RELEASE_1_3: Final = {
    "profile": "Release to run as: current, or legacy for release 1.3 of 2018 and 2019 with its flags and defaults "
    "(listed in docs/programs-of-2018-2020.md; this help shows today's).",
    "node_autoprovisioning_enabled": "Create node groups that a scale-up needs, and delete those that nothing needs.",
    "max_autoprovisioned_node_group_count": "Maximum number of groups that are created.",
    "max_empty_bulk_delete": "Maximum number of empty nodes that are deleted at a time.",
}
_WHERE: Final = {
    "namespace": "Namespace of the lease, the status ConfigMap and the priority expander's ConfigMap.",
    "write_status_configmap": "Write the status to a ConfigMap.",
    "status_config_map_name": "Name of the status ConfigMap.",
    "emit_per_nodegroup_metrics": "Export metrics of each node group.",
    "node_removal_latency_tracking_enabled": "Export how long unneeded nodes stay.",
    "max_node_skip_eval_time_tracker_enabled": (
        "Export the longest time for which a node was not considered for removal."
    ),
}
_PANELS: Final = {
    "Limits": _LIMITS, "Cluster state": _STATE, "Scale-up": _SCALE_UP, "Taints": _TAINTS, "Scale-down": _SCALE_DOWN,
    "Process": _WHERE, "Release 1.3 (--profile legacy)": _RELEASE_1_3,
}  # fmt: skip
_BY_COMMAS: Final = ("bypassed_scheduler_names", "allowed_scheduler_names")
_NO_SUCH_CLOUD: Final = "there is no such cloud provider here"

_DECIDES: Final = "decisions do not depend on it"

REFUSED: Final[Mapping[str, str]] = {
    "feature-gates": "features have flags of their own",
}
"""Flags of upstream's and of other commands that ask for something else than what would be done here, and why."""


def _read_parallelism(text: str) -> int:
    if (count := read_int(text)) < 1:
        raise ValueError(f"Invalid value for --predicate-parallelism flag: {count}")
    return count


IDLE: Final[Mapping[str, Idle]] = {
    **KLOG_IDLE,
    "cluster-snapshot-parallelism": Idle("upstream ignores it, too", read_int),
    "predicate-parallelism": Idle(_DECIDES, _read_parallelism),
    "scheduler-verbosity": Idle("there is no scheduler code that logs", read_int),
    **idle_texts("objects are read as JSON", "kube-api-content-type"),
    **idle_texts(_NO_SUCH_CLOUD, "cluster-name", "gce-mig-instances-min-refresh-wait-time"),
    "gce-concurrent-refreshes": Idle(_NO_SUCH_CLOUD, read_int),
    **idle_switches(_NO_SUCH_CLOUD, "regional", "bulk-mig-instances-listing-enabled"),
    **idle_switches("it is Go's", "profiling"),
    **idle_switches(_DECIDES, "enable-inter-pod-affinity-hostname-fast-path"),
}
"""Flags that upstream takes, and that have no effect here: whatever they say, the same would be done."""


def _with_options(cls: type[_T]) -> type[_T]:
    """Add a field for every option of a decision to an option group."""
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
    """Return a flag's type and its default in the form that the command line takes."""
    if isinstance(default, timedelta):
        return str, format_duration(default // timedelta(microseconds=1) * 1000)
    if isinstance(default, list):
        return (str, "") if name in _BY_COMMAS else (list[str] | None, None)
    if name in ("cores_total", "memory_total"):
        return str, f"{default.min}:{default.max}"
    return type(default), default


@_with_options
class LoopFlags(OptionGroup):
    """Flags of the loop's decisions. Fields have the names of :class:`kscale.ca.AutoscalingOptions`."""

    def options(self) -> AutoscalingOptions:
        """Return the flags as AutoscalingOptions.

        Raises
        ------
        InputError
            If upstream refuses a value at start-up (with upstream's text), or if the release of ``--profile`` does not
            have a flag that was set.
        """
        defaults = AutoscalingOptions()
        typed_values = {name: getattr(self, name) for name in fields(type(self))}
        profile = typed_values.pop("profile")
        values = {name: _read(name, value, getattr(defaults, name)) for name, value in typed_values.items()}
        typed = {flag.removeprefix("--").replace("-", "_") for flag in flags_given_of(self)}
        changed = {name: value for name, value in values.items() if name in typed or value != getattr(defaults, name)}
        options = AutoscalingOptions.for_profile(profile, **changed)
        requested = [
            name for name, value in changed.items() if value is not False
        ]  # a switch that is off requests nothing
        problems = options.problems() + options.find_foreign_options(profile, requested)
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
    """Flags of the autoscaler's process."""

    kubernetes: Annotated[
        str, typer.Option("--kubernetes", metavar="URL", help="URL of the API server, instead of the kubeconfig's.")
    ] = ""
    kube_client_qps: Annotated[
        float, typer.Option("--kube-client-qps", help="Maximum number of requests to the API server per second.")
    ] = 5.0
    kube_client_burst: Annotated[
        int, typer.Option("--kube-client-burst", help="Maximum number of requests to the API server at once.")
    ] = 10
    user_agent: Annotated[str, typer.Option("--user-agent", help="User agent of requests to the API server.")] = (
        "cluster-autoscaler"
    )
    cloud_provider: Annotated[
        str,
        typer.Option(
            "--cloud-provider", metavar="NAME", help="Cloud provider: aws, externalgrpc, kwok, clusterapi or static."
        ),
    ] = "kwok"
    cloud_config: Annotated[
        str,
        typer.Option(
            "--cloud-config",
            metavar="FILE",
            help="Configuration file of the cloud provider. aws: endpoints (ServiceOverride); externalgrpc: settings; "
            "clusterapi: kubeconfig of the management cluster; static: node groups.",
        ),
    ] = ""
    static_sizes: Annotated[
        str,
        typer.Option(
            "--static-sizes",
            metavar="FILE",
            help="static: file to which the sizes that groups shall have are written, for the program that makes "
            "machines.",
        ),
    ] = ""
    clusterapi_cloud_config_authoritative: Annotated[
        bool,
        typer.Option(
            "--clusterapi-cloud-config-authoritative/--no-clusterapi-cloud-config-authoritative",
            help="Use the cluster of this pod as the management cluster if --cloud-config is not set.",
        ),
    ] = False
    node_group_auto_discovery: Annotated[
        list[str] | None,
        typer.Option(
            "--node-group-auto-discovery",
            metavar="CLOUD:KEY=VALUE,...",
            help="Node groups to manage. clusterapi:KEY=VALUE,...: by namespace, clusterName or labels; "
            "asg:tag=KEY[=VALUE],...: Auto Scaling groups with all these tags. Repeatable.",
        ),
    ] = None
    nodes: Annotated[
        list[str] | None,
        typer.Option("--nodes", metavar="MIN:MAX:NAME", help="aws: a node group by name, with its limits. Repeatable."),
    ] = None
    aws_use_static_instance_list: Annotated[
        bool,
        typer.Option(
            "--aws-use-static-instance-list/--no-aws-use-static-instance-list",
            help="aws: take instance types from --aws-instance-types only, and do not ask EC2 for them.",
        ),
    ] = False
    aws_instance_types: Annotated[
        str,
        typer.Option(
            "--aws-instance-types",
            metavar="NAME|FILE",
            help="aws: catalogue of the instance types that EC2 does not describe (kscale catalogue import --help). "
            "The default is the imported catalogue aws, if there is one.",
        ),
    ] = ""
    record_duplicated_events: Annotated[
        bool,
        typer.Option(
            "--record-duplicated-events/--no-record-duplicated-events",
            help="Send equal events again instead of counting them.",
        ),
    ] = False
    capacity_buffer_controller_enabled: Annotated[
        bool,
        typer.Option(
            "--capacity-buffer-controller-enabled/--no-capacity-buffer-controller-enabled",
            help="Run the controller that sets the status of CapacityBuffers.",
            rich_help_panel=_LOOP,
        ),
    ] = False
    capacity_buffer_pod_dry_run_enabled: Annotated[
        bool,
        typer.Option(
            "--capacity-buffer-pod-dry-run-enabled/--no-capacity-buffer-pod-dry-run-enabled",
            help="Let the API server default the pods of CapacityBuffers, in a dry run.",
            rich_help_panel=_LOOP,
        ),
    ] = True
    frequent_loops_enabled: Annotated[
        bool,
        typer.Option(
            "--frequent-loops-enabled/--no-frequent-loops-enabled",
            help="Start a loop as soon as a pod is unschedulable, and at once after a loop that changed something.",
            rich_help_panel=_LOOP,
        ),
    ] = True
    scheduler_config_file: Annotated[
        str,
        typer.Option(
            "--scheduler-config-file",
            metavar="FILE",
            help="File of kube-scheduler's KubeSchedulerConfiguration.",
            rich_help_panel=_LOOP,
        ),
    ] = ""
    debugging_snapshot_enabled: Annotated[
        bool,
        typer.Option(
            "--debugging-snapshot-enabled/--no-debugging-snapshot-enabled",
            help="Serve /snapshotz: the inputs of the next loop, without values of environments and annotations.",
        ),
    ] = False
    max_inactivity: Annotated[
        str,
        typer.Option(
            "--max-inactivity",
            help="Time without a loop after which the program is not healthy.",
            rich_help_panel=_LOOP,
        ),
    ] = "10m"
    max_failing_time: Annotated[
        str,
        typer.Option(
            "--max-failing-time",
            help="Time without a successful loop after which the program is not healthy.",
            rich_help_panel=_LOOP,
        ),
    ] = "15m"
    max_startup_time: Annotated[
        str,
        typer.Option(
            "--max-startup-time",
            help="Time without a first successful loop after which the program is not healthy.",
            rich_help_panel=_LOOP,
        ),
    ] = "20m"


@dataclass
class AutoscalerLease(LeaseFlags):
    """Flags of leader election. The lease is in ``--namespace``; ``--leader-elect-resource-namespace`` is ignored."""

    leader_elect_resource_name: Annotated[
        str, typer.Option("--leader-elect-resource-name", help="Name of the lease.", rich_help_panel="Leader election")
    ] = "cluster-autoscaler"
