"""The text of the three first answers, from records made by hand."""

from __future__ import annotations

import io

from kscale.capacity.records import (
    EstimateReport,
    Explanation,
    FitReport,
    GroupAnswer,
    GroupEstimate,
    Nearest,
    NodeVerdict,
    PluginVerdict,
    Rejection,
    Shortage,
    WorkloadFit,
)
from kscale.cli.commands.estimate import estimate_view
from kscale.cli.commands.explain import explanation_view
from kscale.cli.commands.fit import fit_view
from kscale.cli.output import Answer, Format, View, render
from kscale.cli.terminal import Terminal
from kscale.records import Record

AFFINITY = Rejection(
    pods=12, plugin="NodeAffinity", reasons=["node(s) didn't match Pod's node affinity/selector"], example="a/b"
)
TAINT = Rejection(pods=310, plugin="TaintToleration", reasons=["node(s) had untolerated taint(s)"], example="a/c")


def text(record: Record, view: View, form: Format = Format.TABLE) -> str:
    stream = io.StringIO()
    render(Answer(record, lambda: view), form, Terminal(stdout=stream, stderr=io.StringIO(), environ={}))
    return stream.getvalue()


def group(name: str, nodes: int, pods: int, *rejections: Rejection, maximum: int | None = None) -> GroupEstimate:
    return GroupEstimate(
        group=name,
        nodes=nodes,
        bound=max(0, nodes - 1),
        bound_method="volume",
        pods=pods,
        utilization={"cpu": 0.912, "memory": 0.64} if nodes else {},
        limited_by="cpu" if nodes else None,
        rejections=list(rejections),
        current=10,
        maximum=maximum,
    )


def report(
    *groups: GroupEstimate, pending: int = 412, nowhere: int = 6, gated: int = 0, running: int = 0, unjudged: str = ""
) -> EstimateReport:
    return EstimateReport(
        pending_count=pending,
        gated=gated,
        expendable=0,
        terminating=0,
        on_unknown_nodes=0,
        daemon_set=0,
        on_existing=96 if pending else 0,
        need_new=pending - 96 - nowhere if groups else 0,
        unschedulable_count=nowhere,
        ignored_existing=False,
        groups=list(groups),
        unschedulable=[f"team-a/train-{n}" for n in range(nowhere)],
        unmodelled=[unjudged] if unjudged else [],
        expendable_running=running,
        expendable_cutoff=-10,
    )


def test_estimate() -> None:
    record = report(
        group("m5-2xlarge-a", 23, 310, maximum=30), group("r5-xlarge", 31, 298, AFFINITY), group("gpu-p3", 0, 0, TAINT)
    )
    assert text(record, estimate_view(record, "kscale explain -f cluster.json -g groups.yaml")) == (
        "412 pods pending: 96 fit on nodes that exist, 310 need new nodes, 6 fit nowhere.\n"
        "\n"
        "NODE GROUP    NODES  BOUND  PODS  CPU  MEMORY  LIMITED BY  WHY NOT MORE\n"
        "m5-2xlarge-a     23     22   310  91%     64%  cpu\n"
        "r5-xlarge        31     30   298  91%     64%  cpu         12 pods: node(s) didn't match Pod's node "
        "affinity/selector\n"
        "gpu-p3            0      -     0    -       -              310 pods: node(s) had untolerated taint(s)\n"
        "\n"
        "m5-2xlarge-a: 23 more nodes are 3 over its maximum of 30 (10 now).\n"
        "6 pods fit nowhere: kscale explain -f cluster.json -g groups.yaml team-a/train-0\n"
    )


def test_estimate_names_and_csv() -> None:
    record = report(group("a", 2, 3), group("b", 0, 0, TAINT))
    view = estimate_view(record, "kscale explain")
    assert text(record, view, Format.NAME) == "nodegroup/a\n"
    assert text(record, view, Format.CSV).splitlines()[1] == "a,2,1,volume,,,3,0.912,0.64,cpu,10,,,"


