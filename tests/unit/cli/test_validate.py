"""Damaged, odd and empty input, each by its name or counted, through the command line."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kscale.cli.terminal import format_counts
from unit.cli.support import kscale

SECRET = "hunter2"


def pod(name: str, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "a"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def node(name: str) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def listed(*objects: dict[str, Any]) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()


GOOD = listed(node("n"), pod("p"))


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b'{"kind":"List","items":[{"kind":"Pod",}]}', "a.json: line 1, column 39: malformed JSON"),
        ("a.yaml", b"kind: Pod\nmetadata: {name: [x\n", "a.yaml: line 3, column 1: malformed YAML"),
        ("a.json", b"", "a.json: the file is empty"),
        ("a.json", b"[1, 2]", "a.json: [0]: not a Kubernetes object"),
        ("a.json", b"null\n", "a.json: not a Kubernetes object: expected a mapping, got null"),
        ("a.json", b'{"a": 1}', "a.json: no kind: not a Kubernetes object"),
        ("a.json", bytes(range(256)), "a.json: neither JSON nor YAML: binary data"),
        ("a.json", b"a: \xff", "a.json: neither JSON nor YAML: not UTF-8: byte 3 is 0xff"),
        (
            "a.json",
            b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden"}',
            "a.json: the API server answered with an error, not with objects: pods is forbidden",
        ),
        (
            "a.yaml",
            b"kind: Table\napiVersion: meta.k8s.io/v1\nrows: []",
            "a.yaml: a Table for people to read, not objects: dump them with -o json",
        ),
        (
            "a.json.gz",
            gzip.compress(GOOD, mtime=0)[:-12],
            "a.json.gz: the gzip data ends too early: the file is truncated",
        ),
        (
            "a.json",
            listed(node("n"), pod("q", cpu="1O0m")),
            'a.json: items[1] (Pod a/q): spec.containers[0].resources.requests.cpu: "1O0m" is not a quantity',
        ),
        (
            "a.json",
            listed(pod("q", cpu="-1")),
            "a.json: items[0] (Pod a/q): spec.containers[0].resources.requests.cpu: -1 is negative",
        ),
    ],
)
def test_unreadable_files_are_named(
    file: Callable[[str, bytes], Path], name: str, content: bytes, message: str
) -> None:
    result = kscale("validate", "-f", file(name, content))
    assert result.code == 2
    assert result.stdout.splitlines()[0].endswith((" 1 cannot.", " 2 cannot."))
    assert message in result.stdout
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = kscale("validate", "-f", tmp_path / "nope.json")
    assert result.code == 2
    assert "nope.json: No such file or directory" in result.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (listed(node("n"), node("n"), pod("p"), pod("p")), "4 objects: all can be read, 2 warnings."),
        (listed(node("n"), pod("p", nodeName="gone")), "Node gone: not in the input; pods on it: 1"),
        (
            listed(node("n"), {**node("m"), "status": {"allocatable": {"cpu": "4"}}}),
            "a.json: items[1] (Node m): status.allocatable: has no memory, pods; a missing amount counts as 0",
        ),
        (
            listed(node("n"), pod("p") | {"spec": {"containers": [{"resources": {"requests": {"CPU": "1"}}}]}}),
            '(Pod a/p): spec.containers[0].resources.requests: the scheduler ignores the resource "CPU"',
        ),
        (listed(node("n"), {**pod("p"), "kind": "pod"}), "1 of kind pod: not modelled; did you mean Pod?"),
        (listed(), "a.json: nothing was read: there is no object in it"),
        (b"[]", "a.json: nothing was read: there is no object in it"),
        (listed(pod("p")), "1 object: all can be read."),
        (listed(node("n")), "1 object: all can be read."),
        (GOOD, "2 objects: all can be read."),
    ],
)
def test_unusual_and_missing_objects_are_counted(
    file: Callable[[str, bytes], Path], content: bytes, message: str
) -> None:
    result = kscale("validate", "-f", file("a.json", content))
    assert result.code == 0
    assert message in result.stdout


def test_the_record_says_the_same(file: Callable[[str, bytes], Path]) -> None:
    record = json.loads(kscale("validate", "-f", file("a.json", GOOD), "-o", "json").stdout)
    assert record["kind"] == "Validation"
    assert (record["valid"], record["objects"], record["damaged"]) == (True, 2, 0)
    assert record["kinds"][0] == {"kind": "Node", "objects": 1, "modelled": True}


@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml", "name", "csv", "markdown", "html"])
def test_no_output_prints_secrets(file: Callable[[str, bytes], Path], form: str) -> None:
    secret = pod("p")
    secret["metadata"]["annotations"] = {"token": SECRET, "number": 17}
    secret["spec"]["containers"][0]["env"] = [{"name": "P", "value": SECRET}, {"name": "Q", "value": 17}]
    result = kscale("validate", "-f", file("a.json", listed(secret)), "-o", form)
    assert result.code == 2
    assert SECRET not in result.stdout + result.stderr


def test_standard_input() -> None:
    command = [Path(sys.executable).parent / "kscale", "validate", "-f", "-", "-o", "name"]
    result = subprocess.run(command, input=gzip.compress(GOOD, mtime=0), capture_output=True, check=True)
    assert result.stdout == b"Node\nPod\n"


def test_nothing_to_read_is_bad_usage() -> None:
    result = kscale("validate")
    assert result.code == 2
    assert "nothing to read: name a dump, or - for stdin" in result.stderr


def test_a_file_that_cannot_be_read_is_never_skipped(file: Callable[[str, bytes], Path], tmp_path: Path) -> None:
    good = file("good.json", GOOD)
    for bad in (tmp_path / "nope.json", file("cut.json", GOOD[:-9]), file("a.json.gz", gzip.compress(GOOD)[:-9])):
        result = kscale("estimate", "-f", good, "-f", bad, "--skip-invalid")
        assert (result.code, result.stdout) == (2, "")
        assert f"error: {bad}: " in result.stderr
        assert "run with --skip-invalid" not in result.stderr


def test_only_objects_of_the_dump_can_be_skipped(file: Callable[[str, bytes], Path]) -> None:
    good, bad = file("good.json", GOOD), file("bad.json", listed(node("n"), pod("q", cpu="1O0m")))
    assert "run with --skip-invalid" in kscale("fit", "-f", bad, "--pod", good).stderr
    for options in (("fit", "--pod", bad), ("estimate", "-g", file("g.json", b'[{"id": "a"}]'))):
        result = kscale(options[0], "-f", good, *options[1:])
        assert result.code == 2
        assert "error: " in result.stderr
        assert "--skip-invalid" not in result.stderr


def test_stdin_is_read_once() -> None:
    result = kscale("validate", "-f", "-", "-f", "-", stdin=GOOD)
    assert result.code == 2
    assert "stdin can be read once only, and - is named twice" in result.stderr


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("validate",), "--skip-invalid"),
        (("validate",), "-A"),
        (("headroom",), "-A"),
        (("scale-down",), "-A"),
        (("fit", "--pod", "x.yaml"), "-A"),
        (("explain", "p"), "-A"),
        (("explain", "hpa", "a/h"), "-A"),
    ],
)
def test_options_without_an_effect_are_refused(
    file: Callable[[str, bytes], Path], command: tuple[str, ...], option: str
) -> None:
    result = kscale(*command, "-f", file("a.json", GOOD), option)
    assert result.code == 2
    assert "No such option" in result.stderr


def test_the_namespace_of_a_manifest_that_names_none(file: Callable[[str, bytes], Path]) -> None:
    bare = pod("q")
    del bare["metadata"]["namespace"]
    bare["spec"]["affinity"] = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "p"}}}
            ]
        }
    }
    there, beside = pod("p", nodeName="n"), node("n")
    there["metadata"]["labels"] = {"app": "p"}
    beside["metadata"]["labels"] = {"kubernetes.io/hostname": "n"}
    question = ("fit", "-f", file("a.json", listed(beside, there)), "--pod", file("q.json", listed(bare)))
    assert kscale(*question, "-n", "a").code == 0
    assert kscale(*question, "-n", "b").code == 1


def test_a_namespace_that_is_not_there(file: Callable[[str, bytes], Path]) -> None:
    path = file("a.json", GOOD)
    assert 'warning: there is no namespace "b" in the input' in kscale("estimate", "-f", path, "-n", "b").stderr
    assert "namespace" not in kscale("estimate", "-f", path, "-n", "a", "-g", groups(file)).stderr.partition("warn")[2]


def groups(file: Callable[[str, bytes], Path]) -> Path:
    return file("groups.json", b'[{"id": "g", "fromNode": "n"}]')


def test_names_stay_on_their_line_and_commands_can_be_copied(file: Callable[[str, bytes], Path]) -> None:
    path = file("a.json", listed(node("n"), pod("x; rm\n\x1b[31mFAKE", cpu="99")))
    result = kscale("estimate", "-f", path, "-g", groups(file))
    assert result.code == 1
    assert "'a/x; rm\\n\\x1b[31mFAKE'" in result.stdout
    assert "\\n\\x1b[31mFAKE): metadata.name: a lowercase RFC 1123 subdomain" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr
    assert not any(line.startswith("FAKE") for line in (result.stdout + result.stderr).splitlines())


def test_the_counts_of_metrics_kinds() -> None:
    assert (
        format_counts({"PodMetrics": 3, "NodeMetrics": 1, "Ingress": 2}) == "3 PodMetrics, 1 NodeMetrics, 2 Ingresses"
    )
    result = kscale("fit", "-f", "-", "--pod", "-", stdin=GOOD)
    assert result.code == 2
    assert "stdin can be read once only, and - is named by -f too" in result.stderr


def test_no_one_offers_to_leave_out_a_whole_file(file: Callable[[str, bytes], Path]) -> None:
    cut, damaged = file("cut.json", GOOD[:-9]), file("bad.json", listed(node("n"), pod("q", cpu="1O0m")))
    assert "a file that cannot be read is never left out" in kscale("validate", "-f", damaged, "-f", cut).stdout
    assert "with --skip-invalid" in kscale("validate", "-f", damaged).stdout


def test_a_key_that_comes_twice_is_named(file: Callable[[str, bytes], Path]) -> None:
    text = listed(node("n")).replace(b'"cpu"', b'"memory":"1Gi","cpu"', 1)
    result = kscale("validate", "-f", file("twice.json", text))
    assert result.code == 2
    assert "items[0] (Node n): status.allocatable.memory: the key memory comes twice" in result.stdout


def hpa(version: str = "v2", *, stored: bool = False, resource: str = "averageUtilization") -> dict[str, Any]:
    cpu = {"name": "cpu", "target": {"type": "Utilization", resource: 70}}
    metadata = {"name": "web", "namespace": "a", **({"resourceVersion": "5"} if stored else {})}
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def vpa_of(mode: str | None, *, target: bool = True, **policy: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"resourcePolicy": {"containerPolicies": [{"containerName": "*", **policy}]}}
    if target:
        spec["targetRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    if mode is not None:
        spec["updatePolicy"] = {"updateMode": mode}
    metadata = {"name": "web", "namespace": "a"}
    version = "autoscaling.k8s.io/v1"
    return {"apiVersion": version, "kind": "VerticalPodAutoscaler", "metadata": metadata, "spec": spec}


def scaled(**spec: Any) -> dict[str, Any]:
    triggers = [{"type": "cpu", "metadata": {"value": "60"}}]
    body = {"scaleTargetRef": {"name": "web"}, "triggers": triggers, "minReplicaCount": 1, **spec}
    metadata = {"name": "web", "namespace": "a"}
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata, "spec": body}


KAFKA = {"type": "kafka", "metadata": {"topic": "orders", "lagThreshold": "5"}}
ONLY_RESOURCES = (
    "scaledobject has only cpu/memory triggers AND minReplica is 0 (scale to zero doesn't work in this case)"
)
TARGET = "spec.metrics[0].resource.target"
NEITHER = "must set either a target raw value or a target utilization"


@pytest.mark.parametrize(
    ("item", "problems"),
    [
        (hpa(), []),
        (
            hpa(resource="averageUtilisation"),
            [
                f"{TARGET}.averageUtilisation: unknown field: strict decoding refuses it",
                f"{TARGET}.averageUtilization: Required value: {NEITHER}",
            ],
        ),
        (hpa("v2beta2"), ["apiVersion: autoscaling/v2beta2 is not served since Kubernetes 1.26: use autoscaling/v2"]),
        (hpa("v2beta1"), ["apiVersion: autoscaling/v2beta1 is not served since Kubernetes 1.25: use autoscaling/v2"]),
        (
            scaled(minReplicaCount=50, maxReplicaCount=10),
            ["spec: MinReplicaCount=50 must be less than MaxReplicaCount=10"],
        ),
        (
            scaled(minReplicaCount=2, idleReplicaCount=2),
            ["spec: IdleReplicaCount=2 must be less than MinReplicaCount=2"],
        ),
        (scaled(minReplicaCount=2, idleReplicaCount=0), []),
        (
            scaled(advanced={"horizontalPodAutoscalerConfig": {"behavior": {"scaleUp": {"selectPolicy": "Most"}}}}),
            [
                (
                    'the HPA that KEDA generates: spec.behavior.scaleUp.selectPolicy: Unsupported value: "Most": '
                    'supported values: "Disabled", "Max", "Min"'
                )
            ],
        ),
        (vpa_of("Recreate", minAllowed={"cpu": "1"}, maxAllowed={"cpu": "2"}), []),
        (
            vpa_of("Recreate", minAllowed={"cpu": "2"}, maxAllowed={"cpu": "1"}),
            [
                (
                    "spec.resourcePolicy.containerPolicies[0].maxAllowed[cpu]: Invalid value: "
                    '"1": max resource for cpu is lower than min of "2"'
                )
            ],
        ),
        (
            vpa_of("auto"),
            [
                (
                    'spec.updatePolicy.updateMode: Unsupported value: "auto": supported values: '
                    '"InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"'
                )
            ],
        ),
        (vpa_of("Off", target=False), ["spec.targetRef: Required value"]),
        (
            {**vpa_of("Off"), "apiVersion": "autoscaling.k8s.io/v1beta2"},
            ["apiVersion: autoscaling.k8s.io/v1beta2 is not served: use autoscaling.k8s.io/v1"],
        ),
        (
            vpa_of("Off", controlledValues="requestsOnly"),
            [
                (
                    "spec.resourcePolicy.containerPolicies[0].controlledValues: Unsupported value: "
                    '"requestsOnly": supported values: "RequestsAndLimits", "RequestsOnly"'
                )
            ],
        ),
        (
            scaled(minReplicas=5),
            ["spec.minReplicas: unknown field: strict decoding refuses it"],
        ),
        (
            scaled(
                triggers=[{"type": "cpu", "metadata": {"value": "60"}}, KAFKA],
                pollingInterval=30,
                cooldownPeriod=300,
                fallback={"failureThreshold": 3, "replicas": 6},
            ),
            [],
        ),
        (
            scaled(fallback={"failureThreshold": 3, "replicas": 6}),
            [
                (
                    "spec.fallback: at least one trigger (that is not cpu or memory) is required for the fallback to "
                    "be enabled"
                )
            ],
        ),
        (
            scaled(triggers=[KAFKA], fallback={"failureThreshold": 3, "replicas": -1}),
            ["spec.fallback: FailureThreshold=3 & Replicas=-1 must both be greater than or equal to 0"],
        ),
        (scaled(minReplicaCount=0), [f"spec.triggers: {ONLY_RESOURCES}"]),
        (scaled(minReplicaCount=None), [f"spec.triggers: {ONLY_RESOURCES}"]),
        (
            scaled(
                minReplicaCount=0,
                scaleTargetRef={"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"},
                triggers=[
                    {"type": "memory", "metadata": {"value": "60"}},
                    {"type": "cpu", "metadata": {"value": "60"}},
                ],
            ),
            [f"spec.triggers: {ONLY_RESOURCES}"],
        ),
        (scaled(minReplicaCount=0, triggers=[{"type": "cpu", "metadata": {"value": "60"}}, KAFKA]), []),
        (
            scaled(
                minReplicaCount=0,
                scaleTargetRef={"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"},
            ),
            [],
        ),
        (
            {**scaled(), "metadata": {"name": "x" * 64, "namespace": "a"}},
            [
                (
                    f'metadata.name: scaledobject name "{"x" * 64}" is 64 characters long; must be no more than 63 '
                    'characters because it is used as the "scaledobject.keda.sh/name" label value'
                )
            ],
        ),
        (
            scaled(advanced={"horizontalPodAutoscalerConfig": {"name": "x" * 64}}),
            [
                (
                    f'metadata.name: HPA name "{"x" * 64}" derived from scaledobject is 64 characters long; must be '
                    "no more than 63 characters"
                )
            ],
        ),
        (
            scaled(triggers=[{"type": "cpu", "useCachedMetrics": True, "metadata": {"value": "60"}}]),
            ['spec.triggers: property "useCachedMetrics" is not supported for "cpu" scaler'],
        ),
        (scaled(triggers=[]), ["spec.triggers: no triggers defined in the ScaledObject/ScaledJob"]),
        (
            scaled(triggers=[{"type": "kafka", "name": "lag", "metadata": {}}] * 2),
            [
                (
                    'spec.triggers: triggerName "lag" is defined multiple times in the ScaledObject/ScaledJob, '
                    "but it must be unique"
                )
            ],
        ),
        (
            vpa_of("Off", minallowed={"cpu": "1"}),
            ["spec.resourcePolicy.containerPolicies[0].minallowed: unknown field: strict decoding refuses it"],
        ),
    ],
)
def test_admission_refusals_are_named(
    file: Callable[[str, bytes], Path], item: dict[str, Any], problems: list[str]
) -> None:
    run = kscale("validate", "-f", file("a.json", listed(node("n"), item)), "-o", "json")
    record = json.loads(run.stdout)
    assert [text.partition("): ")[2] or text.partition("r: ")[2] for text in record["problems"]] == problems
    assert (record["valid"], record["refused"], record["damaged"]) == (not problems, int(bool(problems)), 0)
    assert run.code == (2 if problems else 0)


def workload(kind: str = "Deployment", version: str = "apps/v1", **resources: Any) -> dict[str, Any]:
    containers = [{"name": "app", "image": "x", "resources": resources}, {"name": "side", "image": "x",
                   "resources": {"requests": {"cpu": "1", "memory": "1"}}}]  # fmt: skip
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "a"}, "spec": spec}


def limit_range(namespace: str = "a", type_: str = "Container", **limits: Any) -> dict[str, Any]:
    spec = {"limits": [{"type": type_, **limits}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": namespace}, "spec": spec}


def other(item: dict[str, Any], name: str = "other", **metadata: Any) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "name": name, **metadata}}


def trigger(type_: str, **metadata: Any) -> dict[str, Any]:
    return {"type": type_, "metadata": {"value": "60", **metadata}}


NO_REQUEST = "the scaledobject has a {} trigger but the container app doesn't have the {} request defined"
NO_RANGE = " (no LimitRange in the input gives it one)"
MANAGED = "the workload 'web' of type 'apps/v1.Deployment' is already managed by"
OWNED = [{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "u", "controller": True}]
STATEFUL = scaled(scaleTargetRef={"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"})
NAMED = {"horizontalPodAutoscalerConfig": {"name": "mine"}}
TRANSFER = {"scaledobject.keda.sh/transfer-hpa-ownership": "true"}


def keda_hpa(**metadata: Any) -> dict[str, Any]:
    item = hpa()
    item["spec"]["scaleTargetRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return other(item, **{"name": "mine", "namespace": "a", **metadata})


@pytest.mark.parametrize(
    ("items", "refused"),
    [
        # Requests of the target's containers.
        ([scaled(), workload()], NO_REQUEST.format("cpu", "cpu") + NO_RANGE),
        ([scaled(), workload(requests={"memory": "1Gi"})], NO_REQUEST.format("cpu", "cpu") + NO_RANGE),
        ([scaled(), workload(requests={"cpu": "0"})], NO_REQUEST.format("cpu", "cpu") + NO_RANGE),
        ([scaled(), workload(requests={"cpu": "1"})], ""),
        ([scaled(), workload(limits={"cpu": "1"})], ""),
        ([scaled(triggers=[trigger("memory")]), workload()], NO_REQUEST.format("memory", "memory") + NO_RANGE),
        ([scaled(triggers=[{**trigger("cpu"), "metricType": "AverageValue"}]), workload()],
         NO_REQUEST.format("cpu", "cpu") + NO_RANGE),
        ([scaled(triggers=[trigger("cpu", containerName="side")]), workload()], ""),
        ([scaled(triggers=[KAFKA]), workload()], ""),
        ([STATEFUL, workload("StatefulSet")], NO_REQUEST.format("cpu", "cpu") + NO_RANGE),
        ([scaled(scaleTargetRef={"apiVersion": "x.io/v1", "kind": "Thing", "name": "web"}), workload()], ""),
        ([scaled(), workload(), limit_range(default={"cpu": "1"})], ""),
        ([scaled(), workload(), limit_range(defaultRequest={"cpu": "1"})], ""),
        ([scaled(), workload(), limit_range(default={"memory": "1"})], NO_REQUEST.format("cpu", "cpu")),
        ([scaled(), workload(), limit_range(type_="Pod", default={"cpu": "1"})], NO_REQUEST.format("cpu", "cpu")),
        ([scaled(), workload(), limit_range("b", default={"cpu": "1"})], NO_REQUEST.format("cpu", "cpu") + NO_RANGE),
        # Two ScaledObjects.
        ([scaled(triggers=[KAFKA]), other(scaled(triggers=[KAFKA]))], f"{MANAGED} the ScaledObject 'web'"),
        ([scaled(triggers=[KAFKA]), other(scaled(triggers=[KAFKA]), namespace="b")], ""),
        ([scaled(), STATEFUL | {"metadata": {"name": "other", "namespace": "a"}}], ""),
        (
            [
                scaled(triggers=[KAFKA], advanced=NAMED),
                other(scaled(scaleTargetRef={"name": "b"}, triggers=[KAFKA], advanced=NAMED)),
            ],
            "the HPA 'mine' is already managed by the ScaledObject 'web'",
        ),
        # An HPA of somebody else.
        ([scaled(triggers=[KAFKA]), keda_hpa()], f"{MANAGED} the hpa 'mine'"),
        ([scaled(triggers=[KAFKA]), keda_hpa(ownerReferences=OWNED)], ""),
        ([scaled(triggers=[KAFKA]), keda_hpa(annotations={"validations.keda.sh/hpa-ownership": "false"})], ""),
        ([other(scaled(triggers=[KAFKA]), "web", annotations=TRANSFER), keda_hpa()],
         ("the existing hpa 'mine' for workload 'web' of type 'apps/v1.Deployment' must be specified by name in "
         "advanced settings to enable ownership transfer")),
        ([other(scaled(triggers=[KAFKA], advanced=NAMED), "web", annotations=TRANSFER), keda_hpa()], ""),
        ([STATEFUL, keda_hpa()], ""),
    ],
)  # fmt: skip
def test_keda_refusals_with_other_objects_are_named(
    file: Callable[[str, bytes], Path], items: list[dict[str, Any]], refused: str
) -> None:
    for order in (items, items[::-1]) if "ScaledObject 'web'" not in refused else (items,):
        run = kscale("validate", "-f", file("a.json", listed(node("n"), *order)), "-o", "json")
        problems = json.loads(run.stdout)["problems"]
        assert [text.partition("): ")[2].partition(": ")[2] for text in problems] == ([refused] if refused else [])


def test_keda_warnings_and_unchecked_fields_are_warnings(file: Callable[[str, bytes], Path]) -> None:
    item = scaled(pollingInterval=5, cooldownPeriod=9)
    run = kscale("validate", "-f", file("a.json", listed(node("n"), item)), "-o", "json")
    record = json.loads(run.stdout)
    assert record["problems"] == []
    polling, cooldown, target = record["warnings"]
    assert "PollingInterval is configured but is not relevant" in polling
    assert "CooldownPeriod is configured but is not relevant" in cooldown
    assert "its target is not in the input: whether its containers have requests is not checked" in target
    idle = scaled(triggers=[KAFKA], minReplicaCount=2, idleReplicaCount=0, pollingInterval=5, cooldownPeriod=9)
    run = kscale("validate", "-f", file("b.json", listed(node("n"), idle)), "-o", "json")
    assert json.loads(run.stdout)["warnings"] == []


def test_unknown_fields_of_a_stored_object_are_a_warning(file: Callable[[str, bytes], Path]) -> None:
    item = hpa(stored=True)
    item["spec"]["minimumReplicas"] = 1
    run = kscale("validate", "-f", file("a.json", listed(node("n"), item, vpa_of("Auto"))), "-o", "json")
    record = json.loads(run.stdout)
    assert (run.code, record["problems"], record["warningCount"]) == (0, [], 2)
    assert record["warnings"][0].endswith("spec.minimumReplicas: unknown field: the server drops it")
    assert '"Auto" mode is deprecated' in record["warnings"][1]
    output = kscale("validate", "-f", file("b.json", listed(node("n"), hpa(resource="x")))).stdout
    assert output.startswith("2 objects: all can be read, 1 would be refused.\n")
