"""estimate, explain and fit on small clusters, through the command line: answers, texts, statuses, streams."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from json_schemas import validate
from kscale.schemas import schema
from unit.cli.support import Run, kscale

BIN = Path(sys.executable).parent
SECRET = "hunter2"


def node(name: str, cpu: str = "4", *, taint: str = "", **labels: str) -> dict[str, Any]:
    taints = [{"key": taint, "value": "yes", "effect": "NoSchedule"}] if taint else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}, "annotations": {"s": SECRET}},
        "spec": {"taints": taints},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(name: str, cpu: str = "1", namespace: str = "a", **spec: Any) -> dict[str, Any]:
    container = {
        "name": "c",
        "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}},
        "env": [{"name": "TOKEN", "value": SECRET}],
    }
    labels = {"app": name.partition("-")[0]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": {"s": SECRET}},
        "spec": {"containers": [container], **spec},
    }


def write(path: Path, *objects: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


GROUPS = [
    {"id": "big", "max": 1, "template": node("big", "8")},
    {"id": "small", "fromNode": "n1", "price": 0.25},
    {"id": "db", "template": node("db", "16", taint="db")},
]


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.yaml"
    path.write_text(yaml.safe_dump(GROUPS))
    return path


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two nodes with 1.5 and 0.5 cpu free, one tainted. Six pending pods: one fits, four need nodes, one never fits."""
    return write(
        tmp_path / "cluster.json",
        node("n1"),
        node("n2"),
        node("n3", taint="db"),
        pod("old-1", "2500m", nodeName="n1"),
        pod("old-2", "3500m", nodeName="n2"),
        pod("web-0", "1500m"),
        *(pod(f"web-{n}", "3") for n in range(1, 5)),
        pod("huge-0", "64", namespace="b"),
        pod("gated-0", schedulingGates=[{"name": "x"}]),
    )


def test_estimate(dump: Path, groups: Path) -> None:
    result = kscale("estimate", "-f", dump, "-g", groups)
    assert result.stdout == (
        "6 pods pending: 1 fit on nodes that exist, 4 need new nodes, 1 fit nowhere.\n"
        "\n"
        "NODE GROUP  NODES  BOUND  PODS  CPU  MEMORY  LIMITED BY  WHY NOT MORE\n"
        "big             2      2     4  75%      3%  cpu         1 pod: Insufficient cpu\n"
        "small           4      4     4  75%      2%  cpu         1 pod: Insufficient cpu\n"
        "db              0      -     0    -       -              5 pods: node(s) had untolerated taint(s)\n"
        "\n"
        "big: 2 more nodes are 1 over its maximum of 1 (0 now).\n"
        f"1 pod fits nowhere: kscale explain -f {dump} -g {groups} b/huge-0\n"
        "1 pod not counted: waiting for scheduling gates.\n"
    )
    assert result.code == 1
    assert f"read {dump}: 3 Nodes, 9 Pods\n" in result.stderr
    assert "missing: no DaemonSets" in result.stderr


def test_estimate_answers_zero_when_every_pod_has_a_place(dump: Path, groups: Path) -> None:
    result = kscale("estimate", "-f", dump, "-g", groups, "-n", "a")
    assert result.stdout.startswith("5 pods pending: 1 fit on nodes that exist, 4 need new nodes, 0 fit nowhere.\n")
    assert result.code == 0


@pytest.mark.parametrize(
    ("arguments", "headline"),
    [
        (["-l", "app=web"], "5 pods pending: 1 fit"),
        (["-l", "app!=web"], "1 pod pending: 0 fit"),
        (["-A"], "6 pods pending: 1 fit"),
        (["--ignore-existing", "-n", "a"], "5 pods pending: 5 need new nodes, 0 fit nowhere."),
        (["-n", "nobody"], "No pods are pending."),
    ],
)
def test_pod_arguments_select_pods(dump: Path, groups: Path, arguments: list[str], headline: str) -> None:
    assert kscale("estimate", "-f", dump, "-g", groups, *arguments).stdout.startswith(headline)


