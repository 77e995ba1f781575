"""The horizontal pod autoscaler: its replica calculator, whole reconciles, and what the API server does to an HPA."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from oracle.edges import amount
from oracle.families import Kind

__all__ = ["KINDS"]

Json = dict[str, Any]

_START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
_NAMESPACE = "shop"
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def _time(seconds: float) -> str:
    """Return a time so many whole seconds after the start."""
    return (_START + timedelta(seconds=int(seconds))).strftime(_FORMAT)


def _maybe(random: Random, chance: float) -> bool:
    return random.random() < chance


# -- pods and their metrics --------------------------------------------------------------------------------------------

_TOLERANCES = (0.0, 0.05, 0.1, 0.1, 0.1, 0.25, 0.5, 1.0, 0.3333)
_CPU = ("100m", "100m", "250m", "1", "0", "1500u", "333m")
_MEMORY = ("128Mi", "64Mi", "1Gi", "100M", "0")


def _requests(random: Random) -> Json:
    return {
        name: random.choice(values) for name, values in (("cpu", _CPU), ("memory", _MEMORY)) if not _maybe(random, 0.04)
    }


def _container(random: Random, name: str) -> Json:
    return {"name": name, "image": "img", "resources": {"requests": _requests(random)}}


def _pod(random: Random, name: str, now: int) -> Json:
    labels = {"app": "web"}
    if _maybe(random, 0.1):
        labels = random.choice(({"app": "other"}, {"app": "web", "tier": "front"}, {}))
    metadata: Json = {"name": name, "namespace": "other" if _maybe(random, 0.03) else _NAMESPACE, "labels": labels}
    if _maybe(random, 0.06):
        metadata["deletionTimestamp"] = _time(now + random.randint(-30, 30))
    spec: Json = {"containers": [_container(random, f"c{i}") for i in range(random.choice((1, 1, 1, 2, 3)))]}
    if _maybe(random, 0.08):
        init = _container(random, "init")
        if _maybe(random, 0.7):
            init["restartPolicy"] = "Always"
        spec["initContainers"] = [init]
    if _maybe(random, 0.06):
        spec["resources"] = {"requests": _requests(random)}
    status: Json = {"phase": random.choice(("Running",) * 12 + ("Pending", "Failed", "Succeeded", "Unknown"))}
    started = now - random.choice((0, 5, 10, 29, 30, 31, 60, 119, 120, 121, 299, 300, 301, 600, 3600))
    if not _maybe(random, 0.04):
        status["startTime"] = _time(started)
    if not _maybe(random, 0.05):
        ready = random.choice(("True",) * 6 + ("False", "False", "Unknown"))
        changed = started + random.choice((0, 1, 9, 10, 11, 29, 30, 31, 60, 120))
        status["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": _time(min(changed, now))}]
        if _maybe(random, 0.1):
            status["conditions"].insert(
                0, {"type": "Initialized", "status": "True", "lastTransitionTime": _time(started)}
            )
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _pods(random: Random, now: int) -> list[Json]:
    count = random.choice((0, 1, 1, 2, 2, 3, 3, 4, 5, 7))
    return [_pod(random, f"web-{i}", now) for i in range(count)]


def _milli(random: Random, target: int) -> int:
    """Return a value near to where a decision changes, or anywhere."""
    kind = random.random()
    if kind < 0.3:
        return int(target * random.choice((0.5, 0.89, 0.91, 1.0, 1.09, 1.11, 1.5, 2.0))) + random.randint(-1, 1)
    if kind < 0.6:  # where a tolerance ends
        return round(target * (1 + random.choice((-1, 1)) * random.choice(_TOLERANCES))) + random.choice((-1, 0, 0, 1))
    if kind < 0.95:
        return random.randint(0, max(1, target * 4))
    return random.choice((0, -1, -target, 2**53 + 1, 2**62, 2**63 - 1))


_SAMPLE_WINDOWS = (10, 15, 30, 60)


def _sample(random: Random, pod: Json, now: int) -> tuple[int, int]:
    """Return the second and the window of a sample of a pod, often where the sample begins to count."""
    window = random.choice(_SAMPLE_WINDOWS)
    changes = [each["lastTransitionTime"] for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"]
    if changes and _maybe(random, 0.4):
        changed = int((datetime.strptime(changes[0], _FORMAT).replace(tzinfo=UTC) - _START).total_seconds())
        return min(now, changed + window + random.choice((-1, 0, 0, 1))), window
    return now - random.randint(0, 90), window


def _target(random: Random) -> int:
    return random.choice((1, 10, 100, 1000, 1000, 3333, 50_000, 100_000, 2**40)) + random.randint(0, 3)


# -- replicas ----------------------------------------------------------------------------------------------------------

_FUNCTIONS = (
    "GetResourceReplicas",
    "GetResourceReplicas",
    "GetRawResourceReplicas",
    "GetMetricReplicas",
    "GetObjectMetricReplicas",
    "GetObjectPerPodMetricReplicas",
    "GetExternalMetricReplicas",
    "GetExternalPerPodMetricReplicas",
)
_SELECTORS = ("app=web", "app=web", "app=web", "app=web", "app in (web,other)", "tier!=front", "app=nobody", "")


def _metric_selector(random: Random) -> Json:
    return random.choice(
        (
            {},
            {"matchLabels": {"verb": "GET"}},
            {"matchExpressions": [{"key": "topic", "operator": "In", "values": ["b", "a"]}]},
            {"matchLabels": {"verb": "1"}, "matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "x", "operator": "Around"}]},
            {"matchLabels": {"verb": "not valid"}},
        )
    )


def draw_replicas(random: Random) -> Json:
    """Draw one call of one function of the replica calculator."""
    now = random.randint(0, 10**6)
    function = random.choice(_FUNCTIONS)
    pods = _pods(random, now)
    inputs: Json = {
        "function": function,
        "namespace": _NAMESPACE,
        "pod_selector": random.choice(_SELECTORS),
        "pods": pods,
        "tolerance_up": random.choice(_TOLERANCES),
        "tolerance_down": random.choice(_TOLERANCES),
        "cpu_initialization_period_s": random.choice((0, 60, 120, 300)),
        "delay_of_initial_readiness_status_s": random.choice((0, 10, 30)),
        "now": _time(now),
        "metrics_timestamp": _time(now - random.randint(0, 60)),
    }
    if _maybe(random, 0.03):
        inputs["pods_error"] = "the pod lister is out of order"
    if _maybe(random, 0.04):
        inputs["metrics_error"] = "the server is currently unable to handle the request"
    replicas = random.choice((len(pods), len(pods), 0, 1, random.randint(0, 12), 2**31 - 1))
    inputs["status_replicas" if "PerPod" in function else "current_replicas"] = replicas
    target = _target(random)
    if function in ("GetResourceReplicas", "GetRawResourceReplicas", "GetMetricReplicas"):
        _draw_pod_values(random, inputs, target, now)
    else:
        inputs["target_milli"] = target
        inputs["metric_name"] = "lag"
        base = target * max(1, min(replicas, 20)) if "PerPod" in function else target
        if "Object" in function:
            inputs["object"] = {"apiVersion": "v1", "kind": "Service", "name": "front"}
            inputs["object_value_milli"] = _milli(random, base)
        else:
            inputs["external_values_milli"] = [_milli(random, base) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        if _maybe(random, 0.3):
            inputs["metric_selector"] = _metric_selector(random)
    return inputs


def _draw_pod_values(random: Random, inputs: Json, target: int, now: int) -> None:
    values: list[Json] = []
    base = 100 if inputs["function"] == "GetResourceReplicas" else target
    if inputs["function"] != "GetMetricReplicas":
        inputs["resource"] = random.choice(
            ("cpu", "cpu", "memory", "example.com/gpu" if _maybe(random, 0.1) else "cpu")
        )
        if _maybe(random, 0.25):
            inputs["container"] = random.choice(("c0", "c0", "c1", "init", "none"))
    else:
        inputs["metric_name"] = "qps"
    if inputs["function"] == "GetResourceReplicas":
        inputs["target_utilization"] = random.choice((1, 20, 50, 80, 100, 120, 150))
        base = max(1, inputs["target_utilization"])
    else:
        inputs["target_milli"] = target
    for pod in inputs["pods"]:
        if _maybe(random, 0.12):
            continue
        second, window = _sample(random, pod, now)
        values.append(
            {
                "pod": pod["metadata"]["name"],
                "value_milli": _milli(random, base),
                "timestamp": _time(second),
                "window_s": window,
            }
        )
    if _maybe(random, 0.05):
        values.append({"pod": "stranger", "value_milli": base, "timestamp": _time(now), "window_s": 30})
    if values:
        inputs["metrics"] = values


# -- reconciles --------------------------------------------------------------------------------------------------------


def _metric_spec(random: Random, number: int) -> Json:
    kind = random.choice(("Resource", "Resource", "ContainerResource", "Pods", "Object", "External"))
    resource = random.choice(("cpu", "cpu", "memory"))
    value = random.choice(("50m", "100m", "1", "30", "2500u", "100Mi"))
    if kind in ("Resource", "ContainerResource"):
        target: Json = {"type": "AverageValue", "averageValue": value}
        if _maybe(random, 0.6):
            target = {"type": "Utilization", "averageUtilization": random.choice((20, 50, 80, 100, 120))}
        body: Json = {"name": resource, "target": target}
        if kind == "ContainerResource":
            body["container"] = random.choice(("c0", "c0", "c1", "none"))
            return {"type": kind, "containerResource": body}
        return {"type": kind, "resource": body}
    metric: Json = {"name": f"metric_{number}"}
    if _maybe(random, 0.25):
        metric["selector"] = _metric_selector(random)
    if kind == "Pods":
        return {"type": kind, "pods": {"metric": metric, "target": {"type": "AverageValue", "averageValue": value}}}
    target = {"type": "Value", "value": value}
    if _maybe(random, 0.5):
        target = {"type": "AverageValue", "averageValue": value}
    if kind == "External":
        return {"type": kind, "external": {"metric": metric, "target": target}}
    described = random.choice(
        (
            {"apiVersion": "v1", "kind": "Service", "name": "front"},
            {"apiVersion": "v1", "kind": "Namespace", "name": "shop"},
            {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "front"},
        )
    )
    return {"type": kind, "object": {"describedObject": described, "metric": metric, "target": target}}


def _rules(random: Random) -> Json:
    rules: Json = {}
    if _maybe(random, 0.7):
        rules["stabilizationWindowSeconds"] = random.choice((0, 0, 15, 60, 300))
    if _maybe(random, 0.5):
        rules["selectPolicy"] = random.choice(("Max", "Min", "Disabled"))
    if _maybe(random, 0.8):
        rules["policies"] = [
            {
                "type": random.choice(("Pods", "Percent")),
                "value": random.choice((1, 2, 4, 10, 25, 50, 100)),
                "periodSeconds": random.choice((1, 15, 30, 60, 300)),
            }
            for _ in range(random.choice((1, 1, 2, 3)))
        ]
    if _maybe(random, 0.25):
        rules["tolerance"] = random.choice(("0", "50m", "0.1", "0.25", "1"))
    return rules


def _behavior(random: Random) -> Json:
    behavior = {name: _rules(random) for name in ("scaleUp", "scaleDown") if _maybe(random, 0.7)}
    return behavior or {"scaleDown": {}}


def _spec(random: Random) -> Json:
    minimum = random.choice((None, 0, 1, 1, 2, 3))
    spec: Json = {
        "scaleTargetRef": random.choice(
            (
                *({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},) * 8,
                {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"},
                {"apiVersion": "example.io/v1", "kind": "Widget", "name": "web"},
                {"apiVersion": "example.io/v1", "kind": "Gadget", "name": "web"},
                {"apiVersion": "a/b/c", "kind": "Deployment", "name": "web"},
            )
        ),
        "maxReplicas": random.choice((1, 3, 5, 10, 10, 30)),
        "metrics": [_metric_spec(random, i) for i in range(random.choice((1, 1, 1, 2, 2, 3)))],
    }
    if minimum is not None:
        spec["minReplicas"] = minimum
    if _maybe(random, 0.5):
        spec["behavior"] = _behavior(random)
    if _maybe(random, 0.03):
        spec["metrics"].append({"type": "Other"})
    return spec


def _value(random: Random, base: int) -> str:
    return f"{_milli(random, base)}m"


def _thousandths(text: str) -> int:
    """Return an amount of the alphabets in thousandths, rounded up."""
    return math.ceil(amount(text) * 1000)


def _near_utilization(random: Random, requests: Json, spec: Json, resource: str) -> int:
    """Return the usage in thousandths at which a target utilization of the resource is met."""
    targets = [
        metric[key]["target"].get("averageUtilization", 100)
        for metric in spec["metrics"]
        for key in ("resource", "containerResource")
        if metric.get(key, {}).get("name") == resource
    ]
    return _thousandths(requests.get(resource, "100m")) * random.choice(targets or [100]) // 100


def _pod_metrics(random: Random, spec: Json, pods: list[Json], now: int) -> list[Json]:
    items = []
    for pod in pods:
        if _maybe(random, 0.1):
            continue
        containers = []
        for container in pod["spec"]["containers"]:
            if _maybe(random, 0.03):
                continue
            requests = container["resources"]["requests"]
            usage = {
                "cpu": _value(random, _near_utilization(random, requests, spec, "cpu")),
                "memory": str(abs(_milli(random, _near_utilization(random, requests, spec, "memory") // 1000))),
            }
            if _maybe(random, 0.06):
                del usage[random.choice(("cpu", "memory"))]
            containers.append({"name": container["name"], "usage": usage})
        second, window = _sample(random, pod, now)
        items.append(
            {
                "metadata": {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]},
                "timestamp": _time(second),
                "window": f"{window}s" if window < 60 else "1m0s",
                "containers": containers,
            }
        )
    return items


def _step_metrics(random: Random, spec: Json, pods: list[Json], now: int) -> Json:
    metrics: Json = {"resource": {"metadata": {}, "items": _pod_metrics(random, spec, pods, now)}}
    errors: Json = {}
    if _maybe(random, 0.05):
        errors["resource"] = "the server is currently unable to handle the request (get pods.metrics.k8s.io)"
    for metric in spec["metrics"]:
        kind = metric["type"]
        if kind not in ("Pods", "Object", "External"):
            continue
        name, target = metric[kind.lower()]["metric"]["name"], metric[kind.lower()]["target"]
        base = _thousandths(target.get("value") or target["averageValue"])
        if kind != "Pods" and "averageValue" in target:  # an average over the pods
            base *= random.choice((1, max(1, len(pods))))
        if _maybe(random, 0.08):
            errors[f"{kind.lower()}/{name}"] = f"no such metric {name}"
        elif kind == "Pods":
            items = [
                {
                    "describedObject": {"kind": "Pod", "name": pod["metadata"]["name"], "namespace": _NAMESPACE},
                    "metric": {"name": name},
                    "timestamp": _time(now - random.randint(0, 60)),
                    "value": _value(random, base),
                    **({"windowSeconds": 30} if _maybe(random, 0.5) else {}),
                }
                for pod in pods
                if not _maybe(random, 0.1)
            ]
            metrics.setdefault("pods", {})[name] = {"metadata": {}, "items": items}
        elif kind == "Object" and not _maybe(random, 0.05):
            metrics.setdefault("object", {})[name] = {
                "describedObject": {"kind": "Service", "name": "front", "namespace": _NAMESPACE},
                "metric": {"name": name},
                "timestamp": _time(now),
                "value": _value(random, base),
            }
        elif kind == "External":
            items = [
                {"metricName": name, "metricLabels": {}, "timestamp": _time(now), "value": _value(random, base)}
                for _ in range(random.choice((0, 1, 1, 2)))
            ]
            metrics.setdefault("external", {})[name] = {"metadata": {}, "items": items}
    if errors:
        metrics["errors"] = errors
    return metrics


def _errors(random: Random) -> Json:
    conflict = {"reason": "Conflict", "message": "the object has been modified; please apply your changes"}
    failure = {"reason": "InternalError", "message": "etcd is tired"}
    errors: Json = {}
    if _maybe(random, 0.3):
        errors["scale_get"] = random.choice((failure, {"reason": "NotFound", "message": 'deployments "web" not found'}))
    if _maybe(random, 0.4):
        kinds = random.choice(((conflict,), (conflict, conflict, failure, None)))
        errors["scale_update"] = [random.choice(kinds) for _ in range(random.randint(1, 6))]
    if _maybe(random, 0.2):
        errors["scale_reget"] = failure
    if _maybe(random, 0.3):
        errors["status_update"] = random.choice((conflict, failure))
    if _maybe(random, 0.15):
        errors["pods"] = "the pod lister is out of order"
    return errors


_WINDOWS = (0, 1, 15, 30, 60, 300)
"""Every period and window that a behaviour can have, in seconds."""


def _off_the_edges(now: int, inputs: Json) -> int:
    """Return a time at which no window ends on an earlier step or event.

    A write that is retried takes upstream some milliseconds, which decide at the very edge of a window.
    """
    state = inputs.get("state") or {}
    earlier = {each["time"] for events in state.values() for each in events} | {step["now"] for step in inputs["steps"]}
    while any(_time(now - window) in earlier for window in _WINDOWS):
        now += 1
    return now


def _others(random: Random) -> list[Json]:
    """Draw other HPAs. One at most selects pods: of more than two that do, upstream names any two."""
    others = []
    for number, name in enumerate(random.sample(("alpha", "beta", "zeta"), random.randint(0, 3))):
        selectors = ("app=web", "app=other", "app in (web,other)", "tier=front", None)
        others.append(
            {
                "namespace": "other" if _maybe(random, 0.1) else _NAMESPACE,
                "name": name,
                "selector": random.choice(selectors) if number == 0 else None,
            }
        )
    return others


def _earlier(random: Random, now: int) -> int:
    """Return a second of the past, often where a window of a behavior ends."""
    if _maybe(random, 0.5):
        return min(now, now - random.choice(_WINDOWS) + random.choice((-1, 0, 0, 1)))
    return now - random.randint(0, 400)


def _history(random: Random, now: int) -> Json:
    def events() -> list[Json]:
        return [
            {
                "change": random.randint(0, 5),
                "time": _time(_earlier(random, now)),
                "outdated": _maybe(random, 0.2),
            }
            for _ in range(random.randint(0, 3))
        ]

    return {
        "recommendations": [
            {"replicas": random.randint(0, 12), "time": _time(_earlier(random, now))}
            for _ in range(random.randint(0, 4))
        ],
        "scale_up_events": events(),
        "scale_down_events": events(),
    }


def draw_reconcile(random: Random) -> Json:
    """Draw one HPA and some reconciles of it."""
    now = random.randint(0, 10**6)
    spec = _spec(random)
    inputs: Json = {
        "hpa": {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {
                "name": "web",
                "namespace": _NAMESPACE,
                "uid": "uid-1",
                "resourceVersion": "10",
                "generation": random.randint(1, 5),
            },
            "spec": spec,
        },
        "options": {
            "tolerance": random.choice((0.0, 0.1, 0.1, 0.5)),
            "downscale_stabilization_s": random.choice((0, 60, 300, 300)),
            "cpu_initialization_period_s": random.choice((0, 60, 300)),
            "initial_readiness_delay_s": random.choice((0, 30)),
        },
        "steps": [],
    }
    if _maybe(random, 0.1):
        inputs["gates"] = {
            name: _maybe(random, 0.5) for name in ("HPAScaleToZero", "HPAGeneration", "HPAOptimizedSelectorStore")
        }
    if _maybe(random, 0.4):
        inputs["state"] = _history(random, now)
    if _maybe(random, 0.15):
        inputs["hpa"]["status"] = {
            "currentReplicas": 1,
            "desiredReplicas": 0,
            "conditions": [
                {
                    "type": "ScaledToZero",
                    "status": random.choice(("True", "True", "False")),
                    "reason": "ScaledToZero",
                    "message": "the HPA controller scaled the workload to zero",
                    "lastTransitionTime": _time(now - 500),
                }
            ],
        }
    if _maybe(random, 0.12):
        inputs["other_hpas"] = _others(random)
    current = random.choice((0, 1, 1, 2, 3, 3, 5, 8, 12))
    for number in range(random.choice((1, 1, 2, 2, 3))):
        errors = _errors(random) if _maybe(random, 0.12) else {}
        if "scale_update" in errors:
            now = _off_the_edges(now, inputs)
        step: Json = {"now": _time(now)}
        if number and _maybe(random, 0.1):
            spec = _spec(random)
            step["hpa_spec"] = spec
        if number and _maybe(random, 0.04):
            step["hpa_deleted"] = True
        if number and _maybe(random, 0.04):
            step["informer_resource_version"] = "10"
        if number and "other_hpas" in inputs and _maybe(random, 0.3):
            step["other_hpas"] = _others(random)
        pods = _pods(random, now)
        step["scale"] = {
            "spec_replicas": current,
            "status_replicas": random.choice((current, current, len(pods))),
            "selector": random.choice(("app=web",) * 12 + ("", "app==", "app in (web,other)")),
        }
        step["pods"] = pods
        step["metrics"] = _step_metrics(random, spec, pods, now)
        if errors:
            step["errors"] = errors
        inputs["steps"].append(step)
        now += random.choice((1, 15, 15, 30, 59, 60, 61, 299, 300, 301))
        current = random.choice((current, current, current + 1, max(0, current - 1), random.randint(0, 10)))
    return inputs


# -- validation --------------------------------------------------------------------------------------------------------

_ODD_VALUES = (None, "", 0, -1, 1, 5, 2**31, "x", [], {}, True, "-1", "0", 1.5)
_ODD_TEXTS = ("", "a b", "/", "..", "%", "-x", "ä", "a/b", "x" * 70)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a JSON value."""
    places: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        places.append((value, key))
        if key != "selector":  # whether its empty fields are printed depends on the field
            places.extend(_places(item))
    return places


