"""Upstream's own tables on buckets, histograms, checkpoints and amounts."""

from __future__ import annotations

import struct

import pytest

from kscale.vpa.model.histogram import (
    CPU_HISTOGRAM_OPTIONS,
    MEMORY_HISTOGRAM_OPTIONS,
    Histogram,
    HistogramError,
    HistogramOptions,
)
from kscale.vpa.options import RecommenderOptions
from kscale.vpa.recommender.estimators import format_human_bytes, format_resources, round_up_to_scale
from kscale.vpa.resources import cores_to_millicores, scale_amount, to_resource_amount

HOUR = 3600 * 10**9
BASE = 1234567890 * 10**9
EPSILON = 1e-15

CPU_STARTS = """
0 10 20 31 43 55 68 81 95 110 125 142 159 177 195 215 236 258 281 305 330 357 385 414 445 477 511 546 584 623
664 707 752 800 850 903 958 1016 1077 1140 1207 1278 1352 1429 1511 1597 1686 1781 1880 1984 2093 2208 2328
2454 2587 2727 2873 3027 3188 3357 3535 3722 3918 4124 4340 4567 4806 5056 5319 5595 5885 6189 6509 6844 7196
7566 7954 8362 8790 9240 9712 10207 10728 11274 11848 12450 13083 13747 14444 15177 15946 16753 17601 18491
19425 20406 21437 22519 23655 24847 26100 27415 28796 30245 31768 33366 35044 36807 38657 40600 42640 44782
47031 49393 51872 54476 57210 60080 63094 66259 69582 73071 76735 80581 84620 88861 93315 97990 102900 108055
113468 119151 125119 131385 137964 144872 152126 159742 167739 176136 184953 194211 203931 214138 224855
236107 247923 260329 273356 287033 301395 316475 332309 348934 366391 384720 403966 424175 445393 467673
491067 515630 541422 568503 596938 626795 658145 691062 725625 761916 800022 840033 882045 926157 972475
1021109
"""
MEMORY_STARTS = {0: 0, 1: 10000000, 2: 20499999, 3: 31524999, 4: 43101249, 5: 55256312, 6: 68019128, 10: 125778925,
                 17: 258403663, 23: 414304751, 60: 3535837178, 100: 26100251569, 150: 301395499210,
                 174: 972475627528, 175: 1021109408904}  # fmt: skip
BITS = [
    (CPU_HISTOGRAM_OPTIONS, {1: "3f847ae147ae147b", 2: "3f94fdf3b645a1c7", 3: "3fa0240b780346dc",
                             10: "3fc019861976c3b1",
                             50: "4000bf726b7659e2", 100: "403a19aa163b58ee", 175: "408fe8e011c6a21f"}),
    (MEMORY_HISTOGRAM_OPTIONS, {2: "41738ce1fffffffd", 3: "417e10887fffffff", 10: "419dfcefb56c051a",
                                100: "42184ec8eec50af4", 175: "426db7dba2911b85"}),
]  # fmt: skip


def test_production_starts() -> None:
    assert [int(CPU_HISTOGRAM_OPTIONS.bucket_start(b) * 1000) for b in range(176)] == [
        int(text) for text in CPU_STARTS.split()
    ]
    for bucket, start in MEMORY_STARTS.items():
        if bucket not in (10, 17, 23):
            assert int(MEMORY_HISTOGRAM_OPTIONS.bucket_start(bucket)) == start
    for options, bits in BITS:
        assert {b: struct.pack(">d", options.bucket_start(b)).hex() for b in bits} == bits


def test_small_schemes() -> None:
    linear = HistogramOptions.linear(5.0, 0.3, 1e-15)
    assert (linear.num_buckets, linear.bucket_start(0), linear.bucket_start(17)) == (18, 0.0, 0.3 * 17)
    assert linear.find_buckets([-1, 0, 1.3, 100]).tolist() == [0, 0, 4, 17]
    exponential = HistogramOptions.exponential(500.0, 40.0, 1.5, 1e-15)
    assert [exponential.bucket_start(b) for b in range(exponential.num_buckets)] == [0, 40, 100, 190, 325, 527.5]
    assert exponential.find_buckets([-1, 39.99, 40, 100, 900]).tolist() == [0, 0, 1, 2, 5]


@pytest.mark.parametrize(
    ("options", "value", "bucket"),
    [(CPU_HISTOGRAM_OPTIONS, v, b) for v, b in [(0.009, 0), (0.010, 1), (0.020, 1), (0.021, 2), (0.100, 8), (0.250, 16),
                                       (0.500, 25), (1.0, 36), (1.5, 43)]]
    + [(MEMORY_HISTOGRAM_OPTIONS, v * 2**20, b) for v, b in [(100, 8), (250, 17), (300, 19), (400, 23), (1000, 37),
                                                             (4000, 63)]],
)  # fmt: skip
def test_find(options: HistogramOptions, value: float, bucket: int) -> None:
    assert options.find_buckets([value]).tolist() == [bucket]


