"""The flags of ``kscale run cluster-autoscaler``, with upstream's names.

Flags of decisions are the fields of :class:`kscale.ca.AutoscalingOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kscale.ca.options import AutoscalingOptions, parse_gpu_limits, parse_range
from kscale.cli.go_flags import (
    KLOG_IDLE,
    REPEATABLE,
    Form,
    Idle,
    StructFlags,
    flags_given_of,
    idle_switches,
    idle_texts,
    read_int,
    struct_flags,
)
from kscale.cli.options import Switch, flag_of
from kscale.cli.process_flags import LeaseFlags, ProcessFlags
from kscale.errors import InputError, Problem

__all__ = ["IDLE", "REFUSED", "AutoscalerFlags", "AutoscalerLease", "LoopFlags"]

_NO_SUCH_CLOUD: Final = "kscale does not have the cloud provider of this flag"

_DECIDES: Final = "decisions do not depend on it"

REFUSED: Final[Mapping[str, str]] = {
    "feature-gates": "each feature has its own flag",
}
"""Flags of upstream's and of other commands that ask for something else than what would be done here, and why."""


def _read_parallelism(text: str) -> int:
    """Parse ``--predicate-parallelism``. Raises ValueError, with upstream's text for a number below 1."""
    if (count := read_int(text)) < 1:
        raise ValueError(f"Invalid value for --predicate-parallelism flag: {count}")
    return count


IDLE: Final[Mapping[str, Idle]] = {
    **KLOG_IDLE,
    "cluster-snapshot-parallelism": Idle("upstream ignores it, too", read_int),
    "predicate-parallelism": Idle(_DECIDES, _read_parallelism),
    "scheduler-verbosity": Idle("kscale has no scheduler logs", read_int),
    **idle_texts("objects are read as JSON", "kube-api-content-type"),
    **idle_texts(_NO_SUCH_CLOUD, "cluster-name", "gce-mig-instances-min-refresh-wait-time"),
    "gce-concurrent-refreshes": Idle(_NO_SUCH_CLOUD, read_int),
    **idle_switches(_NO_SUCH_CLOUD, "regional", "bulk-mig-instances-listing-enabled"),
    **idle_switches("there are no Go profiles", "profiling"),
    **idle_switches(_DECIDES, "enable-inter-pod-affinity-hostname-fast-path"),
}
"""Flags that upstream takes, and that have no effect here: whatever they say, the same would be done."""


def _flag_form(type_: Any, metavar: str | None, show: Callable[[Any], Any], parse: Callable[[Any], Any]) -> Form:
    """Return how an options field of type ``type_`` is written as a command-line flag, shown in help as ``metavar``.

    ``parse`` converts the flag's value to the field's value, ``show`` the field's default to the text of the help. If
    ``parse`` raises InputError, reading the flag raises one with upstream's text and the flag's name.
    """

    def read(value: Any, flag: str) -> Any:
        try:
            return parse(value)
        except InputError as error:
            raise InputError(Problem(f"Failed to parse flags: {error}", field=flag)) from None

    return Form(type_, metavar, show, read)


_RANGE: Final = _flag_form(str, "MIN:MAX", lambda default: f"{default.min}:{default.max}", parse_range)
_GPUS: Final = _flag_form(
    list[str] | None, "TYPE:MIN:MAX", lambda _: None, lambda texts: list(map(parse_gpu_limits, texts))
)
_REPEATED: Final = (
    "balancing_ignore_label",
    "balancing_label",
    "startup_taint",
    "ignore_taint",
    "status_taint",
    "startup_taint_prefix",
)


@struct_flags(
    AutoscalingOptions,
    without=("predicate_parallelism",),
    forms={"cores_total": _RANGE, "memory_total": _RANGE, "gpu_total": _GPUS} | dict.fromkeys(_REPEATED, REPEATABLE),
)
class LoopFlags(StructFlags):
    """Flags of the loop's decisions. Fields have the names of :class:`kscale.ca.AutoscalingOptions`.

    Attributes
    ----------
    profile
        Release to run as: current, or legacy for release 1.3 of 2018 and 2019 with its flags and defaults (listed in
        docs/programs-of-2018-2020.md; this help shows today's).
    """

    title = "Decisions"
    common = ("expander", "scan_interval", "scale_down_enabled")

    def options(self) -> AutoscalingOptions:
        """Return the flags as AutoscalingOptions.

        Raises
        ------
        InputError
            If upstream refuses a value at start-up (with upstream's text), or if the release of ``--profile`` does not
            have a flag that was set.
        """
        from kscale.ca.entry_points import find_option_problems

        defaults = AutoscalingOptions()
        values = self.values()
        profile = values.pop("profile")
        typed = {flag.removeprefix("--").replace("-", "_") for flag in flags_given_of(self)}
        changed = {name: value for name, value in values.items() if name in typed or value != getattr(defaults, name)}
        options = AutoscalingOptions.for_profile(profile, **changed)
        # A switch that is off requests nothing.
        requested = [name for name, value in changed.items() if value is not False]
        problems = find_option_problems(options) + options.find_foreign_options(profile, requested)
        if problems:
            raise InputError([Problem(each.message, field=flag_of(each.field)) for each in problems])
        return options


