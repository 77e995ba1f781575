"""Live clusters instead of dumps, and several of them in one answer: servers in memory, behind the transport."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

import kscale as library
from json_schemas import validate
from kscale.cli import output
from kscale.cli.command import ClusterAnswers, run_for_all
from kscale.cli.inputs import DUMP_COMMAND, DUMP_HELP
from kscale.cli.output import View
from kscale.cli.terminal import Terminal, progress
from kscale.objects.decode import to_dict
from kscale.objects.kinds import ServedResource
from kscale.schemas import schema
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.client import Client
from kscale.world.kubernetes.listing import READ, list_cluster
from kscale.world.kubernetes.transport import Answer
from unit.cli.live_clusters import refusing, serve
from unit.cli.support import kscale
from unit.cli.test_output_schemas import strict
from unit.world.fake_api_server import FakeApiServer, status

EXAMPLES = Path(__file__).parents[3] / "examples"
PENDING = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "big", "namespace": "shop"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "64"}}}]},
    }
)
DUMP = ("-f", EXAMPLES / "cluster.json.gz")
GROUPS = ("-g", EXAMPLES / "groups.yaml", "--budget", 0)


def test_live_cluster_requests_the_kinds_of_a_dump() -> None:
    named = set(DUMP_COMMAND.split()[2].split(","))
    named |= {"resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"}  # where it has them
    named.add("verticalpodautoscalers")
    assert all(each in DUMP_HELP for each in named)
    plural = {each.kind: each.group_resource.partition(".")[0] for each in FakeApiServer(SystemClock()).served.values()}
    assert {plural[kind] for kind in READ} - {"verticalpodautoscalercheckpoints"} == named


@pytest.fixture(scope="module")
def objects() -> list[tuple[str, Any]]:
    """What the example's dump has, each with the resource that serves it."""
    plural = {each.kind: each.group_resource for each in FakeApiServer(SystemClock()).served.values()}
    loaded = library.load(EXAMPLES / "cluster.json.gz")
    own = {"Node": loaded.nodes, "Pod": loaded.pods}
    kinds = {kind: own[kind]() if kind in own else loaded.all(kind) for kind in READ}
    return [(plural[kind], to_dict(item)) for kind, items in kinds.items() for item in items]


