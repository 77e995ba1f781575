"""``kscale mix``: what is said, what is written, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kscale.capacity.groups import read_groups
from kscale.cli.commands import mix
from unit.cli.support import kscale
from unit.cli.test_answers import node, pod, write

CATALOGUE = """instance_type,arch,vcpu,memory_mib,gpu,ondemand_usd_per_hour_us_east_1,ondemand_usd_per_hour_us_west_2
m5.large,amd64,2,8192,0,0.096,0.2
m5.2xlarge,amd64,8,32768,0,0.384,0.3
m5.free,amd64,8,32768,0,,
c5.large,amd64,2,4096,0,0.085,0.085
"""


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    (tmp_path / "types.csv").write_text(CATALOGUE, encoding="utf-8")
    return write(tmp_path / "dump.json", node("n1"), *(pod(f"p{i}", "2") for i in range(9)))


def test_types_of_a_catalogue(tmp_path: Path, dump: Path) -> None:
    question = ("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", "--ignore-existing")
    got = kscale(*question, "--instance-type", "m5*", "--instance-type", "c5.large", "--region", "us-east-1")
    assert got.code == 0, got.stderr
    assert got.stdout.splitlines()[0] == (
        "9 pods pending: 9 new nodes of 1 type, $0.765/h, proven within 0.00% of the cheapest (at least $0.765)."
    )
    assert "types without a price in the catalogue, left out: 1" in got.stderr
    west = kscale(
        *question, "--instance-type", "m5*", "--region", "us-west-2", "--zone", "a", "--zone", "b", "-o", "json",
        "--to-groups", tmp_path / "groups.json", "--to-nodepool", tmp_path / "pool.json",
    )  # fmt: skip
    plan = json.loads(west.stdout)
    assert (plan["cost"], plan["unschedulableCount"], plan["types"]) == (0.8, 0, 2)
    assert sum(len(each["pods"]) for each in plan["nodes"]) == 9
    groups = read_groups(tmp_path / "groups.json")
    assert {group.id: group.max_size for group in groups} == plan["offers"]
    pool = json.loads((tmp_path / "pool.json").read_text())
    assert pool["spec"]["limits"]["cpu"] == "18"
    name = kscale(*question, "-q", "--instance-type", "c5*", "-o", "name")
    assert name.stdout == "instancetype/c5.large\n"


ARM = CATALOGUE + "m7g.2xlarge,arm64,8,32768,0,0.1,0.1\nt4g.large,arm64,2,8192,0,0.02,0.02\n"
AMD64 = {"kubernetes.io/arch": "amd64"}


def types_in(plan: str) -> dict[str, str]:
    return {line["type"]: line["arch"] for line in json.loads(plan)["lines"]}


def test_types_of_another_architecture_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "types.csv").write_text(ARM, encoding="utf-8")
    dump = write(tmp_path / "dump.json", node("n1", **AMD64), *(pod(f"p{i}", "2") for i in range(9)))
    question = ("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", "--ignore-existing")
    for default in ((), ("--instance-type", "*")):
        got = kscale(*question, *default, "-o", "json")
        assert got.code == 0, got.stderr
        assert set(types_in(got.stdout).values()) == {"amd64"}
        assert "2 arm64 types of the catalogue left out (the nodes of the cluster are amd64; --arch" in got.stderr
    chosen = kscale(*question, "--arch", "arm64")
    assert chosen.stdout.splitlines()[2].split()[:4] == ["TYPE", "ARCH", "GEN", "NODES"]
    assert "Some new nodes are arm64; the cluster's are amd64. The pods' images have to exist" in chosen.stdout
    assert "warning: arm64 types are offered, the nodes of the cluster are amd64" in chosen.stderr
    both = kscale(*question, "--arch", "arm64", "--arch", "amd64", "-o", "json")
    assert set(types_in(both.stdout).values()) == {"arm64"}
    named = kscale(*question, "--instance-type", "m7g.2xlarge", "-o", "json")
    assert types_in(named.stdout) == {"m7g.2xlarge": "arm64"}
    assert "warning: arm64 types are offered" in named.stderr
    left_out = kscale(
        *question, "--instance-type", "t4g.large", "--instance-type", "m5*", "--arch", "amd64", "-o", "json"
    )
    assert set(types_in(left_out.stdout).values()) == {"amd64"}
    assert "1 arm64 type of the catalogue left out (--arch)" in left_out.stderr
    refused = kscale(*question, "--instance-type", "m7g*")
    assert (refused.code, "none of the types is amd64" in refused.stderr) == (2, True)
    wide = kscale(*question, "--instance-type", "m5*", "-o", "wide")
    assert wide.stdout.splitlines()[2].split()[:4] == ["TYPE", "ARCH", "GEN", "CAPACITY"]


def test_an_assumed_architecture_is_part_of_the_answer(tmp_path: Path) -> None:
    (tmp_path / "types.csv").write_text(ARM, encoding="utf-8")
    dump = write(tmp_path / "dump.json", node("n1", **AMD64), pod("p", "2"))
    text = "Assumed: new nodes are amd64, as the cluster's nodes are (--arch chooses)."
    for command, more in (("mix", ()), ("estimate", ("--instance-type", "*"))):
        question = (command, "-q", "-f", dump, "--catalogue", tmp_path / "types.csv", "--ignore-existing", *more)
        assert text in kscale(*question).stdout
        assert text not in kscale(*question, "--arch", "amd64").stdout
        record = json.loads(kscale(*question, "-o", "json").stdout)
        assert record["assumptions"] == ["new nodes are amd64, as the cluster's nodes are (--arch chooses)"]


def test_excluded_types_families_and_discounts(tmp_path: Path, dump: Path) -> None:
    question = ("mix", "-q", "-f", dump, "--catalogue", tmp_path / "types.csv", "--ignore-existing", "-o", "json")

    def plan(*more: object) -> tuple[list[str], float]:
        got = kscale(*question, "--region", "us-east-1", *more)
        assert got.code == 0, got.stderr
        record = json.loads(got.stdout)
        assert record["bound"]["cost"] <= record["cost"]
        return [line["type"] for line in record["lines"]], record["cost"]

    assert plan() == (["c5.large"], 0.765)
    assert plan("--exclude", "c5*") == (["m5.large"], 0.864)
    assert plan("--family", "m5", "--discount", "50") == (["m5.large"], 0.432)
    (tmp_path / "prices.json").write_text(
        json.dumps(
            [
                {"instanceType": "m5.large", "discount": 50},
                {"instanceType": "m5.2xlarge", "reserved": 1, "price": 0.01},
            ]
        )
    )
    types, cost = plan("--price-list", tmp_path / "prices.json")
    assert (sorted(types), cost) == (["m5.2xlarge", "m5.large"], pytest.approx(0.01 + 5 * 0.048))
    refused = kscale("mix", "-f", dump, "--price-list", tmp_path / "prices.json")
    assert (refused.code, "--price-list needs --catalogue" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"amd64"}),
        ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, {"arm64"}),
        ({"nodeSelector": {"kubernetes.io/arch": "amd64"}}, {"amd64"}),
        ({"arch": ["amd64", "arm64"]}, {"arm64"}),
        ({"arch": ["amd64"]}, {"amd64"}),
    ],
)
def test_constraints_of_pods_choose_the_architecture(
    tmp_path: Path, spec: dict[str, object], expected: set[str]
) -> None:
    if "arch" in spec:
        expression = {"key": "kubernetes.io/arch", "operator": "In", "values": spec["arch"]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    (tmp_path / "types.csv").write_text(ARM, encoding="utf-8")
    dump = write(tmp_path / "dump.json", node("n1", **AMD64), *(pod(f"p{i}", "2", **spec) for i in range(3)))
    question = ("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", "--ignore-existing", "-o", "json")
    got = kscale(*question)
    assert got.code == 0, got.stderr
    assert set(types_in(got.stdout).values()) == expected


def test_nodes_without_an_architecture_are_no_reason_to_leave_types_out(tmp_path: Path) -> None:
    (tmp_path / "types.csv").write_text(ARM, encoding="utf-8")
    dump = write(tmp_path / "dump.json", node("n1"), pod("p", "2"))
    got = kscale("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", "--ignore-existing")
    assert "warning: the architecture of the nodes is unknown: types of all architectures are offered" in got.stderr
    assert "Some new nodes are arm64; the architecture of the cluster's nodes is unknown." in got.stdout


@pytest.mark.parametrize(
    ("more", "kind"),
    [((), "EC2NodeClass"), (("--node-class", "eks.amazonaws.com/NodeClass/own"), "NodeClass")],
)
def test_a_node_pool_in_a_file(tmp_path: Path, dump: Path, more: tuple[str, ...], kind: str) -> None:
    question = ("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", "--ignore-existing")
    got = kscale(*question, "--to-nodepool", tmp_path / "pool.json", *more)
    assert got.code == 0, got.stderr
    spec = json.loads((tmp_path / "pool.json").read_text())["spec"]["template"]["spec"]
    assert spec["nodeClassRef"]["kind"] == kind
    assert {each["key"] for each in spec["requirements"]} >= {"kubernetes.io/arch"}


def test_a_node_pool_of_no_known_cloud_is_refused_before_the_search(tmp_path: Path, dump: Path) -> None:
    entry = {"id": "own", "max": 9, "price": 1, "template": {"status": node("t")["status"]}}
    (tmp_path / "groups.json").write_text(json.dumps([entry]))
    got = kscale("mix", "-f", dump, "-g", tmp_path / "groups.json", "--to-nodepool", tmp_path / "pool.json")
    assert (got.code, got.stdout) == (2, "")
    assert "--to-nodepool: the cloud of own is unknown: name the node class" in got.stderr


def test_manifests_on_an_empty_cluster(tmp_path: Path, dump: Path) -> None:
    (tmp_path / "web.json").write_text(
        json.dumps(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web"},
                "spec": {
                    "replicas": 4,
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", "2")["spec"]},
                },
            }
        )
    )
    question = ("mix", "--pod", tmp_path / "web.json", "--catalogue", tmp_path / "types.csv", "--region", "us-east-1")
    got = kscale(*question)
    assert got.code == 0, got.stderr
    assert got.stdout.startswith("4 pods of the manifests: 4 new nodes of 1 type, $0.340/h, proven within 0.00%")
    both = json.loads(kscale(*question, "-f", dump, "-o", "json").stdout)
    assert (both["pods"], both["onExisting"] + both["onNew"]) == (4, 4)
    nothing = kscale("mix", "--catalogue", tmp_path / "types.csv")
    assert (nothing.code, "nothing to read" in nothing.stderr) == (2, True)
    for more in (("--pods", "all"), ("-l", "app=web")):
        refused = kscale(*question, *more)
        assert (refused.code, "--pod" in refused.stderr) == (2, True)


EXAMPLES = Path(__file__).parents[3] / "examples"


def test_node_pools_as_groups() -> None:
    question = ("-q", "-f", EXAMPLES / "cluster.json.gz", "-g", EXAMPLES / "nodepools.yaml")
    catalogue = ("--catalogue", EXAMPLES / "data/aws.csv")
    for command in ("mix", "estimate"):
        record = json.loads(kscale(command, *question, *catalogue, "-o", "json").stdout)
        choice = record["karpenter"]
        assert choice["pods"] == choice["onExisting"] + choice["onNew"] + len(choice["unschedulable"])
        assert (choice["nodes"], choice["cost"]) == (6, 8.688)
        assert {line["nodePool"] for line in choice["lines"]} == {"general"}
        assert "What Karpenter would launch: 6 nodes, $8.688/h" in kscale(command, *question, *catalogue).stdout
    autoscaler = ("scale-up", *question, *catalogue, "--provisioner", "cluster-autoscaler")
    assert kscale(*autoscaler).stdout.startswith("Scale up general/")
    for more, text in (((), "NodePools need --catalogue"), ((*catalogue, "--spot"), "the NodePools say whether")):
        refused = kscale("mix", *question, *more)
        assert (refused.code, text in refused.stderr) == (2, True), refused.stderr


def test_scale_up_and_whatif_follow_karpenters_rule_for_node_pools(tmp_path: Path) -> None:
    question = ("-q", "-f", EXAMPLES / "cluster.json.gz", "-g", EXAMPLES / "nodepools.yaml")
    catalogue = ("--catalogue", EXAMPLES / "data/aws.csv")
    answer = kscale("scale-up", *question, *catalogue)
    assert answer.code == 1, "pods stay pending"
    assert answer.stdout.startswith("60 pods by Karpenter's rule; 6 pods fit on nodes that exist; 6 new nodes for 25")
    assert "Rule: first fit on existing nodes" in answer.stdout
    assert "compute: does not tolerate workload-class=compute:NoSchedule; general: conflict on" in answer.stdout
    plan = json.loads(kscale("scale-up", *question, *catalogue, "-o", "json").stdout)
    assert (plan["kind"], plan["provisioner"], plan["choice"]["cost"]) == ("KarpenterPlan", "karpenter", 8.688)
    assert sum(len(claim["pods"]) for claim in plan["claims"]) == plan["choice"]["onNew"] == 25
    assert len(plan["existing"]) == 6
    assert len(plan["reasons"]) == len(plan["choice"]["unschedulable"]) == 29
    for more in (("--expander", "random"), ("--max-nodes-total", 5), ("--flag", "salvo-scale-up")):
        refused = kscale("scale-up", *question, *catalogue, *more)
        assert (refused.code, "is an option of the Cluster Autoscaler" in refused.stderr) == (2, True)
    groups = ("-f", EXAMPLES / "cluster.json.gz", "-g", EXAMPLES / "groups.yaml", "--provisioner", "karpenter")
    assert "karpenter needs NodePools" in kscale("scale-up", *groups).stderr
    scenarios = tmp_path / "w.yaml"
    scenarios.write_text('scenarios: [{name: no-m5, edits: [{groups: {remove: ["general/m5*"]}}]}]')
    row = json.loads(kscale("whatif", scenarios, *question, *catalogue, "-o", "json").stdout)
    assert (row["provisioner"], sum(row["baselines"][0]["groups"].values())) == ("karpenter", 6)
    assert not any(name.startswith("general/m5") for name in row["scenarios"][0]["groups"])
    assert (
        "NodePools: scale-up is decided by Karpenter's rule."
        in kscale("whatif", scenarios, *question, *catalogue).stdout
    )
    other = kscale("whatif", scenarios, *question, *catalogue, "--provisioner", "cluster-autoscaler", "-o", "json")
    assert json.loads(other.stdout)["provisioner"] == "cluster-autoscaler"


def test_limits_leave_pods_without(tmp_path: Path, dump: Path) -> None:
    question = ("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", "--instance-type", "c5*", "--ignore-existing")
    got = kscale(*question, "--limit", "nodes=4", "--max-types", 1, "--curve")
    assert got.code == 1
    assert got.stdout.splitlines()[0] == "9 pods pending: 3 new nodes of 1 type, $0.255/h; 6 stay without."


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--instance-type", "z9*"), 'no instance type like "z9*"'),
        (("--instance-type", "m5*", "--region", "mars"), 'no prices of region "mars"'),
        (("--instance-type", "m5.free"), "no node group is known"),
        (("--instance-type", "m5*", "--limit", "cpu"), "'cpu' is not RESOURCE=N"),
        (("--instance-type", "m5*", "--limit", "cpu=x"), "'x' is not a quantity"),
        (("--instance-type", "m5*", "--limit", "nodes=1.5"), "'1.5' is not a whole number of nodes"),
        (("--instance-type", "m5*", "--limit", "cpu=1e400"), "'1e400' is more than"),
        (("--instance-type", "m5*", "--limit", "nodes=0"), "limit of nodes: 0 is less"),
        (("--instance-type", "m5*", "--limit", "gpus=3"), "'gpus' is no resource of nodes"),
        (("--instance-type", "m5*", "--budget", "nan"), "nan is not a number of seconds"),
        (("--instance-type", "m5*", "--pods", "all", "-n", "a"), "leave out -n and -l"),
        (("--instance-type", "m5*", "--to-groups", "no/such/folder"), "No such file or directory"),
        (("--instance-type", "m5*", "--node-class", "a/b/c"), "--node-class needs --to-nodepool"),
        (("--instance-type", "m5*", "--to-nodepool", "f", "--node-class", "b"), "'b' is not GROUP/KIND/NAME"),
        (("--instance-type", "m5*", "--arch", "arm64"), "none of the types is arm64"),
    ],
)
def test_bad_usage_has_a_name(tmp_path: Path, dump: Path, more: tuple[str, ...], text: str) -> None:
    got = kscale("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", *more)
    assert got.code == 2
    assert text in " ".join(got.stderr.replace("│", " ").split())


def test_a_budget_leaves_time_for_the_check() -> None:
    now = 100.0

    def stops(budget: float, **more: Any) -> list[Callable[[], bool]]:
        return list(mix.deadlines_within(budget, clock=lambda: now, **more))

    def over_at(seconds: float, stop: list[Callable[[], bool]]) -> list[bool]:
        nonlocal now
        now = 100.0 + seconds
        try:
            return [each() for each in stop]
        finally:
            now = 100.0

    few_pods = stops(10.0)
    assert [over_at(t, few_pods) for t in (5.4, 5.6, 8.4, 8.6)] == [
        [False] * 2,
        [True, False],
        [True, False],
        [True] * 2,
    ]
    many_pods = stops(10.0, pods=300_000)
    assert [over_at(t, many_pods) for t in (3.5, 3.6, 5.6)] == [[False] * 2, [True, False], [True] * 2]
    assert over_at(0.0, stops(1.0, pods=100_000)) == [True, True], "the check alone takes all the time"
    few_types = stops(10.0, few_types=True)
    assert [over_at(t, few_types) for t in (4.1, 5.6, 8.6)] == [[True, False, False], [True, True, False], [True] * 3]


def test_a_budget_that_is_too_small_is_named(tmp_path: Path, dump: Path) -> None:
    """No machine plans anything within a millionth of a second."""
    got = kscale("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", "--instance-type", "m5*", "--budget", "1e-6")
    assert "longer than --budget 1e-06" in " ".join(got.stderr.split())
    got = kscale("mix", "-f", dump, "--catalogue", tmp_path / "types.csv", "--instance-type", "m5*", "--budget", "0")
    assert "longer than" not in got.stderr
