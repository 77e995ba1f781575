"""What the grpc expander's client and server say to each other: proto3 messages of package ``grpcplugin``.

``BestOptionsRequest``: options = 1, map of group id to template node = 3. ``BestOptionsResponse``: options = 1.
``Option``: group id = 1, node count = 2, debug = 3, pods = 5. Pods and nodes are in their own protobuf form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kscale.ca.expander.types import GrpcOption, PodRun, RankOptions
from kscale.ca.scale_up.compared import without_environment
from kscale.errors import InputError
from kscale.objects.decode import to_dict
from kscale.objects.protobuf.encoding import Encoded, encode
from kscale.objects.protobuf.wire import VARINT, WireError, bytes_field, fields_of, key, varint

__all__ = ["METHOD", "Request", "answered_groups"]

METHOD: Final = "/grpcplugin.Expander/BestOptions"


class Request:
    """A question as bytes (``data``). ``warnings``: objects that cannot be encoded, and members that the API does not
    have.

    One pod that cannot be encoded leaves all pods of its option out, one node all nodes, as upstream.
    """

    def __init__(self, question: RankOptions) -> None:
        self._question = question
        self._unknown: dict[str, Counter[str]] = {"Pod": Counter(), "Node": Counter()}
        self._problems: dict[str, None] = {}
        self._pods: dict[str | int, bytes | None] = {}
        options = [bytes_field(1, self._option(option)) for option in question.options]
        self.data = b"".join([*options, *self._nodes()])
        self.warnings = [*self._problems, *self._left_out()]

    def _option(self, option: GrpcOption) -> bytes:
        parts = [bytes_field(1, option.node_group_id.encode())]
        if option.node_count:
            parts.append(key(2, VARINT) + varint(option.node_count))
        if option.debug:
            parts.append(bytes_field(3, option.debug.encode()))
        pods: list[bytes] = []
        for run in option.pods:
            data = self._pod(run)
            if data is None:
                pods = []
                self._problems[f"node group {option.node_group_id}: the expander server is told of no pods"] = None
                break
            pods += [bytes_field(5, data)] * run.count
        return b"".join([*parts, *pods])

    def _pod(self, run: PodRun) -> bytes | None:
        name = run.pod.key
        known = id(run.pod) if run.record is None else name
        if known not in self._pods:
            data = to_dict(run.pod) if run.record is None else run.record.data()
            if name in self._question.compared:
                data = without_environment(data)
            self._pods[known] = self._encoded("Pod", name, data)
        return self._pods[known]

    def _nodes(self) -> Iterator[bytes]:
        encoded = {
            group: self._encoded("Node", node.name, to_dict(node)) for group, node in self._question.nodes.items()
        }
        if None in encoded.values():
            self._problems["the expander server is told of no nodes"] = None
            return
        for group, data in encoded.items():
            yield bytes_field(3, bytes_field(1, group.encode()) + bytes_field(2, data or b""))

    def _encoded(self, kind: str, name: str, data: dict[str, object]) -> bytes | None:
        try:
            found: Encoded = encode(kind, data)
        except InputError as error:
            for problem in error.problems:
                self._problems[f"{kind} {name}: {problem}"] = None
            return None
        self._unknown[kind].update(dict.fromkeys(found.unknown, 1))
        return found.data

    def _left_out(self) -> Iterator[str]:
        for kind, found in self._unknown.items():
            for member, count in sorted(found.items()):
                objects = f"{count:,} {kind}{'s' * (count > 1)}"
                yield f"{member} of {objects} is not in the API: the expander server is not told"


def answered_groups(response: bytes) -> list[str | None]:
    """The group ids of an answer, in its order. Raises WireError for bytes that are no answer."""
    return [_group(option) for number, option in fields_of(response) if number == 1]


def _group(option: bytes) -> str:
    group = b""
    for number, value in fields_of(option):
        if number == 1:
            group = value
    try:
        return group.decode()
    except UnicodeDecodeError:
        raise WireError("a group id that is not UTF-8") from None
