# Part of _engine. Pods on nodes: the binpacking estimator and the hinting simulator, each in one call of the
# packing engine.

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp cimport bool as cbool

from kscale._native._columns cimport indices, starts

cdef extern from "kscale/engine/estimate.hpp" namespace "kscale::engine" nogil:
    const int32_t kFake
    cdef struct EstimateInput:
        const int32_t* pod_class
        int32_t n_pods
        const int32_t* group_start
        int32_t n_groups
        const c_Template* node
        int64_t max_nodes
        cbool fast_last
        int32_t clash
    cdef struct EstimateOutput:
        int32_t* placement
        int32_t* order
        int32_t scheduled
        int32_t nodes_added
        int32_t nodes_with_pods
        int32_t status
        int32_t stopped_at
    void c_estimate "kscale::engine::estimate"(
        c_Engine&, const EstimateInput&, EstimateOutput&, Interrupted, void*) except +


cdef extern from "kscale/engine/simulate.hpp" namespace "kscale::engine" nogil:
    const int32_t kNowhere
    const int32_t kNotTried
    cdef struct SimulateInput:
        const int32_t* pod_class
        const int32_t* hint
        const int32_t* similar
        const int32_t* controller
        int32_t n_pods
        const int32_t* group_start
        int32_t n_groups
        int32_t n_similar
        int32_t n_controllers
        const uint8_t* acceptable
        cbool break_on_failure
        int64_t max_looks
    cdef struct SimulateOutput:
        int32_t* node
        int32_t* order
        int32_t placed
        int32_t overflowing
        int32_t status
    void c_try_schedule "kscale::engine::try_schedule"(
        c_Engine&, const SimulateInput&, SimulateOutput&, Interrupted, void*) except +


FAKE = kFake
NOWHERE = kNowhere
NOT_TRIED = kNotTried


def estimate(Engine engine not None, const int32_t[::1] pod_class not None, const int32_t[::1] group_start not None,
             Template template not None, *, max_nodes=0, bint fast_last=False, clash=-1):
    """Run the binpacking estimator. It forks and reverts the engine, and moves the cursor.

    pod_class: int32[n], group after group; group_start: int32[groups + 1]. Returns (placement int32[n], order
    int32[scheduled], nodes_added, nodes_with_pods, status, stopped_at).
    """
    cdef EstimateInput given
    cdef EstimateOutput out
    cdef Py_ssize_t n = pod_class.shape[0]
    engine.current(template)
    indices(pod_class, 0, engine.e.classes(), "pod_class")
    starts(group_start, n, "group_start")
    placement = np.empty(n, dtype=np.int32)
    order = np.empty(n, dtype=np.int32)
    cdef int32_t[::1] p = placement
    cdef int32_t[::1] o = order
    given.pod_class = &pod_class[0] if n else NULL
    given.n_pods = <int32_t>n
    given.group_start = &group_start[0]
    given.n_groups = <int32_t>(group_start.shape[0] - 1)
    given.node = &template.t
    given.max_nodes = max_nodes
    given.fast_last = fast_last
    given.clash = clash
    out.placement = &p[0] if n else NULL
    out.order = &o[0] if n else NULL
    out.scheduled = out.nodes_added = out.nodes_with_pods = out.status = 0
    out.stopped_at = -1
    problems = []
    with nogil:
        c_estimate(engine.e[0], given, out, interrupted, <void*>problems)
    if problems:
        raise problems[0]
    engine.callbacks_worked()
    return placement, order[:out.scheduled], out.nodes_added, out.nodes_with_pods, out.status, out.stopped_at


def try_schedule(Engine engine not None, const int32_t[::1] pod_class not None, const int32_t[::1] hint not None,
                 const int32_t[::1] similar not None, const int32_t[::1] controller not None,
                 const int32_t[::1] group_start not None, *, const uint8_t[::1] acceptable=None,
                 bint break_on_failure=False, int64_t max_looks=-1):
    """Run the hinting simulator. Placed pods stay, and the cursor moves. After ``max_looks`` checks of pods (in both
    passes; -1: no limit), the other pods are NOT_TRIED.

    Returns (node int32[n]: node, NOWHERE or NOT_TRIED; order int32[placed]; number of overflowing controllers).
    """
    cdef SimulateInput given
    cdef SimulateOutput out
    cdef Py_ssize_t n = pod_class.shape[0]
    if hint.shape[0] != n or similar.shape[0] != n or controller.shape[0] != n:
        raise NativeError("try_schedule: shapes differ")
    if acceptable is not None and acceptable.shape[0] != engine.e.nodes():
        raise NativeError("try_schedule: acceptable has one entry a node")
    indices(pod_class, 0, engine.e.classes(), "pod_class")
    indices(hint, -1, engine.e.nodes(), "hint")
    indices(similar, -1, <int32_t>max(n, 1), "similar")
    indices(controller, -1, <int32_t>max(n, 1), "controller")
    cdef Py_ssize_t i
    for i in range(n):
        if similar[i] >= 0 and controller[i] < 0:
            raise NativeError(f"similar[{i}] without a controller")
    starts(group_start, n, "group_start")
    node = np.empty(n, dtype=np.int32)
    order = np.empty(n, dtype=np.int32)
    cdef int32_t[::1] w = node
    cdef int32_t[::1] o = order
    given.pod_class = &pod_class[0] if n else NULL
    given.hint = &hint[0] if n else NULL
    given.similar = &similar[0] if n else NULL
    given.controller = &controller[0] if n else NULL
    given.n_pods = <int32_t>n
    given.group_start = &group_start[0]
    given.n_groups = <int32_t>(group_start.shape[0] - 1)
    given.n_similar = given.n_controllers = <int32_t>n
    given.acceptable = &acceptable[0] if acceptable is not None and acceptable.shape[0] else NULL
    given.break_on_failure = break_on_failure
    given.max_looks = max_looks
    out.node = &w[0] if n else NULL
    out.order = &o[0] if n else NULL
    out.placed = out.overflowing = out.status = 0
    problems = []
    with nogil:
        c_try_schedule(engine.e[0], given, out, interrupted, <void*>problems)
    if problems:
        raise problems[0]
    engine.callbacks_worked()
    return node, order[:out.placed], out.overflowing
