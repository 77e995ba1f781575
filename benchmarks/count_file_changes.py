"""Count how often one decision changes the file: the files that a reader of the code steps through.

Counts, with a profiler, how often two consecutive Python calls are in different modules of kscale. Each scenario runs
once on another object before it is counted, so that imports and lazy tables are not part of the count::

    python benchmarks/count_file_changes.py
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import kscale
from kscale import hpa

ROOT = f"{Path(kscale.__file__).parent}/"
NOW = datetime(2026, 11, 23, 0, 0, 30, tzinfo=UTC)
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
AMOUNTS = {"cpu": "4", "memory": "16Gi", "pods": "110"}
NODE: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}},
    "spec": {}, "status": {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [READY]},
}  # fmt: skip


def build_pod(name: str, app: str, *, cpu: str = "1", node: str = "", version: str = "5") -> dict[str, Any]:
    """Return a pod that is pending, or runs on a node."""
    running = {"phase": "Running", "conditions": [READY], "startTime": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "d", "uid": f"u{name}", "labels": {"app": app},
                     "resourceVersion": version},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
                 **({"nodeName": node} if node else {})},
        "status": running if node else {"phase": "Pending"},
    }  # fmt: skip


def build_autoscaler(name: str) -> list[dict[str, Any]]:
    """Return an HPA on CPU, its Deployment, the one pod and the usage of this pod."""
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    pod, metadata = build_pod("r", name, node="n"), {"name": name, "namespace": "d"}
    return [
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata,
         "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 5, "metrics": [cpu]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
         "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}},
                  "template": {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}}, "status": {"replicas": 1}},
        pod,
        {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics", "metadata": {"name": "r", "namespace": "d"},
         "timestamp": "2026-11-23T00:00:00Z", "window": "30s",
         "containers": [{"name": "c", "usage": {"cpu": "900m", "memory": "100Mi"}}]},
    ]  # fmt: skip


def estimate(number: int) -> Callable[[], bool]:
    """Read a cluster with one pending pod, and estimate its nodes: one."""
    objects = [NODE, build_pod(f"p{number}", "web", cpu=f"{1100 + number}m")]
    return lambda: kscale.estimate(kscale.load(objects), template=dict(NODE)).node_count == 1


def decide(number: int) -> Callable[[], bool]:
    """Read the dump of one HPA, and report its decision: two replicas."""
    objects = build_autoscaler(f"web{number}")
    return lambda: hpa.hpa_report(hpa.read_dump(objects), now=NOW).hpas[0].desired_replicas == 2


def watch(number: int) -> Callable[[], bool]:
    """Apply one watch event to a cluster that had events before: a pod of a known class gets a node."""
    names = [f"p{number}", f"q{number}"]
    cluster = kscale.load([NODE, *(build_pod(name, "web") for name in names)])
    events = [{"type": "MODIFIED", "object": build_pod(name, "web", node="n", version="9")} for name in names]
    first, second = (json.dumps(event).encode() + b"\n" for event in events)
    cluster.watched(first)
    cluster.snapshot()
    return lambda: cluster.watched(second).events == 1


def count(call: Callable[[], bool]) -> tuple[int, int]:
    """Return the changes of file between consecutive calls, and the number of files. The call checks its answer."""
    files: list[str] = []

    def note(frame: Any, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT):
            files.append(name)

    sys.setprofile(note)
    try:
        is_right = call()
    finally:
        sys.setprofile(None)
    assert is_right, "another answer than the scenario has"
    return sum(one != other for one, other in pairwise(files)), len(set(files))


if __name__ == "__main__":
    for scenario in (estimate, decide, watch):
        scenario(1)()
        changes, number = count(scenario(2))
        print(f"{scenario.__name__:10} {changes:5} changes of file, {number:4} files")
