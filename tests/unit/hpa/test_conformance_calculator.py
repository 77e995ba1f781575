"""Facts of upstream's ``replica_calculator_test.go`` and ``utilization_test.go``."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.effects import SECOND, ApiError, from_text, to_text
from kscale.hpa.controller.replica_calculator import (
    POD_GROUPS,
    PodColumns,
    Sample,
    SampleColumns,
    Tolerances,
    get_pod_requests,
    group_pods,
)
from kscale.hpa.options import HPAOptions
from kscale.objects.api.autoscaling import CrossVersionObjectReference
from kscale.objects.api.core import Pod
from kscale.objects.decode import from_dict
from unit.hpa.support import NOW, OPTIONS, SELECTOR, Fixture, calculator, pods, states

MAX = 2**63 - 1
SAME5 = "1000/100 1000/300 1000/500 1000/250 1000/250"

# case | current | request of each container | usage | target | state | replicas / percent / raw
RESOURCE = f"""
up | 3 | 1000*3 | 300 500 700 | 30 | | 5 50 1000
up, container | 3 | 1000*3 | 1000/300 1000/500 1000/700 | 30 | c 2 | 5 50 500
up, unready scales less | 3 | 1000*3 | 300 500 700 | 30 | rdy FTT | 4 60 1200
up, hot container | 3 | 1000*3 | 0/300 0/500 0/700 | 30 | c 2,st hcc | 4 60 600
up, hot pod | 3 | 1000*3 | 300 500 700 | 30 | st hcc | 4 60 1200
hold, unready | 3 | 1000*3 | 400 500 700 | 30 | rdy TFF | 3 40 800
hold, hot | 3 | 1000*3 | 400 500 700 | 30 | rdy TFF,st chh | 3 40 800
up, failed ignored | 2 | 1000*4 | 500 700 | 30 | rdy TTFF,ph RRFF | 4 60 1200
up, failed, container metric missing | 2 | 1000*4 | 1000/500 9000/700 1000 9000 | 30 | c 2,rdy TTFF,ph RRFF | 4 60 600
up, container, failed | 2 | 1000*4 | 1000/500 9000/700 | 30 | c 2,rdy TTFF,ph RRFF | 4 60 600
up, deleting ignored | 2 | 1000*4 | 500 700 | 30 | rdy TTFF,ph RRRR,del 0011 | 4 60 1200
up, container, deleting | 2 | 1000*4 | 500 700 | 30 | c 1,rdy TTFF,ph RRRR,del 0011 | 4 60 600
down | 5 | 1000*5 | 100 300 500 250 250 | 50 | | 3 28 560
down, container | 5 | 1000*5 | {SAME5} | 50 | c 2 | 3 28 280
down, unready excluded | 5 | 1000*5 | 100 300 500 250 250 | 50 | rdy TTTFF | 2 30 600
down, container, unready | 5 | 1000*5 | {SAME5} | 50 | c 2,rdy TTTFF | 2 30 300
down, pending excluded | 5 | 1000*5 | 100 | 50 | rdy TFFFF,ph RPPPP | 1 10 200
down, container, pending | 5 | 1000*5 | {SAME5} | 50 | c 2,rdy TFFFF,ph RPPPP | 1 10 100
down, hot excluded | 5 | 1000*5 | 100 300 500 250 250 | 50 | st ccchh | 2 30 600
down, container, hot | 5 | 1000*5 | 1000/100 1000/300 1000/500 1000/1000 1000/1000 | 50 | c 2,st ccchh | 2 30 300
down, failed ignored | 5 | 1000*7 | 100 300 500 250 250 | 50 | rdy TTTTTFF,ph RRRRRFF | 3 28 560
down, container, failed | 5 | 1000*7 | {SAME5} | 50 | c 2,rdy TTTTTFF,ph RRRRRFF | 3 28 280
down, deleting ignored | 5 | 1000*7 | 100 300 500 250 250 | 50 | rdy TTTTTFF,ph RRRRRRR,del 0000011 | 3 28 560
down, container, deleting | 5 | 1000*7 | {SAME5} | 50 | c 2,rdy TTTTTFF,ph RRRRRRR,del 0000011 | 3 28 280
tolerance | 3 | 900 1000 1100 | 1010 1030 1020 | 100 | | 3 102 2040
tolerance 0/0 | 3 | 900 1000 1100 | 909 1010 1111 | 100 | tol 0/0 | 4 101 2020
tolerance up 200 % | 3 | 900 1000 1100 | 1890 1910 1900 | 100 | tol 0.1/2 | 3 190 3800
tolerance up 8 % | 3 | 900 1000 1100 | 1100 1080 1090 | 100 | tol 2/0.08 | 4 109 2180
tolerance down 36 % | 3 | 900 1000 1100 | 660 640 650 | 100 | tol 0.36/0.1 | 3 65 1300
tolerance down 34 % | 3 | 900 1000 1100 | 660 640 650 | 100 | tol 0.34/0.1 | 2 65 1300
superfluous metrics | 4 | 1000*4 | 4000 9500 3000 7000 3200 2000 | 100 | | 24 587 11750
missing | 4 | 1000*4 | 400 95 | 100 | | 3 24 495
missing, ratio 1 | 2 | 1000*2 | 1000 | 100 | | 2 100 2000
missing, ratio > 1 | 2 | 1000*2 | 1900 | 100 | | 2 190 3800
missing, ratio < 1 | 2 | 1000*2 | 600 | 100 | | 2 60 1200
missing + unready, hold | 3 | 1000*3 | 100 450 | 50 | rdy FTT | 3 45 900
missing + hot, hold | 3 | 1000*3 | 100 450 | 50 | st hcc | 3 45 900
missing + unready, up | 3 | 1000*3 | 100 2000 | 50 | rdy FTT | 4 200 4000
missing + hot, up | 3 | 1000*3 | 100 2000 | 50 | rdy FTT,st hcc | 4 200 4000
missing + unready, down | 4 | 1000*4 | 100 100 100 | 50 | rdy FTTT | 3 10 200
missing, down, target > 100 | 4 | 1000 1000 2000 2000 | 200 100 100 | 300 | rdy FTTT | 2 6 200
rolling update surge | 2 | 1000*3 | 100 100 | 50 | ph RRR | 2 10 200
computed tolerance a | 10 | 400 200 310 290 302 298 301 299 300 300 | 150*10 | 56 | | 9 50 300
computed tolerance b | 10 | 400 200 310 290 302 298 301 299 300 300 | 150*10 | 55 | | 10 50 300
""".strip().splitlines()


def numbers(text: str) -> list[str]:
    if "*" in text:
        value, times = text.split("*")
        return [value] * int(times)
    return text.split()


def levels_of(text: str, *, one: bool) -> list[int]:
    """Usage of the containers; a single number is that of both, or of the first alone."""
    result = [int(level) for level in text.split("/")]
    return result if one or len(result) > 1 else result * 2


def tolerances(marks: dict[str, str]) -> Tolerances:
    down, up = marks.get("tol", "0.1/0.1").split("/")
    return Tolerances(float(down), float(up))


@pytest.mark.parametrize("line", RESOURCE, ids=[line.split(" | ")[0] for line in RESOURCE])
def test_get_resource_replicas(line: str) -> None:
    _, current, requests, usage, target, state, want = (part.strip() for part in line.split("|"))
    marks = states(state)
    count = max(int(current), len(marks.get("ph", "")))
    levels = [
        [int(level) for level in each.split("/")]
        if "/" in each or ("c" in marks and marks["c"] == "2")
        else [int(each)] * 2
        for each in numbers(usage)
    ]
    fixture = Fixture(pods(count, [int(each) for each in numbers(requests)], state), levels=levels)
    container = f"container{marks['c']}" if "c" in marks else ""
    result = fixture.run(
        calculator().get_resource_replicas(
            int(current), int(target), "cpu", tolerances(marks), "test-namespace", SELECTOR, container
        )
    )
    assert result.error is None
    assert [result.replicas, result.utilization, result.usage] == [int(each) for each in want.split()]


@pytest.mark.parametrize(
    ("count", "requests", "levels", "names", "message"),
    [
        (1, [1000], [[100, 100]], ["unrelated"], "no metrics returned matched known pods"),
        (
            4,
            [1000] * 3,
            [],
            [],
            "unable to get metrics for resource cpu: no metrics returned from resource metrics API",
        ),
        (1, [None], [[200, 200]], [], "missing request for cpu in container container1 of Pod test-pod-0"),
    ],
)
def test_get_resource_replicas_errors(
    count: int, requests: list[int | None], levels: list[list[int]], names: list[str], message: str
) -> None:
    fixture = Fixture(pods(count, requests), levels=levels, names=names)
    result = fixture.run(
        calculator().get_resource_replicas(count, 100, "cpu", Tolerances(), "test-namespace", SELECTOR)
    )
    assert result.error == message


# case | mode | current | values | target | state | replicas / usage
METRICS = f"""
up | pods | 3 | 20000 10000 30000 | 15000 | | 4 20000
up, unready and hot do not matter | pods | 3 | 50000 10000 30000 | 15000 | rdy TTF,st cch | 6 30000
up, same, larger | pods | 3 | 50000 15000 30000 | 15000 | rdy FTF,st hch | 7 31666
down | pods | 5 | 12000*5 | 20000 | | 3 12000
tolerance | pods | 3 | 20000 21000 21000 | 20000 | | 3 20666
tolerance 1 % up | pods | 3 | 20000 21000 21000 | 20000 | tol 0.1/0.01 | 4 20666
missing, ratio 1 | pods | 5 | 20000 19000 21000 | 20000 | | 5 20000
surge | pods | 2 | 10000 10000 | 17000 | ph RRR | 2 10000
up | object value | 3 | 20000 | 15000 | | 4 20000
up, unready ignored | object value | 3 | 50000 | 10000 | rdy FTF | 5 50000
down | object value | 5 | 12000 | 20000 | | 3 12000
tolerance | object value | 3 | 20666 | 20000 | | 3 20666
tolerance 1 % up | object value | 3 | 20666 | 20000 | tol 0.1/0.01 | 4 20666
overflow | object value | 3 | {MAX} | 1 | | 2147483647 {MAX}
up | object per pod | 3 | 20000 | 5000 | | 4 6667
down | object per pod | 5 | 6000 | 2000 | | 3 1200
tolerance | object per pod | 4 | 20166 | 5000 | | 4 5042
tolerance 1 % up | object per pod | 4 | 20208 | 5000 | tol 0.1/0.01 | 5 5052
unready ignored | external value | 3 | 8600 | 4400 | rdy FTF | 2 8600
down | external value | 5 | 8600 | 14334 | | 3 8600
tolerance | external value | 3 | 8600 | 8888 | | 3 8600
tolerance 1 % up | external value | 3 | 8900 | 8800 | tol 0.1/0.01 | 4 8900
sum overflow | external value | 3 | 4611686018427387904 4611686018427387904 | {MAX} | | 3 {MAX}
up | external per pod | 3 | 8600 | 2150 | | 4 2867
down | external per pod | 5 | 8600 | 2867 | | 3 1720
tolerance | external per pod | 3 | 8600 | 2900 | | 3 2867
tolerance 1 % up | external per pod | 3 | 8600 | 2800 | tol 0.1/0.01 | 4 2867
replica overflow | external per pod | 1 | {MAX} | 1 | | 2147483647 {MAX}
usage overflow | external per pod | 1 | {MAX} | {MAX} | | 1 {MAX}
""".strip().splitlines()


@pytest.mark.parametrize("line", METRICS, ids=[" ".join(line.split(" | ")[1::-1]) for line in METRICS])
def test_metric_modes(line: str) -> None:
    _, mode, current, values, target, state, want = (part.strip() for part in line.split("|"))
    marks = states(state)
    count = max(int(current), len(marks.get("ph", "")))
    fixture = Fixture(pods(count, [1000] * count, state), values=[int(each) for each in numbers(values)])
    machine, size, amount, where = calculator(), int(current), int(target), "test-namespace"
    described = CrossVersionObjectReference(kind="Service", name="front", api_version="v1")
    allowed = tolerances(marks)
    calculation = {
        "pods": lambda: machine.get_metric_replicas(size, amount, "qps", allowed, where, SELECTOR),
        "object value": lambda: machine.get_object_metric_replicas(
            size, amount, "qps", allowed, where, described, SELECTOR
        ),
        "object per pod": lambda: machine.get_object_per_pod_metric_replicas(
            size, amount, "qps", allowed, where, described
        ),
        "external value": lambda: machine.get_external_metric_replicas(
            size, amount, "qps", allowed, where, None, SELECTOR
        ),
        "external per pod": lambda: machine.get_external_per_pod_metric_replicas(
            size, amount, "qps", allowed, where, None
        ),
    }[mode]
    result = fixture.run(calculation())
    assert result.error is None
    assert [result.replicas, result.usage] == [int(each) for each in want.split()]


@pytest.mark.parametrize(
    ("values", "requests", "want"),
    [
        pytest.param([50, 76], 2, (1.26, 63, 63), id="utilisation"),
        pytest.param([50, 76, 100], 2, (1.26, 63, 63), id="a pod that is not listed"),
        pytest.param([50, 76], 3, (1.26, 63, 63), id="a request without metric"),
        pytest.param([50, 76], 0, "no metrics returned matched known pods", id="no requests"),
    ],
)
def test_utilization_ratio(values: list[int], requests: int, want: tuple[float, int, int] | str) -> None:
    names = [f"test-pod-{i}" for i in range(2)] + ["unknown"]
    listed = pods(requests, [50] * requests)
    if not requests:  # pods of whom none has a metric, and so none of the requests counts
        listed = pods(5, [50] * 5)[3:]
    fixture = Fixture(listed, names=names[: len(values)], levels=[[value, 0] for value in values])
    result = fixture.run(calculator().get_resource_replicas(2, 50, "cpu", Tolerances(), "test-namespace", SELECTOR))
    assert (result.error or (result.ratio, result.utilization, result.usage)) == want


@pytest.mark.parametrize(("values", "target", "want"), [([5000, 10000], 10000, (0.75, 7500))])
def test_usage_ratio(values: list[int], target: int, want: tuple[float, int]) -> None:
    fixture = Fixture(pods(2, [100] * 2), values=values)
    result = fixture.run(calculator().get_metric_replicas(2, target, "qps", Tolerances(), "test-namespace", SELECTOR))
    assert (result.ratio, result.usage) == want


def ago(minutes: float, seconds: float = 0) -> str:
    text = to_text(from_text(NOW) - round((minutes * 60 + seconds) * SECOND))
    assert text is not None
    return text


# status of the pod, its metadata, (minutes since, window in s) of its metric, resource, group
GROUPED: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[float, int] | None, str, str]] = {
    "memory, no condition": ({}, {}, (0.0, 60), "memory", "ready"),
    "no Ready condition": ({"startTime": NOW}, {}, (0.0, 60), "cpu", "unready"),
    "fresh metric in init period": (
        {"startTime": ago(1), "ready": ("True", ago(0, 30))}, {}, (0.0, 30), "cpu", "ready"),
    "stale metric in init period": (
        {"startTime": ago(1), "ready": ("True", ago(0, 30))}, {}, (0.0, 60), "cpu", "unready"),
    "longest window in init period": (
        {"startTime": ago(1), "ready": ("True", ago(0, 30))}, {}, (0.0, 2**63 // SECOND), "cpu", "unready"),
    "unready since start": ({"startTime": ago(10), "ready": ("False", ago(9, 54))}, {}, (0.0, 60), "cpu", "unready"),
    "after init, old metric": ({"startTime": ago(3), "ready": ("True", ago(3))}, {}, (2.0, 60), "cpu", "ready"),
    "after init, was ready once": ({"startTime": ago(10), "ready": ("False", ago(9))}, {}, (0.0, 60), "cpu", "ready"),
    "boundary: exactly 10 s": ({"startTime": ago(10), "ready": ("False", ago(9, 50))}, {}, (0.0, 60), "cpu", "ready"),
    "missing": ({"startTime": ago(3)}, {}, None, "cpu", "missing"),
    "pending": ({"phase": "Pending"}, {}, None, "cpu", "unready"),
    "deleting": ({}, {"deletionTimestamp": NOW}, (0.0, 60), "cpu", "ignored"),
    "deleting, pending": ({"phase": "Pending"}, {"deletionTimestamp": NOW}, (0.0, 60), "cpu", "ignored"),
    "failed": ({"phase": "Failed"}, {}, (0.0, 60), "cpu", "ignored"),
}  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        [],
        *([name] for name in GROUPED),
        ["no Ready condition", "after init, old metric", "missing"],
    ],
    ids=lambda names: "; ".join(names) or "no pods",
)
def test_group_pods(names: list[str]) -> None:
    pods_, samples, resource = [], {}, "cpu"
    for name in names:
        status, metadata, sample, resource, _ = GROUPED[name]
        document = {"phase": "Succeeded", **{key: value for key, value in status.items() if key != "ready"}}
        if "ready" in status:
            value, since = status["ready"]
            document["conditions"] = [{"type": "Ready", "status": value, "lastTransitionTime": since}]
        pods_.append(from_dict({"metadata": {"name": name, **metadata}, "status": document}, Pod))
        if sample is not None:
            samples[name] = Sample(1, from_text(ago(sample[0])), sample[1] * 10**9)
    result = group_pods(
        PodColumns.from_pods(pods_),
        SampleColumns.from_samples(names, samples),
        resource,
        options=OPTIONS,
        now=from_text(NOW),
    )
    assert [POD_GROUPS[code] for code in result] == [GROUPED[name][4] for name in names]


def container(name: str, milli: int | None, **more: str) -> dict[str, Any]:
    return {"name": name, "resources": {} if milli is None else {"requests": {"cpu": f"{milli}m"}}, **more}


@pytest.mark.parametrize(
    ("containers", "pod_level", "gate", "named", "want"),
    [
        ([100, 50], None, False, "", 150),
        ([100, 50], None, True, "", 150),
        ([100, 50], 800, True, "", 800),
        ([None, 50], None, False, "", "missing request for cpu in container container1 of Pod test-pod"),
        ([None, 50], 800, True, "", 800),
        ([100, 50], None, False, "container1", 100),
        ([100, 50], 800, True, "container1", 100),
        (
            [100],
            None,
            False,
            "non-existent-container",
            "container non-existent-container not found in Pod test-pod",
        ),
    ],
)
def test_calculate_requests(
    containers: list[int | None], pod_level: int | None, gate: bool, named: str, want: int | str
) -> None:
    spec: dict[str, Any] = {"containers": [container(f"container{n}", each) for n, each in enumerate(containers, 1)]}
    if pod_level is not None:
        spec["resources"] = {"requests": {"cpu": f"{pod_level}m"}}
    pod = from_dict({"metadata": {"name": "test-pod"}, "spec": spec}, Pod)
    requests, bad, text = get_pod_requests(
        [pod], named, "cpu", options=HPAOptions(feature_gates={"PodLevelResources": gate})
    )
    assert (text if bad == 0 else requests[0]) == want


@pytest.mark.parametrize(
    ("init_containers", "want"),
    [
        pytest.param(None, [], id="no pods"),
        pytest.param([], [100], id="no init containers"),
        pytest.param([container("init", 20)], [100], id="an init container"),
        pytest.param(
            [container("init", 20), container("side", 50, restartPolicy="Always")], [150], id="and a restartable one"
        ),
    ],
)
def test_sidecars_count_and_init_containers_do_not(
    init_containers: list[dict[str, Any]] | None, want: list[int]
) -> None:
    spec = {"containers": [container("main", 100)], "initContainers": init_containers}
    listed = [] if init_containers is None else [from_dict({"spec": spec}, Pod)]
    requests, bad, _ = get_pod_requests(
        listed, "", "cpu", options=HPAOptions(feature_gates={"PodLevelResources": False})
    )
    assert (requests.tolist(), bad) == (want, -1)


@pytest.mark.parametrize(
    ("containers", "init_containers", "named", "want"),
    [
        pytest.param([("b", None)], [("a", None)], "", "missing request for cpu in container b", id="containers first"),
        pytest.param([("b", 1)], [("a", None)], "", "missing request for cpu in container a", id="then sidecars"),
        pytest.param([("x", 1)], [("x", None)], "x", "", id="a container goes before a sidecar of its name"),
        pytest.param([("x", None)], [("x", 1)], "x", "missing request for cpu in container x", id="and stops at it"),
    ],
)
def test_container_requests_are_read_before_sidecar_requests(
    containers: list[tuple[str, int | None]], init_containers: list[tuple[str, int | None]], named: str, want: str
) -> None:
    spec = {
        "containers": [container(name, request) for name, request in containers],
        "initContainers": [container(name, request, restartPolicy="Always") for name, request in init_containers],
    }
    pod = from_dict({"metadata": {"name": "test-pod"}, "spec": spec}, Pod)
    _, bad, text = get_pod_requests([pod], named, "cpu", options=HPAOptions())
    assert (bad, text) == ((0, f"{want} of Pod test-pod") if want else (-1, ""))


def test_requests_add_up_as_int64_does() -> None:
    containers = [{"name": f"c{i}", "resources": {"requests": {"cpu": f"{MAX}m"}}} for i in range(3)]
    pod = from_dict({"spec": {"containers": containers}}, Pod)
    requests, bad, _ = get_pod_requests([pod], "", "cpu", options=HPAOptions())
    assert (requests.tolist(), bad) == ([MAX - 2], -1)


@pytest.mark.parametrize(
    ("since_start", "group"),
    [pytest.param(29, "unready", id="never ready"), pytest.param(30, "ready", id="unready since"),
     pytest.param(31, "ready", id="unready later")],
)  # fmt: skip
def test_the_usual_delay_of_readiness_is_thirty_seconds(since_start: int, group: str) -> None:
    """Of a pod an hour old that is not ready: since when tells whether it ever was."""
    now = from_text(NOW)
    start = now - 3600 * SECOND
    ready = {"type": "Ready", "status": "False", "lastTransitionTime": to_text(start + since_start * SECOND)}
    status = {"phase": "Running", "startTime": to_text(start), "conditions": [ready]}
    columns = PodColumns.from_pods([from_dict({"metadata": {"name": "p"}, "status": status}, Pod)])
    samples = SampleColumns.from_samples(["p"], {"p": Sample(1, now, 0)})
    (code,) = group_pods(columns, samples, "cpu", options=HPAOptions(), now=now)
    assert POD_GROUPS[code] == group


# Derived from the formulas: what a double makes of them, against what would be exact.
@pytest.mark.parametrize(("percent", "target", "ready", "want"), [(110, 50, 45, 100), (7, 50, 50, 8), (28, 50, 25, 15)])
def test_products_are_rounded_up_as_doubles(percent: int, target: int, ready: int, want: int) -> None:
    fixture = Fixture(pods(ready, [50] * ready), levels=[[percent, 0]] * ready)
    result = fixture.run(
        calculator().get_resource_replicas(ready, target, "cpu", Tolerances(), "test-namespace", SELECTOR)
    )
    assert result.replicas == want


@pytest.mark.parametrize(("value", "want"), [(1100, (1.1, 10)), (1101, (1.101, 12))])
def test_a_ratio_at_the_tolerance_holds(value: int, want: tuple[float, int]) -> None:
    fixture = Fixture(pods(10, [50] * 10), values=[value] * 10)
    result = fixture.run(calculator().get_metric_replicas(10, 1000, "qps", Tolerances(), "test-namespace", SELECTOR))
    assert (result.ratio, result.replicas) == want


@pytest.mark.parametrize(
    ("listed", "failure", "message"),
    [
        ([], None, "no pods returned by selector while calculating replica count"),
        (ApiError("broken"), None, "unable to get pods while calculating replica count: broken"),
        ([], ApiError("down"), "unable to get metric qps: unable to fetch metrics from custom metrics API: down"),
    ],
    ids=["no pods", "lister", "client"],
)
def test_lister_and_client_errors(listed: list[Pod] | ApiError, failure: ApiError | None, message: str) -> None:
    asking = calculator().get_metric_replicas(2, 10, "qps", Tolerances(), "test-namespace", SELECTOR)
    assert Fixture(listed, values=[1], failure=failure).run(asking).error == message
