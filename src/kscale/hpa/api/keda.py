"""Generate the HorizontalPodAutoscaler of a KEDA ScaledObject, as KEDA's operator does.

KEDA's own functions (0 <-> 1 activation, fallback, formulas) are not modelled; :func:`list_unmodelled_features` lists
them. While a ScaledObject is paused there is no HPA (:func:`get_pause`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kscale.objects.api.custom_workloads import PAUSED_REPLICAS, ScaledObject, hpa_name, is_paused, is_set
from kscale.objects.decode import from_dict
from kscale.objects.quantity import Quantity, QuantityError

__all__ = [
    "PausedTarget",
    "check_scaled_object",
    "generate_hpa",
    "get_pause",
    "list_guessed_metric_names",
    "list_unmodelled_features",
]

_PAUSED_SCALE_IN: Final = "autoscaling.keda.sh/paused-scale-in"
_PAUSED_SCALE_OUT: Final = "autoscaling.keda.sh/paused-scale-out"
_INT32_PATTERN: Final = re.compile(r"[+-]?0*[0-9]{1,10}")
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
"""Names that scalers give to their target, in the order in which they are looked for."""

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
"""What scalers call their metric, and the settings of which the first that is there follows."""


class PausedTarget(NamedTuple):
    """A ScaledObject that is paused: KEDA deletes the HPA ``hpa`` and sets ``target`` (``Kind/name``) to ``replicas``.

    ``replicas`` None: the target keeps its size. ``error``: why KEDA cannot read the number of replicas.
    """

    hpa: str
    target: str
    replicas: int | None
    error: str = ""


def check_scaled_object(scaled: Mapping[str, Any]) -> None:
    """Raise ``InputError`` for a ScaledObject that the other functions here could not read."""
    from_dict(scaled, ScaledObject)


def generate_hpa(scaled: Mapping[str, Any], known: Sequence[str] = ()) -> dict[str, Any]:
    """Generate the autoscaling/v2 document of a ScaledObject.

    Triggers with an unknown target are left out (:func:`list_unmodelled_features`). External metrics have the names in
    the ScaledObject's status. Without these, the name is the operator's likely one; if ``known`` (the names in the
    namespace) contains one with the required prefix, that one is used.
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
    """Build the metric of every trigger; None if its target is unknown."""
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
    begin = f"s{index}-"
    for name in real:
        if name.startswith(begin):
            return name
    fitting = {name for name in known if name.startswith(begin)}
    return fitting.pop() if guess not in fitting and len(fitting) == 1 else guess


def _guess_metric_name(index: int, kind: str, settings: Mapping[str, Any]) -> str:
    """Return the name that the operator gives to a trigger's metric, as far as the trigger's kind is known."""
    name, keys = _METRIC_NAME_KEYS.get(kind, (kind, ()))
    after = next((str(settings[key]) for key in keys if settings.get(key)), "")
    text = f"{name}-{after.rstrip('/').rpartition('/')[2]}" if after else name
    return f"s{index}-{text.translate(_NAME_TRANSLATION)}"


_NAME_TRANSLATION: Final = str.maketrans(dict.fromkeys("/.:%()", "-"))


def _build_trigger_metric(index: int, trigger: Mapping[str, Any], name: str) -> dict[str, Any] | None:
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
    """Check whether a setting is a valid target, a positive number."""
    try:
        return value is not None and Quantity(str(value)).sign > 0
    except QuantityError:
        return False


def _build_resource_metric(kind: str, trigger: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    type_ = trigger.get("metricType") or settings.get("type") or "Utilization"
    value = settings.get("value")
    if not _is_positive(value):
        return None
    target: dict[str, Any] = {"type": type_}
    if type_ == "Utilization":
        if not (str(value).isascii() and str(value).isdigit() and int(str(value)) < 2**31):
            return None
        target["averageUtilization"] = int(str(value))
    else:
        target["averageValue"] = str(value)
    if settings.get("containerName"):
        source = {"name": kind, "container": settings["containerName"], "target": target}
        return {"type": "ContainerResource", "containerResource": source}
    return {"type": "Resource", "resource": {"name": kind, "target": target}}


def list_guessed_metric_names(scaled: Mapping[str, Any], known: Sequence[str] = ()) -> list[str]:
    """List the triggers whose metric name is a guess, as texts.

    A name is a guess if neither the status nor ``known`` contains it.
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
    """List the features of a ScaledObject that the generated HPA lacks, as texts."""
    spec = scaled.get("spec") or {}
    out = [
        f"triggers[{i}] ({trigger.get('type', '')}): its target cannot be told, it was left out"
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
    """Return what KEDA does with a ScaledObject that is paused; None if it is not.

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
        replicas = int(text) if _INT32_PATTERN.fullmatch(text) and -(2**31) <= int(text) < 2**31 else None
        if replicas is None:
            error = f"{PAUSED_REPLICAS} is not a whole number: {text!r}"
        elif replicas < 0:
            replicas, error = None, f"{PAUSED_REPLICAS} is negative, which the API server refuses: {text!r}"
    return PausedTarget(
        generated["metadata"]["name"], f"{reference['kind']}/{reference['name']}", replicas, error or ""
    )
