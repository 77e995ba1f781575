"""A custom resource that two autoscalers look after: its number is the horizontal one's, its memory the other's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from e2e.cloud import FakeCloud, Machines
from e2e.control_plane import ControlPlane, Refused
from e2e.duel.programs import USER, Player, StuckError
from e2e.kubelet import FakeKubelet
from e2e.metrics_server import FakeMetrics
from e2e.real_api import MERGE, RealApi, connected
from e2e.widgets import GROUP
from kscale.effects import to_text

__all__ = ["PROGRAMS", "ScaledWidget", "played"]

PROGRAMS: Final = ("vpa-admission", "vpa-recommender", "vpa-updater", "horizontal")
_NAMESPACE: Final = "/namespaces/default"
_WIDGET: Final = f"{GROUP}{_NAMESPACE}/widgets/web"
_SET: Final = f"/apis/apps/v1{_NAMESPACE}/replicasets/web"
_HPA: Final = f"/apis/autoscaling/v2{_NAMESPACE}/horizontalpodautoscalers"
_VPA: Final = f"/apis/autoscaling.k8s.io/v1{_NAMESPACE}/verticalpodautoscalers"
_WEBHOOK: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/vpa-webhook-config"
_CHECKPOINT: Final = f"/apis/autoscaling.k8s.io/v1{_NAMESPACE}/verticalpodautoscalercheckpoints/web-c"
_TARGET: Final = {"apiVersion": "duel.example.com/v1", "kind": "Widget", "name": "web"}
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/vpa-admission-controller"
_LEAST: Final = "262144000"  # of what is recommended


class ScaledWidget:
    """Two pods of 500m and 100Mi that use 450m and 600Mi, and the four programs, each with its own rights.

    ``flags``: more of some programs; ``port``: of another way to the API server; ``clock``: see ``program.py``.
    """

    def __init__(
        self,
        plane: ControlPlane,
        api: RealApi,
        flags: Mapping[str, Sequence[str]] | None = None,
        *,
        port: int = 0,
        clock: Path | None = None,
    ) -> None:
        self.plane, self.api = plane, api
        self.players = {
            name: Player(name, plane, None, (flags or {}).get(name, ()), port=port, clock=clock) for name in PROGRAMS
        }
        self.cloud = FakeCloud(plane, Machines("small", cpu="64", memory="256Gi"))

    def make(self) -> None:
        ask = self.plane.ask
        self.cloud.start("small", 1)
        widget = {**_TARGET, "metadata": {"name": "web"}, "spec": {"replicas": 2}}
        uid = ask("POST", f"{GROUP}{_NAMESPACE}/widgets", widget)["metadata"]["uid"]
        requests = {"cpu": "500m", "memory": "100Mi"}
        pod = {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
        }
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": "web", "ownerReferences": [{**_TARGET, "uid": uid, "controller": True}]}
        ask("POST", _SET.removesuffix("/web"), {"metadata": metadata, "spec": spec})
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
        metrics = [{"type": "Resource", "resource": cpu}]
        limits = {"minReplicas": 2, "maxReplicas": 4}
        ask(
            "POST",
            _HPA,
            {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": _TARGET, **limits, "metrics": metrics}},
        )
        policy = {"containerPolicies": [{"containerName": "c", "controlledResources": ["memory"]}]}
        vpa = {"targetRef": _TARGET, "updatePolicy": {"updateMode": "Recreate"}, "resourcePolicy": policy}
        kind = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler"}
        ask("POST", _VPA, {**kind, "metadata": {"name": "web"}, "spec": vpa})

    async def operate(self) -> None:
        """What the operator of the custom resource does, for ever."""
        while True:
            with contextlib.suppress(OSError, Refused):  # the API server is away
                await asyncio.to_thread(self._follow)
            await asyncio.sleep(0.2)

    def _follow(self) -> None:
        widget, replicas = self.plane.ask("GET", _WIDGET), self.plane.ask("GET", _SET)
        desired = widget["spec"]["replicas"]
        if replicas["spec"]["replicas"] != desired:
            self.plane.ask("PATCH", _SET, {"spec": {"replicas": desired}}, content_type=MERGE)
        status = {"replicas": replicas["status"].get("replicas", 0), "selector": "app=web"}
        if widget.get("status") != status:
            self.plane.ask("PATCH", f"{_WIDGET}/status", {"status": status}, content_type=MERGE)

    # -- what is there -----------------------------------------------------------------------------------------------

    def pods(self) -> dict[str, dict[str, str]]:
        """Names and requests of the pods that run."""
        items = self.plane.ask("GET", f"/api/v1{_NAMESPACE}/pods")["items"]
        return {
            each["metadata"]["name"]: each["spec"]["containers"][0]["resources"]["requests"]
            for each in items
            if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
        }

    def requests(self) -> list[dict[str, str]]:
        """Of the pods that run."""
        return list(self.pods().values())

    def target(self) -> dict[str, str]:
        """What is recommended from usage; empty before."""
        status = self.plane.ask("GET", f"{_VPA}/web").get("status") or {}
        items = (status.get("recommendation") or {}).get("containerRecommendations") or [{"target": {}}]
        result: dict[str, str] = items[0]["target"]
        return {} if result.get("memory") == _LEAST else result

    def size(self) -> tuple[int, int]:
        """That the HPA wants, and that the custom resource has."""
        desired = self.plane.ask("GET", f"{_HPA}/web")["status"]["desiredReplicas"]
        return desired, self.plane.ask("GET", _WIDGET)["spec"]["replicas"]

    def settled(self, pods: int = 4) -> bool:
        """So many pods run, and have what is recommended."""
        result, memory = self.requests(), self.target().get("memory")
        return len(result) == pods and {each["memory"] for each in result} == {memory} and self.size() == (pods, pods)

    def allow(self, pods: int) -> None:
        """The HPA may make so many."""
        self.plane.ask("PATCH", f"{_HPA}/web", {"spec": {"maxReplicas": pods}}, content_type=MERGE)

    def samples(self) -> int:
        """That the checkpoint counts."""
        result: int = self.plane.ask("GET", _CHECKPOINT)["status"]["totalSamplesCount"]
        return result

    def lives(self) -> str:
        """When the admission controller said last that it lives."""
        result: str = self.plane.ask("GET", _LEASE)["spec"].get("renewTime", "")
        return result

    def lose(self) -> str:
        """Deletes a pod, and gives its name."""
        name = min(self.pods())
        self.plane.ask("DELETE", f"/api/v1{_NAMESPACE}/pods/{name}")
        return name

    def bury(self) -> None:
        """Deletes the lease by which the admission controller says that it lives."""
        self.plane.ask("DELETE", _LEASE)

    def done(self) -> tuple[list[int], list[str]]:
        """The sizes that were written, and the pods that were evicted, in order."""
        sizes, evicted = [], []
        for entry in self._written():
            at = entry["objectRef"]
            if at.get("subresource") == "scale":
                sizes.append(entry["requestObject"]["spec"]["replicas"])
            elif at.get("subresource") == "eviction":
                evicted.append(at["name"])
        return sizes, evicted

    def counted(self) -> list[int]:
        """The samples of each checkpoint that was written, in order."""
        of = [each for each in self._written() if each["objectRef"]["resource"] == "verticalpodautoscalercheckpoints"]
        return [each["responseObject"]["status"]["totalSamplesCount"] for each in of]

    def _written(self) -> Iterator[dict[str, Any]]:
        """What the programs asked for and got, as the audit log has it."""
        for entry in self.plane.audit():
            if USER in entry["user"]["username"] and entry["responseStatus"]["code"] < 300:
                yield entry

    # -- what happens ------------------------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], bool], seconds: float = 120) -> None:
        """Until it is so, all programs that were started running on; an API server that is away tells nothing."""

        def safe() -> bool:
            with contextlib.suppress(OSError, Refused):
                return holds()
            return False

        try:
            async with asyncio.timeout(seconds):
                while not await asyncio.to_thread(safe):
                    for player in self.players.values():
                        player.check()
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise StuckError("\n".join(player.tail() for player in self.players.values())) from None

    def start(self, *names: str) -> None:
        for name in names:
            self.players[name].start()

    async def recommend(self) -> None:
        """The recommender and the webhook begin, there is a recommendation, and pods that come get it.

        The webhook is registered ten seconds after its beginning, once: an API server that comes back just then forbids
        it as long as it does not know the roles, and the program ends, as upstream's does.
        """
        self.start("vpa-admission", "vpa-recommender")
        await self.until(lambda: bool(self.target()))
        await self.until(lambda: bool(self.plane.ask("GET", _WEBHOOK)))


def played(
    plane: ControlPlane,
    script: Callable[[ScaledWidget], Awaitable[None]],
    flags: Mapping[str, Sequence[str]] | None = None,
    *,
    wired: bool = False,
    clock: Path | None = None,
) -> None:
    """The scene, with what surrounds it. ``wired``: programs come through the wire of ``api``."""

    async def main() -> None:
        usage = {"cpu": "450m", "memory": "600Mi"}
        async with connected(plane) as api, FakeMetrics(plane, lambda *_: usage) as metrics:
            metrics.now = lambda: to_text(api.clock.now())
            scene = ScaledWidget(plane, api, flags, port=api.wire.port if wired else 0, clock=clock)
            async with connected(plane) as beside:
                await asyncio.to_thread(scene.make)
                tasks = [
                    asyncio.create_task(FakeKubelet(beside.client, beside.clock).run()),
                    asyncio.create_task(scene.operate()),
                ]
                try:
                    await script(scene)
                    for player in scene.players.values():
                        await asyncio.to_thread(player.stop)
                finally:
                    for player in scene.players.values():
                        player.kill()
                    for task in tasks:
                        task.cancel()
                        with contextlib.suppress(asyncio.CancelledError):
                            await task
            scene.cloud.close()

    asyncio.run(main())