@dataclass(eq=False, repr=False, init=False)
class AutoscalerFlags(ProcessFlags):
    """Flags of the autoscaler's process.

    Attributes
    ----------
    kubernetes : URL
        URL of the API server, instead of the kubeconfig's.
    kube_client_qps
        Maximum number of requests to the API server per second.
    kube_client_burst
        Maximum number of requests to the API server at once.
    user_agent
        User agent of requests to the API server.
    cloud_provider : NAME
        Cloud provider: aws, externalgrpc, kwok, clusterapi or static.
    cloud_config : FILE
        Configuration file of the cloud provider. aws: endpoints (ServiceOverride); externalgrpc: settings;
        clusterapi: kubeconfig of the management cluster; static: node groups.
    static_sizes : FILE
        static: file to which the target sizes of the groups are written, for the program that creates machines.
    clusterapi_cloud_config_authoritative
        Use the cluster of this pod as the management cluster if --cloud-config is not set.
    node_group_auto_discovery : CLOUD:KEY=VALUE,...
        Node groups to manage. clusterapi:KEY=VALUE,...: by namespace, clusterName or labels;
        asg:tag=KEY[=VALUE],...: Auto Scaling groups with all these tags. Repeatable.
    nodes : MIN:MAX:NAME
        aws: a node group by name, with its limits. Repeatable.
    aws_use_static_instance_list
        aws: take instance types from --aws-instance-types only, and do not ask EC2 for them.
    aws_instance_types : NAME|FILE
        aws: catalogue of the instance types that EC2 does not describe (kscale catalogue import --help). The default
        is the imported catalogue aws, if there is one.
    record_duplicated_events
        Send equal events again instead of counting them.
    capacity_buffer_controller_enabled
        Run the controller that sets the status of CapacityBuffers.
    capacity_buffer_pod_dry_run_enabled
        Let the API server set the defaults of the pods of CapacityBuffers, with a dry-run request.
    frequent_loops_enabled
        Start a loop as soon as a pod is unschedulable, and at once after a loop that changed something.
    scheduler_config_file : FILE
        File of kube-scheduler's KubeSchedulerConfiguration.
    debugging_snapshot_enabled
        Serve /snapshotz: the inputs of the next loop, without values of environments and annotations.
    max_inactivity
        Time without a loop after which the program is not healthy.
    max_failing_time
        Time without a successful loop after which the program is not healthy.
    max_startup_time
        Time without a first successful loop after which the program is not healthy.
    """

    title = "Process"
    common = ("cloud_provider", "nodes", "node_group_auto_discovery")

    kubernetes: str = ""
    kube_client_qps: float = 5.0
    kube_client_burst: int = 10
    user_agent: str = "cluster-autoscaler"
    cloud_provider: str = "kwok"
    cloud_config: str = ""
    static_sizes: str = ""
    clusterapi_cloud_config_authoritative: Switch = False
    node_group_auto_discovery: list[str] | None = None
    nodes: list[str] | None = None
    aws_use_static_instance_list: Switch = False
    aws_instance_types: str = ""
    record_duplicated_events: Switch = False
    capacity_buffer_controller_enabled: Switch = False
    capacity_buffer_pod_dry_run_enabled: Switch = True
    frequent_loops_enabled: Switch = True
    scheduler_config_file: str = ""
    debugging_snapshot_enabled: Switch = False
    max_inactivity: str = "10m"
    max_failing_time: str = "15m"
    max_startup_time: str = "20m"


@dataclass(eq=False, repr=False, init=False)
class AutoscalerLease(LeaseFlags):
    """Flags of leader election. The lease is in ``--namespace``; ``--leader-elect-resource-namespace`` is ignored."""

    leader_elect_resource_name: str = "cluster-autoscaler"
