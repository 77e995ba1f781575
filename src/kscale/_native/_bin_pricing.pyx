# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Pricing of many kinds of bins in one call: relaxations and fillings, proven bounds, and tables over every
capacity.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libcpp.vector cimport vector

from kscale._native._columns cimport same
from kscale.errors import NativeError


cdef extern from "kscale/bin_pricing.hpp" namespace "kscale" nogil:
    cdef cppclass c_Kinds "kscale::BinKinds":
        c_Kinds() except +
        ptrdiff_t n_items, n_kinds, n_resources
        const int64_t* demand
        const int32_t* most
        const int64_t* count
        const int64_t* capacity
    void c_price "kscale::price_bins"(
        const c_Kinds& bins, const double* value, const double* wanted, int swaps, ptrdiff_t threads, double* upper,
        double* weight, double* worth, int32_t* filling) except +
    void c_around "kscale::fill_around"(
        const c_Kinds& bins, const double* value, ptrdiff_t n, const int32_t* kind, const int32_t* item, int swaps,
        ptrdiff_t threads, int32_t* filling) except +
    void c_surrogate "kscale::surrogate_bounds"(
        const c_Kinds& bins, const int64_t* value, const double* weight, int64_t* upper) except +


cdef extern from "kscale/knapsack_table.hpp" namespace "kscale" nogil:
    cdef cppclass c_Shape "kscale::KnapsackTables":
        c_Shape() except +
        ptrdiff_t n_tables, n_items, n_parted, all_units, all_parts
        const int32_t* units
        const int32_t* parts
        ptrdiff_t rows(ptrdiff_t k)
    cdef cppclass c_Search "kscale::TableSearch":
        c_Search() except +
        c_Shape shape
        const int32_t* table
        const double* worth
        const double* weight
        ptrdiff_t n_resources, n_bins
        const int64_t* value
        const int64_t* demand
        const int64_t* limit
        const int64_t* capacity
        const int64_t* units
        const int64_t* parts
        const int64_t* at_least
        int64_t node_limit
        size_t keep
    cdef cppclass c_Found "kscale::TableFound":
        c_Found() except +
        int64_t best, upper, nodes
        vector[vector[int64_t]] fillings
    void c_fill "kscale::fill_tables"(
        const c_Shape& shape, const int32_t* value, const int64_t* limit, ptrdiff_t threads, int32_t* table) except +
    double c_most "kscale::most_of_tables"(const c_Shape& shape, const int32_t* value, const int64_t* limit)
    vector[c_Found] c_search "kscale::search_with_tables"(const c_Search& search, ptrdiff_t threads) except +


cdef double MOST_VALUE = 4503599627370496.0  # 2**52: below it a double holds every integer
cdef double MOST_ENTRY = 2147483647.0
cdef int64_t MOST_CAPACITY = 1 << 60


def _refuse(text):
    raise NativeError(f"bin pricing: {text}")


cdef int _check(
    const int64_t[:, ::1] demand, const int32_t[:, ::1] most, const int64_t[::1] count, const int64_t[:, ::1] capacity
) except -1:
    cdef Py_ssize_t n = demand.shape[0], kinds = capacity.shape[0], resources = capacity.shape[1], i, r
    if demand.shape[1] != resources or most.shape[0] != kinds or most.shape[1] != n or count.shape[0] != n:
        _refuse("shapes do not match")
    if not 1 <= resources <= 16:
        _refuse("between 1 and 16 resources")
    for i in range(n):
        if count[i] < 0:
            _refuse("negative count")
        for r in range(resources):
            if demand[i, r] < 0 or demand[i, r] > MOST_CAPACITY:
                _refuse("a demand is negative, or 2**60 and more")
    for i in range(kinds):
        for r in range(resources):
            if capacity[i, r] < 0 or capacity[i, r] > MOST_CAPACITY:
                _refuse("a capacity is negative, or 2**60 and more")
    return 0


cdef c_Kinds _kinds(
    const int64_t[:, ::1] demand, const int32_t[:, ::1] most, const int64_t[::1] count, const int64_t[:, ::1] capacity
) noexcept:
    cdef c_Kinds bins
    bins.n_items, bins.n_kinds, bins.n_resources = demand.shape[0], capacity.shape[0], capacity.shape[1]
    if bins.n_items:
        bins.demand, bins.count = &demand[0, 0], &count[0]
    if bins.n_kinds:
        bins.capacity = &capacity[0, 0]
        if bins.n_items:
            bins.most = &most[0, 0]
    return bins


