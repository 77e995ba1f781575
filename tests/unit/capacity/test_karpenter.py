"""NodePools as input: what they allow, what Karpenter would launch, and mixes within their limits."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale import InputError
from kscale.ca import LoopInputs
from kscale.ca.loop_state import LoopState
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.group_templates import with_templates
from kscale.capacity.karpenter import (
    KarpenterChoice,
    KarpenterPlan,
    PoolOffers,
    groups_of_pools,
    karpenter_choice,
    node_pools_from,
)
from kscale.capacity.karpenter.node_pools import read_node_pools
from kscale.capacity.whatif import Base, scenarios_from, whatif
from kscale.cli.groups import has_node_pools

NOW = datetime(2027, 1, 1, tzinfo=UTC)
ZONE = "topology.kubernetes.io/zone"
CATALOGUE = b"""instance_type,arch,vcpu,memory_mib,gpu,gpu_name,ondemand_usd_per_hour_here,spot_usd_per_hour_here
m5.large,amd64,2,8192,0,,0.10,
m5.2xlarge,amd64,8,32768,0,,0.36,0.12
c6i.2xlarge,amd64,8,16384,0,,0.34,
m7g.2xlarge,arm64,8,32768,0,,0.30,
g5.2xlarge,amd64,8,32768,1,A10G,1.2,
Standard_D8s_v5,amd64,8,32768,0,,0.38,
"""


def pool(name: str = "general", *requirements: tuple[Any, ...], **spec: Any) -> dict[str, Any]:
    listed = [{"key": key, "operator": operator, "values": list(values)} for key, operator, *values in requirements]
    template: dict[str, Any] = {
        "requirements": listed,
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    }
    for field in ("taints", "startupTaints"):
        if field in spec:
            template[field] = spec.pop(field)
    labels = spec.pop("labels", {})
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": template}, **spec},
    }


def on_demand(*more: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [("karpenter.sh/capacity-type", "In", "on-demand"), *more]


def pod(name: str, cpu: str, memory: str = "1Gi", **spec: Any) -> dict[str, Any]:
    labels = spec.pop("labels", {})
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name, "labels": labels},
            "spec": {"containers": containers, **spec}, "status": {"phase": "Pending"}}  # fmt: skip


def choose(items: list[dict[str, Any]], *objects: dict[str, Any], zones: tuple[str, ...] = ()) -> KarpenterChoice:
    kinds = list(read_catalogue(CATALOGUE).values())
    return karpenter_choice(kscale.load(items), node_pools_from(objects), kinds, zones=zones)


def launched(choice: KarpenterChoice) -> dict[str, int]:
    return {f"{line.node_pool}/{line.type}": line.nodes for line in choice.lines}


def types_of(*requirements: tuple[Any, ...]) -> list[str]:
    converted = groups_of_pools(
        node_pools_from([pool("general", *on_demand(*requirements))]), list(read_catalogue(CATALOGUE).values())
    )
    return [offering.kind.name for offering in converted.offerings]


def test_requirements_choose_the_types() -> None:
    everything = ["m5.large", "m5.2xlarge", "c6i.2xlarge", "m7g.2xlarge", "g5.2xlarge"]
    assert types_of() == everything, "an EC2NodeClass launches no machines of Azure"
    aws = "karpenter.k8s.aws/instance-"
    for requirement, expected in (
        ((f"{aws}category", "In", "m"), ["m5.large", "m5.2xlarge", "m7g.2xlarge"]),
        ((f"{aws}category", "NotIn", "m", "g"), ["c6i.2xlarge"]),
        ((f"{aws}generation", "Gt", "5"), ["c6i.2xlarge", "m7g.2xlarge"]),
        ((f"{aws}generation", "Gte", "5"), everything),
        ((f"{aws}cpu", "Lt", "8"), ["m5.large"]),
        ((f"{aws}cpu", "Lte", "8"), everything),
        ((f"{aws}memory", "Gt", "16384"), ["m5.2xlarge", "m7g.2xlarge", "g5.2xlarge"]),
        ((f"{aws}gpu-count", "DoesNotExist"), [each for each in everything if each != "g5.2xlarge"]),
        ((f"{aws}gpu-count", "Exists"), ["g5.2xlarge"]),
        ((f"{aws}gpu-name", "In", "a10g"), ["g5.2xlarge"]),
        (("kubernetes.io/arch", "In", "arm64"), ["m7g.2xlarge"]),
        (("node.kubernetes.io/instance-type", "NotIn", "m5.large", "m5.2xlarge"), everything[2:]),
    ):
        assert types_of(requirement) == expected, requirement
    with pytest.raises(InputError, match="NodePool general: its requirements allow none"):
        types_of(("kubernetes.io/os", "In", "windows"))


def test_a_label_that_the_catalogue_does_not_say_is_an_assumption() -> None:
    pools = node_pools_from([pool("general", ("karpenter.k8s.aws/instance-hypervisor", "In", "nitro"))])
    converted = groups_of_pools(pools, list(read_catalogue(CATALOGUE).values()))
    (text,) = converted.assumptions
    assert text.startswith(
        "NodePool general: every type meets its requirement on karpenter.k8s.aws/instance-hypervisor"
    )


def test_pods_fill_a_node_that_becomes_the_cheapest_type_for_them() -> None:
    amd64 = ("kubernetes.io/arch", "In", "amd64")
    three = choose([pod(f"p{i}", "1") for i in range(3)], pool("general", *on_demand(amd64)))
    assert (launched(three), three.cost) == ({"general/c6i.2xlarge": 1}, 0.34), "two m5.large would cost 0.20"
    one = choose([pod("p", "1")], pool("general", *on_demand(amd64)))
    assert (launched(one), one.cost) == ({"general/m5.large": 1}, 0.1)
    assert launched(choose([pod("p", "1", "20Gi")], pool("general", *on_demand(amd64)))) == {"general/m5.2xlarge": 1}
    nothing = choose([pod("p", "9")], pool())
    assert (nothing.nodes, nothing.unschedulable) == (0, ["default/p"])


def test_spot_is_launched_where_it_is_allowed() -> None:
    choice = choose([pod("p", "3")], pool("general", ("karpenter.k8s.aws/instance-category", "In", "m", "c")))
    (line,) = choice.lines
    assert (line.type, line.capacity_type, line.price) == ("m5.2xlarge", "spot", 0.12)
    spec = {"nodeSelector": {"karpenter.sh/capacity-type": "on-demand"}}
    (line,) = choose([pod("p", "3", **spec)], pool()).lines
    assert (line.type, line.capacity_type) == ("m7g.2xlarge", "on-demand")


def test_existing_nodes_come_first() -> None:
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    existing = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}}
    choice = choose([existing, pod("a", "3"), pod("b", "2"), pod("c", "1")], pool("general", *on_demand()))
    assert (choice.on_existing, choice.on_new, choice.nodes) == (2, 1, 1)


def test_pools_are_tried_by_weight_within_their_limits() -> None:
    type_ = ("node.kubernetes.io/instance-type", "In", "m5.2xlarge")
    pods = [pod(f"p{i}", "6") for i in range(3)]
    first = pool("first", *on_demand(type_), weight=50, limits={"cpu": "16"})
    second = pool("second", *on_demand(type_))
    assert launched(choose(pods, second, first)) == {"first/m5.2xlarge": 2, "second/m5.2xlarge": 1}
    claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
             "metadata": {"name": "first-x", "labels": {"karpenter.sh/nodepool": "first"}},
             "status": {"capacity": {"cpu": "8", "memory": "32Gi"}}}  # fmt: skip
    assert launched(choose(pods, second, first, claim)) == {"first/m5.2xlarge": 1, "second/m5.2xlarge": 2}
    by_number = pool("first", *on_demand(type_), weight=50, limits={"nodes": "1"})
    assert launched(choose(pods, second, by_number)) == {"first/m5.2xlarge": 1, "second/m5.2xlarge": 2}
    equal = [pool("a", *on_demand(type_)), pool("b", *on_demand(type_))]
    assert launched(choose(pods, *equal)) == {"b/m5.2xlarge": 3}, "the name later in the alphabet"
    large = pool("first", *on_demand(), weight=50, limits={"cpu": "16"})
    assert launched(choose([pod(f"p{i}", "1", "20Gi") for i in range(3)], large, second))["second/m5.2xlarge"] == 1


def test_taints_need_tolerations_and_startup_taints_do_not() -> None:
    taint = {"key": "team", "value": "blue", "effect": "NoSchedule"}
    tainted = pool("tainted", *on_demand(), taints=[taint])
    assert choose([pod("p", "1")], tainted).unschedulable == ["default/p"]
    tolerating = pod("p", "1", tolerations=[{"key": "team", "operator": "Exists"}])
    assert choose([tolerating], tainted).nodes == 1
    assert choose([pod("p", "1")], pool("general", *on_demand(), startupTaints=[taint])).nodes == 1
    soft = pool("soft", *on_demand(), weight=9, taints=[{**taint, "effect": "PreferNoSchedule"}])
    (first,) = launched(choose([pod("p", "1")], soft, pool("general", *on_demand())))
    assert first.startswith("general/")
    assert choose([pod("p", "1")], soft).nodes == 1, "a preference is dropped in the end"


def test_labels_of_its_own_have_to_be_known_to_the_pool() -> None:
    labelled = pod("p", "1", nodeSelector={"team": "blue"})
    assert choose([labelled], pool("general", *on_demand())).unschedulable == ["default/p"]
    assert choose([labelled], pool("general", *on_demand(), labels={"team": "blue"})).nodes == 1
    several = pool("general", *on_demand(("team", "In", "blue", "red")))
    other = pod("q", "1", nodeSelector={"team": "red"})
    assert choose([labelled, other], several).nodes == 2, "one node cannot have both values"
    assert choose([pod("p", "1", nodeSelector={"team": "green"})], several).unschedulable == ["default/p"]


def test_terms_and_preferences_are_dropped_one_at_a_time() -> None:
    def term(key: str, value: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}

    arch = "kubernetes.io/arch"
    required = {"nodeSelectorTerms": [term(arch, "riscv64"), term(arch, "arm64")]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert launched(choose([pod("p", "1", affinity=affinity)], pool("g", *on_demand()))) == {"g/m7g.2xlarge": 1}
    preferred = [{"weight": 1, "preference": term(arch, "arm64")}, {"weight": 9, "preference": term(arch, "amd64")}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert launched(choose([pod("p", "3", affinity=affinity)], pool("g", *on_demand()))) == {"g/c6i.2xlarge": 1}
    only_arm = pool("g", *on_demand((arch, "In", "arm64")))
    assert launched(choose([pod("p", "3", affinity=affinity)], only_arm)) == {"g/m7g.2xlarge": 1}


def test_a_malformed_term_of_a_pod_is_met_by_no_node() -> None:
    for term in (
        {"matchExpressions": [{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["many"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    ):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        malformed = pod("p", "1", affinity={"nodeAffinity": required})
        assert choose([malformed], pool("g", *on_demand())).unschedulable == ["default/p"]


def test_minimum_values_have_to_stay_possible() -> None:
    flexible = pool("general", *on_demand())
    requirement = {
        "key": "node.kubernetes.io/instance-type",
        "operator": "In",
        "values": ["m5.large", "m5.2xlarge", "m7g.2xlarge"],
        "minValues": 2,
    }
    flexible["spec"]["template"]["spec"]["requirements"].append(requirement)
    assert launched(choose([pod("p", "3")], flexible)) == {"general/m7g.2xlarge": 1}
    amd64 = {"kubernetes.io/arch": "amd64"}
    assert choose([pod("p", "3", nodeSelector=amd64)], flexible).unschedulable == ["default/p"]
    # A second pod would leave the first node one type only.
    assert choose([pod("p", "1"), pod("q", "1", nodeSelector=amd64)], flexible).nodes == 1


def test_pods_that_stay_apart_get_nodes_of_their_own() -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}]}}  # fmt: skip
    pods = [pod(f"p{i}", "1", labels={"app": "db"}, affinity=apart) for i in range(3)]
    assert choose(pods, pool("g", *on_demand())).nodes == 3
    assert choose([*pods, pod("web", "1", labels={"app": "web"})], pool("g", *on_demand())).nodes == 3
    spread = [{"maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
               "labelSelector": {"matchLabels": {"app": "db"}}}]  # fmt: skip
    pods = [pod(f"p{i}", "1", labels={"app": "db"}, topologySpreadConstraints=spread) for i in range(5)]
    assert choose(pods, pool("g", *on_demand())).nodes == 3
    ports = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}],
                             "resources": {"requests": {"cpu": "1"}}}]}  # fmt: skip
    assert choose([{**pod(f"p{i}", "1"), "spec": ports} for i in range(2)], pool("g", *on_demand())).nodes == 2


def test_spread_over_zones_chooses_the_emptiest() -> None:
    spread = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
               "labelSelector": {"matchLabels": {"app": "web"}}}]  # fmt: skip
    pods = [pod(f"p{i}", "6", labels={"app": "web"}, topologySpreadConstraints=spread) for i in range(6)]
    choice = choose(pods, pool("g", *on_demand((ZONE, "In", "a", "b", "c"))))
    assert {line.zone: line.nodes for line in choice.lines} == {"a": 2, "b": 2, "c": 2}
    room = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {ZONE: "a"}},
            "status": {"allocatable": room}}  # fmt: skip
    running = [{**pod(f"r{i}", "1m", "1Mi", labels={"app": "web"}), "status": {"phase": "Running"}} for i in range(2)]
    for each in running:
        each["spec"] = {**each["spec"], "nodeName": "n"}
    choice = choose([node, *running, *pods[:4]], pool("g", *on_demand((ZONE, "In", "a", "b"))))
    assert {line.zone: line.nodes for line in choice.lines} == {"b": 3, "a": 1}


def test_unmodelled_fields_are_named() -> None:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    choice = choose([pod("p", "1", volumes=[volume])], pool("g", *on_demand()))
    assert choice.unmodelled == ["volumes (zones, limits of nodes): 1 pods"]


def test_a_mix_keeps_to_the_limits_of_a_pool_together() -> None:
    cluster = kscale.load([pod(f"p{i}", "6") for i in range(4)])
    pools = node_pools_from([pool("g", *on_demand((ZONE, "In", "a", "b")), limits={"nodes": "3"})])
    converted = groups_of_pools(pools, list(read_catalogue(CATALOGUE).values()))
    assert [(each.resource, each.most) for each in converted.limits] == [("nodes", 3)]
    groups = with_templates(cluster, cluster.snapshot(), converted.groups)
    options = kscale.MixOptions(shared_limits=converted.limits)
    plan = kscale.mix(cluster, groups, options=options)
    assert (plan.node_count, plan.unschedulable_count, plan.bound.cost) == (3, 1, None)
    three = kscale.load([pod(f"p{i}", "6") for i in range(3)])
    plan = kscale.mix(three, groups, options=options)
    assert (plan.node_count, plan.unschedulable_count, plan.cost, plan.bound.cost) == (3, 0, 0.9, 0.9)


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (pool("g", ("a", "Near", "x")), 'operator "Near" is not one of In, NotIn, Exists'),
        (pool("g", ("a", "In")), "In needs at least one value"),
        (pool("g", ("a", "Gt", "x")), "Gt needs one value, an integer from 0 on"),
        (pool("g", ("a", "Lte", "1", "2")), "Lte needs one value"),
        (pool("g", ("a", "Exists", "x")), "Exists has no values"),
        (pool("g", ("kubernetes.io/hostname", "In", "n1")), "cannot be required of nodes that do not exist yet"),
        (pool("g", weight=101), "spec.weight: 101 is not between 1 and 100"),
        (pool("g", replicas=2), "a NodePool with a fixed number of nodes is not supported"),
        (pool("g", limits={"cpu": "-1"}), "spec.limits[cpu]: -1 is negative"),
        (pool("g", disruption={"consolidateAfter": "soon"}), '"soon" is neither a duration nor Never'),
        (pool("g", disruption={"consolidationPolicy": "Always"}), '"Always" is not one of WhenEmpty'),
        (pool("g", disruption={"budgets": [{"nodes": "101%"}]}), "neither a number nor a percentage"),
        (pool("g", disruption={"budgets": [{"nodes": "1", "schedule": "@daily"}]}), "schedule and duration need"),
        (pool("g", taints=[{"key": "a", "effect": "Never"}]), '"a:Never" is no taint'),
        ({"kind": "Pod", "metadata": {"name": "p"}}, "kind Pod: NodePool, NodeClaim and EC2NodeClass"),
    ],
)
def test_mistakes_in_a_pool_are_named(item: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as raised:
        node_pools_from([item], source="pools.yaml")
    assert text in str(raised.value)


def test_pools_of_a_file(tmp_path: Path) -> None:
    class_ = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [pool("a"), class_]}
    path = tmp_path / "pools.yaml"
    path.write_text(f"{json.dumps(listed)}\n---\n{json.dumps(pool('b', weight=7))}\n")
    assert has_node_pools(path)
    pools = read_node_pools(path)
    assert ([each.name for each in pools.pools], pools.classes) == (["b", "a"], ["EC2NodeClass/default"])
    path.write_text(json.dumps([{"id": "own", "template": {}}]))
    assert not has_node_pools(path)
    other = {**class_, "metadata": {"name": "other"}}
    with pytest.raises(InputError, match="there is no EC2NodeClass default in the file"):
        node_pools_from([pool("a"), other])
    with pytest.raises(InputError, match="the name comes twice"):
        node_pools_from([pool("a"), pool("a")])
    with pytest.raises(InputError, match="no NodePool in it"):
        node_pools_from([class_])


def offers_of(*objects: dict[str, Any]) -> PoolOffers:
    pools = node_pools_from(objects)
    return PoolOffers(pools, groups_of_pools(pools, list(read_catalogue(CATALOGUE).values())))


def unschedulable(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {**pod(name, cpu, **spec), "status": {"phase": "Pending", "conditions": [refused]}}


def test_scale_up_with_node_pools_is_karpenters() -> None:
    cluster = kscale.load([unschedulable("a", "3"), unschedulable("b", "3"), pod("new", "1")])
    amd64 = ("kubernetes.io/arch", "In", "amd64")
    offers = offers_of(pool("general", *on_demand(amd64)))
    plan = kscale.scale_up(cluster, offers, now=0)
    assert isinstance(plan, KarpenterPlan)
    (claim,) = plan.claims
    assert (claim.type, claim.group, claim.types) == ("c6i.2xlarge", "general/c6i.2xlarge/on-demand", 3)
    assert (claim.pods, plan.untried, plan.provisioner) == (["default/a", "default/b"], ["default/new"], "karpenter")
    bypassed = AutoscalingOptions(bypassed_scheduler_names=["default-scheduler"])
    assert kscale.scale_up(cluster, offers, now=0, options=bypassed).claims[0].pods[-1] == "default/new"
    only = kscale.scale_up(cluster, offers, now=0, inputs=LoopInputs(pods=["default/b"]))
    assert [each.pods for each in only.claims] == [["default/b"]]
    with pytest.raises(InputError, match="Karpenter's rule"):
        kscale.scale_up(cluster, offers, now=0, state=LoopState())
    with pytest.raises(InputError, match="no pod 'default/none' in the snapshot"):
        kscale.scale_up(cluster, offers, now=0, inputs=LoopInputs(pods=["default/none"]))


def test_pods_of_daemon_sets_take_room_on_new_nodes() -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": containers}}
    agent = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "kube-system"},
             "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template}}  # fmt: skip
    offers = offers_of(pool("general", *on_demand(("kubernetes.io/arch", "In", "amd64"))))
    for cluster in (kscale.load([unschedulable("a", "1"), agent]), kscale.load([unschedulable("a", "1")])):
        types = {kscale.scale_up(each, offers, now=0).claims[0].type for each in (cluster, cluster.snapshot())}
        assert types == ({"c6i.2xlarge"} if list(cluster.all("DaemonSet")) else {"m5.large"})


def test_a_plan_says_why_no_node_pool_takes_a_pod() -> None:
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    type_ = ("node.kubernetes.io/instance-type", "In", "m5.large")
    pools = [
        pool("a", *on_demand(), taints=[taint]),
        pool("b", *on_demand(type_), limits={"cpu": "1"}),
        pool("c", *on_demand(type_)),
        pool("d", *on_demand(), limits={"cpu": "4"}),
    ]
    items = [unschedulable("big", "6"), unschedulable("arm", "1", nodeSelector={"kubernetes.io/arch": "sparc"})]
    plan = kscale.scale_up(kscale.load(items), offers_of(*pools), now=0)
    reasons = dict(zip(plan.choice.unschedulable, plan.reasons, strict=True))
    assert reasons["default/big"] == (
        "d: its limits leave no node that is large enough; c: no type is large enough; "
        "b: its limits leave no node; a: does not tolerate team=x:NoSchedule"
    )
    assert "c: no type meets the pod's requirements" in reasons["default/arm"]


def test_scenarios_with_node_pools_are_decided_by_karpenters_rule() -> None:
    cluster = kscale.load([unschedulable("a", "3"), unschedulable("b", "3")])
    offers = offers_of(pool("general", *on_demand(("kubernetes.io/arch", "In", "amd64"))))
    base = Base(cluster, offers.converted.groups, NOW, offers=offers)

    def rows(*edits: dict[str, Any], question: str = "scale-up") -> list[dict[str, int]]:
        scenarios = [{"name": f"s{i}", "question": question, "edits": [edit]} for i, edit in enumerate(edits)]
        report = whatif(base, scenarios_from({"scenarios": scenarios}))
        assert report.provisioner == "karpenter"
        return [row.groups for row in (*report.baselines, *report.scenarios)]

    assert rows(
        {"groups": {"remove": ["general/c6i*"]}},
        {"groups": {"set": {"general/m5.2xlarge/*": {"price": 0.01}}}},
        {"prices": {"scale": {"general/c6i*": "x2"}}},
        {"requests": {"cpu": "x0.25"}},
    ) == [
        {"general/c6i.2xlarge/on-demand": 1},
        {"general/m5.2xlarge/on-demand": 1},
        {"general/m5.2xlarge/on-demand": 1},
        {"general/m5.2xlarge/on-demand": 1},
        {"general/m5.large/on-demand": 1},
    ]
    for edit, text in (
        ({"flags": {"expander": "price"}}, "no effect on Karpenter's rule"),
        ({"groups": {"set": {"general/*": {"max": 3}}}}, "only price can be set"),
        ({"groups": {"add": [{"id": "x"}]}}, "Karpenter's rule decides"),
    ):
        with pytest.raises(InputError, match=text):
            rows(edit)


def test_preferences_count_on_existing_nodes_before_they_are_dropped() -> None:
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    labels = {"topology.kubernetes.io/zone": "a", "kubernetes.io/hostname": "n"}

    def existing(taints: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": labels},
                "spec": {"taints": list(taints)}, "status": {"allocatable": room, "capacity": room}}  # fmt: skip

    def preferring(zone: str) -> dict[str, Any]:
        expressions = [{"key": ZONE, "operator": "In", "values": [zone]}]
        preferred = [{"weight": 1, "preference": {"matchExpressions": expressions}}]
        return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}

    soft = [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {"app": "x"}}}]  # fmt: skip
    pools = (pool("general", *on_demand(("kubernetes.io/arch", "In", "amd64"))),)
    for pods, taints, expected in (
        ([pod("p", "1", **preferring("a"))], (), (1, 0)),
        ([pod("p", "1", **preferring("b"))], (), (0, 1)),
        ([pod("p", "9", **preferring("b")), pod("q", "1", **preferring("c"))], (), (1, 0)),
        ([pod("p", "1")], ({"key": "k", "effect": "PreferNoSchedule"},), (0, 1)),
        (
            [pod(f"p{i}", "1", labels={"app": "x"}, topologySpreadConstraints=soft) for i in range(2)],
            (),
            (1, 1),
        ),
    ):
        choice = choose([existing(taints), *pods], *pools, zones=("a", "b"))
        assert (choice.on_existing, choice.nodes) == expected, pods
