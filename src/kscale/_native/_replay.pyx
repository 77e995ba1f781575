# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""One HPA over recorded load in virtual time (kscale/hpa/replay.hpp). Bounds are checked here."""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t

from kscale.errors import NativeError


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

    cdef struct Replay:
        Mode mode
        bint cpu
        int64_t target
        Tolerances tolerances
        int64_t cpu_initialization
        int64_t initial_readiness
        int32_t minimum
        int32_t maximum
        bint behavior
        bint scale_to_zero
        Rules up
        Rules down
        int64_t legacy_window
        int64_t request
        int64_t startup
        int64_t lag
        int64_t period
        int64_t window
        int64_t begin
        int32_t start
        const int64_t* times
        const double* load
        Py_ssize_t samples
        const int32_t* recorded

    cdef struct ReplayColumns:
        int32_t* replicas
        int32_t* ready
        int32_t* desired
        int32_t* proposal
        int64_t* usage
        uint8_t* branch

    void c_replay "kscale::hpa::replay"(const Replay&, Py_ssize_t, const ReplayColumns&) except +


cdef Rules rules_of(object rules) except *:
    """The first row. The columns must outlive the call: the caller holds ``rules``."""
    cdef const uint8_t[::1] select = rules.select
    cdef const int32_t[::1] window = rules.window
    cdef const uint8_t[::1] type = rules.type
    cdef const int32_t[::1] value = rules.value, period = rules.period
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


def replay(
    Py_ssize_t ticks, const int64_t[::1] times, const double[::1] load, recorded, up, down, *,
    uint8_t mode, bint cpu, int64_t target, double tolerance_down, double tolerance_up,
    int64_t cpu_initialization, int64_t initial_readiness, int32_t minimum, int32_t maximum,
    bint behavior, bint scale_to_zero, int64_t legacy_window, int64_t request,
    int64_t startup, int64_t lag, int64_t period, int64_t window, int64_t begin, int32_t start,
):
    """Replicas, ready pods, desired, proposal, usage, branch of every tick.

    Times in nanoseconds, ``load`` in units; ``recorded`` int32[ticks] makes the plant follow it. Raises
    ``NativeError`` for columns of different lengths, no load, negative durations, or more than a million pods.
    """
    if times.shape[0] != load.shape[0] or not times.shape[0]:
        raise NativeError("times and load must be of one length, and not empty")
    if mode > 5 or ticks < 0 or period <= 0 or startup < 0 or lag < 0 or start < 0:
        raise NativeError("an unknown mode, or a negative number")
    cdef const int32_t[::1] sizes
    cdef Replay given
    given.recorded = NULL
    if recorded is not None:
        sizes = recorded
        if sizes.shape[0] != ticks or (ticks and np.min(recorded) < 0):
            raise NativeError("recorded replicas: one for every tick is expected, none negative")
        if ticks:
            given.recorded = &sizes[0]
    given.mode = <Mode> mode
    given.cpu = cpu
    given.target = target
    given.tolerances = Tolerances(tolerance_down, tolerance_up)
    given.cpu_initialization = cpu_initialization
    given.initial_readiness = initial_readiness
    given.minimum = minimum
    given.maximum = maximum
    given.behavior = behavior
    given.scale_to_zero = scale_to_zero
    given.up = rules_of(up)
    given.down = rules_of(down)
    given.legacy_window = legacy_window
    given.request = request
    given.startup = startup
    given.lag = lag
    given.period = period
    given.window = window
    given.begin = begin
    given.start = start
    given.times = &times[0]
    given.load = &load[0]
    given.samples = times.shape[0]
    out = [np.empty(ticks, dtype) for dtype in (np.int32, np.int32, np.int32, np.int32, np.int64, np.uint8)]
    cdef int32_t[::1] replicas = out[0], ready = out[1], desired = out[2], proposal = out[3]
    cdef int64_t[::1] usage = out[4]
    cdef uint8_t[::1] branch = out[5]
    cdef ReplayColumns columns
    if ticks:
        columns = ReplayColumns(&replicas[0], &ready[0], &desired[0], &proposal[0], &usage[0], &branch[0])
        try:
            with nogil:
                c_replay(given, ticks, columns)
        except (ValueError, RuntimeError) as problem:
            raise NativeError(str(problem)) from None
    return tuple(out)
