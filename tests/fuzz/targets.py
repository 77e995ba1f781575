"""What may be fed to kscale from outside, each as a function of bytes; an error without a name is a fault.

``nox -s fuzz`` searches with Atheris; ``tests/unit/test_fuzz_targets.py`` runs the seeds and simple damage to them.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kscale
from kscale._native import _engine
from kscale.ca.expander.priority import PriorityConfigError, parse_priorities
from kscale.capacity.groups.groups_file import read_plain
from kscale.capacity.whatif import scenarios_from
from kscale.effects import Get, GetMetric, GetScale, List
from kscale.errors import KscaleError, NativeError
from kscale.hpa import ControllerState
from kscale.objects.api.resource import Device
from kscale.objects.decode import from_dict
from kscale.objects.protobuf.conversion import decode, encode
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.selectors import SelectorError as LabelSelectorError
from kscale.objects.selectors import parse_selector
from kscale.scheduling.devices.cel import SelectorError as DeviceSelectorError
from kscale.scheduling.devices.cel import selects
from kscale.series import read_csv, read_parquet, read_prometheus
from kscale.simulation import build
from kscale.simulation.scenario import Scenario
from kscale.vpa import RecommenderOptions, RecommenderState, load_state, save_state
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.client import Client, error_of
from kscale.world.kubernetes.performer import Performer
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.stores import ClusterSink, ObjectSink
from kscale.world.kubernetes.transport import Answer, Call
from kscale.world.metrics_apis import RESTMetrics
from kscale.world.protocols import Watch

__all__ = ["SEEDS", "TARGETS"]

EXAMPLES = Path(__file__).parents[2] / "examples"
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "10"}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"zone": "a"}},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"allocatable": AMOUNTS, "capacity": AMOUNTS},
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "d", "uid": "u", "resourceVersion": "7", "labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        }]}},
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {},
        }],
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
}  # fmt: skip


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def dump(data: bytes) -> None:
    """A dump, as JSON or YAML, and the questions that are asked of it."""
    cluster = kscale.load(data)
    snapshot = cluster.snapshot()
    fit = kscale.fit(snapshot)
    for pod in snapshot.pending[:3]:
        for node in snapshot.nodes[:3]:
            _ = fit.verdict(pod, node).reasons
    kscale.place(snapshot)
    kscale.estimate(snapshot, template=NODE)


def watch(data: bytes) -> None:
    """Lines of a watch, upon a cluster that holds something."""
    cluster = kscale.Cluster([NODE, POD])
    used = cluster.watched(data).used
    if not 0 <= used <= len(data):
        raise AssertionError(f"{used} of {len(data)} bytes")
    kscale.place(cluster.snapshot())


def groups(data: bytes) -> None:
    """A groups file."""
    with tempfile.NamedTemporaryFile(suffix=".yaml") as file:
        file.write(data)
        file.flush()
        kscale.read_groups(file.name)


def scenarios(data: bytes) -> None:
    """A file of scenarios for ``kscale whatif``."""
    scenarios_from(read_plain(data, "scenarios.yaml", "scenarios"))


def simulation(data: bytes) -> None:
    """A scenario file of ``kscale simulate``, and the cluster that it begins with."""
    build(from_dict(read_plain(data, "simulation.yaml", "scenario"), Scenario))


def quantity(data: bytes) -> None:
    """A quantity: what is read writes a text that is read as the same, but where upstream's has no suffix any more."""
    parsed = Quantity(_text(data))
    if parsed.cmp(Quantity("999E")) <= 0 <= parsed.cmp(Quantity("-999E")) and Quantity(str(parsed)) != parsed:
        raise AssertionError(f"{parsed} is another")


def selector(data: bytes) -> None:
    """A selector as kubectl takes it."""
    parse_selector(_text(data)).matches({"app": "web"})


def cel(data: bytes) -> None:
    """A selector of devices."""
    selects(_text(data), "driver.example.org", Device(name="gpu"))


