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
    cbool c_fit "kscale::pods_fit"(const c_Pods& pods, int64_t kinds, int64_t size)
    cbool c_usual "kscale::usual_pods"(const c_Pods& pods, const c_Looks* looks, uint8_t* usual)
    void c_write "kscale::write_pods"(const c_Pods& pods, const c_Looks* looks, const uint8_t* usual, size_t count,
                                      int64_t first, c_States states, int64_t* out,
                                      vector[pair[int64_t, int64_t]]& odd) except +


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
    return _read_pods(pods, data.shape[0], first, looks, states, namespace)


cdef tuple _read_pods(const c_Pods& pods, int64_t whole, int64_t first, looks, tuple states, str namespace):
    """:func:`read_pods` for pods in a text of ``whole`` bytes."""
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
        fits = c_fit(pods, kinds, whole)
        told = fits and c_usual(pods, <const c_Looks*>held.buffer.buf, &chosen[0])
    if not fits:
        raise NativeError("read_pods: no such combination, or a place outside the buffer")
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
