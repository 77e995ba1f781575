"""Scenarios: what each edit does, what a row says, and that sharing decisions changes none."""

from __future__ import annotations

import json
import pickle
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Barrier, Thread
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec.structs import replace

import kscale
from examples import is_nightly
from json_schemas import validate
from kscale import InputError
from kscale.ca.group_inputs import resolve_groups
from kscale.ca.loop_context import LoopInputs
from kscale.ca.options import AutoscalingOptions
from kscale.capacity.catalogue import read_catalogue
from kscale.capacity.generate import generate
from kscale.capacity.group_templates import with_templates
from kscale.capacity.groups import groups_from, recognise_groups
from kscale.capacity.losses import smaller
from kscale.capacity.whatif import Base, ScenarioRow, parse_condition, read_scenarios, scenarios_from, whatif
from kscale.capacity.whatif.edits import apply_edit
from kscale.capacity.whatif.questions import DecisionCache, Facts
from kscale.capacity.whatif.scenarios import READ, Question, combine_variations, scenarios_schema_text
from kscale.capacity.whatif.world import Nodes, SharedCluster, World
from kscale.cli.commands.whatif import whatif_view
from kscale.objects.node_selectors import INSTANCE_TYPE
from kscale.objects.nodegroup import Groups, NodeGroup
from kscale.objects.pod_owners import controller_of
from kscale.simulation import Simulator
from kscale.snapshot.caches import collector_paused

NOW = datetime(2027, 1, 1, tzinfo=UTC)
EXAMPLES = Path(__file__).parents[3] / "examples"


def node(name: str, zone: str, cpu: str = "4", pool: str = "small") -> dict[str, Any]:
    room = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    labels = {"pool": pool, "topology.kubernetes.io/zone": zone, "node.kubernetes.io/instance-type": "m5.xlarge"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": room, "allocatable": room, "conditions": [ready]}}  # fmt: skip


def pod(name: str, cpu: str, on: str = "", owner: str = "", **labels: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name, "labels": labels}
    if owner:
        kind, _, who = owner.partition("/")
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": who, "uid": who, "controller": True}
        metadata["ownerReferences"] = [reference]
    requests = {"cpu": cpu, "memory": "1Gi"}
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Running"} if on else {"phase": "Pending", "conditions": [unschedulable]}}  # fmt: skip


def replica_set(name: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}}}  # fmt: skip


CLUSTER = [
    node("a1", "a"),
    node("a2", "a"),
    node("b1", "b"),
    node("big1", "b", "16", "big"),
    replica_set("web"),
    pod("web-1", "3", "a1", "ReplicaSet/web", app="web"),
    pod("web-2", "3", "a2", "ReplicaSet/web", app="web"),
    pod("agent", "1", "a1", "DaemonSet/agent"),
    pod("db", "3", "b1", app="db"),
    pod("huge", "15", "big1", app="huge"),
    pod("waits-1", "3", app="batch"),
    pod("waits-2", "3", app="batch"),
]
GROUPS = [
    {"id": "small", "max": 10, "nodeSelector": {"pool": "small"}, "price": 0.2},
    {"id": "big", "max": 10, "nodeSelector": {"pool": "big"}, "price": 0.9},
]


def base(**more: Any) -> Base:
    cluster = kscale.load(CLUSTER)
    return Base(cluster, groups_from(GROUPS), NOW, **more)


def rows(*edits: dict[str, Any], question: str = "scale-up", **more: Any) -> tuple[ScenarioRow, ScenarioRow]:
    scenarios = scenarios_from([{"name": "other", "edits": list(edits), "question": question}])
    report = whatif(base(**more), scenarios)
    return report.baselines[0], report.scenarios[0]


def row(*edits: dict[str, Any], **more: Any) -> ScenarioRow:
    return rows(*edits, **more)[1]


def test_baseline_equals_scale_up() -> None:
    before, same = rows()
    plan = kscale.scale_up(kscale.load(CLUSTER), groups_from(GROUPS), now=NOW)
    assert (plan.chosen, plan.new_node_count) == ("small", 2)
    assert (before.nodes, before.cost, before.pending, before.homeless) == (6, 0.2 * 5 + 0.9, 0, 0)
    assert msgspec.structs.replace(same, name="baseline") == before


def test_groups_and_prices() -> None:
    assert row({"groups": {"set": {"small": {"price": 0.1}}}}).cost == pytest.approx(0.1 * 5 + 0.9)
    dearer = row({"prices": {"scale": {"*": "x2"}}})
    assert (dearer.cost, dearer.differs) == (pytest.approx(2 * 1.9), "")
    capped = row({"groups": {"set": {"small": {"max": 4}}}})
    assert (capped.nodes, capped.differs) == (5, "small by 1 for 1 pod (baseline: small by 2 for 2 pods)")
    removed = row({"groups": {"remove": ["small"]}})
    assert (removed.nodes, removed.cost) == (5, pytest.approx(0.2 * 3 + 0.9 * 2)), (
        "its nodes stay, and cost what they cost"
    )
    assert removed.differs == "big by 1 for 2 pods (baseline: small by 2 for 2 pods)"
    room = {"cpu": "6", "memory": "64Gi", "pods": "9"}
    entry = {"id": "new", "price": 0.01, "template": {"status": {"capacity": room, "allocatable": room}}}
    added = row({"groups": {"add": [entry]}}, {"flags": {"expander": "price"}})
    assert added.differs.startswith("new by 1 for 2 pods")


def test_prices_and_machines_of_a_catalogue() -> None:
    aws = EXAMPLES / "data" / "aws.csv"
    assert row({"prices": {"catalogue": str(aws), "region": "us-east-1"}}).cost == pytest.approx(0.192 * 6)
    changed = row({"groups": {"set": {"small": {"instanceType": "m5.2xlarge"}}}}, catalogue=read_catalogue(aws))
    assert changed.differs.startswith("small by 1 for 2 pods")
    assert changed.cost == pytest.approx(0.2 * 3 + 0.384 + 0.9), "the nodes that run are what they are"


