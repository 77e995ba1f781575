"""Pods of one controller and a VPA that wants them bigger, for the updater's tables."""

from __future__ import annotations

from typing import Any

from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.objects.kinds import find_kind
from kscale.vpa import Controllers
from unit.vpa.builders import container, pod, recommended, vpa


def controllers(kind: str = "ReplicationController", replicas: int = 5, labels: str = "x") -> Controllers:
    version = {"ReplicationController": "v1", "Job": "batch/v1"}.get(kind, "apps/v1")
    selector: Any = {"app": labels} if kind == "ReplicationController" else {"matchLabels": {"app": labels}}
    body = {
        "apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": selector}, "status": {"numberReady": replicas},
    }  # fmt: skip
    type_ = find_kind(version, kind)
    assert type_ is not None
    return Controllers([from_dict(body, type_)])


def resizing(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": f"PodResize{kind}", "status": "True", "reason": reason, "message": message}


INFEASIBLE, IN_PROGRESS = resizing("Pending", "Infeasible"), resizing("InProgress")


def members(states: str, kind: str = "ReplicationController", annotations: Any = None, **more: Any) -> list[Any]:
    """One pod a letter: r running, p pending, i resizing but infeasible, g resizing."""
    conditions = {"i": [INFEASIBLE], "g": [IN_PROGRESS]}
    return [
        pod(
            container("c", ("1", "100M")), name=f"web-{i}", owner=(kind, "web"), annotations=annotations,
            status={"phase": "Pending" if s == "p" else "Running", "conditions": conditions.get(s, []),
                    "startTime": "2026-01-20T00:00:00Z"},
        )
        for i, s in enumerate(states)
    ]  # fmt: skip


def target_vpa(mode: str = "Recreate", **policy: Any) -> VerticalPodAutoscaler:
    item = recommended("c", ("2", "200M"), ("2", "200M"), ("2", "200M"))
    target = {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}
    return vpa(item, targetRef=target, updatePolicy={"updateMode": mode, **policy})


BOOSTED = {"vpaCpuStartupBoost/c": '{"requests":{"cpu":"100m"},"limits":{}}'}
