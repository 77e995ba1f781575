# Part of _engine. Removal of nodes, the effect of losing nodes, and how many more pods of a class fit.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_unique, unique_ptr
from libcpp.vector cimport vector

from kscale._native._columns cimport in_range, indices, starts


cdef extern from "kscale/engine/losses.hpp" namespace "kscale::engine" nogil:
    cdef struct c_LossInput "kscale::engine::LossInput":
        const int32_t* start
        const int32_t* nodes
        int32_t n_parts
        const uint8_t* stays
    cdef struct c_LossOutput "kscale::engine::LossOutput":
        int32_t* moving
        int32_t* homeless
        int32_t* first
        int32_t n_first
    cdef cppclass c_Losses "kscale::engine::Losses":
        c_Losses(c_Engine&, int32_t, const int32_t*, const int64_t*, const int32_t*) except +
        void run(const c_LossInput&, int32_t, int32_t, c_LossOutput&, Interrupted, void*) except +
    int64_t c_more_of "kscale::engine::more_of"(c_Engine&, int32_t, int64_t)


cdef extern from "kscale/engine/removal.hpp" namespace "kscale::engine" nogil:
    const int8_t kRemovable
    const int8_t kBlocked
    const int8_t kNoPlace
    const int8_t kNotThere
    const int8_t kNotLooked
    cdef struct c_Budgets "kscale::engine::Budgets":
        const int32_t* set_of
        const int32_t* start
        const int32_t* ids
        int64_t* allowed
    cdef struct c_RemovalInput "kscale::engine::RemovalInput":
        const int32_t* candidates
        int32_t n_candidates
        uint8_t* destinations
        const uint8_t* codes
        const uint8_t* atomic
        int64_t limit
        cbool persist
        cbool charge
        cbool restart
    cdef cppclass c_RemovalOutput "kscale::engine::RemovalOutput":
        c_RemovalOutput() except +
        int8_t* fate
        uint8_t* risky
        int32_t* pod
        int64_t* start
        vector[int32_t] pods
        vector[int32_t] to
        cbool interrupted
    cdef cppclass c_Removal "kscale::engine::Removal":
        c_Removal(c_Engine&, int32_t, const int32_t*, const int32_t*, const int64_t*, const int32_t*) except +
        c_Removal(const c_Removal&, c_Engine&) except +
        void set_hints(const int32_t*)
        void put(int32_t, int32_t) except +
        void run(const c_RemovalInput&, const c_Budgets&, c_RemovalOutput&, Interrupted, void*) except +
        int32_t pods()
        const vector[int32_t]& on(int32_t)
        int32_t hint(int32_t)
        cbool hinted(int32_t)
    cbool c_judge_alone "kscale::engine::judge_alone"(
        c_Engine&, const c_Removal&, const c_RemovalInput&, const c_Budgets&, c_RemovalOutput&, int32_t,
        int32_t*, Interrupted, void*) except +


REMOVABLE, BLOCKED, NO_PLACE, NOT_THERE, NOT_LOOKED = kRemovable, kBlocked, kNoPlace, kNotThere, kNotLooked


