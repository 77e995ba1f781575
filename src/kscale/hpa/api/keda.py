"""Generate the HorizontalPodAutoscaler of a KEDA ScaledObject, as KEDA's operator does, and reject the ScaledObjects
that KEDA's webhook rejects.

KEDA's own functions (0 <-> 1 activation, fallback, formulas) are not modelled; :func:`list_unmodelled_features` lists
them. While a ScaledObject is paused there is no HPA (:func:`get_pause`).

Upstream: ``apis/keda/v1alpha1/scaledobject_webhook.go``. Rules that concern one ScaledObject alone are in
:mod:`kscale.objects.custom_workloads`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kscale.objects.api.apps import Deployment, StatefulSet
from kscale.objects.api.autoscaling import HorizontalPodAutoscaler, HorizontalPodAutoscalerV1
from kscale.objects.api.core import Container, LimitRange
from kscale.objects.api.meta import KubeObject, ResourceList
from kscale.objects.custom_workloads import (
    PAUSED_REPLICAS,
    ScaledObject,
    Trigger,
    fallback_errors,
    hpa_name,
    is_paused,
    is_set,
    name_errors,
    replica_errors,
    trigger_errors,
)
from kscale.objects.decode import from_dict
from kscale.objects.go_numbers import parse_int64
from kscale.objects.quantity import Quantity, QuantityError

__all__ = [
    "KEDARefusal",
    "KEDAWebhook",
    "PausedTarget",
    "check_scaled_object",
    "check_scaled_object_alone",
    "generate_hpa",
    "get_pause",
    "list_guessed_metric_names",
    "list_unmodelled_features",
]


_PAUSED_SCALE_IN: Final = "autoscaling.keda.sh/paused-scale-in"
_PAUSED_SCALE_OUT: Final = "autoscaling.keda.sh/paused-scale-out"
"""Python refuses to convert longer numbers."""
_NAME_LABEL: Final = "scaledobject.keda.sh/name"
_THRESHOLD_KEYS: Final = (
    "threshold",
    "value",
    "targetValue",
    "queueLength",
    "lagThreshold",
    "targetQueueLength",
    "listLength",
    "messageCount",
    "targetAverageValue",
    "targetQueryValue",
    "metricThreshold",
)
"""Settings that contain the target of a trigger, in order of precedence."""

_METRIC_NAME_KEYS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "rabbitmq": ("rabbitmq", ("queueName",)),
    "kafka": ("kafka", ("topic",)),
    "apache-kafka": ("apache-kafka", ("topic",)),
    "aws-sqs-queue": ("aws-sqs", ("queueURL",)),
    "azure-queue": ("azure-queue", ("queueName",)),
    "azure-servicebus": ("azure-servicebus", ("queueName", "topicName")),
    "redis": ("redis", ("listName",)),
    "redis-cluster": ("redis", ("listName",)),
    "redis-sentinel": ("redis", ("listName",)),
    "nats-jetstream": ("nats-jetstream", ("consumer",)),
}
"""Metric name by trigger type, and the settings of which the first present one is appended to the name."""


class PausedTarget(NamedTuple):
    """A ScaledObject that is paused: KEDA deletes the HPA ``hpa`` and sets ``target`` (``Kind/name``) to ``replicas``.

    ``replicas`` None: the target keeps its size. ``error``: why KEDA cannot read the number of replicas.
    """

    hpa: str
    target: str
    replicas: int | None
    error: str = ""


def check_scaled_object(scaled: Mapping[str, Any]) -> None:
    """Raise ``InputError`` if the plain data of a ScaledObject cannot be decoded."""
    from_dict(scaled, ScaledObject)


def generate_hpa(scaled: Mapping[str, Any], known: Sequence[str] = ()) -> dict[str, Any]:
    """Generate the HPA (autoscaling/v2, plain data) of a ScaledObject.

    Triggers whose target value is missing or invalid are left out (:func:`list_unmodelled_features`). External metrics
    have the names in the ScaledObject's status. Without these, the name is the operator's likely one; if exactly one of
    ``known`` (the names in the namespace) has the trigger's prefix, that one is used. Annotations that pause one
    direction disable it in ``behavior``.
    """
    metadata, spec = scaled.get("metadata") or {}, scaled.get("spec") or {}
    config = (spec.get("advanced") or {}).get("horizontalPodAutoscalerConfig") or {}
    reference = spec.get("scaleTargetRef") or {}
    minimum = spec.get("minReplicaCount")
    name = metadata.get("name", "")
    body: dict[str, Any] = {
        "scaleTargetRef": {
            "apiVersion": reference.get("apiVersion") or "apps/v1",
            "kind": reference.get("kind") or "Deployment",
            "name": reference.get("name", ""),
        },
        "minReplicas": max(1, minimum or 0),
        "maxReplicas": spec.get("maxReplicaCount", 100),
        "metrics": [metric for metric in _build_trigger_metrics(scaled, known) if metric is not None],
    }
    behavior = config.get("behavior")
    for annotation, direction in ((_PAUSED_SCALE_IN, "scaleDown"), (_PAUSED_SCALE_OUT, "scaleUp")):
        if is_set(metadata.get("annotations"), annotation):
            rules = (behavior or {}).get(direction) or {}
            behavior = {**(behavior or {}), direction: {**rules, "selectPolicy": "Disabled"}}
    if behavior is not None:
        body["behavior"] = behavior
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": hpa_name(name, config.get("name")),
            "namespace": metadata.get("namespace", ""),
            "labels": {_NAME_LABEL: name},
        },
        "spec": body,
    }


def _build_trigger_metrics(scaled: Mapping[str, Any], known: Sequence[str] = ()) -> list[dict[str, Any] | None]:
    """Build the metric of each trigger of a ScaledObject; None for a trigger with a missing or invalid target value.

    ``known``: names of metrics that have values, from which the names of triggers are chosen.
    """
    name = (scaled.get("metadata") or {}).get("name", "")
    real = (scaled.get("status") or {}).get("externalMetricNames") or ()
    out = []
    for i, trigger in enumerate((scaled.get("spec") or {}).get("triggers") or ()):
        metric = _build_trigger_metric(i, trigger, name)
        if metric is not None and "external" in metric:
            identifier = metric["external"]["metric"]
            identifier["name"] = _choose_metric_name(i, identifier["name"], real, known)
        out.append(metric)
    return out


def _choose_metric_name(index: int, guess: str, real: Sequence[str], known: Sequence[str]) -> str:
    """Return the name of trigger ``index``: from the status (``real``), the only one in ``known``, or the guess."""
    begin = f"s{index}-"
    for name in real:
        if name.startswith(begin):
            return name
    fitting = {name for name in known if name.startswith(begin)}
    return fitting.pop() if guess not in fitting and len(fitting) == 1 else guess


def _guess_metric_name(index: int, kind: str, settings: Mapping[str, Any]) -> str:
    """Return the name that KEDA's operator gives to the metric of trigger ``index``, whose type is ``kind``.

    ``settings``: the trigger's ``metadata``. If kscale does not know how the type is named, the name contains only the
    type.
    """
    name, keys = _METRIC_NAME_KEYS.get(kind, (kind, ()))
    after = next((str(settings[key]) for key in keys if settings.get(key)), "")
    text = f"{name}-{after.rstrip('/').rpartition('/')[2]}" if after else name
    return f"s{index}-{text.translate(_NAME_TRANSLATION)}"


_NAME_TRANSLATION: Final = str.maketrans(dict.fromkeys("/.:%()", "-"))


def _build_trigger_metric(index: int, trigger: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Build the metric of trigger ``index``; None if its target is missing or not a positive number.

    ``name``: name of the ScaledObject, which the selector of an external metric contains. The target of a cron trigger
    is 1 per pod.
    """
    kind, settings = trigger.get("type", ""), trigger.get("metadata") or {}
    if kind in ("cpu", "memory"):
        return _build_resource_metric(kind, trigger, settings)
    type_ = trigger.get("metricType") or "AverageValue"
    target: dict[str, Any] = {"type": type_}
    # The metric of a cron trigger is its number of replicas, so the target is 1 per pod.
    value = 1 if kind == "cron" else next((settings[key] for key in _THRESHOLD_KEYS if key in settings), None)
    if not _is_positive(value):
        return None
    target["value" if type_ == "Value" else "averageValue"] = str(value)
    metric = {"name": _guess_metric_name(index, kind, settings), "selector": {"matchLabels": {_NAME_LABEL: name}}}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def _is_positive(value: Any) -> bool:
    """Check whether a setting, a number or a text such as ``5`` or ``500m``, is a positive quantity."""
    try:
        return value is not None and Quantity(str(value)).sign > 0
    except QuantityError:
        return False


