# Part of _projection. A PodMetricsList out of its JSON text (kscale/pod_metrics.hpp), and samples out of its columns
# (kscale/pod_usage.hpp).

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from libcpp.vector cimport vector


cdef extern from "kscale/pod_metrics.hpp" namespace "kscale::pod_metrics" nogil:
    cdef enum class Odd(uint8_t):
        pass

    cdef struct OddText:
        Odd what
        int64_t row
        int32_t resource
        string_view text

    cdef cppclass Texts:
        const vector[string_view]& texts() noexcept

    cdef cppclass c_List "kscale::pod_metrics::PodMetricsList":
        vector[string_view] name
        vector[int32_t] name_space
        vector[int32_t] labels
        vector[int64_t] time
        vector[int64_t] window
        vector[int64_t] container_end
        vector[int32_t] container
        vector[vector[int64_t]] amount
        vector[vector[uint8_t]] present
        Texts namespaces
        Texts label_texts
        Texts containers
        Texts resources
        vector[OddText] odd
        Texts created
        bint only_usage
        bint read(const char*, size_t) except +


cdef extern from "kscale/pod_usage.hpp" namespace "kscale::pod_usage" nogil:
    cdef struct Pods:
        const int64_t* ends
        const int64_t* time
        const int64_t* window

    cdef struct Containers:
        const int32_t* name
        const int64_t* amount
        const uint8_t* present

    cdef struct Samples:
        uint8_t* present
        int64_t* value
        int64_t* time
        int64_t* window

    void c_sample "kscale::pod_usage::sample"(const Pods&, const Containers&, int32_t, const int64_t*, size_t,
                                              const Samples&) noexcept


ODD_METRIC_TEXTS = ("time", "window", "amount")


cdef str decoded(const string_view& text):
    return text.data()[:text.size()].decode("utf-8") if text.size() else ""


cdef list decoded_all(const vector[string_view]& texts):
    cdef size_t i
    return [decoded(texts[i]) for i in range(texts.size())]


cdef object int64s(const vector[int64_t]& values):
    out = np.empty(values.size(), np.int64)
    cdef int64_t[::1] to = out
    if values.size():
        memcpy(&to[0], values.data(), values.size() * sizeof(int64_t))
    return out


cdef object int32s(const vector[int32_t]& values):
    out = np.empty(values.size(), np.int32)
    cdef int32_t[::1] to = out
    if values.size():
        memcpy(&to[0], values.data(), values.size() * sizeof(int32_t))
    return out


cdef object uint8s(const vector[uint8_t]& values):
    out = np.empty(values.size(), np.uint8)
    cdef uint8_t[::1] to = out
    if values.size():
        memcpy(&to[0], values.data(), values.size())
    return out


def read_pod_metrics(const unsigned char[::1] text):
    """What a list says, or None where it is not written in the plain way (then nothing is said of why).

    (names, namespaces by number int32[n], labels by number int32[n] (-1: absent), times int64[n] ns (the lowest: absent),
    windows int64[n] ns, where the containers of each end int64[n], names of containers by number int32[k], amounts
    int64[k] in milli-units and whether they are there uint8[k] by resource; then the texts behind the numbers: namespaces,
    labels (JSON objects), containers, resources; then (what, row, resource, text) of what must be read in another way;
    then the creation times of items, None where an item has other fields than a PodMetrics with names, labels and time).
    Raises UnicodeDecodeError for names that are not UTF-8.
    """
    cdef c_List found
    cdef size_t size = text.shape[0], i
    cdef bint plain
    if not size:
        return None
    with nogil:
        plain = found.read(<const char*> &text[0], size)
    if not plain:
        return None
    return (
        decoded_all(found.name),
        int32s(found.name_space),
        int32s(found.labels),
        int64s(found.time),
        int64s(found.window),
        int64s(found.container_end),
        int32s(found.container),
        [int64s(found.amount[i]) for i in range(found.amount.size())],
        [uint8s(found.present[i]) for i in range(found.present.size())],
        decoded_all(found.namespaces.texts()),
        decoded_all(found.label_texts.texts()),
        decoded_all(found.containers.texts()),
        decoded_all(found.resources.texts()),
        [
            (ODD_METRIC_TEXTS[<int> found.odd[i].what], found.odd[i].row, found.odd[i].resource, decoded(found.odd[i].text))
            for i in range(found.odd.size())
        ],
        decoded_all(found.created.texts()) if found.only_usage else None,
    )


def sample_pod_metrics(
    const int64_t[::1] ends, const int64_t[::1] time, const int64_t[::1] window, const int32_t[::1] container,
    const int64_t[::1] amount, const uint8_t[::1] present, int32_t named, const int64_t[::1] rows,
):
    """Return (present uint8[n], value, time, window int64[n]) of the pods in ``rows``; a negative row is no pod.

    ``ends``, ``time``, ``window`` have one row per pod; ``container``, ``amount``, ``present`` one per container.
    ``named``: sample the first container with this number; negative: the sum of all containers, which must all be
    present. Raises ``NativeError`` where columns differ in length or rows or ends lie outside.
    """
    cdef Py_ssize_t pods = ends.shape[0], k = container.shape[0], n = rows.shape[0], i
    cdef int64_t last = 0, no_amount = 0
    cdef int32_t no_name = 0
    cdef uint8_t no_flag = 0
    if time.shape[0] != pods or window.shape[0] != pods or amount.shape[0] != k or present.shape[0] != k:
        raise NativeError("sample: shapes do not match")
    for i in range(pods):
        if not last <= ends[i] <= k:
            raise NativeError("sample: ends out of bounds")
        last = ends[i]
    for i in range(n):
        if rows[i] >= pods:
            raise NativeError("sample: no such row")
    out_present, out = np.empty(n, np.uint8), np.empty((3, n), np.int64)
    cdef uint8_t[::1] to_present = out_present
    cdef int64_t[:, ::1] to = out
    cdef const int64_t* no_time = &no_amount
    cdef Pods of = Pods(no_time, no_time, no_time)
    cdef Containers within = Containers(&no_name, &no_amount, &no_flag)
    if pods:
        of = Pods(&ends[0], &time[0], &window[0])
    if k:
        within = Containers(&container[0], &amount[0], &present[0])
    if n:
        with nogil:
            c_sample(of, within, named, &rows[0], n, Samples(&to_present[0], &to[0, 0], &to[1, 0], &to[2, 0]))
    return out_present, out[0], out[1], out[2]
