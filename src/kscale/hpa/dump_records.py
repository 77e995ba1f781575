"""Objects of a dump as plain data, before anything else is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import Any, Final

import msgspec

from kscale.errors import InputError, Problem
from kscale.hpa.queries import MetricLists
from kscale.hpa.replica_calculator import selector_text
from kscale.objects.autoscaling import HorizontalPodAutoscaler
from kscale.objects.decode import to_dict
from kscale.objects.meta import KubeObject
from kscale.objects.namespaces import DEFAULT_NAMESPACE
from kscale.objects.object_head import deep_field, object_head
from kscale.snapshot.sources import RawObject

__all__ = ["check_names", "in_namespace", "key_of", "named", "plain", "untold"]


_MAP_OR_NONE: Final = (dict, Mapping, NoneType)
"""The usual one first: whether something is a :class:`~collections.abc.Mapping` takes long to find out."""


def plain(record: RawObject) -> Any:
    """The data of a record. Raises :class:`~kscale.errors.InputError` for what is no JSON."""
    data = record.data
    if isinstance(data, KubeObject):
        data = to_dict(data)
    elif isinstance(data, msgspec.Raw):
        try:
            data = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise InputError(f"not readable as JSON in UTF-8: {problem}") from None
        except RecursionError:
            raise InputError(Problem("nested too deeply", field=deep_field(memoryview(record.data)))) from None
    if isinstance(data, dict):
        data.setdefault("apiVersion", record.api_version)
        data.setdefault("kind", record.kind)
    return data


def named(record: RawObject) -> Any:
    """The data, for naming an object that may not be readable at all."""
    try:
        return plain(record)
    except InputError:
        if not isinstance(record.data, msgspec.Raw):
            return None
        head = object_head(memoryview(record.data))
        return {"kind": record.kind, "metadata": {"namespace": head.namespace, "name": head.name}}


def check_names(data: Any) -> None:
    """What every object has must have the right shape before anything else is looked at."""
    if not isinstance(data, (dict, Mapping)):
        raise InputError("not an object")
    for field_ in ("metadata", "spec", "status"):
        if not isinstance(data.get(field_), _MAP_OR_NONE):
            raise InputError(Problem("expected an object", field=field_))
    metadata = data.get("metadata") or {}
    for name in ("name", "namespace", "creationTimestamp"):
        if not isinstance(metadata.get(name), (str, NoneType)):
            raise InputError(Problem("expected a text", field=f"metadata.{name}"))


def in_namespace(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """:func:`~kscale.objects.namespaces.with_namespace` of data. Of a kind that is not known, too: what an HPA scales
    is in a namespace. What has no name has none (a value of a metric)."""
    metadata = data.get("metadata") or {}
    if metadata.get("namespace") or not metadata.get("name"):
        return data
    return {**data, "metadata": {**metadata, "namespace": DEFAULT_NAMESPACE}}


def key_of(data: Mapping[str, Any]) -> str:
    """``namespace/name``."""
    metadata = data.get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def untold(hpa: HorizontalPodAutoscaler, metrics: MetricLists) -> list[str]:
    """Metrics whose values do not say whether they are of the labels that the metric selects."""
    out = []
    for spec in hpa.spec.metrics or ():
        source = spec.pods or spec.object or spec.external
        if source is None:
            continue
        metric = source.metric
        try:
            selector = selector_text(metric.selector)
        except ValueError:
            continue  # the HPA reports it
        is_untold = metrics.untold_external if spec.external else metrics.untold
        if is_untold(hpa.metadata.namespace, metric.name, selector):
            out.append(f"the values of {metric.name} do not say their labels: taken to match {selector}")
    return out
