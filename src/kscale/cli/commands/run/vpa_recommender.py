"""``kscale run vpa-recommender``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from kscale.cli.go_flags import GoCommand
from kscale.cli.process import run_program
from kscale.cli.process_flags import LeaseFlags, ProcessFlags
from kscale.cli.struct_flags import flags_of, struct_of
from kscale.cli.vpa_flags import COMMON, PANEL, REFUSED, Address, ApiFlags, LeaderElect, LeaseName
from kscale.vpa.options import RecommenderOptions

__all__ = ["COMMAND", "command"]

_HELPS: Final = {
    **COMMON,
    "recommender_name": "Only VPAs that name it; default: also those that name none.",
    "recommender_interval": "Between two rounds.",
    "checkpoints_timeout": "So long checkpoints are written in a round.",
    "checkpoints_gc_interval": "How often checkpoints of VPAs that are gone are deleted.",
    "update_worker_count": "Statuses and checkpoints that are written side by side.",
    "memory_saver": "Remember only pods that some VPA selects.",
    "use_external_metrics": "Ask external.metrics.k8s.io, not metrics.k8s.io.",
    "external_metrics_cpu_metric": "Its metric of CPU.",
    "external_metrics_memory_metric": "Its metric of memory.",
    "container_name_label": "The label of external metrics that names a container.",
    "recommendation_margin_fraction": "What is added to usage.",
    "pod_recommendation_min_cpu_millicores": "The least CPU of a pod.",
    "pod_recommendation_min_memory_mb": "The least memory of a pod, in MiB.",
    "target_cpu_percentile": "Percentile of CPU usage that is the target.",
    "target_memory_percentile": "Percentile of memory peaks that is the target.",
    "recommendation_lower_bound_cpu_percentile": "Of the lower bound.",
    "recommendation_lower_bound_memory_percentile": "Of the lower bound.",
    "recommendation_upper_bound_cpu_percentile": "Of the upper bound.",
    "recommendation_upper_bound_memory_percentile": "Of the upper bound.",
    "confidence_interval_cpu": "History after which bounds are narrow.",
    "confidence_interval_memory": "History after which bounds are narrow.",
    "humanize_memory": "Memory as 250.00Mi (deprecated).",
    "round_cpu_millicores": "CPU is rounded up to multiples of it.",
    "round_memory_bytes": "Memory is rounded up to multiples of it.",
    "cpu_integer_post_processor_enabled": "Whole cores where an annotation asks for them.",
    "container_recommendation_max_allowed_cpu": "The most for a container whose policy names no maximum.",
    "container_recommendation_max_allowed_memory": "The most for a container whose policy names no maximum.",
    "memory_aggregation_interval": "One peak of memory is kept for each.",
    "memory_aggregation_interval_count": "So many of them are the history.",
    "memory_histogram_decay_half_life": "After it a peak counts half.",
    "cpu_histogram_decay_half_life": "After it a sample counts half.",
    "oom_bump_up_ratio": "What a kill for memory multiplies.",
    "oom_min_bump_up_bytes": "What it adds at least.",
}  # fmt: skip

RecommenderFlags: Any = flags_of("RecommenderFlags", RecommenderOptions, _HELPS, panel=PANEL)


class COMMAND(GoCommand):
    """Its flags are upstream's."""

    refused: ClassVar[Mapping[str, str]] = {
        **REFUSED,
        "min-checkpoints": "it has no effect: --update-worker-count says how many are written at least",
    }


@dataclass
class Process(ProcessFlags):
    """With the recommender's port."""

    address: Address = ":8942"


@dataclass
class Lease(LeaseFlags):
    """With the recommender's lease."""

    leader_elect: LeaderElect = False
    leader_elect_resource_name: LeaseName = "vpa-recommender-lease"


def command(*, process: Process, api: ApiFlags, lease: Lease, flags: RecommenderFlags) -> None:
    """Recommend requests for the pods of VPAs, each minute, as upstream's vpa-recommender does.

    Usage comes from metrics-server (or external metrics); the history is kept in checkpoints. Runs instead of the stock
    recommender, or beside it under another --recommender-name.
    """
    options = struct_of(flags, RecommenderOptions)
    from kscale.drivers.vpa_recommender import recommender_program

    run_program(
        "vpa-recommender",
        process,
        partial(recommender_program, options=options),
        election=lease.election(),
        qps=api.kube_api_qps,
        burst=api.kube_api_burst,
    )
