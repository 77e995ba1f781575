# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Texts of the API as they are usually written (kscale/api_text.hpp)."""

import numpy as np

from libc.stdint cimport int64_t


cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef extern from "<string_view>" namespace "std" nogil:
    cdef cppclass string_view:
        string_view(const char*, size_t)


cdef extern from "kscale/api_text.hpp" namespace "kscale" nogil:
    bint c_moment "kscale::moment"(string_view text, int64_t& out) noexcept
    size_t c_plain_label "kscale::plain_label"(string_view text) noexcept


def moments(list texts):
    """``(int64[n], places)``: nanoseconds since 1970 of each text ``YYYY-MM-DDTHH:MM:SS[.fraction]Z``, and the places of
    what is written in another way or is no text, whose moment is 0."""
    cdef Py_ssize_t i, size
    cdef const char* at
    cdef list odd = []
    found = np.zeros(len(texts), np.int64)
    cdef int64_t[::1] out = found
    for i in range(len(texts)):
        text = texts[i]
        if type(text) is str and PyUnicode_IS_ASCII(text):
            at = PyUnicode_AsUTF8AndSize(text, &size)
            if c_moment(string_view(at, size), out[i]):
                continue
        odd.append(i)
    return found, odd


def plain_label(str text not None):
    """``(key, value)`` of a selector ``key=value`` that asks for just this label; None: it is written in another way."""
    cdef Py_ssize_t size, equals
    cdef const char* at
    if not PyUnicode_IS_ASCII(text):
        return None
    at = PyUnicode_AsUTF8AndSize(text, &size)
    equals = c_plain_label(string_view(at, size))
    return (text[:equals], text[equals + 1:]) if equals else None
