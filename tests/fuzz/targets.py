"""What may be fed to kscale from outside, each as a function of bytes; an error without a name is a fault.

``nox -s fuzz`` searches with Atheris; ``tests/unit/test_fuzz_targets.py`` runs the seeds and simple damage to them.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kscale
from kscale.ca.expander.priority_config import PriorityConfigError, parse_priorities
from kscale.capacity.plain_files import read_plain
from kscale.capacity.whatif import scenarios_from
from kscale.errors import KscaleError
from kscale.objects.decode import from_dict
from kscale.objects.protobuf.decoding import decode
from kscale.objects.protobuf.encoding import encode
from kscale.objects.quantity import Quantity, QuantityError
from kscale.objects.resource import Device
from kscale.objects.selector_text import parse_selector
from kscale.objects.selectors import SelectorError as LabelSelectorError
from kscale.scheduling.devices.selectors import SelectorError as DeviceSelectorError
from kscale.scheduling.devices.selectors import selects
from kscale.series import read_csv, read_parquet, read_prometheus
from kscale.simulation import build
from kscale.simulation.scenario import Scenario

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
    found = Quantity(_text(data))
    if found.cmp(Quantity("999E")) <= 0 <= found.cmp(Quantity("-999E")) and Quantity(str(found)) != found:
        raise AssertionError(f"{found} is another")


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
    found = decode("Pod", data).data
    again = decode("Pod", encode("Pod", found).data).data
    if again != found:
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
)  # fmt: skip
TARGETS: dict[str, Callable[[bytes], None]] = {found.__name__: guarded(found) for found in _FUNCTIONS}


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
}
