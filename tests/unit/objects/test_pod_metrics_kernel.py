"""A PodMetricsList as columns: read natively as by the structs of its objects."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from kscale._native import _projection
from kscale.errors import InputError
from kscale.hpa.controller.metric_proposals import get_pod_usage
from kscale.objects.api.metrics import MetricValue, PodMetrics, PodMetricsList
from kscale.objects.decode import from_dict
from kscale.objects.pod_metrics import PodUsage, seams_of
from kscale.objects.quantity import Quantity

texts = st.one_of(st.sampled_from(["web-1", "a", "log", "main"]), st.text(st.characters(codec="utf-8"), max_size=6))
amounts = st.one_of(
    st.integers(0, 10**12).map(lambda value: f"{value}n"),
    st.sampled_from(["0", "1", "250m", "1.5", "10Mi", "2048Ki", "9E", "-3", "1e3", "12k", "0.0001", "+5", "1_0"]),
)
windows = st.sampled_from(["30s", "15.123s", "1m0s", "0s", "1h2m3.5s", "100ms"])
times = st.sampled_from(["2026-03-01T12:00:00Z", "2026-03-01T12:00:00.123456Z", "2026-03-01T13:00:00+01:00", None])
items = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": texts, "namespace": texts},
            optional={"labels": st.dictionaries(texts, texts, max_size=3), "creationTimestamp": st.just("2026-01-01")},
        ),
        "timestamp": times,
        "window": windows,
    },
    optional={
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": texts, "usage": st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), amounts)}
            ),
            max_size=3,
        )
    },
)


def document(items: Any) -> bytes:
    return json.dumps({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}).encode()


def same(one_usage: PodUsage, right: PodUsage) -> None:
    assert list(one_usage.keys) == list(right.keys)
    for row in range(len(one_usage)):
        one, other = one_usage.item(row), right.item(row)
        assert one == other, row
    for name in ("time", "window", "ends"):
        assert np.array_equal(getattr(one_usage, name), getattr(right, name))


def readable(items: Any) -> bool:
    try:
        PodUsage.of([from_dict(each, PodMetrics) for each in items])
    except (InputError, ValueError):
        return False
    return True


@given(st.lists(items, max_size=6), st.booleans())
def test_native_and_objects(given_items: list[dict[str, Any]], escaped: bool) -> None:
    data = json.dumps({"items": given_items}, ensure_ascii=escaped).encode()
    if not readable(given_items):
        with pytest.raises(InputError):
            PodUsage.from_json(data)
        return
    objects = [from_dict(each, PodMetrics) for each in given_items]
    native, slow = PodUsage.from_json(data), PodUsage.of(objects)
    same(native, slow)
    same(pickle.loads(pickle.dumps(native)), slow)
    for resource in ("cpu", "memory", "gpu", "none"):
        for container in ("", "main", "log"):
            want = [get_pod_usage(each, resource, container) for each in objects]
            rows = np.array([-1, *range(len(objects))], np.int64)
            counts, value, time, window = native.samples(resource, rows, container)
            result = zip(value.tolist(), counts, strict=True)
            assert [amount if there else None for amount, there in result] == [None, *want]
            if resource in native.resources and (not container or container in native.containers):
                assert time.tolist() == [0, *native.time.tolist()]
                assert window.tolist() == [0, *native.window.tolist()]
    if len(objects) > 1:
        joined = PodUsage.concatenate([PodUsage.of(objects[:1]), PodUsage.of(objects[1:])])
        same(joined, slow)
        assert list(joined.container_names()) == slow.container_names()


_API = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "PodMetrics"}


@pytest.mark.parametrize(
    ("metadata", "more", "times"),
    [
        ({}, {}, []),
        ({"creationTimestamp": None, "labels": None}, _API, []),
        ({"creationTimestamp": "2026-01-01", "labels": {"a": "b"}}, _API, ["2026-01-01"]),
        ({"creationTimestamp": "a\nb"}, {}, None),
        ({"creationTimestamp": 5}, {}, None),
        ({"uid": "u"}, {}, None),
        ({}, {"apiVersion": None}, []),
        ({}, {"apiVersion": "metrics.k8s.io"}, None),
        ({}, {"apiVersion": "metrics.k8s.io/v1/x"}, None),
        ({}, {"apiVersion": "v1"}, None),
        ({}, {"apiVersion": 1}, None),
        ({}, {"spec": {}}, None),
    ],
)
def test_creation_times_of_items_with_only_usage(
    metadata: dict[str, Any], more: dict[str, Any], times: list[str] | None
) -> None:
    item = {"metadata": {"name": "a", "namespace": "n", **metadata}, "timestamp": None, "window": "30s", **more}
    usage, result = PodUsage.read_items(document([item, item]))
    assert (list(usage.keys), result) == (["n/a", "n/a"], times)


def test_creation_time_that_comes_twice() -> None:
    twice = b'{"items": [{"metadata": {"name": "a", "creationTimestamp": "x", "creationTimestamp": "y"}}]}'
    assert PodUsage.read_items(twice)[1] is None


@given(st.lists(st.lists(items, max_size=2), min_size=1, max_size=5))
def test_concatenated_usage_equals_usage_read_at_once(lists: list[list[dict[str, Any]]]) -> None:
    assume(all(map(readable, lists)))
    parts = [[from_dict(each, PodMetrics) for each in part] for part in lists]
    joined, all_together = (
        PodUsage.concatenate(list(map(PodUsage.of, parts))),
        PodUsage.of([each for part in parts for each in part]),
    )
    same(joined, all_together)
    assert list(joined.container_names()) == all_together.container_names()
    for resource in ("cpu", "memory", "gpu"):
        assert joined.whole(resource).tolist() == all_together.whole(resource).tolist()
    for name in ("namespaces", "containers", "resources"):
        assert getattr(joined, name) == getattr(all_together, name)


@given(st.lists(st.lists(items, max_size=2), min_size=1, max_size=5), st.data())
def test_concatenation_reuses_earlier_parts(lists: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    assume(all(map(readable, lists)))
    parts = [PodUsage.of([from_dict(each, PodMetrics) for each in part]) for part in lists]
    again: PodUsage | None = None
    for now in data.draw(st.lists(st.lists(st.sampled_from(parts), min_size=1, max_size=6), max_size=4)):
        again, anew = PodUsage.concatenate(now, again), PodUsage.concatenate(now)
        same(again, anew)
        assert list(again.container_names()) == list(anew.container_names())
        assert list(again.parts) == list(anew.parts)
        assert again.label_sets == anew.label_sets
        assert again.labels.tolist() == anew.labels.tolist()
        for resource in ("cpu", "memory", "gpu"):
            assert again.whole(resource).tolist() == anew.whole(resource).tolist()
            rows = np.arange(len(again))
            for mine, theirs in zip(again.samples(resource, rows), anew.samples(resource, rows), strict=True):
                assert mine.tolist() == theirs.tolist()


def test_parts_behind_others_keep_their_boundaries() -> None:
    """Parts of an earlier result that stand elsewhere now, with a new part of another size behind them."""

    def part(*names: str) -> PodUsage:
        containers = [{"name": "c", "usage": {"cpu": "1"}}]
        metadata = [{"name": name, "namespace": "n", "labels": {"app": name}} for name in names]
        return PodUsage.of([from_dict({"metadata": each, "containers": containers}, PodMetrics) for each in metadata])

    a, b, more, new, last = part("a"), part("b"), part("c", "d"), part("e"), part("f")
    joined = PodUsage.concatenate([a, b, more, part("g")])
    again = PodUsage.concatenate([new, a, b, last], joined)
    assert again.seams is not None
    assert again.seams.tolist() == seams_of([new, a, b, last]).tolist()
    third = [last, a, new]
    same(PodUsage.concatenate(third, again), PodUsage.concatenate(third))


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 255))
def test_damaged_bytes(noise: bytes, at: int, byte: int) -> None:
    complete = document([{"metadata": {"name": "a", "namespace": "b"}, "window": "1s", "timestamp": None}])
    damaged = complete[: at % len(complete)] + bytes([byte]) + complete[at % len(complete) + 1 :]
    for data in (noise, damaged, complete[: at % len(complete)]):
        try:
            _projection.read_pod_metrics(data)
            PodUsage.from_json(data)
        except (InputError, UnicodeDecodeError):
            pass


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"timestamp": "soon"}, "items[1]: timestamp: "),
        ({"window": "long"}, "items[1]: window: "),
        ({"containers": [{"name": "a", "usage": {"cpu": "much"}}]}, "items[1]: containers[].usage.cpu: "),
    ],
)
def test_unreadable_usage_is_named(change: dict[str, Any], text: str) -> None:
    item = {
        "metadata": {"name": "a", "namespace": "b"},
        "window": "1s",
        "timestamp": "2026-03-01T12:00:00Z",
        "containers": [{"name": "a", "usage": {"cpu": "1"}}],
    }
    with pytest.raises(InputError) as caught:
        PodUsage.from_json(document([item, item | change]), "metrics.json")
    assert str(caught.value).startswith(f"metrics.json: {text}")


def test_the_last_of_a_pod_counts() -> None:
    entry = {"metadata": {"name": "a", "namespace": "b"}, "window": "1s"}
    used = [{"containers": [{"name": "main", "usage": {"cpu": f"{n}m"}}]} for n in (1, 2)]
    usage = PodUsage.from_json(document([entry | each for each in used]))
    assert usage.rows(["b/a", "b/c"]).tolist() == [1, -1]


def test_rows_that_change() -> None:
    def usage(*of: tuple[str, str]) -> PodUsage:
        listed = [
            {
                "metadata": {"name": name, "namespace": "b"},
                "window": "1s",
                "containers": [{"name": "main", "usage": {"cpu": cpu}}],
            }
            for name, cpu in of
        ]
        return PodUsage.from_json(document(listed))

    before = usage(("x", "1"), ("y", "2"), ("z", "3"))
    after = before.with_changes(usage(("z", "30"), ("x", "10")))
    assert after.samples("cpu", np.arange(3))[1].tolist() == [10_000, 2000, 30_000]
    assert before.samples("cpu", np.arange(3))[1].tolist() == [1000, 2000, 3000]
    with pytest.raises(KeyError, match="b/other"):
        before.with_changes(usage(("other", "1")))
    with pytest.raises(ValueError, match="other containers"):
        before.with_changes(
            PodUsage.from_json(document([{"metadata": {"name": "x", "namespace": "b"}, "window": "1s"}]))
        )


odd = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-", "+"]),
    st.one_of(
        st.integers(0, 10**19).map(str),
        st.decimals(0, 10_000, places=12).map("{:f}".format),
        st.decimals(0, 2, places=2).map("{:f}".format),
    ),
    st.sampled_from(["", "n", "u", "m", "k", "M", "P", "E", "Ki", "Gi", "Ti", "Pi", "Ei", "e3", "e-2"]),
)


@example(["-100Ti"], ["0"])  # upstream's Quantity.Value() wraps
@given(st.lists(odd, min_size=1, max_size=8), st.lists(odd, min_size=1, max_size=8))
def test_whole_units_are_those_of_the_quantity(first: list[str], second: list[str]) -> None:
    def listed(amounts: list[str], name: str = "x") -> bytes:
        containers = [{"name": f"c{i}", "usage": {"memory": amount}} for i, amount in enumerate(amounts)]
        return document([{"metadata": {"name": name, "namespace": "b"}, "window": "1s", "containers": containers}])

    def values(amounts: list[str]) -> list[int]:
        return [Quantity(amount).value() for amount in amounts]

    native = PodUsage.from_json(listed(first))
    read = PodUsage.of(from_dict(json.loads(listed(second, "y")), PodMetricsList).items)
    assert native.whole("memory").tolist() == values(first)
    assert native.whole("cpu").tolist() == [0] * len(first)
    joined = pickle.loads(pickle.dumps(PodUsage.concatenate([native, read])))
    assert joined.whole("memory").tolist() == values(first) + values(second)
    changed = joined.with_changes(PodUsage.from_json(listed(second[::-1], "y")))
    assert changed.whole("memory").tolist() == values(first) + values(second[::-1])
    assert joined.whole("memory").tolist() == values(first) + values(second)


def test_values_of_a_custom_metric() -> None:
    value = {
        "describedObject": {"kind": "Pod", "namespace": "b", "name": "x"},
        "metric": {"name": "qps"},
        "timestamp": "2026-03-01T12:00:00Z",
        "value": "2500m",
    }
    usage = PodUsage.from_values("qps", [from_dict(value, MetricValue)], {"b/x": {"app": "x"}})
    assert (usage.samples("qps", np.arange(1))[1].tolist(), usage.window.tolist()) == ([2500], [60 * 10**9])
    assert usage.label_sets[int(usage.labels[0])] == {"app": "x"}
    with pytest.raises(InputError, match="soon"):
        PodUsage.from_values("qps", [from_dict(value | {"timestamp": "soon"}, MetricValue)], {})
