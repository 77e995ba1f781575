"""What stores must hold after whatever happened, against any API server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kscale.world.kubernetes.stores import KubernetesStores
from kscale.world.protocols import Watch
from unit.world.informer_cases import Api, pod, until

__all__ = ["CASES", "WATCHES", "node", "storing"]

WATCHES = (
    Watch(kind="Pod", api_version="v1"),
    Watch(kind="Node", api_version="v1"),
    Watch(kind="PodDisruptionBudget", api_version="policy/v1"),
    Watch(kind="ConfigMap", api_version="v1", namespace="default", typed=True),
)


def node(name: str) -> dict[str, Any]:
    offered = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "status": {"allocatable": offered}}


def asking(name: str, cpu: str, on: str = "") -> dict[str, Any]:
    created = pod(name, node=on, app=name[0])
    created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return created


@asynccontextmanager
async def storing(api: Api, **options: Any) -> AsyncIterator[KubernetesStores]:
    stores = KubernetesStores(api.client, options.pop("watches", WATCHES), api.clock, **options)
    task = asyncio.create_task(stores.run())
    try:
        await until(lambda: stores.synced or task.done())
        if task.done():
            task.result()
        yield stores
    finally:
        task.cancel()
        await asyncio.wait([task])


def stored_versions(stores: KubernetesStores, kind: str) -> dict[str, str]:
    """Names in the namespace ``default``, and versions."""
    keys = stores.cluster.keys(kind)
    return {
        key.removeprefix("default/"): stores.cluster.resource_version(kind, key)
        for key in keys
        if key.startswith("default/") or kind == "Node"
    }


async def equal(api: Api, stores: KubernetesStores) -> None:
    for kind, plural in (("Pod", "pods"), ("Node", "nodes")):
        expected_names = await api.names(plural)
        await until(lambda kind=kind, expected_names=expected_names: stored_versions(stores, kind) == expected_names)


async def a_cluster_is_followed(api: Api) -> None:
    await api.create("nodes", node("n1"))
    await api.create("pods", asking("a", "1", "n1"))
    await api.create("pods", asking("b", "500m"))
    async with storing(api) as stores:
        snapshot = stores.snapshot()
        assert (snapshot.nodes, snapshot.pods, snapshot.pending) == (("n1",), ("default/a",), ("default/b",))
        assert snapshot.free("cpu").tolist() == [3000]
        await api.create("nodes", node("n2"))
        await api.create("pods", asking("c", "2", "n2"))
        await api.delete("pods", "a")
        await equal(api, stores)
        snapshot = stores.snapshot()
        assert dict(zip(snapshot.nodes, snapshot.free("cpu").tolist(), strict=True)) == {"n1": 4000, "n2": 2000}
        result = stores.get("Pod", "default", "b")
        assert result is not None
        assert (result.name, result.metadata.labels) == ("b", {"app": "b"})
        assert stores.get("Pod", "default", "a") is None
        assert (stores.get("Node", "", "n2") is None, stores.get("Node", "", "n3") is None) == (False, True)
        assert [each.name for each in stores.pods_of(["n2", "n1", "n3"])] == ["c"]
        assert {each.name for each in stores.objects("Node")} == {"n1", "n2"}


async def several_kinds_are_followed(api: Api) -> None:
    async with storing(api) as stores:
        assert stores.settled
        budget = {
            "kind": "PodDisruptionBudget",
            "apiVersion": "policy/v1",
            "metadata": {"name": "budget", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
        }
        await api.create("poddisruptionbudgets.policy", budget)
        names: list[str] = []
        end = stores.subscribe(lambda change: names.append(change.new.name if change and change.new else "?"))
        created = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "namespace": "default"}}
        await api.create("configmaps", created)
        await until(
            lambda: bool(stores.objects("PodDisruptionBudget")) and stores.get("ConfigMap", "default", "c") is not None
        )
        assert names == ["c"]  # only typed kinds are told one by one
        end()
        version = stores.resource_version("ConfigMap")
        await api.patch("configmaps", "c", {"data": {"a": "b"}})
        await until(lambda: stores.resource_version("ConfigMap") != version)
        assert names == ["c"]


async def random_changes_are_followed(api: Api, seed: int = 1, steps: int = 60) -> None:
    """Any course of writes, broken connections and forgotten histories comes to what the server holds."""
    rng = random.Random(seed)
    for i in range(3):
        await api.create("nodes", node(f"n{i}"))
    alive: set[str] = set()
    async with storing(api, rng=random.Random(seed)) as stores:
        for i in range(steps):
            what = rng.random()
            if what < 0.5 or not alive:
                name = f"p{i}"
                alive.add(name)
                await api.create(
                    "pods", asking(name, f"{rng.randrange(1, 9)}00m", rng.choice(["", "n0", "n1", "n2", "gone"]))
                )
            elif what < 0.7:
                await api.patch("pods", rng.choice(sorted(alive)), {"metadata": {"labels": {"i": str(i)}}})
            elif what < 0.9:
                name = rng.choice(sorted(alive))
                alive.discard(name)
                await api.delete("pods", name)
            else:
                await api.cut()
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() * 0.05)
        await equal(api, stores)
        await until(lambda: stores.settled)
        async with api.away():
            for name in sorted(alive)[:3]:
                await api.delete("pods", name)
            await api.forget()
        await equal(api, stores)
        await until(lambda: stores.settled)
        total = sum(stores.snapshot().counts[kind] for kind in ("placed", "pending", "on unknown nodes"))
        assert total == len(stored_versions(stores, "Pod"))


CASES: Sequence[Callable[[Api], Awaitable[None]]] = (
    a_cluster_is_followed,
    several_kinds_are_followed,
    random_changes_are_followed,
)
