# Part of _engine. Score plug-ins: their inputs, and placing pods on the nodes with the highest scores. A Scorer has a
# single owner. It belongs to an engine that has the same nodes and in which the same pods are placed.

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_unique, unique_ptr
from libcpp.pair cimport pair
from libcpp.utility cimport move
from libcpp.vector cimport vector

from kscale._native._columns cimport in_range, indices, starts

cdef extern from "kscale/engine/scorer.hpp" namespace "kscale::engine" nogil:
    ctypedef int32_t (*UserScore)(const int64_t*, const int64_t*, int64_t, int64_t, double*) noexcept
    enum ScorePlugin "kscale::engine::ScorePlugin":
        pass
    enum class FitStrategy(int32_t):
        kLeastAllocated
    const int32_t kScorePlugins
    const char* kScorePluginNames[]
    cdef cppclass ScoreColumn:
        ScoreColumn() except +
        cbool scalar
        vector[int64_t] allocatable
        vector[int64_t] used
        vector[int64_t] non_zero
    cdef cppclass ScoreRow:
        ScoreRow() except +
        vector[int32_t] domain
        vector[uint8_t] counts
        vector[int64_t] count
    cdef struct SoftConstraint:
        int32_t row
        int64_t max_skew
        uint8_t hostname
    cdef struct WeightedRow:
        int32_t row
        int64_t weight
    cdef cppclass ScoreClass:
        ScoreClass() except +
        int32_t taints
        int32_t affinity
        int32_t images
        int32_t volumes
        vector[int64_t] non_zero
        vector[int64_t] requested
        vector[int64_t] takes_non_zero
        vector[int64_t] takes
        cbool broken
        cbool whole
        vector[SoftConstraint] spread
        vector[WeightedRow] terms
        vector[WeightedRow] touch
    cdef cppclass c_Scorer "kscale::engine::Scorer":
        c_Scorer(int32_t) except +
        int32_t add_column(ScoreColumn) except +
        int32_t add_row(ScoreRow) except +
        int32_t add_static(const int64_t*) except +
        int32_t add_class(ScoreClass) except +
        void set_weight(ScorePlugin, int64_t)
        void set_fit(FitStrategy, vector[WeightedRow], vector[pair[int64_t, int64_t]]) except +
        void set_balanced(vector[int32_t]) except +
        void add_user(UserScore, vector[int32_t], int64_t) except +
        int32_t nodes()
        int32_t columns()
        int32_t rows()
        int32_t statics()
        int32_t classes()
        int32_t plugins()
        int32_t failed()
        cbool score(int32_t, const int32_t*, int32_t, int64_t*, int64_t*) except +

cdef extern from "kscale/engine/scores.hpp" namespace "kscale::engine" nogil:
    int64_t c_broken_line "kscale::engine::broken_line"(const vector[pair[int64_t, int64_t]]&, int64_t)

cdef extern from "kscale/engine/select.hpp" namespace "kscale::engine" nogil:
    cdef struct SelectInput:
        const int32_t* pod_class
        const int32_t* score_class
        const int32_t* node_set
        int32_t n_pods
        const int32_t* set_start
        const int32_t* set_nodes
        const uint8_t* acceptable
        int32_t percentage
        int64_t start
    cdef struct SelectOutput:
        int32_t* node
        int32_t* order
        int32_t placed
        int64_t start
        int32_t status
    int32_t c_enough_nodes "kscale::engine::enough_nodes"(int32_t, int32_t)
    void c_select_nodes "kscale::engine::select_nodes"(
        c_Engine&, c_Scorer&, const SelectInput&, SelectOutput&, Interrupted, void*) except +

SCORE_PLUGINS = tuple(kScorePluginNames[i].decode() for i in range(kScorePlugins))
FIT_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")


def enough_nodes(nodes, percentage):
    """Return how many feasible nodes are enough, of a number of nodes; percentage 0: derived from their number."""
    return c_enough_nodes(in_range(nodes, 0, 1 << 28, "nodes"), in_range(percentage, 0, 101, "percentage"))


cdef vector[pair[int64_t, int64_t]] _rising(object shape) except *:
    cdef vector[pair[int64_t, int64_t]] points
    cdef int64_t last = -1
    for at, score in shape:
        if at <= last:
            raise NativeError("a shape rises")
        last = at
        points.push_back(pair[int64_t, int64_t](at, score))
    return points


def broken_line(shape, at):
    """Return the score of a shape, (utilization in percent, score) in ascending order: linear between its points."""
    return c_broken_line(_rising(shape), at)


cdef vector[int64_t] _amounts(object values, Py_ssize_t n, str what) except *:
    cdef vector[int64_t] found
    for value in values:
        found.push_back(value)
    if <Py_ssize_t>found.size() != n:
        raise NativeError(f"{what}: {found.size()} entries, expected {n}")
    return found


