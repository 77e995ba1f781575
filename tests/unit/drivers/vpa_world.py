"""A small cluster for the programs of the VPA, on the fake API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from kscale.drivers.driver import Driver
from kscale.drivers.process import ProcessOptions, Program, ProgramContext, run_process
from kscale.effects import to_text
from kscale.objects.kinds import ServedResource
from kscale.world.protocols import Clock
from unit.world.test_informer import FakeApi

METRICS = ServedResource("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")
ROLLOUTS = ServedResource("argoproj.io", "v1alpha1", "Rollout", "rollouts", scale="autoscaling/v1")
SERVED = (METRICS, ROLLOUTS)
NAMESPACE = "shop"


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, **more}


def workload(app: str, replicas: int = 2, kind: str = "ReplicaSet", api: str = "apps/v1") -> dict[str, Any]:
    labels = {"matchLabels": {"app": app}}
    spec = {"replicas": replicas, "selector": labels, "template": {}}
    return {"kind": kind, "apiVersion": api, "metadata": meta(app), "spec": spec}


def running_pod(
    name: str, app: str, *, cpu: str = "100m", memory: str = "100Mi", phase: str = "Running", **more: Any
) -> dict[str, Any]:
    kind, api = more.pop("owner", ("ReplicaSet", "apps/v1"))
    owner = {"apiVersion": api, "kind": kind, "name": app, "uid": app, "controller": True}
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    status = {"phase": phase, **more.pop("status", {})}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": meta(name, labels={"app": app}, ownerReferences=[owner], **more),
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "x", "resources": resources}]},
        "status": status,
    }


def autoscaler(
    name: str, app: str = "", *, kind: str = "ReplicaSet", api: str = "apps/v1", **spec: Any
) -> dict[str, Any]:
    target = {"apiVersion": api, "kind": kind, "name": app or name}
    status = {"status": spec.pop("status")} if "status" in spec else {}
    return {
        "kind": "VerticalPodAutoscaler",
        "apiVersion": "autoscaling.k8s.io/v1",
        "metadata": meta(name, creationTimestamp="2027-01-15T07:00:00Z", generation=1),
        "spec": {"targetRef": target, **spec},
        **status,
    }


def node(name: str = "n", cpu: str = "2", memory: str = "4Gi") -> dict[str, Any]:
    room = {"cpu": cpu, "memory": memory, "pods": "110"}
    status = {"allocatable": room, "capacity": room}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "status": status}


def used(api: FakeApi, name: str, cpu: str, memory: str, *, at: int | None = None) -> None:
    """What metrics-server says of a pod."""
    usage = [{"name": "c", "usage": {"cpu": cpu, "memory": memory}}]
    time = to_text(api.clock.now() if at is None else at)
    item = {"metadata": meta(name), "timestamp": time, "window": "30s", "containers": usage}
    api.server.put("pods.metrics.k8s.io", {"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1", **item})


def cluster(api: FakeApi, app: str = "web", pods: int = 2, **more: Any) -> None:
    api.server.put("namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE}})
    api.server.put("replicasets.apps", workload(app, pods))
    for i in range(pods):
        api.server.put("pods", running_pod(f"{app}-{i}", app, **more))


class Run:
    """One program under way; ``clock``: another than the API's."""

    def __init__(
        self, api: FakeApi, build: Callable[[ProgramContext], Program], clock: Clock | None = None, **options: Any
    ) -> None:
        self.api, self.stop = api, asyncio.Event()
        self.programs: list[Program] = []
        self.around: list[ProgramContext] = []

        def built(around: ProgramContext) -> Program:
            self.around.append(around)
            self.programs.append(build(around))
            return self.programs[0]

        process_options = ProcessOptions(**options)
        self.task = asyncio.create_task(
            run_process(built, api.client, process_options, version="1", stop=self.stop, clock=clock or api.clock)
        )

    @property
    def driver(self) -> Driver[Any]:
        return self.programs[0].driver

    def metric(self, name: str, **labels: str) -> float | None:
        return self.around[0].metrics.value(name, **labels)


@asynccontextmanager
async def running(api: FakeApi, build: Callable[[ProgramContext], Program], **options: Any) -> AsyncIterator[Run]:
    run = Run(api, build, **options)
    try:
        yield run
        if run.task.done():
            run.task.result()
    finally:
        run.stop.set()
        await asyncio.wait([run.task])
    run.task.result()
