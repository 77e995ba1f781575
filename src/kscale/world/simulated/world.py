"""Simulated cluster composed of all its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from kscale.effects import LEGAL_OUTCOMES, Action, Emit, Moment, Observe, Outcome, Perform, Refresh, VirtualTime
from kscale.objects.api.core import Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.custom_workloads import CustomResource
from kscale.objects.kinds import with_namespace
from kscale.scheduling.preemption import Candidates
from kscale.scheduling.profile import SchedulerProfile
from kscale.scheduling.scores.options import ScoreOptions
from kscale.world.clock import VirtualClock
from kscale.world.protocols import InputSources, Ranker, Watch
from kscale.world.simulated.api_server import ApiObjects
from kscale.world.simulated.cloud import SimulatedCloud
from kscale.world.simulated.controllers import Admit, OwnedPods, PodMaker
from kscale.world.simulated.deployments import Deployments, ReplicaSets, ReplicationControllers
from kscale.world.simulated.disruption import Disruption, GarbageCollector
from kscale.world.simulated.kubelet import Kubelet, PodTimes, Resizing
from kscale.world.simulated.load import Load, RandomDraws
from kscale.world.simulated.metrics import Pipeline, SimulatedMetrics
from kscale.world.simulated.performer import SimulatedPerformer
from kscale.world.simulated.pods import delete_pod
from kscale.world.simulated.scheduler import Scheduler, VolumeBinder
from kscale.world.simulated.stores import ClusterView, SimulatedStores
from kscale.world.simulated.workloads import CustomScales, DaemonSets, Jobs, StatefulSets, controllers_of

__all__ = ["DeferredCheckpoints", "SimulatedWorld", "WorldOptions"]


_AT_ONCE: Final = frozenset({Emit, Observe, Refresh}).union(
    action for action, rule in LEGAL_OUTCOMES.items() if rule.reads
)
"""Actions without latency: reads and reports."""


class WorldOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of a world. Times are in nanoseconds.

    - ``latency``: until an action on the API server or the cloud is performed and answered (reads and reports take no
      time). ``watch_lag``: from a change to its watchers.
    - ``pods``: durations of pods.
    - ``scores``: how the scheduler chooses among feasible nodes (None: the first). ``profile``: its filters (None: the
      default profile). ``preemption``: whether pods of a higher priority may evict others, and ``candidates`` how many
      nodes are tried.
    """

    seed: int = 0
    latency: int = 5_000_000
    watch_lag: int = 0
    pods: PodTimes = PodTimes()
    pipeline: Pipeline = Pipeline()
    scores: ScoreOptions | None = None
    profile: SchedulerProfile | None = None
    preemption: bool = False
    candidates: Candidates = Candidates()


