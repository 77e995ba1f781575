# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""The bounded vector knapsack: which copies of which classes are worth most in one bin."""

import numpy as np

from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from kscale.errors import NativeError


cdef extern from "kscale/knapsack.hpp" namespace "kscale" nogil:
    cdef cppclass c_Problem "kscale::KnapsackProblem":
        c_Problem() except +
        ptrdiff_t n_items, n_resources, n_multipliers
        const int64_t* value
        const int64_t* demand
        const int64_t* limit
        const int64_t* capacity
        const double* multipliers
        int64_t at_least
    cdef cppclass c_Effort "kscale::KnapsackEffort":
        c_Effort() except +
        int64_t node_limit, patience
        size_t keep
    cdef cppclass c_Result "kscale::KnapsackResult":
        c_Result() except +
        int64_t best, upper, nodes
        vector[vector[int64_t]] solutions
    c_Result c_solve "kscale::solve_knapsack"(const c_Problem& problem, const c_Effort& effort) except +


def _refuse(text):
    raise NativeError(f"knapsack: {text}")


def solve(
    const int64_t[::1] value,
    const int64_t[:, ::1] demand,
    const int64_t[::1] limit,
    const int64_t[::1] capacity,
    const double[:, ::1] multipliers,
    *,
    int64_t at_least,
    int64_t node_limit,
    int64_t patience,
    Py_ssize_t keep,
):
    """``(best, upper, nodes, solutions)`` of the integer knapsack.

    ``value`` int64[K], ``demand`` int64[K, R], ``limit`` int64[K], ``capacity`` int64[R], ``multipliers`` float64[M, R]
    (the surrogate constraints that bounds are made of: they change the time, never the answer). Only solutions worth
    more than ``at_least`` are looked for: without any, ``best`` is ``at_least``. No solution is worth more than ``upper``,
    which is ``best`` unless the search was given up after ``node_limit`` nodes, or ``patience`` with a solution in hand.
    ``solutions`` int64[S, K]: the last ``keep`` improvements, best last.
    """
    cdef Py_ssize_t n = value.shape[0], r = capacity.shape[0], m = multipliers.shape[0], i, k, j
    if demand.shape[0] != n or demand.shape[1] != r or limit.shape[0] != n or multipliers.shape[1] != r:
        _refuse("shapes do not match")
    if r < 1 or m < 1 or keep < 1 or node_limit < 0 or patience < 0 or not 0 <= at_least < (1 << 52):
        _refuse("needs a resource, a row of multipliers, keep >= 1 and limits >= 0")
    cdef double total = 0
    for i in range(n):
        if value[i] < 0 or limit[i] < 0:
            _refuse("negative value or limit")
        total += <double>value[i] * <double>limit[i]
        for j in range(r):
            if demand[i, j] < 0:
                _refuse("negative demand")
    for j in range(r):
        if capacity[j] < 0:
            _refuse("negative capacity")
        for i in range(m):
            if not 0 <= multipliers[i, j] <= 1e300:
                _refuse("a multiplier is negative or not finite")
    if total >= 4503599627370496.0:
        _refuse("values are too large: sum(value * limit) must stay below 2**52")
    cdef c_Problem problem
    problem.n_items, problem.n_resources, problem.n_multipliers = n, r, m
    # A price this small weighs nothing: as a subnormal number its products lose the relative precision that the
    # inflated bounds rely on.
    weights = np.asarray(multipliers)
    cdef const double[:, ::1] kept = np.where(weights < 1e-200, 0.0, weights)
    problem.capacity, problem.multipliers = &capacity[0], &kept[0, 0]
    if n:
        problem.value, problem.demand, problem.limit = &value[0], &demand[0, 0], &limit[0]
    problem.at_least = at_least
    cdef c_Effort effort
    effort.node_limit, effort.patience, effort.keep = node_limit, patience, keep
    cdef c_Result result
    with nogil:
        result = c_solve(problem, effort)
    out = np.zeros((result.solutions.size(), n), dtype=np.int64)
    cdef int64_t[:, ::1] rows = out
    for i in range(<Py_ssize_t>result.solutions.size()):
        for k in range(n):
            rows[i, k] = result.solutions[i][k]
    return result.best, result.upper, result.nodes, out
