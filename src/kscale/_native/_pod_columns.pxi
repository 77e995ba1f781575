# Part of _projection. Pods that a projector noted, as columns (kscale/pod_columns.hpp).

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.unicode cimport PyUnicode_1BYTE_DATA, PyUnicode_DecodeUTF8, PyUnicode_New
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.pair cimport pair
from libcpp.string_view cimport string_view
from libcpp.vector cimport vector


cdef extern from "kscale/json_reader.hpp" namespace "kscale" nogil:
    cbool is_ascii "kscale::is_ascii"(string_view text)


cdef extern from "kscale/pod_columns.hpp" namespace "kscale" nogil:
    cdef enum c_Slot "kscale::PodSlot":
        kName "kscale::kName"
        kNamespace "kscale::kNamespace"
        kPodSlots "kscale::kPodSlots"
    cdef enum c_Column "kscale::PodColumn":
        _BEGIN "kscale::kBegin"
        _NODE_AT "kscale::kNodeAt"
        _NODE_SIZE "kscale::kNodeSize"
        _NODE_OF "kscale::kNodeOf"
        kPodColumns "kscale::kPodColumns"
    cdef struct c_Looks "kscale::PodLooks":
        int64_t priority
        int32_t waiting
        int32_t settled
        int32_t waiting_shape
        int32_t settled_shape
        int32_t controller
        int32_t queueing
        int8_t unplaced
        int8_t phase
        uint8_t known
        uint8_t done
        uint8_t bare
    cdef struct c_Pods "kscale::NotedPods":
        const char* data
        size_t n
        const int64_t* begin
        const int64_t* size
        const int32_t* combined
        const int64_t* at
        const int64_t* length
        Py_ssize_t stride
        cbool listed
        int64_t place(c_Slot slot, size_t i)
        int64_t size_of(c_Slot slot, size_t i)
    cdef struct c_States "kscale::PlacedStates":
        int8_t placed
        int8_t finished
    cbool c_looks_fit "kscale::looks_fit"(const c_Pods& pods, int64_t kinds)
    cbool c_places_fit "kscale::places_fit"(const c_Pods& pods, int64_t size)
    cbool c_usual "kscale::usual_pods"(const c_Pods& pods, const c_Looks* looks, uint8_t* usual)
    vector[int64_t] c_unknown "kscale::unknown_looks"(const c_Pods& pods, const c_Looks* looks) except +
    void c_write "kscale::write_pods"(const c_Pods& pods, const c_Looks* looks, const uint8_t* usual, size_t count,
                                      int64_t first, c_States states, int64_t* out,
                                      vector[pair[int64_t, int64_t]]& odd) except +
    void c_take "kscale::take_columns"(const int64_t* columns, size_t n, const int64_t* which, size_t m,
                                       const int32_t* source, size_t count, int64_t* out)
    cdef struct c_Table "kscale::TableColumns":
        int32_t at
        int32_t stamp
        int32_t seen
        int32_t source
        int32_t offset
        int32_t size
        int32_t uid_offset
        int32_t bound
        int32_t state
    void c_write_table "kscale::write_table"(const c_Table& of, const int64_t* which, size_t m, const int32_t* node,
                                             int64_t first_stamp, cbool seen, int64_t* values)
    void c_choose "kscale::choose_texts"(const c_Table& of, size_t m, cbool every, int64_t finished,
                                         const int64_t* values, uint8_t* keep)
    void c_write_texts "kscale::write_texts"(const c_Table& of, size_t m, int64_t source, int64_t begin,
                                             const int64_t* places, int64_t* values)


POD_SLOTS = ("name", "namespace", "uid", "node", "nominated", "created", "started", "deleted", "since", "ready",
             "version", "managed")
"""What is noted of a pod, in the order of a projector's slots."""

POD_COLUMNS = ("where", "begin", "size", "cut_at", "cut_size", "uid_at", "uid_size", "node_at", "node_size", "node_of",
               "combined", "class_of", "shape", "controller", "queueing", "priority", "state", "phase", "bound", "ready",
               "version", "created", "started", "deleted", "since")
"""The columns that :func:`read_pods` makes, in their order."""

POD_LOOKS = np.dtype([
    ("priority", np.int64), ("waiting", np.int32), ("settled", np.int32), ("waiting_shape", np.int32),
    ("settled_shape", np.int32), ("controller", np.int32), ("queueing", np.int32), ("unplaced", np.int8),
    ("phase", np.int8), ("known", np.bool_), ("done", np.bool_), ("bare", np.bool_),
], align=True)
"""What the pods of one combination of texts have in common."""

