"""The vertical pod autoscaler: histograms, recommender, updater, admission, and the arithmetic of limit ranges."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from oracle.families import Kind

__all__ = ["KINDS"]

Json = dict[str, Any]

_START = datetime(2026, 1, 5, tzinfo=UTC)
_NAMESPACE = "ns1"


def _time(seconds: float) -> str:
    return (_START + timedelta(seconds=int(seconds))).strftime("%Y-%m-%dT%H:%M:%SZ")


def _maybe(random: Random, chance: float) -> bool:
    return random.random() < chance


# -- histograms --------------------------------------------------------------------------------------------------------


def _options(random: Random) -> Json:
    kind = random.random()
    if kind < 0.6:
        return {"type": random.choice(("cpu", "memory"))}
    if kind < 0.8:
        return {
            "type": "linear",
            "max_value": random.choice((10.0, 100.0, 7.3, 0.0 if _maybe(random, 0.05) else 1.0)),
            "bucket_size": random.choice((1.0, 0.1, 3.0)),
            "epsilon": random.choice((0.001, 0.0001, 0.5)),
        }
    return {
        "type": "exponential",
        "max_value": random.choice((10.0, 1000.0, 1e6)),
        "first_bucket_size": random.choice((0.01, 1.0, 5.0)),
        "ratio": random.choice((1.05, 1.5, 2.0, 1.0 if _maybe(random, 0.05) else 1.1)),
        "epsilon": random.choice((0.001, 0.0001)),
    }


def _usage(random: Random, memory: bool) -> float:
    scale = 1e9 if memory else 1.0
    kind = random.random()
    if kind < 0.7:
        return round(random.expovariate(1.0) * scale, random.choice((0, 3, 6)))
    if kind < 0.95:
        return random.choice((0.0, 0.01, 0.0205, 0.1, 1.0, 7.5, 100.0, 999.0)) * scale
    return random.choice((-1.0, 1e-300, 1e300, 5e-324))


_OPERATIONS = (
    ("add_sample",) * 8
    + ("percentile",) * 4
    + ("subtract_sample", "subtract_sample", "merge", "state", "is_empty", "equals")
)


def draw_histogram(random: Random) -> Json:
    """Draw operations on one to three histograms that share their options."""
    options = _options(random)
    memory = options["type"] == "memory"
    decaying = _maybe(random, 0.8)
    histograms: Json = {name: {} for name in random.choice(("a", "ab", "abc"))}
    for each in histograms.values():
        if decaying:
            each["half_life_s"] = 3600 if _maybe(random, 0.95) else 7200
    now = 0
    operations: list[Json] = []
    for _ in range(random.randint(1, 25)):
        name = random.choice((*_OPERATIONS, "save_to_checkpoint", "transfer_checkpoint", "find_bucket"))
        operation: Json = {"op": name, "h": random.choice(list(histograms))}
        if name in ("add_sample", "subtract_sample"):
            now += random.choice((0, 1, 60, 600, 3600, 86400))
            when = now - random.choice((0, 0, 0, 3600, 86400 * 3))
            operation.update(
                time=_time(when), value=_usage(random, memory), weight=random.choice((0.1, 1.0, 0.5, 0.0, 2.345))
            )
        elif name == "percentile":
            operation["p"] = random.choice((0.0, 0.5, 0.9, 0.95, 1.0, round(random.random(), 3)))
        elif name in ("merge", "equals", "transfer_checkpoint"):
            operation["other"] = random.choice(list(histograms))
        elif name == "find_bucket":
            operation = {"op": name, "value": _usage(random, memory)}
        operations.append(operation)
    operations += [{"op": "state", "h": name} for name in histograms]
    return {"options": options, "histograms": histograms, "ops": operations}


def draw_bucket_table(random: Random) -> Json:
    """Draw bucket options, and values to find."""
    options = _options(random)
    if options.get("max_value") == 0.0 or options.get("ratio") == 1.0:
        options = {"type": "cpu"}
    return {"options": options, "find": [_usage(random, options["type"] == "memory") for _ in range(10)]}


# -- objects -----------------------------------------------------------------------------------------------------------


def _cpu(random: Random) -> str:
    return random.choice(("25m", "100m", "250m", "1", "1500m", "2", "10", f"{random.randint(1, 4000)}m"))


def _memory(random: Random) -> str:
    return random.choice(("64Mi", "100Mi", "250Mi", "1Gi", "2G", "100M", str(random.getrandbits(31) + 1)))


def _resources(random: Random, *, full: bool = False) -> Json:
    resources = {"cpu": _cpu(random), "memory": _memory(random)}
    if not full and _maybe(random, 0.15):
        del resources[random.choice(("cpu", "memory"))]
    return resources


def _recommendation(random: Random, names: list[str], *, full: bool) -> Json:
    items = []
    for name in names:
        if _maybe(random, 0.08):
            continue
        item: Json = {"containerName": name, "target": _resources(random, full=full)}
        for bound in ("lowerBound", "upperBound", "uncappedTarget"):
            if full or _maybe(random, 0.8):
                item[bound] = _resources(random, full=full)
        items.append(item)
    return {"containerRecommendations": items}


def _policy(random: Random, names: list[str]) -> Json:
    policies = []
    for name in random.sample([*names, "*"], random.randint(1, len(names) + 1)):
        policy: Json = {"containerName": name}
        if _maybe(random, 0.15):
            policy["mode"] = random.choice(("Off", "Auto"))
        for bound in ("minAllowed", "maxAllowed"):
            if _maybe(random, 0.4):
                policy[bound] = _resources(random)
        if _maybe(random, 0.3):
            policy["controlledValues"] = random.choice(("RequestsOnly", "RequestsAndLimits"))
        if _maybe(random, 0.2):
            policy["controlledResources"] = random.choice((["cpu"], ["memory"], ["cpu", "memory"], []))
        policies.append(policy)
    return {"containerPolicies": policies}


_MODES = ("Recreate", "Recreate", "Auto", "InPlaceOrRecreate", "InPlace", "Initial", "Off")


def _vpa(
    random: Random, names: list[str], *, name: str = "vpa1", full: bool = False, modes: tuple[str, ...] = _MODES
) -> Json:
    spec: Json = {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}
    if not _maybe(random, 0.05):
        policy: Json = {"updateMode": random.choice(modes)}
        if _maybe(random, 0.2):
            policy["minReplicas"] = random.choice((1, 2, 3))
        if _maybe(random, 0.2):
            policy["evictionRequirements"] = [
                {
                    "resources": random.choice((["cpu"], ["memory"], ["cpu", "memory"])),
                    "changeRequirement": random.choice(("TargetHigherThanRequests", "TargetLowerThanRequests")),
                }
                for _ in range(random.choice((1, 1, 2)))
            ]
        if _maybe(random, 0.1):
            policy["evictAfterOOMSeconds"] = random.choice((60, 600, 1200))
        spec["updatePolicy"] = policy
    if _maybe(random, 0.5):
        spec["resourcePolicy"] = _policy(random, names)
    vpa: Json = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": _NAMESPACE, "creationTimestamp": _time(-86400)},
        "spec": spec,
        "status": {},
    }
    if not _maybe(random, 0.06):
        vpa["status"]["recommendation"] = _recommendation(random, names, full=full)
    return vpa


def _container(random: Random, name: str, *, full: bool) -> Json:
    resources: Json = {}
    if full or not _maybe(random, 0.08):
        resources["requests"] = _resources(random, full=full)
    if _maybe(random, 0.4):
        resources["limits"] = _resources(random)
    container: Json = {"name": name, "image": "registry.example/app:1", "resources": resources}
    if _maybe(random, 0.1):
        container["resizePolicy"] = [
            {"resourceName": "cpu", "restartPolicy": random.choice(("NotRequired", "RestartContainer"))},
            {"resourceName": "memory", "restartPolicy": random.choice(("NotRequired", "RestartContainer"))},
        ]
    return container


def _pod(random: Random, name: str, names: list[str], now: int, *, full: bool = False) -> Json:
    metadata: Json = {"name": name, "namespace": _NAMESPACE, "uid": f"uid-{name}", "labels": {"app": "web"}}
    metadata["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "uid-web-1", "controller": True}
    ]
    if _maybe(random, 0.15):
        metadata["annotations"] = random.choice(
            ({"vpaObservedContainers": ", ".join(names)}, {"vpaObservedContainers": names[0]}, {"other": "x"})
        )
    if _maybe(random, 0.04):
        metadata["deletionTimestamp"] = _time(now)
    status: Json = {"phase": random.choice(("Running",) * 9 + ("Pending",))}
    if not _maybe(random, 0.05):
        status["startTime"] = _time(now - random.choice((60, 3600, 43199, 43200, 43201, 86400)))
    if _maybe(random, 0.3):
        status["containerStatuses"] = [_container_status(random, each, now) for each in names]
    if _maybe(random, 0.2):
        kind = random.choice(("PodResizePending", "PodResizeInProgress"))
        reason = random.choice(
            ("Deferred", "Infeasible", "Other") if kind == "PodResizePending" else ("", "Error", "Other")
        )
        condition = {"type": kind, "status": random.choice(("True", "True", "False"))}
        if reason:
            condition["reason"] = reason
        status["conditions"] = [condition]
    containers = [_container(random, each, full=full) for each in names]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers},
        "status": status,
    }


def _container_status(random: Random, name: str, now: int) -> Json:
    status: Json = {"name": name, "image": "x", "imageID": "", "ready": True, "restartCount": 0}
    if _maybe(random, 0.4):
        finished = now - random.choice((0, 60, 599, 600, 601, 1199, 1200, 7200))
        status["lastState"] = {
            "terminated": {
                "exitCode": 137,
                "reason": random.choice(("OOMKilled", "OOMKilled", "Error")),
                "startedAt": _time(finished - random.choice((1, 59, 60, 599, 600, 601))),
                "finishedAt": _time(finished),
            }
        }
    if _maybe(random, 0.2):
        status["resources"] = {"requests": _resources(random)}
    return status


def _limit_ranges(random: Random, *, pod: bool) -> list[Json]:
    limits = []
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        item: Json = {"type": random.choice(("Container", "Container", "Pod" if pod else "Container"))}
        for bound in ("max", "min", "default"):
            if _maybe(random, 0.5) and not (bound == "default" and item["type"] == "Pod"):
                item[bound] = _resources(random)
        limits.append(item)
    if not limits:
        return []
    metadata = {"name": "limits", "namespace": _NAMESPACE}
    return [{"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}]


def _names(random: Random) -> list[str]:
    return ["c1", "c2", "c3"][: random.choice((1, 1, 2, 2, 3))]


def _gates(random: Random, *names: str) -> Json:
    gates = {name: True for name in names if _maybe(random, 0.5)}
    return {"feature_gates": gates} if gates else {}


# -- updater -----------------------------------------------------------------------------------------------------------


def _attempts(random: Random, pods: list[Json], names: list[str]) -> Json:
    return {pod["metadata"]["uid"]: _recommendation(random, names, full=True) for pod in pods if _maybe(random, 0.3)}


def _bring_close(random: Random, vpa: Json, pods: list[Json], threshold: float) -> None:
    """Let every target be near to what the containers request, and every bound far: the difference decides.

    Often it is exactly the threshold.
    """
    edge = round(threshold * 100)
    percents = (95, 100, 100, 100 - edge, 100 + edge, 100 + edge, 99 + edge, 101 + edge, 108, 115)
    vpa["spec"].pop("resourcePolicy", None)
    for item in vpa["status"].get("recommendation", {}).get("containerRecommendations", ()):
        cpu, memory = max(1, random.choice(percents)), max(1, random.choice((100, 100, *percents)))
        item.update(
            target={"cpu": f"{cpu * 10}m", "memory": f"{memory * 10}M"},
            lowerBound=random.choice(({"cpu": "1m", "memory": "1M"}, {"cpu": "1", "memory": "1M"})),
            upperBound=random.choice(({"cpu": "100", "memory": "100G"}, {"cpu": "100", "memory": "1000M"})),
        )
    for pod in pods:
        pod["status"]["startTime"] = _time(-(10**6))
        for container in pod["spec"]["containers"]:
            percent = random.choice((100, 100, 100, 95, 105, 111, 120))
            container["resources"] = {
                "requests": {"cpu": f"{percent * 10}m", "memory": f"{random.choice((100, percent)) * 10}M"}
            }


def draw_priority(random: Random) -> Json:
    """Draw the pods of a VPA, at most twelve: beyond that Go's sort keeps no order of equal ones."""
    now, names = random.randint(0, 10**6), _names(random)
    pods = [_pod(random, f"pod-{i}", names, now, full=True) for i in range(random.choice((1, 1, 2, 3, 5, 8)))]
    inputs: Json = {
        "vpa": _vpa(random, names, full=True),
        "pods": pods,
        "now": _time(now),
        "limit_ranges": _limit_ranges(random, pod=True),
        "options": _gates(random, "PerVPAConfig", "InPlace"),
    }
    threshold = 0.1
    if _maybe(random, 0.2):
        threshold = inputs["options"]["pod_update_threshold"] = random.choice((0.05, 0.5, 1.0))
    if _maybe(random, 0.4):
        _bring_close(random, inputs["vpa"], pods, threshold)
    if _maybe(random, 0.2):
        inputs["infeasible_attempts"] = _attempts(random, pods, names)
    return inputs


