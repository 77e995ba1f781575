"""``kscale scale-up``: the answer, and every mistake by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trustme

from json_schemas import validate
from kscale.capacity.generate import generate
from kscale.cli.output import Format
from kscale.schemas import schema
from unit.cli.support import Run
from unit.cli.support import kscale as run
from unit.drivers.expander_server import certificate_of, names, serving

NOW = "2026-05-04T12:00:00Z"


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T00:00:00Z"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-05-04T11:00:00Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def group(name: str, cpu: str = "4", **fields: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return {"id": name, "max": 10, "template": {"status": {"capacity": amounts, "allocatable": amounts}}, **fields}


_GRPC = ["--expander", "grpc", "--grpc-expander-url", "127.0.0.1:1", "--grpc-expander-cert"]
PODS = [pod("small", "500m"), *(pod(f"web-{i}", "2") for i in range(4)), pod("huge", "64")]


def scale_up(tmp_path: Path, groups: list[dict[str, Any]], *arguments: object, pods: Any = PODS) -> Run:
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("n"), *pods]}))
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    return run("scale-up", "-f", tmp_path / "dump.json", "-g", tmp_path / "groups.json", "--now", NOW, *arguments)


def test_the_answer(tmp_path: Path) -> None:
    got = scale_up(tmp_path, [group("a"), group("b", "2"), group("full", max=0)])
    assert got.code == 1  # one pod stays without
    first, _, header, *lines = got.stdout.splitlines()
    assert first == "Scale up a 0 -> 2 (2 nodes) for 4 of 5 pods."
    assert header.split() == ["OPTION", "NODES", "PODS", "SCORE", "CHOSEN", "SKIPPED", "BECAUSE"]
    assert lines[0].split() == ["a", "2", "4", "least-waste", "1.000", "yes"]
    assert lines[2].endswith("max node group size reached")
    assert "shop/huge" in got.stdout
    assert "1 max node group size reached, 2 Insufficient cpu" in got.stdout
    assert "1 pod needs no new node: it fits on" in got.stdout


def test_a_quota_that_leaves_pods_without_a_node(tmp_path: Path) -> None:
    limit = ["--flag", "cores-total=0:5"]
    got = scale_up(tmp_path, [group("a")], *limit, pods=PODS[:-1])
    assert got.code == 1
    assert got.stdout.startswith("Scale up a 0 -> 1 (1 node) for 2 of 4 pods.\n")
    assert "No place for 2 pods of the option chosen: limits on the cluster permit 1 of the 2 nodes" in got.stdout
    plan = json.loads(scale_up(tmp_path, [group("a")], *limit, "-o", "json", pods=PODS[:-1]).stdout)
    assert (len(plan["triggered"]), len(plan["beyondLimits"])) == (4, 2)
    assert set(plan["beyondLimits"]) < set(plan["triggered"])
    free = scale_up(tmp_path, [group("a")], pods=PODS[:-1])
    assert (free.code, free.stdout.splitlines()[0]) == (0, "Scale up a 0 -> 2 (2 nodes) for 4 of 4 pods.")


@pytest.mark.parametrize("form", list(Format))
def test_every_format(tmp_path: Path, form: Format) -> None:
    got = scale_up(tmp_path, [group("a")], "-o", form.value)
    assert got.code == 1
    if form is Format.JSON:
        plan = json.loads(got.stdout)
        validate(plan, schema("ScaleUpPlan"))
        (unplaced, *_) = plan["remainUnschedulable"]
        assert unplaced["rejected"]["a"]["numbers"] == [{"resource": "cpu", "asked": 64000, "free": 4000}]
    elif form is Format.NAME:
        assert got.stdout == "nodegroup/a\n"
    else:
        assert "a" in got.stdout


def test_all_groups_side_by_side(tmp_path: Path) -> None:
    tiny = group("tiny", "1")
    assert "tiny" not in scale_up(tmp_path, [group("a"), tiny]).stdout.split("PODS  STILL")[0]
    got = scale_up(tmp_path, [group("a"), tiny], "--all-groups").stdout
    assert "no pod fits its nodes" in got
    assert any(line.split() == ["POD", "a", "tiny"] for line in got.splitlines())


def test_the_chain_and_the_shares(tmp_path: Path) -> None:
    groups = [group("a", price=1), group("b", "8", price=1)]
    assert scale_up(tmp_path, groups, "--expander", "least-nodes").stdout.startswith("Scale up b 0 -> 1")
    assert scale_up(tmp_path, groups, "--expander", "price").code == 1
    twins = [group("a"), group("b")]
    got = scale_up(tmp_path, twins, "--balance-similar-node-groups").stdout
    assert got.startswith("Scale up a 0 -> 1 and b 0 -> 1 (2 nodes, balanced) for 4 of 5 pods.")
    others = [group("a"), group("b", labels={"capacity": "spot"})]
    got = scale_up(tmp_path, others, "--balance-similar-node-groups").stdout
    assert "b is not similar to a and shares no new nodes: label capacity: absent and spot.\n" in got
    assert "is not similar" not in scale_up(tmp_path, others).stdout
    page = scale_up(tmp_path, twins, "--balance-similar-node-groups", "-o", "html").stdout
    assert "a: 1 new nodes" in page
    assert "b: 1 new nodes" in page
    assert "a: 2 new nodes" not in page


def test_no_time_for_every_pod(tmp_path: Path) -> None:
    flag = ("--flag", "enable-graceful-degradation")
    state_file = tmp_path / "state.json"
    got = scale_up(tmp_path, [group("a")], *flag, "--max-looks", 8, "--save-state", state_file)
    assert "4 pods not counted: there was no time to look at them (--pending-pods-batching-timeout)" in got.stdout
    assert "GracefulDegradationStarted" in got.stderr
    for _ in range(3):
        got = scale_up(
            tmp_path, [group("a")], *flag, "--max-looks", 8, "--state", state_file, "--save-state", state_file
        )
    assert got.stdout.startswith(
        "No scale-up for 0 pods: there was no time for others, and this loop is for scale-down."
    )
    assert "needs --flag enable-graceful-degradation" in scale_up(tmp_path, [group("a")], "--max-looks", 8).stderr


def test_empty_cluster_is_not_scaled_up_if_disabled(tmp_path: Path) -> None:
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": PODS}))
    (tmp_path / "groups.json").write_text(json.dumps([group("a")]))
    got = run(
        "scale-up", "-f", tmp_path / "dump.json", "-g", tmp_path / "groups.json", "--flag", "scale-up-from-zero=false"
    )
    assert got.stdout.startswith("No scale-up is tried. Cluster has no nodes.")


def test_saved_state_is_used_by_the_next_run(tmp_path: Path) -> None:
    state_file = tmp_path / "state.json"
    scale_up(tmp_path, [group("a")], "--save-state", state_file)
    got = scale_up(tmp_path, [group("a", target=2)], "--state", state_file)
    assert "Nodes that are coming already: a 2." in got.stdout
    assert got.stdout.startswith("No node group can grow for 1 pod.")


@pytest.mark.parametrize(
    ("spec", "flag", "grown"),
    [
        ({"taints": [{"key": "boot", "effect": "NoSchedule"}]}, "startup-taint=boot", True),
        ({"taints": [{"key": "boot", "effect": "NoSchedule"}]}, "status-taint=boot", True),
        ({"taints": [{"key": "boot", "effect": "NoSchedule"}]}, "startup-taint=other", False),
        ({"unschedulable": True}, "scale-from-unschedulable", True),
        ({"unschedulable": True}, "scale-from-unschedulable=false", False),
        ({}, "force-ds=false", True),
        ({}, "force-ds", False),
    ],
)
def test_flags_that_describe_new_nodes_are_applied(
    tmp_path: Path, spec: dict[str, Any], flag: str, grown: bool
) -> None:
    daemon = {"name": "d", "resources": {"requests": {"cpu": "700m"}}}
    full = pod("full", "900m", nodeName="n")
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "shop", "uid": "agent"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [daemon]}}},
    }
    objects = [{**node("n"), "spec": spec}, {**full, "status": {"phase": "Running"}}, pod("small", "500m"), agent]
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    (tmp_path / "groups.json").write_text(json.dumps([{"id": "a", "max": 3, "nodes": ["n"]}]))
    files = ["-f", tmp_path / "dump.json", "-g", tmp_path / "groups.json"]
    got = run("scale-up", *files, "--now", NOW, "--flag", flag, "-o", "name")
    assert got.stdout.split() == (["nodegroup/a"] if grown else []), got.stderr


def test_pods_of_one_namespace(tmp_path: Path) -> None:
    got = scale_up(tmp_path, [group("a")], "-n", "elsewhere")
    assert (got.code, got.stdout) == (0, "No scale-up is needed.\n")


@pytest.mark.parametrize(
    ("groups", "arguments", "message"),
    [
        ([group("a", min=5, max=2)], [], "min 5 is more than max 2"),
        ([group("a"), group("a")], [], "the id is that of groups[0]"),
        ([{"id": "a"}], [], "no template"),
        ([{"id": "a", "nodeSelector": {"no": "such"}}], [], "node group a"),
        ([group("a", max=-1)], [], "groups[0] (a): max"),
        ([group("a", target=-1)], [], "target"),
        ([group("a")], ["--expander", "cheapest"], "Expander cheapest not supported"),
        ([group("a")], ["--expander", "random,price"], "came after an expander random"),
        ([group("a")], ["--expander", "price"], "node group a: price"),
        ([group("a")], ["--expander", "priority"], "--priority-config"),
        (
            [group("a")],
            ["--expander", "least-waste", "--priority-config", "map.yaml"],
            "--priority-config: needs --expander priority",
        ),
        ([group("a")], ["--expander", "grpc"], "the grpc expander needs --grpc-expander-url"),
        ([group("a")], ["--expander", "grpc", "--grpc-expander-url", "x:1"], "give --grpc-expander-cert"),
        ([group("a")], [*_GRPC, "none.pem"], "none.pem: No such file"),
        ([group("a")], [*_GRPC, str(Path(__file__))], "there is no certificate in it"),
        ([group("a")], [*_GRPC, "", "--profile", "legacy"], "Expander grpc not supported"),
        ([group("a")], ["--max-nodes-total", "-1"], "--max-nodes-total"),
        ([group("a")], ["--now", "noon"], "--now"),
    ],
)
def test_mistakes_by_name(tmp_path: Path, groups: list[dict[str, Any]], arguments: list[str], message: str) -> None:
    got = scale_up(tmp_path, groups, *arguments)
    assert (got.code, got.stdout) == (2, "")
    assert message in got.stderr
    assert "internal error" not in got.stderr


def test_the_grpc_expander_asks_its_server(tmp_path: Path) -> None:
    issuer = trustme.CA()
    cert = certificate_of(issuer, tmp_path)
    groups = [group("a"), group("b", "8"), group("full", max=0)]
    with serving(names("b", "x"), issuer) as server:
        flags = ["--grpc-expander-url", server.url, "--grpc-expander-cert", cert]
        got = scale_up(tmp_path, groups, "--expander", "grpc", *flags)
        assert (got.code, got.stdout.splitlines()[0]) == (1, "Scale up b 0 -> 1 (1 node) for 4 of 5 pods.")
        assert "GRPC server returned invalid nodeGroup ID: x" in got.stderr
        flags = [f"--flag=grpc-expander-url={server.url}", f"--flag=grpc-expander-cert={cert}"]
        plan = json.loads(scale_up(tmp_path, groups, "--expander", "least-nodes,grpc", *flags, "-o", "json").stdout)
        assert plan["warnings"] == []  # least-nodes leaves one
        plan = json.loads(scale_up(tmp_path, groups, "--expander", "grpc", *flags, "-o", "json").stdout)
        validate(plan, schema("ScaleUpPlan"))
        assert plan["warnings"] == ["GRPC server returned invalid nodeGroup ID: x"]
        assert [score["kept"] for choice in plan["options"] for score in choice["scores"]] == [False, True]
    assert len(server.requests) == 2
    for request in server.requests:
        assert [(option.nodeGroupId, option.nodeCount, len(option.podBytes)) for option in request.options] == [
            ("a", 2, 4),
            ("b", 1, 4),
        ]
        assert sorted(request.nodeBytesMap) == ["a", "b", "full"]
    without_server = scale_up(tmp_path, groups, "--expander", "grpc", *flags)
    assert without_server.stdout.startswith("Scale up a 0 -> 2")
    assert "GRPC call failed, no options filtered: rpc error: code = Unavailable" in without_server.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "PriorityConfigMapInvalid: Wrong configuration for priority expander"),
        ("kind: ConfigMap\ndata: {other: x}\n", "doesn't contain priorities key"),
        ("10: [nothing]\n", "PriorityConfigMapNotMatchedGroup"),
        ("10: ['\a']\n", "PriorityConfigMapInvalid: Wrong configuration for priority expander"),
        ("10:\n- 2024-13-45\n", "PriorityConfigMapNotMatchedGroup"),
        ("10: " + "[" * 1000, "PriorityConfigMapInvalid: Wrong configuration for priority expander"),
        ("10: ['" + "(" * 3000 + "a" + ")" * 3000 + "']", "expression nests too deeply"),
    ],
)
def test_a_broken_priority_map_is_upstreams_event(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "map.yaml").write_text(text)
    got = scale_up(tmp_path, [group("a")], "--expander", "priority", "--priority-config", tmp_path / "map.yaml")
    assert got.stdout.startswith("Scale up a 0 -> 2")
    assert message in got.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"kind: ConfigMap\ndata: [a]\n", "map.yaml: ConfigMap: data: is no object"),
        (b"kind: ConfigMap\ndata:\n  priorities:\n    10: [a]\n", "map.yaml: ConfigMap: data[priorities]: is no text"),
        (b"\xff\xfe\x00", "map.yaml: not UTF-8"),
    ],
)
def test_invalid_priority_maps_are_refused(tmp_path: Path, text: bytes, message: str) -> None:
    (tmp_path / "map.yaml").write_bytes(text)
    got = scale_up(tmp_path, [group("a")], "--expander", "priority", "--priority-config", tmp_path / "map.yaml")
    assert (got.code, got.stdout) == (2, "")
    assert message in got.stderr


TEMPLATE = {
    "apiVersion": "v1",
    "kind": "PodTemplate",
    "metadata": {"name": "t", "namespace": "shop", "generation": 1},
    "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "800m"}}}]}},
}


def test_a_request_that_finds_no_capacity_is_named(tmp_path: Path) -> None:
    request = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": "train", "namespace": "shop", "creationTimestamp": "2026-05-04T11:00:00Z"},
        "spec": {
            "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
            "podSets": [{"count": 4, "podTemplateRef": {"name": "t"}}],
        },
    }
    flag = ["--flag", "enable-provisioning-requests=true"]
    got = scale_up(tmp_path, [group("a")], *flag, pods=[TEMPLATE, request])
    assert got.code == 1
    assert got.stdout.startswith("No capacity for ProvisioningRequest shop/train (4 pods).\n")
    assert "ProvisioningRequest shop/train: Capacity is not found, CA will try to find it later\n" in got.stdout
    assert "explain" not in got.stdout
    assert got.stdout.endswith("Still pending: 4 pods.\n")


def test_pods_of_buffers_are_counted_beside_real_ones(tmp_path: Path) -> None:
    buffer = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "spare", "namespace": "shop", "uid": "b"},
        "status": {
            "podTemplateRef": {"name": "t"},
            "podTemplateGeneration": 1,
            "replicas": 3,
            "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
            "conditions": [{"type": "ReadyForProvisioning", "status": "True"}],
        },
    }
    flag = ["--flag", "capacity-buffer-pod-injection-enabled=true"]
    alone = scale_up(tmp_path, [group("a", "1")], *flag, pods=[TEMPLATE, buffer]).stdout
    assert alone.startswith("Scale up a 0 -> 2 (2 nodes) for 2 of 2 pods of capacity buffers.\n")
    assert "1 pod of capacity buffers needs no new node" in alone
    beside = scale_up(tmp_path, [group("a", "1")], *flag, pods=[TEMPLATE, buffer, pod("web", "900m")]).stdout
    assert beside.startswith("Scale up a 0 -> 3 (3 nodes) for ")
    full = scale_up(tmp_path, [group("a", "1", max=0)], *flag, pods=[TEMPLATE, buffer, *PODS[-1:]]).stdout
    assert full.startswith("No node group can grow for 1 pod and 2 pods of capacity buffers.\n")


def test_groups_are_raised_to_their_minimum_without_a_pod(tmp_path: Path) -> None:
    got = scale_up(tmp_path, [group("low", min=2, nodes=["n"])], "--flag", "enforce-node-group-min-size=true", pods=[])
    assert got.stdout == "No pod needs a scale-up. Raised to their minimum size: low 1 -> 2.\n"


def test_a_priority_is_shown_as_it_is_written(tmp_path: Path) -> None:
    config = tmp_path / "priorities.yaml"
    config.write_text("80:\n- a\n10:\n- b\n")
    got = scale_up(tmp_path, [group("a"), group("b")], "--expander", "priority", "--priority-config", config)
    assert "priority 80" in got.stdout
    assert "priority -80" not in got.stdout


def test_a_dump_of_a_node_that_is_starting_asks_for_the_state(tmp_path: Path) -> None:
    young, old = node("young"), node("old")
    young["metadata"]["creationTimestamp"] = "2026-05-04T11:50:00Z"
    young["spec"] = {"taints": [{"key": "example.com/agent-not-ready", "effect": "NoExecute"}]}
    old["metadata"]["creationTimestamp"] = "2026-05-04T11:44:00Z"
    placed = [pod(f"on-{name}", "900m", nodeName=name) for name in ("n", "old")]
    pods = [old, young, *placed, pod("web", "900m")]
    groups = [group("a", nodes=["old", "young"]), group("b", nodes=["n"], max=1, target=2)]
    got = scale_up(tmp_path, groups, pods=pods).stdout
    assert got.startswith("Scale up a 2 -> 3 (1 node) for 1 of 1 pod.\n")
    assert "Nodes of a may still be starting (young just came). " in got
    assert "--flag startup-taint=example.com/agent-not-ready\n" in got
    assert "Nodes of b " not in got  # only groups that grow
    missing = scale_up(tmp_path, [group("b", nodes=["n"], target=2)], pods=pods).stdout
    assert "Nodes of b may still be starting (1 not registered yet). " in missing
    state = tmp_path / "state.json"
    assert "may still be starting" in scale_up(tmp_path, groups, "--save-state", state, pods=pods).stdout
    assert "may still be starting" not in scale_up(tmp_path, groups, "--state", state, pods=pods).stdout


def test_flags_without_effect_are_reported(tmp_path: Path) -> None:
    flags = [f"--flag={text}" for text in ("address=:80", "scale-down-unneeded-time=1m", "cores-total=0:5")]
    done = scale_up(tmp_path, [group("a")], *flags)
    assert "--flag address has no effect here: it concerns a running autoscaler" in done.stderr
    assert "--flag scale-down-unneeded-time has no effect here: it concerns scale-down" in done.stderr
    assert done.stderr.count("has no effect") == 2


@pytest.mark.parametrize("delay", ["inf", "1e300"])
def test_no_pod_waits_for_ever(tmp_path: Path, delay: str) -> None:
    got = scale_up(tmp_path, [group("a")], "--new-pod-scale-up-delay", delay)
    assert (got.code, got.stdout) == (2, "")
    assert "Invalid value for '--new-pod-scale-up-delay'" in got.stderr


def test_invalid_state_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("state")
    got = scale_up(tmp_path, [group("a")], "--state", tmp_path / "state.json")
    assert got.code == 2
    assert "state.json: not a saved loop state" in got.stderr


def test_without_a_groups_file_the_bounds_are_unknown_and_every_pod_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    items = list(generate(60, 1200).objects())
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    got = run("scale-up", "-f", file, "-o", "json")
    plan = json.loads(got.stdout)
    assert "sizes have no limit" in got.stderr
    assert plan["lists"]["asked"] == len(plan["triggered"]) + sum(
        len(result["pods"]) for result in plan["remainUnschedulable"]
    )
    for result in plan["remainUnschedulable"]:
        assert result["why"]
        skipped = {choice["group"] for choice in plan["options"] if choice["skipped"]}
        assert {*result["rejected"], *result["takenBy"], *skipped} == {choice["group"] for choice in plan["options"]}
    assert "is not known: no limit was applied" in run("scale-up", "-f", file).stdout


def test_release_1_3_by_one_option(tmp_path: Path) -> None:
    """No pod takes the free place of another, so five of six would fit the node; what was said is said in its words."""
    pods = [pod(f"p{i}", "600m") for i in range(2)]
    today = scale_up(tmp_path, [group("a")], pods=pods)
    assert today.stdout.startswith("Scale up a 0 -> 1 (1 node) for 1 of 1 pod.")
    legacy = scale_up(tmp_path, [group("a")], "--profile", "legacy", pods=pods)
    assert (legacy.code, legacy.stdout.splitlines()[0]) == (0, "No scale-up is needed.")
    assert "2 pods need no new node" in legacy.stdout
    large = scale_up(tmp_path, [group("a"), group("tiny", "1")], "--profile", "legacy", "-o", "json")
    plan = json.loads(large.stdout)
    assert [(info["group"], info["new"]) for info in plan["scaleUps"]] == [("a", 2)]
    assert {choice["group"]: choice["skipped"] for choice in plan["options"]}["tiny"] == ["No pod can fit to tiny"]
    validate(plan, schema("ScaleUpPlan"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "1.3"], "unknown profile '1.3'; there are current, legacy"),
        (["--flag", "cores-total=3"], "'3' is no value of flag cores-total: wrong nodes configuration: 3"),
        (["--flag", "cores-total=-1:3"], "min size must be greater or equal to 0"),
        (["--flag", "gpu-total=k80:2:1"], "min is greater than max"),
        (["--flag", "memory-total=5:2"], "max size must be greater or equal to min size"),
        (["--flag", "speed=9"], "there is no flag 'speed'"),
        (["--flag", "max-nodes-total=many"], "'many' is no value of flag max-nodes-total: not a whole number"),
        (["--flag", "max-total-unready-percentage=x"], "not a number"),
        (["--flag", "salvo-scale-up=perhaps"], "neither true nor false"),
        (["--flag", "estimator=guess"], "Unknown estimator: guess"),
        (["--expander", "least-waste,least-waste"], "specified multiple times"),
        (["--expander", "random,price"], "came after an expander random"),
        (["--max-nodes-total", "-1"], "'--max-nodes-total'"),
        (["--flag", "max-nodes-total=-1"], "max_nodes_total: -1 is negative"),
        (["--flag", f"max-nodes-total={'9' * 23}"], "no value of flag max-nodes-total: value out of range"),
        (["--max-nodes-total", "9" * 23], f"max_nodes_total: {'9' * 23} is more than 64 bits hold"),
        (["--flag", f"scale-down-candidates-pool-min-count=-{'9' * 23}"], "value out of range"),
        (["--flag", f"cores-total=0:{'9' * 23}"], f"failed to set max size: {'9' * 23}"),
        (["--flag", f"gpu-total=k80:0:{'9' * 23}"], "incorrect gpu limit - max is not integer"),
        (["--flag", "memory-difference-ratio=1e999"], "value out of range"),
        (["--flag", "max-nodes-per-scaleup=-5"], "max_nodes_per_scaleup: -5 is negative"),
    ],
)
def test_options_that_are_refused_by_name(tmp_path: Path, arguments: list[str], message: str) -> None:
    got = scale_up(tmp_path, [group("a")], *arguments)
    assert got.code == 2
    assert got.stdout == ""
    assert message in " ".join(got.stderr.replace("│", " ").split())


def test_limits_by_flag_are_upstreams_reasons(tmp_path: Path) -> None:
    got = scale_up(tmp_path, [group("a")], "--flag", "cores-total=0:3")
    assert 'exceeded quota: "cluster-wide", resources: cpu' in got.stdout


def test_a_salvo_minimum_sizes_and_groups_to_be_made(tmp_path: Path) -> None:
    pods = [pod("narrow", "3", nodeSelector={"kind": "a"}), pod("wide", "7", nodeSelector={"kind": "b"})]

    def labelled(name: str, cpu: str, **fields: Any) -> dict[str, Any]:
        return group(name, cpu, labels={"kind": name}, **fields)

    groups = [labelled("a", "4"), labelled("b", "8", exists=False), group("low", min=2, max=5, nodes=["n"])]
    one = scale_up(tmp_path, groups, "--flag", "enforce-node-group-min-size", pods=pods)
    assert one.code == 1
    assert "Raised to their minimum size: low 1 -> 2." in one.stdout
    both = scale_up(tmp_path, groups, "--flag", "salvo-scale-up", "-o", "json", pods=pods)
    plan = json.loads(both.stdout)
    assert both.code == 0
    assert sorted((info["group"], info["new"]) for info in plan["scaleUps"]) == [("a", 1), ("b", 1)]
    assert [created["main"] for created in plan["createdGroups"]] == ["b"]
    assert sorted(plan["triggered"]) == ["shop/narrow", "shop/wide"]


@pytest.mark.parametrize("profile", ["current", "legacy"])
def test_price_expander_uses_group_prices(tmp_path: Path, profile: str) -> None:
    chain = ("--expander", "price", "--profile", profile)
    dear, cheap = group("a", price=100), group("b", price=1)
    got = scale_up(tmp_path, [dear, cheap], *chain)
    assert got.stdout.startswith("Scale up b 0 -> 2")
    assert "(nodes 200.000, pods" in got.stdout
    plan = json.loads(scale_up(tmp_path, [dear, cheap], *chain, "-o", "json").stdout)
    validate(plan, schema("ScaleUpPlan"))
    (a,), (b,) = (choice["scores"] for choice in plan["options"])
    assert a["score"] > b["score"] > 0
    # A core costs what b asks for it: 1 / (4 cores + 8 GiB / 7.5), and the pods are worth eight cores.
    assert b["parts"]["pods_price"] == pytest.approx(8 / (4 + 8 / 7.5))
    assert b["parts"]["all_nodes_price"] == 2.0
    free = scale_up(tmp_path, [dear, group("b", price=0)], *chain)
    assert free.stdout.startswith("Scale up b 0 -> 2")
    assert "inf" not in free.stdout.lower()


def test_pod_prices_can_be_set(tmp_path: Path) -> None:
    # Few large pods of little memory: with a dear core they are worth much.
    rates = ("--price-per-core-hour", "0.5", "--price-per-gib-hour", "0.25")
    plan = json.loads(scale_up(tmp_path, [group("a", price=3)], "--expander", "price", *rates, "-o", "json").stdout)
    parts = plan["options"][0]["scores"][0]["parts"]
    assert (parts["all_nodes_price"], parts["pods_price"]) == (6.0, 4.0)
    stable = 0.5 * 0.5 + 0.25 * 500 / 1024
    assert parts["stabilized_ratio"] == pytest.approx((6 + stable) / (4 + stable))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--price-per-core-hour", "1"], "needs --expander price"),
        (["--expander", "price", "--price-per-core-hour", "nan"], "--price-per-core-hour"),
        (["--expander", "price", "--price-per-gib-hour", "inf"], "inf is no price"),
        (["--expander", "price", "--price-per-core-hour", "0", "--price-per-gib-hour", "0"], "must cost something"),
        (["--expander", "price", "--price-per-core-hour", "-1"], "--price-per-core-hour"),
    ],
)
def test_invalid_prices_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    got = scale_up(tmp_path, [group("a", price=1)], *arguments)
    assert (got.code, got.stdout) == (2, "")
    assert message in " ".join(got.stderr.split())


def test_a_score_that_is_no_number_says_so(tmp_path: Path) -> None:
    bare = group("a", price=1)
    bare["template"]["status"]["capacity"] = {"memory": "8Gi", "pods": "110"}
    plan = json.loads(scale_up(tmp_path, [bare], "--expander", "price", "-o", "json").stdout)
    validate(plan, schema("ScaleUpPlan"))
    (score,) = plan["options"][0]["scores"]
    assert (score["score"], score["notFinite"]) == (None, "+Inf")
    assert score["parts"]["all_nodes_price"] == 2.0
    assert "unfitness" not in score["parts"]
    assert "price +Inf" in scale_up(tmp_path, [bare], "--expander", "price").stdout


_GKE = "cloud.google.com/gke-accelerator"


def _with_gpus(label: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "4"}
    return {
        "id": "gpus",
        "max": 10,
        "template": {
            "metadata": {"labels": {label: "nvidia-tesla-k80"}},
            "status": {"capacity": amounts, "allocatable": amounts},
        },
    }


@pytest.mark.parametrize("profile", ["current", "legacy"])
@pytest.mark.parametrize(
    ("label", "flags", "grown"),
    [
        (_GKE, [], False),  # the label of a cloud is recognised
        ("k8s.amazonaws.com/accelerator", [], False),
        ("my.example/gpu", [], True),
        ("my.example/gpu", ["--gpu-label", "my.example/gpu"], False),
        (_GKE, ["--gpu-label", "my.example/gpu"], True),
    ],
)
def test_limits_by_type_of_gpu(tmp_path: Path, profile: str, label: str, flags: list[str], grown: bool) -> None:
    limits = ("--profile", profile, "--flag", "gpu-total=nvidia-tesla-k80:0:1", *flags)
    got = scale_up(tmp_path, [_with_gpus(label)], *limits, "-o", "name", pods=[pod("p", "2")])
    assert got.stdout.split() == (["nodegroup/gpus"] if grown else [])
    assert (f"types of GPUs by the label {label}" in got.stderr) is (not flags and not grown)


def test_node_with_missing_gpu_is_not_ready(tmp_path: Path) -> None:
    starting = node("n")
    starting["metadata"]["labels"] = {_GKE: "nvidia-tesla-k80"}
    (tmp_path / "groups.json").write_text(json.dumps([group("a")]))
    items = {"kind": "List", "apiVersion": "v1", "items": [starting, *PODS]}
    (tmp_path / "dump.json").write_text(json.dumps(items))
    flags = ["-g", tmp_path / "groups.json", "--now", NOW, "--flag", "scale-up-from-zero=false"]
    got = run("scale-up", "-f", tmp_path / "dump.json", *flags)
    assert got.stdout.startswith("No scale-up is tried. Cluster has no ready nodes.")
    got = run("scale-up", "-f", tmp_path / "dump.json", *flags, "--gpu-label", "another")
    assert got.stdout.startswith("Scale up a 0 -> 2")


def test_gpu_labels_of_two_clouds_are_reported(tmp_path: Path) -> None:
    other = {**_with_gpus("k8s.amazonaws.com/accelerator"), "id": "others"}
    got = scale_up(tmp_path, [_with_gpus(_GKE), other])
    assert "nodes have labels of several clouds for GPUs" in got.stderr


def _sized(name: str, cpu: str, **metadata: Any) -> dict[str, Any]:
    created = node(name)
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    created["status"] |= {"capacity": amounts, "allocatable": amounts}
    created["metadata"] |= metadata
    return created


def _decided(tmp_path: Path, nodes: list[dict[str, Any]], groups: list[dict[str, Any]], *arguments: object) -> Any:
    items = [*nodes, pod("p", "3")]
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    files = ["-f", tmp_path / "dump.json", "-g", tmp_path / "groups.json"]
    got = run("scale-up", *files, "--now", NOW, *arguments, "-o", "json")
    assert got.stdout, got.stderr
    return json.loads(got.stdout)


@pytest.mark.parametrize("profile", ["current", "legacy"])
def test_empty_group_keeps_the_template_of_its_nodes(tmp_path: Path, profile: str) -> None:
    state_file = tmp_path / "state.json"
    by_label = [{"id": "a", "max": 5, "nodeSelector": {"pool": "a"}}]
    common = ("--profile", profile, "--state", state_file, "--save-state", state_file)
    full = {**pod("full", "3", nodeName="a-1"), "status": {"phase": "Running"}}
    first = _decided(tmp_path, [node("n"), _sized("a-1", "4", labels={"pool": "a"}), full], by_label, *common)
    assert [(info["group"], info["current"], info["new"]) for info in first["scaleUps"]] == [("a", 1, 2)]
    assert list(json.loads(state_file.read_bytes())["templates"]) == ["a"]
    later = _decided(tmp_path, [node("n")], by_label, *common, "--now", "2026-05-04T13:00:00Z")
    assert [(info["group"], info["current"], info["new"]) for info in later["scaleUps"]] == [("a", 0, 1)]


@pytest.mark.parametrize("profile", ["current", "legacy"])
def test_good_nodes_say_more_than_a_template(tmp_path: Path, profile: str) -> None:
    """The file says four cores, the group's nodes have one: the pod fits none of them. ``fromNode`` settles it."""
    nodes = [node("n"), _sized("large", "4")]
    with_template = [group("a", nodes=["n"])]
    assert _decided(tmp_path, nodes[:1], with_template, "--profile", profile)["scaleUps"] == []
    cordoned = {**node("n"), "spec": {"unschedulable": True}}
    assert _decided(tmp_path, [cordoned], with_template, "--profile", profile)["chosen"] == "a"
    like = [{"id": "a", "nodes": ["n"], "fromNode": "large"}]
    full = {**pod("full", "3", nodeName="large"), "status": {"phase": "Running"}}
    assert _decided(tmp_path, [*nodes, full], like, "--profile", profile)["chosen"] == "a"
    on_top = [{"id": "a", "nodes": ["n"], "capacity": {"cpu": "4"}}]
    assert _decided(tmp_path, nodes[:1], on_top, "--profile", profile)["chosen"] == "a"