def price(
    const double[::1] value not None,
    const int64_t[:, ::1] demand not None,
    const int32_t[:, ::1] most not None,
    const int64_t[::1] count not None,
    const int64_t[:, ::1] capacity not None,
    const double[::1] wanted not None,
    *,
    int swaps,
    Py_ssize_t threads=1,
):
    """Return ``(upper, weight, worth, filling)`` of every kind of bin at these values.

    ``value`` float64[K], ``demand`` int64[K, R], ``most`` int32[T, K] (number of items of a class that one bin holds
    alone), ``count`` int64[K], ``capacity`` int64[T, R], ``wanted`` float64[T]. ``upper`` float64[T] and ``weight``
    float64[T, R]: value and dual of the linear relaxation, which are floating-point hints. ``filling`` int32[T, K] with
    value ``worth`` float64[T]: feasible; it is computed where ``upper`` exceeds ``wanted``, otherwise it is all 0.
    """
    _check(demand, most, count, capacity)
    cdef Py_ssize_t n = demand.shape[0], kinds = capacity.shape[0], resources = capacity.shape[1]
    same("value", n, value.shape[0])
    same("wanted", kinds, wanted.shape[0])
    if not np.isfinite(value).all():
        _refuse("a value is not finite")
    if swaps < 0 or threads < 1:
        _refuse("swaps >= 0 and threads >= 1 expected")
    upper, weight, worth = np.zeros(kinds), np.zeros((kinds, resources)), np.zeros(kinds)
    filling = np.zeros((kinds, n), dtype=np.int32)
    if n == 0 or kinds == 0:
        return upper, weight, worth, filling
    cdef double[::1] upper_view = upper, worth_view = worth
    cdef double[:, ::1] weight_view = weight
    cdef int32_t[:, ::1] filling_view = filling
    cdef c_Kinds bins = _kinds(demand, most, count, capacity)
    with nogil:
        c_price(bins, &value[0], &wanted[0], swaps, threads, &upper_view[0], &weight_view[0, 0], &worth_view[0],
                &filling_view[0, 0])
    return upper, weight, worth, filling


def fill_around(
    const double[::1] value not None,
    const int64_t[:, ::1] demand not None,
    const int32_t[:, ::1] most not None,
    const int64_t[::1] count not None,
    const int64_t[:, ::1] capacity not None,
    const int32_t[::1] kind not None,
    const int32_t[::1] item not None,
    *,
    int swaps,
    Py_ssize_t threads=1,
):
    """Return int32[N, K]: a filling of a bin of ``kind[i]`` with at least one item of class ``item[i]``; all 0 if the
    item does not fit.

    ``kind``, ``item`` int32[N]; other parameters as for :func:`price`.
    """
    _check(demand, most, count, capacity)
    cdef Py_ssize_t n = demand.shape[0], kinds = capacity.shape[0], pairs = kind.shape[0], i
    same("value", n, value.shape[0])
    same("item", pairs, item.shape[0])
    if not np.isfinite(value).all():
        _refuse("a value is not finite")
    if swaps < 0 or threads < 1:
        _refuse("swaps >= 0 and threads >= 1 expected")
    for i in range(pairs):
        if not (0 <= kind[i] < kinds and 0 <= item[i] < n):
            _refuse("there is no such kind or class")
    filling = np.zeros((pairs, n), dtype=np.int32)
    if pairs == 0:
        return filling
    cdef int32_t[:, ::1] view = filling
    cdef c_Kinds bins = _kinds(demand, most, count, capacity)
    with nogil:
        c_around(bins, &value[0], pairs, &kind[0], &item[0], swaps, threads, &view[0, 0])
    return filling


def surrogate_bounds(
    const int64_t[::1] value not None,
    const int64_t[:, ::1] demand not None,
    const int32_t[:, ::1] most not None,
    const int64_t[::1] count not None,
    const int64_t[:, ::1] capacity not None,
    const double[:, ::1] weight not None,
):
    """Return int64[T]: a proven upper bound of the value of one bin of kind t, in integers, for any ``weight`` >= 0."""
    _check(demand, most, count, capacity)
    cdef Py_ssize_t n = demand.shape[0], kinds = capacity.shape[0], resources = capacity.shape[1], i, r
    same("value", n, value.shape[0])
    if weight.shape[0] != kinds or weight.shape[1] != resources:
        _refuse("one weight for each kind and resource expected")
    cdef double total = 0
    for i in range(n):
        if value[i] < 0:
            _refuse("negative value")
        total += <double>value[i] * <double>count[i]
    if total >= MOST_VALUE * 1024:
        _refuse("values are too large: sum(value * count) must stay below 2**62")
    if not np.isfinite(weight).all() or (np.asarray(weight) < 0).any():
        _refuse("a weight is negative or not finite")
    upper = np.zeros(kinds, dtype=np.int64)
    if n == 0 or kinds == 0:
        return upper
    cdef int64_t[::1] upper_view = upper
    cdef c_Kinds bins = _kinds(demand, most, count, capacity)
    with nogil:
        c_surrogate(bins, &value[0], &weight[0, 0], &upper_view[0])
    return upper