def _damage(random: Random, document: Json, *, old: bool) -> None:
    """Change some place of an object so that it may be refused.

    An object without a version or a kind is refused by the decoder, in a text that repeats the whole object. In an
    update, the name and the namespace stand in the path of the request, too.
    """
    parts = {"spec": document["spec"]} if old else {"spec": document["spec"], "metadata": document["metadata"]}
    where, key = random.choice(_places(parts))
    kind = random.random()
    if where is parts:
        document[key] = {}
    elif kind < 0.3:
        del where[key]
    elif kind < 0.45 and isinstance(where[key], str):
        where[key] = random.choice(_ODD_TEXTS)
    elif kind < 0.6 and isinstance(where[key], int):
        where[key] = random.choice((0, -1, -5, 101, 3601, 1801, 1800, 2**31 - 1))
    elif kind < 0.75 and isinstance(where, list):
        where.append(where[key])
    elif isinstance(where[key], dict | list):
        where[key] = type(where[key])()
    else:
        typed = [value for value in _ODD_VALUES if value is None or type(value) is type(where[key])]
        where[key] = random.choice(typed)


def _valid(random: Random) -> Json:
    metadata: Json = {"name": "web", "namespace": _NAMESPACE}
    if _maybe(random, 0.1):
        metadata["annotations"] = {"example.com/a": "1"}
    if _maybe(random, 0.25):
        spec: Json = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": random.choice((1, 5, 10)),
        }
        if _maybe(random, 0.6):
            spec["minReplicas"] = random.choice((0, 1, 5))
        if _maybe(random, 0.6):
            spec["targetCPUUtilizationPercentage"] = random.choice((1, 80, 150))
        return {
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata,
            "spec": spec,
        }
    spec = _spec(random)
    if _maybe(random, 0.2):
        del spec["metrics"]
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}


