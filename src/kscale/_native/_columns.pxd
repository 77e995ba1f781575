# cython: language_level=3
# What bindings check of the columns that they are given.

from libc.stdint cimport int32_t, int64_t


cdef extern from "kscale/column_checks.hpp" namespace "kscale" nogil:
    Py_ssize_t first_outside(const int32_t* values, Py_ssize_t n, int64_t low, int64_t high) noexcept
    bint are_starts(const int32_t* values, Py_ssize_t n, int64_t entries) noexcept


cdef inline int same(str what, Py_ssize_t n, Py_ssize_t length) except -1:
    """A column must have as many entries as the others of its family."""
    if n != length:
        from kscale.errors import NativeError

        raise NativeError(f"{what}: {length} entries, expected {n}")
    return 0


cdef inline int32_t in_range(object value, int64_t low, int64_t high, str what) except? -1:
    """A whole number between ``low`` and ``high``, that excluded."""
    cdef int64_t number = value
    if number < low or number >= high:
        from kscale.errors import NativeError

        raise NativeError(f"{what} is {number}, outside {low}..{high - 1}")
    return <int32_t>number


cdef inline int indices(const int32_t[::1] values, int64_t low, int64_t high, str what) except -1:
    """Every entry is between ``low`` and ``high``, that excluded."""
    cdef Py_ssize_t n = values.shape[0]
    cdef Py_ssize_t i = first_outside(&values[0], n, low, high) if n else 0
    if i < n:
        from kscale.errors import NativeError

        raise NativeError(f"{what}[{i}] is {values[i]}, outside {low}..{high - 1}")
    return 0


cdef inline int starts(const int32_t[::1] values, Py_ssize_t n, str what) except -1:
    """Where the parts of ``n`` entries begin, and the end of the last."""
    if not values.shape[0] or not are_starts(&values[0], values.shape[0], n):
        from kscale.errors import NativeError

        raise NativeError(f"{what} must begin with 0, never decrease, and end with {n}, the number of entries")
    return 0
