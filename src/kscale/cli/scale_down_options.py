"""Options of scale-down, with upstream's flag names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kscale.cli.inputs import parse_moment
from kscale.cli.options import OptionGroup

if TYPE_CHECKING:
    from kscale.ca.options import AutoscalingOptions
    from kscale.ca.state.loop_state import LoopState

__all__ = ["LastChanges", "ScaleDownFlags"]

_TIME: Final = {"metavar": "DURATION"}


@dataclass
class ScaleDownFlags(OptionGroup):
    """Flags of scale-down. None selects the profile's default.

    Fields have the names of :class:`kscale.ca.AutoscalingOptions`.
    """

    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="Release to decide as: current, or legacy for release 1.3.")
    ] = "current"
    scale_down_utilization_threshold: Annotated[
        float | None,
        typer.Option(
            "--scale-down-utilization-threshold",
            min=0,
            help="Utilization up to which a node is considered for removal.",
        ),
    ] = None
    scale_down_gpu_utilization_threshold: Annotated[
        float | None,
        typer.Option(
            "--scale-down-gpu-utilization-threshold",
            min=0,
            help="GPU utilization up to which a node with GPUs is considered for removal.",
        ),
    ] = None
    ignore_daemonsets_utilization: Annotated[
        bool | None,
        typer.Option(
            "--ignore-daemonsets-utilization/--no-ignore-daemonsets-utilization",
            help="Leave DaemonSet pods out of a node's utilization.",
        ),
    ] = None
    ignore_mirror_pods_utilization: Annotated[
        bool | None,
        typer.Option(
            "--ignore-mirror-pods-utilization/--no-ignore-mirror-pods-utilization",
            help="Leave mirror pods out of a node's utilization.",
        ),
    ] = None
    scale_down_unneeded_time: Annotated[
        str | None,
        typer.Option(
            "--scale-down-unneeded-time", help="How long a node must be unneeded before it is deleted.", **_TIME
        ),
    ] = None
    scale_down_unready_time: Annotated[
        str | None,
        typer.Option(
            "--scale-down-unready-time",
            help="How long a node that is not ready must be unneeded before it is deleted.",
            **_TIME,
        ),
    ] = None
    scale_down_unready_enabled: Annotated[
        bool | None,
        typer.Option(
            "--scale-down-unready-enabled/--no-scale-down-unready-enabled",
            help="Also delete unneeded nodes that are not ready.",
        ),
    ] = None
    scale_down_delay_after_add: Annotated[
        str | None,
        typer.Option(
            "--scale-down-delay-after-add", help="Time after a scale-up during which no node is deleted.", **_TIME
        ),
    ] = None
    scale_down_delay_after_delete: Annotated[
        str | None,
        typer.Option(
            "--scale-down-delay-after-delete",
            help="Time after a deletion during which no further node is deleted.",
            **_TIME,
        ),
    ] = None
    scale_down_delay_after_failure: Annotated[
        str | None,
        typer.Option(
            "--scale-down-delay-after-failure",
            help="Time after a failed deletion during which no node is deleted.",
            **_TIME,
        ),
    ] = None
    scale_down_delay_type_local: Annotated[
        bool | None,
        typer.Option(
            "--scale-down-delay-type-local/--no-scale-down-delay-type-local",
            help="Apply the delays after scale-ups and deletions to each node group instead of the whole cluster.",
        ),
    ] = None
    unremovable_node_recheck_timeout: Annotated[
        str | None,
        typer.Option(
            "--unremovable-node-recheck-timeout",
            help="How long a node that cannot be removed is not checked again.",
            **_TIME,
        ),
    ] = None
    max_scale_down_parallelism: Annotated[
        int | None,
        typer.Option("--max-scale-down-parallelism", min=0, help="Maximum number of nodes that are deleted at a time."),
    ] = None
    max_drain_parallelism: Annotated[
        int | None,
        typer.Option("--max-drain-parallelism", min=0, help="Maximum number of nodes that are drained at a time."),
    ] = None
    max_empty_bulk_delete: Annotated[
        int | None,
        typer.Option(
            "--max-empty-bulk-delete",
            min=0,
            help="Maximum number of empty nodes that are deleted at a time (legacy profile only).",
        ),
    ] = None
    cores_total: Annotated[
        str | None,
        typer.Option(
            "--cores-total", metavar="MIN:MAX", help="Minimum number of cores that scale-down leaves in the cluster."
        ),
    ] = None
    memory_total: Annotated[
        str | None,
        typer.Option(
            "--memory-total", metavar="MIN:MAX", help="Minimum GiB of memory that scale-down leaves in the cluster."
        ),
    ] = None
    gpu_total: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu-total",
            metavar="TYPE:MIN:MAX",
            help="Minimum number of GPUs that scale-down leaves in the cluster. Repeatable.",
        ),
    ] = None
    skip_nodes_with_system_pods: Annotated[
        bool | None,
        typer.Option(
            "--skip-nodes-with-system-pods/--no-skip-nodes-with-system-pods", help="Keep nodes with kube-system pods."
        ),
    ] = None
    blocking_system_pod_distruption_timeout: Annotated[
        str | None,
        typer.Option(
            "--blocking-system-pod-distruption-timeout",
            help="Age after which kube-system pods no longer keep their node.",
            **_TIME,
        ),
    ] = None
    skip_nodes_with_local_storage: Annotated[
        bool | None,
        typer.Option(
            "--skip-nodes-with-local-storage/--no-skip-nodes-with-local-storage",
            help="Keep nodes with pods that use local storage.",
        ),
    ] = None
    skip_nodes_with_custom_controller_pods: Annotated[
        bool | None,
        typer.Option(
            "--skip-nodes-with-custom-controller-pods/--no-skip-nodes-with-custom-controller-pods",
            help="Keep nodes with pods whose controller is not one of Kubernetes' own.",
        ),
    ] = None
    min_replica_count: Annotated[
        int | None, typer.Option("--min-replica-count", min=0, help="Pods of smaller ReplicaSets hold their node.")
    ] = None
    capacity_buffer_pod_injection_enabled: Annotated[
        bool | None,
        typer.Option(
            "--capacity-buffer-pod-injection-enabled/--no-capacity-buffer-pod-injection-enabled",
            help="Pods of CapacityBuffers that are ready, and pending pods, take the room that they find.",
        ),
    ] = None
    expendable_pods_priority_cutoff: Annotated[
        int | None,
        typer.Option(
            "--expendable-pods-priority-cutoff",
            help="Priority below which pods neither cause a scale-up nor keep a node.",
        ),
    ] = None

    def options(self) -> AutoscalingOptions:
        """Return the flags as AutoscalingOptions.

        Raises InputError for values that upstream refuses at start-up, and typer.BadParameter for malformed ones.
        """
        from kscale.ca.options import AutoscalingOptions, parse_gpu_limits, parse_range
        from kscale.errors import InputError

        values: dict[str, Any] = {}
        defaults = AutoscalingOptions()
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or field.name == "profile":
                continue
            hint = "--" + field.name.replace("_", "-")
            try:
                if isinstance(getattr(defaults, field.name), timedelta):
                    value = _duration(value, hint)
                elif field.name in ("cores_total", "memory_total"):
                    value = parse_range(value)
                elif field.name == "gpu_total":
                    value = [parse_gpu_limits(text) for text in value]
            except InputError as error:
                raise typer.BadParameter(str(error), param_hint=hint) from None
            values[field.name] = value
        options = AutoscalingOptions.for_profile(self.profile, **values)
        problems = options.problems()
        if problems:
            raise InputError(problems)
        return options


@dataclass
class LastChanges(OptionGroup):
    """Options for the times of the cluster's last changes, if no saved state has them."""

    last_scale_up: Annotated[
        str | None, typer.Option("--last-scale-up", metavar="TIME", help="When the last node was added, RFC 3339.")
    ] = None
    last_scale_down: Annotated[
        str | None, typer.Option("--last-scale-down", metavar="TIME", help="When the last node was deleted.")
    ] = None
    last_failure: Annotated[
        str | None, typer.Option("--last-failure", metavar="TIME", help="When a deletion last failed.")
    ] = None

    def on(self, state: LoopState | None) -> LoopState | None:
        """Return the state with these times. Without any option, ``state`` is returned unchanged."""
        from msgspec.structs import replace

        from kscale.ca.state.loop_state import LoopState
        from kscale.effects import moment

        times = {
            field.name: moment(parse_moment(value, hint), hint)
            for field in fields(self)
            if (value := getattr(self, field.name)) is not None and (hint := "--" + field.name.replace("_", "-"))
        }
        if not times:
            return state
        state = state or LoopState()
        return replace(state, scale_down=replace(state.scale_down, **times))


def _duration(text: str, hint: str) -> timedelta:
    """Parse a Go duration (``10m``) or a number of seconds. Raises typer.BadParameter."""
    from kscale.objects.times import parse_duration

    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parse_duration(text) / 1e9
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=hint) from None
    if not 0 <= seconds < 1e9:
        raise typer.BadParameter(f"{text} is no time to wait", param_hint=hint)
    return timedelta(seconds=seconds)
