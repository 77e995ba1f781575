# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Rows of tables that are columns (kscale/table_rows.hpp)."""

import numpy as np

from cpython.buffer cimport PyBUF_C_CONTIGUOUS, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from kscale.errors import NativeError


cdef extern from "kscale/table_rows.hpp" namespace "kscale" nogil:
    void c_scatter "kscale::scatter"(char* to, const char* values, size_t width, const int64_t* rows, size_t n)
    void c_add_amounts "kscale::add_amounts"(int64_t* sums, const int32_t* at, const int64_t* amounts,
                                             const int32_t* kind, const int8_t* sign, size_t n)
    bint c_same_text "kscale::same_text"(const char* a, const char* b, int64_t size)


def scatter(const int64_t[::1] rows, list columns, list values):
    """``columns[k][rows] = values[k]`` for one-dimensional columns of n values each, as numpy does it; of a row that
    comes twice the last value counts."""
    cdef Py_ssize_t i, n = rows.shape[0], lowest = 0, highest = -1
    cdef Py_buffer to, given
    if len(columns) != len(values):
        raise NativeError("scatter: not as many columns as values")
    for i in range(n):
        lowest = min(lowest, rows[i])
        highest = max(highest, rows[i])
    for column, value in zip(columns, values):
        PyObject_GetBuffer(column, &to, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)
        try:
            PyObject_GetBuffer(value, &given, PyBUF_C_CONTIGUOUS)
            try:
                if to.itemsize != given.itemsize or to.ndim != 1 or given.len != n * given.itemsize:
                    raise NativeError("scatter: shapes do not match")
                if lowest < 0 or highest >= to.len // to.itemsize:
                    raise NativeError("scatter: a row out of bounds")
                if n:
                    with nogil:
                        c_scatter(<char*>to.buf, <const char*>given.buf, to.itemsize, &rows[0], n)
            finally:
                PyBuffer_Release(&given)
        finally:
            PyBuffer_Release(&to)


def add_amounts(list sums, list amounts, const int32_t[::1] at, const int32_t[::1] kind,
                const int8_t[::1] sign):
    """``sums[k][at] += sign * amounts[k][kind]`` for int64 columns, rows that come again included; sums wrap. Where
    ``amounts[k]`` is None: ``+= sign``."""
    cdef Py_ssize_t i, n = at.shape[0], rows = 0, kinds = 0
    cdef int64_t[::1] to
    cdef const int64_t[::1] given
    cdef const int64_t* of_kind
    if kind.shape[0] != n or sign.shape[0] != n or len(sums) != len(amounts):
        raise NativeError("add_amounts: shapes do not match")
    for i in range(n):
        if at[i] < 0 or kind[i] < 0:
            raise NativeError("add_amounts: a negative number")
        rows = max(rows, at[i] + 1)
        kinds = max(kinds, kind[i] + 1)
    for column, amount in zip(sums, amounts):
        to = column
        if rows > to.shape[0]:
            raise NativeError("add_amounts: a row out of bounds")
        of_kind = NULL
        if amount is not None:
            given = amount
            if kinds > given.shape[0]:
                raise NativeError("add_amounts: a number out of bounds")
            if n:
                of_kind = &given[0]
        if n:
            with nogil:
                c_add_amounts(&to[0], &at[0], of_kind, &kind[0], &sign[0], n)


def same_texts(list buffers, const int32_t[::1] source, const int64_t[::1] at, const int64_t[::1] size,
               const unsigned char[::1] data, const int64_t[::1] other_at, const int64_t[::1] other_size):
    """bool[n]: whether ``buffers[source[i]][at[i]:][:size[i]]`` is ``data[other_at[i]:][:other_size[i]]``."""
    cdef Py_ssize_t i, n = source.shape[0]
    cdef Py_buffer held
    if at.shape[0] != n or size.shape[0] != n or other_at.shape[0] != n or other_size.shape[0] != n:
        raise NativeError("same_texts: shapes do not match")
    out = np.zeros(n, dtype=np.bool_)
    cdef uint8_t[::1] to = out.view(np.uint8)
    for i in range(n):
        if size[i] != other_size[i]:
            continue
        if not 0 <= source[i] < len(buffers):
            raise NativeError("same_texts: no such buffer")
        PyObject_GetBuffer(buffers[source[i]], &held, PyBUF_SIMPLE)
        try:
            if size[i] < 0 or at[i] < 0 or at[i] > held.len - size[i] or other_at[i] < 0 \
                    or other_at[i] > data.shape[0] - size[i]:
                raise NativeError("same_texts: outside the buffer")
            to[i] = not size[i] or c_same_text(<const char*>held.buf + at[i], <const char*>&data[0] + other_at[i],
                                               size[i])
        finally:
            PyBuffer_Release(&held)
    return out
