# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Usage over time, read from text (kscale/usage_text.hpp)."""

import numpy as np

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libcpp.memory cimport unique_ptr
from libcpp.string cimport string
from libcpp.vector cimport vector

from kscale.errors import NativeError


cdef extern from "kscale/usage_text.hpp" namespace "kscale::usage_text" nogil:
    const size_t kMostNames
    const int32_t kSkipped, kTime, kCpu, kMemory, kName
    cdef cppclass c_view "std::string_view":
        const char* data() noexcept
        size_t size() noexcept
    cdef cppclass c_names "std::array<std::string_view, kscale::usage_text::kMostNames>":
        c_view& operator[](size_t) noexcept
    cdef cppclass c_CsvRows "kscale::usage_text::CsvRows":
        c_CsvRows(vector[int32_t], int64_t) except +
        Py_ssize_t read(const char*, size_t, Py_ssize_t, int64_t*, double*, double*, int32_t*) except +
        const vector[c_names]& names() noexcept
        void forget(size_t) except +
    cdef cppclass c_Key "kscale::usage_text::SeriesNumbers::Key":
        int32_t& operator[](size_t) noexcept
    cdef cppclass c_Column "kscale::usage_text::SeriesNumbers::Column":
        const int32_t* codes
        const int32_t* number_of
        Py_ssize_t size
    cdef cppclass c_Columns "std::array<kscale::usage_text::SeriesNumbers::Column, kscale::usage_text::kMostNames>":
        c_Column& operator[](size_t) noexcept
    cdef cppclass c_SeriesNumbers "kscale::usage_text::SeriesNumbers":
        bint number(const c_Columns&, Py_ssize_t, int32_t*) except +
        const vector[c_Key]& keys() noexcept
    Py_ssize_t c_lines "kscale::usage_text::lines"(const char*, size_t) noexcept
    Py_ssize_t c_points "kscale::usage_text::points"(
        const char*, size_t, Py_ssize_t, int64_t*, double*) noexcept
    bint c_scaled "kscale::usage_text::scaled"(
        const int64_t*, Py_ssize_t, int64_t, int64_t, int64_t*, int64_t&) noexcept


SKIPPED, TIME, CPU, MEMORY, NAME = kSkipped, kTime, kCpu, kMemory, kName
MOST_NAMES = kMostNames


cdef class CsvRows:
    """Reader of the rows of texts; `roles[c]` is the content of column c. A series keeps its number from text to
    text.
    """

    cdef unique_ptr[c_CsvRows] rows
    cdef bint has_cpu
    cdef bint has_memory

    def __init__(self, roles, int64_t unit):
        cdef vector[int32_t] columns = roles
        cdef Py_ssize_t i
        if columns.size() == 0 or unit <= 0 or list(roles).count(kTime) != 1:
            raise NativeError("a table needs one column of times")
        for i in range(<Py_ssize_t>columns.size()):
            if not 0 <= columns[i] < kName + <int32_t>kMostNames:
                raise NativeError(f"role {columns[i]}")
            if columns[i] != kSkipped and list(roles).count(columns[i]) != 1:
                raise NativeError("two columns of one role")
        self.has_cpu, self.has_memory = kCpu in roles, kMemory in roles
        self.rows.reset(new c_CsvRows(columns, unit))

    def read(self, const unsigned char[::1] text):
        """Return (times int64[n] ns, cpu float64[n] or None, memory float64[n] or None, series int32[n], names of new
        series).

        None if the text uses syntax that this reader does not support; UnicodeDecodeError for names that are not UTF-8.
        In both cases the reader's state is unchanged.
        """
        cdef size_t size = text.shape[0], k, known
        cdef Py_ssize_t room, found = 0, i
        cdef const char* begin
        cdef int64_t[::1] time
        cdef double[::1] cpu, memory
        cdef int32_t[::1] series
        cdef double* at_cpu = NULL
        cdef double* at_memory = NULL
        if self.rows == NULL:
            raise NativeError("no columns are known")
        if size == 0:
            return None
        begin = <const char*>&text[0]
        with nogil:
            room = c_lines(begin, size)
        out = np.empty(room, np.int64), np.empty(room, np.float64) if self.has_cpu else None, \
            np.empty(room, np.float64) if self.has_memory else None, np.empty(room, np.int32)
        time, series = out[0], out[3]
        if out[1] is not None:
            cpu = out[1]
            at_cpu = &cpu[0]
        if out[2] is not None:
            memory = out[2]
            at_memory = &memory[0]
        known = self.rows.get().names().size()
        with nogil:
            found = self.rows.get().read(begin, size, room, &time[0], at_cpu, at_memory, &series[0])
        if found < 0:
            return None
        names = []
        try:
            for i in range(<Py_ssize_t>known, <Py_ssize_t>self.rows.get().names().size()):
                each = []
                for k in range(kMostNames):
                    each.append(text_of(self.rows.get().names()[i][k]))
                names.append(tuple(each))
        except UnicodeDecodeError:
            self.rows.get().forget(known)
            raise
        return (*(None if column is None else column[:found] for column in out), names)