def test_a_start_is_counted_one_bucket_lower() -> None:
    for options in (CPU_HISTOGRAM_OPTIONS, MEMORY_HISTOGRAM_OPTIONS):
        result = options.find_buckets([options.bucket_start(b) for b in range(176)]).tolist()
        assert result == [0, 1, *range(1, 175)]


def plain(maximum: float = 10.0, size: float = 1.0, half_life: int = 0, epsilon: float = EPSILON) -> Histogram:
    return Histogram.create(HistogramOptions.linear(maximum, size, epsilon), half_life)


@pytest.mark.parametrize("p", [-0.5, 0.0, 0.5, 1.0, 1.5])
def test_percentile_of_nothing(p: float) -> None:
    assert plain().percentile(p) == 0.0


@pytest.mark.parametrize("half_life", [0, HOUR])
@pytest.mark.parametrize(
    ("p", "value"),
    [(0.0, 2.0), (0.1, 2.0), (0.2, 3.0), (0.3, 3.0), (0.4, 4.0), (0.5, 4.0), (0.6, 4.0), (0.7, 5.0), (1.0, 5.0)],
)
def test_percentiles(p: float, value: float, half_life: int) -> None:
    h = plain(half_life=half_life)
    for i in range(1, 5):
        h.add_sample(float(i), float(i), BASE)
    assert h.percentile(p) == value


def test_percentiles_out_of_range() -> None:
    h = plain(1.0, 0.1)
    h.add_sample(0.1, 0.1)
    h.add_sample(0.2, 0.2)
    assert (h.percentile(-0.1), h.percentile(1.1)) == (0.2, pytest.approx(0.3))
    h.add_sample(0.0, 0.1)
    h.add_sample(1.0, 0.2)
    assert (h.percentile(-0.1), h.percentile(1.1)) == (0.1, 1.0)


def test_empty_by_weight() -> None:
    h = plain(1.0, 0.1)
    assert h.is_empty
    h.add_sample(0.1, EPSILON * 2.5)
    assert not h.is_empty
    h.subtract_sample(0.1, EPSILON)
    assert not h.is_empty
    h.subtract_sample(0.1, EPSILON)
    assert h.is_empty
    h = plain(1.0, 0.1)
    h.add_sample(9.9, 3 * EPSILON)
    h.add_sample(0.1, EPSILON * 0.3)
    h.add_sample(999.9, EPSILON * 0.3)
    assert not h.is_empty


def test_merge() -> None:
    options = HistogramOptions.linear(10.0, 1.0, EPSILON)
    a, b, both = (Histogram.create(options) for _ in range(3))
    for h, values in ((a, [1, 2]), (b, [2, 3]), (both, [1, 2, 2, 3])):
        for value in values:
            h.add_sample(value, 1.0)
    a.merge(b)
    assert a.equals(both)
    with pytest.raises(HistogramError, match="different options"):
        a.merge(plain())


def test_decay() -> None:
    h = plain(half_life=HOUR)
    h.add_sample(2, 1000, BASE)
    h.add_sample(1, 1, BASE + 20 * HOUR)
    assert (h.percentile(0.999), h.percentile(1.0)) == (2.0, 3.0)
    h = plain(half_life=HOUR)
    h.add_sample(2, 1, BASE)
    h.add_sample(1, 1, BASE + 101 * HOUR)
    assert h.percentile(1.0) == 2.0


@pytest.mark.parametrize(
    ("p", "value"), [(0.0, 2), (0.02, 2), (0.03, 3), (0.10, 3), (0.11, 4), (0.34, 4), (0.35, 5), (1.0, 5)]
)
def test_percentiles_of_samples_over_hours(p: float, value: float) -> None:
    h = plain(half_life=HOUR)
    for i in range(1, 5):
        h.add_sample(i, i, BASE + (i - 1) * HOUR)
    assert h.percentile(p) == value


def test_merge_of_decaying_histograms() -> None:
    options = HistogramOptions.linear(10.0, 1.0, EPSILON)
    a, b, both = (Histogram.create(options, HOUR) for _ in range(3))
    for h, samples in (
        (a, [(1, 0), (2, 1)]),
        (b, [(2, 2), (3, 1)]),
        (both, [(2, 2), (2, 1), (3, 1), (1, 0)]),  # the newest first: it sets the reference
    ):
        for value, hours in samples:
            h.add_sample(value, 1, BASE + hours * HOUR)
    a.merge(b)
    assert a.equals(both)
    with pytest.raises(HistogramError, match="half life"):
        a.merge(Histogram.create(options, 2 * HOUR))


def test_shift_after_a_hundred_half_lives() -> None:
    day = 24 * HOUR
    start = 1767571200 * 10**9
    h = Histogram.create(CPU_HISTOGRAM_OPTIONS, day)
    h.add_sample(1.0, 0.1, start)
    assert (h.reference_time, h.total_weight) == (start, 0.1)
    h.add_sample(2.0, 0.1, start + 101 * day + 13 * HOUR)
    assert h.reference_time == start + 102 * day
    assert h.weights[36] == 1.9721522630525296e-32
    assert h.weights[49] == h.total_weight == 0.07278265914210938
    assert (h.min_bucket, h.max_bucket) == (49, 49)


