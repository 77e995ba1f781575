"""Client of upstream's external gRPC provider (``cloudprovider/externalgrpc``)."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from functools import cache, partial
from itertools import islice
from typing import Any, Final

from kscale.effects import SECOND, ApiError, GetPrices, Moment, Prices
from kscale.errors import InputError, Problem
from kscale.files import read_file, read_input
from kscale.objects.api.core import Node, NodeSpec
from kscale.objects.api.meta import ObjectMeta, shorten
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.nodegroup import (
    NOT_IMPLEMENTED,
    Groups,
    InstanceError,
    InstanceStatus,
    NodeGroup,
    NodeGroupAutoscalingOptions,
    NodeGroupOptions,
    NodeTemplate,
    ProviderError,
    instance_id_of,
)
from kscale.objects.protobuf.conversion import decode, encode
from kscale.objects.protobuf.messages import ENTRY_KEY, ENTRY_VALUE, message_types, parse
from kscale.objects.times import parse_duration
from kscale.snapshot.text.documents import only_document
from kscale.world.nodegroups.provider import CLOUD_ERROR, Instances, NodeInstancesCache, Nodes, Provider
from kscale.world.protocols import MOST_NODES
from kscale.world.rpc import channel, error_text, grpc_library, is_unimplemented, read_certificates

__all__ = ["LOOP_BYTES", "MESSAGE_BYTES", "ExternalGroups", "read_config"]


_PACKAGE: Final = "clusterautoscaler.cloudprovider.v1.externalgrpc"
SERVICE: Final = f"{_PACKAGE}.CloudProvider"
METHODS: Final = (
    "NodeGroups", "NodeGroupForNode", "PricingNodePrice", "PricingPodPrice", "GPULabel", "GetAvailableGPUTypes",
    "Cleanup", "Refresh", "NodeGroupTargetSize", "NodeGroupIncreaseSize", "NodeGroupDeleteNodes",
    "NodeGroupDecreaseTargetSize", "NodeGroupNodes", "NodeGroupTemplateNodeInfo", "NodeGroupGetOptions",
)  # fmt: skip
"""Methods of the protocol; each takes ``<method>Request`` and returns ``<method>Response``."""

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
_LONGEST: Final = (2**63 - 1) // 10**9
_MOST_GROUPS: Final = 10_000
"""Node groups of a provider: each costs several calls in each loop."""
MESSAGE_BYTES: Final = 4 << 20
"""Size of a response: the default of Go's gRPC clients, which upstream does not change."""
LOOP_BYTES: Final = 32 << 20
"""Size of all responses of a loop together: objects in memory take many times as much."""
MAX_TEXT_LENGTH: Final = 4096
"""Characters of an ID, a label or an error that a provider sends: all of these are copied, logged and sent back."""


@cache
def _types() -> dict[str, Any]:
    """Return the protobuf message classes of the protocol by name.

    Raises MissingExtraError without the protobuf runtime.
    """
    return message_types(_PACKAGE, parse(_MESSAGES).values(), syntax="proto3")


def message_of(name: str) -> Any:
    """Return the class of a protobuf message. Raises MissingExtraError without the protobuf runtime."""
    return _types()[name]


def external_node(node: Node) -> Any:
    """Return a node as a message of the protocol."""
    return message_of("ExternalGrpcNode")(
        providerID=node.spec.provider_id or "",
        name=node.name,
        labels=_entries(node.metadata.labels),
        annotations=_entries(node.metadata.annotations),
    )


def _entries(values: dict[str, str] | None) -> list[dict[str, str]]:
    """Return a map as entries of a protobuf map, sorted by key."""
    return [{ENTRY_KEY: key, ENTRY_VALUE: value} for key, value in sorted((values or {}).items())]


def node_from(sent: Any) -> Node:
    """Convert a message to a node with the fields that the protocol transmits."""
    metadata = {
        "name": sent.name,
        "labels": {entry.key: entry.value for entry in sent.labels},
        "annotations": {entry.key: entry.value for entry in sent.annotations},
    }
    return from_dict({"metadata": metadata, "spec": {"providerID": sent.providerID}}, Node)


