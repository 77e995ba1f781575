"""``kscale recommend --effect``: nodes saved, and what they are worth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from unit.cli.recommend.support import (
    MIB,
    answer,
    dump,
    node,
    recommend,
    rows,
    with_items,
)


def test_effect_on_the_number_of_nodes(cluster: Path) -> None:
    document = dump()
    pod = document["items"].pop()
    for i in range(4):
        document["items"].append({**pod, "metadata": {**pod["metadata"], "name": f"web-5d4f8-abcd{i}"}})
    cluster.write_text(json.dumps({**document, "items": [*document["items"], node()]}))
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}")]
    record = answer(recommend(cluster, lines, "--effect", "-o", "json"))
    assert record["effect"] == {
        "node": "n1", "pods": 4, "nodesBefore": 2, "nodesAfter": 1, "homelessBefore": 0, "homelessAfter": 0,
        "noLongerFit": [], "nodePrice": None, "savedPerHour": None, "poolsBefore": None, "poolsAfter": None,
    }  # fmt: skip
    assert "need 1 nodes instead of 2." in recommend(cluster, lines, "--effect").stdout


def priced(cluster: Path, **labels: str) -> None:
    document = dump()
    pod = document["items"].pop()
    for i in range(4):
        document["items"].append({**pod, "metadata": {**pod["metadata"], "name": f"web-5d4f8-abcd{i}"}})
    machine = node()
    machine["metadata"]["labels"] = labels
    cluster.write_text(json.dumps({**document, "items": [*document["items"], machine]}))


CATALOGUE = (
    "instance_type,arch,vcpu,memory_mib,gpu,ondemand_usd_per_hour_us_east_1,ondemand_usd_per_hour_eu_west_1\n"
    "m9.small,amd64,1,4096,0,0.05,0.06\n"
)


@pytest.mark.parametrize(
    ("labels", "price"),
    [
        ({"node.kubernetes.io/instance-type": "m9.small"}, 0.05),
        ({"node.kubernetes.io/instance-type": "m9.small", "topology.kubernetes.io/region": "eu-west-1"}, 0.06),
        ({"node.kubernetes.io/instance-type": "m9.small", "topology.kubernetes.io/region": "mars-1"}, 0.05),
        ({"node.kubernetes.io/instance-type": "m9.huge"}, None),
        ({}, None),
    ],
)
def test_worth_at_catalogue_prices(cluster: Path, labels: dict[str, str], price: float | None) -> None:
    priced(cluster, **labels)
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}")]
    catalogue = cluster.parent / "types.csv"
    catalogue.write_text(CATALOGUE)
    run = recommend(cluster, lines, "--effect", "--catalogue", catalogue, "-o", "json")
    effect = answer(run)["effect"]
    assert (effect["nodePrice"], effect["savedPerHour"]) == (price, price)
    assert ("no price for nodes like n1" in run.stderr) == (price is None)
    table = recommend(cluster, lines, "--effect", "--catalogue", catalogue).stdout
    assert ("an hour a node that saves" in table) == (price is not None)
    assert recommend(cluster, lines, "--catalogue", catalogue).code == 2


def test_worth_at_the_prices_of_groups(cluster: Path) -> None:
    priced(cluster, pool="a")
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}")]
    groups = cluster.parent / "groups.yaml"
    groups.write_text(yaml.safe_dump({"groups": [{"id": "a", "nodeSelector": {"pool": "a"}, "price": 2.5}]}))
    effect = answer(recommend(cluster, lines, "--effect", "-g", groups, "-o", "json"))["effect"]
    assert (effect["nodePrice"], effect["savedPerHour"]) == (2.5, 2.5)
    table = recommend(cluster, lines, "--effect", "-g", groups).stdout
    assert "At 2.5 an hour a node that saves 2.5 an hour, 1,825 a month." in table


def test_on_the_clusters_own_pools_memory_may_rise(cluster: Path) -> None:
    """Four pods ask for half a core and 1 GiB each, and use a tenth and 3 GiB: more memory, on a dearer pool."""
    priced(cluster, pool="general")
    document = json.loads(cluster.read_text())
    large = node()
    large["metadata"] |= {"name": "n2", "labels": {"pool": "memory"}}
    large["status"]["allocatable"] = large["status"]["capacity"] = {"cpu": "1", "memory": "16Gi", "pods": "110"}
    cluster.write_text(json.dumps({**document, "items": [*document["items"], large]}))
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}", memory=3 * 1024 * MIB)]
    groups = cluster.parent / "groups.yaml"
    pools = [{"id": name, "nodeSelector": {"pool": name}, "price": price} for name, price in
             (("general", 0.4), ("memory", 1.0))]  # fmt: skip
    groups.write_text(yaml.safe_dump(pools))
    effect = answer(recommend(cluster, lines, "--effect", "-g", groups, "-o", "json"))["effect"]
    before, after = effect["poolsBefore"], effect["poolsAfter"]
    assert (before["nodes"], before["cost"], before["unschedulableCount"]) == ({"general": 2}, 0.8, 0)
    assert (after["nodes"], after["cost"], after["unschedulableCount"]) == ({"memory": 1}, 1.0, 0)
    assert after["millicores"] < before["millicores"]
    assert after["bytes"] > before["bytes"]
    output = recommend(cluster, lines, "--effect", "-g", groups).stdout
    assert "costs $1.00 an hour (memory 1) instead of $0.80 an hour (general 2) (cpu falls to " in output
    assert "memory rises to 3" in output
    del pools[1]["price"]
    groups.write_text(yaml.safe_dump(pools))
    run = recommend(cluster, lines, "--effect", "-g", groups, "-o", "json")
    assert answer(run)["effect"]["poolsBefore"] is None, "not every pool has a price"
    assert "no price for memory: the cost of all pools" in " ".join(run.stderr.split())


def test_pods_that_would_no_longer_fit(cluster: Path) -> None:
    priced(cluster)
    lines = [line for i in range(4) for line in rows(200, pod=f"web-5d4f8-abcd{i}", cpu=3)]
    run = recommend(cluster, lines, "--effect")
    assert "Pods that fit on no such node: 4 (before: 0); not packed." in run.stdout
    assert "Pods that would no longer fit: shop/web-5d4f8-abcd0, " in run.stdout


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("--catalogue", None, "given: No such file or directory"),
        ("--catalogue", "", "given: there is nothing in it"),
        ("-g", "", "given: no node group in it"),
        ("-g", "- {id: a, nodes: [n1], price: -1}", "given: groups[0] (a): price: -1.0 is not a price"),
        ("-g", "- {id: a, nodes: [n9], price: 1}", 'given: groups[0] (a): nodes[0]: there is no node "n9"'),
        ("-g", "- {id: a, nodes: [n1], price: 2000000}", "node group a: price: 2e+06 is more than 1,000,000"),
    ],
)
def test_prices_that_cannot_be_read_are_named(cluster: Path, flag: str, text: str | None, message: str) -> None:
    priced(cluster)
    prices_file = cluster.parent / "given"
    if text is not None:
        prices_file.write_text(text)
    run = recommend(cluster, rows(200, pod="web-5d4f8-abcd0"), "--effect", flag, prices_file)
    assert message in " ".join(run.stderr.split())
    assert run.code == 2


def test_effect_without_a_place_for_any_pod(cluster: Path) -> None:
    assert "The dump has no nodes: nothing to pack the pods onto." in recommend(cluster, rows(150), "--effect").stdout
    tiny = node()
    tiny["status"]["allocatable"] = tiny["status"]["capacity"] = {"cpu": "10m", "memory": "4Gi", "pods": "110"}
    with_items(cluster, tiny)
    output = recommend(cluster, rows(150), "--effect").stdout
    assert "None of the 1 running pods fits on an empty node like n1: nothing is packed." in output
