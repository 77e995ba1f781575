"""Upstream's own tables on what is fed to the recommender: VPAs, pods, OOMs, history, checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.errors import InputError
from kscale.objects.api.apps import CronJob, Job, ReplicaSet
from kscale.objects.api.core import Event, Pod
from kscale.objects.decode import from_dict
from kscale.objects.times import nanoseconds
from kscale.series import PrometheusHistory, read_prometheus
from kscale.series.prometheus import authorization, container_keys, last_labels, parse_prometheus_duration
from kscale.vpa import (
    Controllers,
    RecommenderOptions,
    RecommenderRound,
    RecommenderState,
    Usage,
    diff_pods,
    find_memory_evictions,
    find_oom_kills,
    run_once,
)
from kscale.vpa.model.saved_state import CPU_SAMPLE, MEMORY_SAMPLE, OOM
from kscale.vpa.model.usage import find_last_oom_kills, to_usage
from kscale.vpa.resources import cores_to_millicores
from unit.vpa.builders import changed_pods, container, pod, vpa

SECOND = 10**9
HOUR = 3600 * SECOND
T0 = 1492536905 * SECOND  # 2017-04-18T17:35:05Z
GIB = 2**30


# -- OOM observer ----------------------------------------------------------------------------------------------

RUNNING = {"running": {"startedAt": "2018-02-23T13:30:00Z"}}
KILLED = {"terminated": {"reason": "OOMKilled", "finishedAt": "2018-02-23T13:38:48Z"}}
ENDED = {"terminated": {"reason": "Error", "finishedAt": "2018-02-23T13:38:48Z"}}
CRASH_LOOP = {"waiting": {"reason": "CrashLoopBackOff"}}
WHEN = nanoseconds("2018-02-23T13:38:48Z")


def version(
    state: dict[str, Any], *, last: dict[str, Any] | None = None, restarts: int = 0,
    requested: str | None = "1024", reported: str | None = None,
) -> Pod:  # fmt: skip
    status = {"name": "Name11", "state": state, "lastState": last or {}, "restartCount": restarts}
    if reported is not None:
        status["resources"] = {"requests": {"memory": reported}}
    return pod(
        container("Name11", (None, requested) if requested is not None else None),
        name="Pod1",
        status={"phase": "Running", "containerStatuses": [status]},
    )


@pytest.mark.parametrize(
    ("old", "new", "memory"),
    [
        pytest.param(version(RUNNING), version(KILLED), 1024, id="killed"),
        pytest.param(version(RUNNING, requested=None), version(KILLED, requested=None), 0, id="no requests"),
        pytest.param(version(RUNNING), version(KILLED, reported="2048"), 2048, id="status resources"),
        pytest.param(version(RUNNING), version(RUNNING, last=KILLED, restarts=1), 1024, id="restarted"),
        pytest.param(
            version(RUNNING, reported="2048"), version(RUNNING, last=KILLED, restarts=1, reported="4096"), 2048,
            id="restarted, old status resources",
        ),
        pytest.param(version(ENDED), version(KILLED, restarts=1), 1024, id="ended, then killed"),
        pytest.param(version(RUNNING), version(ENDED), None, id="ended otherwise"),
        pytest.param(version(RUNNING), version(RUNNING, last=ENDED, restarts=1), None, id="restarted otherwise"),
        pytest.param(version(CRASH_LOOP), version(RUNNING, last=KILLED, restarts=1), None, id="out of a crash loop"),
        pytest.param(version(KILLED), version(KILLED), None, id="listed again"),
        pytest.param(version(ENDED), version(KILLED), None, id="no restart between"),
    ],
)  # fmt: skip
def test_out_of_memory_between_versions(old: Pod, new: Pod, memory: int | None) -> None:
    expected = [] if memory is None else [(("default", "Pod1", "Name11"), WHEN, memory)]
    assert find_oom_kills(old, new) == expected


def test_containers_without_an_older_status_and_dumps() -> None:
    new = version(KILLED)
    assert find_oom_kills(pod(container("Name11")), new) == []
    (killed,) = find_last_oom_kills([new, version(RUNNING)])
    assert killed == (("default", "Pod1", "Name11"), WHEN, 1024)
    usage = to_usage([killed])
    assert (usage.time.tolist(), usage.value.tolist(), usage.kind.tolist()) == ([WHEN], [1024], [OOM])


def eviction(containers: str, used: str, starved: str, **more: Any) -> Event:
    body = {
        "metadata": {
            "name": "e", "namespace": "default", "creationTimestamp": "2018-02-23T13:38:48Z",
            "annotations": {
                "offending_containers": containers,
                "offending_containers_usage": used,
                "starved_resource": starved,
            },
        },
        "reason": "Evicted",
        "involvedObject": {"kind": "Pod", "namespace": "test-namespace", "name": "pod1"},
        **more,
    }  # fmt: skip
    return from_dict(body, Event)


@pytest.mark.parametrize(
    ("event", "kills"),
    [
        pytest.param(eviction("test", "1024Ki", "memory"), {"test": 1048576}, id="one"),
        pytest.param(eviction("a,b", "1024Ki,2048Ki", "memory,memory"), {"a": 1048576, "b": 2097152}, id="two"),
        pytest.param(eviction("a,b", "1024Ki,2048Ki", "memory,evictable"), {"a": 1048576}, id="memory only"),
        pytest.param(eviction("a,b", "1024Ki,2048Ki", "memory"), {}, id="unequal"),
        pytest.param(eviction("a,b", "many,2048Ki", "memory,memory"), {"b": 2097152}, id="no quantity"),
        pytest.param(eviction("a", "1Ki", "memory", reason="Killing"), {}, id="another reason"),
        pytest.param(eviction("a", "1Ki", "memory", involvedObject={"kind": "Node", "name": "n"}), {}, id="no pod"),
        pytest.param(from_dict({"reason": "Evicted", "involvedObject": {"kind": "Pod"}}, Event), {}, id="bare"),
    ],
)
def test_evicted_for_memory(event: Event, kills: dict[str, int]) -> None:
    evicted = find_memory_evictions(event)
    assert {one.container[2]: one.memory for one in evicted} == kills
    assert all(one.container[:2] == ("test-namespace", "pod1") and one.time == WHEN for one in evicted)


# -- history from Prometheus -----------------------------------------------------------------------------------

SELECTOR = 'job="kubernetes-cadvisor", pod_name=~".+", name!="POD", name!=""'


@pytest.mark.parametrize(
    ("more", "selector"),
    [
        ({}, SELECTOR),
        ({"namespace": "kube-system"}, SELECTOR + ', namespace="kube-system"'),
        ({"prometheus_cadvisor_job_name": ""}, SELECTOR.removeprefix('job="kubernetes-cadvisor", ')),
    ],
)
def test_queries(more: dict[str, str], selector: str) -> None:
    history = PrometheusHistory(history_resolution="30s", **more)
    assert history.cpu_query == f"rate(container_cpu_usage_seconds_total{{{selector}}}[30s])"
    assert history.memory_query == f"container_memory_working_set_bytes{{{selector}}}"
    cpu, memory = history.range_queries(T0)
    assert (cpu.start, cpu.end, cpu.step) == (T0 - 8 * 24 * HOUR, T0, 30 * SECOND)
    assert memory[1:] == cpu[1:]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"history_length": "week"},
            'history length week is not a valid Prometheus duration: not a valid duration string: "week"',
        ),
        ({"history_resolution": ""}, "history resolution  is not a valid Prometheus duration: empty duration string"),
        ({"history_length": "400y"}, "history length 400y is not a valid Prometheus duration: duration out of range"),
    ],
)
def test_invalid_durations_are_input_errors(options: dict[str, str], text: str) -> None:
    with pytest.raises(InputError) as error:
        PrometheusHistory(**options).range_queries(T0)
    assert str(error.value) == text


def test_durations() -> None:
    assert parse_prometheus_duration("0") == 0
    assert parse_prometheus_duration("8d") == 8 * 24 * HOUR
    assert parse_prometheus_duration("1y2w3d4h5m6s7ms") == (
        ((365 + 14 + 3) * 86400 + 4 * 3600 + 5 * 60 + 6) * SECOND + 7 * 10**6
    )
    assert parse_prometheus_duration("9223372036854ms") == 9223372036854 * 10**6
    with pytest.raises(ValueError, match="duration out of range"):
        parse_prometheus_duration("9223372036855ms")


def matrix(*series: tuple[dict[str, str], list[tuple[float, str]]]) -> bytes:
    import json

    result = [{"metric": metric, "values": values} for metric, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def test_samples_of_an_answer() -> None:
    history = PrometheusHistory()
    labels = {"namespace": "default", "pod_name": "pod", "name": "container"}
    answer = read_prometheus(matrix((labels, [(1, "5.5")])), columns=history.columns)
    assert container_keys(history, answer) == (("default", "pod", "container"),)
    assert (answer.time.tolist(), [cores_to_millicores(v) for v in answer.value.tolist()]) == ([SECOND], [5500])
    lacking = read_prometheus(matrix(({"namespace": "default", "pod_name": "pod"}, [(1, "1")])))
    with pytest.raises(InputError, match="cannot get container ID from labels: no name label"):
        container_keys(history, lacking)


def test_last_labels() -> None:
    names = {"kubernetes_namespace": "default", "kubernetes_pod_name": "pod"}
    answer = read_prometheus(
        matrix(({**names, "pod_label_x": "y"}, [(1, "1")]), ({**names, "pod_label_x": "z"}, [(10, "1"), (20, "1")]))
    )
    assert last_labels(PrometheusHistory(), answer) == {("default", "pod"): ({"x": "z"}, 20 * SECOND)}
    with pytest.raises(InputError, match="cannot read last labels: no kubernetes_namespace label"):
        last_labels(PrometheusHistory(), read_prometheus(matrix(({"x": "y"}, [(1, "1")]))))


ENVIRONMENT = {"PROMETHEUS_USERNAME": "prom_user", "PROMETHEUS_PASSWORD": "prom_password"}


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({}, ""),
        ({"username": "user", "password": "password"}, "Basic dXNlcjpwYXNzd29yZA=="),
        ({"username": "user", "password": "password", "environment": ENVIRONMENT}, "Basic dXNlcjpwYXNzd29yZA=="),
        ({"bearer_token": "token", "username": "user", "password": "password"}, "Bearer token"),
        ({"environment": ENVIRONMENT}, "Basic cHJvbV91c2VyOnByb21fcGFzc3dvcmQ="),
    ],
)
def test_authorization(options: dict[str, Any], header: str) -> None:
    assert authorization(**options) == header


# -- VPAs and their targets ------------------------------------------------------------------------------------

APP = {"matchLabels": {"app": "x"}}


def owned(kind: str, name: str, owner: dict[str, str] | None, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if owner is not None:
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    return {"metadata": metadata, "kind": kind, "spec": spec}


LONE = Controllers([from_dict({"apiVersion": "apps/v1", **owned("ReplicaSet", "rs", None, selector=APP)}, ReplicaSet)])
JOB = from_dict(
    {
        "apiVersion": "batch/v1",
        **owned("Job", "job", {"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron"}, selector=APP),
    },
    Job,
)
CRON = from_dict({"apiVersion": "batch/v1", **owned("CronJob", "cron", None)}, CronJob)


def target(kind: str, name: str, version_: str = "apps/v1") -> dict[str, Any]:
    return {"targetRef": {"apiVersion": version_, "kind": kind, "name": name}}


@pytest.mark.parametrize(
    ("spec", "controllers", "selector", "message"),
    [
        pytest.param(target("ReplicaSet", "rs"), LONE, "app=x", "", id="found"),
        pytest.param(
            target("ReplicaSet", "gone"), LONE, "<nothing>",
            "Cannot read targetRef. Reason: ReplicaSet default/gone does not exist", id="missing",
        ),
        pytest.param(
            {"targetRef": None}, LONE, "<nothing>",
            "Cannot read targetRef. Reason: targetRef not defined. If this is a v1beta1 object, switch to v1",
            id="no target",
        ),
        pytest.param(
            target("Job", "job", "batch/v1"), Controllers([JOB, CRON]), "<nothing>",
            "The target batch/v1.Job/job has a parent controller but it should point to a topmost well-known or "
            "scalable controller", id="not topmost",
        ),
        pytest.param(
            target("ReplicaSet", "rs", "apps/v1beta1"), LONE, "app=x", "", id="a well-known kind by another version",
        ),
        pytest.param(
            target("Job", "job", "batch/v1"), Controllers([JOB]), "<nothing>",
            "Error checking if target batch/v1.Job/job is a topmost well-known or scalable controller: "
            "CronJob default/cron does not exist", id="the owner is missing",
        ),
    ],
)  # fmt: skip
def test_targets_of_vpas(spec: dict[str, Any], controllers: Controllers, selector: str, message: str) -> None:
    state = RecommenderState()
    vpa_ = vpa(**spec)
    vpa_.status.conditions = from_dict(
        {"conditions": [{"type": "ConfigDeprecated", "status": "True"}]}, type(vpa_.status)
    ).conditions
    (result,) = run_once(state, RecommenderRound(vpas=[vpa_], controllers=controllers), now=T0).vpas
    conditions = {c.type: (c.status, c.reason, c.message) for c in result.status.conditions}
    assert "ConfigDeprecated" not in conditions
    assert conditions.get("ConfigUnsupported", ("", "", ""))[2] == message
    assert (result.selector == selector) == (selector != "<nothing>")


@pytest.mark.parametrize(
    ("options", "namespaces", "expected"),
    [
        ({"ignored_vpa_object_namespaces": ["ignore1", "ignore2"]}, ["ignore1", "a", "ignore2", "b"], ["a", "b"]),
        ({"vpa_object_namespace": "b"}, ["ignore1", "a", "ignore2", "b"], ["b"]),
    ],
)
def test_namespaces_of_vpas(options: dict[str, Any], namespaces: list[str], expected: list[str]) -> None:
    vpas = []
    for name in namespaces:
        item = vpa()
        item.metadata.namespace = name
        vpas.append(item)
    result = run_once(RecommenderState(RecommenderOptions(**options)), RecommenderRound(vpas=vpas), now=T0)
    assert [item.namespace for item in result.vpas] == expected


def test_only_the_recommender_named() -> None:
    vpas = []
    for name in ("default-recommender", "test-recommender", "another"):
        item = vpa(recommenders=[{"name": name}])
        item.metadata.name = name
        vpas.append(item)
    state = RecommenderState(RecommenderOptions(recommender_name="test-recommender"))
    assert [item.name for item in run_once(state, RecommenderRound(vpas=vpas), now=T0).vpas] == ["test-recommender"]


# -- samples ---------------------------------------------------------------------------------------------------


def test_samples_of_init_containers_are_dropped() -> None:
    pod_ = pod(container("app"))
    pod_.spec.init_containers = pod(container("init")).spec.containers
    events = [
        (("default", "pod", name), T0 + i * SECOND, 1000, kind)
        for i, name in enumerate(("app", "init"))
        for kind in (CPU_SAMPLE, MEMORY_SAMPLE)
    ]
    state = RecommenderState()
    result = run_once(state, RecommenderRound(pods=changed_pods(pod_), usage=[Usage.from_events(events)]), now=T0)
    assert result.errors == []
    assert [key.container for key in state.aggregates] == ["app"]


@pytest.mark.parametrize("saver", [True, False])
def test_samples_of_unknown_pods(saver: bool) -> None:
    """They are refused either way; who logs leaves them out in memory saver mode."""
    state = RecommenderState(RecommenderOptions(memory_saver=saver))
    usage = Usage.from_events([(("default", "gone", "app"), T0, 1000, CPU_SAMPLE)])
    round_inputs = RecommenderRound(pods=changed_pods(pod(container("app"))), usage=[usage])
    (error,) = run_once(state, round_inputs, now=T0).errors
    assert error.is_key_error
    assert error.error == "KeyError: {default gone}"


def test_oom_kills_of_just_deleted_pods_count() -> None:
    state = RecommenderState()
    names = ("pod1", "pod2")
    pods = [pod(container("app"), name=name) for name in names]

    def ooms(size: int) -> Usage:
        return Usage.from_events([(("default", name, "app"), T0, size, OOM) for name in names])

    run_once(state, RecommenderRound(pods=changed_pods(*pods), usage=[ooms(GIB)]), now=T0)
    slots = [state.pods["default", name].containers["app"].slot for name in names]
    first = state.store.oom_peak[slots].tolist()
    run_once(state, RecommenderRound(pods=diff_pods(state, pods[:1]), usage=[ooms(2 * GIB)]), now=T0)
    assert all(after > before for after, before in zip(state.store.oom_peak[slots].tolist(), first, strict=True))
    assert [name for _, name in state.pods] == ["pod1"]


def test_durations_with_very_many_digits_are_out_of_range() -> None:
    with pytest.raises(ValueError, match="duration out of range"):
        parse_prometheus_duration(f"{'9' * 5000}d")
    assert parse_prometheus_duration(f"{'0' * 5000}8d") == 8 * 24 * HOUR
