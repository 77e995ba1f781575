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

    Attributes
    ----------
    profile : NAME
        Release to decide as: current, or legacy for release 1.3.
    scale_down_utilization_threshold
        Utilization up to which a node is considered for removal.
    scale_down_gpu_utilization_threshold
        GPU utilization up to which a node with GPUs is considered for removal.
    ignore_daemonsets_utilization
        Leave DaemonSet pods out of a node's utilization.
    ignore_mirror_pods_utilization
        Leave mirror pods out of a node's utilization.
    scale_down_unneeded_time : DURATION
        How long a node must be unneeded before it is deleted.
    scale_down_unready_time : DURATION
        How long a node that is not ready must be unneeded before it is deleted.
    scale_down_unready_enabled
        Also delete unneeded nodes that are not ready.
    scale_down_delay_after_add : DURATION
        Time after a scale-up during which no node is deleted.
    scale_down_delay_after_delete : DURATION
        Time after a deletion during which no further node is deleted.
    scale_down_delay_after_failure : DURATION
        Time after a failed deletion during which no node is deleted.
    scale_down_delay_type_local
        Apply the delays after scale-ups and deletions to each node group instead of the whole cluster.
    unremovable_node_recheck_timeout : DURATION
        How long a node that cannot be removed is not checked again.
    max_scale_down_parallelism
        Maximum number of nodes that are deleted at a time.
    max_drain_parallelism
        Maximum number of nodes that are drained at a time.
    max_empty_bulk_delete
        Maximum number of empty nodes that are deleted at a time (legacy profile only).
    cores_total : MIN:MAX
        Minimum number of cores that scale-down leaves in the cluster.
    memory_total : MIN:MAX
        Minimum GiB of memory that scale-down leaves in the cluster.
    gpu_total : TYPE:MIN:MAX
        Minimum number of GPUs that scale-down leaves in the cluster. Repeatable.
    skip_nodes_with_system_pods
        Keep nodes with kube-system pods.
    blocking_system_pod_distruption_timeout : DURATION
        Age after which kube-system pods no longer keep their node.
    skip_nodes_with_local_storage
        Keep nodes with pods that use local storage.
    skip_nodes_with_custom_controller_pods
        Keep nodes with pods whose controller is not one of Kubernetes' own.
    min_replica_count
        Pods of smaller ReplicaSets hold their node.
    capacity_buffer_pod_injection_enabled
        Pods of CapacityBuffers that are ready, and pending pods, take the room that they find.
    expendable_pods_priority_cutoff
        Priority below which pods neither cause a scale-up nor keep a node.
    """

    profile: str = "current"
    scale_down_utilization_threshold: Annotated[float | None, typer.Option(min=0)] = None
    scale_down_gpu_utilization_threshold: Annotated[float | None, typer.Option(min=0)] = None
    ignore_daemonsets_utilization: Annotated[
        bool | None, typer.Option("--ignore-daemonsets-utilization/--no-ignore-daemonsets-utilization")
    ] = None
    ignore_mirror_pods_utilization: Annotated[
        bool | None, typer.Option("--ignore-mirror-pods-utilization/--no-ignore-mirror-pods-utilization")
    ] = None
    scale_down_unneeded_time: str | None = None
    scale_down_unready_time: str | None = None
    scale_down_unready_enabled: Annotated[
        bool | None, typer.Option("--scale-down-unready-enabled/--no-scale-down-unready-enabled")
    ] = None
    scale_down_delay_after_add: str | None = None
    scale_down_delay_after_delete: str | None = None
    scale_down_delay_after_failure: str | None = None
    scale_down_delay_type_local: Annotated[
        bool | None, typer.Option("--scale-down-delay-type-local/--no-scale-down-delay-type-local")
    ] = None
    unremovable_node_recheck_timeout: str | None = None
    max_scale_down_parallelism: Annotated[int | None, typer.Option(min=0)] = None
    max_drain_parallelism: Annotated[int | None, typer.Option(min=0)] = None
    max_empty_bulk_delete: Annotated[int | None, typer.Option(min=0)] = None
    cores_total: str | None = None
    memory_total: str | None = None
    gpu_total: list[str] | None = None
    skip_nodes_with_system_pods: Annotated[
        bool | None, typer.Option("--skip-nodes-with-system-pods/--no-skip-nodes-with-system-pods")
    ] = None
    blocking_system_pod_distruption_timeout: str | None = None
    skip_nodes_with_local_storage: Annotated[
        bool | None, typer.Option("--skip-nodes-with-local-storage/--no-skip-nodes-with-local-storage")
    ] = None
    skip_nodes_with_custom_controller_pods: Annotated[
        bool | None,
        typer.Option("--skip-nodes-with-custom-controller-pods/--no-skip-nodes-with-custom-controller-pods"),
    ] = None
    min_replica_count: Annotated[int | None, typer.Option(min=0)] = None
    capacity_buffer_pod_injection_enabled: Annotated[
        bool | None, typer.Option("--capacity-buffer-pod-injection-enabled/--no-capacity-buffer-pod-injection-enabled")
    ] = None
    expendable_pods_priority_cutoff: int | None = None

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
    """Options for the times of the cluster's last changes, if no saved state has them.

    Attributes
    ----------
    last_scale_up : TIME
        When the last node was added, RFC 3339.
    last_scale_down : TIME
        When the last node was deleted.
    last_failure : TIME
        When a deletion last failed.
    """

    last_scale_up: str | None = None
    last_scale_down: str | None = None
    last_failure: str | None = None

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
