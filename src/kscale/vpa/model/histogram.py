"""Decaying histograms, thousands at once, bit for bit equal to upstream's (upstream: ``pkg/recommender/util``).

:class:`Histograms` is a bank: row *r* of its 2-D array ``weights[rows, buckets]`` is one histogram. :class:`Histogram`
is a view of one row with upstream's operations. Numbers equal upstream's bit for bit, including the last bits of Go's
``log``, ``pow`` and ``exp2``. Times and durations are in nanoseconds; times lie between the years 1823 and 2116. The
kernel is ``_native/src/histogram.cpp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kscale._native import _histogram
from kscale.effects import ZERO_TIME
from kscale.errors import KscaleError
from kscale.objects.names import format_float

__all__ = [
    "CPU_HISTOGRAM_OPTIONS",
    "EPSILON",
    "MEMORY_HISTOGRAM_OPTIONS",
    "Histogram",
    "HistogramError",
    "HistogramOptions",
    "Histograms",
    "SavedHistogram",
]

EPSILON: Final = 0.001 * 0.1
"""Weights below this value are ignored: a thousandth of the minimum weight of a sample."""
_BUCKET_GROWTH: Final = 1.0 + 0.05
_EQUALITY_TOLERANCE: Final = 1e-15

Rows = npt.NDArray[np.int64]


class HistogramError(KscaleError, ValueError):
    """An error or panic of upstream, with upstream's text."""


