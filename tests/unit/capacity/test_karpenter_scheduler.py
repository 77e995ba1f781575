"""Rules of Karpenter's scheduler, each in a small case whose outcome upstream's scheduler (v1.14.0) gave, too."""

from __future__ import annotations

from typing import Any

import pytest

import kscale
from kscale.capacity.catalogue import InstanceType
from kscale.capacity.group_templates import with_templates
from kscale.capacity.karpenter import groups_of_pools, node_pools_from
from kscale.capacity.karpenter.node_claim import OfferedPools, share_ports
from kscale.capacity.karpenter.scheduler import Placement, place_pods
from kscale.objects.quantity import Quantity

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
CAPACITY_TYPE, ARCH = "karpenter.sh/capacity-type", "kubernetes.io/arch"
TEAM = "example.com/team"
APP = {"matchLabels": {"app": "a"}}
ZONES = ("zone-a", "zone-b", "zone-c")


def instance_type(name: str, cores: int, price: float = 0.1, **more: Any) -> InstanceType:
    amounts = {"cpu": Quantity(str(cores)), "memory": Quantity(f"{4 * cores}Gi"), "pods": Quantity("110")}
    return InstanceType(
        name=name, arch="amd64", capacity=amounts, allocatable=amounts, prices={"here": price}, spot_prices=more
    )


def pool(name: str = "general", requirements: tuple[Any, ...] = (), **spec: Any) -> dict[str, Any]:
    template = {
        "requirements": [
            dict(zip(("key", "operator", "values", "minValues"), each, strict=False)) for each in requirements
        ],
        "taints": spec.pop("taints", []),
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }
    metadata = {"labels": spec.pop("labels", {})}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": metadata, "spec": template}, **spec},
    }


def pod(name: str, cpu: str = "1", app: str = "a", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": spec.pop("ports", [])}]
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def running(name: str, node: str, **spec: Any) -> dict[str, Any]:
    result = pod(name, **spec)
    result["spec"]["nodeName"] = node
    return {**result, "status": {"phase": "Running"}}


def node(name: str = "n", cpu: str = "4", taints: tuple[Any, ...] = (), **labels: str) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    all_labels = {HOSTNAME: name, ZONE: "zone-a", ARCH: "amd64", **labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all_labels},
            "spec": {"taints": list(taints)}, "status": {"capacity": amounts, "allocatable": amounts}}  # fmt: skip


def daemon_set(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"daemon": "d"}}, "spec": pod("d", cpu, **spec)["spec"]}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "namespace": "kube-system"},
            "spec": {"selector": {"matchLabels": {"daemon": "d"}}, "template": template}}  # fmt: skip


def place(
    *items: dict[str, Any],
    pools: tuple[dict[str, Any], ...] = (pool(),),
    types: tuple[InstanceType, ...] = (instance_type("m5.2xlarge", 8),),
    zones: tuple[str, ...] = ZONES,
) -> Placement:
    cluster = kscale.load(list(items))
    snapshot = cluster.snapshot()
    node_pools = node_pools_from(pools)
    converted = groups_of_pools(node_pools, types, zones=zones, nodes=snapshot.columns.objects)
    offered = OfferedPools(node_pools, converted, with_templates(cluster, snapshot, converted.groups))
    return place_pods(snapshot, snapshot.pending, offered)


def on_claims(placement: Placement) -> list[list[str]]:
    return [[name.removeprefix("default/") for name in claim.pods] for claim in placement.claims]


def zones_of(placement: Placement) -> list[set[str]]:
    return [{each.zone for each in claim.offerings} for claim in placement.claims]


def spread(key: str, skew: int = 1, when: str = "DoNotSchedule", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when, "labelSelector": APP, **more}


def near(key: str, *, apart: bool = False) -> dict[str, Any]:
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": APP}]}
    return {"podAntiAffinity" if apart else "podAffinity": terms}


def test_pods_with_affinity_go_where_the_others_are() -> None:
    follower = pod("p", "500m", app="b", affinity=near(HOSTNAME))
    placement = place(pod("leader", "6"), pod("other", "6", app="c"), follower)
    assert on_claims(placement) == [["leader", "p"], ["other"]]
    assert place(follower).unschedulable == ["default/p"], "there is no pod to be near to"
    assert on_claims(place(pod("p", affinity=near(HOSTNAME)), pod("q", affinity=near(HOSTNAME)))) == [["p", "q"]]
    in_zone = pod("p", app="b", affinity=near(ZONE))
    placement = place(node(cpu="1", **{ZONE: "zone-b"}), running("r", "n"), in_zone)
    assert zones_of(placement) == [{"zone-b"}]


