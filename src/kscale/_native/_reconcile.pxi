# Part of _hpa. Reconciles over columns (kscale/hpa/behavior.hpp, kscale/hpa/decide.hpp). Bounds are checked here.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kscale._native._columns cimport same

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


cdef extern from "kscale/hpa/decide.hpp" namespace "kscale::hpa" nogil:
    cdef struct TargetColumns:
        const uint8_t* scale_error
        const int32_t* current
        const int32_t* minimum
        const int32_t* maximum
        const uint8_t* object_metric
        const uint8_t* behavior
        const uint8_t* selector_error
        const uint8_t* refused
        const uint8_t* fresh
        const int64_t* metrics_begin
        const int64_t* metrics_end

    cdef struct ProposalColumns:
        const int32_t* replicas
        const uint8_t* error

    cdef struct Settings:
        int64_t now
        int64_t downscale_window
        bint scale_to_zero
        bint legacy

    cdef struct DecideInput:
        TargetColumns targets
        ProposalColumns metrics
        RulesColumns up
        RulesColumns down
        Settings settings

    cdef struct Histories:
        RecommendationColumns past
        EventColumns added
        EventColumns removed

    cdef struct ConditionColumns:
        uint8_t* status
        uint8_t* reason
        int64_t* time

    cdef struct DecisionColumns:
        uint8_t* branch
        int32_t* desired
        int32_t* proposal
        int32_t* stabilized
        int32_t* best
        int32_t* invalid
        int32_t* first_invalid
        uint8_t* rescaled
        uint8_t* reason
        uint8_t* events
        uint8_t* error
        uint8_t* held

    cdef enum class Branch(uint8_t):
        pass

    Branch branch_of(const TargetColumns&, Py_ssize_t, bint, bint) noexcept
    bint valid_targets(const TargetColumns&, Py_ssize_t, int64_t) noexcept
    void decide_rows(const DecideInput&, Py_ssize_t, const Histories&, const ConditionColumns&, Py_ssize_t,
                     const DecisionColumns&) except +


cdef object field(object columns, str name, list keep):
    """Return an attribute of ``columns`` that stays alive as long as ``keep``: pointers into it outlive this call."""
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
    same("select", n, select.shape[0]); same("window", n, window.shape[0]); same("begin", n, begin.shape[0])
    same("end", n, end.shape[0])
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
        raise NativeError("a history overlaps another one, points outside its entries or has no room for two more")
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
    int64_t downscale_window, int64_t now, Py_ssize_t threads=1,
):
    """Return stabilized size, desired size, what stabilized it, the limit, and whether the limit changed the size.
    ``past`` is changed in place.

    Rules: ``select`` uint8[n], ``window`` int32[n] (seconds), ``begin``/``end`` int64[n] into the policies' ``type``
    uint8, ``value`` int32 and ``period`` int32 (seconds). Histories: ``begin``/``capacity``/``size`` int64[n] into
    ``values`` int32 and ``times`` int64 (of events also ``outdated`` uint8). Raises ``NativeError`` when columns differ
    in length, point outside, or a history has no room for two more entries.
    """
    cdef Py_ssize_t n = active.shape[0]
    cdef list keep = []
    same("behavior", n, behavior.shape[0]); same("current", n, current.shape[0]); same("proposal", n, proposal.shape[0])
    same("minimum", n, minimum.shape[0]); same("maximum", n, maximum.shape[0])
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
            normalize_rows(sizes, n, c_up, c_down, c_past, c_added, c_removed, downscale_window, now, threads, out)
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


