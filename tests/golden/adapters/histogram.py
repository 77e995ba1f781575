"""Kind ``histogram``: all of ``want`` but the texts of ``string`` is compared, floats by their bits."""

from __future__ import annotations

from typing import Any

import pytest

from kscale.effects import ZERO_TIME
from kscale.objects.decode import to_dict
from kscale.objects.times import nanoseconds
from kscale.vpa.model.histogram import (
    CPU_HISTOGRAM_OPTIONS,
    MEMORY_HISTOGRAM_OPTIONS,
    Histogram,
    HistogramError,
    HistogramOptions,
    SavedHistogram,
)
from kscale.vpa.recommender.checkpoints import encode_histogram

_YEAR_ONE = "0001-01-01T00:00:00Z"


def options_of(inputs: dict[str, Any]) -> HistogramOptions:
    match inputs:
        case {"type": "cpu"}:
            return CPU_HISTOGRAM_OPTIONS
        case {"type": "memory"}:
            return MEMORY_HISTOGRAM_OPTIONS
        case {"type": "linear", "max_value": maximum, "bucket_size": size, "epsilon": epsilon}:
            return HistogramOptions.linear(maximum, size, epsilon)
        case {"type": "exponential", "max_value": maximum, "first_bucket_size": size, "ratio": r, "epsilon": epsilon}:
            return HistogramOptions.exponential(maximum, size, r, epsilon)
    raise AssertionError(inputs)


def time_of(text: str | None) -> int:
    return ZERO_TIME if text is None or text == _YEAR_ONE else nanoseconds(text)


def same_number(got: float, want: dict[str, Any], key: str = "hex") -> bool:
    return got == float.fromhex(want[key])


def load(h: Histogram, checkpoint: dict[str, Any] | None) -> None:
    if checkpoint is None:
        h.load(None)
        return
    weights = {int(b): w for b, w in (checkpoint.get("bucketWeights") or {}).items()}
    h.load(weights, checkpoint.get("totalWeight", 0.0), time_of(checkpoint.get("referenceTimestamp")))


def check_saved(saved: SavedHistogram, want: dict[str, Any]) -> None:
    assert {str(b): w for b, w in saved.bucket_weights.items()} == want["bucket_weights"]
    assert same_number(saved.total_weight, want, "total_weight_hex")
    assert saved.reference_time == time_of(want["reference_time"])
    assert to_dict(encode_histogram(saved)) == want["json"]


def check_state(h: Histogram, want: dict[str, Any]) -> None:
    assert (h.min_bucket, h.max_bucket) == (want["min_bucket"], want["max_bucket"])
    assert same_number(h.total_weight, want, "total_weight_hex")
    assert h.reference_time == time_of(want["reference_time"])
    weights = {str(b): float(w) for b, w in enumerate(h.weights) if w}
    assert weights == {b: float.fromhex(w["hex"]) if isinstance(w, dict) else w for b, w in want["weights"].items()}


def run(op: dict[str, Any], histograms: dict[str, Histogram], options: HistogramOptions, want: Any) -> None:
    h = histograms.get(op.get("h", ""))
    match op["op"]:
        case "find_bucket":
            assert options.find_buckets([op["value"]]).tolist() == [want]
        case "bucket_start":
            assert same_number(options.bucket_start(op["bucket"]), want)
        case "num_buckets":
            assert options.num_buckets == want
        case "add_sample":
            h.add_sample(op["value"], op["weight"], time_of(op["time"]) if op.get("time") else 0)
        case "subtract_sample":
            h.subtract_sample(op["value"], op["weight"], time_of(op["time"]) if op.get("time") else 0)
        case "merge":
            h.merge(histograms[op["other"]])
        case "percentile":
            assert same_number(h.percentile(op["p"]), want)
        case "is_empty":
            assert h.is_empty == want
        case "equals":
            assert h.equals(histograms[op["other"]]) == want
        case "string":
            str(h)
        case "state":
            check_state(h, want)
        case "save_to_checkpoint":
            check_saved(h.save(), want)
        case "load_from_checkpoint":
            load(h, op["checkpoint"])
        case "transfer_checkpoint":
            saved = h.save()
            second = 10**9
            reference = saved.reference_time // second * second if saved.reference_time != ZERO_TIME else ZERO_TIME
            histograms[op["other"]].load(saved.bucket_weights, saved.total_weight, reference)
        case other:
            raise AssertionError(other)


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    if "options_error" in want:
        with pytest.raises(HistogramError) as refused:
            options_of(inputs["options"])
        assert str(refused.value) == want["options_error"]
        return
    shared = options_of(inputs["options"])
    histograms = {}
    for name, spec in inputs.get("histograms", {}).items():
        options = options_of(spec["options"]) if "options" in spec else shared
        if "options" in spec and options is shared:  # an options object of its own, though equal
            options = HistogramOptions(options.native, options.epsilon)
        histograms[name] = Histogram.create(options, round(spec.get("half_life_s", 0) * 1e9))
    results = want["results"]
    for op, expected in zip(inputs["ops"], results, strict=False):
        panic = expected.get("panic") if isinstance(expected, dict) else None
        error = expected.get("error") if isinstance(expected, dict) else None
        if panic is None and error is None:
            run(op, histograms, shared, expected)
            continue
        with pytest.raises(HistogramError) as raised:
            run(op, histograms, shared, expected)
        assert str(raised.value) == (panic or error), op
    assert len(results) == len(inputs["ops"]) or "panic" in results[-1]