if len(POD_SLOTS) != kPodSlots or len(POD_COLUMNS) != kPodColumns or POD_LOOKS.itemsize != sizeof(c_Looks):
    raise NativeError("_pod_columns: names do not fit the header")


cdef class _Looks:
    """The buffer of an array of :data:`POD_LOOKS`, held as long as this is."""

    cdef Py_buffer buffer

    def __cinit__(self, array):
        PyObject_GetBuffer(array, &self.buffer, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)


def read_pods(const unsigned char[::1] data, cbool listed, int64_t first, const int64_t[::1] begin,
              const int64_t[::1] size, const int32_t[::1] combined, const int64_t[:, :] at,
              const int64_t[:, :] length, looks, tuple states, str namespace not None):
    """``(usual, keys, columns, odd)``, or None if ``looks`` (:data:`POD_LOOKS`, by number of the combination + 1) does not
    say yet what some pod stands for.

    Of n pods, ``combined`` -1 and -3 those that are read the slow way and -2 those of which only what is noted counts: ``usual``
    bool[n], those that columns can tell; their ``keys``, with ``namespace`` where they have none; ``columns``
    int64[:data:`POD_COLUMNS`, m]; ``odd``: (usual pod, slot) of times that are not written as the API server does.
    ``begin``, ``size`` int64[n], ``at``, ``length`` int64[:data:`POD_SLOTS`, n]: places in ``data``; ``listed``: it is a
    list of pods; ``first``: where the first is among the items; ``states``: of pods with a node and of finished ones.
    Raises UnicodeDecodeError.
    """
    cdef Py_ssize_t n = begin.shape[0]
    cdef c_Pods pods
    if size.shape[0] != n or combined.shape[0] != n:
        raise NativeError("read_pods: shapes do not match")
    if at.shape[0] != kPodSlots or length.shape[0] != kPodSlots or at.shape[1] != n or length.shape[1] != n:
        raise NativeError("read_pods: shapes do not match")
    if n and (at.strides[1] != sizeof(int64_t) or length.strides[1] != sizeof(int64_t)
              or at.strides[0] != length.strides[0] or at.strides[0] % sizeof(int64_t)):
        raise NativeError("read_pods: places are not one behind the other")
    pods.data = <const char*>_first(data)
    pods.n = n
    if n:
        pods.begin, pods.size, pods.combined = &begin[0], &size[0], &combined[0]
        pods.at, pods.length = &at[0, 0], &length[0, 0]
        pods.stride = at.strides[0] // <Py_ssize_t>sizeof(int64_t)
    pods.listed = listed
    if not c_places_fit(pods, data.shape[0]):
        raise NativeError("read_pods: a place outside the buffer")
    return _read_pods(pods, first, looks, states, namespace)


cdef tuple _read_pods(const c_Pods& pods, int64_t first, looks, tuple states, str namespace):
    """:func:`read_pods` for pods whose strings are in the text."""
    cdef Py_ssize_t i, k, count = 0, n = pods.n
    cdef c_States known
    cdef vector[pair[int64_t, int64_t]] odd
    cdef cbool told, fits
    if looks.dtype != POD_LOOKS:
        raise NativeError("read_pods: looks of another kind")
    cdef _Looks held = _Looks(looks)
    cdef Py_ssize_t kinds = held.buffer.len // <Py_ssize_t>sizeof(c_Looks)
    usual = np.zeros(n, dtype=np.bool_)
    if n == 0:
        return usual, [], np.empty((kPodColumns, 0), dtype=np.int64), []
    cdef uint8_t[::1] chosen = usual.view(np.uint8)
    known.placed, known.finished = states
    with nogil:  # the thread that stores the pods before these runs meanwhile
        fits = c_looks_fit(pods, kinds)
        told = fits and c_usual(pods, <const c_Looks*>held.buffer.buf, &chosen[0])
    if not fits:
        raise NativeError("read_pods: no such combination")
    if not told:
        return None
    with nogil:
        for i in range(n):
            count += chosen[i]
    columns = np.empty((kPodColumns, count), dtype=np.int64)
    cdef int64_t[:, ::1] out = columns
    if count:
        with nogil:
            c_write(pods, <const c_Looks*>held.buffer.buf, &chosen[0], count, first, known, &out[0, 0], odd)
    cdef list keys = [None] * count
    k = 0
    for i in range(n):
        if chosen[i]:
            keys[k] = _key(pods.data + pods.place(kNamespace, i), pods.size_of(kNamespace, i),
                           pods.data + pods.place(kName, i), pods.size_of(kName, i), namespace)
            k += 1
    return usual, keys, columns, [(odd[i].first, odd[i].second) for i in range(odd.size())]


