# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Rows by name (kscale/name_table.hpp)."""

import numpy as np

from libc.stdint cimport int64_t
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
