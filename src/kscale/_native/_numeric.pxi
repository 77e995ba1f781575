# Part of _hpa. Go's float to integer conversions as amd64 makes them.

from libc.stdint cimport int32_t, int64_t


cdef extern from "kscale/numeric.hpp" namespace "kscale" nogil:
    int64_t c_to_int64 "kscale::to_int64"(double) noexcept
    int32_t c_to_int32 "kscale::to_int32"(double) noexcept


def to_int64(double x):
    return c_to_int64(x)


def to_int32(double x):
    return c_to_int32(x)
