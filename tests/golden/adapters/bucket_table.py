"""Kind ``bucket-table``: number of buckets, all starts by their bits, and the bucket of each value."""

from __future__ import annotations

from typing import Any

from kscale.vpa.model.histogram import CPU_HISTOGRAM_OPTIONS, MEMORY_HISTOGRAM_OPTIONS, HistogramOptions


def check(case: dict[str, Any]) -> None:
    inputs, want = case["input"], case["want"]
    match inputs["options"]:
        case {"type": "cpu"}:
            options = CPU_HISTOGRAM_OPTIONS
        case {"type": "memory"}:
            options = MEMORY_HISTOGRAM_OPTIONS
        case {"type": "linear", "max_value": maximum, "bucket_size": size, "epsilon": epsilon}:
            options = HistogramOptions.linear(maximum, size, epsilon)
        case {"type": "exponential", "max_value": maximum, "first_bucket_size": size, "ratio": r, "epsilon": epsilon}:
            options = HistogramOptions.exponential(maximum, size, r, epsilon)
        case other:
            raise AssertionError(other)
    assert options.num_buckets == want["num_buckets"]
    starts = [{"bucket": b, "hex": options.bucket_start(b)} for b in (s["bucket"] for s in want["starts"])]
    assert starts == [{"bucket": s["bucket"], "hex": float.fromhex(s["hex"])} for s in want["starts"]]
    assert options.find_buckets([float(v) for v in inputs["find"]]).tolist() == want["find"]