cdef vector[WeightedRow] _weighted(object pairs, int64_t rows, str what) except *:
    cdef vector[WeightedRow] found
    cdef WeightedRow one
    for row, weight in pairs:
        one.row = in_range(row, 0, rows, what)
        one.weight = weight
        found.push_back(one)
    return found


cdef class Scorer:
    """Inputs of the Score plug-ins for `nodes` nodes, by number."""
    cdef unique_ptr[c_Scorer] holder
    cdef c_Scorer* s
    cdef list users

    def __cinit__(self, nodes):
        self.holder = make_unique[c_Scorer](in_range(nodes, 0, 1 << 28, "nodes"))
        self.s = self.holder.get()
        self.users = []

    def add_column(self, const int64_t[::1] allocatable not None, const int64_t[::1] used not None,
                   const int64_t[::1] non_zero not None, *, bint scalar=False):
        """Add a resource: int64[nodes] each; `non_zero`: used amounts, with default requests of containers without
        one.
        """
        cdef ScoreColumn column
        cdef int32_t n = self.s.nodes()
        if self.s.classes():
            raise NativeError("add_column: before the classes")
        if allocatable.shape[0] != n or used.shape[0] != n or non_zero.shape[0] != n:
            raise NativeError("add_column: one entry a node")
        column.scalar = scalar
        if n:
            column.allocatable.assign(&allocatable[0], &allocatable[0] + n)
            column.used.assign(&used[0], &used[0] + n)
            column.non_zero.assign(&non_zero[0], &non_zero[0] + n)
        return self.s.add_column(move(column))

    def add_row(self, const int32_t[::1] domain not None, const int64_t[::1] count not None,
                const uint8_t[::1] counts=None):
        """Add pods per domain: domain int32[nodes] (-1 = none), count int64[domains]; counts: uint8[nodes], whose
        pods count.
        """
        cdef ScoreRow row
        cdef int32_t n = self.s.nodes()
        if domain.shape[0] != n or (counts is not None and counts.shape[0] != n):
            raise NativeError("add_row: one entry a node")
        indices(domain, -1, count.shape[0], "domain")
        if n:
            row.domain.assign(&domain[0], &domain[0] + n)
            if counts is not None:
                row.counts.assign(&counts[0], &counts[0] + n)
        if count.shape[0]:
            row.count.assign(&count[0], &count[0] + count.shape[0])
        return self.s.add_row(move(row))

    def add_static(self, const int64_t[::1] scores not None):
        """Add the raw scores of a plug-in, not below 0: int64[nodes]."""
        if scores.shape[0] != self.s.nodes():
            raise NativeError("add_static: one entry a node")
        return self.s.add_static(&scores[0] if scores.shape[0] else NULL)

    def add_class(self, *, non_zero, requested, takes_non_zero, takes, taints=-1, affinity=-1, images=-1, volumes=-1,
                  bint broken=False, bint whole=False, spread=(), terms=(), touch=()):
        """Add a class of pods with equal scores. `broken`: nodes cannot be compared for it; amounts: one entry per
        column; `taints`, `affinity`, `images`, `volumes`: static rows, -1 = none; `spread`: (row, max_skew, whether
        its key is the hostname); `whole`: nodes must have all keys; `terms`, `touch`: (row, weight or number).
        """
        cdef ScoreClass pod
        cdef SoftConstraint soft
        cdef int32_t n = self.s.columns(), rows = self.s.rows(), statics = self.s.statics()
        pod.non_zero = _amounts(non_zero, n, "non_zero")
        pod.requested = _amounts(requested, n, "requested")
        pod.takes_non_zero = _amounts(takes_non_zero, n, "takes_non_zero")
        pod.takes = _amounts(takes, n, "takes")
        pod.taints = in_range(taints, -1, statics, "taints")
        pod.affinity = in_range(affinity, -1, statics, "affinity")
        pod.images = in_range(images, -1, statics, "images")
        pod.volumes = in_range(volumes, -1, statics, "volumes")
        pod.broken = broken
        pod.whole = whole
        for row, max_skew, hostname in spread:
            soft.row = in_range(row, 0, rows, "spread")
            soft.max_skew = max_skew
            soft.hostname = bool(hostname)
            pod.spread.push_back(soft)
        pod.terms = _weighted(terms, rows, "terms")
        pod.touch = _weighted(touch, rows, "touch")
        return self.s.add_class(move(pod))

    def set_weights(self, weights):
        """Set the weights of the plug-ins, in the order of SCORE_PLUGINS; 0 = not used."""
        if len(weights) != kScorePlugins:
            raise NativeError(f"set_weights: {len(weights)} weights for {kScorePlugins} plug-ins")
        for i, weight in enumerate(weights):
            self.s.set_weight(<ScorePlugin><int32_t>i, in_range(weight, 0, 1 << 31, "weights"))

    def set_fit(self, strategy, columns, shape=()):
        """Set NodeResourcesFit: number of the strategy, (column, weight), and (utilization, score) in ascending
        order.
        """
        self.s.set_fit(<FitStrategy>in_range(strategy, 0, 3, "strategy"),
                       _weighted(columns, self.s.columns(), "columns"), _rising(shape))

    def set_balanced(self, columns):
        """Set the columns of NodeResourcesBalancedAllocation."""
        cdef vector[int32_t] found
        for column in columns:
            found.push_back(in_range(column, 0, self.s.columns(), "columns"))
        self.s.set_balanced(found)

    def add_user(self, plugin, columns, weight):
        """Add a compiled scorer (kscale.plugin.ScorePlugin) over some columns."""
        cdef vector[int32_t] found
        cdef uintptr_t address = plugin.address
        if not address:
            raise NativeError(f"plug-in {plugin.name!r} has no code")
        for column in columns:
            found.push_back(in_range(column, 0, self.s.columns(), "columns"))
        self.users.append(plugin)
        self.s.add_user(<UserScore>address, found, in_range(weight, 0, 1 << 31, "weight"))

    def score(self, pod, const int32_t[::1] nodes not None):
        """Return (total scores int64[n], scores before weights int64[plugins, n]) of feasible nodes."""
        cdef int32_t of = in_range(pod, 0, self.s.classes(), "pod")
        cdef int32_t n = <int32_t>nodes.shape[0]
        cdef cbool worked = True
        indices(nodes, 0, self.s.nodes(), "nodes")
        total = np.zeros(n, dtype=np.int64)
        parts = np.zeros((self.s.plugins(), n), dtype=np.int64)
        cdef int64_t[::1] t = total
        cdef int64_t[:, ::1] p = parts
        if n:
            with nogil:
                worked = self.s.score(of, &nodes[0], n, &t[0], &p[0, 0])
            self.check(worked)
        return total, parts

    cdef int check(self, cbool worked) except -1:
        if not worked:
            raise NativeError(f"plug-in {self.users[self.s.failed()].name!r} failed, or gave no score from 0 to 100")
        return 0


