# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Decaying histograms in two dimensions, and their inputs and outputs: samples, checkpoints, recommendations."""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libcpp.vector cimport vector

from kscale.errors import NativeError


cdef extern from "kscale/histogram.hpp" namespace "kscale::histogram" nogil:
    const int64_t kUnset
    const int64_t kFarthest
    cdef cppclass c_Buckets "kscale::histogram::Buckets":
        c_Buckets() noexcept
        @staticmethod
        c_Buckets linear(double, double, double) except +
        @staticmethod
        c_Buckets exponential(double, double, double, double) except +
        int64_t size() noexcept
        double epsilon() noexcept
        int64_t find(double) noexcept
        int64_t find_exact(double) noexcept
        void find_all(const double*, Py_ssize_t, int64_t*) noexcept
        vector[double] starts
    cdef struct c_Bank "kscale::histogram::Bank":
        double* weights
        double* total
        int32_t* min_bucket
        int32_t* max_bucket
        int64_t* reference
        int64_t half_life
        Py_ssize_t stride
        const c_Buckets* buckets
    bint c_is_empty "kscale::histogram::is_empty"(const c_Bank&, Py_ssize_t) noexcept
    void c_add "kscale::histogram::add"(const c_Bank&, Py_ssize_t, int64_t, double) noexcept
    void c_subtract "kscale::histogram::subtract"(const c_Bank&, Py_ssize_t, int64_t, double) noexcept
    void c_scale "kscale::histogram::scale"(const c_Bank&, Py_ssize_t, double) noexcept
    void c_shift "kscale::histogram::shift"(const c_Bank&, Py_ssize_t, int64_t) noexcept
    double c_factor "kscale::histogram::factor"(const c_Bank&, Py_ssize_t, int64_t) noexcept
    double c_percentile "kscale::histogram::percentile"(const c_Bank&, Py_ssize_t, double) noexcept
    void c_merge "kscale::histogram::merge"(const c_Bank&, Py_ssize_t, const c_Bank&, Py_ssize_t) noexcept
    void c_save "kscale::histogram::save"(const c_Bank&, Py_ssize_t, uint32_t*) noexcept
    void c_load "kscale::histogram::load"(
        const c_Bank&, Py_ssize_t, const int64_t*, const uint32_t*, Py_ssize_t, double) noexcept

cdef extern from "kscale/go_math.hpp" namespace "kscale::go" nogil:
    double c_log "kscale::go::log"(double) noexcept
    double c_exp2 "kscale::go::exp2"(double) noexcept
    double c_pow "kscale::go::pow"(double, double) noexcept
    int64_t c_to_int64 "kscale::go::to_int64"(double) noexcept

