"""Draw the pictures of the documentation from what kscale answers about the examples.

    python docs/pictures.py            # write all pictures to docs/pictures
    python docs/pictures.py NAME ...   # write some of them

``tests/unit/test_pictures.py`` draws each picture again and compares it with the file.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH, ROW, MARGIN = 760, 24, 16
FONT = "ui-sans-serif,system-ui,sans-serif"
COLORS = {"": "#3b6ea8", "good": "#2f7d5b", "warn": "#b7791f", "bad": "#b23b3b", "dim": "#b8c2cc"}


ONE = re.compile(r"(?<![\d.,])1 (node|pod|time)s\b")
"""A count of one with a plural."""


class Bar(NamedTuple):
    """One bar: its label, its length, the text behind it, and its tone (a key of ``COLORS``)."""

    label: str
    value: float
    text: str
    tone: str = ""


def svg(title: str, source: str, height: int, parts: Iterable[str]) -> str:
    """Return a picture with a title above ``parts`` and the command that it shows below."""
    lines = textwrap.wrap(source, 108, subsequent_indent="    ", break_on_hyphens=False)
    total = height + 76 + 16 * len(lines)
    style = f'font-family="{FONT}" font-size="13" fill="#1f2933"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" role="img" {style}>',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{total}" rx="8" fill="#fbfcfd" stroke="#d8dee4"/>',
            f'<text x="{MARGIN}" y="30" font-size="16" font-weight="600">{escape(title)}</text>',
            '<g transform="translate(0 46)">',
            *parts,
            "</g>",
            *(
                f'<text x="{MARGIN}" y="{height + 76 + 16 * number}" font-size="11" xml:space="preserve"'
                f' font-family="ui-monospace,monospace" fill="#616e7c">{escape(line)}</text>'
                for number, line in enumerate(lines)
            ),
            "</svg>",
            "",
        ]
    )


def bars(title: str, source: str, rows: Sequence[Bar]) -> str:
    """Return a picture with one horizontal bar per row."""
    rows = [row._replace(text=ONE.sub(r"1 \1", row.text)) for row in rows]
    label_width = max(120, MARGIN + round(max((len(row.label) for row in rows), default=0) * 7.4))
    longest = max((row.value for row in rows), default=0) or 1
    # Each bar must leave room for its own text: 6.8 pixels per character.
    texts = max((len(row.text) for row in rows), default=0) * 6.8
    room = WIDTH - label_width - 2 * MARGIN - 10 - texts
    parts = []
    for i, row in enumerate(rows):
        y, length = i * ROW, round(room * row.value / longest, 1)
        parts += [
            f'<text x="{label_width}" y="{y + 16}" text-anchor="end">{escape(row.label)}</text>',
            (
                f'<rect x="{label_width + 10}" y="{y + 4}" width="{max(length, 1)}" height="16" rx="3" '
                f'fill="{COLORS[row.tone]}"/>'
            ),
            f'<text x="{label_width + 18 + max(length, 1)}" y="{y + 16}" fill="#52606d">{escape(row.text)}</text>',
        ]
    return svg(title, source, len(rows) * ROW, parts)


def matrix(title: str, source: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a picture with a dot for each of ``columns`` that a row names."""
    left = max(160, 70 + round(max((len(label) for label, _ in rows), default=0) * 7.4))
    step = min(100, (WIDTH - left - 30) // max(len(columns), 1))
    parts = [
        f'<text x="{left + i * step}" y="16" font-size="11" text-anchor="middle" fill="#616e7c">{escape(name)}</text>'
        for i, name in enumerate(columns)
    ]
    for i, (label, marks) in enumerate(rows, start=1):
        y = i * ROW - 4
        parts.append(f'<text x="{left - 50}" y="{y + 16}" text-anchor="end">{escape(label)}</text>')
        for j, name in enumerate(columns):
            color = COLORS["" if name in marks else "dim"]
            radius = 6 if name in marks else 2
            parts.append(f'<circle cx="{left + j * step}" cy="{y + 12}" r="{radius}" fill="{color}"/>')
    return svg(title, source, (len(rows) + 1) * ROW, parts)


# -- answers -----------------------------------------------------------------------------------------------------------

DUMP = "-f examples/cluster.json.gz"
GROUPS = f"{DUMP} -g examples/groups.yaml"


@cache
def run(line: str) -> Any:
    """Run a command line in this process and return the JSON document that it prints."""
    from typer.testing import CliRunner

    from kscale.cli.app import app

    program, *arguments = shlex.split(line)
    assert program == "kscale", line
    result = CliRunner().invoke(app, [*arguments, "-q", "-o", "json"])
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout)


