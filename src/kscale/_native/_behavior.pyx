# cython: language_level=3, freethreading_compatible=True, boundscheck=False, wraparound=False
"""Stabilisation, rate limits and histories over columns (kscale/hpa/behavior.hpp). Bounds are checked here."""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t

from kscale.errors import NativeError


cdef extern from "kscale/hpa/behavior_batch.hpp" namespace "kscale::hpa" nogil:
    cdef struct Slots:
        const int64_t* begin
        const int64_t* capacity
        int64_t* size

    cdef struct RecommendationColumns:
        Slots slots
        int32_t* replicas
        int64_t* times

    cdef struct EventColumns:
        Slots slots
        int32_t* changes
        int64_t* times
        uint8_t* outdated

    cdef struct PolicyColumns:
        const uint8_t* type
        const int32_t* value
        const int32_t* period

    cdef struct RulesColumns:
        const uint8_t* select
        const int32_t* window
        const int64_t* begin
        const int64_t* end
        PolicyColumns policies

    cdef struct SizeColumns:
        const uint8_t* active
        const uint8_t* behavior
        const int32_t* current
        const int32_t* proposal
        const int32_t* minimum
        const int32_t* maximum

    cdef struct NormalizedColumns:
        int32_t* stabilized
        int32_t* desired
        uint8_t* held
        uint8_t* limit
        uint8_t* limited

    void normalize_rows(const SizeColumns&, Py_ssize_t, const RulesColumns&, const RulesColumns&,
                        const RecommendationColumns&, const EventColumns&, const EventColumns&, int64_t, int64_t,
                        Py_ssize_t, const NormalizedColumns&) except +
    void c_store_events "kscale::hpa::store_events"(
        const uint8_t*, const int32_t*, const int32_t*, Py_ssize_t, const RulesColumns&, const RulesColumns&,
        const EventColumns&, const EventColumns&, int64_t) noexcept
    bint valid_slots(const Slots&, Py_ssize_t, int64_t) noexcept
    bint valid_rules(const RulesColumns&, Py_ssize_t, int64_t) noexcept


cdef int same(str what, Py_ssize_t n, Py_ssize_t length) except -1:
    if n != length:
        raise NativeError(f"{what}: {length} entries, expected {n}")
    return 0


cdef object field(object columns, str name, list keep):
    """An attribute that stays alive as long as ``keep``, whatever ``columns`` is: pointers into it outlive this call."""
    value = getattr(columns, name)
    keep.append(value)
    return value


cdef RulesColumns rules_of(object columns, Py_ssize_t n, list keep) except *:
    cdef const uint8_t[::1] select = field(columns, "select", keep)
    cdef const int32_t[::1] window = field(columns, "window", keep)
    cdef const int64_t[::1] begin = field(columns, "begin", keep), end = field(columns, "end", keep)
    cdef const uint8_t[::1] type = field(columns, "type", keep)
    cdef const int32_t[::1] value = field(columns, "value", keep), period = field(columns, "period", keep)
    cdef RulesColumns rules
    same("select", n, select.shape[0]); same("window", n, window.shape[0])
    same("begin", n, begin.shape[0]); same("end", n, end.shape[0])
    same("value", type.shape[0], value.shape[0]); same("period", type.shape[0], period.shape[0])
    rules = RulesColumns(&select[0], &window[0], &begin[0], &end[0], PolicyColumns(NULL, NULL, NULL))
    if type.shape[0]:
        rules.policies = PolicyColumns(&type[0], &value[0], &period[0])
    if not valid_rules(rules, n, type.shape[0]):
        raise NativeError("a rule holds an unknown code or points outside the policies")
    return rules


cdef Slots slots_of(object columns, Py_ssize_t n, Py_ssize_t entries, list keep) except *:
    cdef const int64_t[::1] begin = field(columns, "begin", keep), capacity = field(columns, "capacity", keep)
    cdef int64_t[::1] size = field(columns, "size", keep)
    cdef Slots slots
    same("begin", n, begin.shape[0]); same("capacity", n, capacity.shape[0]); same("size", n, size.shape[0])
    slots = Slots(&begin[0], &capacity[0], &size[0])
    if not valid_slots(slots, n, entries):
        raise NativeError("a history overlaps another one, points outside its entries or has no room for one more")
    return slots


