"""The definitions of the custom resources of the Vertical Pod Autoscaler, made from the structs that read them.

Upstream: ``vertical-pod-autoscaler/deploy/vpa-v1-crd-gen.yaml``. They are as strict: what is required, enumerations,
least values, the form of quantities, rules; what no struct knows is pruned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.inspect import (
    AnyType,
    CustomType,
    DictType,
    FloatType,
    IntType,
    ListType,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from kscale.drivers.program_manifests import ApiObject, made
from kscale.objects.vpa import VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint

__all__ = ["vpa_definitions"]

_GROUP: Final = "autoscaling.k8s.io"
_APPROVED: Final = "https://github.com/kubernetes/kubernetes/pull/63797"
_KEPT: Final = "x-kubernetes-preserve-unknown-fields"
_ENUMS: Final[Mapping[str, list[str]]] = {
    "updateMode": ["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto"],
    "mode": ["Auto", "Off"],
    "controlledValues": ["RequestsAndLimits", "RequestsOnly"],
    "changeRequirement": ["TargetHigherThanRequests", "TargetLowerThanRequests"],
}
_REQUIRED: Final[Mapping[str, list[str]]] = {
    "VerticalPodAutoscaler": ["spec"],
    "VerticalPodAutoscalerSpec": ["targetRef"],
    "TargetReference": ["kind", "name"],
    "RecommenderSelector": ["name"],
    "EvictionRequirement": ["changeRequirement", "resources"],
    "StartupBoostCpu": ["type"],
    "RecommendedContainerResources": ["target"],
    "VerticalPodAutoscalerCondition": ["status", "type"],
}
"""By struct."""
_MORE_OF_STRUCTS: Final[Mapping[str, ApiObject]] = {
    "TargetReference": {"x-kubernetes-map-type": "atomic"},
    "StartupBoostCpu": {
        "x-kubernetes-validations": [
            {
                "rule": f"(self.type == '{kind}') == has(self.{field})",
                "message": f"{field} is required when type is {kind} and forbidden otherwise",
            }
            for kind, field in (("Factor", "factor"), ("Quantity", "quantity"))
        ]
    },
}
_MORE_OF_FIELDS: Final[Mapping[tuple[str, str], ApiObject]] = {
    ("StartupBoostCpu", "type"): {"enum": ["Factor", "Quantity"]},
    ("PodUpdatePolicy", "evictAfterOOMSeconds"): {"minimum": 1},
    ("ContainerResourcePolicy", "memoryAggregationIntervalSeconds"): {"minimum": 1, "format": "int32"},
    ("ContainerResourcePolicy", "memoryAggregationIntervalCount"): {"minimum": 1},
    ("VerticalPodAutoscalerStatus", "observedGeneration"): {"minimum": 0},
}
"""By struct and field."""
_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_TIMES: Final[Mapping[str, ApiObject]] = {
    "lastTransitionTime": {},
    "lastUpdateTime": {"nullable": True},
    "firstSampleStart": {"nullable": True},
    "lastSampleStart": {"nullable": True},
    "referenceTimestamp": {"nullable": True},
}
_COLUMNS: Final = (
    ("Mode", "string", ".spec.updatePolicy.updateMode"),
    ("CPU", "string", ".status.recommendation.containerRecommendations[0].target.cpu"),
    ("Mem", "string", ".status.recommendation.containerRecommendations[0].target.memory"),
    ("Provided", "string", ".status.conditions[?(@.type=='RecommendationProvided')].status"),
    ("Age", "date", ".metadata.creationTimestamp"),
)
_WIDE_COLUMNS: Final = (
    ("MinReplicas", "integer", ".spec.updatePolicy.minReplicas"),
    ("OOMSeconds", "integer", ".spec.updatePolicy.evictAfterOOMSeconds"),
)
_INT32: Final = (1 << 31) - 1


_OLD_VERSION: Final[ApiObject] = {
    "name": "v1beta2",
    "served": False,
    "storage": False,
    "schema": {"openAPIV3Schema": {"type": "object", _KEPT: True}},
}
"""Nobody is served it, as with upstream. Where objects were once stored in it, no definition may leave it out."""


def vpa_definitions() -> list[ApiObject]:
    """CustomResourceDefinitions of VerticalPodAutoscaler and VerticalPodAutoscalerCheckpoint, in version v1."""
    columns: list[ApiObject] = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in _COLUMNS]
    columns += [{"name": name, "type": kind, "jsonPath": path, "priority": 1} for name, kind, path in _WIDE_COLUMNS]
    return [
        _definition(
            VerticalPodAutoscaler,
            "verticalpodautoscalers",
            "vpa",
            subresources={"status": {}},
            additionalPrinterColumns=columns,
        ),
        _definition(VerticalPodAutoscalerCheckpoint, "verticalpodautoscalercheckpoints", "vpacheckpoint"),
    ]


def _definition(struct: type[msgspec.Struct], plural: str, short: str, **more: Any) -> ApiObject:
    kind = struct.__name__
    names = {
        "plural": plural,
        "singular": plural[:-1],
        "kind": kind,
        "listKind": f"{kind}List",
        "shortNames": [short],
    }
    text = {"type": "string"}
    info = type_info(struct)
    assert isinstance(info, StructType)
    parts = {each.encode_name: _schema(each.type) for each in info.fields if each.encode_name in ("spec", "status")}
    properties = {"apiVersion": text, "kind": text, "metadata": {"type": "object"}, **parts}
    schema = {"type": "object", **_required(struct), "properties": properties}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **more}
    return made(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        {"name": f"{plural}.{_GROUP}", "annotations": {"api-approved.kubernetes.io": _APPROVED}},
        spec={"group": _GROUP, "scope": "Namespaced", "names": names, "versions": [version, dict(_OLD_VERSION)]},
    )


def _required(struct: type) -> ApiObject:
    names = _REQUIRED.get(struct.__name__)
    return {} if names is None else {"required": names}


def _schema(of: Type, name: str = "") -> ApiObject:
    """The schema of a field; ``name``: what it is called."""
    if isinstance(of, UnionType):
        (inner,) = [each for each in of.types if not isinstance(each, NoneType)]
        return _schema(inner, name)
    if isinstance(of, StructType):
        struct = of.cls.__name__
        properties = {
            each.encode_name: {
                **_schema(each.type, each.encode_name),
                **_MORE_OF_FIELDS.get((struct, each.encode_name), {}),
            }
            for each in of.fields
        }
        return {"type": "object", **_required(of.cls), "properties": properties, **_MORE_OF_STRUCTS.get(struct, {})}
    if isinstance(of, ListType):
        return {"type": "array", "items": _schema(of.item_type)}
    if isinstance(of, DictType):
        if isinstance(of.value_type, AnyType):  # weights of buckets: whatever a checkpoint holds
            return {"type": "object", _KEPT: True}
        return {"type": "object", "additionalProperties": _schema(of.value_type)}
    if isinstance(of, CustomType):  # a quantity
        kinds = [{"type": "integer"}, {"type": "string"}]
        return {"anyOf": kinds, "pattern": _QUANTITY, "x-kubernetes-int-or-string": True}
    if isinstance(of, IntType):
        return {"type": "integer", "format": "int32" if of.le == _INT32 else "int64"}
    if isinstance(of, FloatType):
        return {"type": "number"}
    assert isinstance(of, StrType), of
    if name in _TIMES:
        return {"type": "string", "format": "date-time", **_TIMES[name]}
    return {"type": "string", "enum": _ENUMS[name]} if name in _ENUMS else {"type": "string"}
