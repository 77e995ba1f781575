"""An API server and its metrics API in one process, in memory: what is measured against it is the program that asks.

``python benchmarks/synthetic_autoscalers.py DIRECTORY`` serves what :class:`SyntheticWorkloads` has settled there.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from aiohttp import web
from autoscaled_workloads import NAMESPACES, USED, Usage, autoscalers, objects
from synthetic_api import SyntheticServer, forwarded, serve

from e2e.building import control_plane
from kscale.effects import to_text
from kscale.objects.kinds import ServedResource
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.transport import Answer, Call
from unit.world.fake_api_objects import Object
from unit.world.fake_api_server import FakeApiServer

COUNTS = "/counts"
_JSON = {"content-type": "application/json"}
_METRICS = "/apis/metrics.k8s.io/v1beta1"
_REVIEWS: dict[str, Any] = {
    "tokenreviews": {"authenticated": True, "user": {"username": "u"}}, "subjectaccessreviews": {"allowed": True}
}  # fmt: skip
"""What upstream's programs ask of those who ask them."""


class WorkloadsServer(FakeApiServer):
    """The tests' server with workloads, pods, autoscalers and metrics of pods. It copies nothing: nobody but it has its
    objects. ``turns``: usage is another each time it is asked, within the tolerance: every status changes, no size.

    ``counts``: requests by what they ask; ``spent``: CPU seconds of its answers, of the thread that asks.
    """

    def __init__(self, program: str, workloads: int, pods: int, *, turns: bool) -> None:
        super().__init__(SystemClock())
        self.counts: Counter[str] = Counter()
        self.spent = 0.0
        self._asked: Counter[tuple[str, str]] = Counter()
        self._usage = Usage(workloads, pods, *USED[turns])
        by_kind = {each.kind: each for each in self.served.values()}
        for i in range(NAMESPACES):
            self._add(by_kind["Namespace"], {"metadata": {"name": f"ns{i}"}})
        config_map = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
        self._add(by_kind["ConfigMap"], {"metadata": config_map})
        for source in (objects(workloads, pods), autoscalers(program, workloads, pods)):
            for _, each in source:
                self._add(by_kind[each["kind"]], each)

    def _add(self, resource: ServedResource, obj: Object) -> None:
        self._store(resource, (obj["metadata"].get("namespace", ""), obj["metadata"]["name"]), obj)

    def all(self, plural: str) -> list[Object]:
        return [each for _, each in sorted(self.kinds.get(plural, {}).items())]

    def _event(self, resource: ServedResource, type_: str, new: Object, old: Object | None) -> None:
        for watch in self.watches:
            if watch.resource == resource:
                self._tell(watch, type_, new, old)

    async def call(self, call: Call) -> Answer:
        parts = call.path.strip("/").split("/")
        self.counts[f"{call.method} {_about(parts)}"] += 1
        self.calls.clear()
        return await super().call(call)

    def _answer(self, call: Call) -> Answer:
        begun = time.thread_time()
        last = call.path.rpartition("/")[2]
        try:
            if call.path.startswith(_METRICS):
                return Answer(200, _JSON, self._metrics(call))
            if last in _REVIEWS and call.body:
                return Answer(201, _JSON, json.dumps({**json.loads(call.body), "status": _REVIEWS[last]}).encode())
            return super()._answer(call)
        finally:
            self.spent += time.thread_time() - begun

    def _metrics(self, call: Call) -> bytes:
        path = call.path.removeprefix(_METRICS)
        if not path:
            pods = {"name": "pods", "kind": "PodMetrics", "namespaced": True, "verbs": ["get", "list"]}
            version = _METRICS.removeprefix("/apis/")
            return json.dumps({"kind": "APIResourceList", "groupVersion": version, "resources": [pods]}).encode()
        selector = dict(call.query).get("labelSelector", "")
        self._asked[path, selector] += 1
        return self._usage.listed(path, selector, to_text(self.clock.now()), self._asked[path, selector])

    def _discovery(self, parts: list[str]) -> Object | None:
        result = super()._discovery(parts)
        if parts == ["apis"] and result is not None:
            version = {"groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1"}
            result["groups"].append({"name": "metrics.k8s.io", "versions": [version], "preferredVersion": version})
        return result

    def _route(self, call: Call) -> tuple[int, Object]:
        if call.path in ("/healthz", "/readyz", "/livez", "/version"):
            return 200, {"major": "1", "minor": str(self.minor), "gitVersion": f"v1.{self.minor}.0"}
        return super()._route(call)


def _about(parts: list[str]) -> str:
    """What is asked, without names: ``pods.metrics.k8s.io``, ``deployments/scale``."""
    group = parts[1] if parts[0] == "apis" and len(parts) > 1 else ""
    rest = parts[3 if parts[0] == "apis" else 2 :]
    rest = rest[2:] if len(rest) > 2 and rest[0] == "namespaces" else rest
    return "/".join([f"{rest[0]}.{group}".rstrip("."), *rest[2:]]) if rest else "discovery"


class SyntheticWorkloads(SyntheticServer):
    """The server as a child, in the place of a control plane. ``program``: whose autoscalers are there."""

    script = __file__

    def __init__(self, directory: Path, program: str, workloads: int, pods: int, *, turns: bool) -> None:
        super().__init__(directory)
        settings = {"program": program, "workloads": workloads, "pods": pods, "turns": turns}
        (directory / "workloads.json").write_text(json.dumps(settings))

    @property
    def program(self) -> Path:
        """What holds upstream's controllers (built with Go)."""
        return control_plane()

    def ask(self, path: str) -> Any:
        """The answer to a GET."""
        return json.loads(self._ask(path))

    def counts(self) -> Counter[str]:
        """Requests so far, by what they ask."""
        return Counter(json.loads(self._ask(COUNTS)))


def main() -> None:
    directory = Path(sys.argv[1])
    settings: dict[str, Any] = json.loads((directory / "workloads.json").read_text())
    server = WorkloadsServer(**settings)

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == COUNTS:
            return web.json_response(server.counts)
        return await forwarded(server, request)

    serve(directory, answer)


if __name__ == "__main__":
    main()
