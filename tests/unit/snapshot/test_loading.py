"""Reading objects from every kind of source, damaged ones included."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tracemalloc
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import kscale
from kscale.errors import InputError, Problem
from kscale.objects.api.core import Node, Pod
from kscale.objects.api.meta import ObjectMeta
from kscale.snapshot.loading import LoadReport, load_objects
from kscale.snapshot.text.documents import documents
from kscale.snapshot.text.sources import NamedText, RawObject, read


def pod(name: str, cpu: Any = "100m", **extra: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        **extra,
    }


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def listed(*items: dict[str, Any], kind: str = "List") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "items": list(items)}


def names(*sources: Any, **options: Any) -> list[str]:
    return [loaded.obj.key for loaded in load_objects(*sources, **options)]


TWO = ["team-a/p", "n"]
BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n".encode() for i in range(1, 10)
)
YAML = b"""\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team-a, creationTimestamp: 2024-01-02T03:04:05Z}
spec:
  containers:
  - name: c
    resources: {requests: {cpu: 0.5, memory: 1e3, example.com/x: 2}}
---
---
apiVersion: v1
kind: Node
metadata:
  name: n
"""


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(listed(pod("p"), node("n"))).encode(),
        json.dumps(listed(pod("p"), node("n")), indent=4).encode(),
        b"\xef\xbb\xbf" + json.dumps(listed(pod("p"), node("n"))).encode(),
        json.dumps(listed(pod("p"), node("n"))).encode("utf-16"),
        json.dumps([pod("p"), node("n")]).encode(),
        json.dumps(listed(listed(pod("p"), kind="PodList"), node("n"))).encode(),
        json.dumps(pod("p")).encode() + b"\n" + json.dumps(node("n")).encode() + b"\n",
        json.dumps(pod("p"), indent=2).encode() + b"\n" + json.dumps(node("n"), indent=2).encode(),
        json.dumps(pod("p")).encode() + json.dumps(listed(node("n"))).encode() + b"  \n",
        b" \n" + json.dumps({"items": [pod("p"), node("n")]}).encode(),
        YAML,
        gzip.compress(YAML, mtime=0),
        zstandard.compress(YAML),
        b"# {comment}\n" + YAML,
    ],
)
def test_forms_of_text(text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(text) == TWO
    path = tmp_path / "dump"
    path.write_bytes(text)
    assert names(path) == TWO
    assert names(str(path)) == TWO
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert names("-") == TWO


def test_items_of_typed_lists_take_the_kind_of_the_list() -> None:
    bare = {key: value for key, value in pod("p").items() if key not in ("kind", "apiVersion")}
    for source in (listed(bare, kind="PodList"), json.dumps(listed(bare, kind="PodList")).encode()):
        ((obj, _),) = load_objects(source)
        assert isinstance(obj, Pod)
        assert (obj.kind, obj.api_version) == ("Pod", "v1")


def test_empty_lists() -> None:
    assert names({"kind": "List", "apiVersion": "v1", "items": None}, b'{"kind": "PodList", "items": []}') == []


def test_yaml_values() -> None:
    (obj, _), _ = load_objects(YAML)
    assert isinstance(obj, Pod)
    assert obj.metadata.creation_timestamp == "2024-01-02T03:04:05Z"
    requests = obj.spec.containers[0].resources.requests
    assert requests is not None
    assert {name: str(value) for name, value in requests.items()} == {
        "cpu": "500m", "memory": "1e3", "example.com/x": "2"
    }  # fmt: skip


def test_directory(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "nodes.yaml").write_text(json.dumps(node("n")))
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(pod("p")).encode()))
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "version.json").write_text('{"gitVersion": "v1.37.0"}')
    report = LoadReport()
    assert names(tmp_path, report=report) == TWO
    assert report.skipped == {"(no kind)": 1}
    assert report.read == {"Pod": 1, "Node": 1}
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="no file with suffix"):
        names(empty)


def test_plain_data_and_structs() -> None:
    struct = Pod(metadata=ObjectMeta(name="p", namespace="team-a"))
    assert names([struct, node("n")]) == TWO
    (obj, raw), (_, other) = load_objects(struct, node("n"))
    assert obj is struct
    assert raw is None
    assert other == node("n")


def test_raw_items_are_kept() -> None:
    text = json.dumps(listed(pod("p", unknownField={"kept": True}))).encode()
    ((_, raw),) = load_objects(text)
    assert isinstance(raw, msgspec.Raw)
    assert msgspec.json.decode(raw)["unknownField"] == {"kept": True}


class V1ObjectMeta:
    attribute_map: ClassVar = {"name": "name", "creation_timestamp": "creationTimestamp", "labels": "labels"}
    openapi_types = attribute_map
    name, labels = "n", None
    creation_timestamp = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "creation_timestamp": self.creation_timestamp}


class V1Node(V1ObjectMeta):
    attribute_map: ClassVar = {"api_version": "apiVersion", "kind": "kind", "metadata": "metadata"}
    api_version = kind = None
    metadata = V1ObjectMeta()


class V1HorizontalPodAutoscaler(V1Node):
    pass


class V2HorizontalPodAutoscaler(V1Node):
    pass


class V1NodeList:
    attribute_map: ClassVar = {"api_version": "apiVersion", "items": "items", "kind": "kind"}
    openapi_types = attribute_map
    api_version, kind, items = None, None, (V1Node(), V1Node())


class LightNode:
    def to_dict(self) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}


class RawNode:
    raw = node("n")


def test_client_objects() -> None:
    for item in (V1Node(), LightNode(), RawNode()):
        ((obj, _),) = load_objects(item)
        assert isinstance(obj, Node)
        assert obj.name == "n"
    assert names(V1NodeList()) == ["n", "n"]
    for version, item in (("v1", V1HorizontalPodAutoscaler()), ("v2", V2HorizontalPodAutoscaler())):
        ((obj, _),) = load_objects(item)
        assert (obj.api_version, obj.kind) == (f"autoscaling/{version}", "HorizontalPodAutoscaler")
    ((obj, _),) = load_objects([V1Node()])
    assert obj.metadata.creation_timestamp == "2024-01-02T03:04:05Z"


def test_unknown_kinds_are_counted() -> None:
    report = LoadReport()
    route = {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": {"name": "r"}}
    assert names(listed(route, node("n"), {"apiVersion": "v1", "kind": "Secret"}), report=report) == ["n"]
    assert report.skipped == {"Route.route.openshift.io": 1, "Secret": 1}
    assert report.missing(["Node", "Pod"]) == ["Pod"]


def test_every_damaged_object_is_listed(tmp_path: Path) -> None:
    items = [pod("ok"), pod("web-3", "1O0m"), pod("web-4", True), node("n"), {**pod("x"), "spec": []}, 7]
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(listed(*items)))
    with pytest.raises(InputError) as caught:
        names(path)
    assert [str(problem).removeprefix(f"{path}: ") for problem in caught.value.problems] == [
        'items[1] (Pod team-a/web-3): spec.containers[0].resources.requests.cpu: "1O0m" is not a quantity',
        "items[2] (Pod team-a/web-4): spec.containers[0].resources.requests.cpu: true is not a quantity",
        "items[4] (Pod team-a/x): spec: expected `object`, got `array`",
        "items[5]: not a Kubernetes object: Expected `object`, got `int`",
    ]
    assert caught.value.total == 6
    report = LoadReport()
    assert names(path, strict=False, report=report) == ["team-a/ok", "n"]
    assert len(report.problems) == 4
    assert names(json.loads(path.read_text()), strict=False) == ["team-a/ok", "n"]


@pytest.mark.parametrize("before", [b"", zstandard.compress(b"a: 1\n") * 9])
def test_zstd_that_unpacks_to_very_much(before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kscale.snapshot.text.files._SUSPICIOUS", 1 << 21)
    with pytest.raises(InputError, match="damaged zstd data: it unpacks to more than 300 times its size"):
        names(before + zstandard.compress(bytes(1 << 22)))


def test_zstd_in_many_frames() -> None:
    text = json.dumps(listed(*(pod(f"p{i}") for i in range(500)))).encode()
    packed = b"".join(zstandard.compress(text[at : at + 7000]) for at in range(0, len(text), 7000))
    assert len(names(packed)) == 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (b" \n ", "the file is empty"),
        (gzip.compress(YAML, mtime=0)[:-12], "the gzip data ends too early: the file is truncated"),
        (gzip.compress(YAML, mtime=0)[:20] + bytes(99), "damaged gzip data"),
        (
            gzip.compress(YAML, mtime=0)[:10] + b"\x07" + bytes(99),
            "damaged gzip data: Error -3 while decompressing data",
        ),
        (zstandard.compress(YAML)[:-9], "the zstd data ends too early: the file is truncated"),
        (zstandard.compress(YAML) + b"garbage", "damaged zstd data"),
        (b'{"kind": "List",\n "items": [', "line 2: input data was truncated"),
        (b'{"kind": "List",\n "items": [}', "line 2, column 12: malformed JSON: invalid character"),
        (b'{"a":1}\n{"b": \n', "input data was truncated"),
        (b"a: [1", "malformed YAML"),
        (b"a: 1\n b: 2", "line 2, column 3: malformed YAML: mapping values are not allowed in this context"),
        (b"just a text", "not a Kubernetes object: expected a mapping, got str"),
        (b'{"items": 7}', "not a Kubernetes object"),
        (b'{"metadata": {"name": "x"}}', "no kind: not a Kubernetes object"),
        (b'{"kind": "List", "items": [{"kind": 7}]}', "items[0]: not a Kubernetes object"),
        (b'{"kind": "Pod\xff"}', "utf-8"),
        (b'{"kind": "Pod", "metadata": {"labels": {"a": "\xff"}}}', "Pod: not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"- " * 20_000 + b"a", "nested too deeply"),
        (b"&a [*a]", "nested too deeply"),
        (BOMB, "the aliases expand to too many values"),
        (b"kind: Pod\nkind: Node\n", "line 2, column 1: malformed YAML: the key kind comes twice"),
        (b'a: !!python/object/apply:os.system ["ls"]', "malformed YAML: could not determine a constructor"),
        *[
            (b"kind: " + value, "malformed YAML: a value does not fit its tag")
            for value in (b"!!bool x", b"!!int ''", b"!!float _", b"!!timestamp x")
        ],
        (b"kind: Pod\nmetadata: {name: x, labels: {1: a}}", "Pod x: metadata.labels: a key: expected `str`, got `int`"),
    ],
)
def test_malformed_files(text: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(text)
    with pytest.raises(InputError) as caught:
        names(path)
    assert str(path) in str(caught.value)
    assert message.lower() in str(caught.value).lower()
    report = LoadReport()
    documents = load_objects(path, node("n"), strict=False, report=report)
    assert next(documents).obj.key == "n"
    if any(problem.of_source for problem in report.problems):  # nothing to go on with
        with pytest.raises(InputError):
            next(documents)
    else:
        assert report.problems
        assert not list(documents)


def test_a_broken_line_among_documents_is_one_problem() -> None:
    for lines in (
        [json.dumps(pod("p")), '{"kind":', "", json.dumps(node("n"))],
        ['{"kind":', json.dumps(pod("p")), json.dumps(node("n"))],
        [json.dumps(pod("p")), json.dumps(node("n")), '{"kind": "Pod"'],
    ):
        text = "\n".join(lines).encode()
        report = LoadReport()
        assert names(text, strict=False, report=report) == TWO
        (problem,) = report.problems
        number = next(
            i for i, line in enumerate(lines, start=1) if line and not line.endswith("}}") and "meta" not in line
        )
        assert problem.object == f"line {number}"
        with pytest.raises(InputError, match=f"line {number}: "):
            names(text)


@pytest.mark.parametrize(
    "text",
    [
        "{p}\n{n}\n",
        "{p}\n\n{n}",
        "{p}\n{pretty}\n",
        "{p}\n{pretty}\n{p}",
        "{p}\n{pretty}{p}\n{pretty}",
        "{p}{n}\n{p}\n",
        "{pretty}\n{p}\n{n}\n",
        '{p}\n{{"kind":\n\n{n}\n',
        "{p}\n{n}\n[",
        '{p}\n{n}\n{{"kind": "Pod"',
        "{p}\nkind: Pod\n",
        "{p}\n{bad}\n{n}\n",
        "\n{p}\n{n}\n",
        "{p}\n{list}\n{p}\n{n}",
        "{deep}\n{n}\n",
    ],
)
def test_stream_equals_its_text(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretty, several = json.dumps(node("n"), indent=1), json.dumps(listed(pod("q"), node("m")))
    parts = {
        "p": json.dumps(pod("p")),
        "n": json.dumps(node("n")),
        "pretty": pretty,
        "list": several,
        "bad": '{"a": \xff}',
        "deep": '{"a":' * 3000 + "1" + "}" * 3000,
    }
    data = text.format_map(parts).encode("latin-1")

    def load_from(source: str | bytes) -> list[Any]:
        return [
            (each.message, each.object)
            if isinstance(each, Problem)
            else (each.kind, each.where, bytes(memoryview(each.data)).split())
            for each in read(source)
        ]

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert load_from("-") == load_from(data)


def test_a_source_that_cannot_be_read_is_never_left_out(tmp_path: Path) -> None:
    complete = json.dumps(listed(pod("p"), node("n"))).encode()
    cut = json.dumps(listed(pod("p"), node("n")), indent=1).encode()
    for text in (complete[:-9], cut[:-9], gzip.compress(complete, mtime=0)[:-9], b"\xff\xfeA", b"{}"):
        with pytest.raises(InputError):
            names(text, node("n"), strict=False)
    with pytest.raises(InputError, match="No such file"):
        names(tmp_path / "nope.json", node("n"), strict=False)


def test_texts_in_other_encodings() -> None:
    text = json.dumps(listed(pod("p"), node("n")))
    assert names(text.encode("utf-32")) == names(text.encode("utf-16")) == TWO
    with pytest.raises(InputError, match="neither JSON nor YAML: not UTF-8: byte 6 is 0xe9"):
        names("kind: \xe9".encode("latin-1"))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        names(tmp_path / "missing.json")
    with pytest.raises(InputError, match="File name too long"):
        names("x" * 5000)
    for text in ('{"kind": "Pod"}', "kind: Pod\nmetadata: {}", "\0"):
        with pytest.raises(InputError, match="give the text of objects as bytes"):
            names(text)
    with pytest.raises(InputError, match="cannot read objects from int"):
        names(7)


def test_validation_of_files_and_not_of_data() -> None:
    items = listed(
        pod("minus", "-1"),
        {"apiVersion": "v1", "kind": "Node", "metadata": {}},
        {**node("t"), "spec": {"taints": [{"key": "a", "effect": "No"}]}},
        {**pod("p"), "spec": {"tolerations": [{"operator": "Is"}]}},
    )
    report = LoadReport()
    assert names(json.dumps(items).encode(), strict=False, report=report) == ["t", "team-a/p"]
    assert [str(problem) for problem in report.problems] == [
        "<bytes>: items[0] (Pod team-a/minus): spec.containers[0].resources.requests.cpu: -1 is negative",
        "<bytes>: items[1] (Node): metadata.name: is empty",
    ]
    assert [str(problem) for problem in report.warnings] == [
        '<bytes>: items[2] (Node t): spec.taints[0].effect: "No" is not one of NoExecute, NoSchedule, PreferNoSchedule',
        "<bytes>: items[3] (Pod team-a/p): spec.containers: is empty",
        '<bytes>: items[3] (Pod team-a/p): spec.tolerations[0].operator: "Is" is not one of Equal, Exists, Gt, Lt',
    ]
    assert names(items) == ["team-a/minus", "", "t", "team-a/p"]
    with pytest.raises(InputError):
        names(items, validate=True)


def test_duplicates_are_counted() -> None:
    report = LoadReport()
    assert names(node("n"), node("n"), pod("n"), report=report) == ["n", "n", "team-a/n"]
    assert report.duplicates == report.warning_count == 1
    assert report.warnings == [Problem("comes twice; the last one counts", "", "Node n")]


def test_nulls_where_go_takes_them_for_nothing() -> None:
    text = (
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":null,"labels":{"a":null}},"status":null}'
    )
    ((obj, _),) = load_objects(text)
    assert obj.metadata.labels == {"a": ""}
    assert obj.metadata.namespace == "default"


def test_records_do_not_copy(tmp_path: Path) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(listed(pod("p"))))
    (record,) = read(path)
    assert isinstance(record, RawObject)
    assert isinstance(record.data, msgspec.Raw)
    assert (record.where, record.source, record.kind) == ("items[0]", str(path), "Pod")


BASE = json.dumps(listed(pod("p"), {**node("n"), "status": {"allocatable": {"cpu": "4"}}})).encode()
EDIT = st.tuples(
    st.integers(0, len(BASE)), st.integers(0, 12), st.binary(max_size=3) | st.sampled_from([b"{", b'"', b"]"])
)


@given(st.lists(EDIT, min_size=1, max_size=4))
def test_damaged_text_is_read_or_refused_by_name(edits: list[tuple[int, int, bytes]]) -> None:
    text = BASE
    for start, length, replacement in edits:
        text = text[:start] + replacement + text[start + length :]
    report = LoadReport()
    count = 0
    with suppress(InputError):
        for _ in load_objects(text, strict=False, report=report):
            count += 1
    assert sum(report.read.values()) == count
    assert all(problem.source == "<bytes>" and problem.message for problem in report.problems)


def test_deep_yaml_is_named_before_the_stack_is_full() -> None:
    """In a process of its own: a stack that is full ends it."""
    code = """