def run_quietly(line: str) -> None:
    """Run a command line that writes files."""
    from typer.testing import CliRunner

    from kscale.cli.app import app

    result = CliRunner().invoke(app, [*shlex.split(line)[1:], "-q"])
    assert result.exit_code == 0, result.output


def manifests(program: str) -> list[dict[str, Any]]:
    """Return the objects of ``kscale manifests PROGRAM``."""
    image = "" if program == "reader" else "--image registry.example/kscale:0.1.0"
    document = run(f"kscale manifests {program} {image}")
    items: list[dict[str, Any]] = document["items"]
    return items


def rights(program: str, title: str) -> str:
    """Return a picture of the rights of a program: verbs by resource."""
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    granted: dict[str, dict[str, None]] = {}
    for item in manifests(program):
        for rule in item.get("rules") or [] if item["kind"] in ("ClusterRole", "Role") else []:
            for resource in rule.get("resources") or []:
                granted.setdefault(resource, {}).update(dict.fromkeys(rule["verbs"]))
    rows = sorted(granted.items(), key=lambda item: (-len(item[1].keys() - {"get", "list", "watch"}), item[0]))
    shown = [(name, [verb for verb in verbs if verb in has or "*" in has]) for name, has in rows]
    return matrix(title, f"$ kscale manifests {program}{'' if program == 'reader' else ' --image IMAGE'}", verbs, shown)


def estimate() -> str:
    """How many nodes each group needs for the pending pods, against the proven minimum."""
    line = f"kscale estimate {GROUPS}"
    rows = [
        Bar(
            group["group"],
            group["nodes"],
            f"{group['nodes']} nodes for {group['pods']} pods (at least {group['bound']})"
            if group["pods"]
            else "takes none",
            "good" if group["pods"] and group["nodes"] == group["bound"] else "",
        )
        for group in run(line)["groups"]
    ]
    report = run(line)
    title = (
        f"{report['pendingCount']} pending pods: {report['onExisting']} fit, {report['needNew']} need new nodes, "
        f"{report['unschedulableCount']} fit nowhere"
    )
    return bars(title, f"$ {line}", rows)


def whole_loop() -> str:
    """What one loop of scale-up does with the pending pods."""
    line = f"kscale scale-up {GROUPS}"
    plan = run(line)
    left = sum(len(pods["pods"]) for pods in plan["remainUnschedulable"])
    rows = [
        Bar("fit on existing nodes", len(plan["placed"]), f"{len(plan['placed'])} pods", "good"),
        Bar("get new nodes", len(plan["triggered"]), f"{len(plan['triggered'])} pods", ""),
        Bar("stay pending", left, f"{left} pods", "bad"),
    ]
    sizes = ", ".join(f"{info['group']} {info['current']} -> {info['new']}" for info in plan["scaleUps"])
    return bars(f"One loop of the Cluster Autoscaler: {sizes}", f"$ {line}", rows)


