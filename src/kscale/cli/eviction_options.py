"""Options of commands that ask which pods may be evicted: the drain rules, and the time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from kscale.ca.options import AutoscalingOptions
from kscale.cli.inputs import parse_moment
from kscale.cli.options import OptionGroup
from kscale.cli.struct_flags import DURATION_FORM, StructFlags, struct_flags
from kscale.errors import InputError

__all__ = ["EvictionFlags", "Moment"]


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
        """Return the flags as AutoscalingOptions. Raises InputError for values that upstream refuses."""
        options = AutoscalingOptions.for_profile("current", **self.values())
        problems = options.problems()
        if problems:
            raise InputError(problems)
        return options


@dataclass(eq=False, repr=False)
class Moment(OptionGroup):
    """Option for the time of an answer.

    Attributes
    ----------
    now : TIME
        The time of the answer, RFC 3339; default: now.
    """

    now: str | None = None

    def moment(self) -> datetime:
        """Return ``--now``, or the current time."""
        return datetime.now(UTC) if self.now is None else parse_moment(self.now)
