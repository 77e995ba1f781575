"""The Cluster Autoscaler as a driver (upstream: ``main.go``, ``pkg/loop``).

It has no clock: the driver's caller reports what last_results and when, and asks when the driver is due.
:func:`is_recent_unschedulable` checks the changes of the watch of unscheduled pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.ca.cluster_state import build_initializing_status, is_scaling_up
from kscale.ca.entry_points import run_once, run_once_steps
from kscale.ca.expander.types import ExpanderInput, PriceResponder, RankResponder, Rng
from kscale.ca.gpu import DEFAULT_GPU_LABEL
from kscale.ca.log_lines import build_log_lines
from kscale.ca.loop_context import LoopInputs
from kscale.ca.loop_state import LoopState, shift_moments
from kscale.ca.metrics import METRICS, build_initial_observations, build_observation
from kscale.ca.node_group_set import Comparator
from kscale.ca.options import GIB, AutoscalingOptions
from kscale.ca.scale_down.actuation.actuator import Actuator
from kscale.ca.static_autoscaler.report import LoopReport
from kscale.ca.static_autoscaler.skip_unchanged import (
    PodChanges,
    collect_node_moments,
    find_next_difference,
    get_young_system_pod_times,
    is_repeated_loop,
    is_stable_snapshot,
    repeat_state,
)
from kscale.ca.status_config_map import format_status, write_status_config_map
from kscale.drivers.driver import format_action
from kscale.drivers.process import HealthCheck
from kscale.effects import (
    SECOND,
    ZERO_TIME,
    Delete,
    GetPrices,
    HasInstances,
    List,
    Metric,
    Moment,
    Progress,
    Refresh,
    Steps,
    duration,
    timedelta_of,
)
from kscale.errors import KscaleError
from kscale.objects.api.core import ConfigMap, Node, Pod
from kscale.objects.conditions import changed_at
from kscale.objects.decode import to_dict
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate
from kscale.objects.times import format_duration
from kscale.scheduling.profile import SchedulerProfile
from kscale.snapshot.snapshot import Snapshot
from kscale.world.protocols import Change, Clock, InputSources, Stores, Watch
from kscale.world.serve.app import DebuggingSnapshotService

__all__ = [
    "UNSCHEDULED_PODS",
    "AutoscalerProcess",
    "ClusterAutoscaler",
    "CurrentNodes",
    "LoopTrigger",
    "NotStartedError",
    "encode_loop_inputs",
    "is_recent_unschedulable",
    "is_small_cluster",
    "reach_nodes",
    "served_metrics",
    "shutdown_steps",
]


def encode_loop_inputs(snapshot: Snapshot, report: LoopReport) -> dict[str, Any]:
    """Return the inputs of a loop as plain data, with upstream's member names.

    They are nodes with their pods, pending pods that would fit, the template of each group that has one, and the loop's
    error, if any. Redact them before showing them.
    """
    pods: dict[int, list[dict[str, Any]]] = {}
    for i, node in enumerate(snapshot.placed_node.tolist()):
        pods.setdefault(node, []).append(to_dict(snapshot.placed[i].pod))
    nodes = [{"Node": to_dict(node), "Pods": pods.get(i, [])} for i, node in enumerate(snapshot.columns.objects)]
    waiting = report.scale_up.schedulable if report.scale_up is not None else []
    schedulable = [to_dict(record.pod) for record in snapshot.records(waiting)]
    data: dict[str, Any] = {"NodeList": nodes, "UnscheduledPodsCanBeScheduled": schedulable, "TemplateNodes": {}}
    for group in report.groups:
        if group.template is not None:
            data["TemplateNodes"][group.id] = _template(group.template)
    if report.error is not None:
        data["Error"] = report.error.message
    return data


def _template(template: NodeTemplate) -> dict[str, Any]:
    """Return a node template as plain data."""
    return {"Node": to_dict(template.node), "Pods": [to_dict(pod) for pod in template.pods]}


UNSCHEDULED_PODS: Final = "spec.nodeName=,status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of the pods that may start a loop."""

_RECENT: Final = 10 * SECOND


