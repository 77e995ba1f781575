"""Controllers of pods and their ``/scale`` subresources: from watches, from a cache, or from a dump.

Upstream: ``pkg/target/controller_fetcher`` with ``controller_cache_storage.go``. Upstream gets the scale of an owner
whose kind is not well known. A kind without a scale answers 404, and the well-known controller below is the topmost
one. A CustomResourceDefinition defines whether its kind has a scale. Assumptions without one are in
:attr:`DumpScales.assumed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from kscale.effects import (
    SECOND,
    ZERO_TIME,
    ApiError,
    Discover,
    GetScale,
    Moment,
    Observation,
    Observe,
    Outcome,
    Progress,
    Steps,
    StepsOf,
    moment,
)
from kscale.effects.actions import NOT_FOUND
from kscale.errors import KscaleError
from kscale.objects.api.apps import CronJob, DaemonSet, Deployment, Job, ReplicaSet, StatefulSet
from kscale.objects.api.autoscaling import Scale, ScaleStatus
from kscale.objects.api.core import Pod, PodTemplateSpec, ReplicationController
from kscale.objects.api.meta import CustomWorkload, KubeObject, LabelSelector, ObjectMeta
from kscale.objects.argument_types import typed
from kscale.objects.custom_workloads import scaled_custom_kinds
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.kinds import (
    BUILT_IN,
    AnyKindRESTMapper,
    RESTMapper,
    RESTMappingError,
    ServedResource,
    custom_kind_key,
    find_kind,
    group_of,
    is_custom_group,
    parse_group_version,
    split_group_resource,
)
from kscale.objects.pod_owners import controller_of
from kscale.objects.scale import (
    WELL_KNOWN_PATHS,
    CustomResourceDefinition,
    ScaleError,
    ScalePaths,
    definition_parts,
    has_built_in_scale,
    scale_of,
)
from kscale.snapshot.cluster import Cluster

__all__ = [
    "NO_SCALES",
    "WELL_KNOWN_KINDS",
    "ControllerKey",
    "Controllers",
    "CustomOwner",
    "CustomOwners",
    "DumpScales",
    "FixedScales",
    "ScaleCache",
    "ScaleKey",
    "ScaleLookup",
    "ScaleNeededError",
    "ScaleRefusedError",
    "TargetError",
    "UnknownKindError",
    "evaluate_with_scales_steps",
    "find_custom_owners",
    "get_pod_selector",
    "list_custom_workloads",
    "read_controllers",
    "request_custom_owners_steps",
    "run_without_requests",
]


_T = TypeVar("_T")

SCALE_REFRESH_INTERVAL: Final = 7 * SECOND
"""Interval at which upstream refreshes cached scales."""


class ScaleKey(NamedTuple):
    """Key of a scale. ``resource`` is a group-resource such as ``rollouts.argoproj.io``."""

    namespace: str
    resource: str
    name: str


class ScaleRefusedError(LookupError):
    """The API server refused to give a scale; the text is its message."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class ScaleNeededError(KscaleError):
    """A needed scale has not been requested. Step machines request it; a plain call needs :class:`FixedScales`."""

    def __init__(self, key: ScaleKey) -> None:
        super().__init__(f"the scale of {key.resource} {key.namespace}/{key.name} is not known yet")
        self.key = key


class ScaleLookup(Protocol):
    """Source of scales."""

    def get(self, key: ScaleKey) -> Scale:
        """Return a scale.

        Raises :class:`ScaleRefusedError` if the API server has none, and :class:`ScaleNeededError` if the scale was not
        requested yet.
        """
        ...


class FixedScales:
    """Complete set of scales. A lookup of any other scale fails with NotFound."""

    __slots__ = ("_answers",)

    def __init__(self, answers: Mapping[ScaleKey, Scale | ApiError] | None = None) -> None:
        self._answers = dict(answers or {})

    def __repr__(self) -> str:
        return f"<FixedScales: {len(self._answers)}>"

    def get(self, key: ScaleKey) -> Scale:
        """Return a scale. Raises :class:`ScaleRefusedError` for an unknown key and for a stored error."""
        response = self._answers.get(key)
        if isinstance(response, Scale):
            return response
        raise ScaleRefusedError(response or ApiError(f'{key.resource} "{key.name}" not found', 404, NOT_FOUND))


NO_SCALES: Final = FixedScales()


