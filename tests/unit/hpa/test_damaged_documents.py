"""Damaged documents: an ``InputError``, an upstream error or an upstream condition, never anything else.

``KSCALE_HYPOTHESIS=thorough`` tries more of them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from hypothesis import given, seed
from hypothesis import strategies as st

from kscale.errors import InputError, UnreadableObjectError
from kscale.hpa import Dump, admit, hpa_report, read_dump, to_v1
from kscale.hpa.dump import reader as reader_module
from kscale.hpa.dump.records import DumpPods
from kscale.objects.decode import to_dict
from unit.hpa.test_conformance_inputs import SOURCES, document, metric

DATA: Final = Path(__file__).parent / "data"
CUSTOM: Final = {
    "apiVersion": "custom.metrics.k8s.io/v1beta2",
    "kind": "MetricValueList",
    "items": [
        {
            "describedObject": {"kind": kind, "namespace": "shop", "name": name, "apiVersion": "v1"},
            "metric": {"name": "qps"},
            "timestamp": "2026-03-01T12:00:00Z",
            "windowSeconds": 30,
            "value": "20",
        }
        for kind, name in (("Pod", "web-0"), ("Pod", "web-1"), ("Service", "front"))
    ],
}
ALL_SOURCES: Final = document(
    metrics=[metric(each) for each in SOURCES],
    minReplicas=0,
    behavior={
        "scaleUp": {"stabilizationWindowSeconds": 60, "selectPolicy": "Min", "tolerance": "0.2",
                    "policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}]},
        "scaleDown": {"selectPolicy": "Disabled", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
    },
)  # fmt: skip
STATUS: Final = {
    "observedGeneration": 1,
    "lastScaleTime": "2026-03-01T11:00:00Z",
    "currentReplicas": 3,
    "desiredReplicas": 3,
    "conditions": [
        {"type": "ScaledToZero", "status": "True", "reason": "ScaledToZero", "message": "",
         "lastTransitionTime": "2026-03-01T11:00:00Z"}
    ],
}  # fmt: skip
DOCUMENTS: Final[list[dict[str, Any]]] = [
    yaml.safe_load((DATA / "cluster.yaml").read_text(encoding="utf-8")),
    json.loads((DATA / "metrics.json").read_text(encoding="utf-8")),
    json.loads((DATA / "external.json").read_text(encoding="utf-8")),
    CUSTOM,
    {**ALL_SOURCES, "metadata": {"name": "all", "namespace": "shop"}, "status": STATUS},
]
AUTOSCALERS: Final = [each for each in [*DOCUMENTS[0]["items"], DOCUMENTS[-1]] if each["kind"].startswith("Horizontal")]

MEASURED: Final = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "namespace": "shop",
            "creationTimestamp": "2026-03-02T10:00:00Z",
            "labels": {"app": "web"},
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {
            "phase": "Running",
            "startTime": "2026-03-02T10:00:01Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-02T10:00:02Z"}],
        },
    },
    *(
        {
            "apiVersion": "metrics.k8s.io/v1beta1",
            "kind": "PodMetrics",
            "metadata": {
                "name": f"web-{number}",
                "namespace": "shop",
                "creationTimestamp": "2026-03-02T12:00:03Z",
                "labels": {"app": "web"},
            },
            "timestamp": "2026-03-02T12:00:00Z",
            "window": "15.5s",
            "containers": [{"name": "c", "usage": {"cpu": "90m", "memory": "10Mi"}}],
        }
        for number in range(2)
    ),
]

AUTOSCALER: Final = {**ALL_SOURCES, "metadata": {"name": "all", "namespace": "shop", "resourceVersion": "7"}}

values = st.one_of(
    st.sampled_from(
        [None, True, 0, 1, -1, 2**31, -(2**31) - 1, 2**63, 2**64, 0.5, 1e300, "", " ", "x", "0", "-1", "1e18", "9e99",
         "NaN", "1Ki", "cpu", "memory", "web", "a/b", "v1", "apps/v1", "a/b/c", "Pod", "Deployment", "\x00", "\xe9",
         "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-13-01T00:00:00Z", "yesterday", "15s", "-1s", "1h2",
         [], {}, [None], [[]], [0], ["x"], [{}], {"": None}, {"x": 1}, {"matchLabels": {"a": None}},
         {"matchExpressions": [{"key": "a", "operator": "Near"}]}]
    ),
    st.integers(-(2**70), 2**70),
    st.text(max_size=8),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, each in inner for place in [(*path, key), *places(each, (*path, key))]]


@st.composite
def damaged(draw: st.DrawFn, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Documents of which up to four places are changed, dropped, doubled, or hold what another place held."""
    copied = copy.deepcopy(documents)
    for _ in range(draw(st.integers(1, 4))):
        result = places(copied)
        place = draw(st.sampled_from([each for each in result if len(each) > 1] or result))
        holder: Any = copied
        for key in place[:-1]:
            holder = holder[key]
        what = draw(st.sampled_from(["change", "change", "change", "drop", "double", "move"]))
        if what == "drop":
            del holder[place[-1]]
        elif what == "double" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[place[-1]]))
        elif what == "move":
            other: Any = copied
            for key in draw(st.sampled_from(result)):
                other = other[key]
            holder[place[-1]] = copy.deepcopy(other)
        else:
            holder[place[-1]] = copy.deepcopy(draw(values))
    return copied