def is_recent_unschedulable(pod: Pod, now: Moment) -> bool:
    """Check whether the scheduler has reported within the last ten seconds that the pod fits on no node.

    ``now``: current time in nanoseconds. False for a pod that has a node or has finished.
    """
    if pod.is_finished or pod.spec.node_name:
        return False
    condition = next((each for each in pod.status.conditions or () if each.type == "PodScheduled"), None)
    if condition is None or condition.status != "False" or condition.reason != "Unschedulable":
        return False
    return changed_at(pod, condition) + _RECENT >= now


class LoopTrigger:
    """When the next loop is due. A loop is running from :meth:`register_start` to :meth:`register_end`.

    With ``frequent`` (``--frequent-loops-enabled``) a loop starts at once after a loop that did something, or as soon
    as a pod is unschedulable, and at the latest after waiting ``scan_interval``. Otherwise it starts ``scan_interval``
    after the end of the last loop. ``reason``: what upstream logs when a loop begins; empty without ``frequent``.
    """

    __slots__ = (
        "_frequent",
        "_interval",
        "_last_run",
        "_previous_run",
        "_productive",
        "_token",
        "_waits_since",
        "reason",
    )

    def __init__(self, scan_interval: timedelta, *, frequent: bool = True, now: Moment) -> None:
        self._interval = duration(scan_interval)
        self._frequent = frequent
        self._previous_run = self._last_run = self._waits_since = now
        self._productive = ""
        self._token = False
        self.reason = ""

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, so that remaining waits are unchanged."""
        self._previous_run += by
        self._last_run += by
        self._waits_since += by

    def pod_waits(self) -> None:
        """Record that a pod is unschedulable, so that the next loop starts at once.

        Several pods count as one, also while a loop is running. No effect unless ``frequent``.
        """
        self._token = self._frequent

    def next_due(self) -> Moment:
        """Return when the next loop is due; a time in the past means now."""
        return self._waits_since if self._productive or self._token else self._waits_since + self._interval

    def register_start(self, now: Moment) -> int | None:
        """Register the start of a loop, and return how many nanoseconds it waited.

        Upstream: ``function_duration``, ``loopWait``. Returns None if upstream does not measure the wait: without
        ``frequent``.
        """
        if self._token:
            self.reason = "Autoscaler loop triggered by unschedulable pod appearing"
        elif self._productive:
            self.reason = f"Autoscaler loop triggered immediately after a {self._productive}"
        elif self._frequent:
            self.reason = f"Autoscaler loop triggered by a {format_duration(self._interval)} timer"
        self._token = False
        self._previous_run, self._last_run = self._last_run, now
        return now - self._waits_since if self._frequent else None

    def register_end(
        self,
        now: Moment,
        *,
        last_scale_up: Moment = ZERO_TIME,
        last_scale_down_delete: Moment = ZERO_TIME,
        last_provisioning_request: Moment = ZERO_TIME,
    ) -> None:
        """Register the end of a loop.

        The times are those of the last scale-up, deletion and processed ProvisioningRequest. If one of them is not
        before the start of the loop *before* this one, the next loop starts at once, so that two kinds may take turns.
        No such loop without ``frequent``.
        """
        self._waits_since = now
        last_results = (
            ("scale up", last_scale_up),
            ("scale down", last_scale_down_delete),
            ("provisioning request was processed", last_provisioning_request),
        )
        productive = next((name for name, at in last_results if at >= self._previous_run), "")
        self._productive = productive if self._frequent else ""


_log = logging.getLogger(__name__)
PRIORITIES: Final = "cluster-autoscaler-priority-expander"
_OBSERVED: Final = (
    ("v1", "Node"), ("v1", "Pod"), ("v1", "Namespace"), ("v1", "Service"), ("v1", "ReplicationController"),
    ("v1", "PersistentVolume"), ("v1", "PersistentVolumeClaim"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"), ("batch/v1", "Job"), ("policy/v1", "PodDisruptionBudget"),
    ("storage.k8s.io/v1", "StorageClass"), ("storage.k8s.io/v1", "CSINode"), ("storage.k8s.io/v1", "CSIDriver"),
    ("storage.k8s.io/v1", "CSIStorageCapacity"), ("storage.k8s.io/v1", "VolumeAttachment"),
)  # fmt: skip
_DEVICES: Final = tuple(("resource.k8s.io/v1", kind) for kind in ("ResourceClaim", "ResourceSlice", "DeviceClass"))
_QUOTAS: Final = ("autoscaling.x-k8s.io/v1beta1", "CapacityQuota")
_BUFFERS: Final = ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
_REQUESTS: Final = ("autoscaling.x-k8s.io/v1", "ProvisioningRequest")


class NotStartedError(KscaleError, RuntimeError):
    """The API server rejected a request without which the program cannot start."""


class CurrentNodes(msgspec.Struct):
    """Nodes of the cluster at the start of the last loop, which clouds assign to their groups.

    ``scaling_up``: IDs of the groups that were growing then. A call returns the nodes.
    """

    nodes: Sequence[Node] = ()
    scaling_up: Sequence[str] = ()

    def __call__(self) -> Sequence[Node]:
        return self.nodes


class AutoscalerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the process besides the options of a decision; the names are those of upstream's flags.

    ``dra``: the API server serves devices; ``gpu_label``, ``gpu_types``: of the cloud provider; ``rank``: an external
    ranker, used in a dry run; ``prices``: the cloud provider is queried for prices, in a dry run through this function
    (None: groups contain the prices of their nodes); ``profile``: the scheduler's, if it is not the default one;
    ``on_aws``: groups are compared and templates are completed as upstream does on AWS.
    """

    frequent_loops: bool = True
    dry_run: bool = False
    dra: bool = True
    gpu_label: str = DEFAULT_GPU_LABEL
    gpu_types: Collection[str] = ()
    rank: RankResponder | None = None
    prices: PriceResponder | None = None
    profile: SchedulerProfile | None = None
    on_aws: bool = False


