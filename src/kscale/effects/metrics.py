"""What is asked of the metrics APIs."""

from __future__ import annotations

from typing import Literal

import msgspec

from kscale.effects.moments import Moment

__all__ = ["GetMetric", "MetricsApi", "QueryPrometheus"]

MetricsApi = Literal["resource", "custom", "external"]


class GetMetric(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a metrics API: ``api`` says which.

    ``kind`` is what a custom metric is of (``Pod``, ``Ingress.networking.k8s.io``; empty for external metrics);
    ``name`` names one object, empty asks for all that match ``selector``; ``metric_selector``: of the series
    of a custom metric. An empty selector is not sent.
    ``namespace`` is empty for an object at the root and, of the resource metrics, for the pods of all namespaces.
    ``columns``: resource metrics of many pods are answered as columns (:class:`~kscale.objects.pod_metrics.PodUsage`).
    """

    api: MetricsApi
    namespace: str
    kind: str = ""
    name: str = ""
    metric: str = ""
    selector: str = ""
    metric_selector: str = ""
    columns: bool = False


class QueryPrometheus(msgspec.Struct, frozen=True, kw_only=True):
    """Ask Prometheus a ``query`` (PromQL); its answer comes as it is, in JSON.

    From ``start`` to ``end`` every ``step`` nanoseconds (``query_range``); without a ``start`` at the moment ``end``.
    An answer of more than ``most_bytes`` is an error (None: of any length).
    """

    query: str
    end: Moment
    start: Moment | None = None
    step: int = 0
    most_bytes: int | None = None