class HistogramOptions(msgspec.Struct, eq=False):
    """Buckets of a histogram. Two histograms can be merged only if they share one options *object*."""

    native: _histogram.Buckets
    epsilon: float

    @classmethod
    def linear(cls, max_value: float, bucket_size: float, epsilon: float) -> HistogramOptions:
        """Create buckets of equal size up to ``max_value``. ``epsilon``: lower weights of buckets are ignored.

        Raises :class:`HistogramError` unless all three arguments are positive.
        """
        if not (max_value > 0 and bucket_size > 0 and epsilon > 0):
            raise HistogramError("maxValue and bucketSize must both be positive")
        return cls(_histogram.Buckets.linear(max_value, bucket_size, epsilon), epsilon)

    @classmethod
    def exponential(cls, max_value: float, first_bucket_size: float, ratio: float, epsilon: float) -> HistogramOptions:
        """Create buckets up to ``max_value``, each ``ratio`` times as large as the one before.

        ``epsilon``: lower weights of buckets are ignored. Raises :class:`HistogramError` unless all arguments are
        positive and ``ratio`` is greater than 1.
        """
        if not (max_value > 0 and first_bucket_size > 0 and ratio > 1 and epsilon > 0):
            raise HistogramError("maxValue, firstBucketSize and epsilon must be > 0.0, ratio must be > 1.0")
        return cls(_histogram.Buckets.exponential(max_value, first_bucket_size, ratio, epsilon), epsilon)

    @property
    def num_buckets(self) -> int:
        """Return the number of buckets."""
        return self.native.size

    def find_buckets(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the bucket of each value: the first one for smaller values, the last one for greater values.

        As in upstream, NaN and infinity give -2^63, which is no bucket, in exponential schemes, and 0 in linear ones.
        """
        array = np.ascontiguousarray(values, np.float64)
        buckets = np.empty(array.shape, np.int64)
        self.native.find(array, buckets)
        return buckets

    def bucket_start(self, bucket: int) -> float:
        """Return the lower edge of a bucket. Raises :class:`HistogramError` for a number outside the range."""
        if not 0 <= bucket < self.num_buckets:
            raise HistogramError(f"index {bucket} out of range [0..{self.num_buckets - 1}]")
        return self.native.start(bucket)

    def __deepcopy__(self, memo: dict[int, Any]) -> HistogramOptions:
        return self


CPU_HISTOGRAM_OPTIONS: Final = HistogramOptions.exponential(1000.0, 0.01, _BUCKET_GROWTH, EPSILON)
"""The production scheme for CPU, in cores: 176 buckets up to 1000, the first of 10 millicores, growing by 5 %."""
MEMORY_HISTOGRAM_OPTIONS: Final = HistogramOptions.exponential(1e12, 1e7, _BUCKET_GROWTH, EPSILON)
"""The production scheme for memory, in bytes: 176 buckets up to 1 TB, the first of 10 MB, growing by 5 %."""


class SavedHistogram(NamedTuple):
    """A histogram in upstream's lossy checkpoint form: the heaviest bucket weighs 10000."""

    bucket_weights: dict[int, int]
    total_weight: float
    reference_time: int
    """Nanoseconds since 1970, or :data:`~kscale.effects.ZERO_TIME`."""


class Histograms:
    """Bank of ``rows`` histograms with common options as columns. ``half_life`` in nanoseconds, 0 for no decay.

    Columns (NumPy arrays, written to in place): ``weights`` float64[rows, buckets], ``total`` float64[rows],
    ``min_bucket`` and ``max_bucket`` int32[rows] (where weights reach epsilon), ``reference`` int64[rows] (the time at
    which a sample's weight counts once; :data:`~kscale.effects.ZERO_TIME` before the first).
    """

    __slots__ = ("half_life", "max_bucket", "min_bucket", "native", "options", "reference", "total", "weights")

    def __init__(self, options: HistogramOptions, rows: int, half_life: int = 0) -> None:
        self.options = options
        self.half_life = half_life
        self.weights = np.zeros((rows, options.num_buckets))
        self.total = np.zeros(rows)
        self.min_bucket = np.full(rows, options.num_buckets - 1, np.int32)
        self.max_bucket = np.zeros(rows, np.int32)
        self.reference = np.full(rows, ZERO_TIME, np.int64)
        self.bind()

    def bind(self) -> None:
        """Create the kernel's bank from the current columns. Call this after columns were replaced."""
        self.native = _histogram.Bank(
            self.options.native,
            self.half_life,
            self.weights,
            self.total,
            self.min_bucket,
            self.max_bucket,
            self.reference,
        )

    def __len__(self) -> int:
        return len(self.total)

    @property
    def nbytes(self) -> int:
        """Return the size of all columns in bytes."""
        return sum(c.nbytes for c in (self.weights, self.total, self.min_bucket, self.max_bucket, self.reference))

    def row(self, index: int) -> Histogram:
        """Return a view of the histogram in row ``index``. Raises IndexError if there is no such row."""
        return Histogram(self, index)

    def resize(self, rows: int) -> None:
        """Extend the bank to ``rows`` rows; it never shrinks. New histograms are empty, and their memory is
        untouched.
        """
        old = len(self)
        if rows <= old:
            return
        more = Histograms(self.options, rows, self.half_life)
        for name in ("weights", "total", "min_bucket", "max_bucket", "reference"):
            column = getattr(more, name)
            column[:old] = getattr(self, name)
            setattr(self, name, column)
        self.bind()

    def clear(self, rows: int | Rows) -> None:
        """Make rows empty, as new ones are."""
        self.weights[rows] = 0.0
        self.total[rows] = 0.0
        self.min_bucket[rows] = self.options.num_buckets - 1
        self.max_bucket[rows] = 0
        self.reference[rows] = ZERO_TIME

    def copy(self) -> Histograms:
        """Return an independent copy that shares the options object."""
        other = Histograms(self.options, 0, self.half_life)
        for name in ("weights", "total", "min_bucket", "max_bucket", "reference"):
            setattr(other, name, getattr(self, name).copy())
        other.bind()
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Histograms:
        return self.copy()

    # -- batches -----------------------------------------------------------------------------------------------

    def add_samples(
        self,
        rows: npt.ArrayLike,
        values: npt.ArrayLike,
        weights: npt.ArrayLike,
        times: npt.ArrayLike,
        *,
        subtract: bool = False,
    ) -> None:
        """Add each ``values[i]`` to (or subtract it from) row ``rows[i]``, in order, with the result of single calls.

        ``weights[i]`` and ``times[i]`` (nanoseconds) belong to ``values[i]``. Raises :class:`HistogramError`, and
        changes nothing, for a negative weight or a value without a bucket.
        """
        weight = np.ascontiguousarray(weights, np.float64)
        if bool((weight < 0).any()):
            raise HistogramError("sample weight must be non-negative")
        value = np.ascontiguousarray(values, np.float64)
        outside = self.options.find_buckets(value)
        if bool((outside < 0).any()):
            bucket = int(outside[outside < 0][0])
            raise HistogramError(f"runtime error: index out of range [{bucket}]")
        self.native.add(
            np.ascontiguousarray(rows, np.int64), value, weight, np.ascontiguousarray(times, np.int64), subtract
        )

    def percentiles(self, p: float, rows: npt.ArrayLike | None = None) -> npt.NDArray[np.float64]:
        """Return percentile ``p`` (0..1) of each row (None: all rows), as the bucket's upper edge, or 0.0 if empty."""
        which = np.arange(len(self)) if rows is None else np.ascontiguousarray(rows, np.int64)
        out = np.empty(len(which))
        self.native.percentile(which, p, out)
        return out

    def merge(self, rows: npt.ArrayLike, other: Histograms, other_rows: npt.ArrayLike) -> None:
        """Add ``other_rows[i]`` of ``other`` to ``rows[i]``, in order.

        As upstream, the older of two reference times becomes the newer one, and weights are scaled to it, also in
        ``other``. Raises HistogramError if half-lives or options differ.
        """
        if self.half_life != other.half_life:
            raise HistogramError("can't merge decaying histograms with different half life periods")
        if self.options is not other.options:
            raise HistogramError("can't merge histograms with different options")
        self.native.merge(
            np.ascontiguousarray(rows, np.int64), other.native, np.ascontiguousarray(other_rows, np.int64)
        )

    def save(self, rows: npt.ArrayLike) -> list[SavedHistogram]:
        """Return the checkpoint form of each of these rows, in their order."""
        which = np.ascontiguousarray(rows, np.int64)
        weights = np.empty((len(which), self.options.num_buckets), np.uint32)
        self.native.save(which, weights)
        flat = weights.ravel()
        nonzero = np.flatnonzero(flat)
        lines, buckets = np.divmod(nonzero, self.options.num_buckets)
        pairs = list(zip(buckets.tolist(), flat[nonzero].tolist(), strict=True))
        ends = [0, *np.cumsum(np.bincount(lines, minlength=len(which))).tolist()]
        references = self.reference[which].tolist() if self.half_life else [ZERO_TIME] * len(which)
        return [
            SavedHistogram(dict(pairs[begin:end]), total, reference)
            for (begin, end), total, reference in zip(
                pairwise(ends), self.total[which].tolist(), references, strict=True
            )
        ]


class Histogram:
    """One row of a bank, with upstream's operations."""

    __slots__ = ("bank", "index")

    def __init__(self, bank: Histograms, index: int) -> None:
        if not 0 <= index < len(bank):
            raise IndexError(f"histogram {index} of {len(bank)}")
        self.bank = bank
        self.index = index

    @classmethod
    def create(cls, options: HistogramOptions, half_life: int = 0) -> Histogram:
        """Create an empty histogram in its own bank. ``half_life``: nanoseconds; 0: no decay."""
        return cls(Histograms(options, 1, half_life), 0)

    @property
    def total_weight(self) -> float:
        """Return the running sum of weights."""
        return float(self.bank.total[self.index])

    @property
    def min_bucket(self) -> int:
        """Return the lowest bucket whose weight reached epsilon (the last bucket if there is none)."""
        return int(self.bank.min_bucket[self.index])

    @property
    def max_bucket(self) -> int:
        """Return the highest bucket whose weight reached epsilon (0 if there is none)."""
        return int(self.bank.max_bucket[self.index])

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """Return a view of the weight of each bucket."""
        view: npt.NDArray[np.float64] = self.bank.weights[self.index]
        return view

    @property
    def reference_time(self) -> int:
        """Return the time at which a sample's weight is not scaled, in nanoseconds since 1970.

        :data:`~kscale.effects.ZERO_TIME` if it is not set.
        """
        return int(self.bank.reference[self.index])

    @property
    def is_empty(self) -> bool:
        """Check whether no bucket has a weight of at least epsilon."""
        return bool(self.bank.native.is_empty(self.index))

    def add_sample(self, value: float, weight: float, time: int = 0) -> None:
        """Add a value; its weight doubles with every half life between the reference and ``time`` (nanoseconds).

        Raises HistogramError for a negative weight or a value without a bucket.
        """
        self.bank.add_samples([self.index], [value], [weight], [time])

    def subtract_sample(self, value: float, weight: float, time: int = 0) -> None:
        """Subtract a value that was added at ``time`` (nanoseconds); weights below epsilon become 0.

        Raises HistogramError for a negative weight or a value without a bucket.
        """
        self.bank.add_samples([self.index], [value], [weight], [time], subtract=True)

    def percentile(self, p: float) -> float:
        """Return percentile ``p`` (0..1) as the bucket's upper edge; 0.0 for an empty histogram."""
        return float(self.bank.percentiles(p, [self.index])[0])

    def merge(self, other: Histogram) -> None:
        """Add the weights of another histogram to this one; see :meth:`Histograms.merge`."""
        self.bank.merge([self.index], other.bank, [other.index])

    def scale(self, factor: float) -> None:
        """Scale all weights between ``min_bucket`` and ``max_bucket`` (upstream leaves others unchanged).

        Raises HistogramError if ``factor`` is negative.
        """
        if factor < 0:
            raise HistogramError("scale factor must be non-negative")
        self.bank.native.scale(self.index, factor)

    def equals(self, other: Histogram) -> bool:
        """Check whether two histograms are equal, weights with a tolerance of 1e-15.

        False unless both have the same options object, and equal half lives, reference times, lowest and highest
        buckets. Total weights may differ.
        """
        mine, theirs = self.bank, other.bank
        if mine.half_life != theirs.half_life or self.reference_time != other.reference_time:
            return False
        if mine.options is not theirs.options or (self.min_bucket, self.max_bucket) != (
            other.min_bucket,
            other.max_bucket,
        ):
            return False
        span = slice(self.min_bucket, self.max_bucket + 1)
        return bool((np.abs(self.weights[span] - other.weights[span]) <= _EQUALITY_TOLERANCE).all())

    def save(self) -> SavedHistogram:
        """Return the histogram in the form of upstream's checkpoints."""
        return self.bank.save([self.index])[0]

    def load(
        self, bucket_weights: Mapping[int, int] | None, total_weight: float = 0.0, reference_time: int = ZERO_TIME
    ) -> None:
        """Add the weights of a checkpoint, scaled to the sum ``total_weight``.

        ``bucket_weights``: weight by bucket; None, for no checkpoint, is an error. A decaying histogram gets
        ``reference_time``. Raises :class:`HistogramError` with upstream's text, in upstream's order of checks.
        """
        if bucket_weights is None:
            raise HistogramError("cannot load from empty checkpoint")
        if total_weight < 0:
            raise HistogramError(f"cannot load checkpoint with negative weight {format_float(total_weight)}")
        size = self.bank.options.num_buckets
        for bucket in sorted(bucket_weights):
            if bucket >= size:
                raise HistogramError(f"checkpoint has bucket {bucket} that is exceeding histogram buckets {size}")
            if bucket < 0:
                raise HistogramError(f"checkpoint has a negative bucket {bucket}")
        index = np.array(sorted(bucket_weights), np.int64)
        weights = np.array([bucket_weights[b] for b in index.tolist()], np.uint32)
        self.bank.native.load(self.index, index, weights, total_weight)
        if self.bank.half_life:
            self.bank.reference[self.index] = reference_time

    def __str__(self) -> str:
        lines = [
            f"minBucket: {self.min_bucket}, maxBucket: {self.max_bucket}, totalWeight: {self.total_weight:.3f}",
            "%-tile\tvalue",
            *(f"{i}\t{self.percentile(0.01 * i):.3f}" for i in range(0, 101, 5)),
        ]
        return "\n".join(lines)
