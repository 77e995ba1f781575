"""Metrics of a program as Prometheus reads them."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kscale.effects import SECOND, Metric, Observation
from kscale.world.serve.metrics import MetricStore, UnknownMetricError


def store(*metrics: Metric, **options: Any) -> MetricStore:
    return MetricStore(metrics, process=False, **options)


def text(of: MetricStore) -> list[str]:
    result, content_type = of.exposition()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return result.decode().splitlines()


def test_every_kind_of_metric() -> None:
    created = store(
        Metric("a_total", "counter", ("type",)),
        Metric("skipped_events_count", "counter"),
        Metric("nodes_count", "gauge", ("state",), help="Nodes."),
        Metric("seconds", "histogram", ("function",), (0.1, 1.0, 10.0)),
        Metric("quantile_seconds", "summary", ("function",)),
    )
    created.observe(
        [
            Observation(name="a_total", labels={"type": "x"}),
            Observation(name="a_total", value=2.0, labels={"type": "x"}),
            Observation(name="a_total", value=0.0, labels={"type": 'y "quoted"\n'}),
            Observation(name="skipped_events_count", value=4.0),
            Observation(name="nodes_count", value=3.0, labels={"state": "ready"}),
            Observation(name="nodes_count", value=5.0, labels={"state": "ready"}),
            Observation(name="quantile_seconds", value=0.5, labels={"function": "main"}),
            Observation(name="quantile_seconds", value=0.25, labels={"function": "main"}),
        ]
    )
    for value in (0.05, 0.1, 0.5, 99.0):
        created.observe([Observation(name="seconds", value=value, labels={"function": "main"})])
    created.observe([Observation(name="seconds", value=7.0, labels={"function": "main"}, buckets=(1, 0, 2, 0))])
    assert text(created) == [
        "# HELP a_total ",
        "# TYPE a_total counter",
        'a_total{type="x"} 3.0',
        'a_total{type="y \\"quoted\\"\\n"} 0.0',
        "# HELP skipped_events_count ",
        "# TYPE skipped_events_count counter",
        "skipped_events_count 4.0",
        "# HELP nodes_count Nodes.",
        "# TYPE nodes_count gauge",
        'nodes_count{state="ready"} 5.0',
        "# HELP seconds ",
        "# TYPE seconds histogram",
        'seconds_bucket{function="main",le="0.1"} 3.0',
        'seconds_bucket{function="main",le="1"} 4.0',
        'seconds_bucket{function="main",le="10"} 6.0',
        'seconds_bucket{function="main",le="+Inf"} 7.0',
        'seconds_count{function="main"} 7.0',
        'seconds_sum{function="main"} 106.65',
        "# HELP quantile_seconds ",
        "# TYPE quantile_seconds summary",
        'quantile_seconds{function="main",quantile="0.5"} 0.25',
        'quantile_seconds{function="main",quantile="0.9"} 0.5',
        'quantile_seconds{function="main",quantile="0.99"} 0.5',
        'quantile_seconds_count{function="main"} 2.0',
        'quantile_seconds_sum{function="main"} 0.75',
    ]
    families = {each.name: each.type for each in text_string_to_metric_families("\n".join(text(created)) + "\n")}
    assert families["seconds"] == "histogram"
    assert created.value("nodes_count", state="ready") == 5.0
    assert created.value("nodes_count", state="unready") is None


def test_a_recorder_adds_to_its_series_as_observations_do() -> None:
    metrics = [
        Metric("a_total", "counter", ("type",)),
        Metric("seconds", "histogram", ("a", "b"), (0.1, 1.0)),
        Metric("quantiles", "summary", ("a", "b"), of="seconds"),
    ]
    created, plain = store(*metrics), store(*metrics)
    labels = [{"type": "x"}, {"b": "2", "a": "1"}]
    record = created.recorder(zip(("a_total", "seconds"), labels, strict=True))
    for seconds in (0.05, 0.5, 5.0):
        record((1.0, seconds))
        samples = zip(("a_total", "seconds"), (1.0, seconds), labels, strict=True)
        plain.observe([Observation(name=name, value=value, labels=each) for name, value, each in samples])
    assert text(created) == text(plain)
    for each in (created, plain):
        each.observe([Observation(name="seconds", reset=True)])
    record((1.0, 2.0))
    assert "seconds_count{" in "\n".join(text(created))
    assert created.value("a_total", type="x") == 4.0
    with pytest.raises(ValueError, match="shorter"):
        record((1.0,))


def test_a_recorder_is_only_of_known_series() -> None:
    created = store(Metric("a_total", "counter", ("type",)))
    with pytest.raises(UnknownMetricError, match="there is no metric b_total"):
        created.recorder([("b_total", {})])
    with pytest.raises(UnknownMetricError, match=r"a_total has the labels \('type',\), not \('kind',\)"):
        created.recorder([("a_total", {"kind": "x"})])


def test_a_counter_counts_on_from_any_number() -> None:
    """A sum with a NumPy number is one of NumPy's, too."""
    created = store(Metric("n_total", "counter"))
    for value in (np.int64(2), np.float64(0.5), 1, 2.0):
        created.observe([Observation(name="n_total", value=value)])
    assert "n_total 5.5" in text(created)


QUANTILES = [("0.5", 0.5), ("0.9", 2.0), ("0.99", 2.0)]


