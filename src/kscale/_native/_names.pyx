# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Rows by name (kscale/name_table.hpp, kscale/row_index.hpp) and by number (kscale/row_groups.hpp)."""

import numpy as np

from cpython.object cimport PyObject_Hash
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.memory cimport unique_ptr
from libcpp.unordered_map cimport unordered_map
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


cdef extern from *:
    """
    // What a list holds at a place, which is there, on the way into the cache: first where it is, then itself.
    static inline void kscale_prefetch_place(PyObject* list, Py_ssize_t i) {
      __builtin_prefetch(&PyList_GET_ITEM(list, i));
    }
    static inline void kscale_prefetch_item(PyObject* list, Py_ssize_t i) {
      const char* at = (const char*)PyList_GET_ITEM(list, i);
      __builtin_prefetch(at);
      __builtin_prefetch(at + 64);
    }
    """
    void prefetch_place "kscale_prefetch_place"(object list, Py_ssize_t i) noexcept
    void prefetch_item "kscale_prefetch_item"(object list, Py_ssize_t i) noexcept


cdef extern from "kscale/name_table.hpp" namespace "kscale" nogil:
    cdef struct Name:
        const char* text
        size_t size

    cdef cppclass c_NameTable "kscale::NameTable":
        c_NameTable(vector[Name]) except +
        void rows(const vector[Name]&, int64_t*) noexcept


cdef extern from "kscale/row_index.hpp" namespace "kscale" nogil:
    cdef cppclass c_RowIndex "kscale::RowIndex":
        c_RowIndex() except +
        c_RowIndex(const c_RowIndex&) except +
        size_t count()
        void prefetch(uint64_t hash)
        size_t begin(uint64_t hash)
        int32_t next(uint64_t hash, size_t& at)
        void reserve(size_t more) except +
        void add(uint64_t hash, int32_t row) except +
        cbool move(uint64_t hash, int32_t row, int32_t to)
        cbool remove(uint64_t hash, int32_t row) except +
    cbool c_find_repeated "kscale::find_repeated"(const uint64_t* hashes, size_t n, uint8_t* twice) except +


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
        """Return int64[n]: the row of each name, -1 for an unknown name."""
        cdef list asked = keys if type(keys) is list else list(keys)
        cdef vector[Name] names = names_of(asked)
        found = np.empty(len(asked), np.int64)
        cdef int64_t[::1] out = found
        cdef const c_NameTable* table = self.table.get()
        if names.size():
            with nogil:
                (<c_NameTable*> table).rows(names, &out[0])
        return found


cdef vector[uint64_t] hashes_of(list keys) except *:
    cdef vector[uint64_t] hashes
    cdef Py_ssize_t i
    hashes.reserve(len(keys))
    for i in range(len(keys)):
        hashes.push_back(<uint64_t>PyObject_Hash(_text(keys[i])))
    return hashes


cdef object _text(object key):
    if not PyUnicode_Check(key):
        raise TypeError(f"a key is text, not {key!r}")
    return key


