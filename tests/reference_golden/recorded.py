"""Runs the reference on recorded inputs and writes its answers in the recorded shape."""

from __future__ import annotations

from typing import Any

from reference import equivalence, estimator, filter_schedulable, scheduler
from reference.cluster import Cluster
from reference.scheduler import Failure, pod_key

Json = dict[str, Any]


def failure_record(failure: Failure) -> Json:
    """Without `debug`, which is free; the message ends where it would begin."""
    if failure.nowhere:
        return {"ok": False, "type": failure.type, "message": failure.message}
    return {
        "ok": False,
        "type": failure.type,
        "plugin": failure.plugin,
        "reasons": list(failure.reasons),
        "unexpected": failure.unexpected,
        "message": failure.message.split("; debugInfo=")[0],
    }


def comparable(record: Json) -> Json:
    """A recorded failure without what is free."""
    fields = {key: value for key, value in record.items() if key != "debug"}
    if "message" in fields:
        fields["message"] = fields["message"].split("; debugInfo=")[0]
    return fields


def failing(plugin: str, code: str, reasons: tuple[str, ...]) -> Json:
    return {"plugin": plugin, "code": code, "reasons": list(reasons)}


def fit(case: Json) -> Json:
    cluster = Cluster(case["objects"], case.get("options"))
    pod = case["pod"]
    nodes = {}
    for node in cluster.nodes:
        failure = scheduler.check_predicates(pod, node, cluster)
        record: Json = {"ok": True} if failure is None else failure_record(failure)
        record["all"] = [failing(*each) for each in scheduler.all_failing(pod, node, cluster)]
        nodes[node.name] = record
    report = scheduler.prefilter_report(pod, cluster)
    prefilter: Json = {"skipped": report.skipped}
    if report.failures:
        prefilter["failures"] = [failing(*each) for each in report.failures]
    if report.node_sets:
        prefilter["node_sets"] = [{"plugin": plugin, "nodes": names} for plugin, names in report.node_sets]
    result = scheduler.schedule_pod_on_any_node(pod, cluster)
    anywhere: Json = failure_record(result) if isinstance(result, Failure) else {"ok": True, "node": result}
    return {"nodes": nodes, "prefilter": prefilter, "any_node": anywhere}


def expected_fit(want: Json) -> Json:
    return {
        "nodes": {name: comparable(record) for name, record in want["nodes"].items()},
        "prefilter": want["prefilter"],
        "any_node": comparable(want["any_node"]),
    }


def new_name(name: str, template: str, new_nodes: list[str]) -> str:
    """`new-<i>` for what was created here, an existing node's own name otherwise."""
    prefix = f"{template}-e-"
    created = name.split("-fake-", maxsplit=1)[0] in new_nodes
    return "new-" + name.removeprefix(prefix) if created else name


def estimates(case: Json) -> Json:
    cluster = Cluster(case.get("objects") or [], case.get("options"))
    return {"estimates": [one_estimate(cluster, each) for each in case["estimates"]]}


def one_estimate(cluster: Cluster, raw: Json) -> Json:
    record: Json = {}
    if "schedule_before" in raw:
        before = []
        for pod in estimator.expand(raw["schedule_before"]):
            scheduled = scheduler.schedule_pod_on_any_node(pod, cluster)
            before.append([pod_key(pod), None if isinstance(scheduled, Failure) else scheduled])
        record |= {"before_placement": before, "before_cursor": cluster.cursor}
    options = raw.get("options") or {}
    if "groups" in raw:
        groups = [estimator.expand(group) for group in raw["groups"]]
    else:
        groups = equivalence.groups(estimator.expand(raw["pods"]))
    template = estimator.Template(
        raw["template"]["node"],
        raw["template"].get("pods") or [],
        raw["template"].get("csi_node"),
        raw["template"].get("resource_slices") or [],
    )
    limiter = estimator.Limiter(estimator.thresholds(options))
    fast = options.get("fast_path", False)
    result = estimator.estimate(cluster, groups, template, limiter, fast_path=fast)

    def display_name(name: str) -> str:
        return new_name(name, template.node["metadata"]["name"], result.new_nodes)

    return record | {
        "groups": [[pod_key(pod) for pod in group] for group in groups] or None,
        "order": [pod_key(group[0]) if group else "" for group in result.order] or None,
        "node_count": result.node_count,
        "scheduled": [pod_key(pod) for pod in result.scheduled],
        "placement": {pod: display_name(name) for pod, name in result.placement.items()},
        "nodes_with_pods": sorted(display_name(name) for name in result.nodes_with_pods) or None,
        "nodes_added": len(result.new_nodes),
        "cursor": cluster.cursor,
    }


def filter_rounds(case: Json) -> Json:
    hints = filter_schedulable.Hints()
    cluster: Cluster | None = None
    objects: list[Json] = []
    rounds = []
    for raw in case["rounds"]:
        objects = raw.get("objects", objects)
        if cluster is None:
            cluster = Cluster(objects, case.get("options"))
        else:
            cluster.load(objects)
        refused = set(raw.get("unacceptable_nodes") or [])
        result = filter_schedulable.filter_out_schedulable(
            cluster,
            raw["pods"],
            hints,
            lambda node, refused=refused: node.name not in refused,
            max_looks=raw.get("max_looks"),
        )
        in_order: dict[str, list[str]] = {}
        for pod, node in result.placed:
            in_order.setdefault(node, []).append(pod_key(pod))
        rounds.append(
            {
                "unschedulable": [pod_key(pod) for pod in result.remaining],
                "placement": {pod_key(pod): node for pod, node in result.placed},
                "placed_in_order": in_order,
                "cursor": cluster.cursor,
            }
        )
    return {"rounds": rounds}