def test_flags() -> None:
    assert row({"flags": {"max-nodes-total": 5}}).nodes == 5
    assert row({"flags": {"expander": "least-nodes", "max-nodes-per-scaleup": 0}}).nodes == 5
    flags = {"max-nodes-total": 0, "skip-nodes-with-local-storage": False}
    edits = [{"flags": {name: value}} for name, value in flags.items()]
    for question, edit in zip(("scale-up", "scale-down"), edits, strict=True):
        report = whatif(base(), scenarios_from([{"name": "other", "edits": [edit], "question": question}]))
        assert f"flags {json.dumps(edit['flags'], separators=(',', ':'))}" in report.explain("other")


def test_losses_remove_nodes_and_count_homeless_pods() -> None:
    lost = row({"lose": {"zone": ["a"]}})
    assert (lost.nodes, lost.pending, lost.homeless) == (2 + 1, 0, 0)
    assert lost.differs == "big by 1 for 4 pods (baseline: small by 2 for 2 pods)", "the agent goes with its node"
    homeless = row({"lose": {"node": ["a1"]}}, {"groups": {"remove": ["*"]}})
    assert (homeless.nodes, homeless.pending, homeless.homeless) == (3, 3, 1)
    pool = row({"pods": {"remove": "app=batch"}}, {"lose": {"pool": ["big"], "rebuy": True}})
    assert (pool.nodes, pool.homeless) == (3 + 1, 0), "the group is modelled on the node that it had"
    assert pool.cost == pytest.approx(0.2 * 3 + 0.9)
    every = row({"lose": {"pool": ["*"]}}, {"groups": {"remove": ["*"]}})
    assert every.nodes == 0, "a pattern means all groups that it fits"


ZONE = "topology.kubernetes.io/zone"
IN_ZONE_A = {"metadata": {"labels": {ZONE: "a"}}, "status": node("t", "a")["status"]}
ZONAL = [
    {"id": zone, "max": 10, "price": price, "nodeSelector": {"pool": "small", ZONE: zone}}
    for zone, price in (("a", 0.1), ("b", 0.2))
]


@pytest.mark.parametrize("question", ["scale-up", "estimate", "mix", "simulate"])
@pytest.mark.parametrize(
    ("lost", "groups"),
    [
        ({"zone": ["a"]}, ZONAL),
        ({"pool": ["a"]}, ZONAL),
        ({"pool": ["small"]}, GROUPS),
        (
            {"zone": ["a"]},
            [
                {**ZONAL[0], "template": IN_ZONE_A},
                ZONAL[1],
            ],
        ),
    ],
)
def test_lost_nodes_are_not_replaced_by_default(
    question: str, lost: dict[str, Any], groups: list[dict[str, Any]]
) -> None:
    name = groups[0]["id"]
    other = groups[1]["id"]
    where = Base(kscale.load(CLUSTER), groups_from(groups), NOW, AutoscalingOptions(expander="price"), bound=True,
                 simulate=Simulator())  # fmt: skip
    texts = [{"name": text, "edits": [{"lose": {**lost, "rebuy": rebuy}}], "question": question}
             for text, rebuy in (("lost", False), ("again", True))]  # fmt: skip
    closed, again = whatif(where, scenarios_from(texts)).scenarios
    assert closed.groups.get(name, 0) <= 0, closed
    assert closed.groups.get(other, 0) > 0, closed
    if question != "simulate" and groups is not GROUPS:
        assert again.groups.get(name, 0) > 0, again
    if closed.bound is not None and closed.cost is not None:
        assert closed.bound <= closed.cost


def test_lost_nodes_are_replaced() -> None:
    lost = row({"lose": {"node": ["a1", "a2"]}})
    assert lost.groups == {"big": 1}
    nodes = row({"pods": {"remove": "app=batch"}}, {"lose": {"node": ["big1"]}})
    assert nodes.groups == {"big": 1}


def test_a_group_with_nodes_elsewhere_grows_there() -> None:
    """It is modelled on a node in the lost zone, and has another one."""
    groups = [{**GROUPS[0], "fromNode": "a1", "labels": {"own": "label"}}]
    where = Base(kscale.load(CLUSTER), groups_from(groups), NOW)
    edits = [{"lose": {"zone": ["a"]}}]
    lost = whatif(where, scenarios_from([{"name": "lost", "edits": edits}])).scenarios[0]
    assert lost.groups == {"small": 4}
    world = where.world()
    for edit in scenarios_from([{"name": "lost", "edits": edits}])[0].edits:
        world = apply_edit(world, edit, Path("."), Question.SCALE_UP)
    labels = world.templates["small"].node.metadata.labels or {}
    assert (labels[ZONE], labels["own"]) == ("b", "label")


def test_edits_of_lost_groups_are_named_errors() -> None:
    lost = {"lose": {"zone": ["a"]}}
    where = Base(kscale.load(CLUSTER), groups_from(ZONAL), NOW)
    entry = {
        "id": "new",
        "price": 1,
        "template": IN_ZONE_A,
    }
    for edit, text in (
        (
            {"groups": {"set": {"a": {"max": 20}}}},
            'there is no node group "a" any more: it was removed, or lost without',
        ),
        ({"groups": {"add": [entry]}}, 'node group new: zone "a" is lost'),
    ):
        with pytest.raises(InputError, match=text):
            whatif(where, scenarios_from([{"name": "lost", "edits": [lost, edit]}]))
        whatif(where, scenarios_from([{"name": "again", "edits": [{"lose": {"zone": ["a"], "rebuy": True}}, edit]}]))


@pytest.mark.parametrize("question", [each for each in Question if each is not Question.SIMULATE])
def test_a_cluster_that_loses_every_group_has_an_answer(question: str) -> None:
    before, lost = rows({"lose": {"pool": ["*"]}}, question=question, bound=True)
    assert (lost.nodes, lost.groups) == (0, {})
    assert lost.pending == 6
    assert before.nodes > 0