cdef extern from "kscale/usage.hpp" namespace "kscale::usage" nogil:
    cdef struct c_Containers "kscale::usage::Containers":
        const int32_t* aggregate
        int64_t* last_cpu
        int64_t* last_memory
        int64_t* window_end
        int64_t* memory_peak
        int64_t* oom_peak
    cdef struct c_Aggregates "kscale::usage::Aggregates":
        int64_t* first_sample
        int64_t* last_sample
        int64_t* samples
        const int64_t* interval
        const double* oom_ratio
        const double* oom_min_bump
    void c_add_cpu "kscale::usage::add_cpu"(
        const c_Bank&, const c_Containers&, const c_Aggregates&, Py_ssize_t, const int32_t*, const int64_t*,
        const int64_t*, uint8_t*, Py_ssize_t) except +
    void c_add_memory "kscale::usage::add_memory"(
        const c_Bank&, const c_Containers&, const c_Aggregates&, Py_ssize_t, const int32_t*, const int64_t*,
        const int64_t*, const uint8_t*, uint8_t*, int64_t*, Py_ssize_t) except +
    void c_add_cpu_grid "kscale::usage::add_cpu_grid"(
        const c_Bank&, const c_Containers&, const c_Aggregates&, Py_ssize_t, const int64_t*, const int32_t*,
        Py_ssize_t, const int64_t*, const int32_t*, int64_t*, Py_ssize_t) except +
    cdef struct c_Fed "kscale::usage::Fed":
        int64_t missing
        int64_t infinite
        int64_t negative
        int64_t late
        int64_t refused
        int64_t behind
        int64_t newest
    cdef struct c_Batch "kscale::usage::Batch":
        Py_ssize_t rows
        const int32_t* series
        const int64_t* time
        const double* value
        Py_ssize_t n_series
        const int32_t* slot
        int64_t now
        int64_t* finite
    cdef struct c_RowsIn "kscale::usage::RowsIn":
        const int32_t* series
        const int64_t* time
        const double* cpu
        const double* memory
    cdef struct c_RowsOut "kscale::usage::RowsOut":
        int32_t* series
        int64_t* time
        double* cpu
        double* memory
    Py_ssize_t c_changes "kscale::usage::changes"(const int32_t*, Py_ssize_t) noexcept
    Py_ssize_t c_arrange "kscale::usage::arrange"(
        const c_Containers&, Py_ssize_t, Py_ssize_t, const c_RowsIn&, Py_ssize_t, const int32_t*, const c_RowsOut&,
        Py_ssize_t) except +
    const int32_t kUnplaced "kscale::usage::kUnplaced"
    const int32_t kUnasked "kscale::usage::kUnasked"
    c_Fed c_feed_cpu "kscale::usage::feed_cpu"(
        const c_Bank&, const c_Containers&, const c_Aggregates&, const c_Batch&, Py_ssize_t) except +
    c_Fed c_feed_memory "kscale::usage::feed_memory"(
        const c_Bank&, const c_Containers&, const c_Aggregates&, const c_Batch&, Py_ssize_t) except +
    Py_ssize_t c_first_stranger "kscale::usage::first_stranger"(
        const c_Containers&, Py_ssize_t, Py_ssize_t, const int32_t*) noexcept
    bint c_all_near "kscale::usage::all_near"(const int64_t*, Py_ssize_t) noexcept
    Py_ssize_t c_look_up "kscale::usage::look_up"(
        const int32_t*, Py_ssize_t, const int32_t*, Py_ssize_t, int32_t*) noexcept
    bint c_in_order "kscale::usage::in_order"(const int32_t*, const int64_t*, Py_ssize_t, int64_t*) noexcept

cdef extern from "kscale/estimators.hpp" namespace "kscale::estimators" nogil:
    cdef struct c_Estimation "kscale::estimators::Estimation":
        double percentile[2][3]
        int64_t interval[2]
        double margin
    void c_recommend "kscale::estimators::recommend"(
        const c_Bank&, const c_Bank&, const int64_t*, const int64_t*, const int64_t*, const int64_t*,
        const c_Estimation&, Py_ssize_t, int64_t*, Py_ssize_t) except +
    double c_confidence "kscale::estimators::confidence"(int64_t, int64_t, int64_t, int64_t) noexcept
    double c_multiplier "kscale::estimators::confidence_multiplier"(double, double, double) noexcept


UNSET = kUnset
ACCEPTED, DISCARDED, TOO_OLD = 0, 1, 2
FARTHEST = kFarthest
UNPLACED, UNASKED = kUnplaced, kUnasked
cdef Py_ssize_t kLongRun = 8  # number of consecutive rows of one series from which on the order is not changed


def go_log(double x):
    return c_log(x)


def go_exp2(double x):
    return c_exp2(x)


def go_pow(double x, double y):
    if y != <double>c_to_int64(y):
        raise NativeError(f"go_pow takes integral exponents only, not {y}")
    return c_pow(x, y)


def go_int64(double x):
    return c_to_int64(x)


def look_up(const int32_t[::1] table, const int32_t[::1] index, int32_t[::1] out):
    """Set out[i] = table[index[i]]. Return whether no entry is negative."""
    cdef Py_ssize_t bad, n = index.shape[0]
    if out.shape[0] != n:
        raise NativeError(f"{n} indices, {out.shape[0]} places")
    if n == 0:
        return True
    if table.shape[0] == 0:
        raise NativeError(f"index {index[0]} of 0")
    with nogil:
        bad = c_look_up(&table[0], table.shape[0], &index[0], n, &out[0])
    if bad >= 0:
        raise NativeError(f"index {index[bad]} of {table.shape[0]}")
    return bad == -1


