"""The replica calculator, slow and obvious: one metric of one target, pods and samples as dicts."""

from __future__ import annotations

from dataclasses import dataclass, field

from reference.go import ceil, divide, i32, i64, quotient, to_int32, to_int64

MAX64 = 2**63 - 1
MAX32 = 2**31 - 1


@dataclass
class Pod:
    name: str
    phase: str = "Running"  # Pending, Running, Failed, anything else
    deleting: bool = False
    ready: str | None = "True"  # True, False, Unknown, None: no condition
    start: int | None = 0
    transition: int = 0
    request: int | None = 0  # None: no request


@dataclass
class Sample:
    value: int
    time: int = 0
    window: int = 0


@dataclass
class Query:
    mode: str
    current: int
    target: int
    down: float = 0.1
    up: float = 0.1
    cpu: bool = False
    pods: list[Pod] = field(default_factory=list)
    samples: dict[str, Sample] = field(default_factory=dict)
    values: list[int] = field(default_factory=list)
    now: int = 0
    cpu_initialization: int = 0
    initial_readiness: int = 0
    no_metrics: bool = False
    pods_unlisted: bool = False
    release: str = ""
    """Today's calculator, or that of "1.20", "1.19" or "1.18"."""


@dataclass
class Answer:
    replicas: int = 0
    utilization: int = 0
    usage: int = 0
    error: str = ""


def within(query: Query, ratio: float) -> bool:
    if query.release:
        return abs(1.0 - ratio) <= query.up
    return 1.0 - query.down <= ratio <= 1.0 + query.up


def group(query: Query, pod: Pod) -> str:
    sample = query.samples.get(pod.name)
    if pod.deleting or pod.phase == "Failed":
        return "ignored"
    if pod.phase == "Pending":
        return "unready"
    if sample is None:
        return "missing"
    if not query.cpu:
        return "ready"
    if pod.ready is None or pod.start is None:
        return "unready"
    if pod.start + query.cpu_initialization > query.now:
        unready = pod.ready == "False" or sample.time < pod.transition + sample.window
    else:
        unready = pod.ready == "False" and pod.start + query.initial_readiness > pod.transition
    return "unready" if unready else "ready"


def ratio_of(query: Query, values: dict[str, int], requests: dict[str, int]) -> tuple[float, int, int] | None:
    """(ratio, percent, average) of the values; None without requests to compare with."""
    if query.mode == "utilization":
        known = [name for name in values if name in requests]
        total = i64(sum(values[name] for name in known))
        requested = i64(sum(requests[name] for name in known))
        if requested == 0:
            return None
        percent = i32(quotient(i64(total * 100), requested))
        return divide(float(percent), float(query.target)), percent, quotient(total, len(known))
    average = quotient(i64(sum(values.values())), len(values))
    return divide(float(average), float(query.target)), 0, average


def of_pods(query: Query) -> Answer:
    if query.pods_unlisted:
        return Answer(error="pods_unlisted")
    if not query.pods:
        return Answer(error="no_pods")
    groups = {pod.name: group(query, pod) for pod in query.pods}
    removed = ("unready",) if query.release in ("1.19", "1.18") else ("ignored", "unready")
    values = {name: sample.value for name, sample in query.samples.items() if groups.get(name) not in removed}
    if not values:
        return Answer(error="no_samples_left")
    requests: dict[str, int] = {}
    if query.mode == "utilization":
        for pod in query.pods:
            if pod.request is None:
                return Answer(error="bad_request")
            requests[pod.name] = pod.request
    first = ratio_of(query, values, requests)
    if first is None:
        return Answer(error="nothing_known")
    ratio, percent, average = first
    answer = Answer(query.current, percent, average)
    missing = [name for name, which in groups.items() if which == "missing"]
    unready = [name for name, which in groups.items() if which == "unready"]
    rebalance = bool(unready) and ratio > 1.0
    if not rebalance and not missing:
        if not within(query, ratio):
            ready = sum(which == "ready" for which in groups.values())
            answer.replicas = to_int32(ceil(ratio * float(ready)))
        return answer
    for name in missing:
        if ratio < 1.0 and query.mode == "utilization":
            values[name] = quotient(i64(requests[name] * (100 if query.release else max(100, query.target))), 100)
        elif ratio < 1.0:
            values[name] = query.target
        elif ratio > 1.0 or (query.release and query.mode == "usage"):
            values[name] = 0
    if rebalance:
        for name in unready:
            values[name] = 0
    again = ratio_of(query, values, requests)
    if again is None:
        return Answer(0, percent, average, "nothing_known")
    second = again[0]
    if within(query, second) or (ratio < 1.0 < second) or (second < 1.0 < ratio):
        return answer
    count = to_int32(ceil(second * float(len(values))))
    turns = (second < 1.0 and count > query.current) or (second > 1.0 and count < query.current)
    checked = query.release == "" or (query.release in ("1.20", "1.19") and query.mode == "utilization")
    if turns and checked:
        return answer
    answer.replicas = count
    return answer


def of_value(query: Query, usage: int) -> Answer:
    ratio = divide(float(usage), float(query.target))
    if query.current == 0:
        return Answer(to_int32(ceil(ratio)), usage=usage)
    if within(query, ratio):
        return Answer(query.current, usage=usage)
    if query.pods_unlisted:
        return Answer(usage=usage, error="pods_unlisted")
    if not query.pods:
        return Answer(usage=usage, error="no_pods")
    ready = sum(pod.phase == "Running" and pod.ready == "True" for pod in query.pods)
    count = ratio * float(ready)
    return Answer(MAX32 if count > MAX32 else to_int32(ceil(count)), usage=usage)


def per_pod(query: Query, usage: int) -> Answer:
    external = query.mode == "external_per_pod"
    if within(query, divide(float(usage), float(query.target) * float(query.current))):
        replicas = query.current
    else:
        count = ceil(divide(float(usage), float(query.target)))
        replicas = MAX32 if external and count > MAX32 else to_int32(count)
    if external and float(usage) >= 2.0**63:
        return Answer(replicas, usage=MAX64)
    return Answer(replicas, usage=to_int64(ceil(divide(float(usage), float(query.current)))))


def calculate(query: Query) -> Answer:
    if query.no_metrics:
        return Answer(error="no_metrics")
    if query.mode in ("utilization", "usage"):
        return of_pods(query)
    usage = 0
    for value in query.values:
        if query.mode == "external_per_pod":
            usage = i64(usage + value)
            if usage < 0:
                usage = MAX64
                break
        elif query.mode == "external_value":
            if value > 0 and usage > MAX64 - value:
                usage = MAX64
                break
            usage = i64(usage + value)
        else:
            usage = value
    return per_pod(query, usage) if query.mode.endswith("per_pod") else of_value(query, usage)
