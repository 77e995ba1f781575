"""``kscale nodes``, ``drain``, ``consolidate``, ``preempt`` and ``diff``: texts, statuses and options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unit.capacity.disruptable_clusters import NOW, budget, controller, node, pod
from unit.cli.support import Run, kscale


def write(path: Path, *items: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, controller()]}))
    return path


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Three nodes: one is empty, and the pods of the others fit on either."""
    items = [node(name, labels={"pool": "g"}) for name in ("n1", "n2", "n3")]
    return write(tmp_path / "dump.json", *items, pod("a", "n1"), pod("b", "n2", "2"), pod("big", cpu="9"))


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.json"
    path.write_text(json.dumps([{"id": "g", "min": 0, "max": 5, "nodeSelector": {"pool": "g"}, "price": 0.5}]))
    return path


def ask(command: str, dump: Path, *words: object) -> Run:
    return kscale(command, *words, "-q", "-f", dump, "--now", NOW)


# -- nodes -------------------------------------------------------------------------------------------------------------


def test_nodes_are_shown_with_shares_and_blocking_reasons(dump: Path, groups: Path) -> None:
    result = ask("nodes", dump, "-g", groups)
    assert result.code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "3 nodes, 2 pods: 25% of cpu and 4% of memory requested, $1.50/h. 3 could be removed, each alone."
    )
    assert lines[2].split() == ["NODE", "PODS", "CPU", "CPU", "LIMIT", "MEMORY", "MEMORY", "LIMIT", "$/H",
                                "REMOVABLE", "WHY", "NOT"]  # fmt: skip
    assert lines[3].split() == ["n2", "1", "50%", "0%", "6%", "0%", "0.5", "yes"]
    assert "1 pod pending, on no node." in result.stdout


def test_nodes_are_sorted_by_the_sort_option(dump: Path, groups: Path) -> None:
    def order(sort: str) -> list[str]:
        return ask("nodes", dump, "-g", groups, "--sort", sort, "-o", "name").stdout.split()

    assert order("name") == ["node/n1", "node/n2", "node/n3"]
    assert order("cpu") == ["node/n2", "node/n1", "node/n3"]
    assert order("requests") == ["node/n2", "node/n1", "node/n3"]
    assert order("memory") == ["node/n1", "node/n2", "node/n3"]
    assert ask("nodes", dump, "--sort", "color").code == 2


def test_nodes_without_a_price_come_last_by_price(tmp_path: Path) -> None:
    path = write(tmp_path / "dump.json", *(node(name) for name in ("n1", "n2", "n3")))
    entry = {"min": 0, "max": 5}
    priced = tmp_path / "groups.json"
    priced.write_text(
        json.dumps([
            {**entry, "id": "a", "nodes": ["n1"], "price": 0.25},
            {**entry, "id": "b", "nodes": ["n2"]},
            {**entry, "id": "c", "nodes": ["n3"], "price": 2.0},
        ])
    )  # fmt: skip
    names = ask("nodes", path, "-g", priced, "--sort", "price", "-o", "name").stdout.split()
    assert names == ["node/n3", "node/n1", "node/n2"]


def test_usage_is_a_column_where_the_dump_has_it(tmp_path: Path) -> None:
    usage = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": "n1"},
             "usage": {"cpu": "1", "memory": "4Gi"}}  # fmt: skip
    path = write(tmp_path / "dump.json", node("n1"), node("n2"), usage)
    rows = ask("nodes", path, "-o", "csv", "--sort", "usage").stdout.splitlines()
    assert rows[0].split(",")[3:9] == ["cpu", "cpu_limit", "cpu_used", "memory", "memory_limit", "memory_used"]
    assert rows[1].split(",")[0] == "n1"
    assert rows[1].split(",")[5] == "0.25"
    assert rows[2].split(",")[5] == ""


# -- drain -------------------------------------------------------------------------------------------------------------


