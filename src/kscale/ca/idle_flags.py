"""Upstream's flags that change no answer of a single scale-up, and why: they are taken, and said.

And a few that would change it and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["IDLE", "NOT_HERE"]

_PROCESS: Final = "it concerns a running autoscaler"
_CLOUD: Final = "node groups come from the input"
_SPEED: Final = "answers do not depend on it"
_SCALE_DOWN: Final = "it concerns scale-down"
_OTHERS: Final = "only the aws, azure and gce builds read it"


def _all(why: str, names: str) -> dict[str, str]:
    return {name.replace("-", "_"): why for name in names.split()}


IDLE: Final[Mapping[str, str]] = {
    **_all(
        _PROCESS,
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
    **_all(
        _CLOUD,
        """cluster-name cloud-config cloud-provider clusterapi-cloud-config-authoritative regional nodes
        node-group-auto-discovery aws-use-static-instance-list bulk-mig-instances-listing-enabled
        gce-concurrent-refreshes gce-mig-instances-min-refresh-wait-time""",
    ),
    **_all(
        _SPEED,
        "predicate-parallelism cluster-snapshot-parallelism enable-inter-pod-affinity-hostname-fast-path",
    ),
    **_all(
        _OTHERS,
        """balancing-ignore-label memory-difference-ratio max-free-difference-ratio
        max-allocatable-difference-ratio""",
    ),
    **_all(
        _SCALE_DOWN,
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

NOT_HERE: Final[Mapping[str, str]] = {
    "scheduler_config_file": "kscale.scheduler_profile makes a profile of it, for kscale.scale_up(profile=...)",
}
"""Flags that would change the answer, which this does not give; in snake_case, with what does."""
