"""A cluster as the watches of a live program bring it: read natively from the text of lists and watch events."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kscale.objects.api.meta import KubeObject
from kscale.objects.decode import to_dict
from kscale.snapshot.cluster import Cluster
from kscale.world.kubernetes.informer import Sink
from kscale.world.kubernetes.stores import ClusterSink

__all__ = ["document", "watched_cluster"]


def document(item: KubeObject | dict[str, Any]) -> dict[str, Any]:
    """Return an object as an API server sends it."""
    if isinstance(item, dict):
        return item
    data = to_dict(item)
    kind = item.kind or type(item).__name__
    core = {"Pod": "v1", "Node": "v1"}
    return {**data, "kind": kind, "apiVersion": item.api_version or core.get(kind, "")}


def watched_cluster(items: Iterable[KubeObject | dict[str, Any]], *, events: bool = False) -> Cluster:
    """Return the cluster that live stores hold. ``events``: each object comes as an event of a watch, not in a list."""
    cluster = Cluster(texts="pending")
    by_kind: dict[tuple[str, str], list[dict[str, Any]]] = {("v1", "Pod"): [], ("v1", "Node"): []}
    for item in map(document, items):
        by_kind.setdefault((item["apiVersion"], item["kind"]), []).append(item)
    for (version, kind), documents in by_kind.items():
        sink: Sink = ClusterSink(cluster, kind)
        listed = [] if events else documents
        page = {"kind": f"{kind}List", "apiVersion": version, "metadata": {"resourceVersion": "1"}, "items": listed}
        sink.begin()
        sink.read_page(json.dumps(page).encode())
        sink.settle()
        if events:
            lines = [json.dumps({"type": "ADDED", "object": each}) for each in documents]
            sink.read_events("".join(f"{line}\n" for line in lines).encode())
    return cluster