def instance_from(sent: Any) -> tuple[str, InstanceStatus | None]:
    """Return (ID, status) of an instance.

    The status is None if the message has no known state: the instance is expected to register. An error without a code
    is left out; long texts of an error are shortened. Raises ProviderError if the ID is too long.
    """
    _check_length(sent.id, "the id of an instance")
    state = _STATES.get(sent.status.instanceState)
    if state is None:
        return sent.id, None
    error_info = sent.status.errorInfo
    error = None
    if error_info.errorCode:
        class_ = "OutOfResource" if error_info.instanceErrorClass == _OUT_OF_RESOURCES else "Other"
        code, message = (shorten(text, MAX_TEXT_LENGTH) for text in (error_info.errorCode, error_info.errorMessage))
        error = InstanceError(class_=class_, code=code, message=message)
    return sent.id, InstanceStatus(state=state, error=error)


def instance_message(id_: str, status: InstanceStatus | None) -> Any:
    """Return an instance as a message of the protocol. Without a status it counts as running."""
    status = status or InstanceStatus()
    fields: dict[str, Any] = {"instanceState": _NUMBERS[status.state]}
    if status.error is not None:
        class_ = _OUT_OF_RESOURCES if status.error.class_ == "OutOfResource" else _OTHER
        fields["errorInfo"] = {
            "errorCode": status.error.code, "errorMessage": status.error.message, "instanceErrorClass": class_,
        }  # fmt: skip
    return message_of("Instance")(id=id_, status=fields)


def template_from(data: bytes) -> NodeTemplate | None:
    """Decode the node template of a response, or None if it is empty. Raises InputError if it is not a node."""
    if not data:
        return None
    return NodeTemplate(node=from_dict(decode("Node", data).data, Node))


def template_message(template: NodeTemplate) -> bytes:
    """Encode the node of a template as the protocol does. Raises InputError if it cannot be encoded."""
    return encode("Node", to_dict(template.node)).data


def node_price_request(query: GetPrices, node: Node) -> dict[str, Any]:
    """Return the fields of a price request for one node."""
    return {"node": external_node(node), **_time(query)}


