"""Which flags of the Cluster Autoscaler the answer to a question depends on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kscale.ca.flag_parsing import parse_flags
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.whatif.grammar import Question
from kscale.errors import InputError

__all__ = ["READ", "options_in"]

_TEMPLATES: Final = frozenset(
    {
        "force_ds",
        "ignore_taint",
        "scale_from_unschedulable",
        "startup_taint",
        "startup_taint_prefix",
        "status_taint",
    }
)
"""What a new node of a group is."""

READ: Final[Mapping[Question, frozenset[str]]] = {
    Question.ESTIMATE: _TEMPLATES,
    Question.HEADROOM: frozenset(),
    Question.MIX: _TEMPLATES,
    Question.REBUILD: _TEMPLATES,
    Question.SCALE_DOWN: frozenset(
        {
            "blocking_system_pod_distruption_timeout",
            "cores_total",
            "expendable_pods_priority_cutoff",
            "gpu_total",
            "ignore_daemonsets_utilization",
            "ignore_mirror_pods_utilization",
            "memory_total",
            "min_replica_count",
            "scale_down_gpu_utilization_threshold",
            "scale_down_unready_enabled",
            "scale_down_utilization_threshold",
            "skip_nodes_with_custom_controller_pods",
            "skip_nodes_with_local_storage",
            "skip_nodes_with_system_pods",
        }
    ),
}
"""By field of the options. The question scale-down is which nodes could go together: no time passes, and nothing limits
how many go at once. Of a question that is not here, :func:`~kscale.ca.flag_parsing.parse_flags` tells."""


def options_in(edit: Mapping[str, Any], question: Question) -> dict[str, Any]:
    """The flags of an edit by field of the options. Raises InputError for one that cannot be read, and for one that the
    answer does not depend on."""
    if not edit:
        raise InputError("no flag is named")
    parsed = parse_flags(f"{name}={_text(value)}" for name, value in edit.items())
    if question is Question.SIMULATE:  # whole loops, one after the other
        fields = AutoscalingOptions.__struct_fields__
        idle = {name: why for name, why in parsed.idle.items() if name.replace("-", "_") not in fields}
    elif question not in READ:
        idle = dict(parsed.idle)
    else:
        names = {name: name.removeprefix("--").replace("-", "_") for name in edit}
        why = f"the question {question} does not depend on it"
        idle = {name: why for name, field in names.items() if field not in READ[question]}
    if idle:
        name, why = next(iter(idle.items()))
        raise InputError(f"flag {name} has no effect: {why}")
    return parsed.values


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
