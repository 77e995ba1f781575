# Part of _projection. Texts of the API as they are usually written (kscale/api_text.hpp).

from libc.stdint cimport int64_t
from libcpp cimport bool as cbool
from libcpp.vector cimport vector


cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object text)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cdef extern from "kscale/api_text.hpp" namespace "kscale" nogil:
    bint c_moment "kscale::moment"(string_view text, int64_t& out) noexcept
    cdef cppclass NewestTime:
        int64_t newest
        vector[string_view] odd
        void read(string_view) except +
    size_t c_plain_label "kscale::plain_label"(string_view text) noexcept

cdef extern from "kscale/usual_texts.hpp" namespace "kscale" nogil:
    cbool c_is_plain_name "kscale::is_plain_name"(const char* text, int64_t length) noexcept


def moments(list texts):
    """Return ``(int64[n], places)``: nanoseconds since 1970 of each text ``YYYY-MM-DDTHH:MM:SS[.fraction]Z``, and the
    places of texts in another form and of values that are no text, whose moment is 0.
    """
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


def newest_time(const unsigned char[::1] text, const int64_t[::1] begin, const int64_t[::1] size):
    """Return ``(newest, texts)`` of the JSON objects in a text: the newest creationTimestamp, startTime or
    lastTransitionTime in nanoseconds since 1970 (the lowest int64 without one), and the bytes of times in another
    form.
    """
    cdef NewestTime found
    cdef Py_ssize_t i, length = text.shape[0]
    cdef size_t at
    if begin.shape[0] != size.shape[0]:
        raise NativeError("newest_time: shapes do not match")
    for i in range(begin.shape[0]):
        if begin[i] < 0 or size[i] < 0 or begin[i] > length - size[i]:
            raise NativeError("newest_time: an object is not inside the text")
    if length:
        with nogil:
            for i in range(begin.shape[0]):
                found.read(string_view(<const char*> &text[0] + begin[i], size[i]))
    return found.newest, [found.odd[at].data()[:found.odd[at].size()] for at in range(found.odd.size())]


def plain_label(str text not None):
    """Return ``(key, value)`` of a selector ``key=value`` that requires only this label; None for a selector in another
    form.
    """
    cdef Py_ssize_t size, equals
    cdef const char* at
    if not PyUnicode_IS_ASCII(text):
        return None
    at = PyUnicode_AsUTF8AndSize(text, &size)
    equals = c_plain_label(string_view(at, size))
    return (text[:equals], text[equals + 1:]) if equals else None


def is_plain_name(str text not None):
    """Whether a text is a DNS subdomain (RFC 1123) of at most 253 characters."""
    cdef Py_ssize_t size
    if not PyUnicode_IS_ASCII(text):
        return False
    return c_is_plain_name(PyUnicode_AsUTF8AndSize(text, &size), size)


def cached_conversion(type kind not None, convert not None, Py_ssize_t most):
    """Return a function of a type and a value, as msgspec's ``dec_hook``, which caches the results of ``convert``.

    ``convert`` takes the same arguments. Results for ``kind`` are cached by value, at most ``most``; then the cache is
    cleared. Values that are equal but of different types, such as 1 and 1.0, have different results. The function
    raises TypeError for a value that is not hashable.
    """
    cdef dict cached = {}

    def convert_once(type_, value):
        if type_ is not kind:
            return convert(type_, value)
        key = value if type(value) is str else (type(value), value)
        try:
            result = cached.get(key, cached)
        except TypeError:  # not hashable: its conversion most often raises a better error
            result = cached
        if result is not cached:
            return result
        converted = convert(type_, value)
        if len(cached) >= most:
            cached.clear()
        cached[key] = converted
        return converted

    return convert_once
