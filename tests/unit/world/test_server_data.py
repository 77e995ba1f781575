"""What servers send is read in one place, and whatever they send, an error of it has a name."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kscale
from kscale.errors import InputError
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.resource import ResourceClaim
from kscale.snapshot.cluster import Cluster
from kscale.world.kubernetes.stores import ClusterSink, ObjectSink
from kscale.world.protocols import Change, Watch
from kscale.world.server_data import (
    UnreadableError,
    UnreadableObjectError,
    read_change,
    read_event,
    read_json,
    read_list,
    read_object,
)

SOURCE = Path(kscale.__file__).parent
CLAIM = "resource.k8s.io/v1"
CLAIMS = Watch(kind="ResourceClaim", api_version=CLAIM, typed=True)


def deep(levels: int = 100_000) -> str:  # beyond any recursion limit: other libraries in the process raise it
    return '{"a":' * levels + "1" + "}" * levels


def claim(name: str, *, version: str = "7", parameters: str = '{"a":1}', requests: str = "[]") -> str:
    """A ResourceClaim as text: what is nested so deeply json cannot write."""
    config = f'[{{"opaque":{{"driver":"d","parameters":{parameters}}}}}]'
    metadata = f'{{"name":"{name}","namespace":"team","uid":"u-{name}","resourceVersion":"{version}"}}'
    return f'{{"metadata":{metadata},"spec":{{"devices":{{"requests":{requests},"config":{config}}}}}}}'


def page(*items: str, kind: str = "ResourceClaimList") -> bytes:
    head = f'"kind":"{kind}","apiVersion":"{CLAIM}","metadata":{{"resourceVersion":"9"}}'
    return f'{{{head},"items":[{",".join(items)}]}}'.encode()


def event(type_: str, item: str) -> bytes:
    named = f'{{"kind":"ResourceClaim","apiVersion":"{CLAIM}",{item[1:]}'
    return f'{{"type":"{type_}","object":{named}}}\n'.encode()


# -- the decoder -----------------------------------------------------------------------------------------------------

DAMAGED = [
    b"", b"{", b"[]", b"5", b"null", b"<html>", b"\xff\xfe", b'"\\ud800"', b"9" * 5000, b"-", b'{"a":1e999999}',
    b"[" * 100_000, b"{" * 100_000, b'{"a":' * 100_000, deep(50_000).encode(), b'{"metadata":5}', b'{"metadata":[]}',
    b'{"metadata":{"resourceVersion":5}}', b'{"items":5,"kind":"PodList"}', b'{"kind":5,"items":[]}',
    b'{"kind":"a","kind":"b"}', b'{"kind":"Pod\xffList","items":[]}',
    b'{"apiVersion":"v\xff","kind":"PodList","items":[]}',
    b'{"type":5,"object":{}}', b'{"type":"ADDED"}', b'{"object":{}}',
    b'{"type":"ADDED","object":' + deep().encode() + b"}",
    b'{"metadata":{"continue":{}}}', b'{"metadata":{"remainingItemCount":' + b"9" * 400 + b"}}", b"\x00" * 10,
]  # fmt: skip


@pytest.mark.parametrize("data", DAMAGED, ids=lambda data: repr(data[:30]))
def test_any_unreadable_data_raises_a_named_error(data: bytes) -> None:
    def attempt(read: Any, *arguments: Any) -> None:
        with suppress(UnreadableError):
            read(data, *arguments)

    for type_ in (dict[str, Any], list[int], str, Node):
        attempt(read_json, type_)
    for type_ in (Node, Pod, ResourceClaim):
        attempt(read_object, type_)
        assert read_change(data, type_) is None
    attempt(read_list)
    attempt(read_event)


def test_a_list_is_split_however_deep_its_items_are() -> None:
    result = read_list(page(claim("a"), claim("b", parameters=deep()), claim("c")))
    assert (result.kind, result.resource_version, len(result.items)) == ("ResourceClaimList", "9", 3)
    with pytest.raises(UnreadableObjectError) as refused:
        read_object(result.items[1], ResourceClaim)
    problem = refused.value.problems[0]
    assert (problem.message, problem.object) == ("nested too deeply", "team/b")
    assert problem.field.startswith("spec.devices.config[0].opaque.parameters.a")
    assert read_object(result.items[2], ResourceClaim).name == "c"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"metadata": {"name": "n", "creationTimestamp": "noon"}}, "metadata.creationTimestamp"),
        ({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "timeAdded": ""}]}}, "spec.taints[0].timeAdded"),
        (
            {"metadata": {"name": "n"}, "status": {"conditions": [{}, {"lastTransitionTime": "2026-02-30T00:00:00Z"}]}},
            "status.conditions[1].lastTransitionTime",
        ),
        ({"metadata": {"name": ""}}, "metadata.name"),
        ({"metadata": {"name": "n", "generation": 2**63}}, "metadata.generation"),
        ({"metadata": {"name": "n", "labels": {"a": 5}}}, "metadata.labels.a"),
    ],
)
def test_impossible_values_are_reported_by_field(data: dict[str, Any], field: str) -> None:
    with pytest.raises(UnreadableObjectError) as refused:
        read_object(json.dumps(data).encode(), Node)
    assert refused.value.problems[0].field == field


# -- objects of informers --------------------------------------------------------------------------------------------


class _Sinks:
    """Both ways to hold objects of a kind, as one looks at them from outside."""

    def __init__(self, *, typed: bool) -> None:
        self.changes: list[Change] = []
        self.cluster = Cluster(texts="pending")
        self.sink: ObjectSink | ClusterSink = (
            ObjectSink(CLAIMS, self.changes.append) if typed else ClusterSink(self.cluster, "ResourceClaim")
        )

    def listed(self, *items: str) -> None:
        self.sink.begin()
        assert self.sink.read_page(page(*items)) == ("9", "")
        self.sink.settle()

    @property
    def versions(self) -> dict[str, str]:
        objects = (
            self.sink.objects if isinstance(self.sink, ObjectSink) else self.cluster.objects.get("ResourceClaim", {})
        )
        return {each.name: each.metadata.resource_version for each in objects.values()}


@pytest.fixture(params=["typed", "columns"])
def sinks(request: pytest.FixtureRequest) -> _Sinks:
    return _Sinks(typed=request.param == "typed")


UNREADABLE = [
    pytest.param({"parameters": deep()}, id="deep"),
    pytest.param({"requests": "5"}, id="wrong type"),
    pytest.param({"requests": '[{"name":5}]'}, id="wrong field"),
]


@pytest.mark.parametrize("odd", UNREADABLE)
def test_an_unreadable_object_of_a_list_hides_no_other(sinks: _Sinks, odd: dict[str, str]) -> None:
    sinks.listed(claim("a"), claim("b", **odd), claim("c"))
    assert sinks.versions == {"a": "7", "c": "7"}
    assert sinks.sink.unreadable == 1
    sinks.listed(claim("a"), claim("b", version="8"), claim("c"))  # a good version of it came
    assert sinks.versions == {"a": "7", "b": "8", "c": "7"}


@pytest.mark.parametrize("odd", UNREADABLE)
def test_an_object_keeps_the_version_that_was_read_last(sinks: _Sinks, odd: dict[str, str]) -> None:
    sinks.listed(claim("a"), claim("b"))
    sinks.listed(claim("a"), claim("b", version="8", **odd))
    assert sinks.versions == {"a": "7", "b": "7"}
    result = sinks.sink.read_events(event("MODIFIED", claim("b", version="9", **odd)) + event("ADDED", claim("c")))
    assert (result.events, result.version) == (2, "9")  # the newest, not the last
    assert sinks.versions == {"a": "7", "b": "7", "c": "7"}
    assert sinks.sink.unreadable == 2
    result = sinks.sink.read_events(event("MODIFIED", claim("b", version="10")))
    assert (result.version, sinks.versions["b"]) == ("10", "10")


@pytest.mark.parametrize("odd", UNREADABLE)
def test_unreadable_deleted_object_is_removed(sinks: _Sinks, odd: dict[str, str]) -> None:
    sinks.listed(claim("a"), claim("b"))
    result = sinks.sink.read_events(event("DELETED", claim("b", version="9", **odd)))
    assert (result.version, sinks.versions) == ("9", {"a": "7"})


@pytest.mark.parametrize(
    "item", ["null", "5", "[]", "{}", '{"metadata":{"name":5}}', '{"metadata":{"name":"b","namespace":[]}}', deep()]
)
def test_an_item_without_an_identity_makes_its_list_fail(sinks: _Sinks, item: str) -> None:
    """Otherwise what it stands for would be taken for deleted."""
    sinks.listed(claim("a"), claim("b"))
    sinks.sink.begin()
    with pytest.raises(InputError, match="without an identity"):
        sinks.sink.read_page(page(claim("a"), item))
    assert sinks.versions == {"a": "7", "b": "7"}
    sinks.listed(claim("b"))
    assert sinks.versions == {"b": "7"}


@pytest.mark.parametrize("odd", UNREADABLE)
def test_unreadable_objects_are_logged_once_by_name(
    sinks: _Sinks, odd: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        sinks.listed(claim("a"), claim("b", **odd))
    assert sinks.sink.unreadable == 3
    (message,) = [record.getMessage() for record in caplog.records]
    assert "team/b" in message
    assert "spec.devices." in message


@pytest.mark.parametrize(
    "metadata",
    ["null", "5", "[]", '{"resourceVersion":5}', '{"resourceVersion":"5","annotations":[]}', deep()],
)
def test_malformed_bookmark_is_not_an_internal_error(sinks: _Sinks, metadata: str) -> None:
    sinks.listed(claim("a"))
    line = f'{{"type":"BOOKMARK","object":{{"kind":"ResourceClaim","apiVersion":"{CLAIM}","metadata":{metadata}}}}}\n'
    with suppress(InputError):  # the watch begins anew
        sinks.sink.read_events(line.encode())
    assert sinks.versions == {"a": "7"}


@pytest.mark.parametrize("body", DAMAGED, ids=lambda data: repr(data[:30]))
def test_a_list_or_watch_of_any_shape_fails_by_name(sinks: _Sinks, body: bytes) -> None:
    sinks.listed(claim("a"))
    line = body.replace(b"\n", b"") + b"\n"
    for attempt in (lambda: sinks.sink.read_events(line), lambda: (sinks.sink.begin(), sinks.sink.read_page(body))):
        with suppress(InputError):
            attempt()
    assert sinks.versions == {"a": "7"}


# -- the rule --------------------------------------------------------------------------------------------------------

DECODERS = {"world/server_data.py"}
"""Modules that may decode what a server sent."""

NO_SERVER: dict[str, set[str]] = {
    "drivers/manifests/autoscalers.py": {"int"},  # a flag of the manifest to write
    "drivers/leader_election.py": {"int"},  # of a random number
    "world/kubernetes/reflector.py": {"int"},  # of a random number
    "world/kubernetes/client.py": {"int"},  # of tokens
    "world/kubernetes/http_connection.py": {"int"},  # of digits that a pattern matched, bounded in number
    "world/rpc.py": {"int"},  # of a boolean
    "world/serve/app.py": {"int"},  # ports of flags
    "world/nodegroups/static.py": {"msgspec.json.decode"},  # of a file that kscale wrote
    "world/server_data.py": {"int"},
}
"""By module, what looks like decoding and has nothing to do with a server."""


def _decoding(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what) of each call that may decode or convert."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        text = ast.unparse(node.func)
        last = text.rpartition(".")[2]
        loads = text.startswith("json.") and last.startswith("load")
        decodes = text.startswith("msgspec.") and "(" not in text and last in ("decode", "convert", "Decoder")
        if loads or decodes or text in ("int", "decoder", "from_json", "convert"):
            yield node.lineno, text


@pytest.mark.parametrize("folder", ["world", "drivers"])
def test_server_data_is_decoded_only_in_known_modules(folder: str) -> None:
    others = []
    for path in sorted(SOURCE.joinpath(folder).rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name in DECODERS or name.startswith("world/simulated/"):  # there is no server in a simulated world
            continue
        allowed = NO_SERVER.get(name, set())
        others += [
            f"{name}:{line}: {what}" for line, what in _decoding(ast.parse(path.read_text())) if what not in allowed
        ]
    assert others == [], "kscale.world.server_data decodes what servers send"
