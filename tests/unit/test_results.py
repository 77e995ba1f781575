"""All results share one vocabulary: the words of the glossary's table have one type in every result."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kscale
from kscale import ca, hpa, vpa
from kscale.capacity.cost import cost
from kscale.capacity.estimate import estimate_groups
from kscale.capacity.explain import explain
from kscale.capacity.headroom import headroom
from kscale.capacity.scale_down import report_scale_down
from kscale.capacity.vpa_round_plan import plan_of_dump
from kscale.capacity.whatif import Base, scenarios_from
from kscale.effects import moment
from kscale.errors import ConcurrentUseError, InputError
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.vpa import VerticalPodAutoscaler
from kscale.objects.decode import from_dict
from kscale.records import Record, Result
from kscale.schemas import DOCUMENTS, record_type
from unit.cli.test_vpa import objects

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 5, 4, tzinfo=UTC)
Json = dict[str, Any]


def node(name: str, cpu: str = "4") -> Json:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:00Z"}]
    labels = {"kubernetes.io/hostname": name}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def pod(name: str, cpu: str, on: str = "") -> Json:
    spec: Json = {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]}
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status: Json = {"phase": "Running"} if on else {"phase": "Pending", "conditions": [unschedulable]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-05-01T00:00:00Z"},
        "spec": {**spec, "nodeName": on} if on else spec,
        "status": status,
    }


@cache
def cluster() -> kscale.Cluster:
    """One busy node and one idle node; one pod that fits, one for a new node, and one that fits nowhere."""
    running = pod("running", "3", on="n1")
    return kscale.load([node("n1"), node("n2"), running, pod("fits", "3"), pod("new", "3"), pod("huge", "64")])


@cache
def groups() -> list[kscale.NodeGroup]:
    template = kscale.NodeTemplate(node=from_dict(node("new-node"), Node))
    return [kscale.NodeGroup(id="pool", min_size=0, max_size=9, nodes=["n1", "n2"], price=0.5, template=template)]


SCENARIOS = [
    {"name": "same"},
    {
        "name": "cheaper and capped",
        "edits": [
            {"prices": {"scale": {"pool": "x0.5"}}},
            {"groups": {"set": {"pool": {"max": 2}}}},
        ],
    },
    {"name": "packed", "question": "scale-down", "edits": [{"requests": {"cpu": "x0.1"}}]},
]


@cache
def scaled_cluster() -> kscale.Cluster:
    """A ReplicaSet of two pods with two containers each, and a VPA that has recommended 300m for one of them."""
    return kscale.load([*objects(requests="1500m", replicas=2), node("n1")])


def recommender_round() -> vpa.RecommenderRound:
    """Usage of 500 millicores by pods whose VPA allows 200 millicores at most, and 64 GiB of memory at least."""
    policy = {"containerName": "app", "maxAllowed": {"cpu": "200m"}, "minAllowed": {"memory": "64Gi"}}
    objects_by_kind = {item["kind"]: item for item in objects()}
    scaler = objects_by_kind["VerticalPodAutoscaler"]
    spec = {**scaler["spec"], "resourcePolicy": {"containerPolicies": [policy]}}
    return vpa.RecommenderRound(
        vpas=[from_dict({**scaler, "spec": spec, "status": {}}, VerticalPodAutoscaler)],
        pods=vpa.PodChanges(changed=[from_dict(item, Pod) for item in objects() if item["kind"] == "Pod"]),
        controllers=vpa.Controllers([from_dict(objects_by_kind["ReplicaSet"], ReplicaSet)]),
        usage=[usage_events()],
    )


def usage_events() -> vpa.Usage:
    hour = 3600 * 10**9
    begin = moment(NOW) - 24 * hour
    return vpa.Usage.from_events((("shop", "web-0", "app"), begin + i * hour, 500, vpa.CPU_SAMPLE) for i in range(24))


def run_updater(cluster: kscale.Cluster) -> vpa.UpdaterResult:
    pods, vpas = list(cluster.pods()), list(cluster.all("VerticalPodAutoscaler"))
    inputs = vpa.UpdaterRound(pods=pods, vpas=vpas, controllers=vpa.read_controllers(cluster))
    return vpa.run_updater(vpa.UpdaterState(), inputs, now=NOW)


RESULTS: dict[str, Callable[[], Any]] = {
    "fit": lambda: kscale.fit(cluster()),
    "place": lambda: kscale.place(cluster()),
    "estimate": lambda: kscale.estimate(cluster(), template=groups()[0]),
    "scale_up": lambda: kscale.scale_up(cluster(), groups(), now=NOW),
    "scale_down": lambda: kscale.scale_down(cluster(), groups(), now=NOW),
    "run_once": lambda: ca.run_once(cluster(), groups(), now=NOW),
    "mix": lambda: kscale.mix(cluster(), groups(), placements=True),
    "whatif": lambda: kscale.whatif(Base(cluster=cluster(), groups=groups(), now=NOW), scenarios_from(SCENARIOS)),
    "cost": lambda: cost(cluster(), groups()),
    "estimate report": lambda: estimate_groups(cluster().snapshot(), groups(), placements=True),
    "explanation": lambda: explain(cluster().snapshot(), "shop/huge", groups()),
    "headroom": lambda: headroom(cluster().snapshot()),
    "scale-down report": lambda: report_scale_down(cluster().snapshot(), groups(), now=NOW)[0],
    "scale-up record": lambda: kscale.scale_up(cluster(), groups(), now=NOW).record(),
    "hpa": lambda: hpa.read_dump(str(ROOT / "examples" / "shop.json")).decide(),
    "hpa report": lambda: hpa.hpa_report(hpa.read_dump(str(ROOT / "examples" / "shop.json"))),
    "vpa recommend": lambda: vpa.recommend(scaled_cluster(), []),
    "vpa recommender": lambda: vpa.run_once(vpa.RecommenderState(), recommender_round(), now=NOW),
    "vpa updater": lambda: run_updater(scaled_cluster()),
    "vpa round plan": lambda: plan_of_dump(scaled_cluster(), now=moment(NOW)),
}


@cache
def result(name: str) -> Any:
    return RESULTS[name]()


def entries(text: str) -> dict[str, str]:
    """The rows of the glossary's table of results: word -> type."""
    (table,) = re.findall(r"## Results\n(.*?)\n## ", text, re.DOTALL)
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", table, re.MULTILINE))


GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
WORDS = entries(GLOSSARY)
CHECKS: dict[str, Callable[[Any], bool]] = {
    "pod name -> node name": lambda value: isinstance(value, Mapping) and all("/" in pod for pod in value),
    "list of pod names": lambda value: isinstance(value, list) and all("/" in pod for pod in value),
    "list of node names, or of one entry per node": lambda value: isinstance(value, list),
    "number": lambda value: type(value) is int,
    "price per hour, or None": lambda value: isinstance(value, float),
}
HAVE = {
    "fit": {"unschedulable", "nodes"},
    "place": {"pending", "placed", "unschedulable", "nodes", "placed_count"},
    "estimate": {"pending", "placed", "unschedulable", "nodes", "node_count"},
    "scale_up": {"pending", "placed", "unschedulable", "unschedulable_count", "new_node_count", "cost"},
    "scale_down": {"placed", "nodes"},
    "run_once": {"pending", "placed", "unschedulable", "nodes", "cost"},
    "mix": {"placed", "unschedulable", "unschedulable_count", "nodes", "node_count", "cost"},
    "cost": {"node_count", "cost"},
    "estimate report": {"pending_count", "placed", "unschedulable", "unschedulable_count"},
    "explanation": {"node_count"},
    "headroom": {"nodes"},
    "scale-down report": {"nodes"},
    "scale-up record": {"placed"},
}
"""The words that each result must have; others have none of these concepts."""