def test_anti_affinity_over_zones_holds_in_both_directions() -> None:
    apart = near(ZONE, apart=True)
    placement = place(pod("p", affinity=apart, nodeSelector={ZONE: "zone-a"}), pod("q", app="b"))
    assert on_claims(placement) == [["p", "q"]]
    placement = place(node(cpu="1"), running("r", "n", affinity=apart), pod("p"))
    assert zones_of(placement) == [{"zone-b", "zone-c"}], "the running pod keeps others away"
    placement = place(pod("p", "6", affinity=apart), pod("q", "3", affinity=apart))
    assert (on_claims(placement), placement.unschedulable) == ([["p"]], ["default/q"]), "p may be in any zone"


def test_spread_over_capacity_types_and_labels_of_a_node_pool() -> None:
    types = (instance_type("m5.2xlarge", 8, here=0.05),)
    pods = [pod(f"p{i}", "6", topologySpreadConstraints=[spread(CAPACITY_TYPE)]) for i in range(4)]
    placement = place(*pods, types=types)
    assert sorted(claim.offerings[0].capacity_type for claim in placement.claims) == ["on-demand"] * 2 + ["spot"] * 2
    pools = (pool("x", labels={TEAM: "red"}), pool("y", labels={TEAM: "blue"}, weight=9))
    pods = [pod(f"p{i}", "6", topologySpreadConstraints=[spread(TEAM)]) for i in range(4)]
    assert [claim.pool for claim in place(*pods, pools=pools).claims] in (["x", "y"] * 2, ["y", "x", "y", "x"])


def test_pods_on_new_nodes_count_for_the_spread_on_existing_ones() -> None:
    pods = [pod(f"p{i}", topologySpreadConstraints=[spread(ZONE)]) for i in range(4)]
    placement = place(node(cpu="8"), *pods, zones=("zone-a", "zone-b"))
    assert (placement.existing, on_claims(placement)) == (
        {"default/p0": "n", "default/p2": "n"},
        [["p1", "p3"]],
    )


def test_policies_of_a_spread_choose_the_nodes_that_count() -> None:
    taint = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}
    busy = [node(cpu="1", taints=(taint,)), *(running(f"r{i}", "n", cpu="1m") for i in range(2))]
    ignoring = pod("p", topologySpreadConstraints=[spread(ZONE)])
    assert zones_of(place(*busy, ignoring))[0] != {"zone-a"}
    honoring = pod("p", topologySpreadConstraints=[spread(ZONE, nodeTaintsPolicy="Honor")])
    assert zones_of(place(*busy, honoring)) == [{"zone-a"}], "upstream takes any of the three empty zones"
    tainted = (pool(), pool("tainted", taints=[taint], labels={ZONE: "zone-x"}))
    needs_four = pod("p", topologySpreadConstraints=[spread(ZONE, minDomains=4)])
    assert place(*busy, needs_four, pools=tainted[:1]).claims


def test_claims_with_equally_many_pods_keep_the_order_that_sorting_left() -> None:
    # The first node gets a second pod and moves behind the second one, which stays in front when it has two pods, too.
    sizes = ("6", "5", "1", "900m", "800m")
    pods = [pod(f"p{i}", cpu) for i, cpu in enumerate(sizes)]
    assert on_claims(place(*pods)) == [["p0", "p2"], ["p1", "p3", "p4"]]


def test_the_last_constraint_takes_the_place_of_a_dropped_one() -> None:
    soft = [spread(key, when="ScheduleAnyway") for key in (TEAM, CAPACITY_TYPE, ZONE)]
    busy = [node(cpu="1", **{CAPACITY_TYPE: "spot"}), *(running(f"r{i}", "n", cpu="1m") for i in range(3))]
    pools = (
        pool("even-zones", requirements=((ZONE, "In", ["zone-b"]), (CAPACITY_TYPE, "In", ["spot"]))),
        pool("even-types", requirements=((ZONE, "In", ["zone-a"]), (CAPACITY_TYPE, "In", ["on-demand"]))),
    )
    types = (instance_type("m5.2xlarge", 8, here=0.05),)
    # No NodePool meets the first constraint, nor both others. After the first, the last one is dropped.
    (claim,) = place(*busy, pod("p", topologySpreadConstraints=soft), pools=pools, types=types).claims
    assert claim.pool == "even-types"


def test_taints_to_avoid_are_tolerated_if_a_node_pool_has_one() -> None:
    soft = {"key": "slow", "value": "", "effect": "PreferNoSchedule"}
    existing = node(taints=(soft,))
    huge = pod("p", "3", nodeSelector={TEAM: "red"})
    existing["metadata"]["labels"][TEAM] = "red"
    assert place(existing, huge).unschedulable == ["default/p"]
    tainted = pool("tainted", taints=[{**soft, "key": "other"}])
    assert place(existing, huge, pools=(pool(), tainted)).existing == {"default/p": "n"}


def test_tolerations_may_compare_numbers() -> None:
    taint = {"key": "level", "value": "5", "effect": "NoSchedule"}
    tolerating = pod("p", tolerations=[{"key": "level", "operator": "Gt", "value": "3", "effect": "NoSchedule"}])
    assert place(tolerating, pools=(pool(taints=[taint]),)).claims


