"""Flags of recommender, updater and admission controller, by upstream's names and defaults.

Constants that no flag sets are in ``histogram.py`` (buckets, minimum weight) and ``checkpoints.py`` (version). Options
that only concern a running process (addresses, certificates, clients, leader election) belong to the drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from kscale.errors import Problem
from kscale.objects.argument_types import check_fields
from kscale.objects.quantity import Quantity

__all__ = [
    "BEFORE_1_8_1",
    "CPU_STARTUP_BOOST_GATE",
    "CURRENT",
    "IN_PLACE_GATE",
    "LEGACY",
    "LEGACY_UPDATER_FLAGS",
    "PER_VPA_CONFIG_GATE",
    "AdmissionOptions",
    "RecommenderOptions",
    "UpdaterOptions",
    "describe_percentiles",
    "is_gate_enabled",
]

_DAY: Final = timedelta(days=1)
CURRENT: Final = "current"
BEFORE_1_8_1: Final = "1.8.0"
LEGACY: Final = "legacy"
LEGACY_UPDATER_FLAGS: Final = frozenset(
    {
        "updater_interval", "min_replicas", "eviction_tolerance", "eviction_rate_limit", "eviction_rate_burst",
        "evict_after_oom_threshold", "profile",
    }
)  # fmt: skip
"""Options that the updater of 2020 has a flag for."""
PER_VPA_CONFIG_GATE: Final = "PerVPAConfig"
CPU_STARTUP_BOOST_GATE: Final = "CPUStartupBoost"
IN_PLACE_GATE: Final = "InPlace"


def is_gate_enabled(gates: Mapping[str, bool], name: str) -> bool:
    """Check whether a feature gate is on, by name or by ``AllAlpha``. All gates of the VPA are alpha, so the default is
    off.
    """
    return gates.get(name, gates.get("AllAlpha", False))


_FEATURE_GATES: Final = frozenset({"AllAlpha", "AllBeta", PER_VPA_CONFIG_GATE, CPU_STARTUP_BOOST_GATE, IN_PLACE_GATE})


def _find_gate_problems(gates: Mapping[str, bool]) -> list[Problem]:
    """Return one problem for each unknown feature gate."""
    unknown = sorted(set(gates) - _FEATURE_GATES)
    return [Problem(f"unrecognized feature gate: {name}", field="feature_gates") for name in unknown]


def _ignores_namespace(namespace: str, only: str, ignored: list[str]) -> bool:
    """Check whether a namespace is ignored. ``only``: the only one that is not (empty: all)."""
    return bool(only and namespace != only) or namespace in ignored


def _find_namespace_problems(one: str, ignored: list[str]) -> list[Problem]:
    """Return a problem if only ``one`` namespace is read (empty: all) and namespaces are ignored, too."""
    if not (one and ignored):
        return []
    flags = "--vpa-object-namespace and --ignored-vpa-object-namespaces"
    text = f"{flags} are mutually exclusive and can't be set together."
    return [Problem(text, field="ignored_vpa_object_namespaces")]


class RecommenderOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Options of the recommender: upstream's flags of the same names.

    Amounts are in the unit that a flag's name states; memory is in MiB where it is MB.

    Attributes
    ----------
    recommender_name
        Only serve VPAs that name this recommender; the default one also serves VPAs that name none.
    vpa_object_namespace
        Only read VPAs in this namespace; empty: in all namespaces.
    ignored_vpa_object_namespaces
        Ignore VPAs in these namespaces.
    memory_saver
        Only track pods that some VPA selects.
    recommender_interval
        Time between two rounds.
    update_worker_count
        Number of statuses and checkpoints that are written in parallel.
    checkpoints_timeout
        Time limit for writing checkpoints in one round.
    checkpoints_gc_interval
        Time between two deletions of checkpoints whose VPA is gone.
    min_checkpoints
        Has no effect: ``update_worker_count`` says how many are written at least.
    storage
        Source of the history at the start: checkpoint (also if empty) or prometheus.
    use_external_metrics
        Read usage from external.metrics.k8s.io instead of metrics.k8s.io.
    external_metrics_cpu_metric
        Name of the external metric of CPU usage.
    external_metrics_memory_metric
        Name of the external metric of memory usage.
    container_name_label
        Label that names the container, in external metrics and in Prometheus series.
    recommendation_margin_fraction
        Margin that is added to usage, as a fraction.
    pod_recommendation_min_cpu_millicores
        Minimum CPU of a pod's recommendation, in millicores.
    pod_recommendation_min_memory_mb
        Minimum memory of a pod's recommendation, in MiB.
    target_cpu_percentile
        Percentile of CPU usage that is the target.
    target_memory_percentile
        Percentile of memory peaks that is the target.
    recommendation_lower_bound_cpu_percentile
        Percentile of CPU usage that is the lower bound.
    recommendation_lower_bound_memory_percentile
        Percentile of memory peaks that is the lower bound.
    recommendation_upper_bound_cpu_percentile
        Percentile of CPU usage that is the upper bound.
    recommendation_upper_bound_memory_percentile
        Percentile of memory peaks that is the upper bound.
    confidence_interval_cpu
        Length of CPU history after which the bounds are narrow.
    confidence_interval_memory
        Length of memory history after which the bounds are narrow.
    humanize_memory
        Write memory as 250.00Mi (deprecated).
    round_cpu_millicores
        Round CPU up to multiples of this many millicores.
    round_memory_bytes
        Round memory up to multiples of this many bytes.
    cpu_integer_post_processor_enabled
        Recommend whole cores where an annotation of the VPA asks for them.
    container_recommendation_max_allowed_cpu
        Maximum CPU of a container whose policy names no maximum.
    container_recommendation_max_allowed_memory
        Maximum memory of a container whose policy names no maximum.
    memory_aggregation_interval
        Length of the interval of which the peak of memory usage is kept.
    memory_aggregation_interval_count
        Number of memory intervals in the history.
    memory_histogram_decay_half_life
        Time after which a memory peak counts half.
    cpu_histogram_decay_half_life
        Time after which a CPU sample counts half.
    oom_bump_up_ratio
        Factor by which memory is raised after an out-of-memory kill.
    oom_min_bump_up_bytes
        Minimum number of bytes by which memory is raised after an out-of-memory kill.
    feature_gates
        Feature gates: PerVPAConfig, CPUStartupBoost, InPlace, AllAlpha. All are off by default.
    """

    recommender_name: str = "default"
    vpa_object_namespace: str = ""
    ignored_vpa_object_namespaces: list[str] = []
    memory_saver: bool = False
    recommender_interval: timedelta = timedelta(minutes=1)
    update_worker_count: int = 10
    checkpoints_timeout: timedelta = timedelta(minutes=1)
    checkpoints_gc_interval: timedelta = timedelta(minutes=10)
    min_checkpoints: int = 10
    storage: str = ""
    use_external_metrics: bool = False
    external_metrics_cpu_metric: str = ""
    external_metrics_memory_metric: str = ""
    container_name_label: str = "name"
    recommendation_margin_fraction: float = 0.15
    pod_recommendation_min_cpu_millicores: float = 25.0
    pod_recommendation_min_memory_mb: float = 250.0
    target_cpu_percentile: float = 0.9
    target_memory_percentile: float = 0.9
    recommendation_lower_bound_cpu_percentile: float = 0.5
    recommendation_lower_bound_memory_percentile: float = 0.5
    recommendation_upper_bound_cpu_percentile: float = 0.95
    recommendation_upper_bound_memory_percentile: float = 0.95
    confidence_interval_cpu: timedelta = _DAY
    confidence_interval_memory: timedelta = _DAY
    humanize_memory: bool = False
    round_cpu_millicores: int = 1
    round_memory_bytes: int = 1
    cpu_integer_post_processor_enabled: bool = False
    container_recommendation_max_allowed_cpu: Quantity = Quantity.zero()
    container_recommendation_max_allowed_memory: Quantity = Quantity.zero()
    memory_aggregation_interval: timedelta = _DAY
    memory_aggregation_interval_count: int = 8
    memory_histogram_decay_half_life: timedelta = _DAY
    cpu_histogram_decay_half_life: timedelta = _DAY
    oom_bump_up_ratio: float = 1.2
    oom_min_bump_up_bytes: float = 104857600.0
    feature_gates: dict[str, bool] = {}

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def use_checkpoints(self) -> bool:
        """Return whether history is stored in checkpoints (True) or comes from Prometheus (False)."""
        return self.storage != "prometheus"

    def ignores(self, namespace: str) -> bool:
        """Check whether VPAs and checkpoints of a namespace are ignored (``shouldIgnoreNamespace``)."""
        return _ignores_namespace(namespace, self.vpa_object_namespace, self.ignored_vpa_object_namespaces)

    def problems(self) -> list[Problem]:
        """Return the problems of the options; empty if there are none. ``field`` of each problem is the option.

        Problems are options that upstream rejects at start-up (in upstream's words), an interval at which no round
        would start, a negative half life, a number of workers that would update no VPA, and an option
        without effect.
        """
        problems = _find_namespace_problems(self.vpa_object_namespace, self.ignored_vpa_object_namespaces)
        problems += _find_gate_problems(self.feature_gates)
        if self.min_checkpoints != 10:
            text = "min-checkpoints has no effect: update-worker-count says how many are written at least"
            problems.append(Problem(text, field="min_checkpoints"))
        if self.update_worker_count < 1:
            text = f"{self.update_worker_count} workers never update a VPA"
            problems.append(Problem(text, field="update_worker_count"))
        for name in ("memory_histogram_decay_half_life", "cpu_histogram_decay_half_life"):
            if getattr(self, name) < timedelta():
                problems.append(Problem("must not be negative", field=name))
        return problems + _find_interval_problems(self.recommender_interval, "recommender_interval")


class UpdaterOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Options of the updater: upstream's flags of the same names.

    - ``feature_gates``: name -> whether it is on; a missing gate has the value of ``AllAlpha``, else it is off.
      ``InPlace`` and ``CPUStartupBoost`` allow the update mode and the end of boosts, ``PerVPAConfig`` a VPA's own
      ``evictAfterOOMSeconds``.
    - ``profile``: version of the updater: ``current`` (1.7.3, and 1.8.1 or newer); ``1.8.0`` for 1.8.0 or older, in
      which a container that was OOM-killed soon after its start counts however long ago that was; ``legacy`` for the
      updater of 2020 (:mod:`kscale.vpa.updater.legacy`), which reads only :data:`LEGACY_UPDATER_FLAGS`.

    Attributes
    ----------
    vpa_object_namespace
        Only read VPAs in this namespace; empty: in all namespaces.
    ignored_vpa_object_namespaces
        Ignore VPAs in these namespaces.
    updater_interval
        Time between two loops, and time limit of each.
    use_admission_controller_status
        Do nothing while the admission controller's status lease is stale.
    admission_controller_status_lease_name
        Name of the admission controller's status lease.
    admission_controller_status_lease_namespace
        Namespace of the admission controller's status lease; empty: ``kube-system``.
    admission_controller_status_lease_timeout
        Age after which the admission controller's status lease is stale.
    min_replicas
        Minimum number of replicas of a workload whose pods are updated, unless its VPA names another.
    eviction_tolerance
        Fraction of a workload's replicas that may be evicted at once.
    eviction_rate_limit
        Maximum number of evictions per second; 0 or less: no limit.
    eviction_rate_burst
        Maximum number of evictions at once.
    in_place_skip_disruption_budget
        Resize pods in place without a disruption budget if no container restarts.
    pod_update_threshold
        Minimum relative change of a pod's requests that is worth an update.
    in_recommendation_bounds_eviction_lifetime_threshold
        Minimum age of pods that are updated although their requests are within the bounds.
    evict_after_oom_threshold
        Update a pod of which a container was killed for memory within this time after its start.
    feature_gates
        Feature gates: PerVPAConfig, CPUStartupBoost, InPlace, AllAlpha. All are off by default.
    profile
        Version of the updater: ``current``, ``1.8.0`` or ``legacy``.
    """

    vpa_object_namespace: str = ""
    ignored_vpa_object_namespaces: list[str] = []
    updater_interval: timedelta = timedelta(minutes=1)
    use_admission_controller_status: bool = True
    admission_controller_status_lease_name: str = "vpa-admission-controller"
    admission_controller_status_lease_namespace: str = ""
    admission_controller_status_lease_timeout: timedelta = timedelta(minutes=1)
    min_replicas: int = 2
    eviction_tolerance: float = 0.5
    eviction_rate_limit: float = -1.0
    eviction_rate_burst: int = 1
    in_place_skip_disruption_budget: bool = False
    pod_update_threshold: float = 0.1
    in_recommendation_bounds_eviction_lifetime_threshold: timedelta = timedelta(hours=12)
    evict_after_oom_threshold: timedelta = timedelta(minutes=10)
    feature_gates: dict[str, bool] = {}
    profile: str = CURRENT

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def legacy(self) -> bool:
        """Return whether the profile is the updater of 2020."""
        return self.profile == LEGACY

    def ignores(self, namespace: str) -> bool:
        """Check whether VPAs of a namespace are ignored."""
        return _ignores_namespace(namespace, self.vpa_object_namespace, self.ignored_vpa_object_namespaces)

    def problems(self) -> list[Problem]:
        """Return the problems of the options; empty if there are none. ``field`` of each problem is the option.

        Problems are options that upstream rejects at start-up (in upstream's words), an interval at which no loop would
        start, an unknown profile, and, with the profile ``legacy``, options that the updater of 2020 did not have and
        that are not at their default.
        """
        problems = _find_namespace_problems(self.vpa_object_namespace, self.ignored_vpa_object_namespaces)
        problems += _find_gate_problems(self.feature_gates)
        if self.profile not in (CURRENT, BEFORE_1_8_1, LEGACY):
            text = f"unknown profile {self.profile!r}; there are {CURRENT}, {BEFORE_1_8_1}, {LEGACY}"
            problems.append(Problem(text, field="profile"))
        if self.legacy:
            today = UpdaterOptions()
            problems += [
                Problem("the updater of 2020 has no such flag", field=name)
                for name in self.__struct_fields__
                if name not in LEGACY_UPDATER_FLAGS and getattr(self, name) != getattr(today, name)
            ]
        if self.admission_controller_status_lease_timeout <= timedelta():
            text = "--admission-controller-status-lease-timeout must be positive."
            problems.append(Problem(text, field="admission_controller_status_lease_timeout"))
        return problems + _find_interval_problems(self.updater_interval, "updater_interval")


class AdmissionOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Options of the admission controller: upstream's flags of the same names.

    ``feature_gates``: name -> whether it is on; a missing gate has the value of ``AllAlpha``, else it is off.
    ``InPlace``, ``CPUStartupBoost`` and ``PerVPAConfig`` allow VPAs that use them, ``CPUStartupBoost`` also boosts new
    pods.

    Attributes
    ----------
    max_allowed_cpu_boost
        Maximum CPU that a startup boost may set; zero: no limit.
    status_lease_name
        Name of the lease that shows that the webhook is alive.
    status_lease_namespace
        Namespace of the status lease; empty: ``kube-system``.
    status_lease_update_interval
        Time between two renewals of the status lease.
    feature_gates
        Feature gates: PerVPAConfig, CPUStartupBoost, InPlace, AllAlpha. All are off by default.
    """

    max_allowed_cpu_boost: Quantity = Quantity.zero()
    status_lease_name: str = "vpa-admission-controller"
    status_lease_namespace: str = ""
    status_lease_update_interval: timedelta = timedelta(seconds=10)
    feature_gates: dict[str, bool] = {}

    def __post_init__(self) -> None:
        check_fields(self)

    def problems(self) -> list[Problem]:
        """Return the problems of the options; empty if there are none. ``field`` of each problem is the option.

        Problems are options that upstream rejects at start-up, in upstream's words.
        """
        problems = _find_gate_problems(self.feature_gates)
        if self.status_lease_update_interval <= timedelta():
            text = "--status-lease-update-interval must be positive."
            problems.append(Problem(text, field="status_lease_update_interval"))
        return problems


def _find_interval_problems(interval: timedelta, field: str) -> list[Problem]:
    """Return a problem if the interval is not positive, as Go's ticker then never ticks."""
    return [] if interval > timedelta() else [Problem("must be greater than zero", field=field)]


def describe_percentiles(options: RecommenderOptions) -> dict[str, str]:
    """Return a text per resource on how the recommender computes target and bounds, before policies."""
    margin = f"plus {options.recommendation_margin_fraction:.0%}"
    percentiles = {
        "cpu": (
            "usage",
            options.target_cpu_percentile,
            options.recommendation_lower_bound_cpu_percentile,
            options.recommendation_upper_bound_cpu_percentile,
        ),
        "memory": (
            "peaks",
            options.target_memory_percentile,
            options.recommendation_lower_bound_memory_percentile,
            options.recommendation_upper_bound_memory_percentile,
        ),
    }
    return {
        resource: f"percentile {100 * target:g} of {samples} {margin} (bounds: percentiles {100 * lower:g} and "
        f"{100 * upper:g})"
        for resource, (samples, target, lower, upper) in percentiles.items()
    }