def test_estimate_without_groups_or_pods() -> None:
    assert (
        estimate_view(report(nowhere=316), "x").headline
        == "412 pods pending: 96 fit on nodes that exist, 316 do not, and no node group is known."
    )
    nothing = estimate_view(report(pending=0, nowhere=0, gated=1), "x")
    assert nothing.headline == "No pods are pending."
    assert nothing.footer == ["1 pod not counted: waiting for scheduling gates."]


def test_estimate_footer_names_unmodelled_limits_and_expendable_pods() -> None:
    view = estimate_view(report(running=2, nowhere=0, unjudged="attach limit of d on new nodes"), "x")
    assert view.footer == [
        "2 running pods of a priority below -10 are expendable: their room counts as free.",
        "Not judged: attach limit of d on new nodes. More nodes may be needed than NODES and BOUND say.",
    ]


def no(plugin: str, *shortages: Shortage, detail: str = "", reason: str = "no") -> PluginVerdict:
    return PluginVerdict(plugin=plugin, reasons=[reason], shortages=list(shortages), detail=detail)


def short(requested: str, free: str, by: str, resource: str = "cpu") -> Shortage:
    return Shortage(resource=resource, asked=requested, free=free, short=by)


def explanation(fits_on: list[str], *verdicts: NodeVerdict, **more: object) -> Explanation:
    fields: dict[str, object] = {
        "node": None,
        "nearest": None,
        "groups": [],
        "gates": [],
        "taken_by": [],
        "unmodelled": [],
        "event": "",
        "fits_after_eviction": [],
        "expendable_cutoff": -10,
        "node_count": len(fits_on) + len(verdicts),
        **more,
    }
    return Explanation(
        pod="team-a/train-0",
        fits=bool(fits_on),
        fits_on=fits_on,
        verdicts=list(verdicts),
        **fields,
    )


def test_explain() -> None:
    record = explanation(
        [],
        NodeVerdict(node="node-3", first=no("NodeResourcesFit", short("4", "2350m", "1650m"))),
        NodeVerdict(
            node="node-7",
            first=no("TaintToleration", detail="dedicated=db:NoSchedule not tolerated"),
            also=[no("NodeResourcesFit", short("4", "1100m", "2900m"))],
        ),
        event="0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).",
        nearest=Nearest(node="node-3", shortages=[short("4", "2350m", "1650m")], others=[]),
        groups=[GroupAnswer(group="m5-2xlarge-a", fits=True, allocatable={"cpu": "8"})],
    )
    assert text(record, explanation_view(record)) == (
        "team-a/train-0 does not fit on any of 2 nodes.\n"
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).\n"
        "\n"
        "NODE    FIRST NO          ASKED                                  FREE   ALSO\n"
        "node-3  NodeResourcesFit  cpu 4                                  2350m  -\n"
        "node-7  TaintToleration   dedicated=db:NoSchedule not tolerated         NodeResourcesFit (cpu 4 > 1100m)\n"
        "\n"
        "Nearest: node-3 is 1650m of cpu short.\n"
        "A new node of m5-2xlarge-a (8 cpu) would take it.\n"
    )


def test_explain_of_a_pod_that_fits_and_of_one_that_runs() -> None:
    verdict = NodeVerdict(node="n", first=no("NodeName"))
    assert explanation_view(explanation(["a", "b"], verdict)).headline == "team-a/train-0 fits on 2 of 3 nodes: a, b."
    running = explanation_view(explanation([], verdict, node="m"))
    assert running.headline == "team-a/train-0 runs on m."


def test_explain_of_a_pod_that_fits_once_expendable_pods_are_evicted() -> None:
    verdict = NodeVerdict(node="n", first=no("NodeName"))
    why = "pods of a priority below -10, whose room the Cluster Autoscaler counts as free"
    some = explanation_view(explanation(["a"], verdict, fits_after_eviction=["n"]))
    assert some.headline == (
        f"team-a/train-0 fits on 2 of 2 nodes: a, n.\n1 of these only after evicting expendable pods ({why})."
    )
    all_of_them = explanation_view(explanation([], verdict, fits_after_eviction=["n"], event="0/1 nodes."))
    assert all_of_them.headline == (
        "team-a/train-0 fits on 1 of 1 node: n.\n"
        f"All of these only after evicting expendable pods ({why}). As the nodes are now:\n0/1 nodes."
    )