def served_metrics(options: AutoscalingOptions) -> tuple[Metric, ...]:
    """Return the metrics that a process with these options observes: those of its profile's release."""
    if not options.legacy:
        return tuple(METRICS.values())
    from kscale.ca.legacy.metrics import LEGACY_METRICS

    return tuple(LEGACY_METRICS.values())


class _LoopView(msgspec.Struct, frozen=True):
    snapshot: Snapshot
    priorities: dict[str, str] | None
    waited: int | None


_SMALL_CLUSTER: Final = 500


def is_small_cluster(view: _LoopView) -> bool:
    """Check whether a loop has at most 500 nodes and pods together.

    Then no step can delay requests, such as renewals of the lease.
    """
    counts = view.snapshot.counts
    return len(view.snapshot.nodes) + sum(counts.values()) <= _SMALL_CLUSTER


class _Round(msgspec.Struct, frozen=True):
    """The last round: its state, its inputs and its times."""

    before: LoopState
    snapshot: Snapshot
    begun: Moment
    ended: Moment


@dataclass
class ClusterAutoscaler:
    """The loops of one process (:class:`kscale.drivers.driver.Driver`)."""

    options: AutoscalingOptions
    process: AutoscalerProcess
    clock: Clock
    """Clock that is never set."""
    health: HealthCheck
    board: CurrentNodes
    desk: DebuggingSnapshotService | None = None
    """Receives the inputs of a loop if a request waits for them."""
    rng: Rng | None = None
    state: LoopState = field(default_factory=LoopState)
    name: str = "cluster-autoscaler"
    report: LoopReport | None = None
    """Report of the last loop."""
    on_result: Callable[[Moment, str, LoopReport], None] | None = None
    """Called after each loop with (time of its start, reason of its start, report)."""
    repeats: bool = False
    """Whether the last round is stored, for rounds that only repeat it (:meth:`repeat`). False in a live process."""

    def __post_init__(self) -> None:
        self._start()
        self._actuator = Actuator(self.options, gpu_label=self.process.gpu_label, gpu_types=self.process.gpu_types)
        self._groups: Groups | Sequence[NodeGroup] = ()
        self._first = True
        self._last: _Round | None = None
        self._moments: tuple[object, set[Moment]] = None, set()  # cached moments of a snapshot's nodes
        self._pod_changes = PodChanges(self.options)  # since the last loop that was run

    def _start(self) -> None:
        """Start the clock: the process's age and the wait for the first loop count from now."""
        frequent = self.process.frequent_loops and not self.options.legacy
        self._begun = self.clock.now()
        self._trigger = LoopTrigger(self.options.scan_interval, frequent=frequent, now=self._begun)

    def on_started_leading(self) -> None:
        """Record that this process has become the leader.

        In release 1.3, the first loop and the scale-down cooldowns are timed from now. No effect in other releases.
        """
        if self.options.legacy:
            from kscale.ca.legacy.scale_down import start_cooldowns

            self._start()
            self.state = start_cooldowns(self.state, self._begun)

    @property
    def watches(self) -> Sequence[Watch]:
        """Return the watches that the driver needs."""
        kinds = [*_OBSERVED]
        if self.process.dra:
            kinds += _DEVICES
        if self.options.capacity_quotas_enabled:
            kinds.append(_QUOTAS)
        if self.options.capacity_buffer_pod_injection_enabled:
            kinds.append(_BUFFERS)
        if self.options.enable_provisioning_requests:
            kinds.append(_REQUESTS)
        if self.options.counts_requested_capacity:
            kinds.append(("v1", "PodTemplate"))
        watches = [Watch(kind=kind, api_version=version) for version, kind in kinds]
        if self.process.frequent_loops and not self.options.legacy:
            watches.append(Watch(kind="Pod", api_version="v1", field_selector=UNSCHEDULED_PODS, typed=True))
        if "priority" in self.options.expander_names:
            named = f"metadata.name={PRIORITIES}"
            watches.append(
                Watch(
                    kind="ConfigMap",
                    api_version="v1",
                    namespace=self.options.namespace,
                    field_selector=named,
                    typed=True,
                )
            )
        return watches

    def notice(self, change: Change, now: Moment) -> None:
        """Request a loop if the change is an unschedulable pod."""
        if isinstance(change.new, Pod) and is_recent_unschedulable(change.new, now):
            self._trigger.pod_waits()

    def clock_set(self, by: int) -> None:
        """Apply a change of the clock by ``by`` nanoseconds, as Go's monotonic times do."""
        self.state = shift_moments(self.state, by)
        self._trigger.clock_set(by)

    def next_due(self) -> Moment | None:
        """Return when the next loop is due; a time in the past means now. Never None."""
        return self._trigger.next_due()

    def observe(self, stores: Stores, now: Moment) -> _LoopView:
        """Return the inputs of a loop: the current cluster, the priorities of groups, and how long the loop waited.

        Registers the start of the loop, and passes the nodes to the cloud provider.
        """
        waited = self._trigger.register_start(now)
        if self._trigger.reason:
            _log.debug("%s", self._trigger.reason)
        snapshot = stores.snapshot(now)
        self._pod_changes.clear()
        self.board.nodes = snapshot.columns.objects
        cluster = self.state.cluster
        self.board.scaling_up = [group for group in cluster.scale_up_requests if is_scaling_up(cluster, group)]
        config_map = stores.get("ConfigMap", self.options.namespace, PRIORITIES)
        return _LoopView(snapshot, (config_map.data or {}) if isinstance(config_map, ConfigMap) else None, waited)

    def steps(self, view: _LoopView, now: Moment) -> Steps[None]:
        """Run one loop: update state, groups and health from its report, log the report, and pass it to ``on_result``.

        The first loop reports initial metrics and status before. Raises NotStartedError if it cannot write that status.
        A requested debugging snapshot is delivered after the loop.
        """
        progress = Progress(now)
        before, begun = self.state, self.clock.now()
        self.health.update_last_activity(begun)
        if self._first:
            self._first = False
            yield from self._introduce(progress)
        if view.waited is not None:
            loop_wait = build_observation("function_duration_seconds", view.waited / SECOND, function="loopWait")
            yield from progress.observe(loop_wait)
        inputs = LoopInputs(
            actuator=None if self.process.dry_run else self._actuator,
            gpu_label=self.process.gpu_label,
            gpu_types=self.process.gpu_types,
            process_age=timedelta_of(begun - self._begun),
            rng=self.rng,
            profile=self.process.profile,
            comparator=Comparator.from_options(self.options, "aws") if self.process.on_aws else None,
            add_provider_resources=self.process.on_aws,
            expander_input=ExpanderInput(
                priorities=view.priorities,
                namespace=self.options.namespace,
                ask_prices=self.process.prices is not None,
            ),
        )
        if self.process.dry_run:
            report = yield from self._pretend(view, progress, inputs)
        else:
            report = yield from run_once_steps(
                view.snapshot, self._groups, now=progress.now, options=self.options, state=self.state, inputs=inputs
            )
            self.state = report.state
        self._groups = report.groups
        self.report = report
        for warning in report.warnings:
            _log.warning("%s", warning)
        if _log.isEnabledFor(logging.INFO):
            for line in build_log_lines(report, self.options, now, details=_log.isEnabledFor(logging.DEBUG)):
                _log.log(logging.INFO if line.level == "info" else logging.DEBUG, "%s", line.text)
        for name in report.scale_down.under_rollout if report.scale_down is not None else ():
            _log.debug("Node %s will be skipped as it is currently under rollout", name)
        _log.info("%r", report)
        if self.on_result is not None:
            self.on_result(now, self._trigger.reason, report)
        yield from progress.clock()
        if self.desk is not None and self.desk.is_requested:
            self.desk.deliver(encode_loop_inputs(view.snapshot, report), start=now, end=progress.now)
        if report.successful:
            self.health.update_last_success(self.clock.now())
        if self.repeats:
            self._last = _Round(before, view.snapshot, now, progress.now)
        self._register_end(progress.now)

    def _register_end(self, now: Moment) -> None:
        """Register the end of a loop, with the times of its last results."""
        memory = self.state.scale_down
        self._trigger.register_end(
            now,
            last_scale_up=_or_never(memory.last_scale_up),
            last_scale_down_delete=_or_never(memory.last_scale_down),
            last_provisioning_request=_or_never(self.state.provisioning.last_processed),
        )

    @property
    def input_sources(self) -> InputSources:
        """Declare that rounds depend on the cloud provider, besides what they read of the watched objects."""
        return InputSources(cloud=True, is_unread=self._pod_changes.note)

    def repeats_until(self) -> Moment:
        """Return until when rounds would have the result of the last round, as long as cluster and cloud are unchanged.

        The rules are those of :mod:`kscale.ca.static_autoscaler.skip_unchanged`. Returns the zero time if the next
        round must be run: the last one changed something, or this driver does not store rounds (``repeats``).
        """
        last, report = self._last, self.report
        if last is None or report is None or report.error is not None or report.ended:
            return ZERO_TIME
        if self.options.legacy or self.options.counts_requested_capacity:
            return ZERO_TIME
        tracker = self._actuator.tracker.status(last.ended)
        going = tracker.deleting or tracker.draining or tracker.recent_evictions
        if going or not is_stable_snapshot(last.snapshot) or not is_repeated_loop(last.before, self.state):
            return ZERO_TIME
        self._pod_changes.begin()
        columns = last.snapshot.columns
        if self._moments[0] is not columns:
            self._moments = columns, collect_node_moments(columns.objects)
        return find_next_difference(
            self.state,
            self._moments[1],
            report.groups,
            self.options,
            begun=self._begun,
            now=last.begun,
            system_pods=get_young_system_pod_times(last.snapshot),
        )

    def repeat(self, now: Moment) -> Moment | None:
        """Record a round at ``now`` that repeats the last one, without running it. Returns when it ends.

        Returns None, and records nothing, if the round must be run.
        """
        state, last, report = repeat_state(self.state, now), self._last, self.report
        if state is None or last is None or report is None:
            return None
        if self._pod_changes.can_matter(report.scale_down, last.snapshot.columns, report.groups):
            return None
        self._trigger.register_start(now)
        self.state = state
        ended = now + last.ended - last.begun
        self.health.update_last_activity(now)
        self.health.update_last_success(ended)
        self._register_end(ended)
        return ended

    def _introduce(self, progress: Progress) -> Steps[None]:
        """Perform what upstream does before its first loop: initial metrics, initial status, and cleanup of taints.

        Raises NotStartedError if the status ConfigMap cannot be written.
        """
        limits = self.options
        if limits.legacy:
            yield from self._introduce_1_3(progress)
            return
        yield from progress.observe(
            *build_initial_observations(),
            build_observation("cpu_limits_cores", limits.cores_total.min, direction="minimum"),
            build_observation("cpu_limits_cores", limits.cores_total.max, direction="maximum"),
            build_observation("memory_limits_bytes", limits.memory_total.min * GIB, direction="minimum"),
            build_observation("memory_limits_bytes", limits.memory_total.max * GIB, direction="maximum"),
        )
        if limits.write_status_configmap and not self.process.dry_run:
            text = format_status(build_initializing_status(), progress.now)
            problem = yield from write_status_config_map(progress, text, limits, progress.now)
            if problem is not None:
                raise NotStartedError(f"Failed to init status ConfigMap: {problem}")
        yield from self._find_groups(progress)  # taints of an earlier process are removed from nodes of groups only

    def _introduce_1_3(self, progress: Progress) -> Steps[None]:
        """Perform what release 1.3 does before its first loop. A status that cannot be written is only logged."""
        from kscale.ca.legacy.metrics import build_legacy_initial_observations
        from kscale.ca.legacy.run_once import format_legacy_status_message

        options = self.options
        yield from progress.observe(*build_legacy_initial_observations(options.node_autoprovisioning_enabled))
        if options.write_status_configmap and not self.process.dry_run:
            text = format_legacy_status_message("Initializing", progress.now)
            problem = yield from write_status_config_map(progress, text, options, progress.now)
            if problem is not None:
                _log.error("%s", problem)
                _log.error("Failed to initialize status configmap, unable to write status events")
        yield from self._find_groups(progress)

    def _find_groups(self, progress: Progress) -> Steps[None]:
        """Refresh the cloud provider and store its groups. An error is logged, and there are no groups then."""
        cloud = yield from progress.act(Refresh())
        if cloud.error is not None:
            _log.error("the state of the cloud cannot be read: %s", cloud.error.message)
        self._groups = cloud.value or ()

    def _pretend(self, view: _LoopView, progress: Progress, inputs: LoopInputs) -> Steps[LoopReport]:
        """Run a loop as a dry run: read the cloud provider, decide as if all actions succeeded, and perform none.

        The actions are logged and then discarded: the next loop finds the cluster as it is. If the cloud provider
        cannot be read, the error is logged, and its last groups are used.
        """
        cloud = yield from progress.act(Refresh())
        if cloud.error is None and cloud.value is not None:
            self._groups = cloud.value
        names = tuple(view.snapshot.nodes)
        machines = yield from progress.act(HasInstances(names))
        report = run_once(
            view.snapshot,
            self._groups,
            now=progress.now,
            options=self.options,
            state=self.state,
            inputs=inputs,
            has_instance=machines.value if machines.error is None else None,
            rank=self.process.rank,
            prices=self.process.prices,
        )
        if cloud.error is not None:
            _log.error("the state of the cloud cannot be read: %s", cloud.error.message)
        for action in report.actions:
            if not isinstance(action, Refresh | HasInstances | GetPrices | List):
                _log.info("dry run: %s", format_action(action))
        yield from progress.observe(*report.observations)
        yield from progress.emit(*report.events)
        self.state = _without_requested_changes(report.state, self.state)
        report.groups = Groups.of(self._groups, view.snapshot.columns.objects)
        return report