def test_expendable_pods_are_counted_separately(tmp_path: Path, groups: Path) -> None:
    path = write(tmp_path / "low.json", node("n1"), pod("low-0", "64", priority=-11), pod("edge-0", "1", priority=-10))
    result = kscale("estimate", "-f", path, "--node", "n1")
    assert result.code == 0
    assert result.stdout.startswith("1 pod pending: 1 fit on nodes that exist")
    assert "1 pod not counted: a priority below -10, so no node is added for them." in result.stdout


def test_the_flag_for_csi_nodes_is_that_of_the_cluster_autoscaler(tmp_path: Path) -> None:
    path = write(tmp_path / "bare.json", node("n1"), pod("a", "64"))
    flag = "--enable-csi-node-aware-scheduling"
    for command, more in (("estimate", []), ("explain", ["default/a"])):
        result = kscale(command, "-f", path, "--node", "n1", flag, *more)
        assert result.code == 2
        assert "couldn't obtain csi node: csi nodes n1 not found" in result.stderr
    driver = {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": []}}
    result = kscale(
        "estimate", "-f", write(tmp_path / "full.json", node("n1"), pod("a", "64"), driver), "--node", "n1", flag
    )
    assert f"explain -f {tmp_path / 'full.json'} --node n1 {flag} " in result.stdout


def test_the_record_is_whole_and_fits_its_schema(dump: Path, groups: Path) -> None:
    record = json.loads(kscale("estimate", "-f", dump, "-g", groups, "-o", "json").stdout)
    validate(record, schema("EstimateReport"))
    assert record["placed"] == {"a/web-0": "n1"}
    assert record["unschedulable"] == ["b/huge-0"]
    assert sorted(record["groups"][0]["placed"]) == ["a/web-1", "a/web-2", "a/web-3", "a/web-4"]
    assert record["groups"][1]["price"] == 1.0
    same = yaml.safe_load(kscale("estimate", "-f", dump, "-g", groups, "-o", "yaml").stdout)
    assert same == record


def test_csv_names_and_markdown(dump: Path, groups: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(kscale("estimate", "-f", dump, "-g", groups, "-o", "csv").stdout)))
    assert [(row["node_group"], row["nodes"], row["cpu"]) for row in rows] == [
        ("big", "2", "0.75"),
        ("small", "4", "0.75"),
        ("db", "0", ""),
    ]
    assert kscale("estimate", "-f", dump, "-g", groups, "-o", "name").stdout == "nodegroup/big\nnodegroup/small\n"
    assert "| big | 2 | 2 |" in kscale("estimate", "-f", dump, "-g", groups, "-o", "markdown").stdout


def test_one_node_of_the_dump_is_a_group(dump: Path) -> None:
    result = kscale("estimate", "-f", dump, "--node", "n1", "-n", "a")
    assert "like-n1         4" in result.stdout
    missing = kscale("estimate", "-f", dump, "--node", "nope")
    assert (missing.code, 'there is no node "nope"' in missing.stderr) == (2, True)


CATALOGUE = "instance_type,arch,vcpu,memory_mib,gpu,ondemand_usd_per_hour_x\nm.big,amd64,8,16384,0,0.5\n"