def test_the_glossary_defines_each_word_once() -> None:
    assert set(WORDS) == {"pending", "placed", "unschedulable", "nodes", "cost", "groups", "explain"}
    for word in WORDS:
        assert len(re.findall(rf"^\| `?{word}`? \|", GLOSSARY, re.MULTILINE)) == 1, word


@pytest.mark.parametrize("name", RESULTS)
def test_words_have_one_type_in_all_results(name: str) -> None:
    words = {word: getattr(result(name), word) for word in WORDS if word in CHECKS or hasattr(result(name), word)}
    for word in {*WORDS, *(f"{word}_count" for word in WORDS), "new_node_count"} - {"groups", "explain"}:
        if not hasattr(result(name), word):
            continue
        value = getattr(result(name), word)
        check = CHECKS["number" if word.endswith("_count") else WORDS[word]]
        assert check(value), f"{name}.{word} = {value!r}"
    missing = {word for word in HAVE.get(name, ()) if not hasattr(result(name), word)}
    assert not missing
    assert words or name not in HAVE


@pytest.mark.parametrize("name", RESULTS)
def test_repr_says_the_answer_in_one_line(name: str) -> None:
    text = repr(result(name))
    assert re.fullmatch(rf"<{type(result(name)).__name__}:? .*>", text), text
    assert re.search(r"\d|Scale", text), text
    assert "\n" not in text
    assert len(text) < 300


@pytest.mark.parametrize("name", RESULTS)
def test_every_result_is_json_with_its_kind_and_html(name: str) -> None:
    one = result(name)
    assert isinstance(one, Result)
    document = json.loads(one.to_json())
    assert list(document)[:2] == ["apiVersion", "kind"]
    assert "<table>" in one._repr_html_() or "<strong>" in one._repr_html_()


def test_the_answers_agree() -> None:
    placed, estimated, grown = result("place"), result("estimate"), result("scale_up")
    assert placed.placed == {"shop/fits": "n2"}
    assert placed.unschedulable == ["shop/new", "shop/huge"]
    assert placed.nodes == ["n2"]
    assert estimated.unschedulable == ["shop/huge"]
    assert sorted(estimated.pending) == ["shop/fits", "shop/huge", "shop/new"]
    assert estimated.nodes == ["new-node-e-0", "new-node-e-1"]
    assert (grown.placed, grown.triggered, grown.unschedulable) == ({"shop/fits": "n2"}, ["shop/new"], ["shop/huge"])
    assert (grown.new_node_count, grown.cost) == (1, 0.5)
    assert sorted(grown.pending) == ["shop/fits", "shop/huge", "shop/new"]
    assert result("run_once").unschedulable == grown.unschedulable
    assert result("mix").unschedulable == ["shop/huge"]
    assert result("mix").placed.keys() == {"shop/fits", "shop/new"}
    assert (result("cost").cost, result("mix").cost) == (1.0, 0.5)


def test_the_cost_is_none_without_a_price() -> None:
    free = [msgspec.structs.replace(group, price=None) for group in groups()]
    assert kscale.scale_up(cluster(), free, now=NOW).cost is None
    assert kscale.scale_up(kscale.load([node("n1")]), free, now=NOW).cost == 0.0


RECORD_FIELDS: dict[str, set[object]] = {
    "pending": {list[str]},
    "placed": {dict[str, str], dict[str, str] | None},
    "unschedulable": {list[str]},
    "cost": {float, float | None},
}
"""The types of the glossary's words as fields of a record."""


def test_fields_of_all_records_have_the_types_of_the_glossary() -> None:
    wrong = []
    for kind in DOCUMENTS:
        for item in msgspec.structs.fields(record_type(kind)):
            allowed = {int} if item.name.endswith("_count") else RECORD_FIELDS.get(item.name, {item.type})
            if item.type not in allowed:
                wrong.append(f"{kind}.{item.name}: {item.type}")
    assert not wrong


