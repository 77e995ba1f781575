# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Lists of JSON objects reduced to what rules keep: every object's place, and the number of its reduced text."""

import numpy as np

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_1BYTE_DATA, PyUnicode_DecodeUTF8, PyUnicode_GET_LENGTH, PyUnicode_New
from libc.string cimport memcpy
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.vector cimport vector

from kscale.errors import NativeError


cdef extern from "kscale/projection.hpp" namespace "kscale" nogil:
    cdef cppclass c_Key "kscale::ProjectionRule::Key":
        string name
        int32_t rule
    cdef enum c_Kind "kscale::ProjectionRule::Kind":
        kKeep "kscale::ProjectionRule::kKeep"
        kEquals "kscale::ProjectionRule::kEquals"
        kCapture "kscale::ProjectionRule::kCapture"
        kObject "kscale::ProjectionRule::kObject"
        kArray "kscale::ProjectionRule::kArray"
        kFacet "kscale::ProjectionRule::kFacet"
    cdef cppclass c_Rule "kscale::ProjectionRule":
        c_Rule() except +
        c_Kind kind
        int32_t slot
        int32_t inner
        uint64_t need
        string text
        vector[c_Key] keys
    cdef cppclass c_Items "kscale::ScannedItems":
        c_Items() except +
        vector[int64_t] begin
        vector[int64_t] size
        vector[int32_t] combined
        vector[int64_t] at
        vector[int64_t] length
    cdef cppclass c_Span "kscale::Span":
        int64_t begin
        int64_t size
    cdef cppclass c_Threading "kscale::Threading":
        c_Threading() except +
        int threads
        int64_t grain
    cdef cppclass c_TextTable "kscale::TextTable":
        size_t count()
        const string& text(size_t i)
    cdef cppclass c_Projector "kscale::Projector":
        c_Projector(int32_t slots, int32_t facets) except +
        int32_t add(c_Rule rule) except +
        cbool scan(const char* data, size_t size, c_Threading how, c_Items& out, c_Span* head) except +
        const c_TextTable& texts()
        const c_TextTable& facet(size_t i)
        const vector[int32_t]& combinations()
    void c_number "kscale::number_strings"(const char* data, const int64_t* at, const int64_t* length, size_t n,
                                           int32_t* out, vector[int64_t]& first) except +


cdef extern from "kscale/usual_texts.hpp" namespace "kscale" nogil:
    void c_names "kscale::plain_names"(const char* data, const int64_t* at, const int64_t* length, size_t n,
                                       uint8_t* out)
    void c_times "kscale::printed_times"(const char* data, const int64_t* at, const int64_t* length, size_t n,
                                         uint8_t* out)


cdef extern from "kscale/repeated_keys.hpp" namespace "kscale" nogil:
    cbool c_repeats "kscale::repeats_a_key"(const char* data, size_t size, size_t levels) except +


cdef object _int64(const vector[int64_t]& values):
    out = np.empty(values.size(), dtype=np.int64)
    cdef int64_t[::1] view = out
    cdef size_t i
    for i in range(values.size()):
        view[i] = values[i]
    return out


cdef object _int32(const vector[int32_t]& values):
    out = np.empty(values.size(), dtype=np.int32)
    cdef int32_t[::1] view = out
    cdef size_t i
    for i in range(values.size()):
        view[i] = values[i]
    return out


cdef void _check(Py_ssize_t size, const int64_t[::1] at, const int64_t[::1] length) except *:
    cdef Py_ssize_t i
    if at.shape[0] != length.shape[0]:
        raise NativeError("strings: shapes do not match")
    for i in range(at.shape[0]):
        if length[i] >= 0 and (at[i] < 0 or at[i] > size or length[i] > size - at[i]):
            raise NativeError("strings: outside the buffer")


