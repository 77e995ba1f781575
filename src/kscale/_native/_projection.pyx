# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Lists of JSON objects reduced to what rules keep: every object's place, and the number of its reduced text."""

import numpy as np

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.string cimport string
from libcpp.string_view cimport string_view
from libcpp.vector cimport vector

from kscale.errors import NativeError


cdef extern from "kscale/plain_objects.hpp" namespace "kscale" nogil:
    cdef cppclass c_PlainKey "kscale::PlainRule::Key":
        string name
        int32_t rule
    cdef enum c_PlainKind "kscale::PlainRule::Kind":
        kAny "kscale::PlainRule::kAny"
        kNever "kscale::PlainRule::kNever"
        kText "kscale::PlainRule::kText"
        kPlainName "kscale::PlainRule::kName"
        kTime "kscale::PlainRule::kTime"
        kWhole "kscale::PlainRule::kWhole"
        kShare "kscale::PlainRule::kShare"
        kBool "kscale::PlainRule::kBool"
        kOneOf "kscale::PlainRule::kOneOf"
        kAmounts "kscale::PlainRule::kAmounts"
        kPlainObject "kscale::PlainRule::kObject"
        kMap "kscale::PlainRule::kMap"
        kList "kscale::PlainRule::kList"
    cdef cppclass c_PlainRule "kscale::PlainRule":
        c_PlainRule() except +
        c_PlainKind kind
        cbool or_null
        cbool limited
        int32_t slot
        int32_t inner
        int64_t least
        int64_t most
        uint64_t need
        vector[string] texts
        vector[c_PlainKey] keys


cdef extern from "kscale/projection.hpp" namespace "kscale" nogil:
    cdef cppclass c_Key "kscale::ProjectionRule::Key":
        string name
        int32_t rule
    cdef enum c_Kind "kscale::ProjectionRule::Kind":
        kKeep "kscale::ProjectionRule::kKeep"
        kEquals "kscale::ProjectionRule::kEquals"
        kBlank "kscale::ProjectionRule::kBlank"
        kCapture "kscale::ProjectionRule::kCapture"
        kObject "kscale::ProjectionRule::kObject"
        kArray "kscale::ProjectionRule::kArray"
        kFacet "kscale::ProjectionRule::kFacet"
        kMark "kscale::ProjectionRule::kMark"
        kNote "kscale::ProjectionRule::kNote"
        kSpan "kscale::ProjectionRule::kSpan"
        kAlike "kscale::ProjectionRule::kAlike"
        kSwitch "kscale::ProjectionRule::kSwitch"
    cdef cppclass c_Rule "kscale::ProjectionRule":
        c_Rule() except +
        c_Kind kind
        int32_t slot
        int32_t inner
        uint64_t need
        string text
        vector[c_Key] keys
    cdef cppclass c_PlainObjects "kscale::PlainObjects":
        int32_t add(c_PlainRule rule) except +
        void add_kind(string group, string kind, int32_t rule) except +
    cdef cppclass c_Items "kscale::ScannedItems":
        c_Items() except +
        vector[int64_t] begin
        vector[int64_t] size
        vector[int32_t] combined
        void places(size_t slots, size_t first, size_t count, int64_t* at, int64_t* length)
        void places_of(size_t slots, size_t slot, const int64_t* which, size_t count, int64_t* at, int64_t* length)
        void have(size_t slots, size_t slot, size_t first, uint8_t* out)
    cdef cppclass c_Lines "kscale::ScannedLines":
        c_Lines() except +
        c_Items items
        vector[int8_t] type
        vector[int64_t] begin
    cdef struct c_ItemKind "kscale::ItemKind":
        string_view api_version
        string_view kind
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
        c_PlainObjects& plain()
        size_t lines(const char* data, size_t size, c_ItemKind kind, c_Threading how, c_Lines& out) except +
        const c_TextTable& texts()
        const c_TextTable& facet(size_t i)
        const vector[int32_t]& combinations()
        size_t combinations_free()
        void retain(const uint8_t* keep, vector[vector[uint8_t]]& used) except +
    cdef cppclass c_ListScan "kscale::ListScan":
        c_ListScan(c_Projector& to, const char* data, size_t size, c_ItemKind kind, c_Threading how,
                   cbool ahead) except +
        cbool next(c_Items& out) except +
        cbool finish(c_Span* head)


