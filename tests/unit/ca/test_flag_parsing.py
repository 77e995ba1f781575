"""Upstream's flags with their defaults, as texts, held against the options."""

from __future__ import annotations

import pytest
from msgspec.structs import fields

from kscale import ca
from kscale.ca import flag_parsing
from kscale.ca.flag_parsing import parse_flags
from kscale.errors import InputError
from rows import each_row

DEFAULTS = """
    predicate-parallelism=4 namespace=kube-system
    status-config-map-name=cluster-autoscaler-status

    scan-interval=10s max-total-unready-percentage=45 ok-total-unready-count=3 max-node-provision-time=15m
    max-node-startup-time=15m initial-node-group-backoff-duration=5m max-node-group-backoff-duration=30m
    node-group-backoff-reset-timeout=3h force-delete-unregistered-nodes=false force-delete-failed-nodes=false
    node-info-cache-expire-time=87600h enable-graceful-degradation=false pending-pods-batching-timeout=4m

    max-nodes-total=0 cores-total=0:320000 memory-total=0:6400000 scale-up-from-zero=true
    enforce-node-group-min-size=false estimator=binpacking expander=least-waste grpc-expander-cert= grpc-expander-url=
    max-nodes-per-scaleup=1000 max-nodegroup-binpacking-duration=10s max-binpacking-time=5m
    fastpath-binpacking-enabled=false balance-similar-node-groups=false memory-difference-ratio=0.015
    max-free-difference-ratio=0.05 max-allocatable-difference-ratio=0.05 parallel-scale-up=false salvo-scale-up=false
    salvo-scale-up-budget=1m new-pod-scale-up-delay=0s expendable-pods-priority-cutoff=-10
    scale-from-unschedulable=false force-ds=false scaleup-simulation-for-skipped-node-groups-enabled=false
    async-node-groups=false capacity-quotas-enabled=false

    scale-down-enabled=true scale-down-unready-enabled=true scale-down-delay-after-add=10m
    scale-down-delay-after-delete=0s scale-down-delay-after-failure=3m scale-down-delay-type-local=false
    scale-down-unneeded-time=10m scale-down-unready-time=20m scale-down-utilization-threshold=0.5
    scale-down-gpu-utilization-threshold=0.5 ignore-daemonsets-utilization=false ignore-mirror-pods-utilization=false
    scale-down-non-empty-candidates-count=30 scale-down-candidates-pool-ratio=0.1
    scale-down-candidates-pool-min-count=50 scale-down-simulation-timeout=30s unremovable-node-recheck-timeout=5m
    max-scale-down-parallelism=10 max-drain-parallelism=1 node-deletion-delay-timeout=2m
    node-deletion-batcher-interval=0s node-delete-delay-after-taint=5s
    dynamic-node-delete-delay-after-taint-enabled=false max-pod-eviction-time=2m max-graceful-termination-sec=600
    drain-priority-config= cordon-node-before-terminating=true daemonset-eviction-for-empty-nodes=false
    daemonset-eviction-for-occupied-nodes=true skip-nodes-with-system-pods=true
    blocking-system-pod-distruption-timeout=1h skip-nodes-with-local-storage=true
    skip-nodes-with-custom-controller-pods=true min-replica-count=0 max-bulk-soft-taint-count=10
    max-bulk-soft-taint-time=3s node-deletion-candidate-ttl=0s

    enable-proactive-scaleup=false pod-injection-limit=5000 enable-dynamic-resource-allocation=true
    enable-csi-node-aware-scheduling=false capacity-buffer-pod-injection-enabled=false

    enable-provisioning-requests=false provisioning-request-initial-backoff-time=1m
    provisioning-request-max-backoff-time=10m provisioning-request-max-backoff-cache-size=1000
    check-capacity-batch-processing=false check-capacity-provisioning-request-max-batch-size=10
    check-capacity-provisioning-request-batch-timebox=10s check-capacity-processor-instance=

    node-removal-latency-tracking-enabled=false max-node-skip-eval-time-tracker-enabled=false
    write-status-configmap=true emit-per-nodegroup-metrics=false

    node-autoprovisioning-enabled=false max-autoprovisioned-node-group-count=15 max-empty-bulk-delete=10
"""
"""The last line is of release 1.3. Flags that may be repeated have no default."""

REPEATED = {
    "gpu_total", "balancing_ignore_label", "balancing_label", "bypassed_scheduler_names", "allowed_scheduler_names",
    "startup_taint", "ignore_taint", "status_taint", "startup_taint_prefix",
}  # fmt: skip


@each_row(DEFAULTS.split())
def test_the_default_is_upstreams(flag: str) -> None:
    ((name, value),) = parse_flags([flag]).values.items()
    assert getattr(ca.AutoscalingOptions(), name) == value


def test_every_option_has_a_row() -> None:
    rows = {flag.partition("=")[0].replace("-", "_") for flag in DEFAULTS.split()}
    assert rows | REPEATED | {"profile"} == {field.name for field in fields(ca.AutoscalingOptions)}
    assert all(getattr(ca.AutoscalingOptions(), name) == [] for name in REPEATED)


def test_every_text_that_is_no_flag_is_named() -> None:
    with pytest.raises(InputError) as refused:
        parse_flags(["max-nodes-totl=3", "expander=random", "parallel-scale-up=perhaps"])
    assert [problem.field for problem in refused.value.problems] == ["max_nodes_totl", "parallel_scale_up"]
    assert "is 'max-nodes-total' meant?" in str(refused.value)


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("address=:8085", "it concerns a running autoscaler"),
        ("--v=4", "it concerns a running autoscaler"),
        ("scan-interval=1m", "it concerns a running autoscaler"),
        ("nodes=1:10:pool", "node groups come from the input"),
        ("enable-inter-pod-affinity-hostname-fast-path", "answers do not depend on it"),
        ("predicate-parallelism=8", "answers do not depend on it"),
        ("balancing-ignore-label=zone", "only the aws, azure and gce builds read it"),
        ("memory-difference-ratio=0.1", "only the aws, azure and gce builds read it"),
        ("scale-down-unneeded-time=1m", "it concerns scale-down"),
    ],
)
def test_flags_without_effect_are_reported(flag: str, why: str) -> None:
    (result,) = parse_flags([flag]).idle.values()
    assert result == why


def test_a_flag_that_would_change_an_answer_is_refused() -> None:
    with pytest.raises(InputError, match=r"is not taken here.*kscale\.scheduler_profile\b"):
        parse_flags(["scheduler-config-file=f"])


def test_no_field_is_refused() -> None:
    assert not flag_parsing.UNSUPPORTED_FLAGS.keys() & {field.name for field in fields(ca.AutoscalingOptions)}


@pytest.mark.parametrize(("text", "number"), [("10", 10), ("010", 8), ("0x10", 16), ("1_0", 10), ("0", 0)])
def test_integers_as_in_go(text: str, number: int) -> None:
    assert parse_flags([f"--max-nodes-total={text}"]).values == {"max_nodes_total": number}


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--expander", "needs a value"),
        ("--max-nodes-total", "needs a value"),
        ("--max-nodes-total=08", "not a whole number"),
        ("--max-nodes-total= 1", "not a whole number"),
        ("--scale-down-utilization-threshold=1__0", "not a number"),
    ],
)
def test_values_that_go_refuses(flag: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_flags([flag])