cdef RecommendationColumns recommendations_of(object columns, Py_ssize_t n, list keep) except *:
    cdef int32_t[::1] replicas = field(columns, "values", keep)
    cdef int64_t[::1] times = field(columns, "times", keep)
    same("times", replicas.shape[0], times.shape[0])
    cdef Slots slots = slots_of(columns, n, replicas.shape[0], keep)
    return RecommendationColumns(slots, &replicas[0], &times[0])


cdef EventColumns events_of(object columns, Py_ssize_t n, list keep) except *:
    cdef int32_t[::1] changes = field(columns, "values", keep)
    cdef int64_t[::1] times = field(columns, "times", keep)
    cdef uint8_t[::1] outdated = field(columns, "outdated", keep)
    same("times", changes.shape[0], times.shape[0]); same("outdated", changes.shape[0], outdated.shape[0])
    cdef Slots slots = slots_of(columns, n, changes.shape[0], keep)
    return EventColumns(slots, &changes[0], &times[0], &outdated[0])


def normalize(
    const uint8_t[::1] active, const uint8_t[::1] behavior, const int32_t[::1] current, const int32_t[::1] proposal,
    const int32_t[::1] minimum, const int32_t[::1] maximum, up, down, past, added, removed,
    int64_t legacy_window, int64_t now, Py_ssize_t threads=1,
):
    """Stabilised size, desired size, who held it, which limit, whether it changed the size; ``past`` is written to.

    Rules: ``select`` uint8[n], ``window`` int32[n] (seconds), ``begin``/``end`` int64[n] into the policies' ``type``
    uint8, ``value`` int32 and ``period`` int32 (seconds). Histories: ``begin``/``capacity``/``size`` int64[n] into
    ``values`` int32 and ``times`` int64 (of events also ``outdated`` uint8). Raises ``NativeError`` when columns differ
    in length, point outside, or a history has no room for one more entry.
    """
    cdef Py_ssize_t n = active.shape[0]
    cdef list keep = []
    same("behavior", n, behavior.shape[0]); same("current", n, current.shape[0])
    same("proposal", n, proposal.shape[0]); same("minimum", n, minimum.shape[0])
    same("maximum", n, maximum.shape[0])
    stabilized = np.empty(n, np.int32)
    desired = np.empty(n, np.int32)
    held = np.empty(n, np.uint8)
    limit = np.empty(n, np.uint8)
    limited = np.empty(n, np.uint8)
    cdef int32_t[::1] o_stabilized = stabilized, o_desired = desired
    cdef uint8_t[::1] o_held = held, o_limit = limit, o_limited = limited
    cdef RulesColumns c_up, c_down
    cdef RecommendationColumns c_past
    cdef EventColumns c_added, c_removed
    cdef SizeColumns sizes
    cdef NormalizedColumns out
    if n:
        c_up = rules_of(up, n, keep)
        c_down = rules_of(down, n, keep)
        c_past = recommendations_of(past, n, keep)
        c_added = events_of(added, n, keep)
        c_removed = events_of(removed, n, keep)
        sizes = SizeColumns(&active[0], &behavior[0], &current[0], &proposal[0], &minimum[0], &maximum[0])
        out = NormalizedColumns(&o_stabilized[0], &o_desired[0], &o_held[0], &o_limit[0], &o_limited[0])
        with nogil:
            normalize_rows(sizes, n, c_up, c_down, c_past, c_added, c_removed, legacy_window, now, threads, out)
    return stabilized, desired, held, limit, limited


def store_events(const uint8_t[::1] rescaled, const int32_t[::1] before, const int32_t[::1] after, up, down, added,
                 removed, int64_t now):
    """Store the change of size of every row where ``rescaled`` is set, in the history of its direction."""
    cdef Py_ssize_t n = rescaled.shape[0]
    cdef list keep = []
    same("before", n, before.shape[0]); same("after", n, after.shape[0])
    cdef RulesColumns c_up, c_down
    cdef EventColumns c_added, c_removed
    if n:
        c_up = rules_of(up, n, keep)
        c_down = rules_of(down, n, keep)
        c_added = events_of(added, n, keep)
        c_removed = events_of(removed, n, keep)
        with nogil:
            c_store_events(&rescaled[0], &before[0], &after[0], n, c_up, c_down, c_added, c_removed, now)