def priorities(data: bytes) -> None:
    """The ConfigMap of the priority expander, patterns included."""
    for patterns in parse_priorities(_text(data)).values():
        for pattern in patterns:
            pattern.search("group-a")


def protobuf(data: bytes) -> None:
    """A Pod as protobuf: what is read is written, and is read as the same."""
    decoded = decode("Pod", data).data
    again = decode("Pod", encode("Pod", decoded).data).data
    if again != decoded:
        raise AssertionError("another pod")


def csv(data: bytes) -> None:
    """Usage as CSV."""
    read_csv(data)


def parquet(data: bytes) -> None:
    """Usage as Parquet."""
    read_parquet(data)


def prometheus(data: bytes) -> None:
    """Usage as Prometheus answers."""
    read_prometheus(data)


def hpa_state(data: bytes) -> None:
    """What an HPA controller has saved: what is read is written, and is read as the same."""
    state = ControllerState.from_json(data)
    if ControllerState.from_json(state.to_json()) != state:
        raise AssertionError("another state")


def vpa_state(data: bytes) -> None:
    """What a recommender has saved."""
    save_state(load_state(data))


_ENDS = (0, 1, -1, 2, 3, 7, 100, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_REFUSED = (NativeError, ValueError, TypeError, OverflowError)
_SHAPES = 13
"""So many of the calls say what an engine is made of."""
_MOST = 6  # of everything that an engine is made of: what is asked for is also made


class _Numbers:
    """Numbers of bytes: few, or of any size; zeros when the bytes are used up."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def few(self) -> int:
        """So many as there may be of anything."""
        return self.byte() % (_MOST + 1)

    def any(self) -> int:
        """As often a small number as one at an end of its range."""
        byte = self.byte()
        return byte % 8 - 1 if byte >= 64 else _ENDS[byte % len(_ENDS)]

    def index(self) -> int:
        """Mostly of one of the first."""
        byte = self.byte()
        return byte % 4 if byte >= 16 else self.any()

    def array(self, dtype: type[np.generic], *shape: int) -> NDArray[Any]:
        """Numbers that the dtype holds; now and then the shape is another one."""
        if self.byte() == 255:
            shape = (*shape[1:], self.few())
        ends = np.iinfo(np.dtype(dtype))
        flat = [min(max(self.any(), int(ends.min)), int(ends.max)) for _ in range(int(np.prod(shape)))]
        return np.array(flat, dtype).reshape(shape)

    def has_data(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0


def _extras(read: _Numbers) -> dict[str, Any] | None:
    """What a class of pods has besides amounts."""
    kind = read.few()
    one, two, three = read.few() - 1, read.any(), read.few() - 1
    return (
        None,
        {"ports": [(one, three)]},
        {"own_anti": [one], "touch": [three]},
        {"spread": [(one, two, 1, 1)], "spread_touch": [three]},
        {"disks": [(one, bool(two))], "claims": [three], "rwop": [three]},
        {"volumes": [(one, three, two)]},
        {"affinity_group": one, "self_affine": bool(two), "affinity": [three], "blocked_by": [one]},
    )[kind]


def _engine_of_all() -> tuple[_engine.Engine, int]:
    """An engine of two amounts and three nodes in two zones, with a class of every kind of pods."""
    created = _engine.Engine(2, 2, 1)
    created.set_statics(np.array([[0, 0], [0, 3]], np.uint16))
    created.append_nodes(
        np.full((2, 3), 9), np.array([4, 1, 9]), np.array([0, 1, 0], np.int32), np.array([0, 0, 1], np.uint8)
    )
    zone = created.add_key(np.array([0, 1, 0], np.int32), 2)
    host = created.add_key(np.arange(3, dtype=np.int32), 3)
    created.set_eligibility(np.ones((1, 2), np.uint8))
    spread = created.add_row(zone, np.zeros(2, np.int64), eligibility=0)
    anti = created.add_row(host, np.zeros(3, np.int64))
    driver, claim = created.add_driver(np.ones(3, np.int32)), created.add_claim()
    extras: list[dict[str, Any] | None] = [
        None,
        {"spread": [(spread, 1, 1, 1)], "spread_touch": [spread]},
        {"own_anti": [anti], "touch": [anti]},
        {"ports": [(0, -1)]},
        {"disks": [(0, False)], "claims": [claim], "rwop": [claim]},
        {"volumes": [(0, driver, -1)]},
    ]
    n = len(extras)
    requests = np.array([[3, 1]] * n)
    flags = np.arange(n, dtype=np.int32) % 2, np.zeros(n, np.uint8), np.arange(n, dtype=np.uint8) == 1
    created.add_classes(requests, requests, flags[0], flags[1], flags[2].astype(np.uint8), extras)
    return created, 2


def _engine_calls(engine: _engine.Engine, n_resources: int, read: _Numbers) -> Sequence[Callable[[], object]]:
    def template() -> _engine.Template:
        return _engine.Template(
            engine, node_class=read.index(), unschedulable=bool(read.few()), slots=read.any(),
            free=[read.any() for _ in range(n_resources)], domain=[read.index() - 1 for _ in range(engine.n_keys)],
        )  # fmt: skip

    def add_classes() -> object:
        n = read.few()
        amounts = read.array(np.int64, n, n_resources), read.array(np.int64, n, n_resources)
        flags = read.array(np.int32, n), read.array(np.uint8, n), read.array(np.uint8, n)
        return engine.add_classes(*amounts, *flags, [_extras(read) for _ in range(n)])

    def append_nodes() -> None:
        n = read.few()
        engine.append_nodes(
            read.array(np.int64, n_resources, n), read.array(np.int64, n), read.array(np.int32, n),
            read.array(np.uint8, n),
        )  # fmt: skip

    def estimate() -> object:
        pods = np.array([read.index() for _ in range(read.few())], np.int32)
        groups = np.array([0, len(pods)], np.int32)
        return _engine.estimate(engine, pods, groups, template(), max_nodes=read.any())

    return (
        append_nodes,
        add_classes,
        lambda: engine.set_statics(read.array(np.uint16, read.few(), read.few())),
        lambda: engine.set_classes(read.array(np.int32, engine.nodes)),
        lambda: engine.set_eligibility(read.array(np.uint8, read.few(), engine.n_node_classes)),
        lambda: engine.add_key(read.array(np.int32, engine.nodes), read.few()),
        lambda: engine.add_driver(read.array(np.int32, engine.nodes)),
        lambda: engine.add_row(read.few() - 1, read.array(np.int64, read.few()), eligibility=read.few() - 1),
        lambda: engine.add_claim(read.any()),
        lambda: engine.use_disk(read.index(), read.any(), bool(read.few())),
        lambda: engine.attach(read.index(), read.any(), read.index()),
        lambda: engine.use_port(read.index(), (read.index(), read.index() - 1)),
        lambda: engine.populate(read.array(np.int32, 3), read.array(np.int32, 3)),
        engine.fork,
        lambda: engine.place(read.index(), read.index()),
        lambda: engine.unplace(read.index(), read.index()),
        lambda: engine.add(template(), read.index()),
        lambda: engine.remove_node(read.any()),
        lambda: engine.vacate(read.index(), read.array(np.int32, read.few())),
        lambda: engine.any_node(read.index()),
        lambda: engine.check(read.index(), read.index()),
        lambda: engine.check_alone(read.index(), read.index(), read.index()),
        lambda: engine.capacity(read.index(), read.index()),
        lambda: engine.verdicts(np.array([read.index()], np.int32), threads=2),
        estimate,
        engine.copy,
        engine.reset_classes,
        engine.revert,
        engine.commit,
    )


def engine(data: bytes) -> None:
    """Calls of the packing engine, in any order and with any numbers: what is refused has a name, and what is reverted
    leaves no trace."""
    read = _Numbers(data)
    created, n_resources = _engine_of_all() if read.few() else (_engine.Engine(1, read.few(), read.few()), 1)
    calls = _engine_calls(created, n_resources, read)
    before: list[int] = []
    while read.has_data():
        call = calls[read.byte() % len(calls)]
        if created.depth and call in calls[:_SHAPES]:
            continue  # what an engine is made of is not journalled
        with contextlib.suppress(*_REFUSED):
            if call == created.fork:
                before.append(created.checksum())
            call()
            if call == created.commit:
                before.pop()
            if call == created.revert and created.checksum() != before.pop():
                raise AssertionError("what was reverted has left something")
        del before[created.depth :]


class _SameAnswer:
    """A transport that answers everything alike."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def call(self, call: Call) -> Answer:
        return self.answer

    def stream(self, call: Call) -> Any:
        raise AssertionError("no watch is opened")

    async def close(self) -> None:
        """Nothing is open."""


def _answered(question: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that never has to wait."""
    try:
        question.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for something")


def server(data: bytes) -> None:
    """What a server answers, as each that asks it reads it: lists, watches, discovery, a Status, a Scale, metrics."""
    clock = SystemClock()
    client = Client(_SameAnswer(Answer(200, {}, data)), clock, qps=-1)
    performer = Performer(client, clock, resources=Resources(client))
    metrics = RESTMetrics(client, Resources(client), clock)
    readers: list[Callable[[], object]] = [
        lambda: error_of(Call(method="GET", path="/"), Answer(503, {"retry-after": _text(data[:40])}, data)),
        lambda: _answered(Resources(client).find_name("widgets.example.org")),
        lambda: _answered(Resources(client).find_kind("Widget", "example.org/v1")),
        lambda: _answered(Resources(client).mapper()),
        lambda: _answered(performer(List(kind="ConfigMap", api_version="v1", watched=False))),
        lambda: _answered(performer(Get(kind="Lease", api_version="coordination.k8s.io/v1", name="l", watched=False))),
        lambda: _answered(performer(GetScale(resource="deployments.apps", namespace="d", name="a"))),
        *(
            lambda api=api, columns=columns: _answered(
                metrics.get(GetMetric(api=api, metric="m", kind="Pod", namespace="d", selector="", columns=columns))
            )
            for api, columns in (("resource", False), ("resource", True), ("custom", False), ("external", False))
        ),
    ]
    for kind, version in (("Pod", "v1"), ("Node", "v1"), ("HorizontalPodAutoscaler", "autoscaling/v2")):
        for sink in (
            ObjectSink(Watch(kind=kind, api_version=version, typed=True), lambda _: None),
            ClusterSink(kscale.Cluster(), kind),
        ):
            readers += [
                sink.begin,
                lambda sink=sink: sink.read_page(data),
                lambda sink=sink: sink.read_events(data + b"\n"),
            ]
    for read in readers:
        with contextlib.suppress(*NAMED):
            read()


NAMED: tuple[type[Exception], ...] = (
    KscaleError,
    QuantityError,
    PriorityConfigError,
    DeviceSelectorError,
    LabelSelectorError,
)


def guarded(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The same, with errors that have a name taken for an answer."""

    def run(data: bytes) -> None:
        try:
            target(data)
        except NAMED:
            return

    run.__doc__ = target.__doc__
    return run


_FUNCTIONS = (
    dump, watch, groups, scenarios, simulation, quantity, selector, cel, priorities, protobuf, csv, parquet, prometheus,
    hpa_state, vpa_state, engine, server,
)  # fmt: skip
TARGETS: dict[str, Callable[[bytes], None]] = {function.__name__: guarded(function) for function in _FUNCTIONS}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"time": [1, 2], "value": [0.5, 1.5], "pod": ["a", "a"]}), out)
    return out.getvalue()