@pytest.fixture
def servers(
    objects: list[tuple[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, FakeApiServer]:
    """``east``, which has what the example's dump has, ``west``, which has one node and a pod, and ``gone``."""
    result = {name: FakeApiServer(SystemClock()) for name in ("east", "west", "gone")}

    serve(result, tmp_path, monkeypatch, current="west")
    for plural, item in objects:
        result["east"].put(plural, item)
    node = {"metadata": {"name": "alone"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}
    result["west"].put("nodes", {"apiVersion": "v1", "kind": "Node", **node})
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    pod = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": "alone", "containers": containers}}
    result["west"].put("pods", {"apiVersion": "v1", "kind": "Pod", **pod, "status": {"phase": "Running"}})
    result["gone"].fault = refusing("/pods", 403, "Forbidden")
    return result


def test_live_cluster_equals_its_dump(servers: dict[str, FakeApiServer]) -> None:
    live, dump = (
        kscale("cost", "--context", "east", *GROUPS),
        kscale("cost", "-f", EXAMPLES / "cluster.json.gz", *GROUPS),
    )
    assert (live.code, live.stdout) == (0, dump.stdout)
    assert not any("secrets" in call.path or "configmaps" in call.path for call in servers["east"].calls)
    assert {call.method for call in servers["east"].calls} == {"GET"}
    assert any("continue" in dict(call.query) for call in servers["east"].calls)  # 500 at a time


def test_the_current_context(servers: dict[str, FakeApiServer], tmp_path: Path) -> None:
    assert servers
    result = kscale("headroom", "--kubeconfig", tmp_path / "config", "-o", "json")
    assert [node["name"] for node in json.loads(result.stdout)["nodes"]] == ["alone"]


def test_the_current_context_is_the_default_input(servers: dict[str, FakeApiServer]) -> None:
    assert servers
    answer = kscale("headroom")
    assert answer.stdout == kscale("headroom", "--context", "west").stdout
    assert answer.stderr.startswith("reading the cluster of context west\nread context west: 1 Node, 1 Pod")
    assert kscale("headroom", "-q").stderr == ""
    assert "reading the cluster" not in kscale("headroom", "--context", "east").stderr
    servers["west"].put("pods", json.loads(PENDING))
    answer = kscale("estimate", "--node", "alone")
    assert "1 pod fits nowhere: kscale explain --context west --node alone shop/big" in answer.stdout.splitlines()


def test_a_dump_on_stdin_is_read_before_the_current_context(servers: dict[str, FakeApiServer]) -> None:
    dump = gzip.decompress((EXAMPLES / "cluster.json.gz").read_bytes())
    answer = kscale("cost", "-f", "-", *GROUPS, stdin=dump)
    assert (answer.code, answer.stdout) == (0, kscale("cost", *DUMP, *GROUPS).stdout)
    assert not servers["west"].calls


@pytest.mark.parametrize("text", ["", "apiVersion: v1\nkind: Config\n", "current-context: lost\n"])
def test_missing_current_context_error_names_the_option(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text:
        (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    answer = kscale("headroom")
    assert (answer.code, answer.stdout) == (2, "")
    assert "nothing to read: name a dump, or - for stdin; no kubeconfig has a current context" in answer.stderr


def test_a_kubeconfig_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("contexts: 3\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    answer = kscale("headroom")
    assert (answer.code, f"{tmp_path / 'config'}: contexts: a list is expected" in answer.stderr) == (2, True)
    assert kscale("cost", *DUMP, *GROUPS).code == 0


def test_a_simulation_begins_empty_without_an_input(servers: dict[str, FakeApiServer], minute: Path) -> None:
    assert kscale("simulate", minute).code == 0
    assert not any(server.calls for server in servers.values())


def test_one_table_of_several(servers: dict[str, FakeApiServer]) -> None:
    assert servers
    result = kscale("headroom", "--context", "west", "--context", "gone", "--context", "east")
    assert result.code == 2  # one has failed
    assert result.stdout.startswith("2 of 3 clusters answered.\n")
    assert "gone: Forbidden at all" in result.stdout
    title, *lines = [line.split() for line in result.stdout.split("\n\n")[1].splitlines()]
    assert (title[0], title[-1]) == ("CLUSTER", "ERROR")
    assert [line for line in lines if line[0] == "gone"] == [["gone", "Forbidden", "at", "all"]]
    order = ["west", "gone", "east"]
    assert [line[0] for line in lines] == sorted((line[0] for line in lines), key=order.index)
    rows = kscale("headroom", "--context", "west", "--context", "gone", "-o", "csv")
    table = [line.split(",") for line in rows.stdout.splitlines()]
    assert (table[0][-1], table[-1][0], table[-1][-1]) == ("error", "gone", "Forbidden at all")
    assert len({len(line) for line in table}) == 1
    none = kscale("headroom", "--context", "gone", "--context", "nowhere", "-o", "csv")
    assert [line.partition(",")[0] for line in none.stdout.splitlines()] == ["cluster", "gone", "nowhere"]
    assert "gone: Forbidden at all" in result.stderr
    rows = kscale("headroom", "--context", "west", "--context", "east", "-o", "csv")
    assert {line.partition(",")[0] for line in rows.stdout.splitlines()} == {"cluster", "west", "east"}
    record = json.loads(kscale("headroom", "--context", "west", "--context", "gone", "-o", "json").stdout)
    assert record["kind"] == "ClusterAnswers"
    validate(record, strict(schema("ClusterAnswers")))
    assert [(each["cluster"], each["error"]) for each in record["clusters"]] == [
        ("west", ""),
        ("gone", "Forbidden at all"),
    ]
    assert record["clusters"][0]["answer"]["kind"] == "HeadroomReport"
    assert record["clusters"][1]["answer"] is None
    page = kscale("headroom", "--context", "west", "--context", "east", "-o", "html")
    assert (page.code, '<th scope="col">CLUSTER' in page.stdout) == (1, True)


def test_a_cluster_for_which_arguments_do_not_do_ends_no_other() -> None:
    def refuse() -> output.Answer:
        raise typer.BadParameter("nothing to recommend from", param_hint="--history")

    answer = run_for_all({"west": lambda: output.Answer(ClusterAnswers(clusters=[]), View), "east": refuse}, Terminal())
    assert isinstance(answer.record, ClusterAnswers)
    assert [(each.cluster, each.error) for each in answer.record.clusters] == [
        ("west", ""),
        ("east", "Invalid value for --history: nothing to recommend from"),
    ]
    assert answer.exit_code == 2


def test_recommendations_of_several(servers: dict[str, FakeApiServer], tmp_path: Path) -> None:
    assert servers
    history = tmp_path / "usage.csv"
    rows = [f"2026-07-01T{hour:02}:00:00Z,shop,web,c,0.5,1000000000,web" for hour in range(24)]
    history.write_text("\n".join(["time,namespace,pod,container,cpu_cores,memory_bytes,workload", *rows]))
    both = ("--context", "west", "--context", "east", "--history", history)
    result = kscale("recommend", *both, "-o", "csv")
    assert result.code == 0, result.stderr
    assert result.stdout.startswith("cluster,")
    result = kscale("recommend", *both, "-o", "vpa")
    assert (result.code, "it is of one cluster" in result.stderr) == (2, True)


def owned_pod(name: str, api_version: str, kind: str, owner: str) -> dict[str, Any]:
    reference = {"apiVersion": api_version, "kind": kind, "name": owner, "uid": owner, "controller": True}
    metadata = {"name": name, "namespace": "shop", "labels": {"app": owner}, "ownerReferences": [reference]}
    containers = [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]
    spec = {"nodeName": "alone", "containers": containers}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def put_custom_owners(server: FakeApiServer) -> None:
    """Put a Gateway, which has a scale and is the target of a VPA, and an App without one, which owns a Deployment."""
    selector = {"matchLabels": {"app": "front"}}
    gateway = {"metadata": {"name": "front", "namespace": "shop"}, "spec": {"replicas": 2, "selector": selector}}
    server.put("gateways.example.com", gateway)
    for name in ("front-1", "front-2"):
        server.put("pods", owned_pod(name, "example.com/v1", "Gateway", "front"))
    app = {"apiVersion": "example.com/v1", "kind": "App", "name": "site", "uid": "site", "controller": True}
    template = {"metadata": {"labels": {"app": "back"}}, "spec": {"containers": [{"name": "c", "image": "c"}]}}
    metadata = {"name": "back", "namespace": "shop", "ownerReferences": [app]}
    spec = {"selector": {"matchLabels": {"app": "back"}}, "template": template}
    server.put("deployments.apps", {"metadata": metadata, "spec": spec})
    server.put("pods", owned_pod("back-1", "apps/v1", "Deployment", "back"))
    target = {"apiVersion": "example.com/v1", "kind": "Gateway", "name": "front"}
    amounts = {name: {"cpu": "2", "memory": "1Gi"} for name in ("target", "lowerBound", "upperBound")}
    recommendation = {"containerRecommendations": [{"containerName": "c", **amounts}]}
    server.put("verticalpodautoscalers.autoscaling.k8s.io", {
        "metadata": {"name": "front", "namespace": "shop"},
        "spec": {"targetRef": target},
        "status": {"recommendation": recommendation},
    })  # fmt: skip


@pytest.fixture
def custom(servers: dict[str, FakeApiServer]) -> FakeApiServer:
    """``west`` with custom kinds."""
    kinds = [
        ServedResource("example.com", "v1", "Gateway", "gateways", True, "autoscaling/v1"),
        ServedResource("example.com", "v1", "App", "apps", True, ""),
    ]
    server = servers["west"] = FakeApiServer(SystemClock(), resources=kinds)
    node = {"metadata": {"name": "alone"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}}
    server.put("nodes", {"apiVersion": "v1", "kind": "Node", **node})
    put_custom_owners(server)
    return server


def test_scales_of_custom_owners_are_requested(custom: FakeApiServer, tmp_path: Path) -> None:
    history = tmp_path / "usage.csv"
    pods = ("front-1", "front-2", "back-1")
    rows = [f"2026-07-{day:02}T{hour:02}:00:00Z,shop,{pod},c,0.5,1000000000" for pod in pods
            for day in (1, 2, 3) for hour in range(24)]  # fmt: skip
    history.write_text("\n".join(["time,namespace,pod,container,cpu_cores,memory_bytes", *rows]))
    answer = kscale("recommend", "--context", "west", "--history", history, "-o", "json")
    assert answer.code == 0, answer.stderr
    record = json.loads(answer.stdout)
    assert [(each["workload"], each["pods"]) for each in record["containers"]] == [
        ("Deployment/back", 1),
        ("Gateway/front", 2),
    ]
    assert record["notes"] == []
    scale_paths = [call.path for call in custom.calls if call.path.endswith("/scale")]
    assert scale_paths == ["/apis/example.com/v1/namespaces/shop/gateways/front/scale"]
    answer = kscale("vpa", "--context", "west", "-o", "json")
    assert answer.code == 0, answer.stderr
    (plan,) = json.loads(answer.stdout)["vpas"]
    assert plan["pods"] == 2


def test_a_scale_that_may_not_be_read_is_named(custom: FakeApiServer, tmp_path: Path) -> None:
    custom.fault = refusing("/scale", 403, "Forbidden")
    answer = kscale("vpa", "--context", "west")
    assert answer.code == 0
    assert "warning: not read: the scale of Gateway.example.com shop/front: Forbidden at all" in answer.stderr


def test_no_discovery_without_custom_owners(servers: dict[str, FakeApiServer]) -> None:
    assert kscale("vpa", "--context", "west").code == 0
    assert not [call.path for call in servers["west"].calls if call.path in ("/apis", "/api")]


def test_kinds_that_are_not_there_or_may_not_be_listed(servers: dict[str, FakeApiServer]) -> None:
    servers["west"].fault = refusing("/storageclasses", 403, "Forbidden")
    result = kscale("headroom", "--context", "west")
    assert "StorageClasses are not read: Forbidden at all" in result.stderr
    servers["west"].fault = refusing("/deviceclasses", 404, "NotFound")
    result = kscale("headroom", "--context", "west")
    assert not [line for line in result.stderr.splitlines() if line.startswith("warning")]  # an empty list is none


@pytest.mark.parametrize("command", ["fit", "estimate", "headroom"])
def test_quotas_of_a_cluster_are_named_as_not_judged(
    command: str, servers: dict[str, FakeApiServer], tmp_path: Path
) -> None:
    metadata = {"name": "few", "namespace": "shop"}
    servers["west"].put("resourcequotas", {"metadata": metadata, "spec": {"hard": {"pods": "0"}}})
    containers = [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "1"}}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new", "namespace": "shop"}}
    manifest = tmp_path / "pod.json"
    manifest.write_text(json.dumps({**pod, "spec": {"containers": containers}}))
    answer = kscale(command, "--context", "west", "--pod", manifest)
    assert "ResourceQuota shop/few (whether its namespace may create the pods)" in answer.stdout
    servers["west"].fault = refusing("/resourcequotas", 403, "Forbidden")
    refused = kscale(command, "--context", "west", "--pod", manifest)
    assert refused.code == answer.code
    assert "warning: ResourceQuotas are not read: Forbidden at all" in refused.stderr


def test_kinds_of_which_a_cluster_has_none_are_not_missing(servers: dict[str, FakeApiServer]) -> None:
    assert servers
    result = kscale("headroom", "--context", "west")
    assert "missing" not in result.stderr
    servers["west"].fault = refusing("/csinodes", 403, "no CSINodes")
    result = kscale("headroom", "--context", "west")
    assert "missing: no CSINodes (volume limits are not known)\n" in result.stderr


def test_every_forbidden_kind_is_reported(servers: dict[str, FakeApiServer]) -> None:
    refusals = {path: refusing(path, 403, f"no {path}") for path in ("/nodes", "/pods", "/storageclasses")}
    servers["west"].fault = lambda call: next(filter(None, (each(call) for each in refusals.values())), None)
    result = kscale("headroom", "--context", "west")
    assert (result.code, result.stderr) == (2, "error: no /nodes at all; no /pods at all; no /storageclasses at all\n")


def test_unreadable_object_is_named_by_its_list(servers: dict[str, FakeApiServer]) -> None:
    wrong = {"metadata": {"name": "wrong", "namespace": "shop"}, "spec": {"containers": "none"}}
    servers["west"].put("pods", {"apiVersion": "v1", "kind": "Pod", **wrong})
    result = kscale("headroom", "--context", "west")
    assert result.code == 2
    assert "pods: items[" in result.stderr
    assert "(Pod shop/wrong): spec.containers: " in result.stderr
    assert "<bytes>" not in result.stderr
    for i in range(500):
        servers["west"].put("pods", {"apiVersion": "v1", "kind": "Pod", **wrong, "metadata": {"name": f"a{i:03}"}})
    result = kscale("hpa", "--context", "west", "-v")
    assert "pods, page 2: items[" in result.stderr, result.stderr[-300:]


def test_progress_of_a_list(servers: dict[str, FakeApiServer]) -> None:
    client, reports = Client(servers["east"], SystemClock(), qps=-1), []
    lost = json.dumps(status(410, "Expired", "too old")).encode()
    listed = asyncio.run(list_cluster(client, ("Node", "Pod"), tell=lambda *so_far: reports.append(so_far)))
    assert (len(listed.pages), reports[-1]) == (3, (640, 640))
    assert all(come <= expected <= 640 for come, expected in reports)
    servers["east"].fault = lambda call: Answer(410, {}, lost) if "continue" in dict(call.query) else None
    again = asyncio.run(list_cluster(client, ("Node", "Pod"), tell=lambda *so_far: reports.append(so_far)))
    assert (len(again.pages), reports[-1]) == (2, (640, 640))
    assert progress(*reports[-1]) == "[####################] 640 of 640"
    assert progress(1, 3) == "[######..............] 1 of 3"
    assert progress(0, 0) == "[....................] 0 of 0"


def test_expired_pages_are_listed_again_in_full(servers: dict[str, FakeApiServer]) -> None:
    server = servers["east"]
    lost = json.dumps(status(410, "Expired", "too old")).encode()
    server.fault = lambda call: Answer(410, {}, lost) if "continue" in dict(call.query) else None
    live, dump = (
        kscale("cost", "--context", "east", *GROUPS),
        kscale("cost", "-f", EXAMPLES / "cluster.json.gz", *GROUPS),
    )
    assert (live.code, live.stdout) == (0, dump.stdout)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((*DUMP, "--context", "west"), "exclude each other"),
        (("--context", "west", "--context", "west"), "a context is named twice"),
        (("--context", "north"), "north"),
        (("--context", "west", "--context", "east", "--save-state", "x"), "it is of one cluster"),
    ],
)
def test_bad_usage(servers: dict[str, FakeApiServer], more: tuple[object, ...], message: str) -> None:
    assert servers
    result = kscale("scale-down", *more)
    assert (result.code, message in result.stderr, result.stdout) == (2, True, "")


@pytest.fixture
def minute(tmp_path: Path) -> Path:
    """A scenario that adds nothing to a cluster, with a Cluster Autoscaler that has no groups."""
    path = tmp_path / "minute.yaml"
    scenario = {"apiVersion": "kscale.dev/v1alpha1", "kind": "Simulation", "horizon": "1m"}
    path.write_text(yaml.safe_dump({**scenario, "controllers": {"clusterAutoscaler": {}}}))
    return path


def test_a_simulation_of_a_cluster_is_that_of_its_dump(servers: dict[str, FakeApiServer], minute: Path) -> None:
    assert servers
    live, dump = (kscale("simulate", minute, *where, "-o", "json") for where in (("--context", "east"), DUMP))
    assert (live.code, live.stdout) == (0, dump.stdout), live.stderr
    assert json.loads(live.stdout)["mostNodes"] == 40
    assert live.stderr.splitlines()[0].startswith("read context east: ")


def test_missing_inputs_of_a_simulation_are_errors(
    servers: dict[str, FakeApiServer], minute: Path, tmp_path: Path
) -> None:
    west = servers["west"]
    for name in [name for name in west.served if name.endswith(".autoscaling.k8s.io")]:
        del west.served[name]
    west.fault = refusing("/deployments", 403, "Forbidden")
    result = kscale("simulate", minute, "--kubeconfig", tmp_path / "config", "-o", "json")  # its current context
    assert (result.code, json.loads(result.stdout)["mostNodes"]) == (0, 1)
    assert [line for line in result.stderr.splitlines() if "not read" in line] == [
        "warning: Deployments are not read: Forbidden at all"
    ]
    both = kscale("simulate", minute, "--context", "west", "--context", "gone", "-o", "json")
    clusters = json.loads(both.stdout)["clusters"]
    assert (both.code, [(each["cluster"], each["error"]) for each in clusters]) == (
        2,
        [("west", ""), ("gone", "Forbidden at all")],
    )
    assert clusters[0]["answer"]["kind"] == "SimulationReport"
    for more, message in (
        ((*DUMP, "--context", "west"), "exclude each other"),
        (("--context", "north"), "north"),
        (("--skip-invalid",), "nothing is read"),
        (("--context", "west", "--context", "gone", "--to", tmp_path / "out"), "it is of one cluster"),
    ):
        result = kscale("simulate", minute, *more)
        assert (result.code, message in result.stderr, result.stdout) == (2, True, ""), result.stderr
    assert not (tmp_path / "out").exists()


def test_the_limits_of_an_api_server_can_be_set(servers: dict[str, FakeApiServer]) -> None:
    """They mean a live cluster; a list of more pages than allowed is refused, and names the limit."""
    got = kscale("cost", "--context", "east", *GROUPS, "--kube-api-max-list-pages", 9)
    assert got.code == 0
    got = kscale("cost", "--context", "east", *GROUPS, "--kube-api-max-list-pages", 1)
    assert (got.code, got.stdout) == (2, "")
    assert "the list has more pages than allowed (1)" in got.stderr
    calls = len(servers["east"].calls)
    for words, message in (
        (("--kube-api-request-timeout", "0s", "--context", "east"), "must be more than 0"),
        (("--kube-api-request-timeout", "soon", "--context", "east"), "invalid argument"),
        (("--kube-api-max-line-bytes", 1 << 20, *DUMP), "no live cluster is read: name a context"),
    ):
        got = kscale("cost", *words)
        assert (got.code, got.stdout) == (2, "")
        assert message in got.stderr.replace("\n", " ")
        assert words[0] in got.stderr
    assert len(servers["east"].calls) == calls
