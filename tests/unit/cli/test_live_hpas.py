"""``kscale hpa --context``: what is decided from answers of a live cluster is what is decided from its dump."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kscale.objects.kinds import ServedResource
from kscale.world.clock import SystemClock
from kscale.world.kubernetes.transport import Answer, Call
from unit.cli.live_clusters import refusing, serve
from unit.cli.support import kscale
from unit.world.fake_api_server import FakeApiServer

NOW = "2026-03-01T12:01:00Z"
AT = "2026-03-01T12:00:30Z"
WIDGETS = ServedResource("x.example.com", "v1", "Widget", "widgets", True, "autoscaling/v1")
CUSTOM = ServedResource("custom.metrics.k8s.io", "v1beta2", "MetricValueList", "pods")
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
SELECTED = {"matchLabels": {"of": "shop"}}
QPS = {"name": "qps", "selector": SELECTED}
HITS = {"type": "Pods", "pods": {"metric": QPS, "target": {"type": "AverageValue", "averageValue": "10"}}}
LAG = {"name": "lag", "selector": SELECTED}
LATE = {"type": "External", "external": {"metric": LAG, "target": {"type": "Value", "value": "5"}}}
GATE = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "gate"}
LOAD = {"metric": {"name": "load"}, "describedObject": GATE, "target": {"type": "Value", "value": "4"}}
BUSY = {"type": "Object", "object": LOAD}
METRICS = {"web": [CPU], "queue": [LATE], "gadget": [HITS], "gate": [BUSY], "still": [CPU]}


def objects() -> list[tuple[str, dict[str, Any]]]:
    """Targets of 2 replicas, two pods each with 1 cpu, their HPAs; ``still`` is in another namespace, at 0."""
    result: list[tuple[str, dict[str, Any]]] = []
    for name, metrics in METRICS.items():
        space = "rest" if name == "still" else "shop"
        widget = name == "gadget"
        kind = {"apiVersion": "x.example.com/v1", "kind": "Widget"} if widget else {"apiVersion": "apps/v1"}
        kind = {"kind": "StatefulSet" if name == "queue" else "Deployment", **kind}
        size = 0 if name == "still" else 2
        spec = {"replicas": size, "selector": {"matchLabels": {"app": name}}}
        status = {"replicas": size, **({"selector": f"app={name}"} if widget else {})}
        target = {**kind, "metadata": {"name": name, "namespace": space}, "spec": spec, "status": status}
        plural = {"Widget": "widgets.x.example.com", "StatefulSet": "statefulsets.apps"}
        result.append((plural.get(kind["kind"], "deployments.apps"), target))
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"}
        containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
        running = {"phase": "Running", "startTime": "2026-03-01T10:00:00Z", "conditions": [ready]}
        for number in range(2):
            pod = {"metadata": {"name": f"{name}-{number}", "namespace": space, "labels": {"app": name}}}
            pod |= {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}, "status": running}
            result.append(("pods", pod))
        spec = {"scaleTargetRef": {**kind, "name": name}, "maxReplicas": 9, "metrics": metrics}
        hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}
        result.append(("horizontalpodautoscalers.autoscaling", {**hpa, "metadata": {"name": name, "namespace": space}}))
    return result


def value(kind: str, name: str, metric: dict[str, Any], amount: str, api_version: str = "v1") -> dict[str, Any]:
    described = {"kind": kind, "namespace": "shop", "name": name, "apiVersion": api_version}
    return {"describedObject": described, "metric": metric, "timestamp": AT, "windowSeconds": 60, "value": amount}


def usage(pod: str) -> dict[str, Any]:
    metadata = {"name": pod, "namespace": "shop", "labels": {"app": "web"}}
    containers = [{"name": "c", "usage": {"cpu": "900m"}}]
    return {"metadata": metadata, "timestamp": AT, "window": "30s", "containers": containers}


USAGE = {
    "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {},
    "items": [usage("web-0"), usage("web-1")],
}  # fmt: skip
HIT = {
    "kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "metadata": {},
    "items": [value("Pod", f"gadget-{number}", QPS, "15") for number in range(2)],
}  # fmt: skip
LOADED = {**HIT, "items": [value("Ingress", "gate", {"name": "load"}, "5", "networking.k8s.io/v1")]}
LAGGING = {
    "kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {},
    "items": [{"metricName": "lag", "metricLabels": {"of": "shop"}, "timestamp": AT, "value": "7"}],
}  # fmt: skip
WITHIN = "/v1beta1/namespaces/shop"
ANSWERS: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {
    (f"/apis/metrics.k8s.io{WITHIN}/pods", (("labelSelector", "app=web"),)): USAGE,
    (
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/qps",
        (("labelSelector", "app=gadget"), ("metricLabelSelector", "of=shop")),
    ): HIT,
    ("/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/ingresses.networking.k8s.io/gate/load", ()): LOADED,
    (f"/apis/external.metrics.k8s.io{WITHIN}/lag", (("labelSelector", "of=shop"),)): LAGGING,
}


def metrics(call: Call) -> Answer | None:
    """The metrics APIs."""
    result = ANSWERS.get((call.path, call.query))
    return None if result is None else Answer(200, {}, json.dumps(result).encode())


@pytest.fixture
def east(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeApiServer:
    """With all that there is; ``west`` has nothing."""
    ingresses = ServedResource("networking.k8s.io", "v1", "Ingress", "ingresses")
    result = {"east": FakeApiServer(SystemClock(), resources=[WIDGETS, CUSTOM, ingresses])}
    result["west"] = FakeApiServer(SystemClock())
    serve(result, tmp_path, monkeypatch, current="west")
    for plural, item in objects():
        result["east"].put(plural, item)
    result["east"].fault = metrics
    return result["east"]


def test_live_cluster_equals_its_dump(east: FakeApiServer, tmp_path: Path) -> None:
    dump = {"kind": "List", "apiVersion": "v1", "items": [item for kind, item in objects() if kind != CUSTOM]}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    lists = []
    for number, each in enumerate((USAGE, HIT, LOADED, LAGGING)):
        (tmp_path / f"{number}.json").write_text(json.dumps(each))
        lists += ["--metrics", f"shop={tmp_path / f'{number}.json'}"]
    of_dump = kscale("hpa", "-f", tmp_path / "dump.json", *lists, "--now", NOW, "-o", "json")
    live = kscale("hpa", "--context", "east", "--now", NOW, "-o", "json")
    assert (live.code, of_dump.code) == (0, 0), live.stderr
    record, expected = json.loads(live.stdout), json.loads(of_dump.stdout)
    assert {each["name"]: each["desiredReplicas"] for each in record["hpas"]} == {
        "web": 4, "queue": 3, "gadget": 3, "gate": 3, "still": 0,
    }  # fmt: skip
    order = [each["name"] for each in record["hpas"]]
    expected["hpas"].sort(key=lambda each: order.index(each["name"]))
    assert (record["hpas"], record["missing"]) == (expected["hpas"], [])
    assert {call.method for call in east.calls} == {"GET"}
    scales = [call.path for call in east.calls if call.path.endswith("/scale")]
    assert scales == ["/apis/x.example.com/v1/namespaces/shop/widgets/gadget/scale"]  # others are listed
    assert live.stderr.startswith("read context east: 5 HorizontalPodAutoscalers")
    named = kscale("explain", "hpa", "web", "-n", "shop", "--context", "east", "--now", NOW)
    assert (named.code, "shop/web 2 -> 4: cpu 90% of 50%." in named.stdout) == (0, True), named.stdout


def test_one_hpa_requests_nothing_of_other_namespaces(east: FakeApiServer, tmp_path: Path) -> None:
    """Those of its own are decided together; what was remembered of the others stays."""
    every = json.loads(kscale("hpa", "--context", "east", "--now", NOW, "-o", "json").stdout)
    (tmp_path / "state.json").write_text(json.dumps(every))
    east.calls.clear()
    words = ("explain", "hpa", "rest/still", "--context", "east", "--now", NOW, "-o", "json")
    run_ = kscale(*words, "--state", tmp_path / "state.json")
    assert run_.code == 0, run_.stderr
    answer = json.loads(run_.stdout)
    assert [each["name"] for each in answer["hpas"]] == ["still"]
    assert answer["state"]["hpas"].keys() == every["state"]["hpas"].keys()
    others = [key for key in every["state"]["hpas"] if key != "rest/still"]
    assert [answer["state"]["hpas"][key] for key in others] == [every["state"]["hpas"][key] for key in others]
    assert not [call.path for call in east.calls if "/shop/" in call.path or "metrics.k8s.io" in call.path]
    assert kscale(*words).code == 0
    missing = kscale("explain", "hpa", "rest/web", "--context", "east")
    assert (missing.code, "no HorizontalPodAutoscaler rest/web" in missing.stderr) == (2, True)


def test_now_is_when_it_was_read(east: FakeApiServer) -> None:
    record = json.loads(kscale("hpa", "--context", "east", "-o", "json").stdout)
    assert east.calls
    assert record["now"] > "2026-06"


def test_apis_that_are_not_there(east: FakeApiServer) -> None:
    east.fault = lambda call: None
    del east.served[CUSTOM.group_resource]
    result = kscale("hpa", "--context", "east", "-o", "json")
    assert result.code == 0
    answers = [line for line in result.stderr.splitlines() if line.startswith("missing: ")]
    missing = "the server could not find the requested resource"
    assert [line.partition(": ")[2] for line in answers] == [
        f"1 of 1 answers of metrics.k8s.io: {missing}",
        "2 of 2 answers of custom.metrics.k8s.io: no custom metrics API (custom.metrics.k8s.io) registered",
        f"1 of 1 answers of external.metrics.k8s.io: {missing}",
    ]
    errors = {each["name"]: each["error"] for each in json.loads(result.stdout)["hpas"]}
    assert missing in errors["web"]
    assert errors["still"] is None


def test_permissions_that_are_missing(east: FakeApiServer) -> None:
    missing = [refusing(end, 403, f"no {end}") for end in ("/deployments", "/gadget/scale", "/apis")]
    east.fault = lambda call: next(filter(None, (each(call) for each in missing)), None) or metrics(call)
    result = kscale("hpa", "--context", "east", "-o", "json")
    assert "warning: Deployments are not read: no /deployments at all" in result.stderr
    assert "missing: what the server serves: no /apis at all" in result.stderr
    hpas = {each["name"]: each for each in json.loads(result.stdout)["hpas"]}
    assert hpas["web"]["currentReplicas"] == 2  # its scale is asked for
    assert hpas["gadget"]["error"].endswith('no matches for kind "Widget" in group "x.example.com"')
    east.fault = lambda call: missing[1](call) or metrics(call)
    result = kscale("hpa", "--context", "east")
    assert "the scale target of shop/gadget: an HPA" in result.stderr
    assert "no /gadget/scale at all" in result.stdout
    east.fault = refusing("/horizontalpodautoscalers", 403, "no HPAs")
    result = kscale("hpa", "--context", "east")
    assert (result.code, result.stdout, result.stderr) == (2, "", "error: no HPAs at all\n")


def test_refused_metrics_affect_only_their_namespace(east: FakeApiServer) -> None:
    for plural, item in objects():
        name = item["metadata"]["name"]
        if name.startswith("web"):
            east.put(plural, {**item, "metadata": {**item["metadata"], "namespace": "other"}})
    where = "/apis/metrics.k8s.io/v1beta1/namespaces/other/pods"
    east.fault = lambda call: refusing(where, 403, "no usage")(call) or metrics(call)
    result = kscale("hpa", "--context", "east", "-o", "json", "--now", NOW)
    assert "missing: 1 of 2 answers of metrics.k8s.io: no usage at all" in result.stderr
    hpas = {f"{each['namespace']}/{each['name']}": each for each in json.loads(result.stdout)["hpas"]}
    assert hpas["shop/web"]["desiredReplicas"] == 4
    assert "no usage at all" in hpas["other/web"]["error"]


def test_a_target_of_a_kind_that_is_not_served(east: FakeApiServer) -> None:
    target = {"apiVersion": "nope.example.com/v1", "kind": "Foo", "name": "q"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "metrics": [CPU]}
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": spec}
    east.put("horizontalpodautoscalers.autoscaling", {**hpa, "metadata": {"name": "foo", "namespace": "shop"}})
    record = json.loads(kscale("hpa", "--context", "east", "--now", NOW, "-o", "json").stdout)
    lacking = "the scale target of shop/foo: an HPA that cannot get its target's size changes nothing"
    assert record["missing"] == [lacking]
    decided = {each["name"]: each for each in record["hpas"]}
    assert 'no matches for kind "Foo" in group "nope.example.com"' in decided["foo"]["error"]
    assert decided["web"]["desiredReplicas"] == 4


@pytest.mark.parametrize("path", ["/api/v1/pods", "/apis"])
def test_a_page_to_log_in_is_no_answer(east: FakeApiServer, path: str) -> None:
    page = Answer(200, {}, b"<html>log in</html>")
    east.fault = lambda call: page if call.path == path else metrics(call)
    result = kscale("hpa", "--context", "west", "--context", "east", "--now", NOW)
    message = f"the answer to GET {path} cannot be read: "
    assert (message in result.stderr, "malformed" in result.stderr, "bug" in result.stderr) == (True, True, False)
    assert "west: No HPA to decide." in result.stdout


def test_a_scale_that_is_a_page_to_log_in_is_an_error_of_its_hpa(east: FakeApiServer) -> None:
    page = Answer(200, {}, b"<html>log in</html>")
    east.fault = lambda call: page if call.path.endswith("/scale") else metrics(call)
    result = kscale("hpa", "--context", "east", "--now", NOW, "-o", "json")
    decided = {each["name"]: each for each in json.loads(result.stdout)["hpas"]}
    assert "widgets/gadget/scale cannot be read: line 1, column 1: malformed JSON" in decided["gadget"]["error"]
    assert decided["web"]["desiredReplicas"] == 4


@pytest.mark.parametrize("words", [("hpa",), ("explain", "hpa", "shop/web")])
def test_a_state_is_of_one_cluster(east: FakeApiServer, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "state.json").write_text(kscale("hpa", "--context", "east", "--now", NOW, "-o", "json").stdout)
    both = (*words, "--context", "east", "--context", "west", "--now", NOW)
    call_count = len(east.calls)
    result = kscale(*both, "--state", tmp_path / "state.json")
    assert (result.code, result.stdout) == (2, "")
    assert "it is of one cluster: name one context" in result.stderr
    assert len(east.calls) == call_count
    for state in ("settled", "fresh"):
        assert "name one context" not in kscale(*both, "--state", state).stderr
    alone = kscale(*words, "--context", "east", "--now", NOW, "--state", tmp_path / "state.json")
    assert (alone.code, alone.stderr.count("one cluster")) == (0, 0)


def test_several_contexts_are_one_table(east: FakeApiServer) -> None:
    result = kscale("hpa", "--context", "east", "--context", "west", "--now", NOW, "-o", "csv")
    assert east.calls
    assert result.code == 0, result.stderr
    rows = [line.split(",")[:2] for line in result.stdout.splitlines()]
    assert rows[0] == ["cluster", "hpa"]
    names = ["rest/still", *(f"shop/{name}" for name in ("gadget", "gate", "queue", "web"))]
    assert sorted(rows[1:]) == [["east", name] for name in names]
    text = kscale("hpa", "--context", "east", "--context", "west", "--now", NOW).stdout
    assert text.startswith("2 of 2 clusters answered.\n")
    assert "west: No HPA to decide." in text


def test_options_that_exclude_a_live_cluster_are_refused(east: FakeApiServer, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps(USAGE))
    for more, message in (
        (("--metrics", tmp_path / "m.json"), "the metrics of a live cluster come from its API server"),
        (("-f", tmp_path / "m.json"), "exclude each other"),
    ):
        result = kscale("hpa", "--context", "east", *more)
        assert (result.code, message in result.stderr, result.stdout) == (2, True, "")
    assert not east.calls
