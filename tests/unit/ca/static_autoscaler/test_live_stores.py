"""Decisions from what watches have brought are those from the objects themselves.

Live stores keep of a placed pod what decisions read. Each annotation and field that is read has a case here in which it
makes a difference, and whatever loops read of placed pods is held against what the stores keep.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import fields, replace

import kscale
from builders import N0, at, container, node, owner, pod, span, template
from ca_loops import Cloud, Life
from kscale.ca.legacy.scale_down import get_pods_to_drain
from kscale.ca.options import AutoscalingOptions
from kscale.ca.pod_lists import filter_out_young_pods, has_provisioning_request_consumer, is_recreatable
from kscale.ca.provisioning_requests.processors import get_consumed_request
from kscale.ca.scale_down.actuation.drain import get_pods_to_evict
from kscale.ca.scale_down.drainability import DrainabilityChecker, DrainContext
from kscale.ca.scale_down.pdb import RemainingPdbTracker
from kscale.ca.scale_down.utilization import sum_usage
from kscale.capacity.evictions import get_protection
from kscale.effects import SECOND, Action, ApiError, List, Moment
from kscale.hpa.controller.replica_calculator import PodColumns, get_pod_request
from kscale.hpa.options import HPAOptions
from kscale.objects import pod_owners as noted
from kscale.objects.api.core import Pod, VolumeMount
from kscale.objects.api.meta import ApiStruct, Condition, KubeObject
from kscale.objects.api.volumes import Volume
from kscale.objects.decode import from_dict
from kscale.objects.nodegroup import NodeGroup
from kscale.objects.quantity import Quantity
from kscale.snapshot.classes.facets import READ_SOURCES
from kscale.snapshot.cluster import Cluster
from kscale.snapshot.text.pod_reader import READ_FIELDS
from live_store import watched_cluster
from unit.ca.static_autoscaler.test_random_loops import begun, stormy
from unit.snapshot.test_pod_fields import PODS, Spy, owner_of

WEB = owner("ReplicaSet", "web", "apps/v1")
AGENT = owner("DaemonSet", "agent", "apps/v1")
Rule = Callable[[Pod], object]


def stored(one: Pod, *, events: bool) -> Pod:
    """The pod as live stores have it."""
    return watched_cluster([one], events=events).pod(one.key)


# -- rules, pod by pod -------------------------------------------------------------------------------------------------


def drained(one: Pod) -> object:
    """What draining its node means for a pod."""
    options = AutoscalingOptions(skip_nodes_with_custom_controller_pods=False)
    moved = DrainabilityChecker(DrainContext(N0, options, None, RemainingPdbTracker())).pods_to_move([one])
    names = [[each.name for each in group] for group in (moved.pods, moved.daemon_set_pods, moved.on_completion_pods)]
    return names, None if moved.blocking is None else moved.blocking.reason


def drained_legacy(one: Pod) -> object:
    """The same with the legacy rules."""
    context = DrainContext(N0, AutoscalingOptions(), None, RemainingPdbTracker())
    result = get_pods_to_drain([one], context, system=True, storage=True)
    return [each.name for each in result.pods], None if result.blocking is None else result.blocking.reason


def evicted(one: Pod) -> object:
    return [[each.name for each in group] for group in get_pods_to_evict([one], evict_daemon_sets=False)]


def evicted_by_default(one: Pod) -> object:
    return [[each.name for each in group] for group in get_pods_to_evict([one], evict_daemon_sets=True)]


def waits_to_grow_old(one: Pod) -> object:
    return len(filter_out_young_pods([one], N0, span(seconds=10)).young)


def used(one: Pod) -> object:
    return sum_usage([one], ["cpu", "memory"], now_ns=N0, skip_daemon_set_pods=True)


def read_by_hpa(one: Pod) -> object:
    """What the replica calculator reads of a pod."""
    columns = [column.tolist() for column in PodColumns.from_pods([one]).arrays]
    return columns, get_pod_request(one, "", "cpu", HPAOptions()), get_pod_request(one, "c1", "memory", HPAOptions())


PLACED: dict[str, Any] = {"node_name": "n1", "containers": [container(100, 100)]}


def placed(*, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    created = pod("p", 100, 100, spec={**PLACED, **(spec or {})}, **{"uid": "u", **metadata})
    created.metadata.namespace = metadata.get("namespace", "default")
    created.status = replace(created.status, **{"phase": "Running", **(status or {})})
    return created


def annotated(name: str, value: str, **more: Any) -> tuple[Pod, Pod]:
    """A pod without an annotation, and with it."""
    return placed(**more), placed(annotations={name: value}, **more)


def with_volume() -> tuple[Pod, Pod]:
    plain, marked = annotated(noted.SAFE_TO_EVICT_LOCAL_VOLUMES, "v", owner_references=WEB)
    volumes = from_dict({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}, Pod).spec.volumes
    for each in (plain, marked):
        each.spec.volumes = volumes
    return plain, marked


ANNOTATIONS: list[tuple[str, tuple[Pod, Pod], Rule]] = [
    (noted.CONFIG_MIRROR, annotated(noted.CONFIG_MIRROR, "x"), drained),
    (noted.CONFIG_MIRROR, annotated(noted.CONFIG_MIRROR, "x", owner_references=WEB), evicted),
    (noted.CONFIG_MIRROR, annotated(noted.CONFIG_MIRROR, "x"), drained_legacy),
    (noted.CONFIG_SOURCE, annotated(noted.CONFIG_SOURCE, "file"), is_recreatable),
    (noted.DAEMONSET_POD, annotated(noted.DAEMONSET_POD, "true"), drained),
    (noted.DAEMONSET_POD, annotated(noted.DAEMONSET_POD, "true"), used),
    (noted.SAFE_TO_EVICT, annotated(noted.SAFE_TO_EVICT, "true"), drained),
    (noted.SAFE_TO_EVICT, annotated(noted.SAFE_TO_EVICT, "false", owner_references=WEB), drained),
    (noted.SAFE_TO_EVICT, annotated(noted.SAFE_TO_EVICT, "on-completion", owner_references=WEB), drained),
    (noted.SAFE_TO_EVICT, annotated(noted.SAFE_TO_EVICT, "false", owner_references=WEB), drained_legacy),
    (noted.SAFE_TO_EVICT_LOCAL_VOLUMES, with_volume(), drained),
    (noted.ENABLE_DS_EVICTION, annotated(noted.ENABLE_DS_EVICTION, "true", owner_references=AGENT), evicted),
    (
        noted.ENABLE_DS_EVICTION,
        annotated(noted.ENABLE_DS_EVICTION, "false", owner_references=AGENT),
        evicted_by_default,
    ),
    (
        noted.SCALE_UP_DELAY,
        annotated(noted.SCALE_UP_DELAY, "5m", creation_timestamp=at(minutes=-1)),
        waits_to_grow_old,
    ),
    (
        noted.CONSUME_PROVISIONING_REQUEST,
        annotated(noted.CONSUME_PROVISIONING_REQUEST, "r"),
        lambda one: (get_consumed_request(one), has_provisioning_request_consumer([one])),
    ),
    (
        noted.DEPRECATED_CONSUME_PROVISIONING_REQUEST,
        annotated(noted.DEPRECATED_CONSUME_PROVISIONING_REQUEST, "r"),
        lambda one: (get_consumed_request(one), has_provisioning_request_consumer([one])),
    ),
    (noted.FAKE_POD, annotated(noted.FAKE_POD, "fakepod", owner_references=WEB), evicted),
    (
        noted.CAPACITY_BUFFER_FAKE_POD,
        annotated(noted.CAPACITY_BUFFER_FAKE_POD, "capacityBufferFakePod", owner_references=WEB),
        evicted,
    ),
    (noted.DO_NOT_DISRUPT, annotated(noted.DO_NOT_DISRUPT, "4h", owner_references=WEB), get_protection),
]


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
@pytest.mark.parametrize(
    ("name", "pair", "rule"), ANNOTATIONS, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(ANNOTATIONS)]
)
def test_an_annotation_of_a_placed_pod_decides_as_in_the_object(
    name: str, pair: tuple[Pod, Pod], rule: Rule, events: bool
) -> None:
    plain, marked = pair
    assert rule(plain) != rule(marked), f"{name} makes no difference here"
    assert rule(stored(plain, events=events)) == rule(plain)
    assert rule(stored(marked, events=events)) == rule(marked)


def test_each_declared_annotation_has_a_case() -> None:
    assert {name for name, _, _ in ANNOTATIONS} == set(noted.READ_ANNOTATIONS)


FIELDS: dict[str, tuple[Pod, Pod, Rule]] = {
    "creation, of a pod of the system": (
        placed(namespace="kube-system", owner_references=WEB, creation_timestamp=at(minutes=-1)),
        placed(namespace="kube-system", owner_references=WEB, creation_timestamp=at(days=-1)),
        drained,
    ),
    "creation, of a pod that is to find another place": (
        placed(creation_timestamp=at(seconds=-1)),
        placed(creation_timestamp=at(minutes=-1)),
        waits_to_grow_old,
    ),
    "deletion": (
        placed(owner_references=WEB),
        placed(owner_references=WEB, deletion_timestamp=at(days=-1)),
        drained,
    ),
    "grace period": (
        placed(owner_references=WEB, deletion_timestamp=at(minutes=-5)),
        placed(
            owner_references=WEB,
            deletion_timestamp=at(minutes=-5),
            spec={"termination_grace_period_seconds": 3600},
        ),
        drained,
    ),
    "owner": (placed(), placed(owner_references=WEB), drained),
    "kind of the owner": (placed(owner_references=WEB), placed(owner_references=AGENT), used),
    "phase": (placed(), placed(status={"phase": "Failed"}), drained),
    "restart policy": (
        placed(status={"phase": "Succeeded"}, spec={"restart_policy": "Always"}),
        placed(status={"phase": "Succeeded"}, spec={"restart_policy": "Never"}),
        drained,
    ),
    "requests": (placed(), placed(spec={"containers": [container(200, 100)]}), used),
    "phase, for an HPA": (placed(), placed(status={"phase": "Failed"}), read_by_hpa),
    "start, for an HPA": (placed(), placed(status={"start_time": at()}), read_by_hpa),
    "deletion, for an HPA": (placed(), placed(deletion_timestamp=at()), read_by_hpa),
    "requests, for an HPA": (placed(), placed(spec={"containers": [container(200, 100)]}), read_by_hpa),
    "overhead": (placed(), placed(spec={"overhead": {"cpu": Quantity("1")}}), used),
}


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
@pytest.mark.parametrize("case", FIELDS)
def test_a_field_of_a_placed_pod_decides_as_in_the_object(case: str, events: bool) -> None:
    one, other, rule = FIELDS[case]
    assert rule(one) != rule(other), f"{case} makes no difference here"
    assert rule(stored(one, events=events)) == rule(one)
    assert rule(stored(other, events=events)) == rule(other)


CONDITIONS = {
    "PodScheduled": ("status", "reason"),
    "PodResizePending": ("reason",),
    "Ready": ("status", "last_transition_time"),
}


def read_of(value: object) -> object:
    """What decisions read of an object, as plain values."""
    match value:
        case Condition():
            return value.type, [getattr(value, name) for name in CONDITIONS[value.type]]
        case Volume():
            local = None if value.empty_dir is None else value.empty_dir.get("medium")
            return value.name, value.host_path is None, local, [getattr(value, source) for source in READ_SOURCES]
        case [Volume() | VolumeMount(), *_]:
            items = map(read_of, value)
            return [item for item in items if item not in NOTHING_READ]
        case [Condition(), *_]:
            return sorted(map(read_of, value), key=str)
        case list():
            return [read_of(item) for item in value]
        case ApiStruct() if type(value) in READ_FIELDS:
            return {name: read_of(getattr(value, name)) for name in READ_FIELDS[type(value)]}
    return value


NOTHING_READ = [{"bind_mount_options": []}, ("y", True, None, [None] * len(READ_SOURCES))]
"""A mount without options, and a volume from a source that no rule looks at: live stores drop them."""


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
@pytest.mark.parametrize("number", [i for i, each in enumerate(PODS) if each["spec"]["nodeName"]])
def test_a_placed_pod_has_everything_that_is_read(number: int, events: bool) -> None:
    annotations = dict.fromkeys(noted.READ_ANNOTATIONS, "x")
    data = PODS[number]
    plain = from_dict({**data, "metadata": {**data["metadata"], "annotations": annotations}}, Pod)
    result = watched_cluster([{**data, "metadata": {**data["metadata"], "annotations": annotations}}], events=events)
    assert read_of(result.pod("n/p")) == read_of(plain)


# -- whole loops -------------------------------------------------------------------------------------------------------


class StoredLife(Life):
    """A life that looks at what live stores hold of its cluster."""

    def __init__(self, *args: Any, events: bool, **flags: Any) -> None:
        super().__init__(*args, **flags)
        self.events = events

    def cluster(self, objects: Sequence[KubeObject]) -> Cluster:
        return watched_cluster(objects, events=self.events)


class StoredCloud(Cloud):
    """A cloud whose pods are listed as live stores have them."""

    stores: bool | None = None

    def _do(self, action: Action, now: Moment) -> tuple[Any, ApiError | str | None]:
        result, error = super()._do(action, now)
        if self.stores is not None and isinstance(action, List) and action.kind == "Pod" and result:
            cluster = watched_cluster(result, events=self.stores)
            result = [cluster.pod(each.key) for each in result]
        return result, error


def emptied(pods: Sequence[Pod], *, stores: bool | None) -> tuple[object, ...]:
    """What the loops of a process do to a node with these pods that nobody needs, beside one with room for them.

    ``stores``: how live stores got their objects (by events, or in a list), None: without any.
    """
    groups = [NodeGroup(id="g", min_size=0, max_size=9, nodes=["n1", "n2"], template=template(node("t", 1000, 1000)))]
    nodes = [node("n1", 1000, 1000, ready=True), node("n2", 1000, 1000, ready=True)]
    busy = pod("busy", 700, 700, spec={"node_name": "n2"}, owner_references=WEB)
    busy.metadata.namespace = "default"
    cloud = StoredCloud(groups, nodes, [*pods, busy])
    cloud.stores = stores
    flags = {"scale_down_unneeded_time": timedelta(seconds=20), "skip_nodes_with_custom_controller_pods": False}
    life = Life(cloud, N0, **flags) if stores is None else StoredLife(cloud, N0, events=stores, **flags)
    reports = [life.loop(N0 + 10 * number * SECOND) for number in range(1, 7)]
    blocked = [sorted((name, item.reason) for name, item in each.scale_down.unremovable.items()) for each in reports]
    return cloud.calls, cloud.evicted, cloud.marks, blocked, [(each.reason, each.message) for each in cloud.events]


def agent(value: str | None) -> Pod:
    return placed(owner_references=AGENT, annotations=None if value is None else {noted.ENABLE_DS_EVICTION: value})


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
def test_a_pod_of_a_daemon_set_that_must_stay_is_not_evicted_from_a_drained_node(events: bool) -> None:
    moving = placed(owner_references=WEB)
    moving.metadata.name = "web"
    stays, goes = [moving, agent("false")], [moving, agent(None)]
    assert emptied(stays, stores=None)[1] == ["web"]
    assert emptied(stays, stores=events) == emptied(stays, stores=None)
    assert emptied(goes, stores=events)[1] == ["web", "p"]


@pytest.mark.parametrize("events", [False, True], ids=["list", "watch"])
def test_a_pod_of_a_daemon_set_that_wants_so_is_evicted_from_an_empty_node(events: bool) -> None:
    assert emptied([agent("true")], stores=None)[1] == ["p"]
    assert emptied([agent("true")], stores=events) == emptied([agent("true")], stores=None)
    assert emptied([agent(None)], stores=events)[1] == []


@pytest.mark.parametrize("seed", range(4))
def test_loops_in_a_storm_do_the_same_with_live_stores(seed: int) -> None:
    def lived(stored: bool) -> list[tuple[Moment, str]]:
        storm = begun(seed)
        if stored:
            storm.life.cluster = lambda objects: watched_cluster(objects, events=bool(seed % 2))
        stormy(storm, 12)
        return storm.trace

    assert lived(stored=True) == lived(stored=False)


# -- nothing else is read ----------------------------------------------------------------------------------------------


class NotedReads(dict[str, str]):
    """Annotations that note which of them are read; ``*``: all of them at once."""

    read_keys: ClassVar[set[str]] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read_keys.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.read_keys.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.read_keys.add(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self.read_keys.add("*")
        return super().__iter__()

    def keys(self) -> Any:
        self.read_keys.add("*")
        return super().keys()

    def items(self) -> Any:
        self.read_keys.add("*")
        return super().items()


def read_in_decisions(monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], dict[type, set[str]]]:
    """(annotations, fields of structs) that rules and whole loops read of placed pods."""
    notes: set[str] = set()
    read_fields: set[tuple[type, str]] = set()
    monkeypatch.setattr(NotedReads, "read_keys", notes)
    pairs = [(one, other, rule) for _, (one, other), rule in ANNOTATIONS] + [*FIELDS.values()]
    for one, other, _ in pairs:
        for each in (one, other):
            monkeypatch.setattr(each.metadata, "annotations", NotedReads(each.metadata.annotations or {}))
    with monkeypatch.context() as patch:
        for struct in READ_FIELDS:
            for field in fields(struct):
                home = owner_of(struct, field.name)
                if not isinstance(own := vars(home)[field.name], Spy):
                    patch.setattr(home, field.name, Spy(field.name, own, read_fields))
        for one, other, rule in pairs:
            rule(one)
            rule(other)
        for one, _, _ in FIELDS.values():
            emptied([one], stores=None)
    return notes, {struct: {name for kind, name in read_fields if kind is struct} for struct in READ_FIELDS}


def test_rules_read_nothing_of_a_placed_pod_that_live_stores_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    annotations, read = read_in_decisions(monkeypatch)
    assert annotations == set(noted.READ_ANNOTATIONS)
    assert {kind.__name__: names - set(READ_FIELDS[kind]) for kind, names in read.items()} == {
        kind.__name__: set() for kind in READ_FIELDS
    }


OTHER_ANNOTATIONS = {
    "ca/capacity_buffers/injection.py": "copies those of a pod template",
    "ca/node_infos.py": "drops what is not declared",
    "ca/legacy/scale_down.py": "of nodes",
    "ca/pod_lists.py": "copies those of a pending pod",
    "ca/provisioning_requests/requests.py": "copies those of a pod template",
    "ca/scale_down/actuation/batch_deletion.py": "of nodes",
    "ca/nodes.py": "of nodes",
    "ca/scale_down/drainability.py": "compares all that are declared",
    "ca/scale_down/eligibility.py": "of nodes",
    "ca/scale_down/unneeded.py": "of nodes",
    "ca/loop_context.py": "of nodes",
    "ca/static_autoscaler/skip_unchanged.py": "checks whether there are any",
    "ca/templates.py": "copies those of a DaemonSet's template",
    "hpa/api/admission.py": "of HPAs",
    "hpa/api/keda.py": "of HPAs and ScaledObjects",
    "snapshot/classes/facets.py": "checks whether there are any",
    "snapshot/manifests.py": "of objects that manifests change",
    "hpa/api/v1_conversion.py": "of HPAs",
    "hpa/api/validation.py": "of HPAs",
    "scheduling/compile/node_classes.py": "of CSINodes",
    "scheduling/volumes.py": "of CSINodes and of claims",
    "snapshot/object_store.py": "of claims of devices",
    "snapshot/pods/store.py": "compares them by identity",
    "snapshot/classes/pod_shapes.py": "compares all that are declared",
    "snapshot/watching.py": "of a bookmark",
}
"""Modules beneath the drivers that read annotations by themselves, and of what. Those of the VPA see whole pods."""


def test_annotations_of_pods_are_read_by_declared_names_only() -> None:
    top = Path(kscale.__file__).parent
    reading = set()
    for floor in ("ca", "hpa", "scheduling", "snapshot"):
        for path in (top / floor).rglob("*.py"):
            tree = ast.parse(path.read_text())
            if any(isinstance(each, ast.Attribute) and each.attr == "annotations" for each in ast.walk(tree)):
                reading.add(path.relative_to(top).as_posix())
    assert reading == set(OTHER_ANNOTATIONS)