@seed(7)
@given(damaged(DOCUMENTS))
def test_a_damaged_dump(documents: list[dict[str, Any]]) -> None:
    sources = [json.dumps(each).encode() for each in documents]
    try:
        dump = read_dump(*sources, strict=False)
    except InputError:  # a whole document that holds no object
        return
    if dump.problems:
        with pytest.raises(InputError):
            read_dump(*sources)
    for fresh in (False, True):
        report = hpa_report(dump, fresh=fresh)
        assert len(report.hpas) == len(dump.hpas)
        assert all(each.conditions for each in report.hpas)
        assert msgspec.json.encode(report)


def pods_of(dump: Dump) -> list[tuple[str, Any]]:
    """Return the pods by key. Of a pod with a damaged field that no decision reads, return the error that names it."""
    pods = dump.pods.index.pods

    def content(position: int) -> Any:
        try:
            return to_dict(pods.pod(position))
        except UnreadableObjectError as error:
            return str(error)

    return [(key, content(i)) for i, key in enumerate(pods.keys)]


def check_both_ways(listed: dict[str, Any]) -> None:
    """Read from JSON in ways of their own, and as all objects are."""
    text = json.dumps(listed).encode()
    texts = read_dump(text, strict=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kscale.hpa.dump.records.DumpPods.scan", lambda *_: None)
        patch.setattr("kscale.hpa.dump.reader.decode_pod_record", lambda _: None)
        patch.setattr("kscale.hpa.dump.reader.decode_hpa_records", lambda records: [None] * len(records))
        patch.setattr("kscale.hpa.dump.reader.decode_usage_records", lambda _: None)
        plain = read_dump(text, strict=False)
    problems = [[(each.object, each.message, each.field) for each in dump.problems] for dump in (texts, plain)]
    if len(texts.pods) > len(plain.pods):
        # What nothing reads of a pod is not looked at where pods are read as columns (kscale.snapshot.text.pod_reader).
        assert set(problems[0]) < set(problems[1])
        return
    assert problems[0] == problems[1]
    for name in ("newest", "read", "duplicates", "total"):
        assert getattr(texts, name) == getattr(plain, name), name
    assert texts.hpas == plain.hpas
    assert pods_of(texts) == pods_of(plain)
    usages = [dump.metrics.usage() for dump in (texts, plain)]
    items = [[to_dict(each.item(row)) for row in range(len(each))] for each in usages]
    assert items[0] == items[1]


def contents_of(dump: Dump) -> tuple[Any, ...]:
    """All that depends on what a dump has, without where its objects are."""
    usage = dump.metrics.usage()
    items = sorted((to_dict(usage.item(row)) for row in range(len(usage))), key=repr)
    return dump.newest, dump.total, dict(dump.read), sorted(dump.duplicates), dump.hpas, pods_of(dump), items


def application(number: int) -> list[dict[str, Any]]:
    """An HPA and two pods, each with its usage, after one another as in the files of applications."""
    pods = [
        {**each, "metadata": {**each["metadata"], "name": f"web-{number}-{i}"}}
        for i in range(2)
        for each in MEASURED[:2]
    ]
    return [{**AUTOSCALER, "metadata": {**AUTOSCALER["metadata"], "name": f"web-{number}"}}, *pods]


def as_list(items: list[dict[str, Any]]) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def as_lines(items: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in items)


APPLICATIONS: Final = [each for number in range(30) for each in application(number)]


@pytest.mark.parametrize("write", [as_list, as_lines])
def test_few_batches_are_read_however_often_the_kind_changes(
    write: Callable[[list[dict[str, Any]]], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of kind must not end a batch of pods or of usage."""
    sizes: dict[str, list[int]] = {"Pod": [], "PodMetrics": []}
    add_batch, decode_usage = DumpPods.add_batch, reader_module.decode_usage_records

    def count_pods(self: DumpPods, batch: Any) -> Any:
        sizes["Pod"].append(len(batch))
        return add_batch(self, batch)

    def count_usage(records: Any) -> Any:
        sizes["PodMetrics"].append(len(records))
        return decode_usage(records)

    monkeypatch.setattr(DumpPods, "add_batch", count_pods)
    monkeypatch.setattr(reader_module, "decode_usage_records", count_usage)
    mixed = read_dump(write(APPLICATIONS))
    assert sizes == {"Pod": [60], "PodMetrics": [60]}
    by_kind = sorted(APPLICATIONS, key=lambda each: str(each["kind"]))
    assert contents_of(mixed) == contents_of(read_dump(write(by_kind)))


@seed(7)
@given(damaged(APPLICATIONS[:5]), st.sampled_from([as_list, as_lines]), st.booleans())
def test_waiting_for_others_of_the_kind_changes_nothing(
    items: list[dict[str, Any]], write: Callable[[list[dict[str, Any]]], bytes], repeats: bool
) -> None:
    """Contents and messages, in their order, are as if each object was added when it was read."""
    text = write([*items, *items[:3]] if repeats else items)
    dump = read_dump(text, strict=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "_MAX_WAITING", 1)
        singly = read_dump(text, strict=False)
    assert dump.problems == singly.problems
    assert dump.duplicates == singly.duplicates
    assert list(dump.read.items()) == list(singly.read.items())
    assert contents_of(dump) == contents_of(singly)


def test_a_damaged_field_of_a_pod_on_a_line_is_reported() -> None:
    items = copy.deepcopy(APPLICATIONS[:10])
    damaged_pod = next(each for each in items if each["kind"] == "Pod")
    damaged_pod["spec"]["hostname"] = 5
    dump = read_dump(as_lines(items), strict=False)
    assert len(dump.pods) + len(dump.problems) == sum(each["kind"] == "Pod" for each in items)


@seed(7)
@given(damaged([*MEASURED, AUTOSCALER]))
def test_pods_are_read_as_other_objects_are(documents: list[dict[str, Any]]) -> None:
    """Pods, their usage and HPAs have a way of their own from JSON."""
    check_both_ways({"apiVersion": "v1", "kind": "List", "items": documents})


@seed(7)
@given(damaged(MEASURED[1:]), st.sampled_from([[], MEASURED[:1], [AUTOSCALER]]))
def test_a_list_of_usage_is_read_as_its_items_are(items: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """As a whole, where all of it is usage."""
    listed = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetricsList", "items": [*items, *others]}
    check_both_ways(listed)


@seed(7)
@given(st.sampled_from(AUTOSCALERS).flatmap(lambda each: st.tuples(damaged([each]), damaged([each]))))
def test_a_damaged_autoscaler(pair: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    (new,), (old,) = pair
    for before in (None, old):
        for subresource in ("", "status"):
            out = admit(new, before, subresource=subresource)
            assert (out.hpa is not None) + (out.decode_error is not None) + bool(out.errors) == 1
            if out.hpa is not None:
                to_v1(out.hpa)


def test_pods_without_a_name_are_duplicates_however_they_are_read() -> None:
    def nameless(**more: Any) -> dict[str, Any]:
        containers = [{"name": "c", "image": None}]  # a null image takes the slow decoder
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ""}, "spec": {"containers": containers}, **more}

    items = [nameless(), nameless(), nameless(status=None)]
    for text in (json.dumps({"kind": "List", "apiVersion": "v1", "items": items}), "\n".join(map(json.dumps, items))):
        assert read_dump(text.encode(), strict=False).duplicates == ["Pod default/"] * 2
