"""A thousand scenarios of prices and expanders on one cluster: what does not depend on them is decided once."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

import kscale
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.generate import generate
from kscale.capacity.groups import recognise_groups
from kscale.capacity.whatif import Base, scenarios_from

EXPANDERS = ("price", "least-waste", "most-pods", "least-nodes")


def test_a_thousand_prices_and_expanders(benchmark) -> None:
    """200 nodes, 6,000 pods, 25 nodes of them lost, so that some hundred pods need nodes."""
    lost = set(kscale.load(list(generate(200, 6_000).objects())).snapshot().nodes[::8])
    items = [
        item
        for item in generate(200, 6_000).objects()
        if item["kind"] != "Node" or item["metadata"]["name"] not in lost
    ]
    for item in items:
        if item["kind"] == "Pod" and item["spec"].get("nodeName") in lost:
            del item["spec"]["nodeName"]
            item["status"] = {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}  # fmt: skip
    cluster = kscale.load(items)
    result = recognise_groups(cluster.nodes()).groups
    groups = [
        replace(each.group, price=0.5 + i / 10, from_node=None, target_size=None) for i, each in enumerate(result)
    ]
    base = Base(cluster, groups, datetime(2030, 1, 1, tzinfo=UTC), AutoscalingOptions())
    scenarios = scenarios_from([
        {"name": f"s{i}", "edits": [
            {"groups": {"set": {groups[i % len(groups)].id: {"price": 0.1 + i / 1000}}}},
            {"flags": {"expander": EXPANDERS[i // 3 % 4]}},
        ]}
        for i in range(1000)
    ])  # fmt: skip
    report = benchmark.pedantic(lambda: kscale.whatif(base, scenarios), rounds=1)
    print(f"\n{len({row.differs for row in report.scenarios})} different decisions, {report.shared} shared")
    assert report.baselines[0].nodes > 175
    for i in (0, 7, 499, 998):  # the same row as if it were asked alone
        assert kscale.whatif(base, [scenarios[i]]).scenarios == [report.scenarios[i]]