def test_a_row_says_which_groups_grow_and_shrink() -> None:
    before, cheap = rows({"groups": {"set": {"small": {"price": 0.1}}}})
    assert before.groups == cheap.groups == {"small": 2}
    assert row(question="mix").groups == {"small": 2}
    assert row(question="estimate").groups == {"small": 2}
    down = row({"pods": {"remove": "app=web"}}, {"pods": {"remove": "app=batch"}}, question="scale-down")
    assert (down.groups, down.nodes) == ({"small": -1}, 3)


def test_patterns_scale_workloads() -> None:
    world = base().world()

    def sizes(scale: dict[str, Any]) -> dict[str, int]:
        (scenario,) = scenarios_from([{"name": "s", "edits": [{"pods": {"scale": scale}}]}])
        changed = apply_edit(world, scenario.edits[0], Path("."), Question.SCALE_UP)
        return dict(Counter(controller.name for pod in changed.place.cluster.pods()
                            if (controller := controller_of(pod.metadata)) is not None))  # fmt: skip

    before = sizes({"shop/ReplicaSet/web": 2})
    assert before["agent"] == 1
    assert sizes({"*": "x1.4"}) == {**before, "web": 3}, "no second agent on a node"
    assert sizes({"shop/*/w?b": 5}) == {**before, "web": 5}
    assert sizes({"*": "x3", "shop/ReplicaSet/web": 1}) == {**before, "web": 1}, "the name wins"
    for scale, text in (
        ({"cart*": 3}, 'pods.scale: "cart\\*" has no pods; a workload is named namespace/kind/name'),
        ({"shop/*": 3, "*": 4}, 'pods.scale: both "shop/\\*" and "\\*" match shop/ReplicaSet/web'),
    ):
        with pytest.raises(InputError, match=text):
            sizes(scale)
    assert [each.edits[0].pods.scale for each in combine_variations(["pods.*=x1.4"]) if each.edits[0].pods] == [
        {"*": "x1.4"}
    ]


def test_changed_instance_type_reports_kept_nodes_and_rebuild_cost() -> None:
    aws = read_catalogue(EXAMPLES / "data" / "aws.csv")
    edit = {"groups": {"set": {"small": {"instanceType": "m5.2xlarge"}}}}
    changed = row(edit, catalogue=aws)
    assert changed.notes == ["small: 3 nodes that run keep their type and price, only new ones are m5.2xlarge"]
    before, rebuilt = rows(edit, question="rebuild", catalogue=aws)
    assert rebuilt.notes == []
    old = kscale.mix(kscale.load(CLUSTER), described(GROUPS), pods="all")
    assert (before.nodes, before.cost, before.bound) == (old.node_count, old.cost, old.bound.cost)
    assert before.groups == {name: count for name in ("small", "big")
                             if (count := old.offers.get(name, 0) - {"small": 3, "big": 1}[name])}  # fmt: skip
    assert rebuilt.cost == pytest.approx(2 * 0.9)
    assert rebuilt.groups == {"small": -3, "big": 1}
    view = whatif_view(whatif(base(catalogue=aws), scenarios_from([{"name": "big", "edits": [edit]}])))
    assert view.footer == [
        "big: small: 3 nodes that run keep their type and price, only new ones are m5.2xlarge.",
        "The question rebuild asks what all pods would cost on new nodes.",
    ]


def described(groups: list[dict[str, Any]]) -> list[NodeGroup]:
    cluster = kscale.load(CLUSTER)
    return with_templates(cluster, cluster.snapshot(dra=True), groups_from(groups))


def test_pods_and_requests(tmp_path: Path) -> None:
    assert row({"pods": {"scale": {"shop/ReplicaSet/web": 6}}}).nodes == 10
    assert row({"pods": {"scale": {"shop/ReplicaSet/web": "x1.5"}}}).differs.startswith("small by 3 for 3 pods")
    once, twice = ({"pods": {"scale": {"shop/ReplicaSet/web": size}}} for size in (5, 8))
    assert row(once, twice).nodes == row(twice).nodes, "the last word counts"
    assert row({"pods": {"scale": {"shop/ReplicaSet/web": 0}}}).nodes == 4, "the waiting pods take the room"
    assert row({"pods": {"remove": "app=batch"}}).nodes == 4
    (tmp_path / "job.json").write_text(json.dumps(pod("new", "3")))
    assert row({"pods": {"add": ["job.json"]}}, folder=tmp_path).nodes == 7
    assert row({"requests": {"cpu": "x0.1"}}).nodes == 4
    assert row({"requests": {"cpu": "10", "selector": "app=batch"}}).nodes == 6
    nothing = {"target": None}
    one = {"namespace": "shop", "workload": "ReplicaSet/web", "apiVersion": "apps/v1", "container": "c", "vpa": "web",
           "implied": True, "pods": 2, "samples": 9, "cpu": {"target": 500}, "memory": nothing}  # fmt: skip
    advice = {"containers": [one], "strategy": "vpa", "now": None, "requestedMillicores": 0, "requestedBytes": 0,
              "changeMillicores": 0, "changeBytes": 0, "counts": {}, "notes": []}  # fmt: skip
    (tmp_path / "advice.json").write_text(json.dumps(advice))
    assert row({"requests": {"recommendation": "advice.json"}}, folder=tmp_path).nodes == 5


def test_the_scheduler(tmp_path: Path) -> None:
    config: dict[str, Any] = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    config["profiles"] = [{"plugins": {"filter": {"disabled": [{"name": "NodeResourcesFit"}]}}}]
    (tmp_path / "scheduler.json").write_text(json.dumps(config))
    free = row({"scheduler": "scheduler.json"}, folder=tmp_path)
    assert (free.nodes, free.differs) == (
        4,
        "2 pods fit on nodes that exist (baseline: 0 pods fit on nodes that exist)",
    )