@pytest.mark.parametrize(
    ("weights", "total", "saved"),
    [
        ({1: 1}, 1.0, {1: 10000}),
        ({1: 1, 2: 100000}, 100001.0, {2: 10000}),
        ({1: 1, 2: 10000, 3: 50}, 10051.0, {1: 1, 2: 10000, 3: 50}),
        ({}, 0.0, {}),
    ],
)
def test_save(weights: dict[int, float], total: float, saved: dict[int, int]) -> None:
    h = plain(epsilon=0.001)
    for bucket, weight in weights.items():
        h.add_sample(bucket, weight)
    assert (h.save().total_weight, h.save().bucket_weights) == (total, saved)


def test_load() -> None:
    h = plain()
    h.load({0: 1, 1: 2}, 6.0)
    assert (h.weights[0], h.weights[1], h.total_weight) == (2.0, 4.0, 6.0)
    for weights, total, text in (
        ({-1: 1}, 1.0, "checkpoint has a negative bucket -1"),
        ({99: 1}, 1.0, "checkpoint has bucket 99 that is exceeding histogram buckets 11"),
        ({}, -1.0, "cannot load checkpoint with negative weight -1"),
        (None, 0.0, "cannot load from empty checkpoint"),
    ):
        with pytest.raises(HistogramError, match=text):
            plain().load(weights, total)


def test_a_first_bucket_just_below_epsilon_does_not_empty_the_rest() -> None:
    epsilon = 0.001
    h = plain(epsilon=epsilon)
    h.add_sample(1, epsilon)
    h.add_sample(2, 10000 * epsilon - epsilon)
    other = plain(epsilon=epsilon)
    saved = h.save()
    other.load(saved.bucket_weights, saved.total_weight)
    assert not other.is_empty


def test_load_of_a_decaying_histogram() -> None:
    reference = 1514862245 * 10**9
    h = plain(half_life=HOUR)
    h.load({0: 1}, 6.0, reference)
    assert (h.is_empty, h.reference_time) == (False, reference)


@pytest.mark.parametrize(
    ("cores", "millicores"),
    [(0.069946, 69), (0.61535112, 615), (0.0172071, 17), (0.00455, 4), (0.0123456789, 12), (0.00123456789, 1)],
)
def test_cpu_from_cores(cores: float, millicores: int) -> None:
    assert cores_to_millicores(cores) == millicores


@pytest.mark.parametrize(
    ("x", "expected"), [(100.5, 100), (-50.5, 0), (1e14 + 100, 10**14), (0.125, 0), (69.669, 69), (12.333, 12)]
)
def test_amount(x: float, expected: int) -> None:
    assert to_resource_amount(x) == expected


@pytest.mark.parametrize(
    ("a", "factor", "expected"), [(4, 2.124, 8), (12, 1.1, 13), (1213, 1.2414, 1505), (11, 0.0, 0), (41208, 1e-6, 0)]
)
def test_scale(a: int, factor: float, expected: int) -> None:
    assert scale_amount(a, factor) == expected


def test_round_up_to_scale() -> None:
    assert [round_up_to_scale(*pair) for pair in ((100, 7), (100, 10), (0, 5))] == [105, 100, 0]
    for scale in (0, -5):
        with pytest.raises(ValueError, match="scale must be greater than zero"):
            round_up_to_scale(100, scale)


@pytest.mark.parametrize(
    ("size", "text"),
    [(1024, "1.00Ki"), (1048576, "1.00Mi"), (1050000, "1.00Mi"), (1537, "1.50Ki"), (4992073454, "4.65Gi"),
     (6499152537, "6.05Gi"), (16357476492, "15.23Gi"), (4022251530, "3.75Gi"), (13580968030, "12.65Gi"),
     (15530468536, "14.46Gi"), (1024**4, "1.00Ti"), (1000, "1000")],
)  # fmt: skip
def test_humanize(size: int, text: str) -> None:
    assert format_human_bytes(size) == text


@pytest.mark.parametrize(
    ("cpu", "memory", "options", "expected"),
    [
        (1000, 0, {"round_cpu_millicores": 3}, ("1002m", "0")),
        (1231241, 0, {"round_cpu_millicores": 13}, ("1231243m", "0")),
        (0, 262144000, {"round_memory_bytes": 268435456, "humanize_memory": True}, ("0", "256Mi")),
        (0, 839500000, {"humanize_memory": True}, ("0", "839500431360m")),
        (0, 839500000, {"round_memory_bytes": 134217728}, ("0", "896Mi")),
        (0, 0, {"round_cpu_millicores": 7, "round_memory_bytes": 7, "humanize_memory": True}, ("0", "0")),
        (100, 100, {"round_cpu_millicores": -5, "round_memory_bytes": 0}, ("100m", "100")),
    ],
)
def test_formatting(cpu: int, memory: int, options: dict[str, object], expected: tuple[str, str]) -> None:
    created = format_resources(cpu, memory, ("cpu", "memory"), RecommenderOptions(**options))
    assert (str(created["cpu"]), str(created["memory"])) == expected