def _without_requested_changes(after: LoopState, before: LoopState) -> LoopState:
    """Return the state ``after`` a dry run, with the fields on requested changes (nodes, sizes) as in ``before``."""
    cluster = replace(
        after.cluster,
        scale_up_requests=before.cluster.scale_up_requests,
        scale_down_requests=before.cluster.scale_down_requests,
    )
    old = before.scale_down
    memory = replace(
        after.scale_down,
        changes=old.changes,
        last_scale_up=old.last_scale_up,
        last_scale_down=old.last_scale_down,
        last_failure=old.last_failure,
    )
    return replace(
        after, cluster=cluster, scale_down=memory, deletions=before.deletions, provisioning=before.provisioning
    )


def _or_never(moment: Moment | None) -> Moment:
    """Return the moment, or the zero time for None."""
    return ZERO_TIME if moment is None else moment


def reach_nodes(now: Moment) -> Steps[None]:
    """List the nodes, as upstream does before it tries to lead. Raises :class:`NotStartedError` if that fails."""
    response = yield from Progress(now).act(List(kind="Node", api_version="v1", watched=False))
    if response.error is not None:
        raise NotStartedError(f"Failed to get nodes from apiserver: {response.error.message}")


def shutdown_steps(options: AutoscalingOptions, now: Moment) -> Steps[None]:
    """Delete the status ConfigMap at shutdown, as upstream does.

    Running deletions are abandoned. An error is logged. Nothing is done if the options have no status ConfigMap.
    """
    if not options.write_status_configmap:
        return
    progress = Progress(now)
    done = yield from progress.act(
        Delete(kind="ConfigMap", api_version="v1", namespace=options.namespace, name=options.status_config_map_name)
    )
    if done.error is not None:
        _log.error("Failed to delete status configmap: %s", done.error.message)