def test_other_questions() -> None:
    down = row({"requests": {"cpu": "x0.1"}}, question="scale-down")
    assert down.nodes < 4
    assert "(baseline: " in down.differs
    estimated = row({"groups": {"remove": ["small"]}}, question="estimate")
    assert (estimated.nodes, estimated.pending) == (5, 0)
    before, mixed = rows({"prices": {"scale": {"big": "x0.1"}}}, question="mix")
    assert (before.cost, mixed.cost) == (pytest.approx(1.5 + 0.4), pytest.approx(0.6 + 0.09 * 2))
    assert mixed.bound == pytest.approx(mixed.cost)


@pytest.mark.parametrize(
    ("question", "flags"),
    [
        ("scale-down", {"scale-down-utilization-threshold": 0.9, "skip-nodes-with-custom-controller-pods": False}),
        ("estimate", {"startup-taint": "a"}),
        ("mix", {"force-ds": True}),
    ],
)
def test_flags_that_a_question_reads(question: str, flags: dict[str, Any]) -> None:
    smaller = {"requests": {"cpu": "1600m", "selector": "app=web"}}
    changed = row(smaller, {"flags": flags}, question=question)
    if question == "scale-down":
        assert changed.nodes < row(smaller, question=question).nodes, "two thirds of a1 are used"
    with pytest.raises(InputError, match=f"max-nodes-total has no effect: the question {question} does not depend on"):
        rows({"flags": {"max-nodes-total": 5}}, question=question)


def test_each_flag_of_a_question_is_read() -> None:
    class Told(AutoscalingOptions, frozen=True, kw_only=True, dict=True):
        def __getattribute__(self, name: str) -> Any:
            reported.add(name)
            return super().__getattribute__(name)

    reported: set[str] = set()
    for question, fields in READ.items():
        reported.clear()
        result = DecisionCache().decide(base(options=Told()).world(), question)
        assert result[0].nodes
        assert fields - reported <= {"blocking_system_pod_distruption_timeout"}, (
            "read where a system pod holds its node"
        )


def test_prices_of_a_catalogue_for_groups_that_have_none() -> None:
    bare = groups_from([{key: value for key, value in group.items() if key != "price"} for group in GROUPS])
    catalogue = read_catalogue(EXAMPLES / "data" / "aws.csv")
    result = whatif(Base(kscale.load(CLUSTER), bare, NOW, catalogue=catalogue), scenarios_from([{"name": "other"}]))
    assert result.baselines[0].cost == pytest.approx(0.192 * 6)


def test_nodes_that_run_keep_their_price() -> None:
    catalogue = read_catalogue(EXAMPLES / "data" / "aws.csv")
    bigger = {"groups": {"set": {"small": {"instanceType": "m5.2xlarge"}}}}
    edit_lists = [
        [bigger, {"prices": {"scale": {"small": "x0.5"}}}],
        [bigger, {"groups": {"set": {"small": {"price": 1.0}}}}],
        [bigger, {"prices": {"catalogue": str(EXAMPLES / "data" / "aws.csv")}}],
        [bigger, {"groups": {"remove": ["small"]}}],
        [{"groups": {"remove": ["small"]}},
         {"groups": {"add": [{"id": "small", "max": 9, "nodeSelector": {"pool": "small"}, "price": 0.3}]}}],
    ]  # fmt: skip
    costs = [row(*edits, catalogue=catalogue).cost for edits in edit_lists]
    of_big = 0.192  # which the catalogue takes for an m5.xlarge by its label
    assert costs == pytest.approx(
        [
            0.1 * 3 + 0.192 + 0.9,
            0.2 * 3 + 1.0 + 0.9,
            0.192 * 3 + 0.384 + of_big,
            0.2 * 3 + 0.9 * 2,
            0.2 * 3 + 0.3 * 2 + 0.9,
        ]
    )


def test_prices_do_not_depend_on_how_edits_are_written() -> None:
    aws = str(EXAMPLES / "data" / "aws.csv")
    removed = {"groups": {"remove": ["small"]}}
    for prices in ({"catalogue": aws, "region": "us-east-1"}, {"scale": {"small": "x3"}}, {"scale": {"*": "x3"}}):
        costs = [row(*edits).cost for edits in ([removed, {"prices": prices}], [{"prices": prices}, removed])]
        assert costs[0] == pytest.approx(costs[1])
    kind, price = {"instanceType": "m5.2xlarge"}, {"price": 5.0}
    written = [[{**kind, **price}], [kind, price]]
    costs = [
        row(*({"groups": {"set": {"small": change}}} for change in changes), catalogue=read_catalogue(aws)).cost
        for changes in written
    ]
    assert costs == pytest.approx([0.2 * 3 + 5.0 + 0.9] * 2), "only the new node is of that type, and costs that"


def test_homeless_pods_of_an_estimate() -> None:
    edits = {"lose": {"node": ["a1"]}}, {"groups": {"remove": ["*"]}}
    assert row(*edits, question="estimate").homeless == row(*edits).homeless == 1
    retaken = row({"lose": {"node": ["a1"]}}, question="estimate")
    assert (retaken.homeless, retaken.pending) == (0, 0)


def test_edited_requests_replace_every_kind_of_request() -> None:
    asking = pod("init", "100m")
    asking["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "20"}}}]
    all_requests = pod("whole", "100m")
    all_requests["spec"]["resources"] = {"requests": {"cpu": "20"}}
    granted = pod("granted", "3", "b1")
    granted["status"]["containerStatuses"] = [
        {"name": "c", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "3"}}}
    ]
    start = [*CLUSTER[:8], granted, asking, all_requests]
    scenarios = scenarios_from([{"name": text, "edits": [{"requests": {"cpu": text}}]} for text in ("x0.1", "100m")])
    report = whatif(Base(kscale.load(start), groups_from(GROUPS), NOW), scenarios)
    assert report.baselines[0].pending == 2
    assert [(each.nodes, each.pending) for each in report.scenarios] == [(4, 0), (4, 0)]