cdef extern from "kscale/string_numbers.hpp" namespace "kscale" nogil:
    cdef cppclass c_StringNumbers "kscale::StringNumbers":
        size_t count()
        const string& text(size_t i)
        void number(const char* data, const int64_t* at, const int64_t* length, size_t n, int32_t* out) except +


cdef extern from "kscale/text_copies.hpp" namespace "kscale" nogil:
    cdef struct c_TextSpans "kscale::TextSpans":
        const int64_t* at
        const int64_t* size
        const int64_t* cut_at
        const int64_t* cut_size
        const int64_t* mark_at
        const int64_t* mark_size
    size_t c_room "kscale::room_for_texts"(const c_TextSpans& spans, const uint8_t* keep, size_t n)
    size_t c_copy "kscale::copy_texts"(const char* data, const c_TextSpans& spans, const uint8_t* keep, size_t n,
                                       char* out, int64_t* at, int64_t* size, int64_t* mark)


cdef extern from "kscale/repeated_keys.hpp" namespace "kscale" nogil:
    cbool c_repeats "kscale::repeats_a_key"(const char* data, size_t size, size_t levels) except +


cdef extern from "kscale/json_parts.hpp" namespace "kscale" nogil:
    cdef struct c_Extent "kscale::JsonExtent":
        int64_t end
        int64_t depth
    cbool c_members "kscale::json_members"(const char* data, size_t size, vector[int64_t]& out) except +
    cbool c_elements "kscale::json_elements"(const char* data, size_t size, vector[int64_t]& out) except +
    c_Extent c_extent "kscale::json_extent"(const char* data, size_t size) except +
    cbool c_exceeds_depth "kscale::exceeds_depth"(const char* data, size_t size, int64_t levels) except +


cdef object _array(const void* values, size_t count, size_t width, dtype):
    """A copy of some numbers. A plain buffer takes less time than a memoryview: a lone watch line makes eight arrays."""
    out = np.empty(count, dtype=dtype)
    cdef Py_buffer held
    if count:
        PyObject_GetBuffer(out, &held, PyBUF_WRITABLE)
        memcpy(held.buf, values, count * width)
        PyBuffer_Release(&held)
    return out


_INT8, _INT32, _INT64 = np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.int64)


cdef object _int64(const vector[int64_t]& values):
    return _array(values.data(), values.size(), 8, _INT64)


cdef object _int32(const vector[int32_t]& values):
    return _array(values.data(), values.size(), 4, _INT32)


cdef object _int8(const vector[int8_t]& values):
    return _array(values.data(), values.size(), 1, _INT8)


cdef tuple _places(const c_Items& items, size_t slots, size_t first, size_t count):
    """Return ``(at, length)`` int64[slots, count] of some items."""
    out = np.empty((2, slots, count), dtype=_INT64)
    cdef Py_buffer held
    cdef int64_t* to
    if count:
        PyObject_GetBuffer(out, &held, PyBUF_WRITABLE)
        to = <int64_t*>held.buf
        with nogil:
            (<c_Items*>&items).places(slots, first, count, to, to + slots * count)
        PyBuffer_Release(&held)
    return out[0], out[1]


cdef void _check(Py_ssize_t size, const int64_t[::1] at, const int64_t[::1] length) except *:
    cdef Py_ssize_t i
    if at.shape[0] != length.shape[0]:
        raise NativeError("strings: shapes do not match")
    for i in range(at.shape[0]):
        if length[i] >= 0 and (at[i] < 0 or at[i] > size or length[i] > size - at[i]):
            raise NativeError("strings: outside the buffer")


cdef c_Threading _threading(int threads, int64_t grain) except *:
    cdef c_Threading how
    if threads < 1 or grain < 1:
        raise NativeError("Projector: threads and grain start at 1")
    how.threads = min(threads, 256)
    how.grain = grain
    return how