TABLE_COLUMNS = ("at", "stamp", "seen", "source", "offset", "size", "uid_offset", "bound", "state")
"""The columns of a table that :func:`table_values` writes or reads by name, in their order."""


def table_values(const unsigned char[::1] data, const int64_t[:, ::1] columns, const int64_t[::1] which,
                 const int32_t[::1] sources, tuple table, const int32_t[::1] node, int64_t first_stamp, cbool seen, texts,
                 cbool every, int64_t finished):
    """int64[len(sources), m]: the values of a table's columns for the pods ``which`` of a batch.

    ``columns`` int64[:data:`POD_COLUMNS`, n]; ``sources``: for each column of the table the one of ``columns`` with its
    values, negative: 0. ``table``: where :data:`TABLE_COLUMNS` are in the table. ``at`` gets ``node`` (int32[n], by pod of
    the batch), ``stamp`` numbers from ``first_stamp`` on, and ``seen`` the same for all.

    Unless ``texts`` is None, texts are copied as :func:`copy_texts` does it into ``texts.reserve(size)``: all of them, or
    unless ``every`` those of pods that are not ``bound`` and whose ``state`` is not ``finished``, and only UIDs of others.
    ``texts.fill(used)`` returns the number of the buffer and where in it that is. Then ``source``, ``offset``, ``size``
    and ``uid_offset`` (from ``offset`` on) say so.
    """
    cdef Py_ssize_t i, n = columns.shape[1], m = which.shape[0], count = sources.shape[0]
    cdef c_Table of
    cdef int32_t[9] places_of
    if columns.shape[0] != kPodColumns or node.shape[0] != n or len(table) != 9:
        raise NativeError("table_values: shapes do not match")
    for i in range(9):
        places_of[i] = table[i]
        if not 0 <= places_of[i] < count:
            raise NativeError("table_values: no such column")
    of.at, of.stamp, of.seen = places_of[0], places_of[1], places_of[2]
    of.source, of.offset, of.size, of.uid_offset = places_of[3], places_of[4], places_of[5], places_of[6]
    of.bound, of.state = places_of[7], places_of[8]
    for i in range(count):
        if sources[i] >= <int>kPodColumns:
            raise NativeError("table_values: no such column")
    for i in range(m):
        if not 0 <= which[i] < n:
            raise NativeError("table_values: no such pod")
    values = np.empty((count, m), dtype=np.int64)
    if m == 0:
        return values
    cdef int64_t[:, ::1] to = values
    with nogil:
        c_take(&columns[0, 0], n, &which[0], m, &sources[0], count, &to[0, 0])
        c_write_table(of, &which[0], m, &node[0], first_stamp, seen, &to[0, 0])
    if texts is None:
        return values
    cdef vector[int64_t] spans, places
    cdef vector[uint8_t] keep
    cdef int32_t[6] of_spans
    for i in range(6):
        of_spans[i] = <int32_t>_BEGIN + i
    spans.resize(6 * m)
    places.resize(3 * m)
    keep.resize(m)
    with nogil:
        c_take(&columns[0, 0], n, &which[0], m, of_spans, 6, spans.data())
        c_choose(of, m, every, finished, &to[0, 0], keep.data())
    source, begin = texts.fill(_copy_texts(data, spans.data(), keep.data(), m, texts.reserve, places.data()))
    c_write_texts(of, m, source, begin, places.data(), &to[0, 0])
    return values


cdef str _key(const char* space, int64_t head, const char* name, int64_t size, str absent):
    """``namespace/name``; ``absent``: the namespace if there is none."""
    cdef str text
    if head <= 0 or not is_ascii(string_view(space, head)):
        return (absent if head <= 0 else PyUnicode_DecodeUTF8(space, head, NULL)) + "/" \
            + PyUnicode_DecodeUTF8(name, size, NULL)
    text = PyUnicode_New(head + 1 + size, 127)  # a usual name is ASCII
    memcpy(PyUnicode_1BYTE_DATA(text), space, head)
    (<char*>PyUnicode_1BYTE_DATA(text))[head] = b"/"
    memcpy(<char*>PyUnicode_1BYTE_DATA(text) + head + 1, name, size)
    return text