def _controllers(random: Random, replicas: int) -> list[Json]:
    def controller(kind: str, name: str, **spec: Any) -> Json:
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}}
        metadata = {"name": name, "namespace": _NAMESPACE, "uid": f"uid-{name}"}
        body = {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": body}

    owned = controller("ReplicaSet", "web-1", replicas=replicas)
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}
    ]
    return [controller("Deployment", "web", replicas=replicas), owned]


def draw_eviction(random: Random) -> Json:
    """Draw one or two loops of the updater over a VPA and its pods; some pods have a startup boost."""
    now, names = random.randint(0, 10**6), _names(random)
    count = random.choice((1, 2, 2, 3, 4, 5, 7))
    pods = [_pod(random, f"web-{i}", names, now, full=True) for i in range(count)]
    options: Json = _gates(random, "PerVPAConfig", "InPlace", "CPUStartupBoost")
    if _maybe(random, 0.3):
        options["min_replicas"] = random.choice((1, 1, 3))
    if _maybe(random, 0.4):
        options["eviction_tolerance"] = random.choice((0.0, 0.1, 0.3, 0.9, 1.0))
    if _maybe(random, 0.2):
        options["in_place_skip_disruption_budget"] = True
    if _maybe(random, 0.1):
        options.update(eviction_rate_limit=0.0001, eviction_rate_burst=random.choice((1, 2)))
    inputs: Json = {
        "vpas": [_vpa(random, names, full=True)],
        "pods": pods,
        "controllers": _controllers(random, max(1, count + random.choice((0, 0, 0, 1, -1)))),
        "limit_ranges": _limit_ranges(random, pod=True),
        "now": _time(now),
        "options": options,
    }
    if _maybe(random, 0.2):
        _bring_close(random, inputs["vpas"][0], pods, 0.1)
    if _maybe(random, 0.3):
        _boost_pods(random, inputs["vpas"][0], pods, names, now)
    if _maybe(random, 0.3):
        inputs["last_in_place_attempts"] = {
            f"{_NAMESPACE}/{pod['metadata']['name']}": _time(now - random.choice((60, 299, 300, 301, 3600, 3601)))
            for pod in pods
            if _maybe(random, 0.5)
        }
    if _maybe(random, 0.2):
        inputs["infeasible_attempts"] = _attempts(random, pods, names)
    if _maybe(random, 0.15):
        refusal = random.choice(
            (
                {"code": 429, "reason": "TooManyRequests", "message": "Cannot evict pod: budget"},
                {
                    "code": 403,
                    "reason": "Forbidden",
                    "message": "does not fit",
                    "causes": [{"type": "NodeCapacity", "message": "x"}],
                },
            )
        )
        action = random.choice(("evict", "resize", "annotate"))
        inputs["api_errors"] = {action: {f"{_NAMESPACE}/{random.choice(pods)['metadata']['name']}": refusal}}
    if _maybe(random, 0.2):
        inputs["cycles"] = [{"now": _time(now)}, {"now": _time(now + random.choice((60, 301, 3601)))}]
    return inputs