def test_a_catalogue_has_groups(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "types.csv"
    path.write_text(CATALOGUE)
    result = kscale("estimate", "-f", dump, "--catalogue", path, "--instance-type", "m.big", "-n", "a", "-o", "wide")
    assert result.code == 0
    assert result.stdout.splitlines()[3].split()[:3] == ["m.big", "2", "2"]
    assert "1.00" in result.stdout.splitlines()[3]


def test_nan_in_a_catalogue_is_named(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "types.csv"
    path.write_text(CATALOGUE.replace("16384", "NaN"))
    result = kscale("estimate", "-f", dump, "--catalogue", path, "--instance-type", "m.big")
    assert result.code == 2
    assert "memory_mib" in result.stderr
    assert "Traceback" not in result.stderr


def test_groups_are_recognised_by_labels(tmp_path: Path) -> None:
    path = write(
        tmp_path / "eks.json", node("n1", **{"eks.amazonaws.com/nodegroup": "ng"}), pod("a-0", "3"), pod("a-1", "3")
    )
    result = kscale("estimate", "-f", path)
    assert "node groups recognised in the labels (EKS): 1" in result.stderr
    assert result.stdout.splitlines()[3].split()[:2] == ["ng", "1"]
    assert result.code == 0


def test_pods_stay_pending_without_groups(dump: Path) -> None:
    result = kscale("estimate", "-f", dump)
    assert result.stdout.startswith(
        "6 pods pending: 1 fit on nodes that exist, 5 do not, and no node group is known.\n"
    )
    assert result.code == 1


def test_empty_clusters(tmp_path: Path, groups: Path) -> None:
    nothing = write(tmp_path / "nothing.json")
    no_nodes = write(tmp_path / "pods.json", pod("p"))
    template = tmp_path / "template.yaml"
    template.write_text(yaml.safe_dump(GROUPS[:1]))
    assert kscale("estimate", "-f", nothing, "-g", template).stdout.startswith("No pods are pending.\n")
    result = kscale("estimate", "-f", no_nodes, "-g", template)
    assert (result.code, result.stdout.splitlines()[0]) == (
        0,
        "1 pod pending: 0 fit on nodes that exist, 1 need new nodes, 0 fit nowhere.",
    )
    explained = kscale("explain", "-f", no_nodes, "a/p")
    assert explained.stdout.splitlines()[:2] == ["a/p does not fit: no nodes.", "no nodes available to schedule pods"]


def test_damaged_input_is_refused_or_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "broken.json", node("n1"), pod("ok"), pod("web-3", "1O0m"))
    refused = kscale("estimate", "-f", path)
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr == (
        f"error: {path}: items[2] (Pod a/web-3): spec.containers[0].resources.requests.cpu: "
        '"1O0m" is not a quantity\n'
        "  1 of 3 objects could not be read. Fix it, or run with --skip-invalid to go on without it.\n"
    )
    used = kscale("estimate", "-f", path, "--skip-invalid")
    assert (used.code, used.stdout.splitlines()[0]) == (
        0,
        "1 pod pending: 1 fit on nodes that exist, 0 do not, and no node group is known.",
    )
    assert "1 of 3 objects could not be read and are left out" in used.stderr


def test_odd_input_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.json", node("n1"), node("n1"), pod("p", nodeName="gone"))
    result = kscale("estimate", "-f", path)
    assert result.code == 0
    assert "items[1] (Node n1): comes twice; the last one counts" in result.stderr
    assert "1 pod runs on a node that is not in the input" in result.stderr


def test_nodes_without_amounts_and_misspelled_kinds_are_named(tmp_path: Path) -> None:
    empty = [{**node(name), "status": {}} for name in ("n1", "n2")]
    path = write(tmp_path / "odd.json", *empty, {**pod("p"), "kind": "pod"})
    result = kscale("estimate", "-f", path)
    assert "not modelled: 1 pod; did you mean Pod?" in result.stderr
    assert (
        "warning: 2 nodes lack amounts in status.allocatable, which count as 0 (n1: cpu, memory, pods)" in result.stderr
    )


def test_explain(dump: Path, groups: Path) -> None:
    result = kscale("explain", "-f", dump, "-g", groups, "a/web-1")
    assert result.stdout == (
        "a/web-1 does not fit on any of 3 nodes.\n"
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.\n"
        "\n"
        "NODE  FIRST NO          ASKED                            FREE   ALSO\n"
        "n1    NodeResourcesFit  cpu 3                            1500m  -\n"
        "n2    NodeResourcesFit  cpu 3                            500m   -\n"
        "n3    TaintToleration   db=yes:NoSchedule not tolerated         -\n"
        "\n"
        "Nearest: n1 is 1500m of cpu short.\n"
        "A new node of any of big (8 cpu), small (4 cpu) would take it.\n"
    )
    assert result.code == 0


def test_explain_of_a_workload(tmp_path: Path) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": True}
    above = {**owner, "kind": "Deployment", "name": "web"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", "1")["spec"]}

    def workload(kind: str, name: str, replicas: int, **metadata: Any) -> dict[str, Any]:
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": kind, "spec": spec,
                "metadata": {"name": name, "namespace": "default", "uid": name, **metadata}}  # fmt: skip

    def owned(name: str, on: str) -> dict[str, Any]:
        item = pod(name, "1", "default")
        item["metadata"]["ownerReferences"] = [owner]
        item["spec"] = {**item["spec"], **({"nodeName": on} if on else {})}
        return item

    dump = write(
        tmp_path / "dump.json",
        node("n1"),
        workload("Deployment", "web", 2),
        workload("ReplicaSet", "web-1", 2, ownerReferences=[above]),
        workload("StatefulSet", "idle", 0),
        owned("web-1-a", "n1"),
        owned("web-1-b", ""),
    )
    for name in ("deploy/web", "deployments/web", "rs/web-1"):
        result = kscale("explain", "-f", dump, name, "-o", "json")
        assert json.loads(result.stdout)["pod"] == "default/web-1-b", result.stderr
        assert "explaining default/web-1-b" in result.stderr
    created = json.loads(kscale("explain", "-f", dump, "sts/idle", "-o", "json").stdout)
    assert (created["pod"], created["node"]) == ("default/idle-0", None)
    missing = kscale("explain", "-f", dump, "deploy/nope")
    assert (missing.code, 'there is no Deployment "default/nope" in the input' in missing.stderr) == (2, True)


def test_explain_of_a_pod_that_no_group_helps(dump: Path, groups: Path) -> None:
    result = kscale("explain", "-f", dump, "-g", groups, "-n", "b", "huge-0")
    assert result.code == 1
    assert result.stdout.splitlines()[-4:] == [
        "No new node of 3 groups would take it:",
        "  big: Insufficient cpu",
        "  small: Insufficient cpu",
        "  db: node(s) had untolerated taint(s)",
    ]


def test_explain_of_pods_that_fit_or_run(dump: Path) -> None:
    fits = kscale("explain", "-f", dump, "a/web-0")
    assert (fits.code, fits.stdout.splitlines()[0]) == (0, "a/web-0 fits on 1 of 3 nodes: n1.")
    runs = kscale("explain", "-f", dump, "a/old-1")
    assert (runs.code, runs.stdout) == (0, "a/old-1 runs on n1.\n")


def test_explain_of_a_pod_behind_gates(dump: Path, groups: Path) -> None:
    result = kscale("explain", "-f", dump, "-g", groups, "a/gated-0")
    assert result.stdout == (
        "a/gated-0 waits for scheduling gates: [x]. Without them:\na/gated-0 fits on 1 of 3 nodes: n1.\n"
        "\n"
        "NODE  FIRST NO          ASKED                            FREE  ALSO\n"
        "n2    NodeResourcesFit  cpu 1                            500m  -\n"
        "n3    TaintToleration   db=yes:NoSchedule not tolerated        -\n"
    )
    assert result.code == 1


def test_explain_of_an_unknown_pod_proposes_near_names(dump: Path) -> None:
    result = kscale("explain", "-f", dump, "a/wbe-0")
    assert result.code == 2
    assert "no such pod in the input; did you mean a/web-0" in result.stderr


def deployment(replicas: int, cpu: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod("x", cpu)["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "api"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }


def test_fit(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "api.yaml"
    path.write_text(yaml.safe_dump(deployment(5, "500m")))
    result = kscale("fit", "-f", dump, "--pod", path)
    assert result.stdout == (
        "default/api (Deployment, 5 replicas): 4 fit now, 1 does not: "
        "1 Insufficient cpu or node(s) had untolerated taint(s).\n"
        "\n"
        "Deployment/default/api lands on n1 (3), n2 (1).\n"
        "Deployment/default/api: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.\n"
    )
    assert result.code == 1
    record = json.loads(kscale("fit", "-f", dump, "--pod", path, "-o", "json").stdout)
    validate(record, schema("FitReport"))
    assert record["workloads"][0]["placement"] == {"n1": 3, "n2": 1}


def test_fit_of_several_workloads_one_after_the_other(dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    daemonset = {**deployment(1, "100m"), "kind": "DaemonSet", "metadata": {"name": "agent"}}
    path.write_text(yaml.safe_dump_all([deployment(1, "1500m"), daemonset]))
    result = kscale("fit", "-f", dump, "--pod", path, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [(row["workload"], row["replicas"], row["fit_now"]) for row in rows] == [
        ("Deployment/default/api", "1", "1"),
        ("DaemonSet/default/agent", "2", "1"),
    ]


def test_fit_of_something_that_makes_no_pods(dump: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "nodes.json", node("n9"))
    result = kscale("fit", "-f", dump, "--pod", path)
    assert result.code == 2
    assert "holds none of Pod, Deployment" in result.stderr


COMMANDS = (["estimate"], ["explain", "a/web-1"], ["fit", "--pod", "POD"])


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name", "csv", "markdown", "html"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_output_prints_secrets(dump: Path, groups: Path, tmp_path: Path, command: list[str], form: str) -> None:
    manifest = write(tmp_path / "pod.json", pod("new-0", "100"))
    words = [str(manifest) if word == "POD" else word for word in command]
    more = ["-g", groups] if command[0] != "fit" else []
    result = kscale(*words, "-f", dump, *more, "-o", form, "-v")
    assert result.code in (0, 1)
    assert SECRET not in result.stdout + result.stderr


def test_statuses_and_streams_of_the_real_thing(dump: Path, groups: Path) -> None:
    data = gzip.compress(dump.read_bytes())
    command = [BIN / "kubectl-kscale", "estimate", "-q", "-f", "-", "-g", groups]
    result = subprocess.run(command, input=data, capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (1, b"")
    assert result.stdout.startswith(b"6 pods pending: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to read: name a dump"),
        (["-f", "DUMP", "-n", "a", "-A"], "-n and -A exclude each other"),
        (["-f", "DUMP", "-l", "a in ("], "-l"),
        (["-f", "DUMP", "--node", "n1", "-g", "x"], "--node excludes -g and --catalogue"),
        (["-f", "DUMP", "--instance-type", "x"], "--instance-type needs --catalogue"),
        (["-f", "DUMP", "--catalogue", "x"], "--catalogue needs --instance-type, or -g"),
        (["-f", "DUMP", "-g", "nope.yaml"], "nope.yaml: No such file or directory"),
        (["-f", "nope.json"], "nope.json: No such file or directory"),
    ],
)
def test_bad_usage(dump: Path, arguments: list[str], message: str) -> None:
    result: Run = kscale("estimate", *(str(dump) if word == "DUMP" else word for word in arguments))
    assert (result.code, result.stdout) == (2, "")
    assert message in result.stderr


def test_how_hard_a_bound_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = write(tmp_path / "dump.json", node("like", "4100m", taint="busy"),
                 *(pod(f"{size}-{i}", size) for size in ("1500m", "1400m") for i in range(6)))  # fmt: skip
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps([{"id": "g", "template": node("g", "4100m")}]))

    def bound(*arguments: str) -> int:
        run = kscale("estimate", "-q", "-f", dump, "-g", groups, "-o", "json", *arguments)
        result: int = json.loads(run.stdout)["groups"][0]["bound"]
        return result

    assert (bound("--bound", "fast"), bound("--bound", "lp"), bound()) == (5, 6, 6)
    monkeypatch.setitem(sys.modules, "highspy", None)
    assert bound() == 5
    refused = kscale("estimate", "-f", dump, "-g", groups, "--bound", "lp")
    assert (refused.code, "--bound lp needs the extra [solver]" in refused.stderr) == (2, True)