@dataclass(slots=True)
class _CachedScale:
    answer: Scale | ApiError
    refresh_after: Moment
    delete_after: Moment


class ScaleCache:
    """Cache of requested scales and errors. Not safe for concurrent use.

    ``max_age``: nanoseconds after which a response is requested again (up to twice as long, by ``jitter`` from 0 to
    1). ``lifetime``: nanoseconds after which an unread response is dropped. Both apply only if the cache is refreshed.
    ``most``: limit of entries, above which the longest unread ones are dropped. Upstream's cache grows without limit,
    as each standalone job has its own owner.
    """

    __slots__ = ("_entries", "_jitter", "_lifetime", "_max_age", "_most", "changes", "now")

    def __init__(
        self,
        *,
        max_age: int = 600 * SECOND,
        lifetime: int = 3600 * SECOND,
        jitter: Callable[[], float] = lambda: 0.0,
        most: int = 1 << 18,  # more than a cluster has pods
    ) -> None:
        self._entries: dict[ScaleKey, _CachedScale] = {}
        self._most = most
        self._max_age = max_age
        self._lifetime = lifetime
        self._jitter = jitter
        self.changes = 0
        """Count of changes of any entry."""
        self.now: Moment = ZERO_TIME
        """Time of the lookup. The caller sets it."""

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<ScaleCache: {len(self)}>"

    def clock_set(self, by: int) -> None:
        """Shift the stored times by ``by`` nanoseconds after the clock was set, so that ages stay equal."""
        for entry in self._entries.values():
            entry.refresh_after += by
            entry.delete_after += by
        self.now += by

    def get(self, key: ScaleKey) -> Scale:
        """Return a scale and extend its lifetime.

        Raises :class:`ScaleRefusedError` if the cached response is an error, and :class:`ScaleNeededError` if nothing
        is cached.
        """
        entry = self._entries.get(key)
        if entry is None:
            raise ScaleNeededError(key)
        entry.delete_after = self.now + self._lifetime
        if isinstance(entry.answer, ApiError):
            raise ScaleRefusedError(entry.answer)
        return entry.answer

    def insert(self, key: ScaleKey, response: Scale | ApiError, now: datetime | Moment) -> None:
        """Insert the response to a request at ``now``. Does nothing if the key is cached already.

        A full cache first drops the eighth of its entries that was not read for the longest time.
        """
        time = moment(now)
        if key in self._entries:
            return
        self.changes += 1
        if len(self._entries) >= self._most:  # drop an eighth at once, so that few inserts sort all entries
            oldest = sorted(self._entries, key=lambda each: self._entries[each].delete_after)
            for each in oldest[: self._most // 8 + 1]:
                del self._entries[each]
        self._entries[key] = _CachedScale(response, self._compute_refresh_time(time), time + self._lifetime)

    def refresh_steps(self, now: datetime | Moment) -> StepsOf[GetScale, None]:
        """Request the scales of outdated entries again, and remove entries that nobody reads.

        An entry is outdated if ``max_age`` plus jitter has passed since its last request. An error of the API server
        replaces its scale, too. An entry is removed if ``lifetime`` has passed since it was inserted or read last.
        ``now``: start time. Call this every 7 s, as upstream does.
        """
        progress = Progress(moment(now))
        for key in [key for key, entry in self._entries.items() if progress.now > entry.refresh_after]:
            answer = yield from _request_scale_steps(progress, key)
            entry = self._entries.get(key)
            if entry is not None:
                self.changes += 1
                entry.answer, entry.refresh_after = answer, self._compute_refresh_time(progress.now)
        for key in [key for key, entry in self._entries.items() if progress.now > entry.delete_after]:
            self.changes += 1
            del self._entries[key]

    def _compute_refresh_time(self, now: Moment) -> Moment:
        """Return when an entry that was requested at ``now`` is requested again: after ``max_age`` plus jitter."""
        return now + self._max_age + int(self._jitter() * float(self._max_age))


class _RequestedScales(msgspec.Struct, eq=False):
    """Scales requested for one evaluation only."""

    answers: dict[ScaleKey, Scale | ApiError] = {}

    def get(self, key: ScaleKey) -> Scale:
        """Return a requested scale.

        Raises ScaleNeededError if it was not requested, and ScaleRefusedError if the response is an error.
        """
        response = self.answers.get(key)
        if response is None:
            raise ScaleNeededError(key)
        if isinstance(response, ApiError):
            raise ScaleRefusedError(response)
        return response


def evaluate_with_scales_steps(
    progress: Progress, scales: ScaleLookup, compute: Callable[[ScaleLookup], _T], *, remember: bool = True
) -> StepsOf[GetScale, _T]:
    """Compute a function of scales. Requests the scales that it needs, and calls it again after each response.

    Parameters
    ----------
    progress : Progress
        Progress of the calling machine.
    scales : ScaleLookup
        A :class:`ScaleCache`; any other lookup is complete, so that nothing is requested.
    compute : callable
        Called with a lookup of scales; raises :class:`ScaleNeededError` for a scale that was not requested yet.
    remember : bool
        Whether the cache is read and filled. False: each scale is requested, as upstream does for selectors.

    Returns
    -------
    steps
        Generator of requests. It returns the result of ``compute``.
    """
    if not isinstance(scales, ScaleCache):
        return compute(scales)
    requested = _RequestedScales()
    while True:
        scales.now = progress.now
        try:
            return compute(scales if remember else requested)
        except ScaleNeededError as needed:
            key = needed.key
        response = yield from _request_scale_steps(progress, key)
        if remember:
            scales.insert(key, response, progress.now)
        else:
            requested.answers[key] = response


def _request_scale_steps(progress: Progress, key: ScaleKey) -> StepsOf[GetScale, Scale | ApiError]:
    """Request a scale. Returns the scale or the API's error."""
    outcome = yield from progress.act(GetScale(namespace=key.namespace, resource=key.resource, name=key.name))
    answer: Scale | ApiError = outcome.error if outcome.error is not None else outcome.value
    return answer


def run_without_requests(steps: StepsOf[GetScale | Observe, _T]) -> tuple[_T, list[Observation]]:
    """Run a machine for which all scales are known, and return its result and observations.

    Raises :class:`ScaleNeededError` if the machine requests a scale.
    """
    observations: list[Observation] = []
    try:
        action = next(steps)
        while True:
            if isinstance(action, GetScale):
                raise ScaleNeededError(ScaleKey(action.namespace, action.resource, action.name))
            observations += action.observations
            action = steps.send(Outcome(at=ZERO_TIME))
    except StopIteration as stop:
        value: _T = stop.value
        return value, observations


WELL_KNOWN_KINDS: Final = frozenset(
    {"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job", "CronJob"}
)
"""Kinds that are watched; of all others only the scale is known."""


class TargetError(KscaleError, ValueError):
    """A target that cannot be resolved, in upstream's words."""


class UnknownKindError(LookupError):
    """A kind that the API server does not serve, in upstream's words."""


class ControllerKey(NamedTuple):
    """A controller as named by an owner reference or a target.

    ``api_version``: group and version as written there (``apps/v1``), which is needed for the resources of kinds that
    are not well known. Empty if unknown.
    """

    namespace: str
    kind: str
    name: str
    api_version: str = ""

    def __str__(self) -> str:
        return f"{self.api_version}.{self.kind}/{self.name}"


class Controllers:
    """Controllers of a cluster: objects of well-known kinds, and scales of other kinds.

    - ``objects``: initial controllers of well-known kinds; other objects are ignored. They are stored by kind (in any
      group), namespace and name. :meth:`apply` and :meth:`remove` change them.
    - ``mapper``: finds the resources as which the API server serves a kind.
    - ``scales``: scales of other kinds: :class:`~kscale.vpa.FixedScales` if all are known, or
      :class:`~kscale.vpa.ScaleCache`, whose missing scales step machines request with ``GetScale``.

    Not safe for concurrent use.
    """

    __slots__ = ("_changes", "_objects", "mapper", "scales")

    def __init__(
        self,
        objects: Iterable[KubeObject] = (),
        *,
        mapper: RESTMapper | None = None,
        scales: ScaleLookup = NO_SCALES,
    ) -> None:
        self._objects: dict[tuple[str, str, str], KubeObject] = {}
        self._changes = 0
        self.mapper = mapper if mapper is not None else RESTMapper(())
        self.scales = scales
        for item in objects:
            self.apply(item)

    def __len__(self) -> int:
        return len(self._objects)

    def __repr__(self) -> str:
        return f"<Controllers: {len(self)} of well-known kinds, {self.scales!r}>"

    def apply(self, item: KubeObject) -> None:
        """Add the controller ``item``, or replace the one of the same kind, namespace and name.

        Objects of other kinds than the well-known ones are ignored.
        """
        kind = type(item).__name__
        if kind in WELL_KNOWN_KINDS:
            key = kind, item.namespace, item.name
            if _changes_owner_or_selector(self._objects.get(key), item):
                self._changes += 1
            self._objects[key] = item

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Remove an object if it exists."""
        if self._objects.pop((kind, namespace, name), None) is not None:
            self._changes += 1

    @property
    def version(self) -> tuple[object, ...] | None:
        """Return a value that differs after each change of an owner, a selector, a served kind or a scale.

        None if changes of the scales are not counted: only :class:`ScaleCache` counts them.
        """
        scales = self.scales
        return (self, self._changes, self.mapper, scales, scales.changes) if isinstance(scales, ScaleCache) else None

    def get(self, kind: str, namespace: str, name: str) -> KubeObject | None:
        """Return a controller of a well-known kind, or None."""
        return self._objects.get((kind, namespace, name))

    def existing(self, key: ControllerKey) -> KubeObject:
        """Return a controller of a well-known kind. Raises :class:`TargetError` if it does not exist."""
        controller = self.get(key.kind, key.namespace, key.name)
        if controller is None:
            raise TargetError(f"{key.kind} {key.namespace}/{key.name} does not exist")
        return controller

    def templates(self) -> Iterator[tuple[ControllerKey, PodTemplateSpec]]:
        """Yield the key and the pod template of every controller of a well-known kind, in the order of insertion."""
        for (kind, namespace, name), item in self._objects.items():
            yield ControllerKey(namespace, kind, name, item.api_version), _get_pod_template(item)

    def scale(self, key: ControllerKey, scales: ScaleLookup | None = None) -> Scale:
        """Return the scale of a controller whose kind is not well known, from the first of its resources that has one.

        ``scales``: a lookup to use in place of the controllers' own. Raises :class:`TargetError` for an invalid
        ``apiVersion``, :class:`UnknownKindError` for a kind that is not served,
        :class:`~kscale.vpa.controllers.ScaleRefusedError` (the last error) if no resource has a scale, and
        :class:`~kscale.vpa.controllers.ScaleNeededError` if a scale was not requested yet.
        """
        try:
            group, _ = parse_group_version(key.api_version)
        except RESTMappingError as error:
            raise TargetError(str(error)) from None
        try:
            resources = self.mapper.resources(group, key.kind)
        except RESTMappingError as error:
            raise UnknownKindError(str(error)) from None
        known = scales if scales is not None else self.scales
        refused: ScaleRefusedError | None = None
        for resource in resources:
            try:
                return known.get(ScaleKey(key.namespace, resource, key.name))
            except ScaleRefusedError as error:
                refused = error
        raise refused if refused is not None else UnknownKindError(f"no resource of kind {key.kind}")


def _changes_owner_or_selector(before: KubeObject | None, after: KubeObject) -> bool:
    """Check whether a change of a well-known controller may change the owner or the selector of its pods."""
    return (
        before is None
        or before is after  # it may have been changed in place
        or before.metadata.owner_references != after.metadata.owner_references
        or get_pod_selector(before) != get_pod_selector(after)
    )


def get_pod_selector(controller: KubeObject) -> LabelSelector | None:
    """Return the pod selector of a well-known controller; None if it has none.

    Raises TypeError for any other object.
    """
    match controller:
        case CronJob():
            return LabelSelector(match_labels=controller.spec.job_template.spec.template.metadata.labels)
        case ReplicationController():
            return LabelSelector(match_labels=controller.spec.selector)
        case DaemonSet() | Deployment() | ReplicaSet() | StatefulSet() | Job():
            return controller.spec.selector
    raise TypeError(controller)


def _get_pod_template(controller: KubeObject) -> PodTemplateSpec:
    """Return the pod template of a well-known controller. Raises TypeError for any other object."""
    match controller:
        case CronJob():
            return controller.spec.job_template.spec.template
        case ReplicationController():
            return controller.spec.template or PodTemplateSpec()
        case DaemonSet() | Deployment() | ReplicaSet() | StatefulSet() | Job():
            return controller.spec.template
    raise TypeError(controller)


_CUSTOM_KINDS = ("Rollout", "CloneSet", "UnitedDeployment", "DeploymentConfig", "LeaderWorkerSet")
_NO_SCALE_ERROR = ApiError("the server could not find the requested resource", 404, NOT_FOUND)


class ObjectSource(Protocol):
    """Source of a cluster's objects."""

    def all(self, kind: str) -> Iterable[Any]:
        """Return all objects of a kind."""
        ...


class _KindTrackingMapper(AnyKindRESTMapper):
    """Records the kind of each resource, because :class:`ScaleKey` has only the resource."""

    __slots__ = ("kinds",)

    def __init__(self, resources: Iterable[ServedResource]) -> None:
        super().__init__(resources)
        self.kinds: dict[str, tuple[str, str]] = {}

    def resources(self, group: str, kind: str) -> tuple[str, ...]:
        """Return the group-resources of a kind, and record the kind of each."""
        names = super().resources(group, kind)
        for name in names:
            self.kinds.setdefault(name, (group, kind))
        return names


class DumpScales:
    """Scales of custom kinds from the objects and definitions of a dump.

    ``assumed``: by namespace, the assumptions about what the dump lacks, as texts.
    """

    def __init__(self, cluster: ObjectSource) -> None:
        self._definitions: dict[tuple[str, str], dict[str, ScalePaths]] = {}
        plurals: list[ServedResource] = list(BUILT_IN)
        for definition in cluster.all("CustomResourceDefinition"):
            group, kind, plural, paths = definition_parts(definition)
            self._definitions[group, kind] = paths
            plurals.append(ServedResource(group, "", kind, plural))
        self._targets: dict[tuple[str, str], str] = {}
        for target_kind in _SCALING_KINDS:
            for item in cluster.all(target_kind):
                for key in scaled_custom_kinds(item):
                    self._targets.setdefault(key, f"{target_kind} {item.key} scales one")
        self.mapper = _KindTrackingMapper(plurals)
        self._objects: dict[tuple[str, str, str, str], CustomWorkload] = {
            (group_of(each.api_version), each.kind, each.namespace, each.name): each
            for each in list_custom_workloads(cluster)
        }
        self._answers: dict[ScaleKey, Scale | ApiError] = {}
        self._selectors: dict[ScaleKey, str] = {}
        self.assumed: dict[tuple[str, str], None] = {}

    def __repr__(self) -> str:
        return f"<DumpScales: {len(self._definitions)} definitions, {len(self._objects)} objects>"

    def get(self, key: ScaleKey) -> Scale:
        """Return a scale. Raises :class:`~kscale.vpa.controllers.ScaleRefusedError` if the kind or object has none."""
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._find_response(key)
        if isinstance(answer, ApiError):
            raise ScaleRefusedError(answer)
        return answer

    def assume_selector(self, group: str, kind: str, namespace: str, name: str, selector: str) -> bool:
        """Set the selector that is assumed for an object that the dump lacks.

        Returns False, and changes nothing, if the dump has the object.
        """
        if (group, kind, namespace, name) in self._objects:
            return False
        for resource in self.mapper.resources(group, kind):
            key = ScaleKey(namespace, resource, name)
            self._selectors[key] = selector
            self._answers.pop(key, None)
        return True

    def _find_response(self, key: ScaleKey) -> Scale | ApiError:
        """Compute the scale of a key, or the API server's error. Assumptions are added to ``assumed``."""
        group, kind = self.mapper.kinds.get(key.resource) or split_group_resource(key.resource)[::-1]
        name = f"{kind}.{group}" if group else kind
        item = self._objects.get((group, kind, key.namespace, key.name))
        paths: ScalePaths | None = WELL_KNOWN_PATHS.get((group, kind))
        if (group, kind) in self._definitions:
            versions = self._definitions[group, kind]
            if not versions:
                return _NO_SCALE_ERROR
            version = "" if item is None else item.api_version.rpartition("/")[2]
            paths = versions.get(version) or next(iter(versions.values()))
        elif paths is None and (group, kind) in self._targets:
            return self._guess_scale(key, item, name, self._targets[group, kind])
        elif paths is None and not has_built_in_scale(group, kind):
            if "." in group and not group.endswith(".k8s.io"):
                text = f"the input has no CustomResourceDefinition of {name}: taken to have no scale"
                self.assumed[key.namespace, text] = None
            return _NO_SCALE_ERROR
        elif paths is not None:
            text = f"the input has no CustomResourceDefinition of {name}: its scale is read as it usually is"
            self.assumed[key.namespace, text] = None
        if item is None:
            return self._build_assumed_scale(key, name)
        try:
            return scale_of(to_dict(item), paths)
        except ScaleError as error:
            return ApiError(str(error))

    def _build_assumed_scale(self, key: ScaleKey, name: str) -> Scale:
        """Return a scale of an object that the dump lacks, with the assumed selector or an empty one.

        Adds a text to ``assumed``.
        """
        self.assumed[key.namespace, f"the input has no {name} {key.namespace}/{key.name}, which owns others"] = None
        metadata = ObjectMeta(name=key.name, namespace=key.namespace)
        return Scale(metadata=metadata, status=ScaleStatus(selector=self._selectors.get(key, "")))

    def _guess_scale(self, key: ScaleKey, item: CustomWorkload | None, name: str, shown_by: str) -> Scale:
        """Return the scale of an object whose kind has no definition but is scaled by an autoscaler of the dump.

        ``item``: the object; None if the dump lacks it. A text is added to ``assumed``: it names the kind (``name``)
        and the autoscaler (``shown_by``).
        """
        if item is None:
            text = f"the input has no CustomResourceDefinition of {name}: taken to have a scale, as {shown_by}"
            self.assumed[key.namespace, text] = None
            return self._build_assumed_scale(key, name)
        text = f"the input has no CustomResourceDefinition of {name}: its selector is read from .status.selector"
        self.assumed[key.namespace, f"{text}, as {shown_by}"] = None
        selector = (item.status or {}).get("selector")
        return Scale(
            metadata=ObjectMeta(name=key.name, namespace=key.namespace),
            status=ScaleStatus(selector=selector if isinstance(selector, str) else ""),
        )


_SCALING_KINDS = ("VerticalPodAutoscaler", "HorizontalPodAutoscaler", "ScaledObject")


def list_custom_workloads(cluster: ObjectSource) -> list[CustomWorkload]:
    """Return the workloads of custom kinds in a cluster.

    These are objects of well-known custom kinds (Rollout, CloneSet, ...), and of kinds that have a scale according to a
    CustomResourceDefinition or an autoscaler of the cluster.
    """
    scaled = dict.fromkeys(
        custom_kind_key(*key)
        for kind in ("CustomResourceDefinition", *_SCALING_KINDS)
        for item in cluster.all(kind)
        for key in scaled_custom_kinds(item)
    )
    workloads = [each for kind in (*_CUSTOM_KINDS, *scaled) for each in cluster.all(kind)]
    return [each for each in workloads if isinstance(each, CustomWorkload)]


@typed
def read_controllers(cluster: ObjectSource) -> Controllers:
    """Return the controllers of a cluster, with the scales of custom kinds that own any of them.

    Upstream: ``target/controller_fetcher/controller_fetcher.go``.
    """
    scales = DumpScales(cluster)
    objects = (item for kind in sorted(WELL_KNOWN_KINDS) for item in cluster.all(kind))
    return Controllers(objects, mapper=scales.mapper, scales=scales)


_PATHS: Final = ScalePaths()


class CustomOwner(NamedTuple):
    """An object of a custom kind that owns pods or controllers, or is the target of a VPA."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group} {self.namespace}/{self.name}"


class CustomOwners(NamedTuple):
    """Responses of the API server about custom owners, as objects of a dump.

    ``objects``: a CustomResourceDefinition for each kind that is served, with the paths of its scale, and an object for
    each scale. ``problems``: messages about requests that failed.
    """

    objects: list[KubeObject]
    problems: list[str]


def find_custom_owners(cluster: Cluster) -> list[CustomOwner]:
    """Return the custom owners of pods and controllers, and the custom targets of VPAs, each once."""
    owners: dict[CustomOwner, None] = {}
    for item in _list_owned_objects(cluster):
        owner = controller_of(item.metadata)
        if owner is not None and _is_custom(owner.api_version, owner.kind):
            owners[CustomOwner(group_of(owner.api_version), owner.kind, item.namespace, owner.name)] = None
    for vpa in cluster.all("VerticalPodAutoscaler"):
        target = vpa.spec.target_ref
        if target is not None and _is_custom(target.api_version, target.kind):
            owners[CustomOwner(group_of(target.api_version), target.kind, vpa.namespace, target.name)] = None
    return list(owners)


def _list_owned_objects(cluster: Cluster) -> Iterator[KubeObject]:
    """Yield all objects that may have owners: pods and controllers of well-known kinds."""
    pods: Iterable[Pod] = cluster.pods()
    yield from pods
    for kind in sorted(WELL_KNOWN_KINDS):
        yield from cluster.all(kind)


def _is_custom(api_version: str, kind: str) -> bool:
    """Check whether a kind is not a well-known controller and not in an API group of Kubernetes itself."""
    return kind not in WELL_KNOWN_KINDS and is_custom_group(group_of(api_version))


def request_custom_owners_steps(owners: Iterable[CustomOwner], at_most: int, now: Moment) -> Steps[CustomOwners]:
    """Discover the served kinds, and request the scale of each owner whose kind has one.

    ``at_most``: maximum number of concurrent requests. If the discovery fails, the result has no objects and one
    problem. An owner whose kind is not served or has no scale is left out; a scale that cannot be requested is a
    problem.
    """
    progress = Progress(now)
    outcome = yield from progress.act(Discover())
    if outcome.error is not None:
        return CustomOwners([], [f"what the server serves: {outcome.error.message}"])
    mapper: RESTMapper = outcome.value
    objects: list[KubeObject] = []
    served: dict[tuple[str, str], ServedResource | None] = {}
    requested: list[tuple[CustomOwner, ServedResource]] = []
    for owner in owners:
        key = owner.group, owner.kind
        if key not in served:
            served[key] = resource = _find_resource(mapper, *key)
            objects += [_build_definition(resource)] if resource is not None else []
        resource = served[key]
        if resource is not None and resource.scale:
            requested.append((owner, resource))
    machines = [partial(_request_owner_scale_steps, owner, resource) for owner, resource in requested]
    answers = (yield from progress.together(machines, at_most=at_most)) if machines else []
    problems = []
    for (owner, resource), answer in zip(requested, answers, strict=True):
        if isinstance(answer, ApiError):
            problems.append(f"the scale of {owner}: {answer.message}")
        else:
            objects.append(_build_workload(owner, resource, answer))
    return CustomOwners(objects, problems)


def _find_resource(mapper: RESTMapper, group: str, kind: str) -> ServedResource | None:
    """Return the resource of a kind, one with a scale first; None if the kind is not served."""
    try:
        resources = [mapper.find_preferred(name) for name in mapper.resources(group, kind)]
    except RESTMappingError:
        return None
    return next((each for each in resources if each.scale), resources[0])


def _request_owner_scale_steps(owner: CustomOwner, resource: ServedResource, now: Moment) -> Steps[Scale | ApiError]:
    """Request the scale of an owner. Returns the scale or the API's error."""
    action = GetScale(namespace=owner.namespace, resource=resource.group_resource, name=owner.name)
    outcome = yield from Progress(now).act(action)
    answer: Scale | ApiError = outcome.error if outcome.error is not None else outcome.value
    return answer


def _build_definition(resource: ServedResource) -> CustomResourceDefinition:
    """Build the definition of a kind, with the scale's paths that :func:`_build_workload` writes."""
    paths = {
        "specReplicasPath": _PATHS.spec_replicas,
        "statusReplicasPath": _PATHS.status_replicas,
        "labelSelectorPath": _PATHS.label_selector,
    }
    versions = [{"name": resource.version, "subresources": {"scale": paths}}] if resource.scale else []
    names = {"kind": resource.kind, "plural": resource.name}
    return from_dict(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": resource.group_resource},
            "spec": {"group": resource.group, "names": names, "versions": versions},
        },
        CustomResourceDefinition,
    )


def _build_workload(owner: CustomOwner, resource: ServedResource, scale: Scale) -> KubeObject:
    """Build an object of a custom kind whose fields contain the values of its scale."""
    version = resource.api_version
    return from_dict(
        {
            "apiVersion": version,
            "kind": resource.kind,
            "metadata": {"name": owner.name, "namespace": owner.namespace, "uid": scale.metadata.uid},
            "spec": {"replicas": scale.spec.replicas},
            "status": {"replicas": scale.status.replicas, "selector": scale.status.selector},
        },
        find_kind(version, resource.kind) or CustomWorkload,
    )