_YAML = b"""apiVersion: v1
kind: Pod
metadata: {name: p, namespace: d}
spec:
  containers:
  - name: c
    resources: {requests: {cpu: 1.5, memory: 1Gi}}
"""
SEEDS: dict[str, list[bytes]] = {
    "dump": [_json({"apiVersion": "v1", "kind": "List", "items": [NODE, POD]}), _YAML],
    "watch": [b"".join(_json({"type": type_, "object": POD}) + b"\n" for type_ in ("ADDED", "MODIFIED", "DELETED"))],
    "groups": [
        b"- id: g\n  min: 0\n  max: 3\n  price: 0.5\n  labels: {a: b}\n",
        _json([{"id": "g", "template": NODE}]),
    ],
    "scenarios": [(EXAMPLES / "scenarios.yaml").read_bytes()],
    "simulation": [(EXAMPLES / "simulate-web.yaml").read_bytes()],
    "quantity": [b"500m", b"1Gi", b"-1.5e3", b"9223372036854775807", b"0.000000001"],
    "selector": [b"app=web,tier!=db", b"app in (a, b),!x,y", b"n>1"],
    "cel": [b"device.driver == 'driver.example.org'", b"device.attributes['a.b'].c == 1 || true"],
    "priorities": [b"10:\n- .*spot.*\n50:\n- ^a[0-9]+$\n"],
    "protobuf": [encode("Pod", POD).data],
    "csv": [b"time,value,pod\n2026-05-04T00:00:00Z,1.5,a\n", b"time,value\n1,2\n"],
    "parquet": [_parquet()],
    "prometheus": [
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"pod":"a"},"values":[[1,"2"]]}]}}'
    ],
    "hpa_state": [
        (
            b'{"apiVersion":"kscale.dev/v1alpha1","kind":"HPAControllerState","hpas":{"d/h":{"registered":true,'
            b'"recommendations":[],"scaleUpEvents":[],"scaleDownEvents":[],"selector":"app=web"}}}'
        )
    ],
    "vpa_state": [save_state(RecommenderState(RecommenderOptions()))],
    "server": [
        _json({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [POD]}),
        _json({"kind": "NodeList", "metadata": {"continue": "a", "remainingItemCount": 3}, "items": [NODE]}),
        b"".join(_json({"type": type_, "object": POD}) + b"\n" for type_ in ("ADDED", "MODIFIED", "DELETED")),
        _json({"type": "BOOKMARK", "object": {"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}}}),
        _json({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}),
        _json({"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 1, "causes": [{"reason": "r"}]}}),
        _json({"groups": [{"name": "example.org", "versions": [{"groupVersion": "example.org/v1", "version": "v1"}]}]}),
        _json({"groupVersion": "example.org/v1", "resources": [{"name": "widgets", "kind": "Widget"}]}),
        _json(
            {"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1"}]}]}
        ),
        _json(
            {"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {"replicas": 2}, "status": {"selector": "a=b"}}
        ),
        _json(
            {
                "kind": "PodMetricsList",
                "items": [
                    {
                        "metadata": {"name": "p", "namespace": "d"},
                        "timestamp": "2026-05-04T00:00:00Z",
                        "window": "30s",
                        "containers": [{"name": "c", "usage": {"cpu": "5m", "memory": "1Mi"}}],
                    }
                ],
            }
        ),
        _json(
            {
                "kind": "MetricValueList",
                "items": [
                    {
                        "describedObject": {"name": "p"},
                        "metric": {"name": "m"},
                        "timestamp": "2026-05-04T00:00:00Z",
                        "value": "5",
                    }
                ],
            }
        ),
        b"--1",
        b"+5",
    ],
    "engine": [
        bytes(range(256)),
        bytes(range(128, 256)) * 2,
        b"".join(bytes([130 + n, 131, 130]) for n in range(29)) * 3,
    ],
}
