# Part of _hpa. One HPA over recorded load in virtual time (kscale/hpa/replay.hpp). Bounds are checked here.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector


cdef extern from "kscale/hpa/replay.hpp" namespace "kscale::hpa" nogil:
    cdef enum class Mode(uint8_t):
        pass

    cdef enum class SelectPolicy(uint8_t):
        pass

    cdef struct Tolerances:
        double down
        double up

    cdef struct Policies:
        const uint8_t* type
        const int32_t* value
        const int32_t* period
        Py_ssize_t size

    cdef struct Rules:
        SelectPolicy select
        int32_t window
        Policies policies

    cdef struct ReplayMetric:
        Mode mode
        bint cpu
        int64_t target
        int64_t request
        const int64_t* times
        const double* load
        Py_ssize_t samples

    cdef struct Replay:
        const ReplayMetric* metrics
        Py_ssize_t n_metrics
        Tolerances tolerances
        int64_t cpu_initialization
        int64_t initial_readiness
        int32_t minimum
        int32_t maximum
        bint behavior
        bint scale_to_zero
        Release release
        Rules up
        Rules down
        int64_t downscale_window
        int64_t startup
        int64_t lag
        int64_t period
        int64_t window
        int64_t begin
        int32_t start
        const int32_t* recorded

    cdef struct ReplayColumns:
        int32_t* replicas
        int32_t* ready
        int32_t* desired
        int32_t* proposal
        int32_t* best
        int64_t* usage

    void c_replay "kscale::hpa::replay"(const Replay&, Py_ssize_t, const ReplayColumns&) except +


cdef Rules single_rules_of(object rules, list keep) except *:
    """The first row; its columns must outlive the call: ``keep`` holds them."""
    columns = [rules.select, rules.window, rules.type, rules.value, rules.period]
    keep += columns
    cdef const uint8_t[::1] select = columns[0], type = columns[2]
    cdef const int32_t[::1] window = columns[1], value = columns[3], period = columns[4]
    if not (select.shape[0] == window.shape[0] == 1 and type.shape[0] == value.shape[0] == period.shape[0]):
        raise NativeError("rules of exactly one row are expected")
    if select[0] > 2:
        raise NativeError("unknown select policy")
    cdef Rules out
    out.select = <SelectPolicy> select[0]
    out.window = window[0]
    out.policies = Policies(NULL, NULL, NULL, type.shape[0])
    if type.shape[0]:
        out.policies = Policies(&type[0], &value[0], &period[0], type.shape[0])
    return out


cdef ReplayMetric metric_of(object metric, list keep) except *:
    """One metric; its columns must outlive the call: ``keep`` holds them."""
    cdef uint8_t mode = metric.mode
    times_column, load_column = metric.time, metric.load
    keep += [times_column, load_column]
    cdef const int64_t[::1] times = times_column
    cdef const double[::1] load = load_column
    if times.shape[0] != load.shape[0] or not times.shape[0]:
        raise NativeError("times and load must be of one length, and not empty")
    if mode > 5:
        raise NativeError("an unknown mode")
    return ReplayMetric(<Mode> mode, metric.cpu, metric.target, metric.request, &times[0], &load[0], times.shape[0])


def replay(
    Py_ssize_t ticks, metrics, recorded, up, down, *, double tolerance_down, double tolerance_up,
    int64_t cpu_initialization, int64_t initial_readiness, int32_t minimum, int32_t maximum,
    bint behavior, bint scale_to_zero, uint8_t release, int64_t downscale_window,
    int64_t startup, int64_t lag, int64_t period, int64_t window, int64_t begin, int32_t start,
):
    """Return replicas, ready pods, desired, proposal, deciding metric (-1: none) and usage [ticks, metrics] of every
    tick.

    Times in nanoseconds, loads in units. With ``recorded`` int32[ticks], the simulated target has these replicas.
    Raises ``NativeError`` for columns of different lengths, no load, negative durations, or more than a million pods.
    """
    if release >= kReleases:
        raise NativeError("an unknown release")
    if ticks < 0 or period <= 0 or startup < 0 or lag < 0 or start < 0:
        raise NativeError("a negative number")
    cdef list keep = []
    cdef vector[ReplayMetric] c_metrics
    for metric in metrics:
        c_metrics.push_back(metric_of(metric, keep))
    if c_metrics.empty():
        raise NativeError("no metric")
    cdef const int32_t[::1] sizes
    cdef Replay given
    given.recorded = NULL
    if recorded is not None:
        sizes = recorded
        if sizes.shape[0] != ticks or (ticks and np.min(recorded) < 0):
            raise NativeError("recorded replicas: one for every tick is expected, none negative")
        if ticks:
            given.recorded = &sizes[0]
    given.metrics = c_metrics.data()
    given.n_metrics = <Py_ssize_t> c_metrics.size()
    given.tolerances = Tolerances(tolerance_down, tolerance_up)
    given.cpu_initialization = cpu_initialization
    given.initial_readiness = initial_readiness
    given.minimum = minimum
    given.maximum = maximum
    given.behavior = behavior
    given.scale_to_zero = scale_to_zero
    given.release = <Release> release
    given.up = single_rules_of(up, keep)
    given.down = single_rules_of(down, keep)
    given.downscale_window = downscale_window
    given.startup = startup
    given.lag = lag
    given.period = period
    given.window = window
    given.begin = begin
    given.start = start
    out = [np.empty(ticks, np.int32) for _ in range(5)] + [np.empty((ticks, given.n_metrics), np.int64)]
    cdef int32_t[::1] replicas = out[0], ready = out[1], desired = out[2], proposal = out[3], best = out[4]
    cdef int64_t[:, ::1] usage = out[5]
    cdef ReplayColumns columns
    if ticks:
        columns = ReplayColumns(&replicas[0], &ready[0], &desired[0], &proposal[0], &best[0], &usage[0, 0])
        try:
            with nogil:
                c_replay(given, ticks, columns)
        except (ValueError, RuntimeError) as problem:
            raise NativeError(str(problem)) from None
    return tuple(out)
