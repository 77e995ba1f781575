"""What a notebook shows of a result: its texts escaped, its lists as tables, cut where they are long."""

from __future__ import annotations

from datetime import timedelta

import kscale
from kscale import hpa
from kscale.effects import SECOND
from kscale.html import markup
from kscale.objects.api.apps import ReplicaSet
from kscale.objects.api.autoscaling import Scale, ScaleSpec, ScaleStatus
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.vpa import RecommendedContainerResources, RecommendedPodResources, VerticalPodAutoscalerStatus
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity
from kscale.records import Record
from kscale.vpa import RecommenderResult, UpdaterResult, VpaResult
from kscale.vpa.updater.context import ChosenPod


class Line(Record, frozen=True):
    name: str
    count: int


class Report(Record, frozen=True):
    """A document."""

    KIND = "Report"
    total: int
    names: list[str]
    lines: list[Line]


def test_a_record() -> None:
    text = Report(total=3, names=["a", "<b>"], lines=[Line(name=f"n{i}", count=i) for i in range(60)])._repr_html_()
    assert text.startswith("<div><p><strong>Report: total=3, 2 names, 60 lines</strong></p>")
    assert "<td>total</td><td>3</td>" in text
    assert "<td>names</td><td>a, &lt;b&gt;</td>" in text
    assert "<caption>lines</caption><thead><tr><th>name</th><th>count</th></tr></thead>" in text
    assert "<td>n49</td><td>49</td>" in text
    assert "<td>n50</td>" not in text
    assert "and 10 more" in text


def test_an_empty_table_is_nothing() -> None:
    assert markup.listing("none", ["a"], []) == "<div><p><strong>none</strong></p></div>"


def test_results() -> None:
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    node = from_dict({"metadata": {"name": "n<1>"}, "status": {"allocatable": amounts, "capacity": amounts}}, Node)
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "600m"}}}]}
    waiting = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    pods = [from_dict({"metadata": {"name": name, "namespace": "d"}, "spec": spec, "status": waiting}, Pod)
            for name in ("p0", "p1")]  # fmt: skip
    snapshot = kscale.Cluster([node, *pods]).snapshot()
    placed = kscale.place(snapshot)._repr_html_()
    assert "<strong>&lt;PlaceResult: 1 of 2 pods placed on 1 nodes, 1 fit nowhere&gt;</strong>" in placed
    assert "<td>d/p0</td><td>n&lt;1&gt;</td>" in placed
    assert "<td>d/p1</td><td></td>" in placed
    estimate = kscale.estimate(snapshot, template=node, options=kscale.EstimateOptions(max_nodes=1))._repr_html_()
    assert "<td>d/p0</td><td>n&lt;1&gt;-" in estimate
    assert "<td>d/p1</td><td>" in estimate
    groups = [kscale.NodeGroup(id="g&h", max_size=5, template=kscale.NodeTemplate(node=node))]
    up = kscale.scale_up(kscale.Cluster(pods), groups, now=1_800_000_000 * SECOND)._repr_html_()
    assert "<td>g&amp;h</td><td>0</td><td>2</td>" in up
    fit = kscale.fit(snapshot)._repr_html_()
    assert "<strong>&lt;FitResult: 2 of 2 pods fit some node; 1 nodes&gt;</strong>" in fit
    assert "<td>d/p0</td><td>1</td>" in fit


def test_scale_down_and_a_whole_loop() -> None:
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    status = {
        "allocatable": amounts,
        "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    nodes = [from_dict({"metadata": {"name": name}, "status": status}, Node) for name in ("full", "idle", "moves")]
    bound = [("big", "full", "700m", "u0"), ("little", "moves", "100m", "u1")]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    pods = [
        from_dict(
            {
                "metadata": {"name": name, "namespace": "d", "uid": uid, "ownerReferences": [owner]},
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}],
                },
            },
            Pod,
        )
        for name, node, cpu, uid in bound
    ]
    replica_set = {"metadata": {"name": "r", "namespace": "d", "uid": "r"}, "spec": {"replicas": 2}}
    cluster = kscale.Cluster([*nodes, *pods, from_dict(replica_set, ReplicaSet)])
    groups = [kscale.NodeGroup(id="g", max_size=5, nodes=[node.metadata.name for node in nodes])]
    options = kscale.ca.AutoscalingOptions(scale_down_unneeded_time=timedelta(0))
    down = kscale.scale_down(cluster, groups, now=1_800_000_000 * SECOND, options=options)._repr_html_()
    assert "<th>node</th><th>decision</th><th>movedPods</th><th>reason</th>" in down
    assert "<td>idle</td><td>deleted</td><td>0</td><td></td>" in down
    assert "<td>moves</td><td>drained</td><td>1</td><td></td>" in down
    assert "<td>full</td><td>stays</td><td></td><td>NotUnderutilized</td>" in down
    report = kscale.ca.run_once(cluster, groups, now=1_800_000_000 * SECOND, options=options)
    text = report._repr_html_()
    assert text.startswith("<div><p><strong>&lt;LoopReport: scale_up=")
    assert text.endswith("</div>")
    assert "<strong>&lt;ScaleUpPlan: " in text
    assert down.partition("<table>")[2] in text


def test_decisions_of_hpas() -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    hpas = [
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": "d"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1,
                "maxReplicas": 2,
                "metrics": [metric],
            },
        }
        for name in ("a<b", "none")
    ]
    scale = Scale(spec=ScaleSpec(replicas=3), status=ScaleStatus(replicas=3, selector="app=web"))
    decisions = hpa.decide(hpas, {"d/a<b": scale}, [], hpa.MetricLists(), now=1_800_000_000 * SECOND)
    text = decisions._repr_html_()
    assert "<th>hpa</th><th>current</th><th>desired</th><th>decidedBy</th><th>reason</th>" in text
    assert "<td>d/a&lt;b</td><td>3</td><td>2</td><td>above_max</td><td>above_max</td>" in text
    assert "<td>d/none</td><td></td><td></td><td>no_scale</td><td>none</td>" in text


def test_rounds_of_the_vpa() -> None:
    target = {"cpu": Quantity("25m"), "memory": Quantity("250Mi")}
    recommendations = [RecommendedContainerResources(container_name="c", target=target)]
    status = VerticalPodAutoscalerStatus(
        recommendation=RecommendedPodResources(container_recommendations=recommendations)
    )
    of_one = VpaResult(namespace="d", name="v", status=status, status_written=True, pod_count=1, selector="")
    text = RecommenderResult(vpas=[of_one])._repr_html_()
    assert "<strong>&lt;RecommenderResult: 1 VPAs, 1 statuses written, 0 samples refused&gt;</strong>" in text
    assert "<td>d/v</td><td>c</td><td>25m</td><td>250Mi</td>" in text
    pod = ChosenPod(
        namespace="d", pod="p", vpa="v", outside_recommended_range=True, scale_up=True, resource_diff=1.0,
        quick_oom=False, targets="c: cpu 25m",
    )  # fmt: skip
    text = UpdaterResult(chosen=[pod])._repr_html_()
    assert "<td>d/p</td><td>v</td><td>c: cpu 25m</td>" in text