cdef class Projector:
    """Rules, and the different reduced texts that were seen so far. A single owner at a time.

    A rule is ``"keep"`` (the text as it is), ``("equals", text)`` (kept if it is that JSON text, else absent),
    ``("capture", slot)`` (a string whose place is noted and which is left out), ``("object", {key: rule}, need)``
    (without one of the keys ``need`` it is absent; an empty tuple needs none), ``("array", rule)`` (absent elements are
    dropped) or ``("facet", number, rule)`` (left out, and its own text is numbered apart).
    """

    cdef c_Projector* _own
    cdef int32_t _slots, _facets

    def __cinit__(self, rule, int slots, int facets):
        if not 1 <= slots <= 64 or not 0 <= facets <= 64:
            raise NativeError("Projector: needs 1 to 64 slots and at most 64 facets")
        self._own = new c_Projector(slots, facets)
        self._slots = slots
        self._facets = facets

    def __init__(self, rule, slots, facets):
        self._add(rule, 0)

    def __dealloc__(self):
        del self._own

    cdef int32_t _add(self, rule, int depth) except -1:
        cdef c_Rule made
        cdef c_Key key
        if depth > 32:
            raise NativeError("Projector: rules are nested too deeply")
        kind = rule if isinstance(rule, str) else rule[0]
        if kind == "keep":
            made.kind = kKeep
        elif kind == "equals":
            made.kind = kEquals
            made.text = rule[1].encode()
        elif kind == "capture":
            made.kind = kCapture
            if not 0 <= rule[1] < self._slots:
                raise NativeError("Projector: no such slot")
            made.slot = rule[1]
        elif kind == "object":
            if not 1 <= len(rule[1]) <= 64:
                raise NativeError("Projector: an object needs 1 to 64 keys")
            made.kind = kObject
            for i, (name, inner) in enumerate(rule[1].items()):
                if not name:
                    raise NativeError("Projector: an empty key")
                key.name = name.encode()
                key.rule = self._add(inner, depth + 1)
                made.keys.push_back(key)
                if name in rule[2]:
                    made.need |= <uint64_t>1 << <uint64_t>i
        elif kind == "array":
            made.kind = kArray
            made.inner = self._add(rule[1], depth + 1)
        elif kind == "facet":
            if not 0 <= rule[1] < self._facets:
                raise NativeError("Projector: no such facet")
            made.kind = kFacet
            made.slot = rule[1]
            if "facet" in str(rule[2]):
                raise NativeError("Projector: a facet within a facet")
            made.inner = self._add(rule[2], depth + 1)
        else:
            raise NativeError(f"Projector: no rule {kind!r}")
        return self._own.add(made)

    def scan(self, const unsigned char[::1] data, int threads=1, int64_t grain=1 << 20):
        """``(begin, size, combined, at, length, api_version, kind)``, or None if ``data`` is not one JSON object with an
        array under ``items``. The result does not depend on ``threads``;
        ``grain``: bytes that make another one worth it.

        ``begin``, ``size`` int64[n]: where the items are; ``combined`` int32[n]: numbers of their combinations of
        texts, -1 for an item that is absent by its rule or has to be read otherwise; ``at``, ``length`` int64[n, slots]: captured
        strings, length -1 = absent.
        """
        cdef c_Items items
        cdef c_Span head[2]
        cdef Py_ssize_t size = data.shape[0]
        cdef cbool ok
        cdef c_Threading how
        if threads < 1 or grain < 1:
            raise NativeError("Projector: threads and grain start at 1")
        how.threads = min(threads, 256)
        how.grain = grain
        if size == 0:
            return None
        head[0].size = head[1].size = -1
        with nogil:
            ok = self._own.scan(<const char*>&data[0], size, how, items, head)
        if not ok:
            return None
        names = [
            "" if head[i].size < 0 else PyUnicode_DecodeUTF8(<const char*>&data[0] + head[i].begin, head[i].size, NULL)
            for i in range(2)
        ]
        n = items.begin.size()
        shape = (n, self._slots)
        return (
            _int64(items.begin), _int64(items.size), _int32(items.combined),
            _int64(items.at).reshape(shape), _int64(items.length).reshape(shape), names[0], names[1],
        )

    def combinations(self):
        """int32[m, facets + 1]: for each combination the numbers of the facets' texts, -1 = absent, then of the rest."""
        return _int32(self._own.combinations()).reshape((-1, self._facets + 1))

    def __len__(self):
        return self._own.texts().count()

    def text(self, Py_ssize_t i):
        """A reduced text by number."""
        if not 0 <= i < <Py_ssize_t>self._own.texts().count():
            raise IndexError(i)
        return PyBytes_FromStringAndSize(self._own.texts().text(i).data(), self._own.texts().text(i).size())

    def facet_text(self, int facet, Py_ssize_t i):
        """The text of a facet by number."""
        if not 0 <= facet < self._facets or not 0 <= i < <Py_ssize_t>self._own.facet(facet).count():
            raise IndexError(i)
        return PyBytes_FromStringAndSize(self._own.facet(facet).text(i).data(), self._own.facet(facet).text(i).size())


