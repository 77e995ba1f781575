"""The horizontal pod autoscaler as a whole process, against the fake API server: what tests of it have in common."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from kscale.drivers.horizontal_autoscaler import HORIZONTAL_METRICS, HorizontalAutoscaler
from kscale.drivers.process import ProcessOptions, Program, ProgramContext, run_process
from kscale.effects import SECOND, to_text
from kscale.hpa.api.validation import apply_defaults
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.objects.kinds import ServedResource
from kscale.world.kubernetes.transport import Answer, Call, ConnectionFailedError
from kscale.world.metrics_apis import RESTMetrics
from unit.world.fake_api_server import Late
from unit.world.informer_cases import pod
from unit.world.test_informer import FakeApi, against_fake

HPAS = "horizontalpodautoscalers.autoscaling"
Fault = Answer | ConnectionFailedError | Late
WIDGET = ServedResource("example.com", "v1", "Widget", "widgets", scale="autoscaling/v1")


class World:
    """Pods that use so much cpu (milli, of a request of 1000), and what upstream would see of it."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.server = api, api.server
        self.cpu: dict[str, int] = {}
        self.fail: Callable[[Call], Fault | None] = lambda call: None
        self.server.fault = self.fault

    def fault(self, call: Call) -> Fault | None:
        result = self.fail(call)
        if result is not None or not call.path.startswith("/apis/metrics.k8s.io/"):
            return result
        selector = dict(call.query).get("labelSelector", "")
        namespace = call.path.split("/")[5]
        items = [
            {
                "metadata": {"name": name, "namespace": namespace, "labels": {"app": name.rpartition("-")[0]}},
                "timestamp": to_text(self.api.clock.now()),
                "window": "15s",
                "containers": [{"name": "c", "usage": {"cpu": f"{used}m"}}],
            }
            for name, used in self.cpu.items()
            if selector in ("", f"app={name.rpartition('-')[0]}")
        ]
        return Answer(200, {}, json.dumps({"kind": "PodMetricsList", "items": items}).encode())

    def deploy(self, name: str, *used: int, plural: str = "deployments.apps") -> None:
        spec = {"replicas": len(used), "selector": {"matchLabels": {"app": name}}, "template": {}}
        metadata = {"name": name, "namespace": "default"}
        self.server.put(plural, {"metadata": metadata, "spec": spec, "status": {"replicas": len(used)}})
        old = to_text(self.api.clock.now() - 3600 * SECOND)
        for i, cpu in enumerate(used):
            created = pod(f"{name}-{i}", node="n", app=name)
            created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": old}
            created["status"] = {"phase": "Running", "startTime": old, "conditions": [ready]}
            self.server.put("pods", created)
            self.cpu[f"{name}-{i}"] = cpu

    def autoscale(self, name: str, kind: str = "Deployment", group: str = "apps/v1", **more: Any) -> None:
        target = {"type": "Utilization", "averageUtilization": 50}
        spec = {
            "scaleTargetRef": {"apiVersion": group, "kind": kind, "name": name},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        }
        metadata = {"name": name, "namespace": "default", "generation": 1, **more}
        self.server.put(HPAS, {"metadata": metadata, "spec": spec})

    def replicas(self, name: str) -> int:
        return int(self.server.get("deployments.apps", name, "default")["spec"]["replicas"])

    def reasons(self, name: str) -> dict[str, str]:
        conditions = self.server.get(HPAS, name, "default").get("status", {}).get("conditions") or ()
        return {each["type"]: each["reason"] for each in conditions}

    def events(self) -> list[tuple[str, str]]:
        return [(each["reason"], each["involvedObject"]["name"]) for each in self.server.all("events")]


@asynccontextmanager
async def running(world: World, *, dry_run: bool = False, options: HPAOptions | None = None, **more: Any) -> Any:
    stop, around = asyncio.Event(), list[ProgramContext]()

    def build(context: ProgramContext) -> Program:
        around.append(context)
        return Program(
            driver=HorizontalAutoscaler(options or HPAOptions(), manager="kscale", **more),
            metrics=HORIZONTAL_METRICS,
            source=RESTMetrics(context.client, context.resources, context.steady),
        )

    process = ProcessOptions(dry_run=dry_run)
    task = asyncio.create_task(
        run_process(build, world.api.client, process, version="1", stop=stop, clock=world.api.clock)
    )
    await asyncio.sleep(1)
    try:
        yield around[0]
    finally:
        stop.set()
        await task


def scenario(case: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def main(api: FakeApi) -> None:
        await case(World(api))

    against_fake(main, delay=0.001, **options)


def by_backlog(world: World, name: str) -> None:
    """A workload that is scaled by what an adapter tells, ten a pod."""
    world.deploy(name, 500)
    world.autoscale(name)
    hpa = world.server.get(HPAS, name, "default")
    external = {"metric": {"name": "backlog"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    hpa["spec"]["metrics"] = [{"type": "External", "external": external}]
    world.server.put(HPAS, hpa)


def scaled_by_a_metric(name: str, **metadata: Any) -> HorizontalPodAutoscaler:
    """An HPA of an external metric, as it is read."""
    target = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "maxReplicas": 9}
    external = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    document = {
        "metadata": {"name": name, "namespace": "shop", **metadata},
        "spec": {**target, "metrics": [{"type": "External", "external": external}]},
    }
    return apply_defaults(from_dict(document, HorizontalPodAutoscaler))