def _boost_pods(random: Random, vpa: Json, pods: list[Json], names: list[str], now: int) -> None:
    """Give pods annotations of startup boosts, of which some have expired."""
    if _maybe(random, 0.7):
        vpa["spec"]["startupBoost"] = {"cpu": _boost(random)}
    for pod in pods:
        if _maybe(random, 0.7):
            annotations = pod["metadata"].setdefault("annotations", {})
            for name in random.sample([*names, "absent"], random.choice((1, 1, 2))):
                original = {"requests": _resources(random), "limits": _resources(random) if _maybe(random, 0.3) else {}}
                annotations[f"vpaCpuStartupBoost/{name}"] = json.dumps(original)
        if _maybe(random, 0.85):
            pod["status"].setdefault("conditions", []).append(
                {
                    "type": "Ready",
                    "status": random.choice(("True",) * 5 + ("False",)),
                    "lastTransitionTime": _time(now - random.choice((0, 59, 60, 61, 61, 3600))),
                }
            )


# -- admission ---------------------------------------------------------------------------------------------------------


def draw_patch(random: Random) -> Json:
    """Draw a pod about to be created, and one or two VPAs."""
    names = _names(random)
    limit_ranges = _limit_ranges(random, pod=True)
    full = any(item["type"] == "Pod" for each in limit_ranges for item in each["spec"]["limits"])
    pod = _pod(random, "web-1-abc", names, 0, full=full)
    pod["status"] = {}
    pod["metadata"].pop("deletionTimestamp", None)
    if _maybe(random, 0.2):
        del pod["metadata"]["name"]
        pod["metadata"]["generateName"] = "web-1-"
    vpas = [_vpa(random, names, full=full)]
    if _maybe(random, 0.15):
        vpas.append(_vpa(random, names, name=random.choice(("vpa0", "vpa2")), full=full))
    options: Json = _gates(random, "CPUStartupBoost", "InPlace")
    if _maybe(random, 0.3):
        vpas[0]["spec"]["startupBoost"] = {"cpu": _boost(random)}
    if _maybe(random, 0.1):
        options["max_allowed_cpu_boost"] = _cpu(random)
    return {
        "vpas": vpas,
        "pod": pod,
        "request_namespace": _NAMESPACE,
        "controllers": _controllers(random, 1),
        "limit_ranges": limit_ranges,
        "now": _time(0),
        "options": options,
    }