def test_explain_of_a_nominated_and_of_an_expendable_pod() -> None:
    assert explanation_view(explanation([], node="n", nominated="n")).headline == (
        "team-a/train-0 waits for n: kube-scheduler has nominated that node for it and evicts pods of a lower priority "
        "there. The Cluster Autoscaler counts it as running there and adds no node for it."
    )
    assert explanation_view(explanation([], expendable=True)).footer == [
        "Its priority is below -10: the pod is expendable, and the Cluster Autoscaler adds no node for it."
    ]


def test_explain_does_not_propose_a_node_that_would_not_take_the_pod() -> None:
    reasons = ["node(s) exceed max volume count"]
    vain = GroupAnswer(group="a", fits=True, allocatable={}, plugin="X", reasons=reasons, csi_aware=False)
    unseen = (
        "(without enable-csi-node-aware-scheduling the Cluster Autoscaler does not see that, and adds a node in vain)"
    )
    missed = GroupAnswer(group="b", fits=False, allocatable={}, plugin="X", reasons=["no driver"], csi_aware=True)
    assert explanation_view(explanation([], groups=[vain, missed])).footer == [
        "No new node of 2 groups would take it:",
        f"  a: {reasons[0]}, once the new node has its CSINode {unseen}",
        "  b: no driver (with --enable-csi-node-aware-scheduling it would)",
    ]


def test_explain_shows_a_screenful_and_says_so() -> None:
    many = explanation([], *(NodeVerdict(node=f"n-{n}", first=no("NodeName")) for n in range(100)))
    output = text(many, explanation_view(many))
    assert output.count("NodeName") == 10
    assert "... and 90 more; -o wide shows all." in output
    assert text(many, explanation_view(many), Format.WIDE).count("NodeName") == 100
    assert text(many, explanation_view(many), Format.CSV).count("NodeName") == 100


def test_explain_when_no_group_helps() -> None:
    record = explanation(
        [], groups=[GroupAnswer(group="a", fits=False, allocatable={}, plugin="X", reasons=["Insufficient cpu"])]
    )
    assert explanation_view(record).footer == ["No new node of 1 group would take it:", "  a: Insufficient cpu"]


def workload(name: str, kind: str, replicas: int, fit: int, reason: str = "Insufficient memory") -> WorkloadFit:
    rejections = [Rejection(pods=replicas - fit, plugin="NodeResourcesFit", reasons=[reason], example="x")]
    return WorkloadFit(
        name=name, kind=kind, namespace="d", replicas=replicas, fit=fit, rejections=rejections if fit < replicas else []
    )


def fits(*workloads: WorkloadFit) -> View:
    replicas, fit = sum(w.replicas for w in workloads), sum(w.fit for w in workloads)
    return fit_view(FitReport(replicas=replicas, fit=fit, workloads=list(workloads), unmodelled=[]))


def test_fit_says_one_sentence_for_one_workload() -> None:
    view = fits(workload("web", "Deployment", 40, 31))
    assert view.headline == "d/web (Deployment, 40 replicas): 31 fit now, 9 do not: 9 Insufficient memory."
    assert fits(workload("web", "Deployment", 4, 4)).headline == "d/web (Deployment, 4 replicas): all 4 fit now."
    assert fits(workload("one", "Pod", 1, 1)).headline == "d/one (Pod): fits now."
    assert fits(workload("one", "Pod", 1, 0)).headline == "d/one (Pod): does not fit: Insufficient memory."


def test_fit_shows_a_table_for_several() -> None:
    view = fits(workload("web", "Deployment", 40, 31), workload("etl", "Job", 2, 2))
    assert view.headline == "2 workloads, 42 replicas: 33 fit now, 9 do not."
    assert view.names == ["job/d/etl"]
    assert len(view.tables[0].rows) == 2