def in_order(const int32_t[::1] series, const int64_t[::1] times, Py_ssize_t n_series):
    """Return whether the times of every series ascend."""
    cdef Py_ssize_t n = series.shape[0]
    cdef bint found
    cdef vector[int64_t] latest
    if times.shape[0] != n or n_series < 0:
        raise NativeError(f"{n} rows, {times.shape[0]} times, {n_series} series")
    if n == 0:
        return True
    check_series(series, n_series)
    latest.assign(n_series, kUnset)
    with nogil:
        found = c_in_order(&series[0], &times[0], n, latest.data())
    return found


def confidence(int64_t first, int64_t last, int64_t samples, int64_t interval):
    if interval <= 0:
        raise NativeError(f"the confidence interval must be positive, not {interval} ns")
    return c_confidence(first, last, samples, interval)


def confidence_multiplier(double confidence, double multiplier, double exponent):
    if exponent != <double>c_to_int64(exponent):
        raise NativeError(f"confidence exponents must be integral, not {exponent}")
    return c_multiplier(confidence, multiplier, exponent)


cdef class Buckets:
    cdef c_Buckets c

    @staticmethod
    def linear(double max_value, double bucket_size, double epsilon):
        if not (max_value > 0 and bucket_size > 0 and epsilon > 0 and max_value / bucket_size < 1e6):
            raise NativeError(f"linear buckets of {bucket_size} up to {max_value}")
        cdef Buckets self = Buckets()
        self.c = c_Buckets.linear(max_value, bucket_size, epsilon)
        return self

    @staticmethod
    def exponential(double max_value, double first, double ratio, double epsilon):
        cdef double steps
        if not (max_value > 0 and first > 0 and ratio > 1 and epsilon > 0):
            raise NativeError(f"exponential buckets from {first} by {ratio} up to {max_value}")
        steps = c_log(max_value * (ratio - 1) / first + 1) / c_log(ratio)
        if not steps < 1e6:
            raise NativeError(f"exponential buckets from {first} by {ratio} up to {max_value}: too many")
        cdef Buckets self = Buckets()
        self.c = c_Buckets.exponential(max_value, first, ratio, epsilon)
        return self

    @property
    def size(self):
        return self.c.size()

    def start(self, int64_t bucket):
        if bucket < 0 or bucket >= self.c.size():
            raise NativeError(f"index {bucket} out of range [0..{self.c.size() - 1}]")
        return self.c.starts[bucket]

    def find(self, const double[::1] values, int64_t[::1] out, bint exact=False):
        """Set out[i] to the bucket of values[i]; `exact`: compute it without the table."""
        cdef Py_ssize_t i
        if out.shape[0] != values.shape[0]:
            raise NativeError(f"{values.shape[0]} values, {out.shape[0]} places")
        if not values.shape[0]:
            return
        with nogil:
            if exact:
                for i in range(values.shape[0]):
                    out[i] = self.c.find_exact(values[i])
            else:
                self.c.find_all(&values[0], values.shape[0], &out[0])


