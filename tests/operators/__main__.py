"""Run ``examples/programs/async_operator.py`` under kubernetes-asyncio and kopf, with a stand-in API server.

``nox -s operators`` installs both packages in an environment of its own and runs this.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import kopf
import kubernetes_asyncio.client
from msgspec.structs import replace

import kscale
from hostile.http_server import Api, HostileServer
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.transport import Answer, Call
from unit.world.fake_api_objects import FakeWatch

ROOT = Path(__file__).parents[2]
AMOUNTS = {"cpu": "4", "memory": "8Gi", "pods": "10"}
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": AMOUNTS},
}
LAST = "1 pods fit, the others need new nodes: {'pool': 1}"


class AnyClientApi(Api):
    """Accepts watches as any client asks for them; the base class insists on what kscale asks."""

    async def call(self, call: Call) -> Answer:
        answer = await super().call(call)
        document = json.loads(answer.body or b"null")
        if isinstance(document, dict) and document.get("kind") == "APIResourceList":
            for resource in document["resources"]:  # kopf needs these fields, which a real server always sends
                resource.setdefault("singularName", "")
                resource.setdefault("verbs", ["get", "list", "watch"])
            return Answer(answer.status, dict(answer.headers), json.dumps(document).encode())
        return answer

    def _watch(self, call: Call) -> FakeWatch:
        query = {**dict(call.query), "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
        return super()._watch(replace(call, query=tuple(query.items())))


def pod(name: str) -> dict[str, Any]:
    containers = [{"name": "app", "resources": {"requests": {"cpu": "3"}}}]
    metadata = {"name": name, "namespace": "shop", "uid": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def program() -> ModuleType:
    spec = spec_from_file_location("async_operator", ROOT / "examples" / "programs" / "async_operator.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def planner() -> Any:
    template = kscale.NodeTemplate(node=from_dict(NODE, Node))
    return program().Planner([kscale.NodeGroup(id="pool", max_size=9, template=template)])


async def under_kubernetes_asyncio(address: str, api: Api) -> list[str]:
    """Return the reports until the last one that is expected."""
    configuration = kubernetes_asyncio.client.Configuration(host=address)
    reports = []
    async with kubernetes_asyncio.client.ApiClient(configuration) as client:
        core, one = kubernetes_asyncio.client.CoreV1Api(client), planner()
        kinds = {"Node": core.list_node, "Pod": core.list_pod_for_all_namespaces}
        following = asyncio.create_task(program().follow(one, kinds))
        while LAST not in reports:
            reports.append(await one.reports.get())
            if len(reports) == 2:
                api.put("pods", pod("web-1"))
        following.cancel()
    return reports


async def under_kopf(address: str) -> list[str]:
    """Return the reports of handlers that kopf calls, until the last one that is expected."""
    one, registry, reports = planner(), kopf.OperatorRegistry(), []
    program().register(one, kopf.on, registry=registry)

    @kopf.on.login(registry=registry)
    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=address)

    stop = threading.Event()
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    operator = asyncio.create_task(
        kopf.operator(registry=registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop)
    )
    while LAST not in reports:
        reports.append(await one.reports.get())
    stop.set()
    await operator
    return reports


async def main() -> None:
    for run in (under_kubernetes_asyncio, under_kopf):
        api = AnyClientApi(SystemClock())
        api.put("nodes", NODE)
        api.put("pods", pod("web-0"))
        if run is under_kopf:
            api.put("pods", pod("web-1"))
        async with HostileServer(api) as server:
            address = server.url
            job = run(address, api) if run is under_kubernetes_asyncio else run(address)
            reports = await asyncio.wait_for(job, 60)
        assert reports[-1] == LAST, reports
        sys.stdout.write(f"{run.__name__}: {reports[-1]}\n")


if __name__ == "__main__":
    asyncio.run(main())