def pod_price_request(query: GetPrices, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a price request for one pod (API data). Raises InputError if it is not a pod."""
    return {"pod_bytes": encode("Pod", pod).data, **_time(query)}


def price_question(sent: Any) -> GetPrices:
    """Convert a price request for one node or one pod. Raises InputError if the pod cannot be decoded."""
    start, end = _moment(sent.startTimestamp), _moment(sent.endTimestamp)
    if type(sent) is message_of("PricingNodePriceRequest"):
        return GetPrices(nodes=(node_from(sent.node),), start=start, end=end)
    return GetPrices(pods=(decode("Pod", sent.pod_bytes).data,), start=start, end=end)


def _time(query: GetPrices) -> dict[str, dict[str, int]]:
    """Return the fields of the time range of a price request."""
    fields = {}
    for name, moment in (("startTimestamp", query.start), ("endTimestamp", query.end)):
        seconds, nanos = divmod(moment, SECOND)
        fields[name] = {"seconds": seconds, "nanos": nanos}
    return fields


def _moment(sent: Any) -> Moment:
    """Convert a Timestamp message to nanoseconds since 1970."""
    moment: Moment = sent.seconds * SECOND + sent.nanos
    return moment


def options_from(sent: Any) -> NodeGroupOptions:
    """Convert the options of a response. All are set: fields that the protocol does not transmit are zero."""
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
    """Convert the autoscaler's default options of a request."""
    return options_from(sent).on_top_of(NodeGroupAutoscalingOptions())


def options_message(options: NodeGroupAutoscalingOptions) -> Any:
    """Return options as a message of the protocol."""
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
    """Return a Duration message in seconds, limited to the range of an int64 of nanoseconds (Go's ``AsDuration``)."""
    return float(min(max(sent.seconds + sent.nanos / 1e9, -_LONGEST), _LONGEST))


def _duration(time: timedelta) -> dict[str, int]:
    """Return the fields of a Duration message."""
    seconds, microseconds = divmod(time // timedelta(microseconds=1), 10**6)
    return {"seconds": seconds, "nanos": microseconds * 1000}


_log = logging.getLogger(__name__)
_KEYS: Final = frozenset({"address", "key", "cert", "cacert", "grpc_timeout"})
_TIMEOUT: Final = "5s"
_RUNNING: Final = InstanceStatus()
_AT_ONCE: Final = 100
_LONGEST_ID: Final = 256
_PLACEHOLDER_ANNOTATIONS: Final = {"k8s.io/cluster-autoscaler/fake-node-reason": "unregistered"}


def read_config(path: str) -> dict[str, str]:
    """Read the file of ``--cloud-config`` with ``address``, ``key``, ``cert``, ``cacert`` and ``grpc_timeout``.

    Settings that the file lacks are empty texts. Raises InputError for an unreadable file, unknown settings, a missing
    address, an invalid timeout or incomplete TLS settings.
    """
    settings = only_document(read_input(path), path)
    if not isinstance(settings, dict):
        raise InputError(Problem("a map of settings is expected", path))
    if unknown := settings.keys() - _KEYS:
        raise InputError([Problem("unknown setting", path, field=str(name)) for name in sorted(map(str, unknown))])
    config = {name: "" if settings.get(name) is None else str(settings[name]) for name in _KEYS}
    if not config["address"]:
        raise InputError(Problem("the address of the provider is missing", path, field="address"))
    if config["cert"] and not (config["key"] and config["cacert"]):
        raise InputError(Problem("cert, key and cacert go together", path, field="cert"))
    try:
        parse_duration(config["grpc_timeout"] or _TIMEOUT)
    except ValueError as error:
        raise InputError(Problem(str(error), path, field="grpc_timeout")) from None
    return config


class ExternalGroups(Provider):
    """Groups of the provider that ``config`` names (:func:`read_config`), over mutual TLS if it has a ``cert``.

    ``nodes`` returns the nodes whose groups are requested. ``defaults`` are the autoscaler's options, which are sent to
    the provider. ``cache`` caches instances (None: they are requested every time). Raises MissingExtraError without
    grpcio, InputError for unusable certificates, OSError for files that cannot be read.
    """

    name = "externalgrpc"

    def __init__(
        self,
        config: Mapping[str, str],
        nodes: Nodes,
        *,
        defaults: NodeGroupAutoscalingOptions | None = None,
        cache: NodeInstancesCache | None = None,
    ) -> None:
        grpc = grpc_library("the external gRPC provider")
        self._errors: Any = grpc.RpcError
        self._nodes = nodes
        self._cache = cache
        self._defaults = defaults or NodeGroupAutoscalingOptions()
        self._timeout = parse_duration(config.get("grpc_timeout") or _TIMEOUT) / 1e9
        credentials = _credentials(grpc, config)
        self._connect = partial(
            channel,
            config["address"],
            credentials,
            what="the external gRPC provider",
            message_bytes=MESSAGE_BYTES,
        )
        self._lock = threading.Lock()
        self._channel: Any = self._connect()
        self._disconnected = False
        self._methods: dict[str, Any] = {}
        self._received = self._fetched = 0  # in this loop
        self._gpu_label: str | None = None
        self._gpu_types: frozenset[str] | None = None

    @property
    def gpu_label(self) -> str:  # type: ignore[override]  # a plain attribute in the base class
        """Return the node label that names the GPU type.

        Requested on first access, and again if that failed. Empty, with a logged error, if the request fails or the
        label is too long.
        """
        if self._gpu_label is None:
            try:
                label = str(self._call("GPULabel").label)
                _check_length(label, "the label")
                self._gpu_label = label
            except ProviderError as error:
                _log.error("the label of GPUs: %s", error.message)
                return ""
        return self._gpu_label

    @property
    def gpu_types(self) -> Collection[str]:  # type: ignore[override]  # a plain attribute in the base class
        """Return the provider's GPU types.

        Requested on first access, and again if that failed. Empty, with a logged error, if the request fails or a type
        is too long.
        """
        if self._gpu_types is None:
            try:
                types = [str(getattr(entry, ENTRY_KEY)) for entry in self._call("GetAvailableGPUTypes").gpuTypes]
                for each in types:
                    _check_length(each, "a type")
                self._gpu_types = frozenset(types)
            except ProviderError as error:
                _log.error("the types of GPUs: %s", error.message)
                return ()
        return self._gpu_types

    def refresh(self) -> Groups | Sequence[NodeGroup]:
        """Refresh the cloud and return its groups.

        A provider that fails to list its groups has none, as in upstream. Unusable groups are logged and left out.
        Nodes whose group cannot be determined are returned with the error (``node_errors``); the other nodes are not
        affected.

        Instances without a node are looked up like nodes. An instance without a group counts as deleted, whatever the
        cache contains (``gone_instances``). Instances of atomically scaled groups are requested every time; if that
        fails, the cached ones are returned with the error (``instances_error``).

        Raises ProviderError if the provider cannot be refreshed or responds with too much, or if the instances of a
        growing group, of a new group or (without a cache) of any group cannot be requested.
        """
        self._received = self._fetched = 0
        self._call("Refresh")
        try:
            listed = _usable(self._call("NodeGroups").nodeGroups)
        except ProviderError as error:
            _log.error("the node groups: %s", error.message)
            return []
        nodes = self._nodes()
        options = {group.id: self._call_optional(partial(self._options, group.id)) for group in listed}
        instances, failed = self._instances(
            {id_: node_group_options for id_, (node_group_options, _) in options.items()}
        )
        unregistered = _list_unregistered(nodes, instances)
        group_of_node, errors = self._find_groups_of_nodes([*nodes, *unregistered])
        deleted = {node.name for node in unregistered} - group_of_node.keys() - errors.keys()
        members: dict[str, list[str]] = {}
        for node in nodes:
            if (home := group_of_node.get(node.name)) is not None:
                members.setdefault(home, []).append(node.name)
        groups = [
            self._build_group(
                group,
                members.get(group.id, []),
                instances[group.id],
                instances_error=failed.get(group.id),
                deleted_instances=deleted,
                options=options[group.id],
            )
            for group in listed
        ]
        return Groups(Groups.of(groups, nodes), errors) if errors else groups

    def _find_groups_of_nodes(self, nodes: Sequence[Node]) -> tuple[dict[str, str], dict[str, str]]:
        """Return (group ID by node name, error message by name of a node whose lookup failed).

        A node without a group is in neither. Raises ProviderError if the responses are too large together.
        """
        groups: dict[str, str] = {}
        errors: dict[str, str] = {}
        answers = self._call_in_parallel("NodeGroupForNode", ({"node": external_node(node)} for node in nodes))
        with closing(answers):
            for node, answer in zip(nodes, answers, strict=True):
                self._check_received()
                if isinstance(answer, ProviderError):
                    _log.warning("Failed to find node group for %s: %s", node.name, answer.message)
                    errors[node.name] = answer.message
                elif len(group := answer.nodeGroup.id) > MAX_TEXT_LENGTH:
                    errors[node.name] = _describe_length(group, "the id of its node group")
                    _log.warning("Failed to find node group for %s: %s", node.name, errors[node.name])
                elif group:
                    groups[node.name] = group
        return groups, errors

    def _call_in_parallel(self, method: str, requests: Iterable[dict[str, Any]]) -> Generator[Any, None, None]:
        """Call ``method`` for each request (its fields), and yield the responses in the order of the requests.

        If a call fails, its ProviderError is yielded instead of the response. The number of concurrent calls is
        limited, because gRPC servers drop requests from long queues.
        """
        pending: deque[Any] = deque()
        remaining = iter(requests)
        try:
            while True:
                pending.extend(
                    self._start_call(method, **request) for request in islice(remaining, _AT_ONCE - len(pending))
                )
                if not pending:
                    return
                try:
                    answer = self._finish_call(pending.popleft())
                except ProviderError as error:
                    answer = error
                yield answer
        finally:  # the caller may stop before the last response
            for call in pending:
                call.cancel()

    def prices(self, question: GetPrices) -> Prices:
        """Request the price of each node and each pod of ``question``, and return the prices in their order.

        A price that cannot be determined is an ApiError in the result.
        """
        nodes = self._call_in_parallel("PricingNodePrice", map(partial(node_price_request, question), question.nodes))
        errors: list[float | ApiError | None] = []
        requests = []
        for pod in question.pods:
            try:
                requests.append(pod_price_request(question, pod))
            except InputError as error:
                errors.append(ApiError(str(error)))
            else:
                errors.append(None)
        pods = self._call_in_parallel("PricingPodPrice", requests)
        return Prices(
            nodes=tuple(map(_price, nodes)),
            pods=tuple(_price(next(pods)) if error_or_none is None else error_or_none for error_or_none in errors),
        )

    def _fetch(self, group: str) -> Instances:
        """Request the instances of a group.

        Raises ProviderError if that fails, if an ID is too long, if all groups together have too many instances, or if
        the responses of this loop are too large together.
        """
        self._check_received()
        instances = self._call("NodeGroupNodes", id=group).instances
        self._fetched += len(instances)
        if self._fetched > MOST_NODES:
            raise ProviderError(f"the provider has more than {MOST_NODES:,} instances", CLOUD_ERROR)
        return [instance_from(instance) for instance in instances]

    def _check_received(self) -> None:
        """Raise ProviderError if the responses of this loop are too large together."""
        if self._received > LOOP_BYTES:
            raise ProviderError(f"the provider responds with more than {LOOP_BYTES:,} bytes in a loop", CLOUD_ERROR)

    def _is_atomic(self, options: NodeGroupOptions | None) -> bool:
        """Check whether a group is scaled atomically. ``options``: its own options (None: the defaults)."""
        effective = self._defaults if options is None else options.on_top_of(self._defaults)
        return effective.zero_or_max_node_scaling

    def _instances(self, groups: Mapping[str, NodeGroupOptions | None]) -> tuple[dict[str, Instances], dict[str, str]]:
        """Return the instances of each group, and error messages by group.

        ``groups``: options by group. With a cache, atomically scaled groups are requested again; if that fails, the
        group has an error and its cached instances. Raises ProviderError if other instances cannot be requested.
        """
        if self._cache is None:
            return {group: self._fetch(group) for group in groups}, {}
        instances = self._cache.instances([*groups], self._fetch)
        errors: dict[str, str] = {}
        for group in [group for group, options in groups.items() if self._is_atomic(options)]:
            try:
                instances[group] = self._fetch(group)
            except ProviderError as error:
                _log.warning("Failed to get the nodes of group %s: %s", group, error.message)
                errors[group] = error.message
        return instances, errors

    def _build_group(
        self,
        description: Any,
        members: list[str],
        instances: Instances,
        *,
        instances_error: str | None,
        deleted_instances: Collection[str],
        options: tuple[NodeGroupOptions | None, str | None],
    ) -> NodeGroup:
        """Request target size and template of a group, and build the NodeGroup.

        ``description``: the group's message. ``options``: its options and their error. Raises ProviderError if the
        responses of this loop are too large together.
        """
        group: str = description.id
        self._check_received()
        size, size_error = self._call_optional(lambda: self._call("NodeGroupTargetSize", id=group).targetSize)
        template, template_error = self._call_optional(lambda: self._template(group))
        return NodeGroup(
            id=group,
            min_size=description.minSize,
            max_size=description.maxSize,
            target_size=0 if size is None else size,
            target_size_error=size_error,
            nodes=members,
            instances=[id_ for id_, _ in instances],
            instances_error=instances_error,
            gone_instances=[id_ for id_, _ in instances if id_ in deleted_instances],
            instance_status={id_: status for id_, status in instances if status is not None and status != _RUNNING},
            template=template,
            template_error=template_error,
            options=options[0],
            options_error=options[1],
        )

    def _template(self, group: str) -> NodeTemplate | None:
        """Request the node template of a group; None if the response is empty. Raises ProviderError."""
        try:
            return template_from(self._call("NodeGroupTemplateNodeInfo", id=group).nodeBytes)
        except InputError as error:
            raise ProviderError(f"the template cannot be read: {error}", CLOUD_ERROR) from None

    def _options(self, group: str) -> NodeGroupOptions | None:
        """Request the options of a group; None if the response has none. Raises ProviderError."""
        answer = self._call("NodeGroupGetOptions", id=group, defaults=options_message(self._defaults))
        field = "nodeGroupAutoscalingOptions"
        return options_from(getattr(answer, field)) if answer.HasField(field) else None

    def _call_optional(self, ask: Callable[[], Any]) -> tuple[Any, str | None]:
        """Return (response, None) or (None, error); both are None if the provider does not implement the call."""
        try:
            return ask(), None
        except ProviderError as error:
            return None, None if error.message == NOT_IMPLEMENTED else error.message

    def increase_size(self, group: str, delta: int, *, atomic: bool = False) -> None:
        """Increase the target size of ``group`` by ``delta``.

        Raises ProviderError if the provider fails, and "Not implemented" with ``atomic``, which the protocol lacks.
        """
        if atomic:
            raise ProviderError(NOT_IMPLEMENTED)
        self._call("NodeGroupIncreaseSize", id=group, delta=delta)

    def decrease_target_size(self, group: str, delta: int) -> None:
        """Reduce the target size of ``group`` by ``delta`` (negative) without deleting nodes.

        Raises ProviderError if the provider fails.
        """
        self._call("NodeGroupDecreaseTargetSize", id=group, delta=delta)

    def delete_nodes(self, group: str, nodes: Sequence[Node], *, force: bool = False) -> None:
        """Delete nodes of ``group`` and reduce its target size accordingly.

        If instances that never registered are among them, the group's cached instances are dropped. Raises
        ProviderError if the provider fails, and "Not implemented" with ``force``, which the protocol lacks.
        """
        if force:
            raise ProviderError(NOT_IMPLEMENTED)
        self._call("NodeGroupDeleteNodes", id=group, nodes=[external_node(node) for node in nodes])
        # Unregistered machines are named by their IDs; only for these upstream refreshes its cache at once.
        if self._cache is not None and any(node.name == node.spec.provider_id for node in nodes):
            self._cache.invalidate(group)

    def close(self) -> None:
        """Call the provider's ``Cleanup`` and close the connection. Later calls open a new one."""
        try:
            self._call("Cleanup")
        except ProviderError as error:
            _log.error("Cleanup: %s", error.message)
        with self._lock:
            self._close_channel()

    def disconnect(self) -> None:
        """Close the connection permanently without notifying the provider. Later calls fail."""
        with self._lock:
            self._disconnected = True
            self._close_channel()

    def _close_channel(self) -> None:
        """Close the channel, so that the next call connects again."""
        self._methods.clear()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _method(self, method: str) -> Any:
        """Return the callable of a gRPC method, and connect if necessary.

        Raises ProviderError after :meth:`disconnect`.
        """
        if self._disconnected:
            raise ProviderError("the connection to the provider has been ended", CLOUD_ERROR)
        if self._channel is None:
            self._channel = self._connect()
        call = self._methods.get(method)
        if call is None:
            call = self._methods[method] = self._channel.unary_unary(
                f"/{SERVICE}/{method}",
                request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=partial(_decode_sized, message_of(f"{method}Response")),
            )
        return call

    def _start_call(self, method: str, **given: Any) -> Any:
        """Send a request and return its gRPC future. ``given``: fields of the request.

        Raises ProviderError after :meth:`disconnect`.
        """
        request = message_of(f"{method}Request")(**given)
        with self._lock:
            return self._method(method).future(request, timeout=self._timeout)

    def _finish_call(self, answer: Any) -> Any:
        """Wait for the end of a call (its gRPC future) and return the response. Raises ProviderError if it failed."""
        try:
            message, size = answer.result()
        except self._errors as error:
            text = NOT_IMPLEMENTED if is_unimplemented(error) else error_text(error)
            raise ProviderError(text, CLOUD_ERROR) from None
        with self._lock:
            self._received += size  # here, not on arrival: a response that arrives after its loop has no effect
        return message

    def _call(self, method: str, **given: Any) -> Any:
        """Call a method with the fields ``given`` and return the response. Raises ProviderError if the call failed."""
        return self._finish_call(self._start_call(method, **given))


def _decode_sized(message: Any, data: bytes) -> tuple[Any, int]:
    """Decode a response and return (message, size in bytes)."""
    return message.FromString(data), len(data)


def _usable(groups: Sequence[Any]) -> list[Any]:
    """Return the usable groups. Others (a long or repeated ID, inconsistent sizes) are logged and left out.

    Raises ProviderError if there are too many groups. Upstream keeps a group with inconsistent sizes, but neither grows
    nor shrinks it.
    """
    if len(groups) > _MOST_GROUPS:
        raise ProviderError(f"the provider has more than {_MOST_GROUPS:,} node groups", CLOUD_ERROR)
    usable: dict[str, Any] = {}
    for group in groups:
        id_ = shorten(group.id, _LONGEST_ID)
        if len(group.id) > MAX_TEXT_LENGTH:
            _log.error("a node group is left out: %s", _describe_length(group.id, "its id"))
        elif group.id in usable:
            _log.error("two node groups have the id %s: the first of them is used", id_)
        elif not 0 <= group.minSize <= group.maxSize:
            sizes = f"{group.minSize} to {group.maxSize}"
            _log.error("node group %s is left out: its sizes %s exclude each other", id_, sizes)
        else:
            usable[group.id] = group
    return [*usable.values()]


def _check_length(text: str, what: str) -> None:
    """Raise ProviderError if a text of the provider is too long. ``what`` names the text in the message."""
    if len(text) > MAX_TEXT_LENGTH:
        raise ProviderError(_describe_length(text, what), CLOUD_ERROR)


def _describe_length(text: str, what: str) -> str:
    """Return the message about a text that is too long. ``what`` names the text."""
    return f"{what} has more than {MAX_TEXT_LENGTH:,} characters: {shorten(text)}"


def _price(answer: Any) -> float | ApiError:
    """Return the price in a response, or the error if the call failed."""
    if isinstance(answer, ProviderError):
        return ApiError(answer.message, reason=answer.type)
    return float(answer.price)


def _list_unregistered(nodes: Sequence[Node], instances: Mapping[str, Instances]) -> list[Node]:
    """Return placeholder nodes for instances that should register and have no node, as upstream's ``FakeNode``."""
    registered = {*map(instance_id_of, nodes)}
    return [
        Node(metadata=ObjectMeta(name=id_, annotations=_PLACEHOLDER_ANNOTATIONS), spec=NodeSpec(provider_id=id_))
        for instances_of_group in instances.values()
        for id_, status in instances_of_group
        if id_ not in registered and (status is None or (status.state != "deleting" and status.error is None))
    ]


def _credentials(grpc: Any, config: Mapping[str, str]) -> Any:
    """Return the TLS credentials; None (no TLS) without a certificate.

    Raises InputError or OSError for unusable files.
    """
    if not config.get("cert"):
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=read_certificates(config["cacert"]),
        private_key=read_file(config["key"]),
        certificate_chain=read_file(config["cert"]),
    )
