"""Client and server of the gRPC expander, and their messages (upstream: ``expander/grpcplugin``).

Pods and nodes are encoded in their own protobuf messages; here they are bytes, each encoded only once.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from kscale.effects import ApiError, Ranking, RankOption, RankOptions
from kscale.effects.actions import SamePods
from kscale.errors import InputError, Problem
from kscale.files import read_input
from kscale.imports import library
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.protobuf.conversion import Encoded, decode, encode
from kscale.objects.protobuf.messages import ENTRY_KEY, ENTRY_VALUE, kubernetes_message, message_types, parse
from kscale.world.protocols import Ranker
from kscale.world.rpc import MOST_BYTES, RpcServer, channel, error_text, grpc_library, load_pair, read_certificates

__all__ = [
    "METHOD",
    "ExpanderServer",
    "GrpcExpander",
    "Question",
    "Request",
    "answer_of",
    "answered_groups",
    "without_environment",
]

METHOD: Final = "/grpcplugin.Expander/BestOptions"
_MESSAGES: Final = """
Option: 1 nodeGroupId bytes, 2 nodeCount int32?, 3 debug text?, 5 pod bytes*
BestOptionsRequest: 1 options Option*, 3 nodeMap bytes{}
BestOptionsResponse: 1 options Option*
"""


@cache
def _types() -> dict[str, Any]:
    """Return the protobuf message classes of the protocol by name."""
    return message_types("grpcplugin", parse(_MESSAGES).values(), syntax="proto3")


class Request:
    """A ranking request as bytes (``data``).

    ``warnings``: messages about objects that cannot be encoded, and about fields that the API does not have. As
    upstream, one pod that cannot be encoded omits all pods of its option, and one node omits all nodes.
    """

    def __init__(self, question: RankOptions) -> None:
        self._question = question
        self._unknown: dict[str, Counter[str]] = {"Pod": Counter(), "Node": Counter()}
        self._problems: dict[str, None] = {}
        self._pods: dict[int, bytes | None] = {}
        options = [self._option(option) for option in question.options]
        message = _types()["BestOptionsRequest"](options=options, nodeMap=list(self._nodes()))
        self.data: bytes = message.SerializeToString()
        self.warnings = (*self._problems, *self._describe_omitted_fields())

    def _option(self, option: RankOption) -> dict[str, Any]:
        """Return the fields of an Option message. If a pod cannot be encoded, it has no pods."""
        pods: list[bytes] = []
        for run in option.pods:
            data = self._pod(run)
            if data is None:
                pods = []
                self._problems[f"node group {option.group}: no pods are sent to the expander server"] = None
                break
            pods += [data] * run.count
        optional = {"nodeCount": option.node_count, "debug": option.debug}  # proto3 does not encode zero values
        fields = {name: value for name, value in optional.items() if value}
        return {"nodeGroupId": option.group.encode(), "pod": pods, **fields}

    def _pod(self, run: SamePods) -> bytes | None:
        """Encode a run's pod as protobuf, once for all options that share it; None if it cannot be encoded."""
        pod_id = id(run.pod)  # options share pods
        if pod_id not in self._pods:
            data, name = run.data, run.pod.key
            if name in self._question.bare:
                data = without_environment(data)
            self._pods[pod_id] = self._encode("Pod", name, data)
        return self._pods[pod_id]

    def _nodes(self) -> Iterator[dict[str, Any]]:
        """Yield the entries of the map from group to encoded node; none if a node cannot be encoded."""
        encoded = {
            group: self._encode("Node", node.name, to_dict(node)) for group, node in self._question.nodes.items()
        }
        if None in encoded.values():
            self._problems["no nodes are sent to the expander server"] = None
            return
        for group, data in encoded.items():
            yield {ENTRY_KEY: group, ENTRY_VALUE: data}

    def _encode(self, kind: str, name: str, data: dict[str, object]) -> bytes | None:
        """Encode an object; None if it cannot be encoded. Problems and unknown fields are recorded for ``warnings``."""
        try:
            encoded: Encoded = encode(kind, data)
        except InputError as error:
            for problem in error.problems:
                self._problems[f"{kind} {name}: {problem}"] = None
            return None
        self._unknown[kind].update(dict.fromkeys(encoded.unknown, 1))
        return encoded.data

    def _describe_omitted_fields(self) -> Iterator[str]:
        """Yield a message for each unknown field, with the number of objects that have it."""
        for kind, members in self._unknown.items():
            for member, count in sorted(members.items()):
                objects = f"{count:,} {kind}{'s' * (count > 1)}"
                yield f"{member} of {objects} is not in the API and not sent to the expander server"


def answered_groups(response: bytes) -> list[str | None]:
    """Return the group IDs of a response, in order; an option without ID has an empty text.

    Raises ValueError if the bytes are not a valid response or an ID is not UTF-8.
    """
    broken = library("google.protobuf.message", "the protocol of expanders").DecodeError

    try:
        message = _types()["BestOptionsResponse"].FromString(response)
    except broken:
        raise ValueError(f"{len(response):,} bytes that are no answer") from None
    try:
        return [option.nodeGroupId.decode() for option in message.options]
    except UnicodeDecodeError:
        raise ValueError("a group id that is not UTF-8") from None


