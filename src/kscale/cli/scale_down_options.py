"""Options of scale-down, with upstream's flag names, and of commands that ask which pods may be evicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import typer
from msgspec.structs import replace

from kscale.ca.options import AutoscalingOptions, parse_gpu_limits, parse_range
from kscale.cli.go_flags import DURATION_FORM, Form, StructFlags, struct_flags
from kscale.cli.inputs import parse_moment
from kscale.cli.options import OptionGroup, option_errors
from kscale.errors import InputError
from kscale.objects.go_numbers import parse_float
from kscale.objects.times import parse_duration

if TYPE_CHECKING:
    from kscale.ca.loop_state import LoopState

__all__ = ["EvictionFlags", "LastChanges", "Moment", "ScaleDownFlags"]


@struct_flags(
    AutoscalingOptions,
    "skip_nodes_with_system_pods",
    "skip_nodes_with_local_storage",
    "skip_nodes_with_custom_controller_pods",
    "blocking_system_pod_distruption_timeout",
    "min_replica_count",
    forms={"blocking_system_pod_distruption_timeout": DURATION_FORM},
    minimum={"min_replica_count": 0},
    optional=True,
)
class EvictionFlags(StructFlags):
    """Drain rules of the Cluster Autoscaler. None selects its default."""

    def options(self) -> AutoscalingOptions:
        """Return the flags as AutoscalingOptions.

        Raises InputError for values that upstream refuses, and typer.BadParameter for malformed ones.
        """
        options = AutoscalingOptions.for_profile("current", **self.values())
        problems = options.problems()
        if problems:
            raise InputError(problems)
        return options


@dataclass(eq=False, repr=False, init=False)
class Moment(OptionGroup):
    """Option for the time of an answer.

    Attributes
    ----------
    now : TIME
        The time of the answer, RFC 3339; default: now.
    """

    now: str | None = None

    def moment(self) -> datetime:
        """Return ``--now``, or the current time. Raises typer.BadParameter if it is malformed."""
        return datetime.now(UTC) if self.now is None else parse_moment(self.now)


def _read_duration(text: str, flag: str) -> timedelta:
    """Parse a Go duration (``10m``) or a number of seconds.

    Raises typer.BadParameter if it is malformed, negative, or 1e9 seconds or more.
    """
    try:
        seconds = parse_float(text)
    except ValueError:
        with option_errors(flag):
            seconds = parse_duration(text) / 1e9
    if not 0 <= seconds < 1e9:
        raise typer.BadParameter(f"{text} is no time to wait", param_hint=flag)
    return timedelta(seconds=seconds)


def _read_with(parse: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    """Return a reader of a flag's value that raises typer.BadParameter where ``parse`` raises InputError."""

    def read(value: Any, flag: str) -> Any:
        with option_errors(flag, InputError):
            return parse(value)

    return read


_DURATION: Final = replace(DURATION_FORM, read=_read_duration)
_RANGE: Final = Form(str, "MIN:MAX", lambda default: f"{default.min}:{default.max}", _read_with(parse_range))
_FORMS: Final = {
    "scale_down_unneeded_time": _DURATION,
    "scale_down_unready_time": _DURATION,
    "scale_down_delay_after_add": _DURATION,
    "scale_down_delay_after_delete": _DURATION,
    "scale_down_delay_after_failure": _DURATION,
    "unremovable_node_recheck_timeout": _DURATION,
    "blocking_system_pod_distruption_timeout": _DURATION,
    "cores_total": _RANGE,
    "memory_total": _RANGE,
    "gpu_total": Form(list[str], "TYPE:MIN:MAX", read=_read_with(lambda texts: list(map(parse_gpu_limits, texts)))),
}
_NOT_NEGATIVE: Final = (
    "scale_down_utilization_threshold",
    "scale_down_gpu_utilization_threshold",
    "max_scale_down_parallelism",
    "max_drain_parallelism",
    "max_empty_bulk_delete",
    "min_replica_count",
)


@struct_flags(
    AutoscalingOptions,
    *_FORMS,
    *_NOT_NEGATIVE,
    "ignore_daemonsets_utilization",
    "ignore_mirror_pods_utilization",
    "scale_down_unready_enabled",
    "scale_down_delay_type_local",
    "skip_nodes_with_system_pods",
    "skip_nodes_with_local_storage",
    "skip_nodes_with_custom_controller_pods",
    "capacity_buffer_pod_injection_enabled",
    "expendable_pods_priority_cutoff",
    forms=_FORMS,
    minimum=dict.fromkeys(_NOT_NEGATIVE, 0),
    optional=True,
)
class ScaleDownFlags(StructFlags):
    """Flags of scale-down. None selects the profile's default.

    Attributes
    ----------
    profile : NAME
        Release to decide as: current, or legacy for release 1.3.
    scale_down_delay_after_delete
        Time after a deletion during which no further node is deleted (profile legacy: default 10s).
    expendable_pods_priority_cutoff
        Priority below which pods neither cause a scale-up nor keep a node (profile legacy: default 0).
    max_empty_bulk_delete
        Maximum number of empty nodes that are deleted at a time (legacy profile only).
    cores_total
        Minimum number of cores that scale-down leaves in the cluster.
    memory_total
        Minimum GiB of memory that scale-down leaves in the cluster.
    gpu_total
        Minimum number of GPUs that scale-down leaves in the cluster. Repeatable.
    capacity_buffer_pod_injection_enabled
        Let pods of ready CapacityBuffers and pending pods take room on existing nodes.
    """

    title = "Scale-down"
    common = ("scale_down_unneeded_time", "scale_down_utilization_threshold")

    profile: str = "current"

    def options(self) -> AutoscalingOptions:
        """Return the flags as AutoscalingOptions.

        Raises InputError for values that upstream refuses at start-up, and typer.BadParameter for malformed ones.
        """
        options = AutoscalingOptions.for_profile(self.profile, **self.values())
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
        When the last node was deleted, RFC 3339.
    last_failure : TIME
        When a deletion last failed, RFC 3339.
    """

    title = "State and time"

    last_scale_up: str | None = None
    last_scale_down: str | None = None
    last_failure: str | None = None

    def on(self, state: LoopState | None) -> LoopState | None:
        """Return the state with the times that the options set; a new state with them if ``state`` is None.

        Without any option, ``state`` is returned unchanged. Raises typer.BadParameter for a malformed time.
        """
        from kscale.ca.loop_state import LoopState
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
