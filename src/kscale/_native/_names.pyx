# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Rows by name (kscale/name_table.hpp) and by number (kscale/row_groups.hpp)."""

import numpy as np

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from libcpp.memory cimport unique_ptr
from libcpp.utility cimport move
from libcpp.vector cimport vector

from kscale.errors import NativeError


cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef extern from *:
    """
    // The str some places behind the i-th; its text lies right behind its head, mostly across two cache lines.
    static inline void kscale_prefetch_str(PyObject* list, Py_ssize_t i) {
      i += 24;
      if (i >= PyList_GET_SIZE(list)) return;
      const char* at = (const char*)PyList_GET_ITEM(list, i);
      __builtin_prefetch(at);
      __builtin_prefetch(at + 64);
    }
    """
    void prefetch_str "kscale_prefetch_str"(object list, Py_ssize_t i) noexcept


cdef extern from "kscale/name_table.hpp" namespace "kscale" nogil:
    cdef struct Name:
        const char* text
        size_t size

    cdef cppclass c_NameTable "kscale::NameTable":
        c_NameTable(vector[Name]) except +
        void rows(const vector[Name]&, int64_t*) noexcept


cdef extern from "kscale/row_groups.hpp" namespace "kscale" nogil:
    void c_group_rows "kscale::group_rows"(const int32_t* number, size_t n, size_t count, int64_t* starts,
                                           int64_t* rows) except +
    void c_select_rows "kscale::select_rows"(const int64_t* starts, const int64_t* rows, const int64_t* begin,
                                             const int64_t* groups, size_t m, int64_t* ends,
                                             vector[int64_t]& out) except +


cdef vector[Name] names_of(list keys) except *:
    """Borrowed from the texts, which must stay alive as long as the result."""
    cdef vector[Name] names
    cdef Py_ssize_t size
    cdef const char* text
    cdef Py_ssize_t ahead = 0
    names.reserve(len(keys))
    for key in keys:
        prefetch_str(keys, ahead)
        ahead += 1
        text = PyUnicode_AsUTF8AndSize(key, &size)
        names.push_back(Name(text, size))
    return names


cdef class NameTable:
    """Rows of names: of one that comes twice the last row counts. Immutable, so any thread may ask."""

    cdef unique_ptr[c_NameTable] table
    cdef list keys

    def __cinit__(self, keys):
        self.keys = list(keys)
        if len(self.keys) >= 1 << 30:
            raise NativeError("too many names")
        self.table.reset(new c_NameTable(move(names_of(self.keys))))

    def __len__(self):
        return len(self.keys)

    def rows(self, keys):
        """int64[n]: the row of each name, -1 where there is none."""
        cdef list asked = keys if type(keys) is list else list(keys)
        cdef vector[Name] names = names_of(asked)
        found = np.empty(len(asked), np.int64)
        cdef int64_t[::1] out = found
        cdef const c_NameTable* table = self.table.get()
        if names.size():
            with nogil:
                (<c_NameTable*> table).rows(names, &out[0])
        return found


def group_rows(const int32_t[::1] number, Py_ssize_t count):
    """``(starts, rows)``: int64[count + 1], int64[n]: the rows of number ``i`` (each row has one; negative: none) are
    ``rows[starts[i]:starts[i + 1]]``, ascending."""
    cdef Py_ssize_t i, n = number.shape[0], grouped = 0
    if count < 0:
        raise NativeError("group_rows: a negative count")
    for i in range(n):
        if number[i] >= count:
            raise NativeError("group_rows: a number out of bounds")
        grouped += number[i] >= 0
    starts, rows = np.zeros(count + 1, np.int64), np.empty(grouped, np.int64)
    cdef int64_t[::1] to_starts = starts, to_rows = rows
    if grouped:
        with nogil:
            c_group_rows(&number[0], n, count, &to_starts[0], &to_rows[0])
    return starts, rows


def select_rows(const int64_t[::1] starts, const int64_t[::1] rows, const int64_t[::1] begin,
                const int64_t[::1] groups):
    """``(ends, rows)``: int64[m + 1], int64[k]: the rows of each of m selections, ascending within one: selection ``i``
    has the groups ``groups[begin[i]:begin[i + 1]]``, none of them twice, of those that :func:`group_rows` made."""
    cdef Py_ssize_t i, count = starts.shape[0] - 1, m = begin.shape[0] - 1
    cdef vector[int64_t] found
    cdef int64_t nothing = 0
    if count < 0 or m < 0:
        raise NativeError("select_rows: shapes do not match")
    for i in range(count + 1):
        if not (starts[i - 1] if i else 0) <= starts[i] <= rows.shape[0]:
            raise NativeError("select_rows: starts out of bounds")
    for i in range(m + 1):
        if not (begin[i - 1] if i else 0) <= begin[i] <= groups.shape[0]:
            raise NativeError("select_rows: begins out of bounds")
    for i in range(groups.shape[0]):
        if not 0 <= groups[i] < count:
            raise NativeError("select_rows: no such group")
    ends = np.zeros(m + 1, np.int64)
    cdef int64_t[::1] to_ends = ends
    with nogil:
        c_select_rows(&starts[0], &rows[0] if rows.shape[0] else &nothing, &begin[0],
                      &groups[0] if groups.shape[0] else &nothing, m, &to_ends[0], found)
    out = np.empty(found.size(), np.int64)
    cdef int64_t[::1] to_out = out
    if found.size():
        memcpy(&to_out[0], found.data(), found.size() * sizeof(int64_t))
    return ends, out


def other_objects(list now, list before):
    """int64[k]: the places where two lists of one length do not hold the very same object, ascending."""
    cdef Py_ssize_t i, n = len(now), k = 0
    if len(before) != n:
        raise NativeError("other_objects: lists of different lengths")
    found = np.empty(n, np.int64)
    cdef int64_t[::1] out = found
    for i in range(n):
        if now[i] is not before[i]:
            out[k] = i
            k += 1
    return found[:k].copy()
