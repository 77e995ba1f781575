"""What a reconcile asks of the world, and what it can be told.

A reconcile is a generator: it yields one of these and is sent the answer, or a :class:`Failure`. It does no I/O itself.

| action | answer |
|---|---|
| :class:`GetScale` | ``kscale.objects.autoscaling.Scale`` |
| :class:`ListPods` | the pods of the namespace that match the selector, in the lister's order |
| :class:`GetMetric` | the list (or, for one object, the single value) that the metrics API answers |
| :class:`PutScale` | the scale as written, or None |
| :class:`WriteStatus` | the resource version after the write, or None |
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kscale.objects.autoscaling import HorizontalPodAutoscaler, Scale
from kscale.objects.core import Pod
from kscale.objects.metrics import ExternalMetricValueList, MetricValue, MetricValueList, PodMetricsList

__all__ = ["Action", "Failure", "GetMetric", "GetScale", "ListPods", "Outcome", "PutScale", "WriteStatus"]


class Failure(msgspec.Struct, frozen=True):
    """An action that failed: the error's text, and the reason of its API status (``Conflict``, ``NotFound``, ...)."""

    message: str
    reason: str = ""


class GetScale(msgspec.Struct, frozen=True, kw_only=True):
    """Read the scale of a target. ``resource`` is a group-resource such as ``deployments.apps``.

    ``retry`` is set when it is read again after a failed write; the answer is then only good for the next write.
    """

    namespace: str
    resource: str
    name: str
    retry: bool = False


class ListPods(msgspec.Struct, frozen=True, kw_only=True):
    """List the pods of a namespace that match a selector (its text), of all phases, deleting ones too."""

    namespace: str
    selector: str


class GetMetric(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a metrics API.

    ``api`` is ``resource``, ``custom`` or ``external``. ``kind`` is what the metric is of (``Pod``,
    ``Ingress.networking.k8s.io``; empty for external metrics); ``name`` names one object, empty asks for all that match
    ``selector``. An empty selector is not sent. ``namespace`` is empty for an object at the root.
    """

    api: str
    namespace: str
    kind: str = ""
    name: str = ""
    metric: str = ""
    selector: str = ""
    metric_selector: str = ""


class PutScale(msgspec.Struct, frozen=True, kw_only=True):
    """Write the number of replicas of a target.

    ``attempt`` counts from 1; wait ``delay`` seconds (give or take 10 %) first.
    """

    namespace: str
    resource: str
    scale: Scale
    replicas: int
    attempt: int = 1
    delay: float = 0.0


class WriteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write the status of the HPA: the whole object, with the new status."""

    hpa: HorizontalPodAutoscaler


Action = GetScale | ListPods | GetMetric | PutScale | WriteStatus
Outcome = (
    Failure
    | Scale
    | Sequence[Pod]
    | PodMetricsList
    | MetricValueList
    | MetricValue
    | ExternalMetricValueList
    | str
    | None
)