def csv_rows(const unsigned char[::1] text, roles, int64_t unit):
    """Read a single text; see :meth:`CsvRows.read`."""
    return CsvRows(roles, unit).read(text)


cdef class SeriesNumbers:
    """Numbers series in order of first appearance; the names of a series are given by their numbers."""

    cdef c_SeriesNumbers c

    def number(self, columns, int32_t[::1] out):
        """Set out[i] to the number of row i's series, and return the numbers of the names of new series.

        `columns`: (codes int32[n], number_of int32[m]) or None, for each name; the name of row i is
        number_of[codes[i]].
        """
        cdef c_Columns given
        cdef const int32_t[::1] codes, number_of
        cdef Py_ssize_t n = out.shape[0], i
        cdef size_t known = self.c.keys().size(), k
        cdef bint good
        if len(columns) != kMostNames:
            raise NativeError(f"{len(columns)} columns of names")
        for k in range(kMostNames):
            if columns[k] is None:
                continue
            codes, number_of = columns[k]
            if codes.shape[0] != n:
                raise NativeError(f"{codes.shape[0]} codes for {n} rows")
            if n > 0 and number_of.shape[0] == 0:
                raise NativeError("codes of nothing")
            if n > 0:
                given[k].codes, given[k].number_of, given[k].size = &codes[0], &number_of[0], number_of.shape[0]
        if n == 0:
            return []
        with nogil:
            good = self.c.number(given, n, &out[0])
        if not good:
            raise NativeError("a code is out of range")
        found = []
        for i in range(<Py_ssize_t>known, <Py_ssize_t>self.c.keys().size()):
            each = []
            for k in range(kMostNames):
                each.append(self.c.keys()[i][k])
            found.append(tuple(each))
        return found


cdef str text_of(c_view view):
    if view.size() == 0:
        return ""
    return view.data()[:view.size()].decode("utf-8")


def points(const unsigned char[::1] text, int64_t[::1] milliseconds, double[::1] values, Py_ssize_t offset=0):
    """Return the number of points of one series in Prometheus's JSON from `offset` on; -1: unsupported syntax, or no
    room.
    """
    cdef Py_ssize_t found, room = milliseconds.shape[0] - offset
    if values.shape[0] != milliseconds.shape[0] or offset < 0 or room < 0:
        raise NativeError(f"points from {offset} on into {milliseconds.shape[0]} and {values.shape[0]} places")
    if text.shape[0] == 0 or room == 0:
        return -1
    with nogil:
        found = c_points(<const char*>&text[0], text.shape[0], room, &milliseconds[offset], &values[offset])
    return found


def scaled(const int64_t[::1] values, int64_t unit, int64_t most, int64_t[::1] out):
    """Set out[i] = values[i] * unit. Return None, or the value with the greatest magnitude if that reaches `most`."""
    cdef int64_t farthest = 0
    cdef bint good = True
    if out.shape[0] != values.shape[0] or unit <= 0 or most <= 0:
        raise NativeError(f"{values.shape[0]} values into {out.shape[0]} places, times {unit}")
    if values.shape[0] > 0:
        with nogil:
            good = c_scaled(&values[0], values.shape[0], unit, most, &out[0], farthest)
    return None if good else farthest