from kscale.snapshot.text.documents import documents
deep = [
    b"{a: " * 30_000,
    b"[" * 50_000,
    b"- " * 30_000 + b"x",
    b"? " * 30_000 + b"x",
    b"\\n".join(b" " * i + b"a:" for i in range(2_000)),
    b"kind: Pod\\n---\\n" + b"[" * 50_000,
]
for text in deep:
    print([*documents(text, "deep.yaml")][-1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    alone, second = (f"deep.yaml: {place}nested too deeply to be read" for place in ("", "document 2: "))
    assert (done.returncode, done.stdout.splitlines()) == (0, [*[alone] * 5, second])


def yaml_object(kind: str, name: str, odd: str = "1") -> str:
    return f"apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n  namespace: team\nodd: {odd}\n"


ODD_YAML = {
    "flow": ("{a: " * 1100 + "1" + "}" * 1100, "nested too deeply"),
    "flow sequences": ("[" * 50_000 + "]" * 50_000, "nested too deeply"),
    "flow, not beyond LibYAML's own limit": ("[" * 600 + "]" * 600, "nested too deeply"),
    "block": ("".join("\n" + " " * i + "a:" for i in range(1, 1200)), "nested too deeply"),
    "block sequences": ("\n  " + "- " * 1100 + "x", "nested too deeply"),
    "keys": ("\n  " + "? " * 1100 + "x", "nested too deeply"),
    "damaged, and deep": ("{a: " * 1100, "nested too deeply"),
    "an alias that holds itself": ("&a [*a]", "nested too deeply"),
    "a bomb": ("\n" + "".join("  " + line + "\n" for line in BOMB.decode().splitlines()), "too many values"),
    "damaged": ("[1, 2", "malformed YAML"),
    "a key twice": ("{a: 1, a: 2}", "the key a comes twice"),
}


@pytest.mark.parametrize(("odd", "message"), ODD_YAML.values(), ids=ODD_YAML)
def test_one_yaml_document_that_cannot_be_read_is_left_out(odd: str, message: str) -> None:
    text = "---\n".join([yaml_object("Pod", "a"), "# nothing\n", yaml_object("ResourceClaim", "gpu", odd),
        yaml_object("Pod", "b")])  # fmt: skip
    with pytest.raises(InputError) as caught:
        [*load_objects(NamedText("dump.yaml", text.encode()))]
    (problem,) = [each for each in caught.value.problems if each.source == "dump.yaml"]
    assert problem.object.startswith("document 2")
    assert message in problem.message
    if message == "nested too deeply to be read":
        assert problem.object == "document 2 (ResourceClaim team/gpu)"
    report = LoadReport()
    read = load_objects(NamedText("dump.yaml", text.encode()), strict=False, report=report)
    assert [each.obj.key for each in read] == ["team/a", "team/b"]
    assert report.problems == [problem]


@pytest.mark.parametrize("indent", ["", "  "])
@pytest.mark.parametrize("alone", [True, False])
def test_one_deep_item_of_a_yaml_list_is_left_out(indent: str, alone: bool) -> None:
    objects = [
        yaml_object("Pod", "a"),
        yaml_object("ResourceClaim", "gpu", ODD_YAML["block"][0]),
        yaml_object("Pod", "b"),
    ]
    items = "".join(
        "".join(f"{indent}{'  ' if i else '- '}{line}\n" for i, line in enumerate(each.splitlines()))
        for each in objects
    )
    text = f"apiVersion: v1\nitems:\n{items}kind: List\nmetadata:\n  resourceVersion: ''\n"
    if not alone:
        text = f"{yaml_object('Pod', 'first')}---\n{text}"
    report = LoadReport()
    read = load_objects(NamedText("dump.yaml", text.encode()), strict=False, report=report)
    assert [each.obj.key for each in read] == [*([] if alone else ["team/first"]), "team/a", "team/b"]
    place = "items[1] (ResourceClaim team/gpu)"
    assert [each.object for each in report.problems] == [place if alone else f"document 2, {place}"]


def test_lines_and_separators_of_yaml_documents() -> None:
    """Comments, directives and what only looks like a separator are no documents, and lines are those of the file."""
    text = (
        "%YAML 1.1\n# a comment\n---\nkind: Pod\napiVersion: v1\nmetadata:\n  name: a\n"
        "  annotations:\n    text: |\n      --- not\n      ---\n...\n%YAML 1.1\n--- # and a comment\nkind: [\n"
        "--- {kind: Pod, apiVersion: v1, metadata: {name: b}}\n---\n"
    )
    report = LoadReport()
    read = load_objects(NamedText("dump.yaml", text.encode()), strict=False, report=report)
    assert [each.obj.metadata.name for each in read] == ["a", "b"]
    (problem,) = report.problems
    assert str(problem).startswith("dump.yaml: document 2: line 16, column 1: malformed YAML: ")


def test_many_brackets_are_not_deep() -> None:
    text = b"a: '" + b"[" * 5_000 + b"'\nb: [" + b"[x], " * 5_000 + b"]\n"
    (document,) = documents(text, "wide.yaml")
    assert len(document["b"]) == 5_000


GENERATED = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "train-"},
    "spec": {"parallelism": 2},
}