def without_environment(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's API data without ``env`` and mounts of projected volumes in its containers and init containers.

    Upstream's comparison of pods changes a pod in this way (``PodSpecSemanticallyEqual``).
    """
    spec = pod.get("spec") or {}
    projected = {volume.get("name") for volume in spec.get("volumes") or () if volume.get("projected") is not None}

    def bare(container: Mapping[str, Any]) -> dict[str, Any]:
        """Return a container without environment and without mounts of projected volumes."""
        remaining = {name: value for name, value in container.items() if name != "env"}
        if remaining.get("volumeMounts"):
            remaining["volumeMounts"] = [
                mount for mount in remaining["volumeMounts"] if mount.get("name") not in projected
            ]
        return remaining

    lists = {name: [bare(each) for each in spec[name]] for name in ("containers", "initContainers") if spec.get(name)}
    return {**pod, "spec": {**spec, **lists}}


class _Read:
    """A pod that is decoded when ``data`` (API data) or ``pod`` is first read. Raises InputError if that fails."""

    def __init__(self, data: bytes) -> None:
        self._bytes = data

    @cached_property
    def data(self) -> dict[str, Any]:
        """Return the API data, decoded on first access. Raises InputError."""
        return decode("Pod", self._bytes).data

    @cached_property
    def pod(self) -> Pod:
        """Return the pod, decoded on first access. Raises InputError."""
        return from_dict(self.data, Pod)


class _Pods(msgspec.Struct, eq=False):
    """A run of ``count`` equivalent pods, decoded on first access (:class:`~kscale.effects.actions.SamePods`)."""

    _read: _Read
    count: int = 0

    @property
    def data(self) -> dict[str, Any]:
        """Return the API data of the pod that stands for the run. Raises InputError if it cannot be decoded."""
        return self._read.data

    @property
    def pod(self) -> Pod:
        """Return the pod that stands for the run. Raises InputError if it cannot be decoded."""
        return self._read.pod


class Question:
    """The ranking request of a client, decoded (``asked``). ``warnings``: messages about nodes that cannot be decoded.

    Pods are decoded when they are used; pods that differ only in names and fields of the API server are decoded once.
    Raises InputError if the bytes are not a valid request.
    """

    def __init__(self, data: bytes) -> None:
        broken = library("google.protobuf.message", "the protocol of expanders").DecodeError

        self.warnings: list[str] = []
        self._reads: dict[bytes, _Read] = {}
        self._cache: dict[bytes, _Read] = {}
        try:
            message = _types()["BestOptionsRequest"].FromString(data)
            options = [
                RankOption(
                    group=option.nodeGroupId.decode(errors="replace"),
                    node_count=option.nodeCount,
                    debug=option.debug,
                    pods=self._runs(option.pod),
                )
                for option in message.options
            ]
        except broken:
            raise InputError(f"{len(data):,} bytes that are no question") from None
        nodes = {}
        for entry in message.nodeMap:
            name = getattr(entry, ENTRY_KEY)
            try:
                nodes[name] = from_dict(decode("Node", getattr(entry, ENTRY_VALUE)).data, Node)
            except InputError as error:
                self.warnings.append(f"the node of group {name} cannot be read: {error}")
        self.asked = RankOptions(options=options, nodes=nodes)

    def _runs(self, pods: Iterable[bytes]) -> list[_Pods]:
        """Group consecutive equivalent pods into runs, in order."""
        runs: list[_Pods] = []
        last = None
        for data in pods:
            read = self._read(data)
            if read is not last:
                last = read
                runs.append(_Pods(read))
            runs[-1].count += 1
        return runs

    def _read(self, data: bytes) -> _Read:
        """Return the (lazily decoded) pod of a message. Equivalent pods share one object."""
        cached = self._cache.get(data)  # options share pods
        if cached is None:
            cached = self._cache[data] = self._reads.setdefault(_without_names(data), _Read(data))
        return cached


def _without_names(pod: bytes) -> bytes:
    """Return the bytes of a pod's message without status and without the metadata that differs between replicas."""
    message = kubernetes_message("Pod").FromString(pod)
    for field in ("name", "generateName", "uid", "resourceVersion", "creationTimestamp", "generation"):
        message.metadata.ClearField(field)
    message.metadata.DiscardUnknownFields()  # managed fields
    message.ClearField("status")
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def answer_of(ranking: Ranking) -> bytes:
    """Encode a ranking as the bytes of a response: the group IDs in order, None as an empty ID."""
    types = _types()
    options = [types["Option"](nodeGroupId=(group or "").encode()) for group in ranking.groups]
    data: bytes = types["BestOptionsResponse"](options=options).SerializeToString()
    return data


TIMEOUT: Final = 5.0


class GrpcExpander:
    """Client of a gRPC expander server; it can be ``rank`` of :func:`kscale.scale_up` and :func:`kscale.ca.expand`.

    It answers :class:`~kscale.effects.RankOptions` by a request to the server at ``url`` (``host:port``) over TLS
    (extra ``[grpc]``). ``cert`` is the file with the CA certificates, PEM, for the server's certificate; there is no
    connection without TLS. A call takes at most ``timeout`` seconds, a response at most 128 MiB. A failure is returned
    as an :class:`~kscale.effects.ApiError`. It connects on first use and is thread-safe.

    Raises InputError without ``url`` or ``cert`` or for a file without certificates, OSError for one that cannot be
    read, :class:`~kscale.errors.MissingExtraError` without grpcio.
    """

    def __init__(self, url: str, cert: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        if not os.fspath(cert):
            raise InputError("GRPC Expander Cert not specified, insecure connections not allowed")
        if not url:
            raise InputError("the grpc expander needs the url of its server")
        grpc = grpc_library("the grpc expander")
        self._errors: Any = grpc.RpcError
        self._timeout = timeout
        credentials = grpc.ssl_channel_credentials(root_certificates=read_certificates(cert))
        self._channel = channel(url, credentials, what="the grpc expander")
        self._ask = self._channel.unary_unary(METHOD)

    def __call__(self, question: RankOptions) -> Ranking | ApiError:
        try:
            request = Request(question)
        except UnicodeEncodeError:
            return ApiError("rpc error: code = Internal desc = grpc: error while marshaling: invalid UTF-8")
        try:
            return Ranking(groups=tuple(answered_groups(self._request(request.data))), warnings=request.warnings)
        except ValueError as error:
            text = f"rpc error: code = Internal desc = grpc: failed to unmarshal the received message: {error}"
            return ApiError(text)
        except self._errors as error:
            return ApiError(error_text(error))

    def _request(self, request: bytes) -> bytes:
        """Send a request and return the response, both as bytes. Raises grpc.RpcError if the call fails."""
        response: bytes = self._ask(request, timeout=self._timeout)
        return response

    def close(self) -> None:
        """Close the connection; calls in progress fail."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_log = logging.getLogger(__name__)
_CALLS: Final = 4


class ExpanderServer(RpcServer):
    """gRPC server of the ranker ``rank``, over TLS, while it is entered as a context manager.

    ``address``: ``host:port`` (port 0: any free port); ``url``: the actual address. ``cert``, ``key``: files in PEM.
    ``client_ca``: clients must present a certificate that this file's CA has signed (upstream's presents none). An
    :class:`~kscale.effects.ApiError` or exception of the ranker becomes an error of the call: the autoscaler then keeps
    all options.

    Raises InputError for files that cannot be used and an address that is taken, MissingExtraError without grpcio.
    """

    def __init__(self, rank: Ranker, address: str, *, cert: str, key: str, client_ca: str = "") -> None:
        grpc = grpc_library("serving an expander")
        self._codes: Any = grpc.StatusCode
        self._rank = rank
        limits = [("grpc.max_receive_message_length", MOST_BYTES), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(_CALLS), options=limits)
        service, _, method = METHOD.removeprefix("/").rpartition("/")
        handler = grpc.unary_unary_rpc_method_handler(self._best_options)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        credentials = grpc.ssl_server_credentials(
            [_read_key_pair(cert, key)],
            root_certificates=read_input(client_ca) if client_ca else None,
            require_client_auth=bool(client_ca),
        )
        try:
            port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise InputError(Problem(f"nothing can be served at {address}: {error}")) from None
        self.url = f"{address.rpartition(':')[0]}:{port}"

    def _best_options(self, data: bytes, context: Any) -> bytes:
        """Handle a call: decode the request, rank its options, and return the encoded response.

        An error is logged and ends the call with the status UNKNOWN.
        """
        try:
            question = Question(data)
            for warning in question.warnings:
                _log.warning("%s", warning)
            ranking = self._rank(question.asked)
        except InputError as error:
            ranking = ApiError(str(error))
        except Exception as error:  # noqa: BLE001  # a user's function may raise anything
            _log.exception("the ranker failed")
            ranking = ApiError(f"{type(error).__name__}: {error}")
        if isinstance(ranking, ApiError):
            _log.error("no answer: %s", ranking.message)
            context.abort(self._codes.UNKNOWN, ranking.message)
        assert not isinstance(ranking, ApiError)  # abort raises
        for warning in ranking.warnings:
            _log.warning("%s", warning)
        _log.info("of %d options: %s", len(question.asked.options), ", ".join(map(str, ranking.groups)) or "none")
        return answer_of(ranking)


def _read_key_pair(cert: str, key: str) -> tuple[bytes, bytes]:
    """Read the files of a certificate and its key, and return (key, certificate), both PEM.

    Raises InputError if a file cannot be read or the two do not match. gRPC itself would only report that the address
    cannot be bound.
    """
    chain, secret = read_input(cert), read_input(key)
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), chain, secret)
    except ssl.SSLError as error:
        raise InputError(Problem(f"no certificate and key that belong together: {error}", f"{cert}, {key}")) from None
    return secret, chain
