"""The protobuf form of pods and nodes, byte for byte as Go writes it.

``data/protobuf.jsonl.gz`` was recorded with the Go types of k8s.io/api v0.37.2: every object was decoded by
``sigs.k8s.io/json`` as the API machinery does, its ``managedFields`` were taken off, and ``Marshal`` was called. The
rows are usual objects, odd ones, and random ones in which every member of every message occurs. Before they were
picked, 80,000 objects (6,000 random ones, every pod and node of the recorded answers) were compared and equal.
"""

from __future__ import annotations

import base64
import gzip
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.errors import InputError, MissingExtraError
from kscale.objects.api.core import Node, Pod
from kscale.objects.decode import decode_plain, from_dict, to_dict
from kscale.objects.protobuf.conversion import decode, encode
from kscale.objects.protobuf.messages import message, message_types, names, parse

_RECORDED = gzip.decompress((Path(__file__).parent / "data" / "protobuf.jsonl.gz").read_bytes()).splitlines()


@pytest.mark.parametrize("line", _RECORDED, ids=range(len(_RECORDED)))
def test_the_bytes_are_those_of_go(line: bytes) -> None:
    row = decode_plain(line)
    encoded = encode(row["object"]["kind"], row["object"]["object"])
    assert encoded.data == base64.b64decode(row["bytes"])


def _members(name: str, data: dict[str, Any]) -> set[tuple[str, str]]:
    """What of the tables an object uses."""
    result: set[tuple[str, str]] = set()
    of = message(name)
    assert of is not None
    for field in of.fields:
        if field.member == ".":
            result |= _members(field.type, data)
            continue
        value = data.get(field.member)
        if not value and value not in (0, False, ""):
            continue
        result.add((name, field.member))
        if message(field.type) is not None:
            parts = {"*": lambda v: v, "{}": lambda v: v.values()}.get(field.form, lambda v: [v])(value)
            result |= {each for part in parts if part for each in _members(field.type, part)}
    return result


def test_the_record_uses_every_member_of_every_message() -> None:
    members: set[tuple[str, str]] = set()
    for line in _RECORDED:
        row = decode_plain(line)["object"]
        members |= _members(row["kind"], row["object"])
    every = {(name, field.member) for name in names() for field in _fields(name) if field.member != "."}
    assert every - members == set()
    assert len(every) == 660


def _fields(name: str) -> tuple[Any, ...]:
    of = message(name)
    assert of is not None
    return of.fields


def test_numbers_and_members_occur_once_in_a_message() -> None:
    for name in names():
        numbers = [field.number for field in _fields(name)]
        assert numbers == sorted(set(numbers)), name


@pytest.mark.parametrize(("kind", "type_"), [("Pod", Pod), ("Node", Node)])
def test_a_struct_loses_nothing_that_it_has(kind: str, type_: type) -> None:
    """What kscale's structs keep of an object is known to the messages, and encodes as it does in the object."""
    for line in _RECORDED:
        row = decode_plain(line)["object"]
        if row["kind"] != kind:
            continue
        try:
            fields = to_dict(from_dict(row["object"], type_))
        except InputError:
            continue  # a random text where the struct wants, say, a known form
        assert not encode(kind, fields).unknown
        assert encode(kind, to_dict(from_dict(fields, type_))).data == encode(kind, fields).data