def _boost(random: Random) -> Json:
    boost: Json = {"type": random.choice(("Factor", "Factor", "Quantity")), "durationSeconds": 60}
    if boost["type"] == "Factor" or _maybe(random, 0.1):
        boost["factor"] = random.choice((1, 2, 3, 0))
    if boost["type"] == "Quantity" or _maybe(random, 0.1):
        boost["quantity"] = _cpu(random)
    return boost


_ODD = ("", "*", "bogus", "0", "-1", "999u", "1.5m", "1.5", "x" * 300)


def draw_validate(random: Random) -> Json:
    """Draw a VPA to create or to update, often with something wrong."""
    names = _names(random)
    vpa = _vpa(random, names)
    vpa.pop("status")
    spec = vpa["spec"]
    if _maybe(random, 0.2):
        spec["startupBoost"] = {"cpu": _boost(random)}
    if _maybe(random, 0.1):
        spec["recommenders"] = [{"name": "default"}] * random.choice((1, 2))
    for policy in spec.get("resourcePolicy", {}).get("containerPolicies", ()):
        if _maybe(random, 0.15):
            policy["startupBoost"] = {"cpu": _boost(random)}
        if _maybe(random, 0.15):
            policy["oomBumpUpRatio"] = random.choice(("1.2", "0", "0.5", "2"))
        if _maybe(random, 0.1):
            policy["oomMinBumpUp"] = random.choice(("100Mi", "0", "1"))
        if _maybe(random, 0.15):
            policy[random.choice(("mode", "controlledValues", "containerName"))] = random.choice(_ODD[:4])
        if _maybe(random, 0.15):
            policy["minAllowed"] = {random.choice(("cpu", "memory")): random.choice(("999u", "1.5m", "1.5", "1", "0"))}
    if _maybe(random, 0.1) and "updatePolicy" in spec:
        spec["updatePolicy"].update(
            random.choice(
                ({"updateMode": "bogus"}, {"minReplicas": 0}, {"minReplicas": -1}, {"evictAfterOOMSeconds": 0})
            )
        )
    if _maybe(random, 0.06):
        del spec["targetRef"]
    inputs: Json = {
        "operation": "CREATE",
        "vpa": vpa,
        "options": _gates(random, "CPUStartupBoost", "InPlace", "PerVPAConfig"),
    }
    if _maybe(random, 0.3):
        old = _vpa(random, names)
        old.pop("status")
        inputs.update(operation="UPDATE", old_vpa=old)
    return inputs


