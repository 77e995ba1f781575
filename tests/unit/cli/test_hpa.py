"""``kscale hpa``: answers, what is missing, and bad input by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kscale.hpa.dump.reader import decode_hpa_records
from kscale.hpa.dump.records import split_scope
from kscale.hpa.dump.report import HPAReport
from kscale.snapshot.text.sources import RawObject
from unit.cli.support import kscale

DATA = Path(__file__).parents[1] / "hpa" / "data"
ALL = ("-f", str(DATA / "cluster.yaml"), "-f", str(DATA / "metrics.json"), "-f", str(DATA / "external.json"))


def test_one_line_an_hpa() -> None:
    out = kscale("hpa", *ALL)
    assert out.code == 0
    assert out.stdout.startswith("1 of 3 HPAs would rescale, 1 would report an error.\n")
    assert "cpu 131% of 70%" in out.stdout
    assert "scaleUp policy: 1 pod per 60 s (wanted 6)" in out.stdout
    assert 'deployments.apps "gone" not found' in out.stdout
    assert "activation between 0 and 1 replicas" in out.stdout
    assert "s0-rabbitmq 29334m of 30 a pod (within tolerance)" in out.stdout


def test_the_next_state_goes_back_in(tmp_path: Path) -> None:
    first = kscale("hpa", *ALL, "-o", "json")
    report = json.loads(first.stdout)
    assert report["kind"] == HPAReport.KIND
    assert {each["name"]: each["desiredReplicas"] for each in report["hpas"]} == {
        "web": 4,
        "gone": None,
        "keda-hpa-queue": 3,
    }
    assert report["state"]["hpas"]["shop/web"]["scaleUpEvents"][0]["change"] == 1
    (tmp_path / "state.json").write_text(first.stdout, encoding="utf-8")
    again = kscale("hpa", *ALL, "--state", str(tmp_path / "state.json"), "-o", "json")
    assert json.loads(again.stdout)["hpas"][0]["desiredReplicas"] == 3  # the budget of the policy is spent
    assert json.loads(again.stdout)["stateMode"] == "given"


@pytest.mark.parametrize(("what", "code"), [("rescale", 1), ("limited", 1), ("error", 1)])
def test_fail_on(what: str, code: int) -> None:
    assert kscale("hpa", *ALL, "--fail-on", what).code == code
    assert kscale("hpa", *ALL, "-n", "elsewhere", "--fail-on", what).code == 0


def test_selection_and_names() -> None:
    assert kscale("hpa", *ALL, "-l", "tier=front", "-o", "name").stdout.split() == ["horizontalpodautoscaler/shop/web"]
    assert kscale("hpa", *ALL, "--changed-only", "-o", "name").stdout.split() == ["horizontalpodautoscaler/shop/web"]
    explained = kscale("hpa", *ALL, "shop/web")
    assert "largest proposal" in explained.stdout
    assert "SuccessfulRescale" in explained.stdout
    assert kscale("explain", "hpa", "shop/web", *ALL).stdout == explained.stdout
    assert kscale("explain", "hpa", *ALL).code == 2


def test_names_may_take_their_namespace_from_n() -> None:
    assert kscale("explain", "hpa", "web", "-n", "shop", *ALL).stdout == kscale("hpa", *ALL, "shop/web").stdout
    assert "no HorizontalPodAutoscaler other/web" in kscale("explain", "hpa", "web", "-n", "other", *ALL).stderr


def test_all_namespaces_and_conditions() -> None:
    wide = kscale("hpa", *ALL, "-A", "-o", "wide").stdout
    assert "CONDITIONS" in wide
    assert "AbleToScale=True/SucceededRescale, ScalingActive=True/ValidMetricFound" in wide
    assert "CONDITIONS" not in kscale("hpa", *ALL, "-A").stdout
    assert kscale("hpa", *ALL, "-A", "-n", "shop").code == 2
    assert kscale("hpa", *ALL, "-n", "elsewhere").stdout.startswith("No HPA to decide.\n")
    assert "Not modelled" not in kscale("hpa", *ALL, "-l", "tier=front").stdout  # of another HPA


def test_now_and_a_fresh_controller(tmp_path: Path) -> None:
    report = json.loads(kscale("hpa", *ALL, "-o", "json").stdout)
    assert (report["now"], report["stateMode"]) == ("2026-03-01T12:00:05Z", "settled")
    later = json.loads(kscale("hpa", *ALL, "-o", "json", "--now", "2026-03-01T13:00:00Z").stdout)
    assert later["now"] == "2026-03-01T13:00:00Z"
    idle = (DATA / "metrics.json").read_text(encoding="utf-8").replace('m"', 'u"')
    (tmp_path / "idle.json").write_text(idle, encoding="utf-8")
    words = ("-f", str(DATA / "cluster.yaml"), "-f", str(tmp_path / "idle.json"), "-o", "json")
    sizes = {
        state: json.loads(kscale("hpa", *words, "--state", state).stdout)["hpas"][0]["desiredReplicas"]
        for state in ("settled", "fresh")
    }
    assert sizes == {"settled": 2, "fresh": 3}  # a controller that just started holds for a whole window


def test_pods_that_do_not_count_are_named(tmp_path: Path) -> None:
    listed = json.loads((DATA / "metrics.json").read_text(encoding="utf-8"))
    listed["items"] = listed["items"][:1]
    (tmp_path / "few.json").write_text(json.dumps(listed), encoding="utf-8")
    out = kscale("explain", "hpa", "shop/web", "-f", str(DATA / "cluster.yaml"), "-f", str(tmp_path / "few.json"))
    assert "pods that are not ready, not measured or not counted" in out.stdout
    assert re.search(r"METRIC +GROUP +COUNT +PODS\n", out.stdout)
    assert re.search(r"cpu +missing +2 +web-1, web-2", out.stdout)


def test_missing_metrics_are_reported() -> None:
    out = kscale("hpa", "-f", str(DATA / "cluster.yaml"))
    assert out.code == 0
    assert "no PodMetricsList (metrics.k8s.io): Resource metrics fail, which forbids scaling down" in out.stderr
    assert "no ExternalMetricValueList (external.metrics.k8s.io): External metrics fail" in out.stderr
    assert "the scale target of shop/gone: an HPA that cannot get its target's size changes nothing" in out.stderr
    assert "3 would report an error" in out.stdout
    assert "no pods" not in out.stderr


def hpa(**spec: Any) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 3, **spec},
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (hpa(maxReplicas=-1), "HorizontalPodAutoscaler shop/web): spec.maxReplicas: Invalid value: -1"),
        (hpa(minReplicas=5), "must be greater than or equal to `minReplicas`"),
        (hpa(behavior={"scaleUp": {"tolerance": "In"}}), "spec.behavior.scaleUp.tolerance: quantities must match"),
        (hpa(maxReplicas="three"), "json: cannot unmarshal string into Go struct field"),
        (hpa(metrics=[None]), "spec.metrics[0].type: Required value: must specify a metric source type"),
        ({**hpa(), "spec": []}, "spec: expected an object"),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"startTime": "noon"}},
            '(Pod p): status.startTime: "noon" is not an RFC 3339 time',
        ),
        (
            {
                "apiVersion": "keda.sh/v1alpha1",
                "kind": "ScaledObject",
                "metadata": {"name": "q"},
                "spec": {"triggers": ["cpu"]},
            },
            "(ScaledObject q): spec.triggers[0]: expected `object`, got `str`",
        ),
        (
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": ["x"]}},
            "metadata.name: expected a text",
        ),
        (
            {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NonsenseList", "items": [{"kind": "Nonsense"}]},
            "a Nonsense of metrics.k8s.io, where a list holds PodMetrics items",
        ),
        (
            {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "MetricValueList", "items": [{"metadata": {"name": "p"}}]},
            "a MetricValue of metrics.k8s.io, where a list holds PodMetrics items",
        ),
        (
            {"apiVersion": "external.metrics.k8s.io/v1beta1", "kind": "PodMetricsList", "items": [{"containers": []}]},
            "a PodMetrics of external.metrics.k8s.io, where a list holds ExternalMetricValue items",
        ),
        (
            {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetricsList", "items": ["web-0"]},
            "bad.json",
        ),
        (
            {
                "apiVersion": "metrics.k8s.io/v1beta1",
                "kind": "PodMetricsList",
                "items": [{"metadata": {"name": "p"}, "containers": [{"name": "c", "usage": {"cpu": "1O"}}]}],
            },
            "is not a quantity",
        ),
    ],
)
def test_bad_input_is_named(tmp_path: Path, document: dict[str, Any], message: str) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [document]} if "items" not in document else document
    (tmp_path / "bad.json").write_text(json.dumps(listed), encoding="utf-8")
    out = kscale("hpa", "-f", str(tmp_path / "bad.json"))
    assert out.code == 2
    assert message in out.stderr
    assert "bad.json" in out.stderr


def test_external_lists_need_a_namespace_where_there_are_several(tmp_path: Path) -> None:
    other = hpa()
    other["metadata"]["namespace"] = "elsewhere"
    (tmp_path / "other.json").write_text(json.dumps(other), encoding="utf-8")
    out = kscale("hpa", *ALL, "-f", str(tmp_path / "other.json"))
    assert out.code == 2
    assert "give it as NS=FILE" in out.stderr
    named = ("-f", str(DATA / "cluster.yaml"), "--metrics", f"shop={DATA / 'external.json'}")
    assert kscale("hpa", *named, "-f", str(tmp_path / "other.json")).code == 0


def test_duplicate_pods_are_counted() -> None:
    out = kscale("hpa", *ALL, "-f", str(DATA / "cluster.yaml"))
    assert out.code == 0
    assert "Pod shop/web-0 comes twice; the last one counts" in out.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--now", "soon"), "is not an RFC 3339 time"),
        (("--fail-on", "rain"), "is not one of rescale, limited, error"),
        (("--state", "nowhere.json"), "No such file"),
        (("--state", ""), "settled, fresh or a file is needed"),
        (("--state", str(DATA / "metrics.json")), "neither an HPAControllerState"),
        (("-l", "a=b=c"), '"a=b=c" is not a label selector'),
        (("shop/unknown",), "no HorizontalPodAutoscaler shop/unknown in the input"),
    ],
)
def test_bad_usage_is_named(arguments: tuple[str, ...], message: str) -> None:
    out = kscale("hpa", *ALL, *arguments)
    assert out.code == 2
    assert message in out.stderr


def test_a_state_of_the_past_needs_a_now(tmp_path: Path) -> None:
    (tmp_path / "hpa.json").write_text(json.dumps(hpa()), encoding="utf-8")
    first = kscale("hpa", "-f", str(tmp_path / "hpa.json"))
    assert first.code == 0
    assert "The input contains no time" in first.stdout
    state = {"apiVersion": "kscale.dev/v1alpha1", "kind": "HPAControllerState", "hpas": {"shop/web": {}}}
    (tmp_path / "state.json").write_text(json.dumps(state), encoding="utf-8")
    words = ("-f", str(tmp_path / "hpa.json"), "--state", str(tmp_path / "state.json"))
    out = kscale("hpa", *words)
    assert out.code == 2
    assert "--now" in out.stderr
    assert kscale("hpa", *words, "--now", "2026-03-01T12:00:00Z").code == 0


def test_hpas_missing_in_the_state_are_reported(tmp_path: Path) -> None:
    state = {"apiVersion": "kscale.dev/v1alpha1", "kind": "HPAControllerState", "hpas": {"shop/web": {}}}
    (tmp_path / "state.json").write_text(json.dumps(state), encoding="utf-8")
    out = kscale("hpa", *ALL, "shop/web", "--state", str(tmp_path / "state.json"), "-o", "json")
    assert "shop/gone is not in" in out.stderr
    assert set(json.loads(out.stdout)["state"]["hpas"]) == {"shop/web", "shop/gone", "shop/keda-hpa-queue"}


def test_a_rival_that_is_not_shown_counts(tmp_path: Path) -> None:
    rival = hpa()
    rival["metadata"]["name"] = "rival"
    (tmp_path / "rival.json").write_text(json.dumps(rival), encoding="utf-8")
    words = (*ALL, "-f", str(tmp_path / "rival.json"))
    for chosen in ((), ("-l", "tier=front"), ("shop/web",)):
        out = json.loads(kscale("hpa", *words, *chosen, "-o", "json").stdout)
        assert {each["reason"] for each in out["hpas"][0]["conditions"]} >= {"AmbiguousSelector"}


def test_flags_of_the_controller() -> None:
    flags = ("--horizontal-pod-autoscaler-tolerance", "2.5")
    assert "0 of 3 HPAs would rescale" in kscale("hpa", *ALL, *flags).stdout
    explained = kscale("explain", "hpa", "shop/web", *ALL, *flags).stdout
    assert "(within tolerance)" in explained
    for arguments, message in (
        (("--feature-gates", "HPAScaleToZero"), "is not NAME=true or NAME=false"),
        (("--feature-gates", "Nonsense=true"), "unrecognized feature gate: Nonsense"),
        (("--profile", "old"), "unknown profile 'old'; there are current, legacy"),
        (("--kubernetes-version", "1.33"), "unknown version '1.33'; there are 1.34 to 1.37"),
        (("--profile", "legacy", "--feature-gates", "HPAGeneration=true"), "unrecognized feature gate: HPAGeneration"),
        (("--horizontal-pod-autoscaler-downscale-stabilization", "5"), "downscale-stabilization"),
    ):
        out = kscale("hpa", *ALL, *arguments)
        assert out.code == 2
        assert message in out.stderr


def test_changed_only_applies_to_json() -> None:
    complete, changed = (
        json.loads(kscale("hpa", *ALL, *more, "-o", "json").stdout) for more in ((), ("--changed-only",))
    )
    assert [each["name"] for each in changed["hpas"]] == ["web"]
    assert changed["state"] == complete["state"]


def test_a_name_of_another_namespace_is_refused() -> None:
    for command in (("explain", "hpa"), ("hpa",)):
        out = kscale(*command, "shop/web", "-n", "other", *ALL)
        assert out.code == 2
        assert "shop/web is of another namespace" in out.stderr


def test_a_stored_object_may_break_a_rule_for_new_ones(tmp_path: Path) -> None:
    stored = hpa()
    stored["spec"]["scaleTargetRef"]["apiVersion"] = "apps//v1"
    (tmp_path / "new.json").write_text(json.dumps(stored), encoding="utf-8")
    assert kscale("hpa", "-f", str(tmp_path / "new.json")).code == 2
    stored["metadata"]["resourceVersion"] = "7"
    (tmp_path / "stored.json").write_text(json.dumps(stored), encoding="utf-8")
    assert kscale("hpa", "-f", str(tmp_path / "stored.json")).code == 0


def test_an_object_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b'{"apiVersion":"v1","kind":"HPAControllerState","hpas":{"\xff":{}}}')
    out = kscale("hpa", "-f", str(path))
    assert out.code == 2
    assert "state.json: HPAControllerState: not readable as JSON in UTF-8" in out.stderr


def test_items_of_a_raw_v1_list_are_v1(tmp_path: Path) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    labels, begun = {"app": "web"}, "2026-01-01T00:00:00Z"
    about = {"name": "web", "namespace": "shop", "creationTimestamp": begun}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "targetCPUUtilizationPercentage": 20}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:10Z"}
    workload = {"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**about, "name": name, "labels": labels},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
            "status": {"phase": "Running", "startTime": begun, "conditions": [ready]},
        }
        for name in ("web-1", "web-2")
    ]
    usage = [
        {
            "metadata": {"name": pod["metadata"]["name"], "namespace": "shop", "labels": labels},
            "timestamp": "2026-01-01T01:00:00Z",
            "window": "15s",
            "containers": [{"name": "c", "usage": {"cpu": "70m"}}],
        }
        for pod in pods
    ]
    documents = [
        {
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscalerList",
            "items": [{"metadata": about, "spec": spec}],
        },
        {"apiVersion": "v1", "kind": "List", "items": [{**target, "metadata": about, "spec": workload}, *pods]},
        {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetricsList", "items": usage},
    ]
    files = []
    for number, document in enumerate(documents):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        files += ["-f", str(path)]
    (result,) = json.loads(kscale("hpa", *files, "-o", "json").stdout)["hpas"]
    (metric,) = result["metrics"]
    assert (metric["name"], metric["current"], metric["target"]) == ("cpu", "70%", "20%")
    assert result["desiredReplicas"] == 4


def test_only_a_v2_object_is_read_as_one() -> None:
    spec = {"maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"}}
    raw = msgspec.Raw(json.dumps({"metadata": {"name": "web"}, "spec": spec}).encode())
    records = [RawObject(f"autoscaling/{version}", "HorizontalPodAutoscaler", raw) for version in ("v1", "v2")]
    assert [hpa is not None for hpa in decode_hpa_records(records)] == [False, True]


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("shop=a.json", ("shop", "a.json")),
        ("shop/keda-hpa-a.v2=a.json", ("shop/keda-hpa-a.v2", "a.json")),
        ("shop:scaledobject.keda.sh/name=a=a.json", ("shop:scaledobject.keda.sh/name=a", "a.json")),
        ("shop=a=b.json", ("shop", "a=b.json")),
        ("./a=b.json", None),
        ("a.json", None),
        ("a.b=c.json", None),
    ],
)
def test_metrics_list_scope_is_parsed(text: str, split: tuple[str, str] | None) -> None:
    assert split_scope(text) == split


def listed_pod(name: str, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T00:01:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "w"}, **metadata},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": phase, "startTime": "2026-11-20T00:00:00Z", "conditions": [ready]},
    }


def listed_usage(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "PodMetrics",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "w"}},
        "timestamp": "2026-11-28T11:59:50Z",
        "window": "30s",
        "containers": [{"name": "c", "usage": {"cpu": "100m"}}],
    }


@pytest.mark.parametrize("profile", ["current", "legacy", "legacy-1.19", "legacy-1.18"])
def test_a_deleting_and_a_failed_pod_do_not_hold_back_a_scale_up(profile: str, tmp_path: Path) -> None:
    """Two ready pods at twice their target make four in every release, whatever became of two others."""
    target = {"type": "Utilization", "averageUtilization": 50}
    items = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}, "template": {}},
            "status": {"replicas": 2},
        },
        listed_pod("w-1"),
        listed_pod("w-2"),
        listed_pod("w-3", deletionTimestamp="2026-11-28T11:59:00Z"),
        listed_pod("w-4", "Failed"),
        listed_usage("w-1"),
        listed_usage("w-2"),
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {
                "minReplicas": 1,
                "maxReplicas": 20,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
            },
            "status": {"currentReplicas": 2, "desiredReplicas": 2},
        },
    ]
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    flags = ("--profile", profile, "--now", "2026-11-28T12:00:00Z", "-o", "json")
    report = json.loads(kscale("hpa", "-f", str(tmp_path / "dump.json"), *flags).stdout)
    assert [each["desiredReplicas"] for each in report["hpas"]] == [4]


@pytest.mark.parametrize("spec", [None, {"size": 4}])
def test_an_hpa_whose_custom_target_is_not_in_the_input_is_not_judged(
    spec: dict[str, Any] | None, tmp_path: Path
) -> None:
    """What is an error here is none in the cluster, whose server knows where the scale is."""
    target = {"apiVersion": "x.example.com/v1", "kind": "Widget", "name": "w"}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue"}}}]
    metrics[0]["resource"]["target"]["averageValue"] = "1"
    metadata = {"name": "w", "namespace": "shop"}
    hpa = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata}
    items = [{**hpa, "spec": {"maxReplicas": 3, "scaleTargetRef": target, "metrics": metrics}}]
    if spec is not None:
        items.append({"apiVersion": "x.example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec})
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    out = kscale("hpa", "-f", path).stdout
    unknown = "1 is not judged (the input does not hold the scale of its target)"
    assert out.startswith(f"0 of 1 HPA would rescale, {unknown}.\n")
    assert "Warning: shop/w: the input has no" in out


@pytest.mark.parametrize(("version", "replicas"), [("1.34", 2), ("v1.35.4", 3), ("", 3)])
def test_a_tolerance_of_an_hpa_counts_from_1_35_on(version: str, replicas: int, tmp_path: Path) -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 93}},
    }
    items = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}, "template": {}},
            "status": {"replicas": 2},
        },
        *(listed_pod(f"w-{i}") for i in range(2)),
        *(listed_usage(f"w-{i}") for i in range(2)),
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {
                "minReplicas": 1,
                "maxReplicas": 20,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w"},
                "metrics": [metric],
                "behavior": {"scaleUp": {"tolerance": "0"}},
            },
        },
    ]
    (tmp_path / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    flags = ("--kubernetes-version", version, "--now", "2026-11-28T12:00:00Z", "-o", "json")
    report = json.loads(kscale("hpa", "-f", str(tmp_path / "dump.json"), *flags).stdout)
    assert [each["desiredReplicas"] for each in report["hpas"]] == [replicas]