cdef c_ItemKind _item_kind(tuple kind) except *:
    """Borrowed from the bytes, which must stay alive as long as the result."""
    cdef c_ItemKind made
    cdef bytes version = kind[0], name = kind[1]
    made.api_version = string_view(<const char*>version, len(version))
    made.kind = string_view(<const char*>name, len(name))
    return made


include "_pod_columns.pxi"


cdef class Places:
    """Where the strings are that were captured of the items of a list: one for each item."""

    cdef c_Items _items
    cdef int32_t _slots

    def __len__(self):
        return self._items.begin.size()

    cdef begin(self, size_t first):
        return _array(self._items.begin.data() + first, self._items.begin.size() - first, 8, _INT64)

    cdef size(self, size_t first):
        return _array(self._items.size.data() + first, self._items.size.size() - first, 8, _INT64)

    cdef combined(self, size_t first):
        return _array(self._items.combined.data() + first, self._items.combined.size() - first, 4, _INT32)

    def have(self, tuple slots, Py_ssize_t first):
        """Return bool[n - first]: whether the items from number ``first`` on have a string that is not empty in one of
        the slots.
        """
        cdef Py_ssize_t n = <Py_ssize_t>self._items.begin.size() - first
        if not 0 <= first or n < 0:
            raise IndexError(first)
        out = np.zeros(n, dtype=np.bool_)
        cdef uint8_t[::1] view = out.view(np.uint8)
        for slot in slots:
            if not 0 <= slot < self._slots:
                raise IndexError(slot)
            if n:
                self._items.have(self._slots, slot, first, &view[0])
        return out

    def names(self, const unsigned char[::1] data, const int64_t[::1] which, int slot):
        """Return a list of the strings (ASCII) of the items ``which`` (ascending) in one slot, ``""`` for an item
        without. ``data``: the text.
        """
        cdef Py_ssize_t i, n = which.shape[0]
        cdef int64_t size = data.shape[0], last = -1
        cdef vector[int64_t] at, length
        if not 0 <= slot < self._slots:
            raise IndexError(slot)
        for i in range(n):
            if not last < which[i] < <int64_t>self._items.begin.size():
                raise IndexError(which[i])
            last = which[i]
        at.resize(n)
        length.resize(n)
        if n:
            self._items.places_of(self._slots, slot, &which[0], n, at.data(), length.data())
        out = []
        for i in range(n):
            if length[i] > 0 and at[i] + length[i] > size:
                raise NativeError("names: outside of the text")
            out.append("" if length[i] <= 0 else PyUnicode_DecodeASCII(<const char*>&data[0] + at[i], length[i], NULL))
        return out

    def part(self, Py_ssize_t first, Py_ssize_t end):
        """Return ``(at, length)`` int64[slots, end - first] of the items from number ``first`` to ``end``; length -1 =
        absent.
        """
        if not 0 <= first <= end <= <Py_ssize_t>self._items.begin.size():
            raise IndexError((first, end))
        return _places(self._items, self._slots, first, end - first)


cdef dict _PLAIN = {
    "any": kAny, "never": kNever, "text": kText, "time": kTime, "share": kShare, "bool": kBool, "amounts": kAmounts,
}


cdef class StringNumbers:
    """Numbers for different strings, in order of first appearance. ``strings``: the strings by number (not to be written
    to). A single owner at a time."""

    cdef c_StringNumbers _own
    cdef readonly list strings

    def __cinit__(self):
        self.strings = []

    def __len__(self):
        return len(self.strings)

    def number(self, const unsigned char[::1] data, const int64_t[::1] at, const int64_t[::1] length):
        """int32[n]: the numbers of strings, -1 where ``length`` is negative. Raises UnicodeDecodeError, from then on."""
        _check(data.shape[0], at, length)
        out = np.empty(at.shape[0], dtype=np.int32)
        cdef int32_t[::1] view = out
        if not data.shape[0]:
            out.fill(-1)
        elif at.shape[0]:
            self.numbers(<const char*>&data[0], &at[0], &length[0], at.shape[0], &view[0])
        return out

    cdef int numbers(self, const char* data, const int64_t* at, const int64_t* length, size_t n, int32_t* out) except -1:
        """Write the strings' numbers into ``out``, as :meth:`number`; the places must have been checked."""
        cdef const string* text
        with nogil:
            self._own.number(data, at, length, n, out)
        while <size_t>len(self.strings) < self._own.count():
            text = &self._own.text(len(self.strings))
            self.strings.append(PyUnicode_DecodeUTF8(text.data(), text.size(), NULL))
        return 0


