"""The estimators of Cluster Autoscaler 1.3 (cluster-autoscaler-scale-up 17.16)."""

from __future__ import annotations

from dataclasses import dataclass

from conformance.building import Json, container, node, pod
from conformance.engines import Engine


def sized(name: str, cpu: int, mebibytes: int) -> Json:
    return node(name, allocatable={"cpu": f"{cpu}m", "memory": f"{mebibytes}Mi", "pods": "10"})


def pods(count: int, cpu: int, mebibytes: int, *, port: bool = False) -> list[Json]:
    result = []
    for index in range(count):
        each = container(cpu=f"{cpu}m", memory=f"{mebibytes}Mi")
        if port:
            each["ports"] = [{"hostPort": 5555, "containerPort": 5555}]
        result.append(pod(f"p{index}", containers=[each]))
    return result


@dataclass(frozen=True)
class Legacy:
    """`basic` or `binpacking`; `coming` copies of the template are on their way."""

    id: str
    estimator: str
    template: Json
    pods: list[Json]
    coming: int
    want: int


FIVE = sized("tmpl", 1500, 2000)
TEN = sized("tmpl", 1000, 2000)
ROWS = [
    Legacy("basic", "basic", FIVE, pods(5, 500, 1000), 0, 3),
    Legacy("basic, two coming", "basic", FIVE, pods(5, 500, 1000), 2, 1),
    Legacy("basic, a host port", "basic", FIVE, pods(1, 500, 1000, port=True) * 5, 0, 5),
    Legacy("binpacking", "binpacking", TEN, pods(10, 350, 1000), 0, 5),
    Legacy("binpacking, two coming", "binpacking", TEN, pods(10, 350, 1000), 2, 3),
    Legacy("binpacking, a host port", "binpacking", sized("tmpl", 1000, 5000), pods(8, 200, 1000, port=True), 0, 8),
]


def check(engine: Engine, row: Legacy) -> None:
    assert engine.legacy is not None
    coming = [
        {**row.template, "metadata": {**row.template["metadata"], "name": f"tmpl-{i}"}} for i in range(row.coming)
    ]
    assert engine.legacy(row.estimator, row.pods, row.template, coming) == row.want
