"""What the two ends of upstream's external gRPC protocol say to each other
(``clusterautoscaler.cloudprovider.v1.externalgrpc``)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any, Final

from kscale.effects import SECOND, GetPrices, Moment
from kscale.objects.core import Node
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import (
    InstanceError,
    InstanceStatus,
    NodeGroupAutoscalingOptions,
    NodeGroupOptions,
    NodeTemplate,
)
from kscale.objects.protobuf.decoding import decode
from kscale.objects.protobuf.encoding import encode
from kscale.objects.protobuf.messages import ENTRY_KEY, ENTRY_VALUE, message_types
from kscale.objects.protobuf.tables import parse

__all__ = [
    "METHODS",
    "SERVICE",
    "defaults_from",
    "external_node",
    "instance_from",
    "instance_message",
    "message_of",
    "node_from",
    "node_price_request",
    "options_from",
    "options_message",
    "pod_price_request",
    "price_question",
    "template_from",
    "template_message",
]

_PACKAGE: Final = "clusterautoscaler.cloudprovider.v1.externalgrpc"
SERVICE: Final = f"{_PACKAGE}.CloudProvider"
METHODS: Final = (
    "NodeGroups", "NodeGroupForNode", "PricingNodePrice", "PricingPodPrice", "GPULabel", "GetAvailableGPUTypes",
    "Cleanup", "Refresh", "NodeGroupTargetSize", "NodeGroupIncreaseSize", "NodeGroupDeleteNodes",
    "NodeGroupDecreaseTargetSize", "NodeGroupNodes", "NodeGroupTemplateNodeInfo", "NodeGroupGetOptions",
)  # fmt: skip
"""Every one takes ``<method>Request`` and gives ``<method>Response``."""

_MESSAGES: Final = """
NodeGroup: 1 id text?, 2 minSize int32?, 3 maxSize int32?, 4 debug text?
ExternalGrpcNode: 1 providerID text?, 2 name text?, 3 labels text{}, 4 annotations text{}
Timestamp: 1 seconds int64?, 2 nanos int32?
Duration: 1 seconds int64?, 2 nanos int32?
Any: 1 type_url text?, 2 value bytes?
NodeGroupsRequest: 1 unused bool?
NodeGroupsResponse: 1 nodeGroups NodeGroup*
NodeGroupForNodeRequest: 1 node ExternalGrpcNode?
NodeGroupForNodeResponse: 1 nodeGroup NodeGroup?
PricingNodePriceRequest: 1 node ExternalGrpcNode?, 4 startTimestamp Timestamp?, 5 endTimestamp Timestamp?
PricingNodePriceResponse: 1 price double?
PricingPodPriceRequest: 4 pod_bytes bytes?, 5 startTimestamp Timestamp?, 6 endTimestamp Timestamp?
PricingPodPriceResponse: 1 price double?
GPULabelRequest: 1 unused bool?
GPULabelResponse: 1 label text?
GetAvailableGPUTypesRequest: 1 unused bool?
GetAvailableGPUTypesResponse: 1 gpuTypes Any{}
CleanupRequest: 1 unused bool?
CleanupResponse: 1 unused bool?
RefreshRequest: 1 unused bool?
RefreshResponse: 1 unused bool?
NodeGroupTargetSizeRequest: 1 id text?
NodeGroupTargetSizeResponse: 1 targetSize int32?
NodeGroupIncreaseSizeRequest: 1 delta int32?, 2 id text?
NodeGroupIncreaseSizeResponse: 1 unused bool?
NodeGroupDeleteNodesRequest: 1 nodes ExternalGrpcNode*, 2 id text?
NodeGroupDeleteNodesResponse: 1 unused bool?
NodeGroupDecreaseTargetSizeRequest: 1 delta int32?, 2 id text?
NodeGroupDecreaseTargetSizeResponse: 1 unused bool?
NodeGroupNodesRequest: 1 id text?
NodeGroupNodesResponse: 1 instances Instance*
Instance: 1 id text?, 2 status InstanceStatus?
InstanceStatus: 1 instanceState int32?, 2 errorInfo InstanceErrorInfo?
InstanceErrorInfo: 1 errorCode text?, 2 errorMessage text?, 3 instanceErrorClass int32?
NodeGroupTemplateNodeInfoRequest: 1 id text?
NodeGroupTemplateNodeInfoResponse: 2 nodeBytes bytes?
NodeGroupGetOptionsRequest: 1 id text?, 2 defaults NodeGroupAutoscalingOptions?
NodeGroupGetOptionsResponse: 1 nodeGroupAutoscalingOptions NodeGroupAutoscalingOptions?
NodeGroupAutoscalingOptions: 1 scaleDownUtilizationThreshold double?, 2 scaleDownGpuUtilizationThreshold double?,
    6 zeroOrMaxNodeScaling bool?, 7 ignoreDaemonSetsUtilization bool?, 8 scaleDownUnneededDuration Duration?,
    9 scaleDownUnreadyDuration Duration?, 10 MaxNodeProvisionDuration Duration?
