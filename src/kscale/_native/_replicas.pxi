# Part of _hpa. The replica calculator over columns (kscale/hpa/replica_calculator.hpp). Shapes and bounds are
# checked here.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kscale._native._columns cimport same

cdef extern from "kscale/hpa/replica_batch.hpp" namespace "kscale::hpa" nogil:
    cdef struct RowColumns:
        const uint8_t* mode
        const uint8_t* cpu
        const uint8_t* given
        const int32_t* current
        const int64_t* target
        const double* down
        const double* up
        const int64_t* pods_begin
        const int64_t* pods_end
        const int64_t* samples
        const int64_t* requests
        const int32_t* bad_request
        const int64_t* extra_count
        const int64_t* extra_sum
        const int64_t* values_begin
        const int64_t* values_end

    cdef struct PodColumns:
        const uint8_t* phase
        const uint8_t* deleting
        const uint8_t* ready
        const uint8_t* started
        const int64_t* start
        const int64_t* transition

    cdef struct SampleColumns:
        const uint8_t* present
        const int64_t* value
        const int64_t* time
        const int64_t* window

    cdef enum class Release(uint8_t):
        pass

    const uint8_t kReleases

    cdef struct Terms:
        int64_t now
        int64_t cpu_initialization
        int64_t initial_readiness
        Release release

    cdef struct Extent:
        int64_t pods
        int64_t samples
        int64_t requests
        int64_t values

    cdef struct AnswerColumns:
        int32_t* replicas
        int32_t* utilization
        int64_t* usage
        uint8_t* error
        uint8_t* path
        int32_t* groups
        double* ratios

    cdef enum class Group(uint8_t):
        pass

    Group group_of(const PodColumns&, Py_ssize_t, const SampleColumns&, Py_ssize_t, bint, const Terms&) noexcept
    Py_ssize_t first_invalid(const RowColumns&, Py_ssize_t, const Extent&) noexcept
    void replicas_of_rows(const RowColumns&, Py_ssize_t, const PodColumns&, const SampleColumns&, const int64_t*,
                          const int64_t*, const Terms&, Py_ssize_t, const AnswerColumns&) except +


cdef PodColumns pods_of(
    const uint8_t[::1] phase, const uint8_t[::1] deleting, const uint8_t[::1] ready, const uint8_t[::1] started,
    const int64_t[::1] start, const int64_t[::1] transition,
) except *:
    """One row per pod. The caller keeps the columns alive."""
    cdef Py_ssize_t n = phase.shape[0]
    same("deleting", n, deleting.shape[0]); same("ready", n, ready.shape[0]); same("started", n, started.shape[0])
    same("start", n, start.shape[0]); same("transition", n, transition.shape[0])
    if not n:
        return PodColumns(NULL, NULL, NULL, NULL, NULL, NULL)
    return PodColumns(&phase[0], &deleting[0], &ready[0], &started[0], &start[0], &transition[0])


cdef SampleColumns samples_of(
    const uint8_t[::1] present, const int64_t[::1] value, const int64_t[::1] time, const int64_t[::1] window,
) except *:
    """Samples in the order of the pods to which they belong. The caller keeps the columns alive."""
    cdef Py_ssize_t n = present.shape[0]
    same("sample_value", n, value.shape[0]); same("sample_time", n, time.shape[0])
    same("sample_window", n, window.shape[0])
    if not n:
        return SampleColumns(NULL, NULL, NULL, NULL)
    return SampleColumns(&present[0], &value[0], &time[0], &window[0])


cdef Release release_of(uint8_t code) except *:
    if code >= kReleases:
        raise NativeError("an unknown release")
    return <Release> code