def test_quantiles_are_of_the_last_hour() -> None:
    """As component-base has them by default: 0.5, 0.9 and 0.99, and no number where nothing was observed."""
    now = [0]
    metrics = [Metric("h", "histogram", ("a",), (1.0,)), Metric("s", "summary", ("a",), of="h")]
    created = MetricStore(metrics, process=False, now=lambda: now[0])
    for minute in range(100):
        now[0] = minute * 60 * SECOND
        created.observe([Observation(name="h", value=float(minute), labels={"a": "x"})])
    result = dict(line.rsplit(" ", 1) for line in text(created) if line.startswith("s{"))
    assert [*result.values()] == ["69.0", "93.0", "99.0"]  # of 40 to 99
    now[0] += 3600 * SECOND
    assert [line.rsplit(" ", 1)[1] for line in text(created) if line.startswith("s{")] == ["NaN"] * 3
    assert text(created)[-2:] == ['s_count{a="x"} 100.0', 's_sum{a="x"} 4950.0']


def test_observations_of_a_summary_are_dropped_without_a_scrape() -> None:
    """A program may run for months and never be scraped: it keeps the last hour, in 16 bytes an observation."""
    now = [0]
    metrics = [Metric("h", "histogram", (), (1.0,)), Metric("s", "summary", of="h")]
    created = MetricStore(metrics, process=False, now=lambda: now[0])
    observations = [Observation(name="h", value=1.5)]
    created.observe(observations)
    tracemalloc.start()
    try:
        for second in range(20_000):
            now[0] = second * SECOND
            created.observe(observations)
        current, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(current, peak) < 2 * 3600 * 16 + 100_000
    assert text(created)[-2:] == ["s_count 20001.0", "s_sum 30001.5"]


def test_a_histogram_with_bounds_below_zero_has_a_sum_and_a_count() -> None:
    """Differences may be negative (``vpa_quality_relative_recommendation_changes``)."""
    created = store(Metric("changes", "histogram", (), (-1.0, -0.0025, 0.0, 2.5, 1e6)))
    created.observe([Observation(name="changes", value=value) for value in (-0.5, 0.0, 3.0)])
    assert text(created)[2:] == [
        'changes_bucket{le="-1"} 0.0',
        'changes_bucket{le="-0.0025"} 1.0',
        'changes_bucket{le="0"} 2.0',
        'changes_bucket{le="2.5"} 2.0',
        'changes_bucket{le="1e+06"} 3.0',
        'changes_bucket{le="+Inf"} 3.0',
        "changes_count 3.0",
        "changes_sum 2.5",
    ]
    exposed = created.exposition("application/openmetrics-text; version=1.0.0")
    assert "openmetrics" in exposed[1]
    assert b'changes_bucket{le="0.0"} 2.0' in exposed[0]


def test_summary_of_another_metric_counts_its_observations() -> None:
    created = store(Metric("h", "histogram", ("a",), (1.0,)), Metric("s", "summary", ("a",), of="h"))
    assert text(created) == []
    created.observe([Observation(name="h", value=value, labels={"a": "x"}) for value in (0.5, 2.0)])
    assert text(created)[-2:] == ['s_count{a="x"} 2.0', 's_sum{a="x"} 2.5']
    assert text(created)[-5:-2] == [f's{{a="x",quantile="{share}"}} {value}' for share, value in QUANTILES]
    with pytest.raises(ValueError, match="s is of t, which is not described"):
        store(Metric("s", "summary", of="t"))


def test_a_gauge_that_is_reset() -> None:
    created = store(Metric("backoff", "gauge", ("group",)))
    created.observe([Observation(name="backoff", labels={"group": each}) for each in "ab"])
    created.observe([Observation(name="backoff", reset=True), Observation(name="backoff", labels={"group": "c"})])
    assert text(created)[2:] == ['backoff{group="c"} 1.0']


def test_a_series_that_is_removed() -> None:
    created = store(Metric("backoff", "gauge", ("group",)))
    created.observe([Observation(name="backoff", labels={"group": each}) for each in "ab"])
    created.observe([Observation(name="backoff", labels={"group": each}, reset=True) for each in "ax"])
    assert text(created)[2:] == ['backoff{group="b"} 1.0']
    with pytest.raises(UnknownMetricError):
        created.observe([Observation(name="backoff", labels={"x": "a"}, reset=True)])


@pytest.mark.parametrize(
    "observation",
    [
        Observation(name="unknown"),
        Observation(name="h", labels={"x": "1"}),
        Observation(name="h", labels={"a": "1", "b": "2"}),
        Observation(name="h", labels={"a": "1"}, buckets=(1, 2, 3)),
    ],
)
def test_observations_of_unknown_series_are_refused(observation: Observation) -> None:
    created = store(Metric("h", "histogram", ("a",), (1.0,)))
    with pytest.raises(UnknownMetricError):
        created.observe([observation])
    assert text(created) == []


def test_a_refused_histogram_leaves_the_sum_as_it_was() -> None:
    created = store(Metric("h", "histogram", (), (1.0,)))
    created.observe([Observation(name="h", value=3.0, buckets=(2, 1))])
    before = text(created)
    with pytest.raises(UnknownMetricError, match="h has 2 buckets, not 3"):
        created.observe([Observation(name="h", value=5.0, buckets=(1, 2, 3))])
    assert text(created) == before


def test_descriptions() -> None:
    created = store(Metric("a", "gauge"))
    created.describe(Metric("a", "gauge"))
    with pytest.raises(ValueError, match="described in two ways"):
        created.describe(Metric("a", "counter"))
    with pytest.raises(ValueError, match="a clock is not one of"):
        created.describe(Metric("b", "clock"))


def test_many_threads() -> None:
    created = store(Metric("n_total", "counter"), Metric("h", "histogram", (), (1.0,)))

    def work() -> None:
        for _ in range(2000):
            created.observe([Observation(name="n_total"), Observation(name="h", value=0.5)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        created.exposition()
    for thread in threads:
        thread.join()
    assert created.value("n_total") == 8000.0
    assert "h_count 8000.0" in text(created)