cdef class Bank:
    """Columns of many histograms (weights[rows, buckets]) for the kernels. The arrays are changed in place."""

    cdef c_Bank c
    cdef Buckets buckets
    cdef readonly Py_ssize_t rows
    cdef double[:, ::1] weights
    cdef double[::1] total
    cdef int32_t[::1] min_bucket
    cdef int32_t[::1] max_bucket
    cdef int64_t[::1] reference

    def __init__(self, Buckets buckets not None, int64_t half_life, double[:, ::1] weights, double[::1] total,
                 int32_t[::1] min_bucket, int32_t[::1] max_bucket, int64_t[::1] reference):
        cdef Py_ssize_t r, n = weights.shape[0]
        cdef int64_t size = buckets.c.size()
        if weights.shape[1] != size:
            raise NativeError(f"weights have {weights.shape[1]} buckets instead of {size}")
        if total.shape[0] != n or min_bucket.shape[0] != n or max_bucket.shape[0] != n or reference.shape[0] != n:
            raise NativeError(f"columns of unequal length for {n} histograms")
        if half_life < 0 or half_life > kFarthest:
            raise NativeError(f"half life {half_life} ns")
        for r in range(n):
            if not (0 <= min_bucket[r] < size and 0 <= max_bucket[r] < size):
                raise NativeError(f"bucket range [{min_bucket[r]}, {max_bucket[r]}] of histogram {r}")
        self.buckets, self.rows = buckets, n
        self.weights, self.total, self.min_bucket, self.max_bucket = weights, total, min_bucket, max_bucket
        self.reference = reference
        self.c.half_life, self.c.stride, self.c.buckets = half_life, size, &buckets.c
        if n > 0:
            self.c.weights, self.c.total = &weights[0, 0], &total[0]
            self.c.min_bucket, self.c.max_bucket, self.c.reference = &min_bucket[0], &max_bucket[0], &reference[0]

    cdef int check_rows(self, const int64_t[::1] rows) except -1:
        cdef Py_ssize_t i
        for i in range(rows.shape[0]):
            if not 0 <= rows[i] < self.rows:
                raise NativeError(f"histogram {rows[i]} of {self.rows}")
        return 0

    def add(self, const int64_t[::1] rows, const double[::1] values, const double[::1] weights,
            const int64_t[::1] times, bint subtract=False):
        """Add samples in order: rows[i] gains (or loses) weights[i], decayed to times[i], in the bucket of
        values[i].
        """
        cdef Py_ssize_t i, n = rows.shape[0]
        cdef int64_t b
        cdef double w
        if values.shape[0] != n or weights.shape[0] != n or times.shape[0] != n:
            raise NativeError("sample columns of unequal length")
        self.check_rows(rows)
        check_times(times)
        for i in range(n):
            b = self.buckets.c.find(values[i])
            if b < 0:
                raise NativeError(f"index out of range [{b}]")
        with nogil:
            for i in range(n):
                w = weights[i] * c_factor(self.c, rows[i], times[i])
                b = self.buckets.c.find(values[i])
                if subtract:
                    c_subtract(self.c, rows[i], b, w)
                else:
                    c_add(self.c, rows[i], b, w)

    def percentile(self, const int64_t[::1] rows, double p, double[::1] out):
        cdef Py_ssize_t i
        if out.shape[0] != rows.shape[0]:
            raise NativeError(f"{rows.shape[0]} histograms, {out.shape[0]} places")
        self.check_rows(rows)
        with nogil:
            for i in range(rows.shape[0]):
                out[i] = c_percentile(self.c, rows[i], p)

    def is_empty(self, int64_t row):
        if not 0 <= row < self.rows:
            raise NativeError(f"histogram {row} of {self.rows}")
        return c_is_empty(self.c, row)

    def scale(self, int64_t row, double factor):
        if not 0 <= row < self.rows:
            raise NativeError(f"histogram {row} of {self.rows}")
        c_scale(self.c, row, factor)

    def shift(self, int64_t row, int64_t reference):
        if not 0 <= row < self.rows or self.c.half_life == 0 or not -kFarthest <= reference <= kFarthest:
            raise NativeError(f"histogram {row} of {self.rows} to {reference}")
        c_shift(self.c, row, reference)

    def merge(self, const int64_t[::1] rows, Bank other not None, const int64_t[::1] other_rows):
        """Add other_rows[i] of `other` to rows[i], in order; the reference times of `other` may move."""
        cdef Py_ssize_t i
        if rows.shape[0] != other_rows.shape[0]:
            raise NativeError(f"{rows.shape[0]} rows to merge {other_rows.shape[0]} into")
        if other.buckets is not self.buckets or other.c.half_life != self.c.half_life:
            raise NativeError("banks of different buckets or half lives")
        self.check_rows(rows)
        other.check_rows(other_rows)
        with nogil:
            for i in range(rows.shape[0]):
                c_merge(self.c, rows[i], other.c, other_rows[i])

    def save(self, const int64_t[::1] rows, uint32_t[:, ::1] out):
        cdef Py_ssize_t i
        if out.shape[0] != rows.shape[0] or out.shape[1] != self.c.stride:
            raise NativeError(f"a checkpoint of {rows.shape[0]} histograms has [{rows.shape[0]}, {self.c.stride}] weights")
        self.check_rows(rows)
        with nogil:
            for i in range(rows.shape[0]):
                c_save(self.c, rows[i], &out[i, 0])

    def load(self, int64_t row, const int64_t[::1] index, const uint32_t[::1] weights, double total):
        cdef Py_ssize_t i, n = index.shape[0]
        if not 0 <= row < self.rows or weights.shape[0] != n:
            raise NativeError(f"histogram {row} of {self.rows}; {n} buckets, {weights.shape[0]} weights")
        for i in range(n):
            if not 0 <= index[i] < self.c.stride:
                raise NativeError(f"bucket {index[i]} of {self.c.stride}")
        if n > 0:
            c_load(self.c, row, &index[0], &weights[0], n, total)