def calculate_replicas(
    const uint8_t[::1] mode, const uint8_t[::1] cpu, const uint8_t[::1] given, const int32_t[::1] current,
    const int64_t[::1] target, const double[::1] down, const double[::1] up,
    const int64_t[::1] pods_begin, const int64_t[::1] pods_end, const int64_t[::1] samples,
    const int64_t[::1] requests, const int32_t[::1] bad_request,
    const int64_t[::1] extra_count, const int64_t[::1] extra_sum,
    const int64_t[::1] values_begin, const int64_t[::1] values_end,
    const uint8_t[::1] phase, const uint8_t[::1] deleting, const uint8_t[::1] ready, const uint8_t[::1] started,
    const int64_t[::1] start, const int64_t[::1] transition,
    const uint8_t[::1] sample_present, const int64_t[::1] sample_value, const int64_t[::1] sample_time,
    const int64_t[::1] sample_window,
    const int64_t[::1] request, const int64_t[::1] value,
    int64_t now, int64_t cpu_initialization, int64_t initial_readiness, uint8_t release=0, Py_ssize_t threads=1,
):
    """Return replicas, utilization (percent), usage (milli), error, path, groups [n, 4] and ratios [n, 2] of every
    row.

    Times and periods in nanoseconds, amounts in milli-units; all arrays C-contiguous. Raises ``NativeError`` when the
    columns of a family differ in length or a row has an unknown code or points outside its columns. ``release``: 0 is
    today's calculator, 1 that of Kubernetes 1.20, 2 of 1.19.0, 3 of 1.18.0. The result does not depend on ``threads``.
    """
    cdef Py_ssize_t n = mode.shape[0], pods = phase.shape[0], n_samples = sample_present.shape[0]
    same("cpu", n, cpu.shape[0]); same("given", n, given.shape[0]); same("current", n, current.shape[0])
    same("target", n, target.shape[0]); same("down", n, down.shape[0]); same("up", n, up.shape[0])
    same("pods_begin", n, pods_begin.shape[0]); same("pods_end", n, pods_end.shape[0])
    same("samples", n, samples.shape[0]); same("requests", n, requests.shape[0])
    same("bad_request", n, bad_request.shape[0]); same("extra_count", n, extra_count.shape[0])
    same("extra_sum", n, extra_sum.shape[0]); same("values_begin", n, values_begin.shape[0])
    same("values_end", n, values_end.shape[0])
    cdef PodColumns c_pods = pods_of(phase, deleting, ready, started, start, transition)
    cdef SampleColumns c_samples = samples_of(sample_present, sample_value, sample_time, sample_window)

    replicas = np.empty(n, np.int32)
    utilization = np.empty(n, np.int32)
    usage = np.empty(n, np.int64)
    error = np.empty(n, np.uint8)
    path = np.empty(n, np.uint8)
    groups = np.empty((n, 4), np.int32)
    ratios = np.empty((n, 2), np.float64)
    cdef int32_t[::1] o_replicas = replicas, o_utilization = utilization
    cdef int64_t[::1] o_usage = usage
    cdef uint8_t[::1] o_error = error, o_path = path
    cdef int32_t[:, ::1] o_groups = groups
    cdef double[:, ::1] o_ratios = ratios
    if n:
        _run(
            RowColumns(&mode[0], &cpu[0], &given[0], &current[0], &target[0], &down[0], &up[0], &pods_begin[0],
                       &pods_end[0], &samples[0], &requests[0], &bad_request[0], &extra_count[0], &extra_sum[0],
                       &values_begin[0], &values_end[0]),
            n,
            Extent(pods, n_samples, request.shape[0], value.shape[0]),
            c_pods,
            c_samples,
            &request[0] if request.shape[0] else NULL,
            &value[0] if value.shape[0] else NULL,
            Terms(now, cpu_initialization, initial_readiness, release_of(release)),
            threads,
            AnswerColumns(&o_replicas[0], &o_utilization[0], &o_usage[0], &o_error[0], &o_path[0], &o_groups[0, 0],
                          &o_ratios[0, 0]),
        )
    return replicas, utilization, usage, error, path, groups, ratios


def pod_groups(
    const uint8_t[::1] phase, const uint8_t[::1] deleting, const uint8_t[::1] ready, const uint8_t[::1] started,
    const int64_t[::1] start, const int64_t[::1] transition,
    const uint8_t[::1] sample_present, const int64_t[::1] sample_value, const int64_t[::1] sample_time,
    const int64_t[::1] sample_window,
    bint cpu, int64_t now, int64_t cpu_initialization, int64_t initial_readiness, uint8_t release=0,
):
    """Return the group of every pod: 0 ready, 1 unready, 2 missing, 3 ignored. One sample row per pod."""
    cdef Py_ssize_t n = phase.shape[0], i
    same("sample_present", n, sample_present.shape[0])
    cdef PodColumns pods = pods_of(phase, deleting, ready, started, start, transition)
    cdef SampleColumns samples = samples_of(sample_present, sample_value, sample_time, sample_window)
    cdef Terms terms = Terms(now, cpu_initialization, initial_readiness, release_of(release))
    result = np.empty(n, np.uint8)
    cdef uint8_t[::1] out = result
    for i in range(n):
        out[i] = <uint8_t> group_of(pods, i, samples, i, cpu, terms)
    return result


cdef int _run(RowColumns rows, Py_ssize_t n, Extent extent, PodColumns pods, SampleColumns samples,
              const int64_t* requests, const int64_t* values, Terms terms, Py_ssize_t threads,
              AnswerColumns out) except -1:
    cdef Py_ssize_t bad
    with nogil:
        bad = first_invalid(rows, n, extent)
    if bad < n:
        raise NativeError(f"row {bad} holds an unknown code or points outside its columns")
    with nogil:
        replicas_of_rows(rows, n, pods, samples, requests, values, terms, threads, out)
    return 0
