"""What a notebook shows of a result: its texts escaped, its lists as tables, cut where they are long."""

from __future__ import annotations

import kscale
from kscale.effects import SECOND
from kscale.html import notebook
from kscale.objects.core import Node, Pod
from kscale.objects.decode import from_dict
from kscale.records import Record


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
    shown = Report(total=3, names=["a", "<b>"], lines=[Line(name=f"n{i}", count=i) for i in range(60)])._repr_html_()
    assert shown.startswith("<div><p><strong>Report</strong></p>")
    assert "<td>total</td><td>3</td>" in shown
    assert "<td>names</td><td>a, &lt;b&gt;</td>" in shown
    assert "<caption>lines</caption><thead><tr><th>name</th><th>count</th></tr></thead>" in shown
    assert "<td>n49</td><td>49</td>" in shown
    assert "<td>n50</td>" not in shown
    assert "and 10 more" in shown


def test_an_empty_table_is_nothing() -> None:
    assert notebook.listing("none", ["a"], []) == "<div><p><strong>none</strong></p></div>"


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
