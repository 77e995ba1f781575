"""The same input gives the same plan: whatever the order of keys, however many threads, from text or from structs."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import kscale
from examples import examples
from kscale.ca import AutoscalingOptions
from kscale.capacity.groups import groups_from

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
_POOLS = ("a", "b", "c")


def _amounts(cpu: int, gib: int) -> dict[str, str]:
    return {"cpu": str(cpu), "memory": f"{gib}Gi", "pods": "110", "example.com/thing": "2"}


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Nodes of three pools, running and waiting pods, and a groups file."""
    items: list[dict[str, Any]] = []
    metadata: dict[str, Any]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:00Z"}
    for i in range(draw(st.integers(1, 4))):
        pool = draw(st.sampled_from(_POOLS))
        amounts = _amounts(draw(st.sampled_from((2, 4))), 8)
        labels = {"pool": pool, "kubernetes.io/hostname": f"n{i}", "topology.kubernetes.io/zone": f"z{i % 2}"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        items.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}", "labels": labels}, "status": status}
        )
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for i in range(draw(st.integers(1, 12))):
        owner = draw(st.sampled_from(("x", "y", "z", None)))
        requests = {
            "cpu": f"{draw(st.sampled_from((300, 900, 1500, 9000)))}m",
            "memory": f"{draw(st.sampled_from((1, 3)))}Gi",
        }
        if draw(st.booleans()):
            requests["example.com/thing"] = "1"
        labels = {"app": owner or f"p{i}", "tier": draw(st.sampled_from(("web", "db")))}
        metadata = {"name": f"p{i}", "namespace": "shop", "uid": f"u{i}", "labels": labels}
        metadata["creationTimestamp"] = "2026-05-04T11:00:00Z"
        if owner:
            metadata["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
            ]
        spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
        if draw(st.booleans()):
            spec["nodeSelector"] = {"pool": draw(st.sampled_from(_POOLS))}
        if draw(st.integers(0, 3)) == 0:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"tier": labels["tier"]}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        status = {"phase": "Pending", "conditions": [condition]}
        items.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
    groups = []
    for pool in _POOLS:
        amounts = _amounts(draw(st.sampled_from((2, 4, 16))), draw(st.sampled_from((8, 32))))
        there = sum(item["metadata"]["labels"].get("pool") == pool for item in items)
        groups.append(
            {
                "id": pool,
                "max": there + draw(st.integers(0, 6)),
                "template": {
                    "metadata": {"labels": {"pool": pool, "size": "s"}},
                    "status": {"capacity": amounts, "allocatable": amounts},
                },
                "nodeSelector": {"pool": pool},
            }
        )
        groups[-1]["max"] = max(
            groups[-1]["max"], sum(i["metadata"].get("labels", {}).get("pool") == pool for i in items)
        )
    return {"items": items, "groups": groups}


def _shuffled(value: Any, random: Random) -> Any:
    """The same data, the keys of every object in another order."""
    if isinstance(value, dict):
        names = list(value)
        random.shuffle(names)
        return {name: _shuffled(value[name], random) for name in names}
    return [_shuffled(item, random) for item in value] if isinstance(value, list) else value


def _plan(cluster: kscale.Cluster, groups: list[dict[str, Any]], options: AutoscalingOptions) -> Any:
    return json.loads(kscale.scale_up(cluster, groups_from(groups), now=NOW, options=options).record().to_json())


_OPTIONS = st.sampled_from(
    [
        AutoscalingOptions(),
        AutoscalingOptions(balance_similar_node_groups=True, expander="most-pods,least-nodes"),
        AutoscalingOptions(salvo_scale_up=True, enforce_node_group_min_size=True),
        AutoscalingOptions(scaleup_simulation_for_skipped_node_groups_enabled=True, max_nodes_total=6),
        AutoscalingOptions.for_profile("legacy"),
    ]
)


@settings(max_examples=examples(2 / 3), deadline=None)
@given(worlds(), _OPTIONS, st.randoms(use_true_random=False))
def test_the_order_of_keys_and_the_form_of_the_input_do_not_matter(
    world: dict[str, Any], options: AutoscalingOptions, random: Random
) -> None:
    want = _plan(kscale.Cluster(world["items"]), world["groups"], options)
    other = _shuffled(world, random)
    assert _plan(kscale.Cluster(other["items"]), other["groups"], options) == want
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": other["items"]}).encode()
    assert _plan(kscale.load(text), world["groups"], options) == want


@settings(max_examples=examples(1 / 6), deadline=None)
@given(worlds(), _OPTIONS)
def test_many_threads_on_one_cluster(world: dict[str, Any], options: AutoscalingOptions) -> None:
    cluster = kscale.Cluster(world["items"])
    want = _plan(kscale.Cluster(world["items"]), world["groups"], options)
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(lambda _: _plan(cluster, world["groups"], options), range(8)))
    assert plans == [want] * 8
    assert _plan(cluster, world["groups"], options) == want  # what it remembers of its pods changes nothing


def test_nothing_to_do_is_the_same_too() -> None:
    cluster = kscale.Cluster()
    assert kscale.scale_up(cluster, [], now=NOW).result == "ScaleUpNotNeeded"
    assert kscale.scale_up(cluster.snapshot(), [], now=NOW, inputs=kscale.ca.LoopInputs(pods=[])).pending == []


@pytest.mark.parametrize("legacy", [False, True])
def test_pods_that_are_not_pending_are_refused(legacy: bool) -> None:
    options = AutoscalingOptions.for_profile("legacy" if legacy else "current")
    inputs = kscale.ca.LoopInputs(pods=["shop/none"])
    with pytest.raises(kscale.InputError, match="no pod 'shop/none' in the snapshot"):
        kscale.scale_up(kscale.Cluster(), [], now=NOW, options=options, inputs=inputs)
