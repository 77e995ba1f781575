"""An HTTP service: would this manifest fit, on which nodes, and what would new nodes for it cost?

uvicorn --factory fit_service:create_app
curl --data-binary @web.yaml localhost:8000/fit
"""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, HTTPException, Request

import kscale


def answer(cluster: kscale.Cluster, groups: list[kscale.NodeGroup], manifest: bytes) -> dict[str, Any]:
    """Return how many replicas fit now and where, and the cheapest nodes for those that do not."""
    report = kscale.fit_manifests(cluster, manifest, placements=True)
    result: dict[str, Any] = {
        "replicas": report.replicas,
        "fit": report.fit,
        "nodes": {line.name: line.placement for line in report.workloads},
        "reasons": {line.name: line.event for line in report.workloads if line.event},
    }
    if report.fit < report.replicas:
        applied = kscale.apply_manifests(cluster, manifest)
        plan = kscale.mix(applied.cluster, groups, pods=applied.pods)
        result["newNodes"] = {line.type: line.nodes for line in plan.lines}
        result["costPerHour"] = plan.cost
        result["withoutPlace"] = len(plan.unschedulable)
    return result


def create_app() -> FastAPI:
    """Build the application for the dump and the groups that the environment names."""
    cluster = kscale.load(os.environ["KSCALE_DUMP"])
    groups = kscale.read_groups(os.environ["KSCALE_GROUPS"])
    app = FastAPI()

    @app.post("/fit")
    async def fit(request: Request) -> dict[str, Any]:
        try:
            return answer(cluster, groups, await request.body())
        except kscale.InputError as error:
            raise HTTPException(422, str(error)) from None

    return app
