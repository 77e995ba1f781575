"""Follow a watch of the API server and print what the pending pods need.

kubectl get nodes,pods -A -o json > dump.json
kubectl get --raw '/api/v1/pods?watch=1' | python watch_pending_pods.py dump.json groups.yaml
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import kscale


def follow(cluster: kscale.Cluster, lines: Iterable[bytes], groups: list[kscale.NodeGroup]) -> Iterator[str]:
    """Yield one sentence per change of the pending pods. ``lines``: lines of a watch, as the API server sends them."""
    before: set[str] = set()
    for line in lines:
        cluster.watched(line)
        snapshot = cluster.snapshot()
        unschedulable = set(kscale.place(snapshot).unschedulable)
        if unschedulable == before:
            continue
        before = unschedulable
        if not unschedulable:
            yield "no pod waits for a node"
            continue
        plan = kscale.scale_up(cluster, groups, now=datetime.now(UTC))
        grown = ", ".join(f"{info.group} {info.current} -> {info.new}" for info in plan.scale_ups)
        yield f"{len(unschedulable)} pods wait for a node: {grown or 'no node group would help'}"


def main() -> None:
    dump, groups_file = sys.argv[1:]
    cluster = kscale.load(dump)
    for sentence in follow(cluster, sys.stdin.buffer, kscale.read_groups(groups_file)):
        print(sentence, flush=True)


if __name__ == "__main__":
    main()