def select(Engine engine not None, Scorer scorer not None, const int32_t[::1] pod_class not None,
           const int32_t[::1] score_class not None, const int32_t[::1] node_set not None,
           const int32_t[::1] set_start not None, const int32_t[::1] set_nodes not None, *,
           const uint8_t[::1] acceptable=None, percentage=0, start=0):
    """Place pods one after the other on the nodes with the highest scores; they stay placed, in engine and scorer.

    node_set: int32[n], set of nodes that a PreFilter selected, -1 = all; the nodes of set i are
    set_nodes[set_start[i]:set_start[i + 1]], ascending. Returns (node int32[n], order int32[placed], start of the next
    search).
    """
    cdef SelectInput given
    cdef SelectOutput out
    cdef Py_ssize_t n = pod_class.shape[0], i
    if score_class.shape[0] != n or node_set.shape[0] != n:
        raise NativeError("select: shapes differ")
    if scorer.s.nodes() != engine.e.nodes():
        raise NativeError("select: the scorer knows other nodes than the engine")
    if acceptable is not None and acceptable.shape[0] != engine.e.nodes():
        raise NativeError("select: acceptable has one entry a node")
    indices(pod_class, 0, engine.e.classes(), "pod_class")
    indices(score_class, 0, scorer.s.classes(), "score_class")
    starts(set_start, set_nodes.shape[0], "set_start")
    indices(node_set, -1, set_start.shape[0] - 1, "node_set")
    indices(set_nodes, 0, engine.e.nodes(), "set_nodes")
    node = np.empty(n, dtype=np.int32)
    order = np.empty(n, dtype=np.int32)
    cdef int32_t[::1] w = node
    cdef int32_t[::1] o = order
    given.pod_class = &pod_class[0] if n else NULL
    given.score_class = &score_class[0] if n else NULL
    given.node_set = &node_set[0] if n else NULL
    given.n_pods = <int32_t>n
    given.set_start = &set_start[0]
    given.set_nodes = &set_nodes[0] if set_nodes.shape[0] else NULL
    given.acceptable = &acceptable[0] if acceptable is not None and acceptable.shape[0] else NULL
    given.percentage = in_range(percentage, 0, 101, "percentage")
    given.start = in_range(start, 0, 1 << 31, "start")
    out.node = &w[0] if n else NULL
    out.order = &o[0] if n else NULL
    out.placed = out.status = 0
    out.start = given.start
    problems = []
    with nogil:
        c_select_nodes(engine.e[0], scorer.s[0], given, out, interrupted, <void*>problems)
    if problems:
        raise problems[0]
    engine.callbacks_worked()
    scorer.check(out.status != 1)
    return node, order[:out.placed], out.start
