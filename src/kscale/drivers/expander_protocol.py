"""Messages between the client and the server of the gRPC expander (package ``grpcplugin``).

Pods and nodes are encoded in their own protobuf messages; here they are bytes, each encoded only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, Final

from kscale.effects import Ranking, RankOption, RankOptions
from kscale.effects.actions import SamePods
from kscale.errors import InputError
from kscale.libraries import library
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.protobuf.conversion import Encoded, decode, encode
from kscale.objects.protobuf.messages import ENTRY_KEY, ENTRY_VALUE, kubernetes_message, message_types, parse

__all__ = ["METHOD", "Question", "Request", "answer_of", "answered_groups", "without_environment"]

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
                self._problems[f"node group {option.group}: the expander server is told of no pods"] = None
                break
            pods += [data] * run.count
        optional = {"nodeCount": option.node_count, "debug": option.debug}  # proto3 does not encode zero values
        fields = {name: value for name, value in optional.items() if value}
        return {"nodeGroupId": option.group.encode(), "pod": pods, **fields}

    def _pod(self, run: SamePods) -> bytes | None:
        """Encode a pod; None if it cannot be encoded."""
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
            self._problems["the expander server is told of no nodes"] = None
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
                yield f"{member} of {objects} is not in the API: the expander server is not told"


def answered_groups(response: bytes) -> list[str | None]:
    """Return the group IDs of a response, in order.

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
    """Return a pod's API data without ``env`` and without mounts of projected volumes, in all containers.

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
    """A pod that is decoded on first access. Raises InputError then if it cannot be decoded."""

    def __init__(self, data: bytes) -> None:
        self._bytes = data

    @cached_property
    def data(self) -> dict[str, Any]:
        return decode("Pod", self._bytes).data

    @cached_property
    def pod(self) -> Pod:
        return from_dict(self.data, Pod)


class _Pods:
    """Decoded pods (:class:`~kscale.effects.actions.SamePods`)."""

    __slots__ = ("_read", "count")

    def __init__(self, read: _Read) -> None:
        self._read, self.count = read, 0

    @property
    def data(self) -> dict[str, Any]:
        return self._read.data

    @property
    def pod(self) -> Pod:
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
    """Return a pod's message without the fields that differ between replicas."""
    message = kubernetes_message("Pod").FromString(pod)
    for field in ("name", "generateName", "uid", "resourceVersion", "creationTimestamp", "generation"):
        message.metadata.ClearField(field)
    message.metadata.DiscardUnknownFields()  # managed fields
    message.ClearField("status")
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def answer_of(ranking: Ranking) -> bytes:
    """Encode a ranking as a response."""
    types = _types()
    options = [types["Option"](nodeGroupId=(group or "").encode()) for group in ranking.groups]
    data: bytes = types["BestOptionsResponse"](options=options).SerializeToString()
    return data