"""
_STATES: Final = {1: "running", 2: "creating", 3: "deleting"}
_NUMBERS: Final = {name: number for number, name in _STATES.items()}
_OUT_OF_RESOURCES, _OTHER = 1, 99


@cache
def _types() -> dict[str, Any]:
    return message_types(_PACKAGE, parse(_MESSAGES).values())


def message_of(name: str) -> Any:
    """The class of a message. Raises MissingExtraError without the runtime."""
    return _types()[name]


def external_node(node: Node) -> Any:
    """A node as the protocol sends it."""
    return message_of("ExternalGrpcNode")(
        providerID=node.spec.provider_id or "",
        name=node.name,
        labels=_entries(node.metadata.labels),
        annotations=_entries(node.metadata.annotations),
    )


def _entries(values: dict[str, str] | None) -> list[dict[str, str]]:
    return [{ENTRY_KEY: key, ENTRY_VALUE: value} for key, value in sorted((values or {}).items())]


def node_from(sent: Any) -> Node:
    """The node that was sent: as much of it as the protocol tells."""
    metadata = {
        "name": sent.name,
        "labels": {each.key: each.value for each in sent.labels},
        "annotations": {each.key: each.value for each in sent.annotations},
    }
    return from_dict({"metadata": metadata, "spec": {"providerID": sent.providerID}}, Node)


def instance_from(sent: Any) -> tuple[str, InstanceStatus | None]:
    """An instance's id, and its state if one is told: without one it is expected to register."""
    state = _STATES.get(sent.status.instanceState)
    if state is None:
        return sent.id, None
    told = sent.status.errorInfo
    error = None
    if told.errorCode:
        class_ = "OutOfResource" if told.instanceErrorClass == _OUT_OF_RESOURCES else "Other"
        error = InstanceError(class_=class_, code=told.errorCode, message=told.errorMessage)
    return sent.id, InstanceStatus(state=state, error=error)


def instance_message(id_: str, status: InstanceStatus | None) -> Any:
    """An instance as the protocol sends it; one without a status runs."""
    status = status or InstanceStatus()
    told: dict[str, Any] = {"instanceState": _NUMBERS[status.state]}
    if status.error is not None:
        class_ = _OUT_OF_RESOURCES if status.error.class_ == "OutOfResource" else _OTHER
        told["errorInfo"] = {
            "errorCode": status.error.code, "errorMessage": status.error.message, "instanceErrorClass": class_,
        }  # fmt: skip
    return message_of("Instance")(id=id_, status=told)


def template_from(data: bytes) -> NodeTemplate | None:
    """The template of an answer; None: it told none. Raises InputError."""
    if not data:
        return None
    return NodeTemplate(node=from_dict(decode("Node", data).data, Node))


def template_message(template: NodeTemplate) -> bytes:
    """A template as the protocol sends it: the node alone. Raises InputError."""
    return encode("Node", to_dict(template.node)).data


def node_price_request(question: GetPrices, node: Node) -> dict[str, Any]:
    """What is asked of one node of a question."""
    return {"node": external_node(node), **_time(question)}


def pod_price_request(question: GetPrices, pod: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked of one pod of a question, by its API data. Raises InputError for one that is none."""
    return {"pod_bytes": encode("Pod", pod).data, **_time(question)}


def price_question(sent: Any) -> GetPrices:
    """What a request asks: of one node or one pod. Raises InputError for bytes that are no pod."""
    start, end = _moment(sent.startTimestamp), _moment(sent.endTimestamp)
    if type(sent) is message_of("PricingNodePriceRequest"):
        return GetPrices(nodes=(node_from(sent.node),), start=start, end=end)
    return GetPrices(pods=(decode("Pod", sent.pod_bytes).data,), start=start, end=end)


def _time(question: GetPrices) -> dict[str, dict[str, int]]:
    found = {}
    for name, moment in (("startTimestamp", question.start), ("endTimestamp", question.end)):
        seconds, nanos = divmod(moment, SECOND)
        found[name] = {"seconds": seconds, "nanos": nanos}
    return found


def _moment(sent: Any) -> Moment:
    moment: Moment = sent.seconds * SECOND + sent.nanos
    return moment


def options_from(sent: Any) -> NodeGroupOptions:
    """The options of an answer. All are told: what the wire does not carry is zero."""
    return NodeGroupOptions(
        scale_down_utilization_threshold=sent.scaleDownUtilizationThreshold,
        scale_down_gpu_utilization_threshold=sent.scaleDownGpuUtilizationThreshold,
        scale_down_unneeded_time=_seconds(sent.scaleDownUnneededDuration),
        scale_down_unready_time=_seconds(sent.scaleDownUnreadyDuration),
        max_node_provision_time=_seconds(sent.MaxNodeProvisionDuration),
        max_node_startup_time=0.0,
        zero_or_max_node_scaling=sent.zeroOrMaxNodeScaling,
        ignore_daemon_sets_utilization=sent.ignoreDaemonSetsUtilization,
        allow_non_atomic_scale_up_to_max=False,
    )


def defaults_from(sent: Any) -> NodeGroupAutoscalingOptions:
    """The autoscaler's options that a request brings."""
    return options_from(sent).on_top_of(NodeGroupAutoscalingOptions())


def options_message(options: NodeGroupAutoscalingOptions) -> Any:
    """Options as the protocol sends them."""
    return message_of("NodeGroupAutoscalingOptions")(
        scaleDownUtilizationThreshold=options.scale_down_utilization_threshold,
        scaleDownGpuUtilizationThreshold=options.scale_down_gpu_utilization_threshold,
        zeroOrMaxNodeScaling=options.zero_or_max_node_scaling,
        ignoreDaemonSetsUtilization=options.ignore_daemonsets_utilization,
        scaleDownUnneededDuration=_duration(options.scale_down_unneeded_time),
        scaleDownUnreadyDuration=_duration(options.scale_down_unready_time),
        MaxNodeProvisionDuration=_duration(options.max_node_provision_time),
    )


def _seconds(sent: Any) -> float:
    return float(sent.seconds + sent.nanos / 1e9)


def _duration(time: timedelta) -> dict[str, int]:
    whole, rest = divmod(time // timedelta(microseconds=1), 10**6)
    return {"seconds": whole, "nanos": rest * 1000}