def test_a_drain_that_can_be_carried_out_has_status_0(dump: Path) -> None:
    result = ask("drain", dump, "n1")
    assert result.code == 0
    assert result.stdout.startswith("n1 can be drained: 1 pod evicted in 1 wave.")
    assert ask("drain", dump, "n1", "-o", "name").stdout == "pod/shop/a\n"


def test_a_blocked_drain_has_status_1_and_names_the_budget(tmp_path: Path) -> None:
    path = write(tmp_path / "dump.json", node("n1"), node("n2"), pod("a", "n1"), budget("web", 0))
    result = ask("drain", path, "n1")
    assert result.code == 1
    assert result.stdout.startswith("n1 cannot be drained completely: no pod evicted, 1 blocked.")
    assert "PodDisruptionBudget shop/web allows no eviction now" in result.stdout


def test_an_unknown_node_is_bad_input(dump: Path) -> None:
    result = ask("drain", dump, "nX")
    assert result.code == 2
    assert 'there is no node "nX"' in result.stderr


# -- consolidate -------------------------------------------------------------------------------------------------------


def test_a_path_shows_its_steps_and_states(dump: Path, groups: Path) -> None:
    result = ask("consolidate", dump, "-g", groups)
    assert result.code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "2 steps from $1.500/h to $0.500/h, from 3 to 1 nodes, with 1 eviction."
    assert lines[3].split() == ["1", "empty", "0", "0", "0.500", "2", "1.000", "n3"]
    assert "optimum (at least)" in result.stdout
    assert "1 pod pending today, left out." in result.stdout


def test_no_step_is_status_1(tmp_path: Path, groups: Path) -> None:
    path = write(tmp_path / "dump.json", node("n1", labels={"pool": "g"}), pod("a", "n1"))
    result = ask("consolidate", path, "-g", groups, "--no-bound")
    assert result.code == 1
    assert result.stdout.startswith("No step makes the cluster cheaper: $0.500/h for 1 node.")
    assert "No optimum: not computed." in result.stdout


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("10%", "2026-07-01T12:00:00Z"),
        ("0,schedule=0 9 * * mon,wed,duration=8h", "2026-07-01T17:00:00Z"),
        ("0,schedule=0 9 * * mon-fri,duration=8h,reasons=Underutilized", "2026-07-01T12:00:00Z"),
        ("0,schedule=0 9 * * mon-fri,duration=8h,reasons=Underutilized|Empty", "2026-07-01T17:00:00Z"),
    ],
)
def test_disruption_budgets_are_read(text: str, first: str, dump: Path, groups: Path) -> None:
    result = ask("consolidate", dump, "-g", groups, "--no-bound", "--disruption-budget", text, "-o", "json")
    assert json.loads(result.stdout)["steps"][0]["at"] == first


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--disruption-budget", "many"), "is neither a number of nodes nor a percentage"),
        (("--disruption-budget", "1,color=red"), "is not schedule=, duration= or reasons="),
        (("--disruption-budget", "1,schedule=@daily"), "schedule and duration need each other"),
        (("--step-time", "soon"), "soon"),
        (("--payback", "0s"), "is not a time above zero"),
    ],
)
def test_bad_limits_are_named(words: tuple[str, ...], text: str, dump: Path, groups: Path) -> None:
    result = ask("consolidate", dump, "-g", groups, *words)
    assert result.code == 2
    assert text in " ".join(result.stderr.split())


def test_types_of_a_catalogue_are_offered_beside_the_groups_of_the_labels(tmp_path: Path) -> None:
    labels = {"eks.amazonaws.com/nodegroup": "workers", "node.kubernetes.io/instance-type": "m5.4xlarge"}
    examples = Path(__file__).parents[4] / "examples"
    path = write(tmp_path / "dump.json", node("n1", "15", "50Gi", labels=labels), pod("a", "n1"))
    words = ("--catalogue", examples / "data" / "aws.csv", "--instance-type", "m5.large", "--no-bound", "-o", "json")
    plan = json.loads(ask("consolidate", path, *words).stdout)
    assert [(step["kind"], step["remove"], [new["type"] for new in step["add"]]) for step in plan["steps"]] == [
        ("replace", ["n1"], ["m5.large"])
    ]


