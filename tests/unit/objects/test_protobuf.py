"""The protobuf form of pods and nodes, byte for byte as Go writes it.

``data/protobuf.jsonl.gz`` was recorded with the Go types of k8s.io/api v0.37.2: every object was decoded by
``sigs.k8s.io/json`` as the API machinery does, its ``managedFields`` were taken off, and ``Marshal`` was called. The
rows are usual objects, odd ones, and random ones in which every member of every message occurs. Before they were
picked, 80,000 objects (6,000 random ones, every pod and node of the recorded answers) were compared and equal.
"""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kscale.errors import InputError
from kscale.objects.core import Node, Pod
from kscale.objects.decode import from_dict, to_dict
from kscale.objects.plain_json import plain
from kscale.objects.protobuf.encoding import encode
from kscale.objects.protobuf.tables import message, names
from kscale.objects.protobuf.wire import WireError, bytes_field, fields_of, key, varint

_RECORDED = gzip.decompress((Path(__file__).parent / "data" / "protobuf.jsonl.gz").read_bytes()).splitlines()


@pytest.mark.parametrize("line", _RECORDED, ids=range(len(_RECORDED)))
def test_the_bytes_are_those_of_go(line: bytes) -> None:
    row = plain(line)
    encoded = encode(row["object"]["kind"], row["object"]["object"])
    assert encoded.data == base64.b64decode(row["bytes"])


def _members(name: str, data: dict[str, Any]) -> set[tuple[str, str]]:
    """What of the tables an object uses."""
    found: set[tuple[str, str]] = set()
    of = message(name)
    assert of is not None
    for field in of.fields:
        if field.member == ".":
            found |= _members(field.type, data)
            continue
        value = data.get(field.member)
        if not value and value not in (0, False, ""):
            continue
        found.add((name, field.member))
        if message(field.type) is not None:
            parts = {"*": lambda v: v, "{}": lambda v: v.values()}.get(field.form, lambda v: [v])(value)
            found |= {each for part in parts if part for each in _members(field.type, part)}
    return found


def test_the_record_uses_every_member_of_every_message() -> None:
    seen: set[tuple[str, str]] = set()
    for line in _RECORDED:
        row = plain(line)["object"]
        seen |= _members(row["kind"], row["object"])
    every = {(name, field.member) for name in names() for field in _fields(name) if field.member != "."}
    assert every - seen == set()
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
        row = plain(line)["object"]
        if row["kind"] != kind:
            continue
        try:
            kept = to_dict(from_dict(row["object"], type_))
        except InputError:
            continue  # a random text where the struct wants, say, a known form
        assert not encode(kind, kept).unknown
        assert encode(kind, to_dict(from_dict(kept, type_))).data == encode(kind, kept).data


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
        ({"metadata": {"name": "\ud800"}}, "metadata.name: not UTF-8"),
        ({"spec": {"overhead": {"cpu": "x"}}}, 'spec.overhead[cpu]: "x" is not a quantity'),
    ],
)
def test_what_go_would_not_read_is_named(data: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as refused:
        encode("Pod", data)
    assert str(refused.value) == text


def test_numbers_of_a_text_are_taken_as_written() -> None:
    data = plain(b'{"status": {"capacity": {"a": 1e3, "b": 1.50}}}')
    written = encode("Node", {"status": {"capacity": {"a": "1e3", "b": "1500m"}}})
    assert encode("Node", data).data == written.data
    with pytest.raises(InputError, match=r"podCIDR: a text is expected, not a number"):
        encode("Node", plain(b'{"spec": {"podCIDR": 1.5}}'))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300), st.integers(1, 2**29 - 1))
def test_what_is_written_can_be_read(number: int, data: bytes, field: int) -> None:
    written = key(field, 0) + varint(number) + bytes_field(field, data) + key(field, 1) + b"8" * 8
    assert list(fields_of(written)) == [(field, data)]


@pytest.mark.parametrize(
    "damaged", [b"\x0a\x05ab", b"\x08", b"\x08" + b"\xff" * 11, b"\x0b", b"\x09\x00", b"\x80", b"\x00\x00"]
)
def test_bytes_that_are_no_message(damaged: bytes) -> None:
    with pytest.raises(WireError):
        list(fields_of(damaged))


def test_there_is_no_such_message() -> None:
    with pytest.raises(ValueError, match="there is no message Deployment"):
        encode("Deployment", {})


def test_raw_json_is_read_as_it_is() -> None:
    assert plain(msgspec.Raw(b'{"a": 1}')) == {"a": 1}
