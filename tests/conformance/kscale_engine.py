"""kscale as an engine of the tables whose answers are not in the shape of a recorded case."""

from __future__ import annotations

from typing import Any

import kscale
from conformance.building import container, node, pod
from golden_support import adapter, decoded
from kscale.ca.estimator.binpacking import find_best_fast_path
from kscale.ca.estimator.result import get_stricter_limit
from kscale.ca.legacy.estimators import estimate_basic, estimate_legacy_binpacking
from kscale.objects.nodegroup import NodeTemplate
from kscale.snapshot.cluster import Cluster

Json = dict[str, Any]


def snapshot_of(objects: list[Json]) -> Any:
    return Cluster(objects, finished=True).snapshot()


def estimated(problem: Json) -> Any:
    """The result of the only estimate of a problem."""
    module = adapter("estimate")
    assert module is not None
    one = problem["estimates"][0]
    return kscale.estimate(
        snapshot_of(problem["objects"]),
        groups=[module.expanded(group) for group in one["groups"]],
        template=NodeTemplate(node=decoded(one["template"]["node"])),
        options=module.options_of(one.get("options", {})),
    )


def estimate(problem: Json) -> Json:
    result = estimated(problem)
    answer = {
        "node_count": result.node_count,
        "nodes_added": result.nodes_added,
        "scheduled": result.placed_pods,
        "order": result.order or None,
    }
    return {"estimates": [answer]}


def groups(pods: list[Json]) -> list[list[str]]:
    """Named apart by uid: some tables give one pod twice."""
    return [list(group) for group in kscale.estimate(snapshot_of([]), pods, template=node("tmpl")).pod_groups]


def fast_path_choice(groups: list[list[Json]], template: Json) -> int:
    snapshot = snapshot_of([])
    sized = []
    for group in groups:
        classes = snapshot.classify([kscale_record(each) for each in group[:1]])
        sized.append((classes[0] if classes else None, len(group)))
    return find_best_fast_path(sized, NodeTemplate(node=decoded(template)))


def kscale_record(each: Json) -> Any:
    from kscale.snapshot.pods.record import pod_record

    return pod_record(each)


def permissions(thresholds: list[int], asks: int) -> int:
    """How many of so many new nodes an estimate may add under static thresholds."""
    limit = 0
    for each in thresholds:
        limit = get_stricter_limit(limit, each)
    alone = pod(containers=[{**container(cpu="1"), "ports": [{"hostPort": 1, "containerPort": 1}]}])
    pods = [{**alone, "metadata": {**alone["metadata"], "name": f"p{i}", "uid": f"p{i}"}} for i in range(asks)]
    options = kscale.EstimateOptions(max_nodes=limit)
    return kscale.estimate(snapshot_of([]), pods, template=node("tmpl"), options=options).nodes_added


def try_schedule(
    objects: list[Json], pods: list[Json], hints: Json, acceptable: list[str] | None
) -> list[tuple[str, str]]:
    snapshot = snapshot_of(objects)
    uids = {each["metadata"]["name"]: each["metadata"]["uid"] for each in pods}
    result = kscale.place(
        snapshot,
        pods,
        state=kscale.PlaceState(hints={uids[name]: on for name, on in hints.items()}),
        unacceptable_nodes=[] if acceptable is None else [n for n in snapshot.nodes if n not in acceptable],
    )
    return [(key.partition("/")[2], on) for key, on in result.placed.items()]


def overflowing(pods: list[Json]) -> int:
    """Controllers with more shapes than are remembered, when none of the pods fits."""
    return kscale.place(snapshot_of([]), pods).overflowing_controllers


def filter_schedulable(problem: Json) -> Json:
    rounds = []
    for one in problem["rounds"]:
        result = kscale.ca.filter_out_schedulable(
            snapshot_of(one["objects"]), one["pods"], unacceptable_nodes=one.get("unacceptable_nodes", ())
        )
        rounds.append({"unschedulable": result.unschedulable, "placement": result.placed})
    return {"rounds": rounds}


def legacy(name: str, pods: list[Json], template: Json, coming: list[Json]) -> int:
    if name == "basic":
        objects: dict[int, Any] = {}
        decoded_pods = [objects.setdefault(id(each), decoded(each)) for each in pods]
        return estimate_basic(decoded_pods, decoded(template), [decoded(each) for each in coming]).node_count
    underway = [decoded(each) for each in coming]
    return estimate_legacy_binpacking(snapshot_of([]), pods, template=decoded(template), coming=underway).node_count