def test_host_ports_of_daemon_sets_are_taken_on_new_nodes() -> None:
    ports = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
    daemon = daemon_set("100m", ports=ports, nodeSelector={"karpenter.k8s.aws/instance-size": "2xlarge"})
    types = (instance_type("m5.2xlarge", 8, 0.1), instance_type("m5.4xlarge", 16, 0.2))
    (claim,) = place(daemon, pod("p", ports=ports), types=types).claims
    assert claim.types == {"m5.4xlarge"}
    placement = place(daemon, pod("p", ports=ports))
    assert placement.unschedulable == ["default/p"]


def test_daemon_sets_that_may_run_on_a_node_pool_take_room() -> None:
    types = (instance_type("m5.xlarge", 4, 0.1), instance_type("m5.2xlarge", 8, 0.2))
    both = pool(requirements=((TEAM, "In", ["red", "blue"]),))
    daemon = daemon_set("2", nodeSelector={TEAM: "red"})
    (claim,) = place(daemon, pod("p", "3", nodeSelector={TEAM: "blue"}), types=types, pools=(both,)).claims
    assert claim.types == {"m5.2xlarge"}, "the NodePool's nodes may have the label"


def test_daemon_sets_that_do_not_run_yet_keep_room_on_existing_nodes() -> None:
    assert place(node(cpu="2"), daemon_set("1500m"), pod("p")).existing == {}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}
    started = running("d-n", "n", cpu="500m")
    started["metadata"] |= {"ownerReferences": [owner], "namespace": "kube-system"}
    assert place(node(cpu="2"), daemon_set("500m"), started, pod("p", "1500m")).existing == {"default/p": "n"}
    soft = {"key": "slow", "value": "", "effect": "PreferNoSchedule"}
    tolerating = pod("p", tolerations=[{"key": "slow", "operator": "Exists"}])
    assert place(node(cpu="2", taints=(soft,)), daemon_set("1500m"), tolerating).existing == {}, "it may run there"
    elsewhere = daemon_set("1500m", nodeSelector={TEAM: "red"})
    assert place(node(cpu="2"), elsewhere, pod("p")).existing == {"default/p": "n"}


def test_a_node_that_lacks_a_resource_takes_no_pod() -> None:
    crowded = [node(cpu="1"), running("r", "n", cpu="2")]
    empty = pod("p")
    empty["spec"]["containers"][0]["resources"] = {"requests": {"memory": "1Gi"}}
    placement = place(*crowded, empty)
    assert (placement.existing, len(placement.claims)) == ({}, 1)


def test_a_limit_that_is_exceeded_excludes_types_without_the_resource() -> None:
    existing = node(**{"karpenter.sh/nodepool": "general", "node.kubernetes.io/instance-type": "m5.xlarge"})
    existing["status"]["capacity"] = {**existing["status"]["capacity"], "example.com/gpu": "2"}
    big = pod("p", "6")
    assert place(existing, big, pools=(pool(limits={"example.com/gpu": "1"}),)).unschedulable == ["default/p"]
    assert place(existing, big, pools=(pool(limits={"example.com/gpu": "2"}),)).claims


def test_minimum_values_count_all_zones_of_the_types() -> None:
    flexible = pool(requirements=((ZONE, "In", ["zone-a", "zone-x"], 2),))
    assert place(pod("p"), pools=(flexible,)).claims, "the types are in three zones"


def test_reasons_name_limits_before_taints() -> None:
    taint = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}
    placement = place(pod("p"), pools=(pool(taints=[taint], limits={"cpu": "1"}), pool("x", taints=[taint])))
    assert placement.reasons == [
        "x: does not tolerate dedicated=a:NoSchedule; general: its limits leave no node",
    ]
    assert place(pod("p", affinity=near(ZONE), app="b")).reasons == [
        "general: spread over or affinity to other pods cannot be met"
    ]


def test_equal_pods_with_different_preferences_are_separate() -> None:
    def preferring(name: str, zone: str) -> dict[str, Any]:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
        return pod(name, affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})

    assert zones_of(place(preferring("p", "zone-b"), preferring("q", "zone-c"))) == [{"zone-b"}, {"zone-c"}]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("10.0.0.0", "TCP", 4443), ("10.0.0.0", "TCP", 4443), True),
        (("10.0.0.0", "TCP", 4443), ("0.0.0.0", "TCP", 4443), True),
        (("10.0.0.0", "TCP", 4443), ("::", "TCP", 4443), True),
        (("10.0.0.0", "TCP", 4443), ("10.0.0.0", "SCTP", 4443), False),
        (("10.0.0.0", "TCP", 4443), ("10.0.0.0", "TCP", 443), False),
        (("10.0.0.0", "TCP", 4443), ("10.0.0.1", "TCP", 4443), False),
    ],
)
def test_host_ports(first: tuple[str, str, int], second: tuple[str, str, int], *, expected: bool) -> None:
    assert share_ports([first], [second]) == share_ports([second], [first]) == expected