cdef TargetColumns targets_of(object targets, list keep, Py_ssize_t* n) except *:
    cdef const uint8_t[::1] scale_error = field(targets, "scale_error", keep)
    n[0] = scale_error.shape[0]
    cdef const int32_t[::1] current = field(targets, "current", keep), minimum = field(targets, "minimum", keep)
    cdef const int32_t[::1] maximum = field(targets, "maximum", keep)
    cdef const uint8_t[::1] object_metric = field(targets, "object_metric", keep)
    cdef const uint8_t[::1] behavior = field(targets, "behavior", keep)
    cdef const uint8_t[::1] selector_error = field(targets, "selector_error", keep)
    cdef const uint8_t[::1] refused = field(targets, "refused", keep)
    cdef const uint8_t[::1] fresh = field(targets, "fresh", keep)
    cdef const int64_t[::1] begin = field(targets, "metrics_begin", keep), end = field(targets, "metrics_end", keep)
    same("current", n[0], current.shape[0]); same("minimum", n[0], minimum.shape[0])
    same("maximum", n[0], maximum.shape[0]); same("object_metric", n[0], object_metric.shape[0])
    same("behavior", n[0], behavior.shape[0]); same("selector_error", n[0], selector_error.shape[0])
    same("refused", n[0], refused.shape[0]); same("fresh", n[0], fresh.shape[0])
    same("metrics_begin", n[0], begin.shape[0]); same("metrics_end", n[0], end.shape[0])
    if not n[0]:
        return TargetColumns(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
    return TargetColumns(&scale_error[0], &current[0], &minimum[0], &maximum[0], &object_metric[0], &behavior[0],
                         &selector_error[0], &refused[0], &fresh[0], &begin[0], &end[0])


def branches(targets, const uint8_t[:, ::1] status, bint scale_to_zero, bint legacy=False):
    """Return the branch (uint8) that each target takes before any metric is read; the status of conditions is [n,
    4].
    """
    cdef list keep = []
    cdef Py_ssize_t n, i
    cdef TargetColumns columns = targets_of(targets, keep, &n)
    same("status", n, status.shape[0]); same("status", 4, status.shape[1])
    result = np.empty(n, np.uint8)
    cdef uint8_t[::1] out = result
    for i in range(n):
        out[i] = 0 if columns.scale_error[i] else (
            <uint8_t> branch_of(columns, i, scale_to_zero and not legacy and status[i, 3] == 1, legacy))
    return result


def decide(targets, const int32_t[::1] replicas, const uint8_t[::1] metric_error, up, down, past, added, removed,
           uint8_t[:, ::1] status, uint8_t[:, ::1] reason, int64_t[:, ::1] time,
           int64_t now, int64_t downscale_window, bint scale_to_zero, bint legacy=False, Py_ssize_t threads=1):
    """Return branch, desired, proposal, stabilized, best, invalid, first_invalid, rescaled, reason, events, error and
    held of every row.

    Targets: ``scale_error``, ``object_metric``, ``behavior``, ``selector_error``, ``refused``, ``fresh`` uint8[n];
    ``current``, ``minimum``, ``maximum`` int32[n]; ``metrics_begin``/``metrics_end`` int64[n] into ``replicas`` and
    ``metric_error``. ``past``, ``added``, ``removed`` and the conditions ([n, 4]) are changed in place. Raises
    ``NativeError`` when columns differ in length or point outside.
    """
    cdef list keep = []
    cdef Py_ssize_t n
    cdef TargetColumns columns = targets_of(targets, keep, &n)
    same("metric_error", replicas.shape[0], metric_error.shape[0])
    same("status", n, status.shape[0]); same("reason", n, reason.shape[0]); same("time", n, time.shape[0])
    same("status", 4, status.shape[1]); same("reason", 4, reason.shape[1]); same("time", 4, time.shape[1])
    cdef list out = [
        np.empty(n, dtype)
        for dtype in (np.uint8, np.int32, np.int32, np.int32, np.int32, np.int32, np.int32, np.uint8, np.uint8,
                      np.uint8, np.uint8, np.uint8)
    ]
    if not n:
        return tuple(out)
    cdef uint8_t[::1] o_branch = out[0], o_rescaled = out[7], o_reason = out[8], o_events = out[9], o_error = out[10]
    cdef uint8_t[::1] o_held = out[11]
    cdef int32_t[::1] o_desired = out[1], o_proposal = out[2], o_stabilized = out[3], o_best = out[4]
    cdef int32_t[::1] o_invalid = out[5], o_first = out[6]
    cdef DecideInput given
    given.targets = columns
    given.metrics = ProposalColumns(NULL, NULL)
    if replicas.shape[0]:
        given.metrics = ProposalColumns(&replicas[0], &metric_error[0])
    given.up = rules_of(up, n, keep)
    given.down = rules_of(down, n, keep)
    given.settings = Settings(now, downscale_window, scale_to_zero, legacy)
    cdef Histories histories = Histories(recommendations_of(past, n, keep), events_of(added, n, keep),
                                         events_of(removed, n, keep))
    cdef ConditionColumns conditions = ConditionColumns(&status[0, 0], &reason[0, 0], &time[0, 0])
    cdef DecisionColumns decisions = DecisionColumns(
        &o_branch[0], &o_desired[0], &o_proposal[0], &o_stabilized[0], &o_best[0], &o_invalid[0], &o_first[0],
        &o_rescaled[0], &o_reason[0], &o_events[0], &o_error[0], &o_held[0])
    if not valid_targets(given.targets, n, replicas.shape[0]):
        raise NativeError("a target holds an unknown code or points outside the metrics")
    with nogil:
        decide_rows(given, n, histories, conditions, threads, decisions)
    return tuple(out)