cdef class Lines:
    """The lines of a watch that a projector read; ``used``: how many bytes of the text they are."""

    cdef c_Lines _lines
    cdef const unsigned char[::1] _data
    cdef int32_t _slots
    cdef readonly Py_ssize_t used
    cdef vector[int64_t] _at, _length

    def __len__(self):
        return self._lines.type.size()

    @property
    def types(self):
        """Return one byte per line: 0 ADDED, 1 MODIFIED, 2 DELETED, 3 BOOKMARK, 4 ERROR, 5 another type, 255 no event.
        """
        return PyBytes_FromStringAndSize(<const char*>self._lines.type.data(), self._lines.type.size())

    def columns(self):
        """``(line, begin, size, combined, at, length)``: ``line`` int64[n]: where each line begins; ``begin``, ``size`` and
        ``combined`` as :meth:`Projector.scan` has them, of the events' objects, or of a line that is no event; ``at``,
        ``length`` as :meth:`Places.part`. Of what was deleted only the captured strings are noted: ``combined`` is -2."""
        return (
            _int64(self._lines.begin), _int64(self._lines.items.begin), _int64(self._lines.items.size),
            _int32(self._lines.items.combined),
            *_places(self._lines.items, self._slots, 0, self._lines.items.begin.size()),
        )

    cdef c_Pods _pods(self) except *:
        """The events' objects. Borrowed: they are valid as long as this is."""
        cdef Py_ssize_t n = self._lines.items.begin.size()
        cdef c_Pods pods
        if self._slots != kPodSlots:
            raise NativeError("Lines: these are no pods")
        if self._at.empty() and n:
            self._at.resize(self._slots * n)
            self._length.resize(self._slots * n)
            with nogil:
                self._lines.items.places(self._slots, 0, n, self._at.data(), self._length.data())
        pods.data = <const char*>_first(self._data)
        pods.n = n
        pods.begin, pods.size = self._lines.items.begin.data(), self._lines.items.size.data()
        pods.combined = self._lines.items.combined.data()
        pods.at, pods.length, pods.stride = self._at.data(), self._length.data(), n
        pods.listed = False
        return pods

    def unknown(self, looks):
        """The entries of ``looks`` (:data:`POD_LOOKS`, by number of the combination + 1) that :meth:`pods` lacks: a list of
        twice the place of each, and one more if pods with a node lack it. Ascending."""
        cdef c_Pods pods = self._pods()
        cdef _Looks held = _Looks(looks)
        if looks.dtype != POD_LOOKS or not c_looks_fit(pods, held.buffer.len // <Py_ssize_t>sizeof(c_Looks)):
            raise NativeError("Lines: no such combination")
        return c_unknown(pods, <const c_Looks*>held.buffer.buf)

    def pods(self, looks, tuple states, str namespace not None, StringNumbers nodes not None):
        """The events' objects as :func:`read_pods` has them, with the numbers of their nodes' names in ``nodes`` in the
        column ``node_of``; but ``usual`` is None if all of them are."""
        cdef Py_ssize_t i, n = self._lines.items.begin.size()
        cdef c_Pods pods = self._pods()
        read = _read_pods(pods, 0, looks, states, namespace)
        if read is None:
            return None
        usual, keys, columns, odd = read
        cdef int64_t[:, ::1] to = columns
        cdef Py_ssize_t count = to.shape[1]
        cdef vector[int32_t] numbers
        if count:
            numbers.resize(count)
            nodes.numbers(pods.data, &to[<int>_NODE_AT, 0], &to[<int>_NODE_SIZE, 0], count, numbers.data())
            with nogil:
                for i in range(count):
                    to[<int>_NODE_OF, i] = numbers[i]
        return None if count == n else usual, keys, columns, odd


cdef class Projector:
    """Rules, and the different reduced texts that were seen so far. A single owner at a time.

    A rule is ``"keep"`` (the text as it is), ``("equals", text)`` (kept if it is that JSON text, else absent),
    ``("blank", before, after, text)`` (the text as it is, but ``text`` if it is a plain name between the first two),
    ``("capture", slot)`` (a string whose place is noted and which is left out), ``("mark", slot, text)`` (the same, and
    the JSON text stands in its place), ``("note", slot)`` (the same, and it is not left out), ``("span", slot)`` (any value: where it is with its key is noted, and it is left
    out), ``("object", {key: rule}, need)`` (without one of the keys ``need`` it is absent; an empty tuple needs none),
    ``("array", rule)`` (absent elements are dropped), ``("alike", rule)`` (the same as ``rule``, an object's or an
    array's; values that are written like one before, but for what is not kept, are compared with that one instead of
    being read), ``("facet", number, rule)`` (left out, and its own text is numbered
    apart) or ``("switch", key, {text: rule})`` (an object by the rule for the JSON text of one of its members, absent if
    there is none for it; captures that the rule needs must be there).
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

    def add_plain(self, kinds):
        """Look for plain objects of these kinds from now on, when a list is scanned with ``meanwhile``.

        ``kinds``: (API group, kind, rule) of objects that are plain if they follow the rule. Such a rule is ``"any"`` (every
        value), ``"never"`` (none), ``"text"`` (strings), ``("name", slot)`` (names; the place is noted), ``"time"`` (as an
        API server prints it), ``("whole", least, most)`` (numbers), ``"share"`` (a whole number or a percentage),
        ``"bool"``, ``("one of", texts)``, ``"amounts"`` (quantities by name), ``("object", {key: rule}, need, limited)``
        (needs the keys ``need``; ``limited``: its ``requests`` must not be above its ``limits``), ``("map", rule)``,
        ``("list", rule, least)`` (of at least so many elements) or ``("or null", rule)``.
        """
        known = {}
        for group, kind, rule in kinds:
            self._own.plain().add_kind(group.encode(), kind.encode(), self._add_plain(rule, known, 0))

    def __dealloc__(self):
        del self._own

    cdef int32_t _add_plain(self, rule, dict known, int depth) except -1:
        """The number of a rule for plain objects. ``known``: those of rules that were added before, by ``id``."""
        cdef c_PlainRule made
        cdef c_PlainKey key
        if depth > 64:
            raise NativeError("Projector: rules are nested too deeply")
        if id(rule) in known:
            return known[id(rule)]
        own = rule
        if own[0] == "or null":
            made.or_null = True
            own = own[1]
        kind = own if isinstance(own, str) else own[0]
        if kind in _PLAIN:
            made.kind = _PLAIN[kind]
        elif kind == "name":
            made.kind = kPlainName
            made.slot = own[1]
            if not 0 <= made.slot < self._slots:
                raise NativeError("Projector: no such slot")
        elif kind == "whole":
            made.kind = kWhole
            made.least, made.most = own[1:]
        elif kind == "one of":
            made.kind = kOneOf
            for text in own[1]:
                made.texts.push_back(text.encode())
        elif kind == "object":
            made.kind = kPlainObject
            made.limited = own[3]
            if len(own[1]) > 64:
                raise NativeError("Projector: an object has at most 64 keys")
            for i, (name, inner) in enumerate(own[1].items()):
                key.name = name.encode()
                key.rule = self._add_plain(inner, known, depth + 1)
                made.keys.push_back(key)
                if name in own[2]:
                    made.need |= <uint64_t>1 << <uint64_t>i
        elif kind == "map" or kind == "list":
            made.kind = kMap if kind == "map" else kList
            made.inner = self._add_plain(own[1], known, depth + 1)
            made.least = own[2] if kind == "list" else 0
        else:
            raise NativeError(f"Projector: no plain rule {kind!r}")
        known[id(rule)] = number = self._own.plain().add(made)
        return number

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
        elif kind == "blank":
            made.kind = kBlank
            for text in rule[1:3]:
                if not text:
                    raise NativeError("Projector: a name stands between two texts")
                key.name = text.encode()
                key.rule = -1
                made.keys.push_back(key)
            made.text = rule[3].encode()
        elif kind == "capture":
            made.kind = kCapture
            if not 0 <= rule[1] < self._slots:
                raise NativeError("Projector: no such slot")
            made.slot = rule[1]
        elif kind == "mark":
            made.kind = kMark
            if not 0 <= rule[1] < self._slots:
                raise NativeError("Projector: no such slot")
            made.slot = rule[1]
            made.text = rule[2].encode()
        elif kind == "span" or kind == "note":
            made.kind = kSpan if kind == "span" else kNote
            if not 0 <= rule[1] < self._slots:
                raise NativeError("Projector: no such slot")
            made.slot = rule[1]
        elif kind == "switch":
            made.kind = kSwitch
            made.text = rule[1].encode()
            for text, inner in rule[2].items():
                if inner[0] != "object":
                    raise NativeError("Projector: a switch is between objects")
                key.name = text.encode()
                key.rule = self._add(inner, depth + 1)
                made.keys.push_back(key)
            if not 1 <= made.keys.size() <= 64:
                raise NativeError("Projector: a switch needs 1 to 64 rules")
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
        elif kind == "array" or kind == "alike":
            made.kind = kArray if kind == "array" else kAlike
            if kind == "alike" and rule[1][0] not in ("object", "array"):
                raise NativeError("Projector: objects and arrays are alike")
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

    def scan(self, const unsigned char[::1] data, int threads=1, int64_t grain=1 << 20, tuple kind=(b"", b""),
             meanwhile=None):
        """``(begin, size, combined, places, api_version, kind, metadata)``, or None if ``data`` is not one JSON object with an
        array under ``items``, or if its apiVersion or kind is not UTF-8. The result does not depend on ``threads``;
        ``grain``: bytes that make another one worth it; ``kind``: (apiVersion, kind); items that say first that they are of
        another one are not looked into. ``meanwhile``: is called with the first three and ``places``, of all items so far,
        and the number of the first that is new, while other threads read what comes next. Until the end they may still
        turn out to be part of no list.

        ``begin``, ``size`` int64[n]: where the items are; ``combined`` int32[n]: numbers of their combinations of
        texts, -1 for an item that is absent by its rule or has to be read otherwise, -3 (only with ``meanwhile``) if no key
        comes twice in an object of such an item, -4 - i if it is also a plain object of kind i, whose names are noted;
        ``places``: :class:`Places` of captured strings; ``metadata``: the JSON text of the list's own,
        empty if it has none.
        """
        cdef Places places = Places.__new__(Places)
        cdef c_Span head[3]
        cdef Py_ssize_t size = data.shape[0], first = 0
        cdef cbool ok, more = True, ahead = meanwhile is not None
        cdef c_Threading how = _threading(threads, grain)
        cdef c_ItemKind only = _item_kind(kind)
        cdef c_ListScan* running
        if size == 0:
            return None
        places._slots = self._slots
        with nogil:
            running = new c_ListScan(self._own[0], <const char*>&data[0], size, only, how, ahead)
        try:
            while True:
                with nogil:
                    more = running.next(places._items)
                if not more:
                    break
                if meanwhile is not None and first < len(places):
                    meanwhile(places.begin(first), places.size(first), places.combined(first), places, first)
                    first = len(places)
            ok = running.finish(head)
        finally:
            with nogil:
                del running
        if not ok:
            return None
        try:
            names = [
                "" if head[i].size < 0 else PyUnicode_DecodeUTF8(<const char*>&data[0] + head[i].begin, head[i].size, NULL)
                for i in range(2)
            ]
        except UnicodeDecodeError:
            return None
        return (
            places.begin(0), places.size(0), places.combined(0), places, names[0], names[1],
            b"" if head[2].size < 0 else PyBytes_FromStringAndSize(<const char*>&data[0] + head[2].begin, head[2].size),
        )

    def lines(self, const unsigned char[::1] data, int threads=1, int64_t grain=1 << 20, tuple kind=(b"", b"")):
        """:class:`Lines`: the events of a watch, one a line. What is behind the last line end counts only if it is a whole
        event. ``threads``, ``grain``, ``kind`` as :meth:`scan` has them."""
        cdef Lines out = Lines.__new__(Lines)
        cdef Py_ssize_t size = data.shape[0]
        cdef c_Threading how = _threading(threads, grain)
        cdef c_ItemKind only = _item_kind(kind)
        out._data = data
        out._slots = self._slots
        if size:
            with nogil:
                out.used = self._own.lines(<const char*>&data[0], size, only, how, out._lines)
        return out

    def combinations(self):
        """int32[m, facets + 1]: for each combination the numbers of the facets' texts, -1 = absent, then of the rest."""
        return _int32(self._own.combinations()).reshape((-1, self._facets + 1))

    def combination_row(self, Py_ssize_t i):
        """One row of :meth:`combinations`, as a list."""
        cdef Py_ssize_t j, width = self._facets + 1
        cdef const vector[int32_t]* every = &self._own.combinations()
        if not 0 <= i < <Py_ssize_t>every.size() // width:
            raise IndexError(i)
        return [every[0][i * width + j] for j in range(width)]

    @property
    def combination_count(self):
        """All numbers of combinations are below this."""
        return self._own.combinations().size() // (self._facets + 1)

    @property
    def combinations_free(self):
        """How many numbers below :attr:`combination_count` stand for no combination now."""
        return self._own.combinations_free()

    def retain(self, const uint8_t[::1] keep):
        """Forget the combinations that are not to be kept (uint8, one entry a number), and texts that no other has;
        their numbers are given again. Returns for each facet, and then for the rest, bool by number: which are there."""
        cdef vector[vector[uint8_t]] used
        cdef uint8_t nothing = 0
        if <size_t>keep.shape[0] != self._own.combinations().size() // (self._facets + 1):
            raise NativeError("Projector: not one entry a combination")
        with nogil:
            self._own.retain(&keep[0] if keep.shape[0] else &nothing, used)
        out = []
        for i in range(self._facets + 1):
            mask = np.zeros(used[i].size(), dtype=np.bool_)
            for j in range(used[i].size()):
                if used[i][j]:
                    mask[j] = True
            out.append(mask)
        return out

    def __len__(self):
        return self._own.texts().count()

    def text(self, Py_ssize_t i):
        """Return a reduced text by number."""
        if not 0 <= i < <Py_ssize_t>self._own.texts().count():
            raise IndexError(i)
        return PyBytes_FromStringAndSize(self._own.texts().text(i).data(), self._own.texts().text(i).size())

    def facet_text(self, int facet, Py_ssize_t i):
        """Return the text of a facet by number."""
        if not 0 <= facet < self._facets or not 0 <= i < <Py_ssize_t>self._own.facet(facet).count():
            raise IndexError(i)
        return PyBytes_FromStringAndSize(self._own.facet(facet).text(i).data(), self._own.facet(facet).text(i).size())


def strings(const unsigned char[::1] data, const int64_t[::1] at, const int64_t[::1] length):
    """Return the strings; absent ones are empty. Raises UnicodeDecodeError."""
    cdef Py_ssize_t i
    _check(data.shape[0], at, length)
    cdef list out = [""] * at.shape[0]
    for i in range(at.shape[0]):
        if length[i] > 0:
            out[i] = PyUnicode_DecodeUTF8(<const char*>&data[0] + at[i], length[i], NULL)
    return out


def copy_texts(const unsigned char[::1] data, const int64_t[:, ::1] spans, const uint8_t[::1] keep, room):
    """Write texts of ``data`` one after the other into ``room(size)``, a writable buffer of at least ``size`` bytes, which
    is called once. Return ``(used, places)``: the bytes written, and int64[3, n]: where each text is, its size, and where
    its mark is.

    ``spans`` int64[6, n]: where each is now and its size, the same of its cut, a member of an object (size -1: nothing is
    cut), which goes with a comma beside it, and of its mark (-1: none). Where not ``keep`` (uint8) only its mark is
    there, and its size is 0.
    """
    cdef Py_ssize_t n = keep.shape[0], used
    if spans.shape[0] != 6 or spans.shape[1] != n:
        raise NativeError("copy_texts: shapes do not match")
    places = np.empty((3, n), dtype=np.int64)
    if n == 0:
        room(0)
        return 0, places
    cdef int64_t[:, ::1] to = places
    used = _copy_texts(data, &spans[0, 0], &keep[0], n, room, &to[0, 0])
    return used, places


cdef Py_ssize_t _copy_texts(const unsigned char[::1] data, const int64_t* spans, const uint8_t* keep, Py_ssize_t n, room,
                            int64_t* places) except -1:
    """:func:`copy_texts` for at least one text; ``spans`` [6 * n], ``places`` [3 * n]."""
    cdef Py_ssize_t i, k
    cdef c_TextSpans of
    for i in range(n):
        for k in range(0, 6, 2):
            if spans[(k + 1) * n + i] >= 0 and (spans[k * n + i] < 0 or spans[k * n + i] > data.shape[0]
                                                or spans[(k + 1) * n + i] > data.shape[0] - spans[k * n + i]):
                raise NativeError("copy_texts: outside the buffer")
            if spans[n + i] < 0 or (keep[i] and not _within(spans[k * n + i], spans[(k + 1) * n + i], spans[i],
                                                            spans[n + i])):
                raise NativeError("copy_texts: outside the text")
    of.at, of.size = spans, spans + n
    of.cut_at, of.cut_size = spans + 2 * n, spans + 3 * n
    of.mark_at, of.mark_size = spans + 4 * n, spans + 5 * n
    cdef size_t used, most = c_room(of, keep, n)
    cdef unsigned char[::1] target = room(most)
    cdef unsigned char nothing = 0
    cdef unsigned char* to = &target[0] if target.shape[0] else &nothing
    if <size_t>target.shape[0] < most:
        raise NativeError("copy_texts: not enough room")
    with nogil:
        used = c_copy(<const char*>_first(data), of, keep, n, <char*>to, places, places + n, places + 2 * n)
    return used


cdef bint _within(int64_t at, int64_t size, int64_t begin, int64_t whole) noexcept nogil:
    return size <= 0 or (at >= begin and at + size <= begin + whole)


cdef const unsigned char* _first(const unsigned char[::1] data) noexcept nogil:
    """Where a text begins, also an empty one."""
    return &data[0] if data.shape[0] else NULL


def repeats_a_key(const unsigned char[::1] data, Py_ssize_t levels=1 << 20):
    """Whether some object in a JSON text, at most ``levels`` deep (1: the outermost), has a key twice, written the same
    way; False for damaged text."""
    return data.shape[0] > 0 and c_repeats(<const char*>&data[0], data.shape[0], max(levels, 0))


def json_members(const unsigned char[::1] data):
    """Return the members of a JSON object as int64[n, 4]: begin and size of the key, with its quotes, and of the value;
    None if the text is not one object. A text may be nested as deeply as memory allows.
    """
    cdef vector[int64_t] found
    cdef cbool ok = False
    if data.shape[0]:
        with nogil:
            ok = c_members(<const char*>&data[0], data.shape[0], found)
    return _int64(found).reshape((-1, 4)) if ok else None


def json_elements(const unsigned char[::1] data):
    """Return begin and size of each element of a JSON array as int64[n, 2]; None if the text is not one array. A text
    may be nested as deeply as memory allows.
    """
    cdef vector[int64_t] found
    cdef cbool ok = False
    if data.shape[0]:
        with nogil:
            ok = c_elements(<const char*>&data[0], data.shape[0], found)
    return _int64(found).reshape((-1, 2)) if ok else None


def json_extent(const unsigned char[::1] data):
    """Return ``(end, depth)`` of the first JSON value of a text: where it ends (-1: malformed), and the maximum number
    of objects and arrays that are open at once.
    """
    cdef c_Extent found
    if not data.shape[0]:
        return -1, 0
    with nogil:
        found = c_extent(<const char*>&data[0], data.shape[0])
    return found.end, found.depth


def exceeds_depth(const unsigned char[::1] data, int64_t levels):
    """Whether more than ``levels`` objects and arrays are open at once in the first JSON value of a text. Damaged text
    does not exceed."""
    cdef cbool found
    if not data.shape[0]:
        return False
    with nogil:
        found = c_exceeds_depth(<const char*>&data[0], data.shape[0], levels)
    return found


include "_pod_metrics.pxi"
include "_api_text.pxi"
