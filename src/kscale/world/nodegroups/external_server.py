"""Server of upstream's external gRPC protocol for any :class:`kscale.world.protocols.NodeGroups`. Not in upstream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from kscale.effects import ApiError, GetPrices
from kscale.effects.progress import LEGAL_OUTCOMES
from kscale.errors import InputError, Problem
from kscale.files import read_file
from kscale.objects.nodegroup import Groups, NodeGroup, ProviderError, is_not_implemented
from kscale.objects.protobuf.messages import ENTRY_KEY
from kscale.world.nodegroups.external import (
    METHODS,
    SERVICE,
    defaults_from,
    instance_message,
    message_of,
    node_from,
    options_message,
    price_question,
    template_message,
)
from kscale.world.protocols import NodeGroups
from kscale.world.rpc import RpcServer, grpc_library

__all__ = ["ExternalServer"]

_CALLS: Final = 8


class ExternalServer(RpcServer):
    """gRPC server for groups at ``address`` (``host:port``; port 0: any) within a context. ``url`` is its address.

    - ``cert``, ``key``, ``cacert``: PEM files. Clients need a certificate signed by ``cacert``. Without ``cert`` the
      server runs without TLS.
    - A node belongs to the group that lists its name, lists its provider ID among its ``instances``, or whose
      ``node_selector`` matches it.
    - ``groups.prices`` is called for one node or pod at a time.
    - ``Cleanup``, which an autoscaler calls at its end, calls ``groups.close()``. Later requests use the same groups,
      which must still work, as :class:`kscale.world.nodegroups.external.ExternalGroups` do.
    """

    def __init__(self, groups: NodeGroups, address: str, *, cert: str = "", key: str = "", cacert: str = "") -> None:
        if bool(cert) != bool(key) or bool(cert) != bool(cacert):
            raise InputError("cert, key and cacert go together")
        grpc = grpc_library("serving node groups over gRPC")
        self._codes: Any = grpc.StatusCode
        self._groups = groups
        self._lock = threading.Lock()
        self._known: Groups | list[NodeGroup] | None = None
        self._server = grpc.server(ThreadPoolExecutor(_CALLS), options=[("grpc.so_reuseport", 0)])
        answers = {
            "NodeGroups": self._node_groups,
            "NodeGroupForNode": self._group_of_node,
            "PricingNodePrice": self._price,
            "PricingPodPrice": self._price,
            "GPULabel": lambda _: {"label": groups.gpu_label},
            "GetAvailableGPUTypes": lambda _: {"gpuTypes": [{ENTRY_KEY: name} for name in groups.gpu_types]},
            "Cleanup": self._clean_up,
            "Refresh": self._refresh,
            "NodeGroupTargetSize": self._target_size,
            "NodeGroupIncreaseSize": self._increase,
            "NodeGroupDeleteNodes": self._delete,
            "NodeGroupDecreaseTargetSize": self._decrease,
            "NodeGroupNodes": self._instances,
            "NodeGroupTemplateNodeInfo": self._template,
            "NodeGroupGetOptions": self._options,
        }
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                self._answering(name, answers[name]),
                request_deserializer=message_of(f"{name}Request").FromString,
                response_serializer=lambda response: response.SerializeToString(),
            )
            for name in METHODS
            if name in answers
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        host = address.rpartition(":")[0]
        if cert:
            pair = (read_file(key), read_file(cert))
            credentials = grpc.ssl_server_credentials(
                [pair], root_certificates=read_file(cacert), require_client_auth=True
            )
            port = self._server.add_secure_port(address, credentials)
        else:
            port = self._server.add_insecure_port(address)
        self.url = f"{host}:{port}"

    def _answering(self, name: str, answer: Callable[[Any], dict[str, Any]]) -> Callable[[Any, Any], Any]:
        """Return the gRPC handler of a method. ``answer`` returns the fields of the response.

        ProviderError and InputError of ``answer`` become errors of the call.
        """

        def call(request: Any, context: Any) -> Any:
            try:
                with self._lock:  # the cloud gets one call at a time
                    return message_of(f"{name}Response")(**answer(request))
            except ProviderError as error:
                code = self._codes.UNIMPLEMENTED if is_not_implemented(error.message) else self._codes.UNKNOWN
                context.abort(code, error.message)
            except InputError as error:
                context.abort(self._codes.INTERNAL, str(error))

        return call

    def _get_groups(self) -> Groups | list[NodeGroup]:
        """Return the groups, read from the cloud once until they are changed or refreshed."""
        if self._known is None:
            groups = self._groups.refresh()
            self._known = groups if isinstance(groups, Groups) else list(groups)
        return self._known

    def _find_group(self, request: Any) -> NodeGroup:
        """Return the group that a request names. Raises ProviderError if there is none."""
        for group in self._get_groups():
            if group.id == request.id:
                return group
        raise ProviderError(f"there is no node group {request.id}")

    def _refresh(self, _request: Any) -> dict[str, Any]:
        """Drop the cached groups and read them from the provider again. The response has no fields."""
        self._known = None
        self._get_groups()
        return {}

    def _node_groups(self, _request: Any) -> dict[str, Any]:
        """Return the fields of a response that lists the groups."""
        return {"nodeGroups": [_encode_group(group) for group in self._get_groups()]}

    def _group_of_node(self, request: Any) -> dict[str, Any]:
        """Return the group of a node; without fields if there is none.

        Raises ProviderError if the cloud could not determine the node's group.
        """
        node = node_from(request.node)
        labels = node.metadata.labels or {}
        groups = self._get_groups()
        if isinstance(groups, Groups) and node.name in groups.node_errors:
            raise ProviderError(groups.node_errors[node.name])
        for group in groups:
            selector = group.node_selector
            if (
                node.name in group.nodes
                or _runs(group, node.spec.provider_id)
                or (selector is not None and selector.items() <= labels.items())
            ):
                return {"nodeGroup": _encode_group(group)}
        return {"nodeGroup": {}}

    def _target_size(self, request: Any) -> dict[str, Any]:
        """Return the target size of a group: the number of its nodes if the cloud does not provide it.

        Raises ProviderError if the cloud failed to provide it.
        """
        group = self._find_group(request)
        if group.target_size_error is not None:
            raise ProviderError(group.target_size_error)
        return {"targetSize": len(group.nodes) if group.target_size is None else group.target_size}

    def _price(self, request: Any) -> dict[str, Any]:
        """Return the price of one node or pod.

        Raises ProviderError without a price, InputError for an invalid result.
        """
        question, rule = price_question(request), LEGAL_OUTCOMES[GetPrices]
        prices = self._groups.prices(question)
        if not rule.fits(question, prices):
            subject, where = ("a node", "nodes") if question.nodes else ("a pod", "pods")
            text = f"the provider returned {prices!r:.200} for {subject}: {rule.description} expected"
            raise InputError(Problem(text, self._groups.name, "Prices", where))
        (price,) = (*prices.nodes, *prices.pods)
        if isinstance(price, ApiError):
            raise ProviderError(price.message)
        return {"price": float(price)}

    def _clean_up(self, _request: Any) -> dict[str, Any]:
        """Close the provider. The response has no fields."""
        self._groups.close()
        return {}

    def _increase(self, request: Any) -> dict[str, Any]:
        """Increase the target size of a group. The response has no fields. Raises ProviderError."""
        return self._change(lambda: self._groups.increase_size(request.id, request.delta))

    def _decrease(self, request: Any) -> dict[str, Any]:
        """Decrease the target size of a group. The response has no fields. Raises ProviderError."""
        return self._change(lambda: self._groups.decrease_target_size(request.id, request.delta))

    def _delete(self, request: Any) -> dict[str, Any]:
        """Delete nodes of a group. The response has no fields. Raises ProviderError."""
        nodes = [node_from(node) for node in request.nodes]
        return self._change(lambda: self._groups.delete_nodes(request.id, nodes))

    def _change(self, change: Callable[[], None]) -> dict[str, Any]:
        """Run a change and drop the cached groups, also if it fails. Return the fields of the response: none."""
        try:
            change()
        finally:
            self._known = None  # the cached groups are outdated
        return {}

    def _instances(self, request: Any) -> dict[str, Any]:
        """Return the instances of a group, with unregistered ones, and their states.

        Raises ProviderError if the cloud failed to provide them.
        """
        group = self._find_group(request)
        if group.instances_error is not None:
            raise ProviderError(group.instances_error)
        ids: Sequence[str] = group.nodes if group.instances is None else group.instances
        all_ids = [*ids, *(id_ for id_ in group.unregistered_instances if id_ not in ids)]
        return {"instances": [instance_message(id_, group.instance_status.get(id_)) for id_ in all_ids]}

    def _template(self, request: Any) -> dict[str, Any]:
        """Return the fields of a response with the encoded template node of a group."""
        return {"nodeBytes": template_message(self._find_group(request).node_template)}

    def _options(self, request: Any) -> dict[str, Any]:
        """Return the options of a group on top of the request's defaults.

        Raises ProviderError if the group has none.
        """
        group = self._find_group(request)
        if group.options is None and group.options_error is None:
            raise ProviderError("Not implemented")
        return {"nodeGroupAutoscalingOptions": options_message(group.options_or(defaults_from(request.defaults)))}


def _runs(group: NodeGroup, instance: str) -> bool:
    """Check whether a group has an instance that still exists.

    ``instance``: provider ID; an empty one is never found.
    """
    return bool(instance) and instance in group.instance_ids and instance not in group.gone_instances


def _encode_group(group: NodeGroup) -> dict[str, Any]:
    """Return the fields of a NodeGroup message."""
    return {"id": group.id, "minSize": group.min_size, "maxSize": group.max_size, "debug": group.id}