EXPLAINED = [
    ("fit", "shop/fits", "fits n2 of 2 nodes"),
    ("fit", "shop/huge", "0/2 nodes are available: 2 Insufficient cpu."),
    ("place", "shop/fits", "placed on n2"),
    ("place", "shop/huge", "0/2 nodes are available: 2 Insufficient cpu."),
    ("estimate", "shop/new", "placed on new-node-e-1"),
    ("estimate", "shop/huge", "NodeResourcesFit: Insufficient cpu"),
    ("scale_up", "shop/fits", "fits n2 without new nodes"),
    ("scale_up", "shop/new", "triggered scale-up of {pool 2->3 (max: 9)}"),
    ("scale_up", "shop/huge", "pool: Insufficient cpu"),
    ("scale_down", "n1", "stays: "),
    ("run_once", "shop/new", "triggered scale-up of {pool 2->3 (max: 9)}"),
    ("mix", "shop/huge", "no offer and no existing node takes it"),
    ("mix", "shop/fits", "placed on n2"),
    ("estimate report", "pool", "nodes 1, bound 1, boundMethod volume, pods 1"),
    ("headroom", "n1", "pods 1, homeless 0"),
    ("scale-down report", "n1", "why 75% of its cpu is requested, more than 50%"),
    ("hpa", "shop/cart", "stays at 4: cpu 85% of 80% (within tolerance); ratio 1.062, 4 ready pods: proposes 4"),
    ("hpa", "shop/search", "; held back by maxReplicas 6 (wanted 10); ScalingLimited is True (TooManyReplicas)"),
    (
        "hpa report",
        "shop/pay",
        "6 -> 5: cpu 25% of 80%; ratio 0.3125, 6 ready pods: proposes 2; held back by ",
    ),
    ("hpa report", "shop/checkout", "stays at 3, not decided: failed to compute desired number of replicas"),
    ("whatif", "same", "3 nodes, 1.50 per hour, 1 pod pending, pool +1; shop/huge pending: pool: Insufficient cpu"),
    ("whatif", "cheaper and capped", '; prices {"scale":{"pool":"x0.5"}}: cost 1.50 -> 0.75; groups {"set":{"pool":{'),
    ("whatif", "cheaper and capped", ": nodes 3 -> 2, cost 0.75 -> 0.50, pending pods 1 -> 2, pool +1 -> +0; first "),
    ("whatif", "packed", "changes nothing; 1 node stays: n1 (shop/running has no controller that would create it "),
    ("cost", "shop", "0.2446 per hour, 24.5% of the 1 of all nodes; 1 pod requests 3 cores and 0 GiB: 0.2446 cpu; by "),
    (
        "cost",
        "pool",
        "for 2 nodes, 0.5 a node on average; pods request 0.2446 of it (24.5%), 0.7554 is idle",
    ),
    (
        "vpa recommender",
        "shop/web",
        "cpu 200m: percentile 90 of usage plus 15% (bounds: percentiles 50 and 95), ",
    ),
    (
        "vpa recommender",
        "shop/web",
        "memory 64Gi: the minimum of a pod (250Mi), as no usage is above it, raised from 250Mi by minAllowed",
    ),
    ("vpa recommend", "shop/ReplicaSet/web", "app: cpu: no target; memory: no target; 0 samples, VPA web; no data"),
    ("vpa updater", "shop/web-0", "due for an update by VPA web: its requests are outside of the recommended range"),
    ("vpa round plan", "shop/web", "mode Recreate, target ReplicaSet/web; evicts web-0"),
]


@pytest.mark.parametrize(("name", "of", "text"), EXPLAINED)
def test_explain_says_why(name: str, of: str, text: str) -> None:
    assert text in result(name).explain(of)
    with pytest.raises(InputError, match="nobody"):
        result(name).explain("shop/nobody" if "/" in of else "nobody")