def test_headroom() -> None:
    before, lost = rows({"lose": {"node": ["big1"]}}, question="headroom")
    assert (before.nodes, before.pending, before.homeless) == (4, 2, 2), "zone a: the web pods"
    assert (lost.nodes, lost.pending, lost.homeless) == (3, 3, 2)
    assert lost.differs == (
        "without zone b 1 of 1 pod find no place (baseline: without zone b 2 of 2 pods find no place)"
    )
    roomy = row({"pods": {"remove": "app in (huge,web)"}}, question="headroom")
    assert roomy.homeless == 0
    with pytest.raises(InputError, match="the question headroom does not depend on it"):
        row({"flags": {"expander": "price"}}, question="headroom")


def test_headroom_after_a_loss_has_the_lost_pods_placed() -> None:
    there = [node("n1", "a"), node("n2", "b"), node("n3", "c"), pod("p1", "4", "n1"), pod("p2", "4", "n2")]
    scenarios = scenarios_from([{"name": "lost", "edits": [{"lose": {"node": ["n1"]}}], "question": "headroom"}])
    report = whatif(Base(kscale.load(there), (), NOW), scenarios)
    assert (report.baselines[0].pending, report.baselines[0].homeless) == (0, 0)
    result = report.scenarios[0]
    assert (result.pending, result.homeless) == (0, 1), "p1 is on n3, where p2 would have gone"


def test_bound_is_computed_on_request() -> None:
    before, cheap = rows({"prices": {"scale": {"big": "x0.1"}}}, bound=True)
    assert before.bound == pytest.approx(1.9)
    assert cheap.bound is not None
    assert cheap.cost is not None
    assert cheap.bound <= cheap.cost


@pytest.mark.parametrize("question", ["scale-up", "estimate"])
def test_a_bound_is_about_the_same_pods_and_no_minimum(question: str) -> None:
    """Losing a zone takes the only group there below its minimum, which neither decision restores."""
    groups = [
        {**GROUPS[0], "id": zone, "min": 1, "nodeSelector": {"topology.kubernetes.io/zone": zone}} for zone in "ab"
    ]
    cluster = [node("a1", "a"), node("b1", "b"), pod("web", "3", "a1"), pod("db", "3", "b1"), pod("waits", "3")]
    scenario = {"name": "lost", "question": question, "edits": [{"lose": {"zone": ["b"]}}]}
    world = Base(kscale.load(cluster), groups_from(groups), NOW, bound=True)
    (row,) = whatif(world, scenarios_from({"scenarios": [scenario]})).scenarios
    assert (row.cost, row.bound, row.pending) == (pytest.approx(0.6), pytest.approx(0.6), 0)


def test_bound_ignores_pods_that_the_decision_ignores() -> None:
    """Pods of a low priority take no node and no room, and a pod that no group takes costs nothing."""
    low = pod("low", "3", "a1")
    low["spec"]["priority"] = -100
    cluster = [node("a1", "a"), low, pod("waits", "3"), pod("giant", "99")]
    world = Base(kscale.load(cluster), groups_from([GROUPS[0]]), NOW, bound=True)
    scenario = {"name": "x", "question": "scale-up", "edits": [{"flags": {"expander": "price"}}]}
    (row,) = whatif(world, scenarios_from({"scenarios": [scenario]})).scenarios
    assert (row.cost, row.bound, row.pending) == (0.2, 0.2, 1)