# -- limit ranges ------------------------------------------------------------------------------------------------------


def draw_limit_range(random: Random) -> Json:
    """Draw one question about limits, for all functions that upstream exports."""
    names = _names(random)
    function = random.choice(
        (
            "effective",
            "proportional_limits",
            "boundary_request",
            "apply_policy",
            "capping",
            "capping",
            "containers_resources",
        )
    )
    if function == "effective":
        return {"function": function, "namespace": _NAMESPACE, "limit_ranges": _limit_ranges(random, pod=True)}
    if function == "proportional_limits":
        return {
            "function": function,
            **{
                name: _resources(random)
                for name in ("limits", "requests", "recommended", "default_limits")
                if _maybe(random, 0.85)
            },
        }
    if function == "boundary_request":
        resource = random.choice(("cpu", "memory"))
        draw = _cpu if resource == "cpu" else _memory
        inputs: Json = {"function": function, "resource": resource, "boundary": draw(random)}
        for name in ("original_request", "original_limit", "default_limit"):
            if _maybe(random, 0.8):
                inputs[name] = draw(random)
        return inputs
    if function == "apply_policy":
        return {
            "function": function,
            "recommendation": _recommendation(random, names, full=False),
            "resource_policy": _policy(random, names) if _maybe(random, 0.7) else None,
            **({"global_max_allowed": _resources(random)} if _maybe(random, 0.4) else {}),
        }
    limit_ranges = _limit_ranges(random, pod=True)
    full = any(item["type"] == "Pod" for each in limit_ranges for item in each["spec"]["limits"])
    return {
        "function": function,
        "pod": _pod(random, "pod-1", names, 0, full=full),
        "vpa": _vpa(random, names, full=full),
        "limit_ranges": limit_ranges,
    }