def costs() -> str:
    """Cost per hour by namespace."""
    line = f"kscale cost {GROUPS}"
    report = run(line)
    rows = [
        Bar(item["name"], item["cost"], f"${item['cost']:.2f}/h, {item['share']:.0%}") for item in report["namespaces"]
    ]
    rows.append(Bar("idle", report["idle"], f"${report['idle']:.2f}/h, {report['idle'] / report['cost']:.0%}", "warn"))
    return bars(f"${report['cost']:.2f} per hour: what each namespace requests", f"$ {line}", rows)


def mixes() -> str:
    """Nodes to buy by type, and the lower bound of the cost."""
    line = f"kscale mix {GROUPS} --budget 0"
    plan = run(line)
    rows = [
        Bar(item["type"], item["cost"], f"{item['nodes']} nodes for {item['pods']} pods, ${item['cost']:.2f}/h")
        for item in plan["lines"]
    ]
    bound = plan["bound"]["cost"]
    proof = "" if bound is None else f", and no mix costs less than ${bound:.2f}"
    title = f"The cheapest mix: {plan['nodeCount']} nodes for ${plan['cost']:.2f} per hour{proof}"
    return bars(title, f"$ {line}", rows)


def karpenter() -> str:
    """Cost of what Karpenter would launch, of the cheapest mix within the same NodePools, and the lower bound."""
    line = f"kscale mix {DUMP} -g examples/nodepools.yaml --catalogue examples/data/aws.csv --budget 0"
    plan = run(line)
    launched = plan["karpenter"]
    rows = [
        Bar(name, cost, f"${cost:.2f}/h, {nodes} nodes for {pods} pods", tone)
        for name, cost, nodes, pods, tone in (
            ("Karpenter", launched["cost"], launched["nodes"], launched["onNew"], "dim"),
            ("cheapest mix", plan["cost"], plan["nodeCount"], plan["onNew"], "good"),
        )
    ]
    bound = plan["bound"]["cost"]
    if bound is not None:
        rows.append(Bar("lower bound", bound, f"${bound:.2f}/h, no mix costs less", "warn"))
    return bars("What Karpenter would launch, and the cheapest mix of the same NodePools", f"$ {line}", rows)


def consolidation() -> str:
    """Cost after each step of a consolidation, and the lower bound of the cost."""
    line = f"kscale consolidate {DUMP} -g examples/reserved.yaml --now 2026-07-01T00:00:00Z"
    plan = run(line)
    today, *_, optimum = plan["table"]
    rows = [
        Bar("today", today["cost"], f"${today['cost']:.2f}/h, {today['nodes']} nodes", "dim"),
        *(
            Bar(f"step {step['number']}", step["cost"], f"${step['cost']:.2f}/h, {step['nodes']} nodes", "good")
            for step in plan["steps"]
        ),
        Bar("optimum", optimum["cost"], f"${optimum['cost']:.2f}/h at least", "warn"),
    ]
    return bars("Cost after each step, and what the optimum costs at least", f"$ {line}", rows)