cdef class RowIndex:
    """Rows by key, where keys come and go. ``names`` are the keys by row, which somebody else holds: those of rows that
    are here must be what they were when they came here. A single owner at a time."""

    cdef c_RowIndex own

    def __len__(self):
        return self.own.count()

    def copy(self):
        """Return another index with the same rows."""
        cdef RowIndex made = RowIndex.__new__(RowIndex)
        made.own = self.own
        return made

    def add(self, list keys not None, const int64_t[::1] rows):
        """Add keys that the index does not have, with their rows."""
        cdef Py_ssize_t i
        _check_rows(keys, rows)
        cdef vector[uint64_t] hashes = hashes_of(keys)
        self.own.reserve(hashes.size())
        for i in range(rows.shape[0]):
            self.own.add(hashes[i], <int32_t>rows[i])

    def move(self, list keys not None, const int64_t[::1] rows, int64_t first):
        """Change the rows ``rows`` (ascending) of keys to ``first`` and the numbers after it. No row may get a higher
        number.
        """
        cdef Py_ssize_t i
        _check_rows(keys, rows)
        for i in range(rows.shape[0]):
            if first < 0 or first + i > rows[i] or (i and rows[i] <= rows[i - 1]):
                raise NativeError("RowIndex: rows only move down")
        cdef vector[uint64_t] hashes = hashes_of(keys)
        for i in range(rows.shape[0]):
            if not self.own.move(hashes[i], <int32_t>rows[i], <int32_t>(first + i)):
                raise NativeError("RowIndex: no such row")

    def remove(self, list keys not None, const int64_t[::1] rows):
        """Remove keys that the index has, with their rows."""
        cdef Py_ssize_t i
        _check_rows(keys, rows)
        cdef vector[uint64_t] hashes = hashes_of(keys)
        for i in range(rows.shape[0]):
            if not self.own.remove(hashes[i], <int32_t>rows[i]):
                raise NativeError("RowIndex: no such row")

    def row(self, key, list names not None):
        """Return the row of a key; -1 if the index does not have it."""
        return self._row(_text(key), <uint64_t>PyObject_Hash(key), names)

    cdef int64_t _row(self, object key, uint64_t hash, list names) except -2:
        cdef size_t at = self.own.begin(hash)
        cdef int32_t row
        while True:
            row = self.own.next(hash, at)
            if row < 0:
                return -1
            if row >= len(names):
                raise NativeError("RowIndex: a row without a name")
            if names[row] == key:
                return row

    def plan(self, list keys not None, list names not None, const int64_t[::1] version, const int64_t[::1] held,
             deleted, cbool anew):
        """Plan the entries of one text. Returns ``(rows, fresh, changed, ended, repeated)``.

        ``rows`` int64[n]: the row of each key, -1 if the index does not have it. The others are int64 arrays of
        positions of entries, ascending: ``fresh``: the key is new; ``changed``: the entry differs from its row;
        ``ended``: the entry deletes its row; ``repeated``: the key may occur more than once (such an entry is in no
        other array; all other keys occur once).

        ``version`` int64[n]: the entries' versions; ``held``: by row. An entry with the version of its row, from 0 on,
        changes nothing, unless ``anew``. ``deleted``: None, or bool[n]: entries of deleted objects.
        """
        cdef Py_ssize_t i, n = len(keys)
        cdef int64_t row
        cdef Py_ssize_t[4] found = [0, 0, 0, 0]
        cdef const uint8_t[::1] goes = None if deleted is None else deleted.view(np.uint8)
        if version.shape[0] != n or (deleted is not None and goes.shape[0] != n):
            raise NativeError("RowIndex: shapes do not match")
        cdef vector[uint64_t] hashes = hashes_of(keys)
        cdef vector[uint8_t] twice
        twice.resize(n)
        rows, places = np.empty(n, np.int64), np.empty((4, n), np.int64)
        cdef int64_t[::1] to = rows
        cdef int64_t[:, ::1] of = places
        if n:
            self._prefetched(hashes, names, to, held)
            c_find_repeated(&hashes[0], n, &twice[0])
        for i in range(n):
            row = to[i] = self._row(keys[i], hashes[i], names)
            if row >= held.shape[0]:
                raise NativeError("RowIndex: a row without a version")
            if twice[i]:
                kind = 3
            elif goes is not None and goes[i]:
                if row < 0:
                    continue
                kind = 2
            elif row < 0:
                kind = 0
            elif anew or version[i] < 0 or held[row] != version[i]:
                kind = 1
            else:
                continue
            of[kind, found[kind]] = i
            found[kind] += 1
        return (rows, *[places[kind, :found[kind]] for kind in range(4)])

    cdef int _prefetched(self, const vector[uint64_t]& hashes, list names, int64_t[::1] likely,
                         const int64_t[::1] held) except -1:
        """Prefetch the memory that the look-ups of these keys will read."""
        cdef Py_ssize_t i, n = hashes.size(), most = min(<Py_ssize_t>len(names), held.shape[0])
        cdef size_t at
        for i in range(n):
            self.own.prefetch(hashes[i])
        for i in range(n):
            at = self.own.begin(hashes[i])
            likely[i] = self.own.next(hashes[i], at)
            if 0 <= likely[i] < most:
                prefetch_place(names, likely[i])
        for i in range(n):
            if 0 <= likely[i] < most:
                prefetch_item(names, likely[i])
        return 0


cdef int _check_rows(list keys, const int64_t[::1] rows) except -1:
    cdef Py_ssize_t i
    if rows.shape[0] != len(keys):
        raise NativeError("RowIndex: not as many rows as keys")
    for i in range(rows.shape[0]):
        if not 0 <= rows[i] < <int64_t>1 << 31:
            raise NativeError("RowIndex: a row out of bounds")
    return 0


def group_rows(const int32_t[::1] number, Py_ssize_t count):
    """Return ``(starts, rows)``: int64[count + 1], int64[n]. The rows with number ``i`` (each row has one number;
    negative: none) are ``rows[starts[i]:starts[i + 1]]``, ascending.
    """
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
    """Return ``(ends, rows)``: int64[m + 1], int64[k]: the rows of each of m selections, ascending within a selection.
    Selection ``i`` has the groups ``groups[begin[i]:begin[i + 1]]`` of :func:`group_rows`, none of them twice.
    """
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
    """Return int64[k]: the positions at which two lists of one length hold different objects (by identity), ascending.
    """
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


include "_rows.pxi"