cdef class Removals:
    """Pods on nodes while nodes are removed one after the other. Single owner, like the engine that it changes.

    runs_as: int32[pods], class of each pod where it is; moves_as: the class with which it is placed elsewhere;
    priority: int64[pods]; node: int32[pods], -1 = not on a node yet. The engine has all other pods on their nodes, in
    this order.
    """
    cdef readonly Engine engine
    cdef unique_ptr[c_Removal] owner
    cdef c_Removal* r
    cdef int32_t epoch
    cdef int32_t n_nodes
    cdef int32_t n_classes

    def __cinit__(self, Engine engine not None, const int32_t[::1] runs_as not None,
                  const int32_t[::1] moves_as not None, const int64_t[::1] priority not None,
                  const int32_t[::1] node not None):
        cdef Py_ssize_t n = runs_as.shape[0]
        if moves_as.shape[0] != n or priority.shape[0] != n or node.shape[0] != n:
            raise NativeError("removals: shapes differ")
        if engine.e.depth():
            raise NativeError("removals: inside a fork")
        indices(runs_as, 0, engine.e.classes(), "runs_as")
        indices(moves_as, 0, engine.e.classes(), "moves_as")
        indices(node, -1, engine.e.nodes(), "node")
        self.engine = engine
        self.epoch = engine.epoch
        self.n_nodes = engine.e.nodes()
        self.n_classes = engine.e.classes()
        self.owner = make_unique[c_Removal](
            engine.e[0], <int32_t>n, &runs_as[0] if n else NULL, &moves_as[0] if n else NULL,
            &priority[0] if n else NULL, &node[0] if n else NULL)
        self.r = self.owner.get()

    def copy(self, Engine engine not None):
        """Return the same pods on the same nodes over a copy of the engine."""
        self._same_engine()
        if engine.epoch != self.epoch or engine.e.nodes() != self.n_nodes or engine.e.classes() != self.n_classes:
            raise NativeError("removals: this is no copy of their engine")
        nobody = np.zeros(0, dtype=np.int32)
        cdef Removals made = Removals(engine, nobody, nobody, np.zeros(0, dtype=np.int64), nobody)
        made.owner = make_unique[c_Removal](self.r[0], engine.e[0])
        made.r = made.owner.get()
        return made

    cdef _same_engine(self):
        cdef c_Engine* e = self.engine.e
        if self.engine.epoch != self.epoch or e.nodes() != self.n_nodes or e.classes() != self.n_classes:
            raise NativeError("removals: the engine has other classes or nodes by now")

    def set_hints(self, const int32_t[::1] hint not None):
        """Set where pods went last time: int32[pods], -1 = no hint. None of them counts as new."""
        if hint.shape[0] != self.r.pods():
            raise NativeError("set_hints: one hint a pod")
        indices(hint, -1, self.engine.e.nodes(), "hint")
        if hint.shape[0]:
            self.r.set_hints(&hint[0])

    def put(self, pod, node):
        """Record that the engine has placed a pod that was on no node."""
        self._same_engine()
        self.r.put(in_range(pod, 0, self.r.pods(), "pod"), self.engine.node(node))

    def on(self, node):
        """Return the current pods of a node, in node order: int32[n]."""
        self._same_engine()
        cdef const vector[int32_t]* found = &self.r.on(in_range(node, 0, self.engine.e.nodes(), "node"))
        return _array(found[0])

    def new_hints(self):
        """Return (pods int32[n], nodes int32[n]): where pods were placed since :meth:`set_hints`."""
        cdef vector[int32_t] pods, nodes
        cdef int32_t i
        for i in range(self.r.pods()):
            if self.r.hinted(i):
                pods.push_back(i)
                nodes.push_back(self.r.hint(i))
        return _array(pods), _array(nodes)

    def run(self, const int32_t[::1] candidates not None, uint8_t[::1] destinations not None,
            const uint8_t[::1] codes not None, const int32_t[::1] set_of not None, const int32_t[::1] set_start not None,
            const int32_t[::1] set_ids not None, int64_t[::1] allowed not None, *, const uint8_t[::1] atomic=None,
            limit=None, bint persist=True, bint charge=True):
        """Simulate the removal of candidates (int32[n], -1 = no such node) one after the other; successful removals
        stay if ``persist``.

        destinations: uint8[nodes], changed in place; codes: uint8[pods], see drain_codes; the budgets of pod p are
        ``set_ids[set_start[s]:set_start[s + 1]]`` with s = set_of[p]; allowed: int64[budgets], changed if ``charge``;
        atomic: uint8[n], candidates that do not count against ``limit`` (stop when so many are removable).

        Returns (fate int8[n], risky uint8[n], pod int32[n] that blocks or finds no place, start int64[n + 1], pods,
        to): ``pods[start[c]:start[c + 1]]`` are those of removable candidate c, ``to`` are their new nodes, -1 = not
        moved.
        """
        return self._judge(candidates, destinations, codes, set_of, set_start, set_ids, allowed, atomic,
                           limit, persist, charge, 0)

    def alone(self, const int32_t[::1] candidates not None, uint8_t[::1] destinations not None,
              const uint8_t[::1] codes not None, const int32_t[::1] set_of not None,
              const int32_t[::1] set_start not None, const int32_t[::1] set_ids not None,
              int64_t[::1] allowed not None, *, int32_t threads=1):
        """Simulate the removal of every candidate alone; nothing changes. Parameters and result as of :meth:`run`."""
        return self._judge(candidates, destinations, codes, set_of, set_start, set_ids, allowed, None, None, False,
                           False, max(threads, 1))

    cdef _judge(self, const int32_t[::1] candidates, uint8_t[::1] destinations, const uint8_t[::1] codes,
                const int32_t[::1] set_of, const int32_t[::1] set_start, const int32_t[::1] set_ids,
                int64_t[::1] allowed, const uint8_t[::1] atomic, object limit, bint persist, bint charge,
                int32_t threads):
        cdef Py_ssize_t n = candidates.shape[0]
        cdef c_RemovalInput given
        cdef c_RemovalOutput out
        cdef c_Budgets budgets
        cdef Engine engine = self.engine
        cdef int32_t failed = -1
        cdef cbool enough = True
        if engine.e.depth():
            raise NativeError("removals: the engine is forked")
        self._same_engine()
        if destinations.shape[0] != engine.e.nodes() or codes.shape[0] != self.r.pods() or set_of.shape[0] != codes.shape[0]:
            raise NativeError("removals: shapes differ")
        if atomic is not None and atomic.shape[0] != n:
            raise NativeError("removals: atomic has one entry a candidate")
        indices(candidates, -1, engine.e.nodes(), "candidates")
        starts(set_start, set_ids.shape[0], "set_start")
        indices(set_of, 0, <int32_t>(set_start.shape[0] - 1), "set_of")
        indices(set_ids, 0, <int32_t>allowed.shape[0], "set_ids")
        fate = np.empty(n, dtype=np.int8)
        risky = np.empty(n, dtype=np.uint8)
        pod = np.empty(n, dtype=np.int32)
        start = np.empty(n + 1, dtype=np.int64)
        cdef int8_t[::1] f = fate
        cdef uint8_t[::1] r = risky
        cdef int32_t[::1] p = pod
        cdef int64_t[::1] s = start
        given.candidates = &candidates[0] if n else NULL
        given.n_candidates = <int32_t>n
        given.destinations = &destinations[0] if destinations.shape[0] else NULL
        given.codes = &codes[0] if codes.shape[0] else NULL
        given.atomic = &atomic[0] if atomic is not None and n else NULL
        given.limit = (1 << 62) if limit is None else limit
        given.persist = persist
        given.charge = charge
        given.restart = False
        budgets.set_of = &set_of[0] if set_of.shape[0] else NULL
        budgets.start = &set_start[0]
        budgets.ids = &set_ids[0] if set_ids.shape[0] else NULL
        budgets.allowed = &allowed[0] if allowed.shape[0] else NULL
        out.fate = &f[0] if n else NULL
        out.risky = &r[0] if n else NULL
        out.pod = &p[0] if n else NULL
        out.start = &s[0]
        out.interrupted = False
        problems = []
        with nogil:
            if threads:
                enough = c_judge_alone(engine.e[0], self.r[0], given, budgets, out, threads, &failed, interrupted,
                                       <void*>problems)
            else:
                self.r.run(given, budgets, out, interrupted, <void*>problems)
        if problems:
            raise problems[0]
        if not enough:
            raise MemoryError("removals: copies of the engine")
        engine.callbacks_worked()
        if failed >= 0:
            raise NativeError(f"plug-in {engine.users[failed].name!r} failed")
        return fate, risky, pod, start, _array(out.pods), _array(out.to)