# -- preempt -----------------------------------------------------------------------------------------------------------


def test_victims_and_statuses_of_a_preemption(tmp_path: Path) -> None:
    vip = pod("vip", cpu="3", spec={"priority": 9})
    path = write(tmp_path / "dump.json", node("n1"), pod("a", "n1", "2", spec={"priority": 1}), vip)
    result = kscale("preempt", "shop/vip", "-q", "-f", path)
    assert result.code == 0
    assert result.stdout.startswith("shop/vip (priority 9) takes the place of 1 pod on n1.")
    assert kscale("preempt", "shop/vip", "-q", "-f", path, "-o", "name").stdout == "pod/shop/a\n"
    path = write(tmp_path / "never.json", node("n1"), pod("vip", cpu="9"))
    refused = kscale("preempt", "shop/vip", "-q", "-f", path)
    assert refused.code == 1
    assert "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling." in refused.stdout
    assert kscale("preempt", "vip", "-q", "-f", path).code == 2, "of the namespace default"


# -- diff --------------------------------------------------------------------------------------------------------------


def test_two_dumps_are_compared(dump: Path, groups: Path, tmp_path: Path) -> None:
    items = [node(name, labels={"pool": "g"}) for name in ("n1", "n2")]
    after = write(tmp_path / "after.json", *items, pod("a", "n2"), pod("b", "n2", "2"), pod("big", cpu="9"), pod("new"))
    result = kscale("diff", dump, after, "-q", "-g", groups)
    assert result.code == 1, "a pod is newly pending"
    assert result.stdout.startswith("1 node, 1 workload and 2 pods differ; 1 pod newly pending.")
    assert ["$/h", "1.500", "1.000", "-0.500"] in [line.split() for line in result.stdout.splitlines()]
    same = kscale("diff", dump, dump, "-q")
    assert same.code == 0
    assert same.stdout.startswith("The dumps do not differ in nodes, pods and requests.")


def test_node_pools_limit_the_steps_by_their_own_budgets(tmp_path: Path) -> None:
    labels = {
        "karpenter.sh/nodepool": "general",
        "karpenter.sh/capacity-type": "on-demand",
        "node.kubernetes.io/instance-type": "m5.xlarge",
        "topology.kubernetes.io/zone": "a",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    nodes = [node(f"n{i}", labels={**labels, "kubernetes.io/hostname": f"n{i}"}) for i in range(4)]
    dump = write(tmp_path / "dump.json", *nodes, pod("a", "n0"))
    header = "instance_type,arch,vcpu,memory_mib,gpu,gpu_name,ondemand_usd_per_hour_here\n"
    (tmp_path / "types.csv").write_text(f"{header}m5.xlarge,amd64,4,16384,0,,0.2\n")
    (tmp_path / "pools.yaml").write_text(
        """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: topology.kubernetes.io/zone, operator: In, values: [a]}
  disruption:
    budgets: [{nodes: "2"}, {nodes: "0", schedule: "10 12 * * *", duration: 50m}]
"""
    )
    options = ("-g", tmp_path / "pools.yaml", "--catalogue", tmp_path / "types.csv", "--no-bound", "-o", "json")
    steps = json.loads(ask("consolidate", dump, *options).stdout)["steps"]
    assert [(step["at"][11:16], len(step["remove"])) for step in steps] == [("12:00", 2), ("13:00", 1)]
    limited = json.loads(ask("consolidate", dump, *options, "--disruption-budget", "1").stdout)["steps"]
    assert [len(step["remove"]) for step in limited] == [1, 1, 1]