def number_strings(const unsigned char[::1] data, const int64_t[::1] at, const int64_t[::1] length):
    """``(numbers, first)``: int32[n] numbers of equal strings in order of appearance, -1 where ``length`` is negative;
    int64[k] the entry at which each first appears."""
    cdef vector[int64_t] first
    _check(data.shape[0], at, length)
    out = np.full(at.shape[0], -1, dtype=np.int32)
    cdef int32_t[::1] view = out
    if at.shape[0] and data.shape[0]:
        with nogil:
            c_number(<const char*>&data[0], &at[0], &length[0], at.shape[0], &view[0], first)
    return out, _int64(first)


def strings(const unsigned char[::1] data, const int64_t[::1] at, const int64_t[::1] length):
    """The strings themselves; absent ones are empty. Raises UnicodeDecodeError."""
    cdef Py_ssize_t i
    _check(data.shape[0], at, length)
    cdef list out = [""] * at.shape[0]
    for i in range(at.shape[0]):
        if length[i] > 0:
            out[i] = PyUnicode_DecodeUTF8(<const char*>&data[0] + at[i], length[i], NULL)
    return out


def joined(list prefixes, const int32_t[::1] which, const unsigned char[::1] data, const int64_t[::1] at,
           const int64_t[::1] length):
    """``prefixes[which[i]]`` and the string behind it, for each; absent strings are empty. Raises UnicodeDecodeError."""
    cdef Py_ssize_t i, head, size
    cdef str prefix, text
    _check(data.shape[0], at, length)
    if which.shape[0] != at.shape[0]:
        raise NativeError("joined: shapes do not match")
    for i in range(which.shape[0]):
        if not 0 <= which[i] < len(prefixes):
            raise NativeError("joined: no such prefix")
    cdef list plain = [isinstance(prefix, str) and prefix.isascii() for prefix in prefixes]
    cdef list out = [""] * at.shape[0]
    for i in range(at.shape[0]):
        prefix = prefixes[which[i]]
        size = max(length[i], 0)
        if not plain[which[i]] or not _is_ascii(data, at[i], size):
            out[i] = prefix + ("" if not size else PyUnicode_DecodeUTF8(<const char*>&data[0] + at[i], size, NULL))
            continue
        head = PyUnicode_GET_LENGTH(prefix)
        text = PyUnicode_New(head + size, 127)
        if head:
            memcpy(PyUnicode_1BYTE_DATA(text), PyUnicode_1BYTE_DATA(prefix), head)
        if size:
            memcpy(PyUnicode_1BYTE_DATA(text) + head, &data[0] + at[i], size)
        out[i] = text
    return out


cdef bint _is_ascii(const unsigned char[::1] data, int64_t at, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    cdef unsigned char every = 0
    for i in range(size):
        every |= data[at + i]
    return every < 128


def plain_names(const unsigned char[::1] data, const int64_t[::1] at, const int64_t[::1] length):
    """bool[n]: whether each string is a DNS subdomain (RFC 1123), as names of objects are; absent ones are not."""
    _check(data.shape[0], at, length)
    out = np.zeros(at.shape[0], dtype=np.uint8)
    cdef uint8_t[::1] view = out
    if at.shape[0] and data.shape[0]:
        with nogil:
            c_names(<const char*>&data[0], &at[0], &length[0], at.shape[0], &view[0])
    return out.view(np.bool_)


def printed_times(const unsigned char[::1] data, const int64_t[::1] at, const int64_t[::1] length):
    """bool[n]: whether each string is a time as API servers print it, ``2006-01-02T15:04:05Z``, of a day that every year
    has; absent ones are not. Of another string it says nothing."""
    _check(data.shape[0], at, length)
    out = np.zeros(at.shape[0], dtype=np.uint8)
    cdef uint8_t[::1] view = out
    if at.shape[0] and data.shape[0]:
        with nogil:
            c_times(<const char*>&data[0], &at[0], &length[0], at.shape[0], &view[0])
    return out.view(np.bool_)


def repeats_a_key(const unsigned char[::1] data, Py_ssize_t levels=1 << 20):
    """Whether some object in a JSON text, at most ``levels`` deep (1: the outermost), has a key twice, written the same
    way; False for damaged text."""
    return data.shape[0] > 0 and c_repeats(<const char*>&data[0], data.shape[0], max(levels, 0))
