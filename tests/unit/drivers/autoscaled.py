"""A small autoscaled cluster in virtual time: the fake API server, and a cloud whose machines become nodes in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

from kscale.ca.options import AutoscalingOptions
from kscale.drivers.cluster_autoscaler import (
    AutoscalerProcess,
    ClusterAutoscaler,
    CurrentNodes,
    reach_nodes,
    served_metrics,
    shutdown_steps,
)
from kscale.drivers.cluster_autoscaler_controllers import QuotaController
from kscale.drivers.driver import Driver
from kscale.drivers.event_correlator import CLUSTER_AUTOSCALER
from kscale.drivers.leader_election import LeaderElectionOptions
from kscale.drivers.process import HealthCheck, HealthCheckOptions, ProcessOptions, Program, ProgramContext, run_process
from kscale.effects import GetPrices, Prices, to_text
from kscale.objects.api.core import Node
from kscale.objects.decode import from_dict
from kscale.objects.kinds import ServedResource
from kscale.objects.nodegroup import Groups, NodeGroup, NodeTemplate, ProviderError
from kscale.world.nodegroups.provider import Provider
from kscale.world.protocols import Clock
from kscale.world.serve.app import DebuggingSnapshotService
from unit.world.test_informer import FakeApi, against_fake

ELECTION = LeaderElectionOptions(identity="one", resource_name="cluster-autoscaler", resource_namespace="kube-system")
OPTIONS = AutoscalingOptions(
    scale_down_unneeded_time=timedelta(minutes=1), scale_down_delay_after_add=timedelta(seconds=30)
)


class Machines(Provider):
    """One group, ``pool``. ``calls``: what was asked that changes something; ``refuses`` gives the text of a refusal;
    ``boot``: after so many seconds a machine is a node (None: never); ``tells``: of machines that are none yet, too.
    ``node_errors``: what it says in place of a node's group; ``rolling_out``: it is replacing its machines;
    ``price``: what its node costs (None: it does not tell), ``priced``: what it was asked about prices."""

    name = "fake"

    def __init__(
        self, api: FakeApi, *, least: int = 0, most: int = 5, boot: float | None = 30, tells: bool = True
    ) -> None:
        self.api, self.least, self.most, self.boot, self.tells = api, least, most, boot, tells
        self.running: list[str] = []
        self.created = 0
        self.calls: list[tuple[Any, ...]] = []
        self.refuses: Callable[[tuple[Any, ...]], str] = lambda call: ""
        self.closed = False
        self.node_errors: dict[str, str] = {}
        self.rolling_out = False
        self.price: float | None = None
        self.priced: list[GetPrices] = []

    def refresh(self) -> Groups | Sequence[NodeGroup]:
        nodes = {each["metadata"]["name"] for each in self.api.server.all("nodes")}
        template = NodeTemplate(node=from_dict(self.node("template"), Node))
        group = NodeGroup(
            id="pool",
            min_size=self.least,
            max_size=self.most,
            target_size=len(self.running),
            nodes=list(self.running),
            instances=[f"fake:///{name}" for name in self.running if self.tells or name in nodes],
            template=template,
            rolling_out=self.rolling_out,
        )
        return Groups([group], self.node_errors) if self.node_errors else [group]

    def has_instance(self, node: Node) -> bool:
        return node.name in self.running

    def prices(self, question: GetPrices) -> Prices:
        self.priced.append(question)
        if self.price is None:
            return super().prices(question)
        return Prices(nodes=(self.price,) * len(question.nodes), pods=(0.1,) * len(question.pods))

    def start(self, count: int = 1) -> None:
        """Machines that are nodes at once."""
        for _ in range(count):
            self.register(self._new())

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        self._record("IncreaseSize", delta)
        for _ in range(delta):
            name = self._new()
            if self.boot is not None:
                asyncio.get_running_loop().call_later(self.boot, self.register, name)

    def decrease_target_size(self, group: str, delta: int) -> None:
        self._record("DecreaseTargetSize", delta)
        nodes = {each["metadata"]["name"] for each in self.api.server.all("nodes")}
        waiting = [name for name in self.running if name not in nodes]
        if len(waiting) < -delta:
            raise ProviderError("attempt to delete existing nodes", "cloudProviderError")
        for name in waiting[delta:]:
            self.running.remove(name)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        names = [node.name.removeprefix("fake:///") for node in nodes]
        self._record("DeleteNodes", *names)
        for name in names:
            self.running.remove(name)
            if name in {each["metadata"]["name"] for each in self.api.server.all("nodes")}:
                self.api.server.drop("nodes", name)

    def close(self) -> None:
        self.closed = True

    def register(self, name: str) -> None:
        if name in self.running:
            self.api.server.put("nodes", self.node(name))

    def node(self, name: str) -> dict[str, Any]:
        offered = {"cpu": "2", "memory": "4Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": to_text(self.api.clock.now())}
        return {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {"providerID": f"fake:///{name}"},
            "status": {"capacity": offered, "allocatable": offered, "conditions": [ready]},
        }

    def _new(self) -> str:
        self.created += 1
        name = f"pool-{self.created}"
        self.running.append(name)
        return name

    def _record(self, *call: Any) -> None:
        self.calls.append(call)
        if text := self.refuses(call):
            raise ProviderError(text, "cloudProviderError")


class Cluster:
    """``run()`` starts an autoscaler; ``others``: controllers beside it."""

    def __init__(self, api: FakeApi, cloud: Machines) -> None:
        self.api, self.server, self.cloud = api, api.server, cloud
        self.clock: Clock = api.clock
        self.others: list[Driver[Any]] = []

    def pod(self, name: str, *, cpu: str = "1500m", node: str = "", owned: bool = True) -> None:
        """A pod of a ReplicaSet; without a node the scheduler has said that there is none for it."""
        at = to_text(self.api.clock.now())
        unscheduled = {
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at
        }  # fmt: skip
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
        if owned and not any(each["metadata"]["name"] == "web" for each in self.server.all("replicasets.apps")):
            self.server.put(
                "replicasets.apps",
                {"metadata": {"name": "web", "namespace": "default", "uid": "web"}, "spec": {"replicas": 1}},
            )
        self.server.put(
            "pods",
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "creationTimestamp": at,
                    "ownerReferences": [owner] if owned else [],
                },
                "spec": {
                    **({"nodeName": node} if node else {}),
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
                },
                "status": {"phase": "Running" if node else "Pending", "conditions": [] if node else [unscheduled]},
            },
        )

    def bind(self, name: str, node: str) -> None:
        """What a scheduler does."""
        pod = self.server.get("pods", name, "default")
        spec = {**pod["spec"], "nodeName": node}
        self.server.put("pods", {**pod, "spec": spec, "status": {"phase": "Running"}})

    def run(self, options: AutoscalingOptions = OPTIONS, *, dry_run: bool = False, **process: Any) -> Autoscaler:
        return Autoscaler(self, options, dry_run, **process)

    def nodes(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.server.all("nodes")]

    def taints(self, name: str) -> list[str]:
        return [each["key"] for each in self.server.get("nodes", name)["spec"].get("taints") or ()]

    def events(self) -> set[tuple[str, str]]:
        return {(each["reason"], each["involvedObject"]["name"]) for each in self.server.all("events")}

    def status(self) -> str:
        result = [
            each for each in self.server.all("configmaps") if each["metadata"]["name"] == "cluster-autoscaler-status"
        ]
        return str(result[0]["data"]["status"]) if result else ""


class Autoscaler:
    def __init__(self, cluster: Cluster, options: AutoscalingOptions, dry_run: bool, **process: Any) -> None:
        self.desk = DebuggingSnapshotService()
        self.stop = asyncio.Event()
        self.around: list[ProgramContext] = []
        self.drivers: list[ClusterAutoscaler] = []
        api = cluster.api

        def build(around: ProgramContext) -> Program:
            self.around.append(around)
            board = CurrentNodes()
            health = HealthCheck(HealthCheckOptions(), around.steady.now())
            context = AutoscalerProcess(dry_run=dry_run, **process)
            driver = ClusterAutoscaler(options, context, around.steady, health, board, desk=self.desk)
            self.drivers.append(driver)
            return Program(
                driver=driver,
                metrics=served_metrics(options),
                health=health,
                monitored=driver.on_started_leading,
                groups=cluster.cloud,
                correlation=CLUSTER_AUTOSCALER,
                before=reach_nodes,
                at_end=lambda now: shutdown_steps(options, now),
                releases=False,
                clock_set=driver.clock_set,
                others=[*([QuotaController()] if options.capacity_quotas_enabled else []), *cluster.others],
                dra=True,
            )

        options_ = ProcessOptions(election=ELECTION, dry_run=dry_run)
        self.task = asyncio.create_task(
            run_process(build, api.client, options_, version="1", stop=self.stop, clock=cluster.clock)
        )

    @property
    def driver(self) -> ClusterAutoscaler:
        return self.drivers[0]

    async def end(self) -> None:
        self.stop.set()
        await self.task

    async def kill(self) -> None:
        """As SIGKILL does: nothing is said."""
        self.task.cancel()
        await asyncio.wait([self.task])


def autoscaled(
    case: Callable[[Cluster], Awaitable[None]],
    *,
    seed: int | None = None,
    resources: Sequence[ServedResource] = (),
    **cloud: Any,
) -> FakeApi:
    async def main(api: FakeApi) -> None:
        await case(Cluster(api, Machines(api, **cloud)))

    # A loop that takes no time would follow upon itself for ever.
    return against_fake(main, seed=seed, delay=0.002, resources=resources)
