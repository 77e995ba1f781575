"""Parse flags of the Cluster Autoscaler (``name=value``) into option fields, and report flags without effect.

Names and defaults are the fields of :class:`~kscale.ca.options.AutoscalingOptions`. A few flags that would change
decisions are rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from kscale.ca.options import AutoscalingOptions, GpuLimits, ResourceRange, parse_gpu_limits, parse_range
from kscale.errors import InputError, Problem
from kscale.objects.go_numbers import OUT_OF_RANGE, parse_bool, parse_float, parse_int_literal
from kscale.objects.times import parse_duration

__all__ = ["IDLE_FLAGS", "UNSUPPORTED_FLAGS", "ParsedFlags", "parse_flags"]


_PROCESS_REASON: Final = "it concerns a running autoscaler"
_CLOUD_REASON: Final = "node groups come from the input"
_SPEED_REASON: Final = "answers do not depend on it"
_SCALE_DOWN_REASON: Final = "it concerns scale-down"
_OTHER_BUILDS_REASON: Final = "only the aws, azure and gce builds read it"


def _map_flags(why: str, names: str) -> dict[str, str]:
    """Return a dict that maps the field of each flag in ``names``, separated by spaces, to the text ``why``."""
    return {name.replace("-", "_"): why for name in names.split()}


IDLE_FLAGS: Final[Mapping[str, str]] = {
    **_map_flags(
        _PROCESS_REASON,
        """address kubernetes kubeconfig kube-api-content-type kube-client-burst kube-client-qps user-agent profiling
        debugging-snapshot-enabled record-duplicated-events emit-per-nodegroup-metrics write-status-configmap
        scan-interval frequent-loops-enabled max-inactivity max-failing-time max-startup-time leader-elect
        leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period leader-elect-resource-lock
        leader-elect-resource-name leader-elect-resource-namespace v vmodule logging-format logtostderr alsologtostderr
        stderrthreshold log-dir log-file one-output skip-headers scheduler-verbosity feature-gates add-dir-header
        alsologtostderrthreshold legacy-stderr-threshold-behavior log-backtrace-at log-file-max-size log-flush-frequency
        log-json-info-buffer-size log-json-split-stream log-text-info-buffer-size log-text-split-stream skip-log-headers
        capacity-buffer-controller-enabled capacity-buffer-pod-dry-run-enabled node-removal-latency-tracking-enabled
        max-node-skip-eval-time-tracker-enabled""",
    ),
    **_map_flags(
        _CLOUD_REASON,
        """cluster-name cloud-config cloud-provider clusterapi-cloud-config-authoritative regional nodes
        node-group-auto-discovery aws-use-static-instance-list bulk-mig-instances-listing-enabled
        gce-concurrent-refreshes gce-mig-instances-min-refresh-wait-time""",
    ),
    **_map_flags(
        _SPEED_REASON, "predicate-parallelism cluster-snapshot-parallelism enable-inter-pod-affinity-hostname-fast-path"
    ),
    **_map_flags(
        _OTHER_BUILDS_REASON,
        """balancing-ignore-label memory-difference-ratio max-free-difference-ratio
        max-allocatable-difference-ratio""",
    ),
    **_map_flags(
        _SCALE_DOWN_REASON,
        """scale-down-enabled scale-down-unready-enabled scale-down-delay-after-add scale-down-delay-after-delete
        scale-down-delay-after-failure scale-down-delay-type-local scale-down-unneeded-time scale-down-unready-time
        scale-down-utilization-threshold scale-down-gpu-utilization-threshold ignore-daemonsets-utilization
        ignore-mirror-pods-utilization scale-down-non-empty-candidates-count scale-down-candidates-pool-ratio
        scale-down-candidates-pool-min-count scale-down-simulation-timeout unremovable-node-recheck-timeout
        max-scale-down-parallelism max-drain-parallelism node-deletion-delay-timeout node-deletion-batcher-interval
        node-delete-delay-after-taint dynamic-node-delete-delay-after-taint-enabled max-pod-eviction-time
        max-graceful-termination-sec drain-priority-config cordon-node-before-terminating
        daemonset-eviction-for-empty-nodes daemonset-eviction-for-occupied-nodes skip-nodes-with-system-pods
        blocking-system-pod-distruption-timeout skip-nodes-with-local-storage skip-nodes-with-custom-controller-pods
        min-replica-count max-bulk-soft-taint-count max-bulk-soft-taint-time node-deletion-candidate-ttl
        max-empty-bulk-delete""",
    ),
}
"""Flag in snake_case -> why; some are fields of the options."""

UNSUPPORTED_FLAGS: Final[Mapping[str, str]] = {
    "scheduler_config_file": "kscale.scheduler_profile makes a profile of it, for kscale.scale_up(profile=...)",
}
"""Flags that would change the answer, which this does not give; in snake_case, with what does."""


_COUNT_FIELDS = (
    "max_nodes_total",
    "max_nodes_per_scaleup",
    "max_autoprovisioned_node_group_count",
    "max_empty_bulk_delete",
)
"""Maximum numbers. Upstream reads a negative number as no limit or as 0. On a command line it is rejected as a typing
error.
"""


class ParsedFlags(msgspec.Struct, kw_only=True):
    """Parsed flags: ``values`` by field of :class:`~kscale.ca.AutoscalingOptions`; ``idle``: flags without effect, and
    why.
    """

    values: dict[str, Any] = {}
    idle: dict[str, str] = {}


@cache
def _get_option_types() -> dict[str, Any]:
    """Return the types of the options by field."""
    return get_type_hints(AutoscalingOptions)


def parse_flags(texts: Iterable[str]) -> ParsedFlags:
    """Parse ``name=value`` texts into option fields. The name is that of the flag or the field, with or without ``--``.

    A boolean flag needs no value. Values of a repeatable flag are collected; of any other flag the last one counts.
    Flags without effect are reported in ``idle``; their values are read only if the options have a field for them.
    Raises InputError, with every problem, for unknown and unsupported flags, invalid values and negative limits.
    """
    hints = _get_option_types()
    flags = ParsedFlags()
    problems = []
    for text in texts:
        name, separator, value = text.removeprefix("--").partition("=")
        field = name.replace("-", "_")
        if field in IDLE_FLAGS:
            flags.idle[name] = IDLE_FLAGS[field]
            if field not in hints:
                continue
        if field in UNSUPPORTED_FLAGS:
            problems.append(Problem(f"flag {name} is not taken here: {UNSUPPORTED_FLAGS[field]}", field=field))
            continue
        kind = hints.get(field)
        if kind is None or field == "profile":
            others = [other for other in hints if other != "profile"]
            problems.append(Problem(f"there is no flag {name!r}{_suggest_flag(field, others)}", field=field))
            continue
        if kind is not bool and not separator:
            problems.append(Problem(f"flag {name} needs a value", field=field))
            continue
        try:
            if get_origin(kind) is list:
                flags.values.setdefault(field, []).append(_parse_value(get_args(kind)[0], value))
            else:
                flags.values[field] = True if kind is bool and not separator else _parse_value(kind, value)
            if field in _COUNT_FIELDS and flags.values[field] < 0:
                problems.append(Problem(f"{value} is negative", field=field))
        except (ValueError, InputError) as error:
            problems.append(Problem(f"{value!r} is no value of flag {name}: {error}", field=field))
    if problems:
        raise InputError(problems)
    return flags


def _suggest_flag(field: str, hints: Iterable[str]) -> str:
    """Return a question that suggests the flag most similar to ``field``, to append to a message.

    ``hints``: fields to choose from, besides the idle flags. Empty if none is similar.
    """
    close = get_close_matches(field, [*hints, *IDLE_FLAGS], n=1)
    return f"; is {close[0].replace('_', '-')!r} meant?" if close else ""


def _parse_value(kind: Any, text: str) -> Any:
    """Parse the value of a flag whose option has the type ``kind``.

    Raises ValueError, or InputError for a range, if the text is invalid. A duration is rounded to microseconds.
    """
    if kind is bool:
        try:
            return parse_bool(text)
        except ValueError:
            raise ValueError("neither true nor false") from None
    if kind is timedelta:
        return timedelta(microseconds=parse_duration(text) / 1000)
    if kind is ResourceRange:
        return parse_range(text)
    if kind is GpuLimits:
        return parse_gpu_limits(text)
    if kind not in (int, float):
        return kind(text)
    try:
        return parse_int_literal(text) if kind is int else parse_float(text)
    except ValueError as error:
        if error.args[0] == OUT_OF_RANGE:
            raise
        raise ValueError("not a number" if kind is float else "not a whole number") from None