def usage() -> str:
    """Nodes by the share of cpu that is requested."""
    line = f"kscale nodes {GROUPS} --now 2026-07-01T00:00:00Z"
    tenths = Counter(min(9, 10 * node["cpu"]["requests"] // node["cpu"]["allocatable"]) for node in run(line)["nodes"])
    rows = [
        Bar(f"{10 * tenth}% to {10 * tenth + 10}%", tenths[tenth], f"{tenths[tenth]} nodes")
        for tenth in range(max(tenths), min(tenths) - 1, -1)
    ]
    return bars("Nodes by the share of their CPU that is requested", f"$ {line}", rows)


def scenarios() -> str:
    """Nodes by what-if scenario."""
    line = f"kscale whatif examples/scenarios.yaml {GROUPS}"
    report = run(line)
    rows = [
        Bar(row["name"], row["nodes"], f"{row['nodes']} nodes, {row['pending']} pods pending")
        for row in report["scenarios"]
    ]
    base = report["baselines"][0]
    return bars(
        "Nodes after the decision, by scenario",
        f"$ {line}",
        [Bar("baseline", base["nodes"], f"{base['nodes']} nodes, {base['pending']} pods pending", "dim"), *rows],
    )


def sweeps() -> str:
    """Nodes by scenario, over clusters."""
    vary = "--vary flags.expander=price,most-pods --vary prices.memory=x0.5,x1"
    line = f"kscale sweep {GROUPS} --now 2026-07-01T00:00:00Z --jobs 1 {vary}"
    rows = [
        Bar(row["scenario"], row["row"]["cost"] or 0, f"${row['row']['cost'] or 0:.2f}/h")
        for row in run(line)["rows"]
        if row.get("row")
    ]
    return bars("Cost per hour of each scenario", f"$ {line}", rows)


def removals() -> str:
    """Why nodes stay, or can go."""
    line = f"kscale scale-down {GROUPS}"
    counts = Counter(item.get("reason") or item["decision"] for item in run(line)["nodes"])
    rows = [Bar(name, count, f"{count} nodes") for name, count in counts.most_common()]
    return bars("What a loop of scale-down decides about each node", f"$ {line}", rows)


def reasons() -> str:
    """Why one pod fits no node."""
    pod = run(f"kscale estimate {GROUPS}")["unschedulable"][0]
    line = f"kscale explain {GROUPS} {pod}"
    counts = Counter(reason for verdict in run(line)["verdicts"] for reason in verdict["first"]["reasons"])
    rows = [Bar(reason, count, f"{count} nodes", "bad") for reason, count in counts.most_common()]
    return bars(f"Why {pod.partition('/')[2]} fits no node", f"$ {line}", rows)


def losses() -> str:
    """Pods without a place after the loss of each zone."""
    line = f"kscale headroom {DUMP}"
    report = run(line)
    rows = [
        Bar(
            zone["name"],
            zone["pods"],
            f"{zone['pods']} pods move, {zone['homeless']} fit nowhere",
            "bad" if zone["homeless"] else "good",
        )
        for zone in report["zones"]
    ]
    return bars("What the loss of a zone leaves without a node", f"$ {line}", rows)


def sizes() -> str:
    """Sizes of the node groups of the examples."""
    import kscale

    groups = kscale.read_groups("examples/groups.yaml")
    rows = [
        Bar(group.id, group.max_size, f"{group.min_size} to {group.max_size} nodes, ${group.price or 0:.3f}/h each")
        for group in groups
    ]
    return bars("The node groups of the examples", ">>> kscale.read_groups('examples/groups.yaml')", rows)


def generated() -> str:
    """Nodes of a generated cluster by zone."""
    line = "kscale generate --nodes 40 --pods 600 --seed 7"
    from kscale.capacity.generate import generate

    nodes = [item for item in generate(40, 600, seed=7).objects() if item["kind"] == "Node"]
    counts = Counter(item["metadata"]["labels"].get("node.kubernetes.io/instance-type", "") for item in nodes)
    rows = [Bar(name, count, f"{count} nodes") for name, count in sorted(counts.items())]
    return bars("The nodes of a generated cluster, by instance type", f"$ {line}", rows)


def prices() -> str:
    """Price of a core by machine, as catalogues and groups files have them."""
    import kscale

    rows = []
    snapshot = kscale.load("examples/cluster.json.gz").snapshot()
    cpu = snapshot.columns.allocatable["cpu"]
    for group in kscale.read_groups("examples/groups.yaml"):
        assert group.price is not None
        assert group.from_node is not None
        cores = cpu[snapshot.nodes.index(group.from_node)] / 1000
        rows.append(Bar(group.id, group.price / cores, f"${group.price / cores:.4f} per core and hour"))
    return bars("What a core costs", ">>> kscale.read_groups('examples/groups.yaml')", rows)


def expanders() -> str:
    """Score of each group that takes pods, by an expander."""
    line = f"kscale scale-up {GROUPS} --expander least-waste"
    options = [option for option in run(line)["options"] if option["scores"]]
    rows = [
        Bar(
            option["group"],
            option["scores"][0]["score"],
            f"{option['scores'][0]['score']:.3f}: {option['nodes']} nodes, {option['pods']} pods",
            "good" if option["chosen"] else "",
        )
        for option in options
    ]
    return bars("Scores of the expander least-waste: the lowest is chosen", f"$ {line}", rows)


def actions() -> str:
    """Actions that a loop yields to its driver."""
    from datetime import UTC, datetime

    import kscale
    from kscale import ca

    cluster = kscale.load("examples/cluster.json.gz")
    groups = kscale.read_groups("examples/groups.yaml")
    report = ca.run_once(cluster, groups, now=datetime(2026, 5, 4, tzinfo=UTC))
    counts = Counter(type(action).__name__ for action in report.actions)
    rows = [Bar(name, count, f"{count} times") for name, count in counts.most_common()]
    return bars("Actions that one loop hands to its driver", ">>> ca.run_once(cluster, groups, now=now).actions", rows)


def scores() -> str:
    """Scores of nodes for a pod, which own scorers add to."""
    import kscale

    snapshot = kscale.load("examples/cluster.json.gz").snapshot()
    pod = next(iter(kscale.place(snapshot).placed))
    found = kscale.node_scores(snapshot, pod)
    ranked = sorted(zip(found.nodes, found.total, strict=True), key=lambda item: -item[1])[:8]
    rows = [Bar(name, score, f"{score}") for name, score in ranked]
    return bars(f"Total scores of the best nodes for {pod}", ">>> kscale.node_scores(snapshot, pod)", rows)


def kinds() -> str:
    """Objects of a dump by kind."""
    line = f"kscale validate {DUMP}"
    rows = [Bar(item["kind"], item["objects"], f"{item['objects']}") for item in run(line)["kinds"]]
    return bars("What a check of a dump reads", f"$ {line}", rows)


def simulated() -> str:
    """Nodes and pods of a simulated quarter of an hour."""
    line = "kscale simulate examples/simulate-web.yaml --horizon 15m"
    report = run(line)
    pending = report["pendingPods"]
    rows = [
        Bar(f"{name} of pending pods", pending[key], f"{pending[key]:.0f} s", tone)
        for name, key, tone in (
            ("median wait", "p50", ""),
            ("95th percentile", "p95", ""),
            ("longest wait", "max", "warn"),
        )
    ]
    return bars(f"{pending['pods']} pods wait for at most {report['mostNodes']} nodes", f"$ {line}", rows)


def provisioners() -> str:
    """Cost of a scenario with each provisioner."""
    line = "kscale compare examples/simulate-karpenter.yaml --provisioners --horizon 20m"
    runs = run(line)["runs"]
    rows = [
        Bar(
            each["provisioner"],
            each["cost"],
            f"$ {each['cost']:.2f}, {each['nodeHours']:.1f} node-hours, p95 wait {each['pendingP95']:.0f} s",
            tone,
        )
        for each, tone in zip(runs, ("dim", ""), strict=True)
    ]
    return bars("One scenario with each provisioner", f"$ {line}", rows)


def replicas() -> str:
    """How many more of a pod fit, by node."""
    line = f"kscale headroom {DUMP} --pod examples/web.yaml"
    (pods,) = run(line)["pods"]
    rows = [Bar(name, count, f"{count} pods") for name, count in list((pods["placement"] or {}).items())[:12]]
    return bars(f"{pods['more']} more pods like {pods['pod']} fit", f"$ {line}", rows)


def iam() -> str:
    """Actions of the IAM policy on AWS: which ones are limited to the groups' tags."""
    from kscale.drivers.manifests.cluster_autoscaler import aws_policy

    line = "kscale manifests cluster-autoscaler --image IMAGE --cloud-provider aws --iam-policy"
    statements = aws_policy(names=(), tags={"k8s.io/cluster-autoscaler/enabled": ""})["Statement"]
    rows = [
        (action, ["limited by tags" if statement.get("Condition") else "any"])
        for statement in statements
        for action in statement["Action"]
    ]
    return matrix("What the Cluster Autoscaler may do on AWS", f"$ {line}", ("any", "limited by tags"), rows)


def full_nodes() -> str:
    """Pods of each node as a table's rows would count them."""
    import kscale

    snapshot = kscale.load("examples/cluster.json.gz").snapshot()
    counts = Counter(kscale.place(snapshot).placed.values())
    rows = [Bar(name, count, f"{count} pods") for name, count in counts.items()]
    return bars("Pending pods that fit, by node", ">>> polars.DataFrame(kscale.place(snapshot))", rows)


def decisions() -> str:
    """Replicas before and after, by HPA."""
    line = "kscale hpa -f examples/shop.json"
    rows = []
    for item in run(line)["hpas"]:
        now, then = item["currentReplicas"], item["desiredReplicas"]
        tone = "dim" if then is None else "" if then == now else "good"
        rows.append(Bar(item["name"], then or 0, f"{now} -> {'not decided' if then is None else then}", tone))
    return bars("Replicas that each HPA wants", f"$ {line}", rows)


def right_sizes() -> str:
    """Requested cpu of workloads, and the recommended one."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        files = f"-f {folder}/cluster.json --history {folder}/usage.parquet"
        line = "kscale generate --nodes 6 --pods 60 --seed 1 --lean --to cluster.json --usage usage.parquet"
        run_quietly(line.replace("cluster.json", f"{folder}/cluster.json").replace("usage.p", f"{folder}/usage.p"))
        report = run(f"kscale recommend {files} -n web -n kube-system")
    rows = []
    for container in report["containers"]:
        cpu = container["cpu"]
        rows.append(Bar(container["workload"], cpu["request"], f"requests {cpu['request']}m", "dim"))
        tone = "good" if cpu["target"] <= cpu["request"] else "warn"
        rows.append(Bar("", cpu["target"], f"should request {cpu['target']}m", tone))
    source = "$ kscale recommend -f cluster.json --history usage.parquet -n web -n kube-system"
    return bars("CPU that containers request, and should request", source, rows)


PICTURES: dict[str, Callable[[], str]] = {
    "estimate": estimate,
    "scale-up": whole_loop,
    "cost": costs,
    "mix": mixes,
    "karpenter": karpenter,
    "provisioners": provisioners,
    "consolidate": consolidation,
    "node-maintenance": usage,
    "whatif": scenarios,
    "sweep": sweeps,
    "scale-down": removals,
    "explain": reasons,
    "headroom": losses,
    "groups": sizes,
    "generate": generated,
    "catalogues": prices,
    "expander": expanders,
    "aws": iam,
    "embed": actions,
    "own": scores,
    "tools": kinds,
    "simulate": simulated,
    "coming-from": replicas,
    "tables": full_nodes,
    "hpa": decisions,
    "recommend": right_sizes,
    "rights-cluster-autoscaler": lambda: rights("cluster-autoscaler", "What the Cluster Autoscaler may do"),
    "rights-horizontal": lambda: rights("horizontal", "What the HPA controller may do"),
    "rights-vpa-recommender": lambda: rights("vpa-recommender", "What the VPA recommender may do"),
    "rights-vpa-updater": lambda: rights("vpa-updater", "What the VPA updater may do"),
    "rights-vpa-admission": lambda: rights("vpa-admission", "What the VPA admission controller may do"),
    "rights-reader": lambda: rights("reader", "What a reader of a live cluster may do"),
}


def main(names: Sequence[str]) -> None:
    os.chdir(ROOT)
    FOLDER.mkdir(exist_ok=True)
    for name in names or PICTURES:
        (FOLDER / f"{name}.svg").write_text(PICTURES[name](), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