cdef int check_series(const int32_t[::1] series, Py_ssize_t n_series) except -1:
    cdef Py_ssize_t i, n = series.shape[0], bad = -1
    with nogil:
        for i in range(n):
            if not 0 <= series[i] < n_series:
                bad = i
                break
    if bad >= 0:
        raise NativeError(f"series {series[bad]} of {n_series}")
    return 0


cdef int check_times(const int64_t[::1] times) except -1:
    cdef Py_ssize_t i, n = times.shape[0]
    cdef bint near
    if n == 0:
        return 0
    with nogil:
        near = c_all_near(&times[0], n)
    if not near:
        for i in range(n):
            if not -kFarthest <= times[i] <= kFarthest:
                raise NativeError(f"time {times[i]} ns is not between the years 1823 and 2116")
    return 0


cdef class Usage:
    """Columns of the containers and aggregates that samples belong to. The arrays are changed in place."""

    cdef c_Containers containers
    cdef c_Aggregates aggregates
    cdef Py_ssize_t n_containers
    cdef Py_ssize_t n_aggregates
    cdef object keep

    def __init__(self, const int32_t[::1] aggregate, int64_t[::1] last_cpu, int64_t[::1] last_memory,
                 int64_t[::1] window_end, int64_t[::1] memory_peak, int64_t[::1] oom_peak, int64_t[::1] first_sample,
                 int64_t[::1] last_sample, int64_t[::1] samples, const int64_t[::1] interval,
                 const double[::1] oom_ratio, const double[::1] oom_min_bump):
        cdef Py_ssize_t n = aggregate.shape[0], m = first_sample.shape[0], i
        if (last_cpu.shape[0] != n or last_memory.shape[0] != n or window_end.shape[0] != n
                or memory_peak.shape[0] != n or oom_peak.shape[0] != n):
            raise NativeError(f"columns of unequal length for {n} containers")
        if (last_sample.shape[0] != m or samples.shape[0] != m or interval.shape[0] != m or oom_ratio.shape[0] != m
                or oom_min_bump.shape[0] != m):
            raise NativeError(f"columns of unequal length for {m} aggregates")
        for i in range(n):
            if not -1 <= aggregate[i] < m:
                raise NativeError(f"aggregate {aggregate[i]} of {m}")
        for i in range(m):
            if not 0 <= interval[i] <= kFarthest:
                raise NativeError(f"aggregation interval {interval[i]} ns")
        self.keep = (aggregate, last_cpu, last_memory, window_end, memory_peak, oom_peak, first_sample, last_sample,
                     samples, interval, oom_ratio, oom_min_bump)
        self.n_containers, self.n_aggregates = n, m
        if n > 0:
            self.containers = c_Containers(&aggregate[0], &last_cpu[0], &last_memory[0], &window_end[0],
                                           &memory_peak[0], &oom_peak[0])
        if m > 0:
            self.aggregates = c_Aggregates(&first_sample[0], &last_sample[0], &samples[0], &interval[0], &oom_ratio[0],
                                           &oom_min_bump[0])

    cdef int check(self, Bank bank, const int32_t[::1] container, const int64_t[::1] times) except -1:
        if bank.rows < self.n_aggregates:
            raise NativeError(f"{bank.rows} histograms for {self.n_aggregates} aggregates")
        cdef Py_ssize_t bad = -1
        if container.shape[0] > 0:
            with nogil:
                bad = c_first_stranger(self.containers, self.n_containers, container.shape[0], &container[0])
        if bad >= 0:
            raise NativeError(f"container {container[bad]} of {self.n_containers}, or one without aggregate")
        check_times(times)
        return 0

    def add_cpu(self, Bank bank not None, const int32_t[::1] container, const int64_t[::1] times,
                const int64_t[::1] millicores, uint8_t[::1] status, Py_ssize_t threads=1):
        cdef Py_ssize_t n = container.shape[0]
        if times.shape[0] != n or millicores.shape[0] != n or status.shape[0] != n:
            raise NativeError("sample columns of unequal length")
        self.check(bank, container, times)
        if n > 0:
            with nogil:
                c_add_cpu(bank.c, self.containers, self.aggregates, n, &container[0], &times[0], &millicores[0],
                          &status[0], threads)

    def add_memory(self, Bank bank not None, const int32_t[::1] container, const int64_t[::1] times,
                   const int64_t[::1] amounts, uint8_t[::1] status, const uint8_t[::1] is_oom=None,
                   Py_ssize_t threads=1, int64_t[::1] taken=None):
        """Add memory samples. `taken`, if given, receives the amount that each accepted OOM counts as."""
        cdef Py_ssize_t n = container.shape[0]
        cdef const uint8_t* oom = NULL
        cdef int64_t* counted = NULL
        if times.shape[0] != n or amounts.shape[0] != n or status.shape[0] != n:
            raise NativeError("sample columns of unequal length")
        self.check(bank, container, times)
        if n == 0:
            return
        if is_oom is not None:
            if is_oom.shape[0] != n:
                raise NativeError("sample columns of unequal length")
            oom = &is_oom[0]
        if taken is not None:
            if taken.shape[0] != n:
                raise NativeError("sample columns of unequal length")
            counted = &taken[0]
        with nogil:
            c_add_memory(bank.c, self.containers, self.aggregates, n, &container[0], &times[0], &amounts[0], oom,
                         &status[0], counted, threads)

    cdef int check_slots(self, const int32_t[::1] slots) except -1:
        cdef Py_ssize_t i
        for i in range(slots.shape[0]):
            if slots[i] == kUnplaced or slots[i] == kUnasked:
                continue
            if not 0 <= slots[i] < self.n_containers or self.containers.aggregate[slots[i]] < 0:
                raise NativeError(f"container {slots[i]} of {self.n_containers}, or one without aggregate")
        return 0

    def arranged(self, const int32_t[::1] series, const int64_t[::1] times, const double[::1] cpu,
                 const double[::1] memory, const int32_t[::1] slots, Py_ssize_t threads=1):
        """Return (series, times, cpu, memory) sorted by aggregate, so that `feed` processes one aggregate after the
        other.

        None if rows of one series are mostly consecutive already. `cpu` or `memory` may be None.
        """
        cdef Py_ssize_t n = series.shape[0], kept
        cdef c_RowsIn given
        cdef c_RowsOut to
        cdef int32_t[::1] out_series
        cdef int64_t[::1] out_times
        cdef double[::1] out_cpu, out_memory
        if times.shape[0] != n or (cpu is not None and cpu.shape[0] != n) \
                or (memory is not None and memory.shape[0] != n):
            raise NativeError("usage columns of unequal length")
        self.check_slots(slots)
        check_series(series, slots.shape[0])
        if n == 0 or c_changes(&series[0], n) * kLongRun < n:
            return None
        out_series, out_times = np.empty(n, np.int32), np.empty(n, np.int64)
        given = c_RowsIn(&series[0], &times[0], NULL, NULL)
        to = c_RowsOut(&out_series[0], &out_times[0], NULL, NULL)
        if cpu is not None:
            out_cpu = np.empty(n)
            given.cpu, to.cpu = &cpu[0], &out_cpu[0]
        if memory is not None:
            out_memory = np.empty(n)
            given.memory, to.memory = &memory[0], &out_memory[0]
        with nogil:
            kept = c_arrange(self.containers, self.n_aggregates, n, given, slots.shape[0], &slots[0], to, threads)
        return (out_series.base[:kept], out_times.base[:kept], None if cpu is None else out_cpu.base[:kept],
                None if memory is None else out_memory.base[:kept])

    def feed(self, Bank bank not None, bint cpu, const int32_t[::1] series, const int64_t[::1] times,
             const double[::1] values, const int32_t[::1] slots, int64_t[::1] finite, int64_t now, Py_ssize_t threads=1):
        """Add rows of recorded usage in cores or bytes (see usage.hpp). Returns counts of what became of them, as a
        dict.
        """
        cdef Py_ssize_t n = series.shape[0], m = slots.shape[0]
        cdef c_Batch batch
        cdef c_Fed fed
        if times.shape[0] != n or values.shape[0] != n or finite.shape[0] != m:
            raise NativeError("usage columns of unequal length")
        if bank.rows < self.n_aggregates:
            raise NativeError(f"{bank.rows} histograms for {self.n_aggregates} aggregates")
        self.check_slots(slots)
        check_series(series, m)
        check_times(times)
        if n > 0:
            batch.rows, batch.n_series, batch.now = n, m, now
            batch.series, batch.time, batch.value = &series[0], &times[0], &values[0]
            batch.slot, batch.finite = &slots[0], &finite[0]
            with nogil:
                if cpu:
                    fed = c_feed_cpu(bank.c, self.containers, self.aggregates, batch, threads)
                else:
                    fed = c_feed_memory(bank.c, self.containers, self.aggregates, batch, threads)
        return fed

    def add_cpu_grid(self, Bank bank not None, const int64_t[::1] group_start, const int32_t[::1] container,
                     const int64_t[::1] times, const int32_t[:, ::1] millicores, int64_t[::1] discarded,
                     Py_ssize_t threads=1):
        """Add CPU samples: millicores[container, time], negative = no sample; groups as in usage.hpp."""
        cdef Py_ssize_t n = container.shape[0], g, groups = group_start.shape[0] - 1, i
        cdef int32_t row
        if millicores.shape[0] != n or millicores.shape[1] != times.shape[0] or discarded.shape[0] != n:
            raise NativeError(f"a grid of {n} containers and {times.shape[0]} times")
        self.check(bank, container, times)
        for i in range(1, times.shape[0]):
            if times[i] <= times[i - 1]:
                raise NativeError("the times of a grid must increase")
        if groups < 0 or group_start[0] != 0 or group_start[groups] != n:
            raise NativeError("groups must cover all containers")
        seen = bytearray(self.n_aggregates)
        cdef uint8_t[::1] taken = seen
        for g in range(groups):
            if group_start[g + 1] <= group_start[g]:
                raise NativeError("groups must not be empty")
            row = self.containers.aggregate[container[group_start[g]]]
            if taken[row]:
                raise NativeError(f"aggregate {row} is in two groups")
            taken[row] = 1
            for i in range(group_start[g], group_start[g + 1]):
                if self.containers.aggregate[container[i]] != row:
                    raise NativeError("a group must share one aggregate")
        if n > 0 and times.shape[0] > 0:
            with nogil:
                c_add_cpu_grid(bank.c, self.containers, self.aggregates, groups, &group_start[0], &container[0],
                               times.shape[0], &times[0], &millicores[0, 0], &discarded[0], threads)