# -- recommender -------------------------------------------------------------------------------------------------------


_RETENTION = 8 * 86400
"""Seconds for which upstream keeps samples."""


def _series(random: Random, pod: str, name: str, start: int, *, memory: bool = True) -> Json:
    count = random.choice((1, 3, 10, 30))
    step = random.choice((60, 3600, 21600, 86400))
    values = random.choice((count, count, 0)) if memory else 0
    return {
        "namespace": _NAMESPACE,
        "pod": pod,
        "container": name,
        "start": _time(start),
        "step_s": step,
        "cpu_cores": [round(random.expovariate(2.0), 3) for _ in range(count)],
        "memory_bytes": [int(random.expovariate(1.0) * 5e8) for _ in range(values)],
    }


def draw_recommend(random: Random) -> Json:
    """Draw a VPA, its pods and their usage over one to three rounds.

    Upstream adds up aggregates, and takes the peaks of windows that are open from a checkpoint, in the order of a Go
    map, which shows in the last bits. So all pods share their labels, and of several pods no window is open.
    """
    names = _names(random)
    vpa = _vpa(random, names)
    vpa["status"] = {}
    vpa["metadata"]["generation"] = 3
    pods = [_pod(random, f"web-{i}", names, 0, full=True) for i in range(random.choice((0, 1, 1, 2, 3)))]
    for pod in pods:
        pod["metadata"].pop("deletionTimestamp", None)
        pod["status"] = {"phase": "Running"}
    options: Json = _gates(random, "PerVPAConfig")
    for name, values in (
        ("recommendation_margin_fraction", (0.0, 0.5)),
        ("target_cpu_percentile", (0.5, 0.99)),
        ("pod_recommendation_min_cpu_millicores", (1.0, 100.0)),
        ("pod_recommendation_min_memory_mb", (10.0, 500.0)),
        ("memory_aggregation_interval_s", (3600, 43200)),
        ("oom_bump_up_ratio", (1.0, 2.0)),
        ("round_cpu_millicores", (10, 50)),
        ("round_memory_bytes", (1024, 1048576)),
        ("humanize_memory", (True,)),
        ("container_recommendation_max_allowed_cpu", ("1", "100m")),
        ("cpu_integer_post_processor_enabled", (True,)),
    ):
        if _maybe(random, 0.08):
            options[name] = random.choice(values)
    start = random.randint(0, 10**6)
    several = len(pods) > 1
    now = start + 86400 * (40 if several else random.choice((1, 3, 10)))
    rounds = []
    for number in range(random.choice((1, 1, 2, 3))):
        each: Json = {"now": _time(now)}
        if number == 0:
            each.update(vpas=[vpa], pods=pods)
        elif _maybe(random, 0.3):
            each["pods"] = pods[: random.randint(0, len(pods))]
        each["series"] = [
            _series(
                random,
                pod["metadata"]["name"],
                name,
                start if number == 0 else now - 3600,
                memory=number == 0 or not several,
            )
            for pod in pods
            for name in names
            if not _maybe(random, 0.15)
        ]
        if pods and not several and _maybe(random, 0.3):
            each["ooms"] = [
                {
                    "namespace": _NAMESPACE,
                    "pod": random.choice(pods)["metadata"]["name"],
                    "container": random.choice(names),
                    "time": _time(now - random.choice((0, 60, 86400, _RETENTION - 1, _RETENTION, _RETENTION + 1))),
                    "memory_bytes": random.choice((1, 10**8, 10**9, 5 * 10**9)),
                }
            ]
        rounds.append(each)
        now += random.choice((60, 3600, 3601, 86400, 86400, _RETENTION - 3600, _RETENTION))
    return {"rounds": rounds, "controllers": _controllers(random, 1), "options": options}