def test_shared_decisions_are_those_of_each_alone() -> None:
    edits: list[list[dict[str, Any]]] = [
        [{"flags": {"expander": name}}, {"groups": {"set": {"big": {"price": price}}}}, *lost]
        for name in ("price", "least-waste", "most-pods", "least-nodes,price")
        for price in (0.01, 0.9)
        for lost in ([], [{"lose": {"node": ["b1"]}}])
    ]
    scenarios = scenarios_from([{"name": f"s{i}", "edits": each} for i, each in enumerate(edits)])
    together = whatif(base(), scenarios)
    assert together.shared >= 8
    alone = [whatif(base(), [scenario]).scenarios[0] for scenario in scenarios]
    assert together.scenarios == alone
    assert len({each.differs for each in alone}) > 2


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Numbers of the worlds that were asked about whose place, or whose snapshot, still lives. No collector runs:
    what dies dies by itself."""
    references: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []
    answer = DecisionCache.decide

    def of(self: DecisionCache, world: World, question: Question) -> Any:
        references.append((weakref.ref(world.place), weakref.ref(world.place.snapshot)))
        return answer(self, world, question)

    monkeypatch.setattr(DecisionCache, "decide", of)
    return lambda: [number for number, refs in enumerate(references) if any(ref() is not None for ref in refs)]


@pytest.mark.parametrize("question", ["scale-up", "estimate", "mix"])
def test_a_world_lives_while_a_later_scenario_may_share_it(question: str, places: Callable[[], list[int]]) -> None:
    def lose(*names: str) -> list[dict[str, Any]]:
        return [{"lose": {"node": [name]}} for name in names]

    cheap = {"prices": {"scale": {"big": "x0.1"}}}
    edits = [lose("a1"), lose("a2"), [*lose("a1"), cheap], lose("b1"), lose("a2", "b1"), lose("big1"), [cheap]]
    scenarios = scenarios_from([{"name": f"s{i}", "edits": each, "question": question} for i, each in enumerate(edits)])
    living: list[list[int]] = []
    with collector_paused():
        report = whatif(base(), scenarios, on_row=lambda _: living.append(places()))
    # 0 is the base, 1 loses a1 and is world 3 but for a price, 2 is where world 5 begins
    assert living == [[0, 1], [0, 1, 2], [0, 2], [0, 2], [0], [0], [0, 7]]
    assert places() == [0, 7], "the report keeps the base's own nodes and pods, which explain needs"
    shared, result_rows = report.shared, report.scenarios
    del report
    assert places() == []
    assert shared == {"scale-up": 2, "estimate": 2, "mix": 0}[question]
    assert result_rows == [whatif(base(), [scenario]).scenarios[0] for scenario in scenarios]


def test_nothing_but_the_rows_is_kept_of_many_scenarios() -> None:
    """Each loses a node of its own: about 200 kB of answers and options."""
    count = 40 if is_nightly() else 20
    cluster = kscale.load(list(generate(count, 10 * count).objects()))
    groups = [replace(each.group, price=1.0) for each in recognise_groups(cluster.nodes()).groups]
    nodes = cluster.snapshot().nodes
    scenarios = scenarios_from([{"name": name, "edits": [{"lose": {"node": [name]}}]} for name in nodes])
    sizes: list[int] = []

    def on_row(_: ScenarioRow) -> None:
        sizes.append(tracemalloc.get_traced_memory()[0])

    tracemalloc.start()
    try:
        with collector_paused():
            whatif(Base(cluster, groups, NOW), scenarios, on_row=on_row)
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[9] < (count - 10) * 20_000, "rows, and classes of pods that were not met before"


def test_flags_that_are_refused_are_refused_at_their_turn() -> None:
    names: list[str] = []
    edits: list[list[dict[str, Any]]] = [[], [{"flags": {"max-nodes": 3}}]]
    scenarios = scenarios_from([{"name": f"s{i}", "edits": each} for i, each in enumerate(edits)])
    with pytest.raises(InputError, match="scenario s1"):
        whatif(base(), scenarios, on_row=lambda row: names.append(row.name))
    assert names == ["s0"]


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        ({"groups": {"remove": ["nope"]}}, 'edits[0].groups: there is no node group "nope"'),
        ({"groups": {"set": {"small": {"min": 20}}}}, "min 20 is more than max 10"),
        ({"groups": {"set": {"small": {"instanceType": "m5.large"}}}}, "instanceType needs a catalogue"),
        ({"groups": {"add": [{"id": "small", "nodes": ["a1"]}]}}, 'there is a node group "small" already'),
        ({"prices": {"scale": {"small": "2"}}}, '"2" is no factor'),
        ({"flags": {"max-nodes": 3}}, "there is no flag"),
        ({"pods": {"remove": "app=nope"}}, 'no pod has the labels "app=nope"'),
        ({"pods": {"namespace": "shop"}}, "pods.namespace has an effect only with remove"),
        ({"pods": {"scale": {"web": 3}}}, '"web" has no pods; a workload is named namespace/kind/name'),
        ({"pods": {"scale": {"shop/ReplicaSet/web": -1}}}, "-1 is negative"),
        ({"pods": {"add": ["nowhere.json"]}}, "nowhere.json"),
        ({"lose": {}}, "lose: name a node"),
        ({"lose": {"node": ["x"]}}, 'there is no node "x"'),
        ({"lose": {"zone": ["x"]}}, 'no node is in zone "x"'),
        ({"requests": {}}, "requests: give cpu"),
        ({"requests": {"cpu": "-1"}}, "requests.cpu: -1 is negative"),
        ({"flags": {"expander": "bogus"}}, "edits[0].flags: expander: Expander bogus not supported; there are random,"),
        ({"flags": {"expander": "random,price"}}, "edits[0].flags: expander: Expander price came after an expander"),
        ({"flags": {"estimator": "bogus"}}, "edits[0].flags: estimator: Unknown estimator: bogus"),
        ({"requests": {"cpu": "much"}}, '"much" is neither a quantity nor a factor'),
        ({"requests": {"cpu": "1", "selector": "a in ("}}, "selector: "),
        ({"requests": {"cpu": "1", "namespace": "x"}}, "no pod matches"),
        ({"requests": {"recommendation": "nowhere.json"}}, "nowhere.json"),
        ({"scheduler": "nowhere.yaml"}, "nowhere.yaml"),
        ({"groups": {}}, "groups: add, remove or set something"),
        ({"groups": {"set": {"small": {}}}}, "set.small: name min"),
        ({"pods": {}}, "pods: add, scale or remove something"),
        ({"prices": {}}, "prices: name a catalogue, or scale something"),
        ({"prices": {"scale": {"small": "x2"}, "region": "mars"}}, "prices: name a catalogue, or scale something"),
        ({"flags": {}}, "flags: no flag is named"),
        ({"flags": {"scale-down-unneeded-time": "1m"}}, "has no effect: it concerns scale-down"),
        ({"requests": {"memory": "x0.5", "selector": "app=hugepages"}}, "no pod matches"),
    ],
)
def test_edits_of_unknown_objects_are_input_errors(edit: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as error:
        row(edit)
    assert str(error.value).startswith("scenario other: ")
    assert text in str(error.value)


def test_unknown_expander_error_lists_the_known_ones() -> None:
    for names, is_listed in (("random,price", False), ("price,price", False), ("price,bogus", True)):
        with pytest.raises(InputError) as error:
            row({"flags": {"expander": names}})
        assert ("; there are random, most-pods" in str(error.value)) is is_listed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "a list of at least one scenario"),
        ({"scenarios": [], "question": "emulate"}, "question"),
        ([{"edits": []}], "[0]: object missing required field `name`"),
        ([{"name": "a"}, {"name": "a"}], '[1] (a): name: "a" is taken'),
        ([{"name": "baseline"}], '"baseline" is taken'),
        ([{"name": ""}], "name: is empty"),
        ([{"name": "a", "edits": [{}]}], "edits[0]: nothing in one edit"),
        ([{"name": "a", "edits": [{"lose": {}, "pods": {}}]}], "pods and lose in one edit"),
        ([{"name": "a", "edits": [{"loose": {}}]}], "unknown field"),
        ({"scenarios": [{"name": "a", "question": "why"}]}, "scenarios[0] (a): question"),
    ],
)
def test_bad_files(data: Any, text: str) -> None:
    with pytest.raises(InputError) as error:
        scenarios_from(data)
    assert text in str(error.value)


def test_the_file_and_its_schema() -> None:
    import yaml

    schema = json.loads(scenarios_schema_text())
    jsonschema.validate(yaml.safe_load((EXAMPLES / "scenarios.yaml").read_text()), schema)
    result = read_scenarios(EXAMPLES / "scenarios.yaml")
    assert [str(each.question) for each in result] == ["scale-up"] * 4 + ["scale-down"]
    with pytest.raises(jsonschema.ValidationError):
        validate([{"name": "a", "edits": [{"loose": {}}]}], schema)
    with pytest.raises(InputError, match="No such file"):
        read_scenarios("nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("cost>+5%", True),
        ("cost>10%", False),
        ("cost>=+0.6", True),
        ("nodes>6", True),
        ("nodes<+1", False),
        ("nodes<=+1", True),
        ("bound>0", False),
        ("homeless>+0%", True),
        ("pending>+0%", False),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    def make_row(nodes: int, cost: float, homeless: int) -> ScenarioRow:
        return ScenarioRow(
            name="x", question="scale-up", nodes=nodes, cost=cost, bound=None, pending=0, homeless=homeless
        )

    assert parse_condition(text).is_met(make_row(7, 10.6, 1), make_row(6, 10.0, 0)) is holds


def test_condition_on_an_unknown_value_is_an_error() -> None:
    scenarios = scenarios_from([{"name": "other", "edits": [{"pods": {"remove": "app=batch"}}]}])
    with pytest.raises(InputError, match="scenario other: bound>9 cannot be checked"):
        whatif(base(), scenarios, conditions=[parse_condition("bound>9")])


@pytest.mark.parametrize("text", ["cost", "price>3", "cost>", "cost=3", "cost>five"])
def test_bad_conditions(text: str) -> None:
    with pytest.raises(InputError, match="is no condition"):
        parse_condition(text)


def test_facts_that_take_long_are_computed_only_when_they_are_read() -> None:
    computed: list[str] = []

    def rest() -> dict[str, tuple[str, str]]:
        computed.append("rest")
        return {"pods like shop/a": ("2", "2 pods stay")}

    facts = Facts({"fit": ("1", "1 pod fits")}, rest)
    assert facts["fit"] == ("1", "1 pod fits")
    assert not computed
    assert dict(facts) == {"fit": ("1", "1 pod fits"), "pods like shop/a": ("2", "2 pods stay")}
    assert (len(facts), facts.get("none"), computed) == (2, None, ["rest"])


def test_the_reasons_of_pending_pods_are_not_computed_if_a_decision_before_them_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = kscale.load({"kind": "List", "items": list(generate(8, 200).objects())})
    groups = [replace(item.group, target_size=None) for item in recognise_groups(cluster.nodes()).groups]
    base = Base(cluster, groups, datetime(2030, 1, 1, tzinfo=UTC))
    edits = [{"lose": {"node": [cluster.snapshot().nodes[0]]}}]
    expected = whatif(base, scenarios_from([{"name": "loss", "edits": edits}]))
    assert expected.scenarios[0].homeless
    assert expected.scenarios[0].differs

    def refuse(*_: object) -> None:
        raise AssertionError("reasons were computed")

    monkeypatch.setattr("kscale.ca.scale_up.plan.build_unschedulable_pods", refuse)
    result = whatif(base, scenarios_from([{"name": "loss", "edits": edits}]))
    assert result.scenarios == expected.scenarios


def test_losses_of_many_scenarios_are_those_of_each_alone() -> None:
    """Scenarios share pod classes, verdicts on node classes, and which group a node belongs to."""
    cluster = kscale.load(list(generate(14, 220, seed=3).objects()))
    groups = [
        replace(each.group, price=0.5 + i / 10) for i, each in enumerate(recognise_groups(cluster.nodes()).groups)
    ]
    nodes = cluster.snapshot().nodes

    def fresh() -> Base:
        return Base(kscale.Cluster(list(cluster)), groups, NOW, AutoscalingOptions(expander="price"))

    pairs = [(a, b) for a in range(0, 14, 3) for b in range(a + 1, 14, 4)]
    scenarios = scenarios_from(
        [{"name": f"s{a}-{b}", "edits": [{"lose": {"node": [nodes[a], nodes[b]]}}]} for a, b in pairs]
    )
    together = whatif(fresh(), scenarios).scenarios
    assert together == [whatif(fresh(), [scenario]).scenarios[0] for scenario in scenarios]
    assert len({row.differs for row in together}) > 3


def test_nodes_left_after_a_loss_belong_to_the_groups_that_they_match() -> None:
    world = base().world()
    for names in (["a1"], ["big1"], ["a1", "a2", "b1"]):
        for rebuy in (False, True):
            edit = scenarios_from([{"name": "x", "edits": [{"lose": {"node": names, "rebuy": rebuy}}]}])[0].edits[0]
            changed = apply_edit(world, edit, Path(), Question.SCALE_UP)
            assert changed.existing == Nodes.of(changed)


@pytest.mark.parametrize("listed", [True, False])
def test_a_scale_up_after_a_loss_is_that_of_a_cluster_without_the_nodes(listed: bool) -> None:
    """Node classes, templates, groups and shapes are selected from those before the loss."""
    cluster = kscale.load(list(generate(14, 220, seed=5).objects()))
    recognised = recognise_groups(cluster.nodes()).groups
    groups = [replace(item.group, price=1.0 + i, from_node=None) for i, item in enumerate(recognised)]
    if not listed:
        labels = {node.metadata.name: node.metadata.labels or {} for node in cluster.nodes()}
        groups = [
            replace(group, nodes=[], node_selector={INSTANCE_TYPE: labels[group.nodes[0]][INSTANCE_TYPE]})
            for group in groups
        ]
    options = AutoscalingOptions(expander="price")
    base = Base(cluster, groups, NOW, options)
    nodes = cluster.snapshot().nodes
    edits = [{"lose": {"node": [nodes[a], nodes[a + 1]]}} for a in range(0, 13, 2)]
    scenarios = scenarios_from([{"name": f"s{i}", "edits": [edit]} for i, edit in enumerate(edits)])
    whatif(base, scenarios)
    world = base.cache[0].world
    for scenario in scenarios:
        changed = apply_edit(world, scenario.edits[0], Path(), Question.SCALE_UP)
        classes, moment = changed.place.pod_classes, changed.now
        shared = LoopInputs(templates=changed.templates, pod_classes=classes)
        plan = kscale.scale_up(changed.place.snapshot, changed.groups, now=moment, options=options, inputs=shared)
        own = kscale.Cluster(list(changed.place.cluster)).snapshot(dra=True)
        inputs = LoopInputs(templates=changed.templates)
        expected = kscale.scale_up(own, changed.groups, now=moment, options=options, inputs=inputs)
        assert plan.to_dict() == expected.to_dict()
        assert list(plan.groups) == list(expected.groups)
        assert plan.without_node == {name for item in plan.remain_unschedulable for name in item.pods}


def random_groups(random: Random, names: list[str]) -> list[NodeGroup]:
    """Groups of which some list nodes, also those of other groups or missing ones, and others select them."""
    groups = []
    for number in range(random.randint(1, 4)):
        listed = random.sample([*names, "missing"], random.randint(0, 4))
        selector = random.choice((None, {"pool": "small"}, {"pool": "large"}))
        group = NodeGroup(
            id=f"g{number}",
            max_size=20,
            nodes=listed,
            node_selector=selector,
            target_size=random.choice((None, None, 3)),
            instances=random.choice((None, None, ["i-1", "i-2"])),
            unregistered_instances=random.choice(([], ["i-9"])),
            from_node=names[0] if random.random() < 0.05 else None,
        )
        groups.append(group)
    return groups


@pytest.mark.parametrize("seed", range(100))
def test_groups_after_a_loss_are_those_of_the_remaining_nodes(seed: int) -> None:
    random = Random(seed)
    nodes = [node(f"n{i}", "a", pool=random.choice(("small", "large"))) for i in range(8)]
    names = [f"n{i}" for i in range(8)]
    groups = random_groups(random, names)
    place = SharedCluster(kscale.Cluster(nodes))
    resolve_groups(place.snapshot, groups)
    lost = random.sample(names[1:], random.randint(1, 4))
    after = place.without_nodes(lost).snapshot
    changed = [smaller(group, int(random.random() < 0.9), lost) for group in groups]
    if random.random() < 0.3:
        changed[0] = replace(changed[0], price=2.0)
    result = resolve_groups(after, changed)
    expected = Groups.of(changed, after.columns.objects)
    assert list(result) == list(expected)
    assert result.ids_of_nodes(names) == expected.ids_of_nodes(names)
    assert list(resolve_groups(place.snapshot, groups)) == list(Groups.of(groups, place.snapshot.columns.objects))


def test_a_node_is_lost_in_a_cluster_without_bound_pods() -> None:
    cluster = kscale.Cluster([node("n1", "a"), node("n2", "a"), pod("p", "1")])
    group = {"id": "small", "max": 9, "nodeSelector": {"pool": "small"}, "price": 1.0}
    scenarios = scenarios_from([{"name": "lost", "edits": [{"lose": {"node": ["n1"]}}]}])
    report = whatif(Base(cluster, groups_from([group]), NOW), scenarios)
    assert report.scenarios[0].nodes == 1


def test_a_plan_by_price_can_be_pickled() -> None:
    group = {"id": "small", "max": 9, "nodeSelector": {"pool": "small"}, "price": 1.0}
    cluster = kscale.Cluster([node("n1", "a"), *(pod(f"p{i}", "2") for i in range(6))])
    options = AutoscalingOptions(expander="price")
    plan = kscale.scale_up(cluster, groups_from([group]), now=NOW, options=options)
    assert plan.new_node_count == 2
    assert pickle.loads(pickle.dumps(plan)).to_dict()["options"] == plan.to_dict()["options"]


def test_an_estimate_can_be_pickled_after_a_sum_by_a_function() -> None:
    cluster = kscale.Cluster([pod(f"p{i}", "2") for i in range(6)])
    result = kscale.estimate(cluster, template=node("n", "a"))
    assert result.sum_by_class(lambda occupied: occupied["cpu"]) == 12_000
    assert pickle.loads(pickle.dumps(result)).node_count == result.node_count == 3


def test_losses_that_another_thread_adds_meanwhile_change_no_result() -> None:
    """The other thread adds a loss while this one looks through the known losses."""
    shared = SharedCluster(kscale.load(CLUSTER))
    shared.expect_losses(["a1", "a2"])
    expected = SharedCluster(kscale.load(CLUSTER)).without_nodes(["b1"]).snapshot
    assert shared._spare is not None
    added: list[str] = []

    class Rows(dict[str, Any]):
        def __contains__(self, name: object) -> bool:
            if not added:
                added.append("big1")
                thread = Thread(target=shared.without_nodes, args=(added,))
                thread.start()
                thread.join()
            return super().__contains__(name)

    shared._spare = shared._spare._replace(rows=Rows(shared._spare.rows))
    snapshot = shared.without_nodes(["b1"]).snapshot
    assert added == ["big1"]
    assert (snapshot.nodes, snapshot.pods, snapshot.pending) == (expected.nodes, expected.pods, expected.pending)


def test_threads_that_lose_nodes_at_once_get_the_same_snapshots() -> None:
    names = ("a1", "a2", "b1", "big1")
    expected = [SharedCluster(kscale.load(CLUSTER)).without_nodes([name]).snapshot.pending for name in names]
    shared, ready = SharedCluster(kscale.load(CLUSTER)), Barrier(len(names))
    assert shared.snapshot.nodes

    def lose(name: str) -> tuple[str, ...]:
        ready.wait()
        return shared.without_nodes([name]).snapshot.pending

    with ThreadPoolExecutor(len(names)) as pool:
        assert [*pool.map(lose, names)] == expected