def recommend(Bank cpu not None, Bank memory not None, const int64_t[::1] first, const int64_t[::1] last,
              const int64_t[::1] samples, const int64_t[:, ::1] minimum, const double[:, ::1] percentiles,
              const int64_t[::1] intervals, double margin, int64_t[:, :, ::1] out, Py_ssize_t threads=1):
    """Set out[row, {cpu, memory}, {target, lower, upper}] for the first rows of both banks."""
    cdef Py_ssize_t n = out.shape[0]
    cdef c_Estimation how
    if out.shape[1] != 2 or out.shape[2] != 3 or percentiles.shape[0] != 2 or percentiles.shape[1] != 3:
        raise NativeError("recommendations are [rows, 2, 3], percentiles [2, 3]")
    if cpu.rows < n or memory.rows < n or first.shape[0] != n or last.shape[0] != n or samples.shape[0] != n:
        raise NativeError(f"columns of unequal length for {n} containers")
    if minimum.shape[0] != n or minimum.shape[1] != 2 or intervals.shape[0] != 2:
        raise NativeError("minimums are [rows, 2], intervals [2]")
    if intervals[0] <= 0 or intervals[1] <= 0:
        raise NativeError("confidence intervals must be positive")
    cdef int r, w
    for r in range(2):
        how.interval[r] = intervals[r]
        for w in range(3):
            how.percentile[r][w] = percentiles[r, w]
    how.margin = margin
    if n > 0:
        with nogil:
            c_recommend(cpu.c, memory.c, &first[0], &last[0], &samples[0], &minimum[0, 0], how, n, &out[0, 0, 0],
                        threads)