class SimulatedWorld:
    """Simulated cluster with everything outside the drivers. Has a single owner.

    - ``times``: returns the durations of a pod, if they differ between pods.
    - ``admit``: admission of new pods; may be set later (``maker.admit``).
    - ``custom``: kinds with a scale in addition to the built-in ones.

    Call ``begin`` after all initial objects have been added (:meth:`add`, ``cloud.add``, ``load``).
    """

    def __init__(
        self,
        *,
        now: Moment,
        objects: Iterable[KubeObject] = (),
        options: WorldOptions | None = None,
        times: Callable[[Pod], PodTimes] | None = None,
        admit: Admit | None = None,
        ranker: Ranker | None = None,
        custom: Sequence[CustomResource] = (),
    ) -> None:
        self.options = options or WorldOptions()
        self.time = VirtualTime(self._perform, now=now, latency=self._latency)
        self.clock = VirtualClock(self.time)
        self.draws = RandomDraws(self.options.seed)
        self.api = ApiObjects(self.time)
        for item in objects:
            self.api.create(item)
        self.view = ClusterView(self.api, self.time)
        lag = self.options.watch_lag
        self.seen = ClusterView(self.api, self.time, lag=lag) if lag else self.view
        self.cloud = SimulatedCloud(self.api, self.view, self.time, self.draws)
        owned, self.maker = OwnedPods(self.api), PodMaker(self.api, admit)
        self.load = Load(self.time, owned, window=self.options.pipeline.window)
        self.metrics = SimulatedMetrics(self.load, self.time, self.options.pipeline)
        self.kubelet = Kubelet(self.api, self.time, self.draws, times or (lambda _: self.options.pods))
        self.controllers = [
            Deployments(self.api, self.time, owned),
            ReplicaSets(self.api, self.time, owned, self.maker),
            ReplicationControllers(self.api, self.time, owned, self.maker),
            StatefulSets(self.api, self.time, owned, self.maker),
            DaemonSets(self.api, self.time, owned, self.maker),
            Jobs(self.api, self.time, owned, self.maker),
            *controllers_of(custom, self.api, self.time, owned),
        ]
        self.garbage = GarbageCollector(self.api, self.time)
        self.volumes = VolumeBinder(self.api, self.time)
        self.scheduler = Scheduler(
            self.api,
            self.view,
            self.time,
            self.options.scores,
            profile=self.options.profile,
            preemption=self.options.candidates if self.options.preemption else None,
        )
        self.disruption = Disruption(self.api, self.time)
        self.perform = SimulatedPerformer(
            self.api,
            self.seen,
            self.cloud,
            self.disruption,
            Resizing(self.api, self.view, self.time),
            self.metrics,
            CustomScales(self.api, custom),
            ranker,
        )

    def add(self, item: KubeObject) -> KubeObject:
        """Create an object as ``kubectl create`` does, and return the stored version.

        Raises RefusedError if an object of its kind and name exists.
        """
        return self.api.create(item)

    def apply(self, item: KubeObject) -> KubeObject:
        """Create an object, or replace the one with its key, and return the stored version.

        Fields of an existing object that ``item`` leaves out are reset to their defaults, even a ``spec.replicas`` that
        an autoscaler has set. Of an existing pod only labels and annotations change. The status stays.
        """
        item = with_namespace(item)
        current: Any = self.api.find(item.kind, item.key)
        if current is None:
            return self.api.create(item)
        preserved = ("status", "spec") if isinstance(current, Pod) else ("status",)
        metadata = replace(current.metadata, labels=item.metadata.labels, annotations=item.metadata.annotations)
        unchanged = {name: getattr(current, name) for name in preserved if hasattr(current, name)}
        return self.api.put(replace(item, metadata=metadata, **unchanged))

    def delete(self, kind: str, key: str) -> None:
        """Delete an object as ``kubectl delete`` does; a missing object is ignored."""
        current = self.api.find(kind, key)
        if isinstance(current, Pod):
            delete_pod(self.api, current)
        elif current is not None:
            self.api.remove(current)

    def begin(self) -> None:
        """Start the load generator and the metrics server."""
        self.load.begin()
        self.metrics.begin()

    def inputs(self, stores: SimulatedStores, sources: InputSources) -> tuple[int, int, int]:
        """Return three counts of changes, to be compared only: of the stores, the cloud provider and the metrics.

        The tuple differs whenever one of a driver's input sources has changed. ``stores``: the stores of the driver;
        changes of the kinds ``sources.judged`` do not count. The count of the cloud or the metrics is 0 if ``sources``
        excludes them.
        """
        return (
            stores.changes(sources.judged),
            self.cloud.changes if sources.cloud else 0,
            self.metrics.changes if sources.metrics else 0,
        )

    def stores(self, watches: Sequence[Watch], sources: InputSources | None = None) -> SimulatedStores:
        """Return the stores of a driver with these watches.

        ``sources``: if passed, the stores do not count changes that no round of the driver reads
        (``sources.is_unread``).
        """
        return SimulatedStores(self.seen, watches, None if sources is None else sources.is_unread)

    def _latency(self, action: Action) -> int:
        """Return the nanoseconds until an action is performed."""
        return 0 if type(action) in _AT_ONCE else self.options.latency

    def _perform(self, action: Action, now: Moment) -> Outcome:
        """Perform an action at ``now`` and return its outcome."""
        return self.perform(action, now)


class DeferredCheckpoints(msgspec.Struct, eq=False):
    """Stores the checkpoints of a recommender in a simulated world. They are built when somebody reads checkpoints.

    A checkpoint is stored when the round begins to write, a little before its request would end. Nobody sees this: only
    the recommender itself reads checkpoints, and not before all requests have ended.
    """

    _world: SimulatedWorld

    @property
    def latency(self) -> int:
        """Return the nanoseconds until a checkpoint is stored."""
        return self._world.options.latency

    def store_later(self, keys: Sequence[str], build: Callable[[], Mapping[str, object]]) -> bool:
        """Store the statuses of checkpoints, built later.

        ``build`` returns the statuses by key; it is called when a checkpoint is read. Returns False, and stores
        nothing, if a checkpoint does not exist, a listener gets changes of checkpoints, or requests may fail or are
        observed (``world.perform`` was replaced).
        """
        perform: Perform = self._world.perform
        if not isinstance(perform, SimulatedPerformer) or perform.fault is not None:
            return False
        return self._world.api.put_statuses_later("VerticalPodAutoscalerCheckpoint", keys, build)