def draw_validate(random: Random) -> Json:
    """Draw an object to create, or to update, often with something wrong."""
    document = _valid(random)
    inputs: Json = {"object": document}
    if _maybe(random, 0.25):
        document["metadata"].update(resourceVersion="5", uid="u-1")
        old = _valid(random)
        old["metadata"].update(resourceVersion="5", uid="u-1")
        inputs["old_object"] = old
        if _maybe(random, 0.2):
            inputs["subresource"] = "status"
            document["status"] = {
                "currentReplicas": random.choice((0, 1, -1)),
                "desiredReplicas": random.choice((0, 2, -3)),
            }
    if _maybe(random, 0.3):
        inputs["gates"] = {"HPAScaleToZero": False}
    for _ in range(random.choice((0, 0, 1, 1, 1, 2))):
        _damage(random, document, old="old_object" in inputs)
    return inputs


def _without_path(answer: Json) -> Json:
    """Return an answer of the kind ``replicas`` without what only the recording program told.

    That is the branches that were taken, and which members depend on the processor.
    """
    return {key: value for key, value in answer.items() if key not in ("path", "unspecified")}


KINDS = [
    Kind("replicas", "hpa", draw_replicas, weight=3, comparable=_without_path),
    Kind("hpa-reconcile", "hpa", draw_reconcile, weight=5),
    Kind("hpa-validate", "hpa", draw_validate, weight=2),
]