def test_an_object_may_say_how_its_name_begins(tmp_path: Path) -> None:
    """As templates of queues and workflows do; the same input has the same names."""
    spec = {"containers": [{"name": "c"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}, "spec": spec}
    elsewhere = {**GENERATED, "metadata": {"generateName": "train-", "namespace": "other"}}
    file = tmp_path / "m.json"
    items = [GENERATED, pod, GENERATED, elsewhere, pod]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    names = [loaded.obj.key for loaded in load_objects(file)]
    assert all(re.fullmatch(r"(default|other)/(train|web)-[b-z2-9]{5}", name) for name in names), names
    assert len(set(names)) == 5
    assert [loaded.obj.key for loaded in load_objects(file)] == names
    cluster = kscale.load(file)
    assert sorted(cluster.keys("Pod")) == sorted(name for name in names if "/web-" in name)
    assert sorted(cluster.snapshot().pending) == sorted(cluster.keys("Pod"))
    assert "name" not in GENERATED["metadata"]


def test_an_object_with_a_generated_name_that_is_not_utf8_is_named() -> None:
    item = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generateName": "a-"}, "spec": {}, "odd": "?!"}
    report = LoadReport()
    text = json.dumps(listed(node("n"), item)).encode().replace(b"?!", b"\xff")
    assert [each.obj.name for each in load_objects(text, strict=False, report=report)] == ["n"]
    (problem,) = report.problems
    assert "UTF-8" in problem.message
    assert problem.object.startswith("items[1] (Deployment")


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "node.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if os.fspath(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(InputError, match="closed: Permission denied"):
        kscale.load(tmp_path)


@pytest.mark.parametrize("form", ["text", "stream"])
def test_documents_are_released_while_reading(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line at a time, whatever the lines are like: documents, or one of them damaged."""
    line = json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"a": "b" * 400}}})
    for end in ("", "\n{"):
        data = "\n".join([line] * 5000 + [end]).encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        source = data if form == "text" else "-"
        tracemalloc.start()
        kinds = Counter("" if isinstance(each, Problem) else each.kind for each in read(source))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert kinds == {"Namespace": 5000, **({"": 1} if end else {})}
        assert peak < len(data) / 10


def test_duplicate_pods_are_counted_the_same_in_both_readers() -> None:
    names = ["a", "b", "a", "c", "b", "b"]
    text = json.dumps({"kind": "List", "items": [pod(name) for name in names]}).encode()
    more = json.dumps({"kind": "List", "items": [pod("c"), pod("d")]}).encode()
    report, slow = LoadReport(), LoadReport()
    cluster = kscale.load(text, more, pod("b"), report=report)
    list(load_objects(text, more, pod("b"), report=slow))
    assert report.duplicates == 5
    assert (report.read, report.total, report.duplicates) == (slow.read, slow.total, slow.duplicates)
    assert [str(each) for each in report.warnings] == [str(each) for each in slow.warnings]
    assert sorted(cluster.keys("Pod")) == [f"team-a/{name}" for name in "abcd"]


@pytest.mark.parametrize("value", [".inf", "-.INF", ".nan", "1:30", "1:30.5", "1.0e+999"])
def test_numbers_that_json_does_not_have_are_texts(tmp_path: Path, value: str) -> None:
    """The texts would otherwise become null, another number, or a number that only Python has."""
    pod = "kind: Pod\napiVersion: v1\nmetadata:\n  name: a\n  labels: {{a: {0}}}\nspec: {{priority: {1}}}\n"
    (tmp_path / "label.yaml").write_text(pod.format(value, 5))
    (loaded,) = kscale.load(tmp_path / "label.yaml").pods()
    assert loaded.metadata.labels == {"a": value}
    (tmp_path / "priority.yaml").write_text(pod.format("b", value))
    with pytest.raises(kscale.InputError, match=r"priority\.yaml: Pod a: spec\.priority: expected `int"):
        kscale.load(tmp_path / "priority.yaml")


@pytest.mark.parametrize("value", ["9" * 5000, "!!int 1.5", "!!int x"])
def test_an_integer_that_cannot_be_read_has_a_place(tmp_path: Path, value: str) -> None:
    (tmp_path / "a.yaml").write_text(f"kind: Pod\nspec: {{priority: {value}}}\n")
    with pytest.raises(kscale.InputError, match=r"a\.yaml: line 2, column 18: malformed YAML: .* is not an integer"):
        kscale.load(tmp_path / "a.yaml")


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Node"])
@pytest.mark.parametrize("namespaces", [("", ""), ("", "default"), ("default", "")])
def test_an_object_that_comes_twice_has_one_name_in_every_form(
    tmp_path: Path, kind: str, namespaces: tuple[str, str]
) -> None:
    """An object without namespace is named with the namespace that it counts in, whichever reader finds it."""
    version = "apps/v1" if kind == "Deployment" else "v1"
    items = [
        {"apiVersion": version, "kind": kind, "metadata": {"name": "a", **({"namespace": each} if each else {})}}
        for each in namespaces
    ]
    name = "Node a" if kind == "Node" else f"{kind} default/a"
    texts = {
        "list.json": (json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), f"items[1] ({name})"),
        "typed.json": (
            json.dumps({"apiVersion": version, "kind": f"{kind}List", "items": items}),
            f"items[1] ({name})",
        ),
        "lines.json": ("\n".join(map(json.dumps, items)), f"line 2 ({name})"),
        "documents.yaml": ("\n---\n".join(map(json.dumps, items)), f"document 2 ({name})"),
    }
    for file, (text, where) in texts.items():
        (tmp_path / file).write_text(text)
        report = kscale.load(tmp_path / file).report
        twice = [str(each) for each in report.warnings if "twice" in each.message]
        assert (report.duplicates, twice) == (1, [f"{tmp_path / file}: {where}: comes twice; the last one counts"])


def test_json_documents_with_separators_of_yaml(tmp_path: Path) -> None:
    text = "\n---\n".join(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}) for name in "ab")
    (tmp_path / "a.yaml").write_text(text)
    assert [node.name for node in kscale.load(tmp_path / "a.yaml").nodes()] == ["a", "b"]