cdef int _check_limits(const int64_t[::1] value, const int64_t[::1] limit) except -1:
    """Check the items of one bin: sum(value * limit) must be below 2**52."""
    cdef Py_ssize_t i
    cdef double total = 0
    for i in range(value.shape[0]):
        if value[i] < 0 or not 0 <= limit[i] < (1 << 31):
            _refuse("a value or limit is negative, or a limit 2**31 and more")
        total += <double>value[i] * <double>limit[i]
    if total >= MOST_VALUE:
        _refuse("values are too large: sum(value * limit) must stay below 2**52")
    return 0


cdef int _check_values(const c_Shape& shape, const int32_t[::1] value, const int64_t[::1] limit) except -1:
    """Check the values of one table."""
    cdef Py_ssize_t k
    for k in range(value.shape[0]):
        if value[k] < 0:
            _refuse("negative value")
    if c_most(shape, &value[0], &limit[0]) >= MOST_ENTRY:
        _refuse("values are too large: a filling of a table must be worth less than 2**31")
    return 0


cdef c_Shape _shape(
    const int32_t[::1] units, const int32_t[::1] parts, Py_ssize_t all_parts, const int32_t[:, :, ::1] tables
) except *:
    cdef c_Shape shape
    cdef Py_ssize_t n = units.shape[0], i
    same("parts", n, parts.shape[0])
    if not 0 <= all_parts < (1 << 16):
        _refuse("between 0 and 65535 parts")
    for i in range(n):
        if units[i] < 0 or parts[i] < 0:
            _refuse("negative units or parts")
        if parts[i]:
            shape.n_parted = i + 1
    shape.n_tables, shape.n_items, shape.all_parts = tables.shape[0], n, all_parts
    same("rows of the tables", shape.rows(n + 1), tables.shape[1])
    if tables.shape[0] < 1 or not 1 <= tables.shape[2] <= (1 << 30):
        _refuse("tables of no size, or too large")
    shape.all_units = tables.shape[2] - 1
    if n:
        shape.units, shape.parts = &units[0], &parts[0]
    return shape


def fill_tables(
    const int32_t[:, ::1] value not None,
    const int32_t[::1] units not None,
    const int32_t[::1] parts not None,
    const int64_t[::1] limit not None,
    int32_t[:, :, ::1] out not None,
    *,
    Py_ssize_t all_parts,
    Py_ssize_t threads=1,
):
    """Fill ``out`` int32[M, rows, C + 1]: the maximum ``value[m]`` of items k, k + 1, ... that take at most c units
    and h parts together.

    ``value`` int32[M, K], ``units``, ``parts`` int32[K], ``limit`` int64[K]. Raises NativeError unless the value per
    unit proves that every filling is worth less than 2**31 (:func:`most_of_tables`).

    Rows are ordered by k, then by h = 0, ... ``all_parts``. From the item on after which no item takes parts there is
    one row for each item, and a last row for no item.
    """
    cdef c_Shape shape = _shape(units, parts, all_parts, out)
    cdef Py_ssize_t n = shape.n_items, i
    if value.shape[0] != shape.n_tables or value.shape[1] != n or limit.shape[0] != n or threads < 1:
        _refuse("shapes do not match, or no thread")
    if n == 0:
        np.asarray(out)[:] = 0
        return
    for i in range(n):
        if not 0 <= limit[i] < (1 << 31):
            _refuse("a limit is negative, or 2**31 and more")
    for i in range(<Py_ssize_t>shape.n_tables):
        _check_values(shape, value[i], limit)
    with nogil:
        c_fill(shape, &value[0, 0], &limit[0], threads, &out[0, 0, 0])


def most_of_tables(
    const int32_t[::1] value not None,
    const int32_t[::1] units not None,
    const int32_t[::1] parts not None,
    const int64_t[::1] limit not None,
    *,
    Py_ssize_t all_units,
    Py_ssize_t all_parts,
):
    """Return an upper bound, by value per unit, of what a filling within ``all_units`` and ``all_parts`` is worth.
    ``value``, ``units``, ``parts`` int32[K], ``limit`` int64[K].
    """
    cdef c_Shape shape
    cdef Py_ssize_t n = value.shape[0]
    same("units", n, units.shape[0]); same("parts", n, parts.shape[0]); same("limit", n, limit.shape[0])
    if n == 0:
        return 1.0
    shape.n_items, shape.all_units, shape.all_parts = n, all_units, all_parts
    shape.units, shape.parts = &units[0], &parts[0]
    return c_most(shape, &value[0], &limit[0])