def test_every_result_explains() -> None:
    without_table = {"ClusterAnswers", "SchemaList"}
    assert [kind for kind in DOCUMENTS if not record_type(kind).ROWS] == sorted(without_table)
    assert [name for name in RESULTS if not callable(getattr(result(name), "explain", None))] == []


def test_explanations_of_unpickled_results_need_no_inputs() -> None:
    unpickled = pickle.loads(pickle.dumps(result("whatif")))
    assert unpickled == result("whatif")
    explanation = unpickled.explain("cheaper and capped")
    assert explanation.startswith("scale-up: 2 (baseline 3) nodes, 0.50 (baseline 1.50) per hour")
    assert "first difference: no group grows" in explanation
    decisions = pickle.loads(pickle.dumps(result("hpa")))
    assert decisions.explain("shop/front") == "4 -> 3: decided by metrics, reason all_below"


def test_parts_of_a_cost_add_up() -> None:
    report = cost(
        kscale.load(str(ROOT / "examples" / "cluster.json.gz")),
        kscale.read_groups(str(ROOT / "examples" / "groups.yaml")),
    )
    for share in (*report.namespaces, *report.workloads):
        assert sum(share.by_resource.values()) == pytest.approx(share.cost)
        assert sum(share.by_pool.values()) == pytest.approx(share.cost)


def test_groups_of_a_mix_are_the_groups_of_the_next_call() -> None:
    plan = result("mix")
    (group,) = plan.groups
    assert (group.id, group.max_size, group.price) == ("pool", 1, 0.5)
    assert kscale.estimate(cluster(), ["shop/new"], template=group).node_count == plan.node_count
    assert kscale.scale_up(cluster(), plan.groups, now=NOW).new_node_count == plan.node_count
    assert pickle.loads(pickle.dumps(plan)).groups == plan.groups
    with pytest.raises(InputError, match="read from JSON"):
        msgspec.convert(msgspec.to_builtins(plan), type(plan)).groups  # noqa: B018  # the access raises


def test_every_record_type_has_a_summary_in_plain_fields() -> None:
    class Sample(Record, frozen=True):
        KIND = "Sample"
        size: int
        names: list[str]
        nothing: str | None = None

    assert repr(Sample(size=3, names=["a", "b"])) == "<Sample: size=3, 2 names>"


def test_cluster_and_snapshot_repr_count_objects() -> None:
    assert repr(cluster()) == "<Cluster: 2 Node, 4 Pod>"
    assert repr(kscale.Cluster()) == "<Cluster: empty>"
    assert "<td>Pod</td><td>4</td>" in cluster()._repr_html_()
    assert "<td>n1</td><td>1</td><td>3</td>" in cluster().snapshot()._repr_html_()
    many = kscale.load([node(f"n{i}") for i in range(60)]).snapshot()
    assert "(the first 50 nodes)" in many._repr_html_()


@pytest.mark.parametrize("of", ["nodes", "pods", "all"])
def test_a_cluster_that_changes_during_an_iteration_raises_a_named_error(of: str) -> None:
    changing = cluster().copy()
    iterator = changing.all("Namespace") if of == "all" else getattr(changing, of)()
    if of != "all":
        next(iterator)
    changing.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    if of == "all":  # an iterator that has not begun sees the cluster as it is then
        assert len(list(iterator)) == 1
        iterator = changing.all("Namespace")
        next(iterator)
        changing.remove("Namespace", "shop")
    with pytest.raises(ConcurrentUseError, match=rf"Cluster\.{of}: the cluster changed during the iteration"):
        list(iterator)


def test_dir_and_help_show_the_public_names() -> None:
    assert dir(kscale) == sorted(kscale.__all__)
    assert kscale.__doc__ is not None
    named = re.findall(r"``([\w.]+)``", kscale.__doc__)
    public = {name for name in named if name.split(".")[0] in kscale.__all__}
    functions = {name for name in kscale.__all__ if callable(getattr(kscale, name)) and name.islower()}
    assert functions - {"build_info"} <= public
    assert "msgspec" not in kscale.__doc__
