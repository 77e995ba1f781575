"""Metrics APIs behind an API server: ``metrics.k8s.io``, ``custom.metrics.k8s.io``, ``external.metrics.k8s.io``.

Upstream: ``k8s.io/metrics/pkg/client`` and the metrics clients of kube-controller-manager's HPA controller.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final, TypeVar
from urllib.parse import quote

from kscale.effects import ApiError, GetMetric, duration, from_text
from kscale.errors import InputError, Problem
from kscale.objects.api.meta import ApiStruct
from kscale.objects.api.metrics import ExternalMetricValueList, MetricValueList, PodMetrics, PodMetricsList
from kscale.objects.kinds import BUILT_IN_MAPPER, RESTMappingError
from kscale.objects.pod_metrics import PodUsage
from kscale.objects.times import parse_duration
from kscale.world.kubernetes.client import Client, RequestFailedError
from kscale.world.kubernetes.resources import Resources
from kscale.world.kubernetes.transport import Call
from kscale.world.protocols import Clock, MetricsAnswer
from kscale.world.server_data import read_json

__all__ = ["RESTMetrics"]

_CUSTOM: Final = "custom.metrics.k8s.io"
_VERSIONS: Final = ("v1beta2", "v1beta1")
_Listed = TypeVar("_Listed", PodMetricsList, MetricValueList, ExternalMetricValueList)
_KINDS_FORGOTTEN: Final = 30 * 10**9  # kube-controller-manager resets its mapper at this interval


class RESTMetrics:
    """Client that answers :class:`~kscale.effects.GetMetric` (:class:`kscale.world.protocols.Metrics`).

    The version of the custom metrics API is discovered once per ``renewal`` (nanoseconds); a failure is not cached. The
    resources of kinds are discovered every thirty seconds. Both intervals use the monotonic time of ``clock``. Each of
    the three APIs has its own rate limit, as in upstream.
    """

    __slots__ = (
        "_client",
        "_clients",
        "_clock",
        "_mapper",
        "_mapper_tick",
        "_renewal",
        "_resources",
        "_tick",
        "_version",
    )

    def __init__(
        self, client: Client, resources: Resources, clock: Clock, *, renewal: timedelta = timedelta(seconds=15)
    ) -> None:
        self._client = client
        self._clients = {api: client.with_own_rate_limit() for api in ("resource", "custom", "external")}
        self._resources = resources
        self._clock = clock
        self._renewal = duration(renewal)
        self._version = ""
        self._tick = self._mapper_tick = -1
        self._mapper = BUILT_IN_MAPPER

    async def get(self, question: GetMetric) -> MetricsAnswer | ApiError:
        """Return the response of the metrics API that the request names, or its error.

        An unreadable response is counted, and returned as an error.
        """
        try:
            match question.api:
                case "resource":
                    return await self._resource(question)
                case "custom":
                    return await self._custom(question)
                case "external":
                    return await self._external(question)
        except RequestFailedError as error:
            return error.error
        except RESTMappingError as error:
            return ApiError(str(error))
        except InputError as error:
            self._client.count_unreadable()
            return ApiError(str(error), reason="InternalError")

    async def _resource(self, asked: GetMetric) -> PodMetricsList | PodUsage:
        """Request the resource metrics of pods, as columns if the request asks for them.

        Raises RequestFailedError, InputError.
        """
        path = "/apis/metrics.k8s.io/v1beta1" + _format_namespace_path(asked.namespace) + "/pods"
        body = await self._get("resource", path, "pods.metrics.k8s.io", labelSelector=asked.selector)
        return PodUsage.from_json(body) if asked.columns else _check_times(read_json(body, PodMetricsList))

    async def _external(self, asked: GetMetric) -> ExternalMetricValueList:
        """Request the values of an external metric. Raises RequestFailedError, InputError."""
        namespace = _format_namespace_path(asked.namespace)
        path = f"/apis/external.metrics.k8s.io/v1beta1{namespace}/{quote(asked.metric, safe='')}"
        body = await self._get(
            "external", path, f"{asked.metric}.external.metrics.k8s.io", labelSelector=asked.metric_selector
        )
        return _check_times(read_json(body, ExternalMetricValueList))

    async def _custom(self, asked: GetMetric) -> MetricValueList:
        """Request the values of a custom metric. Raises RequestFailedError, InputError, RESTMappingError."""
        root = f"/apis/{_CUSTOM}/{await self._custom_version()}"
        metric = quote(asked.metric, safe="")
        if not asked.namespace and asked.kind == "Namespace":
            path = f"{root}{_format_namespace_path(asked.name)}/metrics/{metric}"
        else:
            resource = await self._resource_of(asked.kind)
            namespace = _format_namespace_path(asked.namespace)
            path = f"{root}{namespace}/{resource}/{quote(asked.name or '*', safe='*')}/{metric}"
        body = await self._get(
            "custom",
            path,
            f"{asked.metric}.{_CUSTOM}",
            labelSelector="" if asked.name else asked.selector,
            metricLabelSelector=asked.metric_selector,
        )
        return _check_times(read_json(body, MetricValueList))

    async def _get(self, api: str, path: str, resource: str, **query: str) -> bytes:
        """Send a GET request with the rate limit of ``api`` (``custom``) and return the body.

        Empty parameters of ``query`` are left out. ``resource``: group-resource for error messages. Raises
        RequestFailedError.
        """
        parameters = tuple((name, value) for name, value in query.items() if value)
        return (await self._clients[api].call(Call(method="GET", path=path, query=parameters, resource=resource))).body

    # -- discovery ---------------------------------------------------------------------------------------------------

    async def _custom_version(self) -> str:
        """Return the version of the custom metrics API to use.

        This is the server's preferred version if kscale supports it, else the first supported one. Raises
        RESTMappingError if there is none, and RequestFailedError if the request fails.
        """
        tick = self._clock.monotonic() // self._renewal
        if tick == self._tick:
            return self._version
        call = Call(method="GET", path="/apis")
        groups = self._client.decode(await self._client.call(call), _GroupList, call).groups or ()
        group = next((item for item in groups if item.name == _CUSTOM), None)
        if group is None or not group.versions:
            raise RESTMappingError(f"no custom metrics API ({_CUSTOM}) registered")
        first = [] if group.preferred_version is None else [group.preferred_version]
        supported = [item.version for item in (*first, *group.versions) if item.version in _VERSIONS]
        if not supported:
            raise RESTMappingError("no known available metric versions found")
        self._version, self._tick = supported[0], tick
        return self._version

    async def _resource_of(self, kind_and_group: str) -> str:
        """Return the group-resource of a kind: ``ingresses.networking.k8s.io`` for ``Ingress.networking.k8s.io``.

        Raises RESTMappingError for an unknown kind, and RequestFailedError if discovery fails.
        """
        kind, _, group = kind_and_group.partition(".")
        try:
            return BUILT_IN_MAPPER.resources(group, kind)[0]
        except RESTMappingError:
            tick = self._clock.monotonic() // _KINDS_FORGOTTEN
            if tick != self._mapper_tick:
                self._mapper, self._mapper_tick = await self._resources.mapper(), tick
        try:
            return self._mapper.resources(group, kind)[0]
        except RESTMappingError as error:
            raise RESTMappingError(f"unable to map kind {kind_and_group} to resource: {error}") from None


def _check_times(listed: _Listed) -> _Listed:
    """Return the list unchanged.

    Raises InputError if a timestamp or the window of a pod is invalid, as some metrics adapters send.
    """
    for number, item in enumerate(listed.items):
        field = "timestamp"
        try:
            from_text(item.timestamp)
            if isinstance(item, PodMetrics):
                field = "window"
                parse_duration(item.window)
        except ValueError as error:
            raise InputError(Problem(str(error), field=f"items[{number}].{field}")) from None
    return listed


def _format_namespace_path(namespace: str) -> str:
    """Return the part of a path that selects a namespace; empty for an empty namespace."""
    return f"/namespaces/{quote(namespace, safe='')}" if namespace else ""


class _GroupVersion(ApiStruct):
    version: str = ""


class _Group(ApiStruct):
    name: str = ""
    versions: list[_GroupVersion] | None = None
    preferred_version: _GroupVersion | None = None


class _GroupList(ApiStruct):
    groups: list[_Group] | None = None
