"""The comparison of two autoscalers' logs: what it takes as the same, and what it does not."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from e2e.control_plane import ControlPlane
from e2e.duel.case import CASES, Case, Explained, Samples, read_case
from e2e.duel.compare import Comparison, compared
from e2e.duel.facts import Change, CloudCall, EventSeen, Log, changes_of, read_logs, write_logs
from e2e.metrics_server import FakeMetrics
from kscale.effects import from_text, to_text

CASE = Case(about="x", groups=[], steps=[])
STATUS = "autoscalerStatus: Running\ntime: 2026-11-22 22:50:07.05 +0000 UTC\n"


def tainted(node: str, seconds: int) -> dict[str, list[Change]]:
    taint = {"key": "ToBeDeleted", "value": str(1795387796 + seconds)}
    return {f"nodes/{node}": [Change(verb="write", changed={"/spec/taints": (None, [taint])})]}


def event(about: str, message: str = "it goes", count: int = 1, reason: str = "ScaleDown") -> EventSeen:
    return EventSeen(about=about, type="Normal", reason=reason, message=message, count=count)


def log(side: str = "upstream", *, node: str = "small-1", seconds: int = 0, **fields: Any) -> Log:
    created = Log(
        case="x",
        side=side,
        version="",
        seconds=1.0,
        calls=[CloudCall(at=float(seconds), group="small", what=f"DeleteNodes {node}")],
        changes=tainted(node, seconds),
        events=[event(f"Node/{node}")],
        objects={"nodes/small-0": {"spec": {}, "status": {"since": f"2026-11-22T22:50:0{seconds}Z"}}},
        status=STATUS,
    )
    return msgspec.structs.replace(created, **fields)


def judged(ours: Log, *upstream: Log, case: Case = CASE) -> Comparison:
    return compared(case, ours, upstream or (log(), log(seconds=1), log(seconds=2)))


def test_times_do_not_count() -> None:
    result = judged(log("kscale", seconds=3))
    assert (result.differences, result.varied, len(result.same)) == ([], [], 6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"calls": []}, "cloud of small: only upstream: ['DeleteNodes small-1']"),
        ({"node": "small-2", "events": [event("Node/small-1")]}, "cloud of small: only here: DeleteNodes small-2"),
        ({"calls": [CloudCall(at=0, group="small", what="DeleteNodes small-1", refused="no")]},
         "cloud of small: only here: DeleteNodes small-1 no"),
        ({"changes": {}}, "changes of nodes/small-1: only upstream"),
        ({"events": [event("Node/small-1", "no")]}, "events of Node/small-1: only here: Normal ScaleDown: no"),
        ({"events": [event("Node/small-1", count=2)]}, "times told of Node/small-1 Normal ScaleDown: it goes: only h"),
        ({"objects": {}}, "objects of nodes/small-0: only upstream"),
        ({"status": STATUS.replace("Running", '"Running"')}, 'status of document: only here: autoscalerStatus: "R'),
    ],
)  # fmt: skip
def test_differences_are_reported(fields: dict[str, Any], message: str) -> None:
    assert any(each.startswith(message) for each in judged(log("kscale", **fields)).differences)


def changed(path: str, before: Any, after: Any) -> dict[str, list[Change]]:
    return {"checkpoints/web": [Change(verb="write", changed={path: (before, after)})]}


def test_times_and_writes_of_ended_programs_are_ignored() -> None:
    only_later = changed("/status/lastUpdateTime", "2026-11-22T22:50:07Z", "2026-11-22T22:50:08Z")
    assert judged(log("kscale", changes=only_later), log(changes={})).differences == []
    ended = {"checkpoints/web": [Change(verb="write", refused=504)]}
    assert judged(log("kscale", changes=ended), log(changes={})).differences == []
    samples = [changed("/status/lastSampleStart", None, f"2020-01-01T00:00:0{i}Z") for i in range(2)]
    assert judged(log("kscale", changes=samples[0]), log(changes=samples[0])).differences == []
    assert len(judged(log("kscale", changes=samples[0]), log(changes=samples[1])).differences) == 2


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ({"url": "https://localhost:1234"}, {"url": "https://localhost:5678"}, True),
        ({"caBundle": "QUJD"}, {"caBundle": "REVG"}, True),
        ({"vpaUpdates": "updated by web: container 0: cpu request, memory request; container 1: cpu limit"},
         {"vpaUpdates": "updated by web: container 0: memory request, cpu request; container 1: cpu limit"}, True),
        ({"vpaUpdates": "updated by web: container 0: cpu request; container 1: memory request"},
         {"vpaUpdates": "updated by web: container 0: memory request; container 1: cpu request"}, False),
        ({"memory": "1073741824"}, {"memory": "1073741825"}, False),
    ],
)  # fmt: skip
def test_random_fields_of_objects_are_ignored(ours: dict[str, str], theirs: dict[str, str], same: bool) -> None:
    result = judged(log("kscale", objects={"pods/web": ours}), log(objects={"pods/web": theirs}))
    assert (result.differences == []) is same


def test_refusals_of_the_case_writes_are_compared() -> None:
    assert judged(log("kscale", refusals=["400: no"]), log(refusals=["400: no"])).differences == []
    assert judged(log("kscale", refusals=["400: no"]), log(refusals=["400: never"])).differences != []
    assert judged(log("kscale"), log(refusals=["400: no"])).differences != []


def test_the_order_of_calls_counts() -> None:
    calls = [CloudCall(at=i, group="g", what=what) for i, what in enumerate(("IncreaseSize 1", "DeleteNodes a"))]
    upstream = log(calls=calls)
    result = judged(log("kscale", calls=calls[::-1]), upstream, upstream)
    assert ["another order" in each for each in result.differences] == [True]


def test_values_that_vary_with_upstream_are_a_set() -> None:
    theirs = [log(node="small-1"), log(node="small-2"), log(node="small-1")]
    result = judged(log("kscale", node="small-3"), *theirs)
    assert result.differences == []
    assert len(result.varied) == 4  # cloud, changes, events, times told
    twice = log("kscale", calls=[CloudCall(at=0, group="small", what=f"DeleteNodes small-{i}") for i in (1, 2)])
    result = judged(twice, *theirs)
    assert result.differences == ["cloud: 2 times here, 1 times with upstream: small: DeleteNodes small-#"]


def test_number_of_waiting_pods_may_vary_as_with_upstream() -> None:
    def events_of(*pods: int, reason: str = "NotTriggerScaleUp") -> list[EventSeen]:
        return [event(f"Pod/web-{number}", reason=reason) for number in pods]

    runs = (log(events=events_of(3, 7)), log(events=events_of(3, 5, 8)))
    for pods in ((1,), (1, 2, 3, 4)):
        assert judged(log("kscale", events=events_of(*pods)), *runs).differences == []
    none = "events: 0 times here, 2 to 3 times with upstream: Pod/web-#: Normal NotTriggerScaleUp: it goes"
    assert judged(log("kscale", events=[]), *runs).differences == [none]
    always = (log(events=events_of(3, 7)), log(events=events_of(3, 5)))
    assert len(judged(log("kscale", events=events_of(1, 2, 3)), *always).differences) == 1
    others = [log(events=events_of(*pods, reason="ScaleDown")) for pods in ((3,), (3, 5))]
    assert judged(log("kscale", events=events_of(1, 2, reason="ScaleDown")), *others).differences == []
    many = "events: 500 times here, 1 to 2 times with upstream: Pod/web-#: Normal ScaleDown: it goes"
    assert judged(log("kscale", events=events_of(*range(500), reason="ScaleDown")), *others).differences == [many]


def test_only_the_status_is_left_out_of_config_maps() -> None:
    def written(name: str) -> dict[str, list[Change]]:
        return {f"configmaps/kube-system/{name}": [Change(verb="write", changed={"/data/a": (None, "b")})]}

    status = log("kscale", changes=tainted("small-1", 0) | written("cluster-autoscaler-status"))
    assert judged(status).differences == []
    other = log("kscale", changes=tainted("small-1", 0) | written("other"))
    (difference,) = judged(other).differences
    assert difference.startswith("changes of configmaps/kube-system/other: only here")


def test_pods_of_a_stateful_set_that_swap_places_vary() -> None:
    def placed(*nodes: str) -> dict[str, Any]:
        label = "apps.kubernetes.io/pod-index"
        return {
            f"pods/default/web-{i}": {"metadata": {"labels": {label: str(i)}}, "spec": {"nodeName": node}}
            for i, node in enumerate(nodes)
        }

    theirs = [log(objects=placed("a-1", "b-1", "b-2")), log(objects=placed("b-1", "a-1", "b-2"))]
    assert judged(log("kscale", objects=placed("b-2", "b-1", "a-1")), *theirs).differences == []
    assert judged(log("kscale", objects=placed("a-2", "a-1", "b-1")), *theirs).differences != []


def test_differences_may_be_explained() -> None:
    case = Case(about="x", groups=[], steps=[], explained=[Explained(where="^cloud of small", why="it is so")])
    result = judged(log("kscale", calls=[]), case=case)
    assert [why for _, why in result.explained] == ["it is so"]
    assert result.differences == []


def entry(verb: str, version: int, spec: dict[str, Any], *, user: str = "ca", **more: Any) -> dict[str, Any]:
    answer = {"metadata": {"name": "n", "resourceVersion": str(version), "uid": str(version)}, "spec": spec}
    at = {"resource": "nodes", "name": "n"}
    created = {"stage": "ResponseComplete", "verb": verb, "user": {"username": user}, "objectRef": at}
    return {**created, "responseStatus": {"code": 200}, "responseObject": answer, **more}


def test_changes_have_values_before_and_after() -> None:
    evicted = {"resource": "pods", "namespace": "default", "name": "p", "subresource": "eviction"}
    audit = [
        entry("create", 1, {"a": 1}, user="admin"),
        entry("update", 2, {"a": 1, "b": 2}),
        entry("patch", 3, {"a": 1, "b": 3}, user="other"),
        entry("patch", 5, {"a": 2, "b": 3}),
        entry("patch", 5, {"a": 2, "b": 3}),  # nothing
        entry("patch", 5, {}, responseStatus={"code": 409}, responseObject={"kind": "Status", "metadata": {}}),
        entry("create", 9, {}, objectRef=evicted, requestObject={"deleteOptions": {"gracePeriodSeconds": 1}}),
        entry("update", 9, {}, objectRef={"resource": "leases", "name": "l"}),
        entry("update", 11, {"replicas": 3}, objectRef={"resource": "sets", "name": "s", "subresource": "scale"}),
    ]
    assert changes_of(audit, "ca") == {
        "nodes/n": [
            Change(verb="write", changed={"/spec/b": (None, 2)}),
            Change(verb="write", changed={"/spec/a": (1, 2)}),
            Change(verb="write", refused=409),
        ],
        "sets/s": [Change(verb="write scale", changed={"/spec/replicas": (None, 3)})],
        "pods/default/p": [Change(verb="evict", changed={"deleteOptions": (None, {"gracePeriodSeconds": 1})})],
    }


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_written_logs_are_read_back(tmp_path: Path, name: str) -> None:
    write_logs(tmp_path / name, [log(), log("kscale")])
    assert read_logs(tmp_path / name) == [log(), log("kscale")]


@pytest.mark.parametrize(
    ("begin", "moments"),
    [
        ("", ["2026-11-22T22:50:07Z", "2026-11-22T22:50:22Z", "2026-11-22T22:50:37Z"]),
        ("2020-01-01T00:00:00Z", ["2020-01-01T00:00:00Z", "2020-01-01T00:00:15Z", "2020-01-01T00:00:30Z"]),
    ],
)
def test_samples_keep_their_spacing(begin: str, moments: list[str]) -> None:
    samples = Samples(begin=begin, every=15, usage={})
    started = from_text("2026-11-22T22:50:07.9Z")
    assert [to_text(samples.sampled_at(i, started)) for i in range(3)] == moments


class Pods(ControlPlane):
    """An API that knows two pods and nothing else."""

    def __init__(self) -> None:
        pass

    def ask(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        assert (method, path, body) == ("GET", "/api/v1/namespaces/default/pods?labelSelector=app=web", None)
        spec = {"containers": [{"name": "c"}]}
        return {
            "items": [
                {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": phase}}
                for name, phase in (("web-0", "Running"), ("web-1", "Pending"))
            ]
        }


def test_the_metrics_server_tells_moments_of_samples() -> None:
    metrics = FakeMetrics(Pods(), lambda pod, container: {"cpu": f"{pod['metadata']['name']} {container}"})
    metrics.sampled(from_text("2020-01-01T00:00:30Z"), window=4)
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb"
    for listed in (1, 2):  # whenever somebody asks
        code, data = asyncio.run(metrics.answer(path))
        (item,) = json.loads(data)["items"]
        assert (code, item["timestamp"], item["window"], metrics.listed) == (200, "2020-01-01T00:00:30Z", "4s", listed)
        assert item["containers"] == [{"name": "c", "usage": {"cpu": "web-0 c"}}]


@pytest.mark.parametrize("path", sorted(CASES.iterdir()), ids=lambda path: path.stem)
def test_cases_are_read(path: Path) -> None:
    case = read_case(path)
    assert case.name == path.stem
    assert case.about


def test_pages_name_every_case() -> None:
    """``docs/duel.md`` in its table, by program; ``docs/live.md`` how many there are."""
    docs = Path(__file__).parents[2] / "docs"
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (docs / "duel.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = {name: program for name, program in rows if (CASES / f"{name}.yaml").exists()}
    assert set(listed) == {path.stem for path in CASES.glob("*.yaml")}
    others = sum(program != "Cluster Autoscaler" for program in listed.values())
    numbers = {6: "six", 10: "ten"}
    own = len(listed) - others
    sentence = f"{numbers[own]} cases of the Cluster Autoscaler and {numbers[others]} of the other programs."
    assert sentence in (docs / "live.md").read_text(encoding="utf-8")