_NOT_EXPORTED = frozenset({"disruptable", "processed_targets", "resize_status"})


def _comparable(answer: Any) -> Any:
    """Return an answer without members that are empty, and without those that nothing exported tells.

    Recorded answers leave some empty members out, and have others as null or as an empty list.
    """
    if isinstance(answer, list):
        return [_comparable(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    members = {key: _comparable(value) for key, value in answer.items() if key not in _NOT_EXPORTED}
    return {key: value for key, value in members.items() if value is not None and value not in ([], {})}


KINDS = [
    Kind("histogram", "vpa", draw_histogram, "vpa", weight=2),
    Kind("bucket-table", "vpa", draw_bucket_table, "vpa"),
    Kind("recommend", "vpa", draw_recommend, "vpa", weight=4, comparable=_comparable),
    Kind("vpa-priority", "vpa", draw_priority, "vpa", weight=3, comparable=_comparable),
    Kind("vpa-eviction", "vpa", draw_eviction, "vpa", weight=4, comparable=_comparable),
    Kind("vpa-patch", "vpa", draw_patch, "vpa", weight=3, comparable=_comparable),
    Kind("vpa-validate", "vpa", draw_validate, "vpa", weight=2),
    Kind("limit-range", "vpa", draw_limit_range, "vpa", weight=3),
]