cdef _array(const vector[int32_t]& values):
    made = np.empty(values.size(), dtype=np.int32)
    cdef int32_t[::1] view = made
    cdef size_t i
    for i in range(values.size()):
        view[i] = values[i]
    return made


def losses(Engine engine not None, const int32_t[::1] pod_class not None, const int64_t[::1] priority not None,
           const int32_t[::1] node not None, const uint8_t[::1] stays not None, const int32_t[::1] start not None,
           const int32_t[::1] nodes not None, *, int32_t n_first=3):
    """Return the effect of losing nodes together, for each loss separately; the engine's state is restored.

    pod_class, node: int32[pods], priority: int64[pods]: the engine's pods, in order of appearance; stays: uint8[pods],
    1 = is lost with its node. Loss i consists of ``nodes[start[i]:start[i + 1]]``. Returns (number of pods that need
    another node int32[losses], number of those that find none int32[losses], the first of the latter int32[losses,
    n_first], -1 = none).
    """
    cdef Py_ssize_t n = pod_class.shape[0]
    cdef Py_ssize_t parts = start.shape[0] - 1
    cdef c_LossInput given
    cdef c_LossOutput out
    cdef unique_ptr[c_Losses] work
    if priority.shape[0] != n or node.shape[0] != n or stays.shape[0] != n or n_first < 0:
        raise NativeError("losses: shapes differ")
    if engine.e.depth():
        raise NativeError("losses: inside a fork")
    indices(pod_class, 0, engine.e.classes(), "pod_class")
    indices(node, -1, engine.e.nodes(), "node")
    indices(nodes, 0, engine.e.nodes(), "nodes")
    starts(start, nodes.shape[0], "start")
    cdef Py_ssize_t i
    seen = np.full(engine.e.nodes(), -1, dtype=np.int64)
    cdef int64_t[::1] last = seen
    cdef Py_ssize_t part = 0
    for i in range(nodes.shape[0]):
        while i >= start[part + 1]:
            part += 1
        if last[nodes[i]] == part or not engine.e.alive(nodes[i]):
            raise NativeError(f"losses: node {nodes[i]} twice in one loss, or gone already")
        last[nodes[i]] = part
    moving = np.empty(parts, dtype=np.int32)
    homeless = np.empty(parts, dtype=np.int32)
    first = np.empty((parts, n_first), dtype=np.int32)
    cdef int32_t[::1] m = moving
    cdef int32_t[::1] h = homeless
    cdef int32_t[:, ::1] w = first
    given.start = &start[0]
    given.nodes = &nodes[0] if nodes.shape[0] else NULL
    given.n_parts = <int32_t>parts
    given.stays = &stays[0] if n else NULL
    out.moving = &m[0] if parts else NULL
    out.homeless = &h[0] if parts else NULL
    out.first = &w[0, 0] if parts and n_first else NULL
    out.n_first = n_first
    problems = []
    with nogil:
        work = make_unique[c_Losses](engine.e[0], <int32_t>n, &pod_class[0] if n else NULL, &priority[0] if n else NULL,
                                     &node[0] if n else NULL)
        work.get().run(given, 0, <int32_t>parts, out, interrupted, <void*>problems)
    if problems:
        raise problems[0]
    engine.callbacks_worked()
    return moving, homeless, first


def more_of(Engine engine not None, pod, most):
    """Return how many more pods of a class fit on nodes that are not cordoned, at most ``most``. The verdict of the
    class depends on each node alone.
    """
    cdef int32_t p = in_range(pod, 0, engine.e.classes(), "pod")
    cdef int64_t limit = most
    cdef int64_t found
    if not engine.e.local(p):
        raise NativeError("more_of: the class looks at other nodes, too")
    with nogil:
        found = c_more_of(engine.e[0], p, limit)
    return found