def _build_resource_metric(kind: str, trigger: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Build the metric of a cpu or memory trigger (``kind``); None if its target is missing or invalid.

    ``settings``: the trigger's ``metadata``.
    """
    type_ = trigger.get("metricType") or settings.get("type") or "Utilization"
    value = settings.get("value")
    if not _is_positive(value):
        return None
    target: dict[str, Any] = {"type": type_}
    if type_ == "Utilization":
        number = parse_int64(str(value))
        if number is None or not 0 <= number < 2**31:
            return None
        target["averageUtilization"] = number
    else:
        target["averageValue"] = str(value)
    if settings.get("containerName"):
        source = {"name": kind, "container": settings["containerName"], "target": target}
        return {"type": "ContainerResource", "containerResource": source}
    return {"type": "Resource", "resource": {"name": kind, "target": target}}


def list_guessed_metric_names(scaled: Mapping[str, Any], known: Sequence[str] = ()) -> list[str]:
    """Return a text for each trigger whose metric name is a guess; empty if there is none.

    A name is a guess if it is neither in the status nor in ``known`` (the names in the namespace).
    """
    names = {*((scaled.get("status") or {}).get("externalMetricNames") or ()), *known}
    numbered_names = (
        (i, metric["external"]["metric"]["name"])
        for i, metric in enumerate(_build_trigger_metrics(scaled, known))
        if metric is not None and "external" in metric
    )
    return [
        f"triggers[{i}]: the name of its metric is a guess: {name}" for i, name in numbered_names if name not in names
    ]


def list_unmodelled_features(scaled: Mapping[str, Any]) -> list[str]:
    """Return a text for each feature of a ScaledObject that the generated HPA lacks; empty if there is none.

    These are triggers without a known target, scaling from and to zero, idle replicas, a fallback and scaling
    modifiers.
    """
    spec = scaled.get("spec") or {}
    out = [
        f"triggers[{i}] ({trigger.get('type', '')}): its target is not known, it was left out"
        for i, (trigger, metric) in enumerate(
            zip(spec.get("triggers") or (), _build_trigger_metrics(scaled), strict=True)
        )
        if metric is None
    ]
    if (spec.get("minReplicaCount") or 0) == 0:
        out.append("activation between 0 and 1 replicas (pollingInterval, cooldownPeriod)")
    if spec.get("idleReplicaCount") is not None:
        out.append("idleReplicaCount")
    if spec.get("fallback") is not None:
        out.append("fallback")
    if (spec.get("advanced") or {}).get("scalingModifiers") is not None:
        out.append("advanced.scalingModifiers")
    return out


def get_pause(scaled: Mapping[str, Any]) -> PausedTarget | None:
    """Return what KEDA does with a ScaledObject that is paused; None if it is not paused.

    Upstream: ``NeedToBePausedByAnnotation`` and ``handlePause`` of KEDA's operator. The annotations for one direction
    (``paused-scale-in``, ``paused-scale-out``) keep the HPA (:func:`generate_hpa`).
    """
    annotations = (scaled.get("metadata") or {}).get("annotations") or {}
    if not is_paused(annotations):
        return None
    text = None if PAUSED_REPLICAS not in annotations else str(annotations[PAUSED_REPLICAS])
    generated = generate_hpa(scaled)
    reference = generated["spec"]["scaleTargetRef"]
    replicas = error = None
    if text is not None:
        replicas = parse_int64(text)
        if replicas is None or not -(2**31) <= replicas < 2**31:
            replicas = None
            error = f"{PAUSED_REPLICAS} is not a whole number: {text!r}"
        elif replicas < 0:
            replicas, error = None, f"{PAUSED_REPLICAS} is negative, which the API server refuses: {text!r}"
    return PausedTarget(
        generated["metadata"]["name"], f"{reference['kind']}/{reference['name']}", replicas, error or ""
    )


_TRANSFER: Final = "scaledobject.keda.sh/transfer-hpa-ownership"
_OWNERSHIP: Final = "validations.keda.sh/hpa-ownership"
_RESOURCES: Final = frozenset({"cpu", "memory"})


class KEDARefusal(NamedTuple):
    """Error of KEDA's webhook in its words, and the field of the ScaledObject."""

    field: str
    message: str


class _Target(NamedTuple):
    """A scale target. KEDA compares targets by version, too."""

    namespace: str
    type: str
    name: str


def check_scaled_object_alone(scaled: ScaledObject) -> list[KEDARefusal]:
    """Return the errors of KEDA's webhook that do not depend on other objects; empty if the object is valid."""
    rules = (
        ("metadata.name", name_errors),
        ("spec", replica_errors),
        ("spec.fallback", fallback_errors),
        ("spec.triggers", trigger_errors),
    )
    return [KEDARefusal(field, text) for field, rule in rules for text in rule(scaled)]


class KEDAWebhook:
    """The webhook that validates a ScaledObject against the other objects of a cluster.

    Objects of other kinds than ScaledObjects, HPAs, Deployments, StatefulSets and LimitRanges are ignored.
    """

    def __init__(self, objects: Iterable[KubeObject] = ()) -> None:
        self._scaled: dict[_Target, dict[str, None]] = {}
        self._hpa_owners: dict[tuple[str, str], dict[str, None]] = {}
        self._hpas: dict[_Target, dict[str, KubeObject]] = {}
        self._containers: dict[_Target, list[Container]] = {}
        self._defaults: dict[str, set[str]] = {}
        for item in objects:
            self.add(item)

    def add(self, item: KubeObject) -> None:
        """Add an object of the cluster, which later validations look up. Kinds that they do not need are ignored."""
        match item:
            case ScaledObject():
                self._scaled.setdefault(_get_target(item), {})[item.name] = None
                self._hpa_owners.setdefault((item.namespace, _get_hpa_name(item)), {})[item.name] = None
            case HorizontalPodAutoscaler() | HorizontalPodAutoscalerV1():
                reference = item.spec.scale_target_ref
                target = _build_target(item.namespace, reference.api_version, reference.kind, reference.name)
                self._hpas.setdefault(target, {})[item.name] = item
            case Deployment() | StatefulSet():
                target = _build_target(item.namespace, item.api_version, type(item).__name__, item.name)
                self._containers[target] = item.spec.template.spec.containers
            case LimitRange():
                self._defaults.setdefault(item.namespace, set())
                for limit in item.spec.limits:
                    if limit.type == "Container":
                        names = {name for name in _RESOURCES if _is_set(name, limit.default_request, limit.default)}
                        self._defaults[item.namespace].update(names)

    def check(self, scaled: ScaledObject) -> list[KEDARefusal]:
        """Return the errors that depend on other objects of the cluster: at most one per rule, or an empty list."""
        return [
            *(KEDARefusal("spec.scaleTargetRef", text) for text in self._check_scaled_objects(scaled)),
            *(KEDARefusal("spec.scaleTargetRef", text) for text in self._check_hpas(scaled)),
            *(KEDARefusal("spec.triggers", text) for text in self._check_requests(scaled)),
        ]

    def is_target_missing(self, scaled: ScaledObject) -> bool:
        """Return whether the check needs the requests of the target's containers, but the target is not known."""
        target = _get_target(scaled)
        return (
            target.type in ("apps/v1.Deployment", "apps/v1.StatefulSet")
            and target not in self._containers
            and any(trigger.type in _RESOURCES for trigger in _list_triggers(scaled))
        )

    def _check_scaled_objects(self, scaled: ScaledObject) -> list[str]:
        """Return an error if another ScaledObject has the target or HPA (``verifyScaledObjects``); else empty."""
        target, hpa = _get_target(scaled), _get_hpa_name(scaled)
        for other in self._scaled.get(target, ()):
            if other != scaled.name:
                what = f"the workload '{target.name}' of type '{target.type}'"
                return [f"{what} is already managed by the ScaledObject '{other}'"]
        for other in self._hpa_owners.get((scaled.namespace, hpa), ()):
            if other != scaled.name:
                return [f"the HPA '{hpa}' is already managed by the ScaledObject '{other}'"]
        return []

    def _check_hpas(self, scaled: ScaledObject) -> list[str]:
        """Return an error if an HPA of another owner scales the target (``verifyHpas``); else empty.

        Two are accepted: one whose annotation turns this check off, and one whose ownership the ScaledObject takes
        over.
        """
        target = _get_target(scaled)
        for name, hpa in self._hpas.get(target, {}).items():
            if (hpa.metadata.annotations or {}).get(_OWNERSHIP) == "false":
                continue
            if any(each.kind == "ScaledObject" and each.name == scaled.name for each in hpa.metadata.owner_references):
                continue
            what = f"workload '{target.name}' of type '{target.type}'"
            if (scaled.metadata.annotations or {}).get(_TRANSFER) != "true":
                return [f"the {what} is already managed by the hpa '{name}'"]
            if _get_configured_hpa_name(scaled) != name:
                rule = "must be specified by name in advanced settings to enable ownership transfer"
                return [f"the existing hpa '{name}' for {what} {rule}"]
        return []

    def _check_requests(self, scaled: ScaledObject) -> list[str]:
        """Return an error if a container lacks a trigger's resource (``verifyCPUMemoryScalers``); else empty."""
        containers = self._containers.get(_get_target(scaled), ())
        for trigger in _list_triggers(scaled):
            resource = trigger.type
            if resource not in _RESOURCES or resource in self._defaults.get(scaled.namespace, ()):
                continue
            only = (trigger.metadata or {}).get("containerName") or ""
            for container in containers:
                amounts = container.resources
                if only in ("", container.name) and not _is_set(resource, amounts.requests, amounts.limits):
                    where = f"the container {container.name} doesn't have the {resource} request defined"
                    unknown = "" if scaled.namespace in self._defaults else " (no LimitRange in the input gives it one)"
                    return [f"the scaledobject has a {resource} trigger but {where}{unknown}"]
        return []


def _is_set(resource: str, requests: ResourceList | None, limits: ResourceList | None) -> bool:
    """Check whether the request or the limit of a resource is greater than zero."""
    amounts = [(requests or {}).get(resource), (limits or {}).get(resource)]
    return any(amount is not None and amount.sign > 0 for amount in amounts)


def _list_triggers(scaled: ScaledObject) -> list[Trigger]:
    """Return the triggers of a ScaledObject; empty without a spec."""
    return [] if scaled.spec is None else scaled.spec.triggers or []


def _build_target(namespace: str, api_version: str | None, kind: str | None, name: str) -> _Target:
    """Build a target as ``ParseGVKR`` reads it: an absent version is ``apps/v1``, an absent kind a Deployment."""
    return _Target(namespace, f"{api_version or 'apps/v1'}.{kind or 'Deployment'}", name)


def _get_target(scaled: ScaledObject) -> _Target:
    """Return the target of a ScaledObject; without a reference, a Deployment with an empty name."""
    reference = None if scaled.spec is None else scaled.spec.scale_target_ref
    if reference is None:
        return _build_target(scaled.namespace, None, None, "")
    return _build_target(scaled.namespace, reference.api_version, reference.kind, reference.name)


def _get_configured_hpa_name(scaled: ScaledObject) -> str | None:
    """Return the HPA name that the ScaledObject sets in its advanced section; None if it sets none."""
    advanced = None if scaled.spec is None else scaled.spec.advanced
    config = None if advanced is None else advanced.horizontal_pod_autoscaler_config
    return None if config is None else config.name


def _get_hpa_name(scaled: ScaledObject) -> str:
    """Return the name of the HPA that KEDA generates: the configured name, or KEDA's default name."""
    return hpa_name(scaled.name, _get_configured_hpa_name(scaled))
