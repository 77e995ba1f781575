"""Recorded traces as arrivals of pods: openb (Alibaba's GPU clusters) and SimKube.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023; hkust-adsl/kubernetes-scheduler-simulator, ``data/csv``.

Source: acrlabs/simkube, ``docs/ref/trace-files.md`` and ``sk-store``: versions 2 and 3 of the format, as MessagePack
(what ``skctl export`` writes) or as the JSON that ``msgpack2json`` makes of it. The run times of an object's pods
(``index``, ``pod_lifecycles``) are not read.

Not in upstream.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace as structs_replace

from kscale.capacity.catalogue.formats import rows_of
from kscale.effects import SECOND, Moment
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import KubeObject
from kscale.objects.argument_types import typed
from kscale.objects.decode import from_dict
from kscale.objects.node_selectors import HOSTNAME
from kscale.simulation.scenario import OpenbEntry, Values
from kscale.snapshot.loading import load_objects
from kscale.world.simulated.controllers import HAPPENINGS
from kscale.world.simulated.kubelet import PodTimes
from kscale.world.simulated.load import DurationDistribution
from kscale.world.simulated.world import SimulatedWorld

__all__ = ["GPU_MILLI", "GPU_MODEL", "OpenbNode", "OpenbPod", "openb_rows", "read_openb_nodes", "read_openb_pods"]


GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
"""The resource of GPUs, in thousandths of one."""
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
"""The label that tells a node's model of GPU."""

_WHOLE: Final = 1000
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
_Amount = Annotated[int, msgspec.Meta(ge=0)]
_T = TypeVar("_T", "OpenbNode", "OpenbPod")


class OpenbNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node: ``sn`` is its name; ``cpu_milli``, ``memory_mib`` and ``gpu`` are its capacity.

    ``model``: model of its GPUs, empty if it has none.
    """

    sn: _Name
    cpu_milli: _Amount
    memory_mib: _Amount
    gpu: _Amount
    model: str = ""

    def manifest(self) -> dict[str, Any]:
        """Build the node's manifest, with room for 110 pods.

        All GPUs of the node are one amount, in thousandths of a GPU. Which of them a pod uses is not modelled.
        """
        labels = {HOSTNAME: self.sn} | ({GPU_MODEL: self.model} if self.model else {})
        amounts = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi", "pods": "110"}
        if self.gpu:
            amounts[GPU_MILLI] = str(self.gpu * _WHOLE)
        status = {"capacity": amounts, "allocatable": amounts}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.sn, "labels": labels}, "status": status}


class OpenbPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod.

    ``cpu_milli``, ``memory_mib``: its requests. ``num_gpu``: number of GPUs, ``gpu_milli``: thousandths of each;
    ``gpu_spec``: accepted models, separated by ``|``, empty = all. Times (``creation_time``, ``deletion_time``,
    ``scheduled_time``) are seconds of the trace; None: not in the file. ``qos``, ``pod_phase``: as in the trace.
    """

    name: _Name
    cpu_milli: _Amount
    memory_mib: _Amount
    num_gpu: _Amount
    gpu_milli: Annotated[int, msgspec.Meta(ge=0, le=_WHOLE)]
    gpu_spec: str = ""
    qos: str = ""
    pod_phase: str = ""
    creation_time: _Amount | None = None
    deletion_time: _Amount | None = None
    scheduled_time: _Amount | None = None

    def __post_init__(self) -> None:
        if self.num_gpu and not self.gpu_milli:
            raise ValueError(f"num_gpu is {self.num_gpu}, of which gpu_milli is 0")

    @property
    def models(self) -> tuple[str, ...]:
        """Return the accepted GPU models, sorted and without duplicates; empty if every model is accepted."""
        return tuple(sorted({model for model in self.gpu_spec.split("|") if model}))

    def manifest(self, namespace: str = "openb") -> dict[str, Any]:
        """Build the pod's manifest as pending.

        Its GPU request is one amount, which a node may provide in fragments.
        """
        requests = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        if self.num_gpu:
            requests[GPU_MILLI] = str(self.num_gpu * self.gpu_milli)
        resources = {"requests": requests, "limits": requests}
        spec: dict[str, Any] = {"containers": [{"name": "main", "image": "openb", "resources": resources}]}
        if self.models:
            expression = {"key": GPU_MODEL, "operator": "In", "values": list(self.models)}
            required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
            spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        metadata = {"name": self.name, "namespace": namespace, "uid": f"{namespace}/{self.name}"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


@typed
def read_openb_nodes(path: str | os.PathLike[str]) -> list[OpenbNode]:
    """Read a list of nodes (``openb_node_list_*.csv``, may be gzip).

    Raises InputError with all problems, by row and column.
    """
    return list(openb_rows(path, OpenbNode).values())


@typed
def read_openb_pods(path: str | os.PathLike[str]) -> list[OpenbPod]:
    """Read a list of pods (``openb_pod_list_*.csv``, may be gzip).

    Raises InputError with all problems, by row and column.
    """
    return list(openb_rows(path, OpenbPod).values())


@typed
def openb_rows(path: str | os.PathLike[str], kind: type[_T]) -> dict[str, _T]:
    """Read a CSV into records of ``kind``, by the text that identifies the row in problems.

    Empty cells count as absent. Raises InputError if the file cannot be read; otherwise with the problems of all rows,
    including rows whose name (the first field of ``kind``) an earlier row has.
    """
    source, fields = os.fspath(path), msgspec.structs.fields(kind)
    result: dict[str, _T] = {}
    problems: list[Problem] = []
    name = fields[0].name
    names: set[str] = set()
    for row, cells in rows_of(_text(Path(path)), source, [record.name for record in fields if record.required]):
        if None in cells or None in cells.values():
            text = f"{'more' if None in cells else 'fewer'} cells than the header has columns"
            problems.append(Problem(text, source=source, object=row))
            continue
        try:
            record = msgspec.convert(_strip_cells(cells.items()), kind, strict=False)
        except msgspec.ValidationError as error:
            text, _, path_in_row = str(error).partition(" - at `$.")
            problems.append(Problem(text, source=source, object=row, field=path_in_row.rstrip("`")))
            continue
        if getattr(record, name) in names:
            problems.append(Problem("another row has this name", source=source, object=row, field=name))
            continue
        names.add(getattr(record, name))
        result[row] = record
    if problems:
        raise InputError(problems, total=len(result) + len(problems))
    return result


def _strip_cells(cells: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the cells that are not empty, by column, without surrounding spaces."""
    return {column: text.strip() for column, text in cells if text.strip()}


def _text(path: Path) -> str:
    """Read a text file, decompressed if it is gzip. Raises InputError if it cannot be read as UTF-8."""
    try:
        raw = read_file(path)
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(Problem(f"not readable as CSV: {error}", source=str(path))) from None


_RANDOM: Final = "-[a-z0-9]{5}"
_SUFFIXES: Final = {
    "DaemonSet": _RANDOM, "Deployment": f"-[a-z0-9]+{_RANDOM}", "Job": _RANDOM, "ReplicaSet": _RANDOM,
    "ReplicationController": _RANDOM, "StatefulSet": "-[0-9]+",
}  # fmt: skip
"""Suffix that pods' names add to the name of their workload."""


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Pods and nodes of a trace.

    - ``pods``: (time, pod) in order of arrival
    - ``work``: run times of some pods in nanoseconds, by key
    - ``nodes``: nodes at the beginning
    - ``places``: file, row and column of each object, by kind and key
    """

    pods: Sequence[tuple[Moment, Pod]] = ()
    work: Mapping[str, int] = field(default_factory=dict)
    nodes: Sequence[Node] = ()
    places: Mapping[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)

    def times(self, usual: Callable[[Pod], PodTimes]) -> Callable[[Pod], PodTimes]:
        """Return a function from a pod to its times: those of ``usual``, with the trace's run time if it has one."""
        if not self.work:
            return usual

        def times(pod: Pod) -> PodTimes:
            """Return the times of a pod."""
            usual_times, work = usual(pod), self.work.get(pod.key)
            return usual_times if work is None else structs_replace(usual_times, work=DurationDistribution.fixed(work))

        return times

    def find_pod_key(self, workload: KubeObject) -> str | None:
        """Return the key of a trace's pod whose name a pod of the workload might get.

        None if there is none, or if the workload's kind is not a built-in one that creates pods.
        """
        suffix = _SUFFIXES.get(workload.kind)
        if suffix is None or workload.namespace not in self._namespaces:
            return None
        named = re.compile(re.escape(workload.key) + suffix)
        return next((pod.key for _, pod in self.pods if named.fullmatch(pod.key)), None)

    @cached_property
    def _namespaces(self) -> frozenset[str]:
        """Return the namespaces of the trace's pods."""
        return frozenset(pod.namespace for _, pod in self.pods)

    def enter(self, world: SimulatedWorld) -> None:
        """Schedule the creation of the trace's pods in a world. The caller adds the nodes."""
        for time, coming in groupby(self.pods, key=itemgetter(0)):
            world.time.at(time, partial(_add_pods, world, [pod for _, pod in coming]), rank=HAPPENINGS)


def _add_pods(world: SimulatedWorld, pods: Sequence[Pod]) -> None:
    """Add pods to a world."""
    for pod in pods:
        world.add(pod)


def openb_arrivals(entry: OpenbEntry | None, values: Values, begin: Moment, end: Moment) -> Arrivals:
    """Read the arrivals of an openb trace from ``begin`` (second 0 of the trace) to ``end``.

    Later pods are left out; all nodes are there at the beginning. Mistakes are added to ``values``; the result is empty
    then, and without an entry.
    """
    if entry is None:
        return Arrivals()
    try:
        pods = openb_rows(values.folder / entry.pods, OpenbPod)
        nodes = openb_rows(values.folder / entry.nodes, OpenbNode) if entry.nodes else {}
    except InputError as error:
        values.problems += error.problems
        return Arrivals()
    untimed = next((pod for pod in pods.values() if pod.creation_time is None), None)
    if untimed is not None:
        text = f"pod {untimed.name} has no creation_time"
        values.problems.append(Problem(text, source=str(values.folder / entry.pods), field="openb.pods"))
        return Arrivals()
    timed = [(begin + (pod.creation_time or 0) * SECOND, row, pod) for row, pod in pods.items()]
    arriving = sorted((arrival for arrival in timed if arrival[0] <= end), key=lambda arrival: arrival[0])
    rows = {("Node", node.sn): (str(values.folder / entry.nodes), row, "sn") for row, node in nodes.items()}
    rows |= {("Pod", f"openb/{pod.name}"): (str(values.folder / entry.pods), row, "name") for _, row, pod in arriving}
    return Arrivals(
        pods=[(time, from_dict(pod.manifest(), Pod)) for time, _, pod in arriving],
        work={f"openb/{pod.name}": work for _, _, pod in arriving if (work := _get_run_time(pod)) is not None},
        nodes=[from_dict(node.manifest(), Node) for node in nodes.values()],
        places=rows,
    )


def _get_run_time(pod: OpenbPod) -> int | None:
    """Return the pod's run time in nanoseconds, from scheduling to deletion; None if a time is missing.

    Without a time of scheduling, the run time begins with the creation.
    """
    since = pod.creation_time if pod.scheduled_time is None else pod.scheduled_time
    if pod.deletion_time is None or since is None:
        return None
    return max(pod.deletion_time - since, 0) * SECOND


_VERSIONS: Final = (2, 3)
_OF_A_CLUSTER: Final = frozenset(
    {"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
     "ownerReferences", "resourceVersion", "uid"}
)  # fmt: skip
"""Metadata that an object had in the cluster that was traced, and has not in another."""
_Admit = Callable[[KubeObject], KubeObject]


class SimkubeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The changes at ``ts`` (seconds since 1970), as manifests of objects."""

    ts: int
    applied_objs: list[dict[str, Any]] = []
    deleted_objs: list[dict[str, Any]] = []


class _Trace(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    events: list[SimkubeEvent]


def read_simkube(path: str | os.PathLike[str]) -> list[SimkubeEvent]:
    """Read the events of a trace (MessagePack or JSON, may be gzip), in order of time.

    Other fields of the file are ignored. Raises InputError if the file cannot be read, or is not a trace of a known
    version.
    """
    source = os.fspath(path)
    try:
        raw = read_file(path)
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(Problem(f"not readable: {error}", source=source)) from None
    decode = msgspec.json.decode if raw.lstrip()[:1] == b"{" else msgspec.msgpack.decode
    try:
        trace = decode(raw, type=_Trace)
    except msgspec.ValidationError as error:
        text, _, path_in_file = str(error).partition(" - at `$.")
        raise InputError(Problem(text, source=source, field=path_in_file.rstrip("`"))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"no trace of SimKube: {error}", source=source)) from None
    except RecursionError:
        raise InputError(Problem("nested too deeply to be read", source=source)) from None
    if trace.version not in _VERSIONS:
        raise InputError(Problem(f"{trace.version} is none of {_VERSIONS}", source=source, field="version"))
    return sorted(trace.events, key=lambda event: event.ts)


@dataclass(frozen=True, kw_only=True)
class SimkubeObjects:
    """Objects of a trace: ``first`` exist at the beginning; ``later``: (time, applied objects, deleted objects)."""

    first: Sequence[KubeObject] = ()
    later: Sequence[tuple[Moment, Sequence[KubeObject], Sequence[KubeObject]]] = ()

    @property
    def applied(self) -> list[KubeObject]:
        """Return the objects at the beginning and those applied later."""
        return [*self.first, *self.applied_later]

    @property
    def applied_later(self) -> list[KubeObject]:
        """Return the objects applied after the beginning, each as often as the trace applies the object."""
        return [item for _, applied, _ in self.later for item in applied]

    @property
    def deleted_later(self) -> list[KubeObject]:
        """Return the objects deleted after the beginning, each as often as the trace deletes the object."""
        return [item for _, _, deleted in self.later for item in deleted]

    def admit(self, admit: _Admit) -> SimkubeObjects:
        """Return a copy with ``admit`` applied to each object that is applied later, but not to the first ones.

        ``admit(object)`` returns the object as the API server would store it.
        """
        later = [(time, [admit(item) for item in applied], deleted) for time, applied, deleted in self.later]
        return replace(self, later=later)

    def enter(self, world: SimulatedWorld) -> None:
        """Schedule the later changes in a world."""
        for time, applied, deleted in self.later:
            world.time.at(time, partial(_apply_changes, world, applied, deleted), rank=HAPPENINGS)


def _apply_changes(world: SimulatedWorld, applied: Sequence[KubeObject], deleted: Sequence[KubeObject]) -> None:
    """Apply objects in a world, then delete objects; those that do not exist are ignored."""
    for item in applied:
        world.apply(item)
    for item in deleted:
        world.delete(item.kind, item.key)


def simkube_objects(name: str, values: Values, begin: Moment, end: Moment) -> SimkubeObjects:
    """Read the objects of a trace from ``begin`` (the time of its first event) to ``end``; empty for an empty name.

    Objects that the events at ``begin`` also delete are left out; events after ``end`` are not read.
    Mistakes are added to ``values``; the result is empty if the file cannot be read.
    """
    if not name:
        return SimkubeObjects()
    source = values.folder / name
    try:
        events = read_simkube(source)
    except InputError as error:
        values.problems += error.problems
        return SimkubeObjects()

    def objects(given: Sequence[Mapping[str, Any]], field: str) -> list[KubeObject]:
        """Decode the objects of an event; mistakes are added to ``values``, and such objects are left out."""
        result: list[KubeObject] = []
        for i, data in enumerate(given):
            try:
                result.append(_decode_object(data))
            except InputError as error:
                place = f"{field}[{i}]"
                values.problems += [replace(problem, source=str(source), object=place) for problem in error.problems]
        return result

    first: dict[tuple[str, str], KubeObject] = {}
    later: list[tuple[Moment, Sequence[KubeObject], Sequence[KubeObject]]] = []
    for number, event in enumerate(events):
        time = begin + (event.ts - events[0].ts) * SECOND
        if time > end:
            break
        applied = objects(event.applied_objs, f"events[{number}].applied_objs")
        deleted = objects(event.deleted_objs, f"events[{number}].deleted_objs")
        if time > begin:
            later.append((time, applied, deleted))
            continue
        first |= {(item.kind, item.key): item for item in applied}
        for item in deleted:
            first.pop((item.kind, item.key), None)
    return SimkubeObjects(first=list(first.values()), later=later)


def _decode_object(data: Mapping[str, Any]) -> KubeObject:
    """Decode an applied or deleted object, without status, a pod's node, and metadata such as UID and owner references.

    Raises InputError if it is invalid, for a list of objects, and for kinds that are not simulated, such as CronJob.
    """
    metadata = data.get("metadata")
    manifest = {key: value for key, value in data.items() if key != "status"}
    if isinstance(metadata, Mapping):
        manifest["metadata"] = {key: value for key, value in metadata.items() if key not in _OF_A_CLUSTER}
    spec = data.get("spec")
    if data.get("kind") == "Pod" and isinstance(spec, Mapping):
        manifest["spec"] = {key: value for key, value in spec.items() if key != "nodeName"}
    objects = [loaded.obj for loaded in load_objects(manifest, validate=True)]
    if len(objects) == 1 and objects[0].kind == data.get("kind") and objects[0].kind != "CronJob":
        return objects[0]
    raise InputError(Problem(f"objects of {data.get('apiVersion')} {data.get('kind')} cannot be simulated"))