def test_unknown_members_are_named_and_counted() -> None:
    containers = [{"name": "a", "made": {"up": 1}}, {"name": "b", "made": None}]
    encoded = encode("Pod", {"kind": "Pod", "spec": {"containers": containers}, "more": 1})
    assert encoded.unknown == {"spec.containers.made": 2, "more": 1}
    assert encoded.data == encode("Pod", {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}).data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"spec": {"priority": 2**31}}, "spec.priority: a whole number of 32 bits is expected, not a number"),
        ({"spec": {"priority": 1.0}}, "spec.priority: a whole number of 32 bits is expected, not a number"),
        ({"spec": {"priority": True}}, "spec.priority: a whole number of 32 bits is expected, not true or false"),
        ({"spec": {"hostNetwork": "true"}}, "spec.hostNetwork: true or false is expected, not a text"),
        ({"spec": {"containers": {}}}, "spec.containers: a list is expected, not an object"),
        ({"spec": {"containers": [{}, {"name": 5}]}}, "spec.containers[1].name: a text is expected, not a number"),
        ({"spec": []}, "spec: an object is expected, not a list"),
        ({"metadata": {"creationTimestamp": ""}}, 'metadata.creationTimestamp: "" is not an RFC 3339 time'),
        ({"metadata": {"creationTimestamp": 5}}, "metadata.creationTimestamp: a time is expected, not a number"),
        ({"metadata": {"labels": {"a/b": 1}}}, "metadata.labels[a/b]: a text is expected, not a number"),
        ({"metadata": {"labels": {"a": "b", 1: "c"}}}, "metadata.labels: a text is expected, not a number"),
        ({"metadata": {"name": "\ud800"}}, "metadata.name: not UTF-8"),
        ({"spec": {"overhead": {"cpu": "x"}}}, 'spec.overhead[cpu]: "x" is not a quantity'),
    ],
)
def test_values_unreadable_by_go_are_named(data: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as refused:
        encode("Pod", data)
    assert str(refused.value) == text


def test_numbers_of_a_text_are_taken_as_written() -> None:
    data = decode_plain(b'{"status": {"capacity": {"a": 1e3, "b": 1.50}}}')
    written = encode("Node", {"status": {"capacity": {"a": "1e3", "b": "1500m"}}})
    assert encode("Node", data).data == written.data
    with pytest.raises(InputError, match=r"podCIDR: a text is expected, not a number"):
        encode("Node", decode_plain(b'{"spec": {"podCIDR": 1.5}}'))


def _message_bytes(number: int, data: bytes) -> bytes:
    """A field with a length, of a number up to 15."""
    return bytes([number << 3 | 2, len(data)]) + data


@pytest.mark.parametrize("line", _RECORDED, ids=range(len(_RECORDED)))
def test_decoded_message_is_encoded_unchanged(line: bytes) -> None:
    row = decode_plain(line)
    kind, data = row["object"]["kind"], base64.b64decode(row["bytes"])
    result = decode(kind, data)
    assert not result.unknown
    assert encode(kind, result.data).data == data


@pytest.mark.parametrize(("kind", "type_"), [("Pod", Pod), ("Node", Node)])
def test_a_struct_is_the_same_from_both_forms(kind: str, type_: type) -> None:
    compared = 0
    for line in _RECORDED:
        row = decode_plain(line)["object"]
        if row["kind"] != kind:
            continue
        try:
            fields = to_dict(from_dict(row["object"], type_))
        except InputError:
            continue  # a random text where the struct wants, say, a known form
        result = to_dict(from_dict(decode(kind, encode(kind, fields).data).data, type_))
        assert encode(kind, result).data == encode(kind, fields).data
        compared += 1
    assert compared > 3


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


@given(
    st.dictionaries(_TEXTS, _TEXTS, max_size=4),
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.one_of(st.integers(-(2**31), 2**31 - 1), _TEXTS), max_size=3),
    st.datetimes(timezones=st.just(UTC)),
)
def test_any_values(labels: dict[str, str], priority: int, ports: list[int | str], moment: datetime) -> None:
    probes = [{"name": str(i), "livenessProbe": {"tcpSocket": {"port": port}}} for i, port in enumerate(ports)]
    time = moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    pod = {
        "metadata": {"name": "p", "labels": labels, "deletionTimestamp": time},
        "spec": {"priority": priority, "containers": probes},
    }
    result = decode("Pod", encode("Pod", pod).data).data
    assert result["metadata"].get("labels", {}) == labels
    assert result["metadata"]["deletionTimestamp"] == time
    assert result["spec"]["priority"] == priority
    assert [each["livenessProbe"]["tcpSocket"]["port"] for each in result["spec"].get("containers", [])] == ports


def test_keys_of_maps_stand_in_order() -> None:
    """One that another begins with stands before it."""
    labels = {"10.0.0.12": "b", "1": "a", "é": "d", "z": "c"}
    data = encode("ObjectMeta", {"labels": labels}).data
    assert sorted(labels, key=lambda key: data.index(b"\x0a" + bytes([len(key.encode())]) + key.encode())) == [
        "1", "10.0.0.12", "z", "é",
    ]  # fmt: skip


def test_fields_of_a_later_release_are_named_and_counted() -> None:
    later = b"\xfa\x06\x01x"  # 111
    container = encode("Container", {"name": "c"}).data + later
    spec = _message_bytes(2, container) + _message_bytes(2, container)
    result = decode("Pod", _message_bytes(2, spec) + later)
    assert result.unknown == {"spec.containers field 111": 2, "field 111": 1}
    assert result.data == {"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x0a\x05ab", "4 bytes that are no Pod"),
        (b"\x08", "1 bytes that are no Pod"),
        (b"\x0b", "1 bytes that are no Pod"),
        (_message_bytes(1, _message_bytes(1, b"\xff")), "metadata.name: not UTF-8"),
        (_message_bytes(1, _message_bytes(8, b"\x08" + b"\xff" * 8 + b"\x7f")), "since 1970 are no time"),
        (_message_bytes(3, b"\x9a\x01\x07\x0a\x01a\x12\x02\x0a\x00"), "status.allocatedResources"),
    ],
)
def test_bytes_that_are_no_object(data: bytes, text: str) -> None:
    with pytest.raises(InputError) as refused:
        decode("Pod", data)
    assert text in str(refused.value)


def test_missing_runtime_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    with pytest.raises(MissingExtraError, match=r"needs the extra \[grpc\]"):
        message_types("x", parse("A: 1 a text?").values())


def test_there_is_no_such_message() -> None:
    with pytest.raises(ValueError, match="there is no message Deployment"):
        encode("Deployment", {})
    with pytest.raises(ValueError, match="there is no message Deployment"):
        decode("Deployment", b"")


def test_raw_json_is_read_as_it_is() -> None:
    assert decode_plain(msgspec.Raw(b'{"a": 1}')) == {"a": 1}