def search(
    const int64_t[::1] value not None,
    const int32_t[::1] units not None,
    const int32_t[::1] parts not None,
    const int64_t[:, ::1] demand not None,
    const double[:, ::1] weight not None,
    const int32_t[:, :, ::1] tables not None,
    const double[::1] worth not None,
    *,
    Py_ssize_t all_parts,
    const int64_t[:, ::1] limit not None,
    const int64_t[:, ::1] capacity not None,
    const int64_t[::1] bin_units not None,
    const int64_t[::1] bin_parts not None,
    const int64_t[::1] at_least not None,
    int64_t node_limit,
    size_t keep=1,
    Py_ssize_t threads=1,
):
    """Return ``[(best, upper, nodes, fillings)]``: the most valuable filling of each of B bins, with the tables as
    bounds.

    ``tables`` int32[M, ...]: table m has values ``v`` with ``v * worth[m]`` >= ``value`` - ``demand @ weight[m]``
    (``worth`` float64[M]: powers of two), the same order of items, the same units and parts, and limits that are no
    smaller. ``demand`` int64[K, R] and ``capacity`` int64[B, R] contain all resources, also those of the tables;
    ``weight`` float64[M, R] is 0 for the latter.

    Only fillings worth more than ``at_least`` int64[B] are searched; without any, ``best`` is ``at_least``. No filling
    is worth more than ``upper``, which is ``best`` unless the search ended at ``node_limit`` nodes. ``fillings``
    int64[S, K]: the last ``keep`` improvements, the best one last.
    """
    cdef c_Search given
    given.shape = _shape(units, parts, all_parts, tables)
    cdef Py_ssize_t n = given.shape.n_items, bins = capacity.shape[0], resources = capacity.shape[1], i, r
    if demand.shape[0] != n or demand.shape[1] != resources or resources < 1 or value.shape[0] != n:
        _refuse("shapes do not match")
    if weight.shape[0] != tables.shape[0] or weight.shape[1] != resources:
        _refuse("one row of weights for each table expected")
    same("worth", tables.shape[0], worth.shape[0])
    for i in range(worth.shape[0]):
        if not 1 <= worth[i] <= MOST_VALUE or worth[i] != 2.0 ** np.round(np.log2(worth[i])):
            _refuse("worth: powers of two expected")
    if limit.shape[0] != bins or limit.shape[1] != n:
        _refuse("one row of limits for each bin expected")
    same("units", bins, bin_units.shape[0]); same("parts", bins, bin_parts.shape[0])
    same("at_least", bins, at_least.shape[0])
    if node_limit < 0 or keep < 1 or threads < 1:
        _refuse("node_limit >= 0, keep >= 1 and threads >= 1 expected")
    for i in range(<Py_ssize_t>weight.shape[0]):
        for r in range(resources):
            if not 0 <= weight[i, r] <= 1e300:
                _refuse("a weight is negative or not finite")
    for i in range(n):
        for r in range(resources):
            if demand[i, r] < 0:
                _refuse("negative demand")
    for i in range(bins):
        if not (0 <= bin_units[i] < tables.shape[2] and 0 <= bin_parts[i] <= all_parts and 0 <= at_least[i]):
            _refuse("a bin is not within the tables, or at_least is negative")
        _check_limits(value, limit[i])
        for r in range(resources):
            if capacity[i, r] < 0:
                _refuse("negative capacity")
    if bins == 0:
        return []
    given.table, given.worth, given.weight = &tables[0, 0, 0], &worth[0], &weight[0, 0]
    given.n_resources = resources
    given.n_bins, given.capacity = bins, &capacity[0, 0]
    given.units, given.parts, given.at_least = &bin_units[0], &bin_parts[0], &at_least[0]
    if n:
        given.value, given.demand, given.limit = &value[0], &demand[0, 0], &limit[0, 0]
    given.node_limit, given.keep = node_limit, keep
    cdef vector[c_Found] found
    with nogil:
        found = c_search(given, threads)
    return [_answer(found[i], n) for i in range(bins)]


cdef _answer(const c_Found& found, Py_ssize_t n):
    fillings = np.zeros((found.fillings.size(), n), dtype=np.int64)
    cdef int64_t[:, ::1] rows = fillings
    cdef Py_ssize_t i, k
    for i in range(<Py_ssize_t>found.fillings.size()):
        for k in range(n):
            rows[i, k] = found.fillings[i][k]
    return found.best, found.upper, found.nodes, fillings
