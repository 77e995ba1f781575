"""What a loop went by, for whoever looks for a fault (upstream: ``pkg/debuggingsnapshot``)."""

from __future__ import annotations

from typing import Any

from kscale.ca.static_autoscaler.report import LoopReport
from kscale.objects.decode import to_dict
from kscale.objects.nodegroup import NodeTemplate
from kscale.snapshot.snapshot import Snapshot

__all__ = ["went_by"]


def went_by(snapshot: Snapshot, report: LoopReport) -> dict[str, Any]:
    """Upstream's members as plain data: nodes with their pods, pods that wait and would find a place, the template of
    each group. To be redacted before it is shown."""
    pods: dict[int, list[dict[str, Any]]] = {}
    for i, node in enumerate(snapshot.placed_node.tolist()):
        pods.setdefault(node, []).append(to_dict(snapshot.placed[i].pod))
    nodes = [{"Node": to_dict(node), "Pods": pods.get(i, [])} for i, node in enumerate(snapshot.columns.objects)]
    waiting = report.scale_up.schedulable if report.scale_up is not None else []
    told = [to_dict(record.pod) for record in snapshot.records(waiting)]
    found: dict[str, Any] = {"NodeList": nodes, "UnscheduledPodsCanBeScheduled": told, "TemplateNodes": {}}
    for group in report.groups:
        if group.template is not None:
            found["TemplateNodes"][group.id] = _template(group.template)
    if report.error is not None:
        found["Error"] = report.error.message
    return found


def _template(template: NodeTemplate) -> dict[str, Any]:
    return {"Node": to_dict(template.node), "Pods": [to_dict(pod) for pod in template.pods]}
