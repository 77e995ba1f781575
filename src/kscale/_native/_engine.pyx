# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Where NumPy arrays meet the packing engine: every shape, index and size is checked here, and only here.

An Engine has a single owner: it must not be used from two threads at once. Separate engines may run in separate threads.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.memory cimport unique_ptr, make_unique
from libcpp.utility cimport move
from libcpp.vector cimport vector

import numpy as np

from kscale.errors import NativeError


cdef extern from "kscale/engine/estimate.hpp" namespace "kscale::engine" nogil:
    cdef struct c_Port "kscale::engine::Port":
        int32_t key
        int32_t specific
    cdef struct c_RowKey "kscale::engine::RowKey":
        int32_t row
        int32_t key
    cdef struct c_SpreadUse "kscale::engine::SpreadUse":
        int32_t row
        int32_t key
        int64_t max_skew
        int64_t min_domains
        int32_t self
    cdef struct c_Disk "kscale::engine::Disk":
        int32_t id
        uint8_t read_only
    cdef struct c_Volume "kscale::engine::Volume":
        int32_t handle
        int32_t driver
        int32_t plugin
    cdef cppclass c_Extra "kscale::engine::Extra":
        c_Extra() except +
        vector[c_Port] ports
        vector[c_SpreadUse] spread
        vector[int32_t] spread_touch
        vector[c_RowKey] affinity
        int32_t affinity_group
        cbool self_affine
        vector[c_RowKey] own_anti
        vector[c_RowKey] blocked_by
        vector[c_RowKey] touch
        vector[int32_t] rwop
        vector[int32_t] claims
        vector[c_Disk] disks
        vector[c_Volume] volumes
        cbool devices
    enum class c_DeviceCall "kscale::engine::DeviceCall"(int32_t):
        kCheck
        kPlace
        kUnplace
        kAdd
        kFork
        kRevert
        kCommit
    ctypedef int32_t (*c_DeviceLedger "kscale::engine::DeviceLedger")(void*, c_DeviceCall, int32_t, int32_t) noexcept
    ctypedef int32_t (*c_UserPredicate "kscale::engine::UserPredicate")(
        const int64_t*, const int64_t*, int64_t, int64_t, int64_t, int64_t) noexcept
    cdef cppclass c_Row "kscale::engine::Row":
        int32_t key
        vector[int64_t] count
        vector[int32_t] registered
        int32_t domains
        int64_t min
    cdef cppclass c_Template "kscale::engine::Template":
        c_Template() except +
        int32_t number
        int32_t node_class
        uint8_t unschedulable
        int64_t slots
        uint32_t migrated
        vector[int64_t] free
        vector[int32_t] domain
        vector[int32_t] pods
        vector[int32_t] limits
        vector[int32_t] exception_index
        vector[int32_t] exception_class
        int32_t named_key
        vector[int32_t] taken_index
        vector[int32_t] taken_domain
    cdef cppclass c_Engine "kscale::engine::Engine":
        c_Engine(int32_t, int32_t, int32_t, uint16_t) except +
        void append_nodes(int32_t, const int64_t*, const int64_t*, const int32_t*, const uint8_t*) except +
        void set_classes(const int32_t*)
        int32_t add_key(const int32_t*, int32_t) except +
        int32_t add_driver(const int32_t*) except +
        void set_migrated(const uint32_t*)
        void set_statics(int32_t, int32_t, const uint16_t*) except +
        void set_eligibility(int32_t, const uint8_t*) except +
        int32_t add_group() except +
        int32_t add_row(int32_t, int32_t, int32_t, const int64_t*, int32_t) except +
        int32_t add_claim(int64_t) except +
        void use_disk(int32_t, int32_t, cbool) except +
        void use_volume(int32_t, int32_t, int32_t, cbool) except +
        void use_port(int32_t, c_Port) except +
        int32_t add_class(const int64_t*, const int64_t*, int32_t, cbool, cbool, unique_ptr[c_Extra]) except +
        int32_t add_user(c_UserPredicate, vector[int32_t]) except +
        void set_devices(c_DeviceLedger, void*)
        int32_t user_failed()
        void forget_failure()
        void forget_verdicts()
        void reset_classes()
        uint32_t check(int32_t, int32_t)
        uint32_t check_single(int32_t, int32_t)
        uint32_t check_spread(const c_Extra&, int32_t, int32_t*)
        uint32_t check_pods(const c_Extra&, int32_t, int32_t*)
        cbool ports_free(const c_Extra&, int32_t)
        uint32_t check_disks(const c_Extra&, int32_t)
        cbool volumes_fit(const c_Extra&, int32_t, int32_t*)
        int64_t capacity(int32_t, int32_t)
        int32_t any_node(int32_t, const uint8_t*) except +
        void place(int32_t, int32_t, int64_t) except +
        void unplace(int32_t, int32_t) except +
        int32_t add_copy(const c_Template&, int32_t) except +
        void remove_node(int32_t) except +
        void set_ghost_rows(const uint8_t*) except +
        void vacate(int32_t, const int32_t*, int32_t) except +
        void remove_ghost(int32_t) except +
        void fork() except +
        cbool revert() except +
        cbool commit()
        int32_t nodes()
        int32_t alive_nodes()
        cbool alive(int32_t)
        int32_t position(int32_t)
        int32_t resources()
        int32_t classes()
        int32_t keys()
        int32_t rows()
        int32_t drivers()
        int32_t depth()
        int32_t domains(int32_t)
        int64_t free(int32_t, int32_t)
        int64_t slots(int32_t)
        int32_t node_class(int32_t)
        int32_t domain(int32_t, int32_t)
        const c_Row& row(int32_t)
        int64_t total(int32_t)
        int64_t claim_users(int32_t)
        const c_Extra* extra(int32_t)
        cbool local(int32_t)
        uint64_t checksum()
        int64_t cursor
    ctypedef cbool (*c_Interrupted "kscale::engine::Interrupted")(void*) noexcept
    cdef struct c_EstimateInput "kscale::engine::EstimateInput":
        const int32_t* pod_class
        int32_t n_pods
        const int32_t* group_start
        int32_t n_groups
        const c_Template* node
        int64_t max_nodes
        cbool fast_last
        int32_t clash
    cdef struct c_EstimateOutput "kscale::engine::EstimateOutput":
        int32_t* placement
        int32_t* order
        int32_t scheduled
        int32_t nodes_added
        int32_t nodes_with_pods
        int32_t status
        int32_t stopped_at
    void c_estimate "kscale::engine::estimate"(
        c_Engine&, const c_EstimateInput&, c_EstimateOutput&, c_Interrupted, void*) except +


cdef extern from "kscale/engine/simulate.hpp" namespace "kscale::engine" nogil:
    cdef struct c_SimulateInput "kscale::engine::SimulateInput":
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
    cdef struct c_SimulateOutput "kscale::engine::SimulateOutput":
        int32_t* node
        int32_t* order
        int32_t placed
        int32_t overflowing
        int32_t status
    void c_try_schedule "kscale::engine::try_schedule"(
        c_Engine&, const c_SimulateInput&, c_SimulateOutput&, c_Interrupted, void*) except +


cdef extern from "kscale/engine/resources.hpp" namespace "kscale::engine" nogil:
    void c_sweep "kscale::engine::sweep"(
        const int64_t*, const int32_t*, Py_ssize_t, const int64_t*, Py_ssize_t, const int64_t*, const int32_t*,
        Py_ssize_t, int32_t, const uint16_t*, int32_t, uint8_t*, int32_t) except +
    void c_sweep_resources "kscale::engine::sweep_resources"(
        const int64_t*, Py_ssize_t, const int64_t*, Py_ssize_t, const int64_t*, Py_ssize_t, int32_t, uint8_t*,
        int32_t) except +


FITS = 0
FILTERED = 0xFF
PREFILTER_FAILED = 0xFE
FAKE = 1 << 30
NOWHERE = -1
NOT_TRIED = -2


cdef cbool _interrupted(void* context) noexcept nogil:
    with gil:
        try:
            PyErr_CheckSignals()
        except BaseException as error:
            (<list>context).append(error)
            return True
    return False


cdef int32_t _ask_ledger(void* context, c_DeviceCall what, int32_t a, int32_t b) noexcept nogil:
    with gil:
        ledger, problems, broken = <tuple>context
        if problems and what == c_DeviceCall.kCheck:  # the call that is under way fails in any case
            return 0
        try:
            if what == c_DeviceCall.kCheck:
                return 1 if ledger.check(a, b) else 0
            if what == c_DeviceCall.kPlace:
                return 1 if ledger.place(a, b) else 0
            if what == c_DeviceCall.kUnplace:
                ledger.unplace(a, b)
            elif what == c_DeviceCall.kAdd:
                ledger.add(a, b)
            elif what == c_DeviceCall.kFork:
                ledger.fork()
            elif what == c_DeviceCall.kRevert:
                ledger.revert()
            else:
                ledger.commit()
        except BaseException as error:
            problems.append(error)
            if what != c_DeviceCall.kCheck:  # the engine did what the ledger did not, or did by half
                broken.append(error)
    return 0


cdef int32_t _in_range(object value, int32_t low, int32_t high, str what) except? -1:
    cdef int64_t number = value
    if number < low or number >= high:
        raise NativeError(f"{what} is {number}, outside {low}..{high - 1}")
    return <int32_t>number


cdef _check_indices(const int32_t[::1] values, int32_t low, int32_t high, str what):
    cdef Py_ssize_t i
    for i in range(values.shape[0]):
        if values[i] < low or values[i] >= high:
            raise NativeError(f"{what}[{i}] is {values[i]}, outside {low}..{high - 1}")


cdef class Template:
    """A prepared node: what a copy of it adds to an engine.

    free: int64[n_resources], what is left after the pods that come with it; slots: free pod places;
    domain: int32[n_keys], -1 = label absent, -2 = every copy is a domain of its own; pods: classes of the pods on it;
    limits: int32[n_drivers], -1 = no limit; exceptions: {copy number: node class} for names that a selector spells out;
    taken: {copy number: domain of named_key} for names that are a value of that key already; number: the template's for
    the ledger of devices.
    """
    cdef c_Template t
    cdef readonly object owner
    cdef int32_t epoch

    def __init__(self, Engine engine not None, *, node_class, bint unschedulable, slots, free, domain, pods=(),
                 limits=(), migrated=0, exceptions=None, named_key=-1, taken=None, number=0):
        if engine.e.depth():
            raise NativeError("a template is prepared outside forks")
        self.owner = engine
        self.epoch = engine.epoch
        self.t.node_class = _in_range(node_class, 0, engine.n_node_classes, "node_class")
        self.t.unschedulable = unschedulable
        self.t.number = _in_range(number, 0, 1 << 30, "number")
        self.t.slots = slots
        self.t.migrated = migrated
        if len(free) != engine.e.resources() or len(domain) != engine.e.keys() or len(limits) != engine.e.drivers():
            raise NativeError(
                f"a template has {len(free)} resources, {len(domain)} keys and {len(limits)} drivers; the engine has "
                f"{engine.e.resources()}, {engine.e.keys()} and {engine.e.drivers()}")
        for value in free:
            self.t.free.push_back(value)
        for k, value in enumerate(domain):
            self.t.domain.push_back(_in_range(value, -2, engine.e.domains(k), f"domain[{k}]"))
        for value in pods:
            self.t.pods.push_back(_in_range(value, 0, engine.e.classes(), "pods"))
        for value in limits:
            self.t.limits.push_back(value)
        for copy, special in sorted((exceptions or {}).items()):
            self.t.exception_index.push_back(copy)
            self.t.exception_class.push_back(_in_range(special, 0, engine.n_node_classes, "exceptions"))
        self.t.named_key = _in_range(named_key, -1, engine.e.keys(), "named_key")
        if taken and named_key < 0:
            raise NativeError("names are taken, but of no key")
        for copy, domain_taken in (taken or {}).items():
            self.t.taken_index.push_back(copy)
            self.t.taken_domain.push_back(_in_range(domain_taken, 0, engine.e.domains(named_key), "taken"))


cdef class Engine:
    """The state of one simulated cluster and the packing operations on it.

    disabled: bit per Filter plug-in (ordinal of the default profile) that is switched off.
    """
    cdef unique_ptr[c_Engine] owner
    cdef c_Engine* e
    cdef readonly int32_t n_node_classes
    cdef readonly int32_t n_static_rows
    cdef int32_t n_eligibility
    cdef int32_t n_port_keys
    cdef int32_t n_ports
    cdef int32_t n_groups
    cdef int32_t n_claims
    cdef int32_t epoch  # rises when class numbers that templates hold lose their meaning
    cdef list users
    cdef tuple ledger  # (ledger of devices, what went wrong in it), or None

    def __cinit__(self, n_resources, n_port_keys=0, n_ports=0, disabled=0):
        cdef int32_t resources = _in_range(n_resources, 1, 4097, "n_resources")
        self.n_port_keys = _in_range(n_port_keys, 0, 1 << 24, "n_port_keys")
        self.n_ports = _in_range(n_ports, 0, 1 << 24, "n_ports")
        self.users = []
        self.owner = make_unique[c_Engine](resources, self.n_port_keys, self.n_ports, <uint16_t>disabled)
        self.e = self.owner.get()

    # -- building ----------------------------------------------------------------------------------------------------

    def append_nodes(self, const int64_t[:, ::1] free not None, const int64_t[::1] slots not None,
                     const int32_t[::1] classes not None, const uint8_t[::1] unschedulable not None):
        """free: int64[n_resources, n]; slots: int64[n]; classes: int32[n]; unschedulable: uint8[n]."""
        cdef Py_ssize_t n = slots.shape[0]
        if free.shape[0] != self.e.resources() or free.shape[1] != n or classes.shape[0] != n or unschedulable.shape[0] != n:
            raise NativeError("append_nodes: shapes differ")
        if self.e.depth() or self.e.keys() or self.e.rows() or self.e.drivers():
            raise NativeError("append_nodes: nodes come before keys, drivers, rows and forks")
        if n + self.e.nodes() > (1 << 28):
            raise NativeError("append_nodes: too many nodes")
        _check_indices(classes, 0, self.n_node_classes, "classes")
        if n:
            self.e.append_nodes(<int32_t>n, &free[0, 0], &slots[0], &classes[0], &unschedulable[0])

    def set_statics(self, const uint16_t[:, ::1] bits not None):
        """bits: uint16[n_rows, n_node_classes]; bit i set = Filter i fails (bit 0: outside the PreFilter node set)."""
        if self.e.nodes() and bits.shape[1] < self.n_node_classes:
            raise NativeError("set_statics: node classes would be lost")
        if bits.shape[0] < self.n_static_rows and self.e.classes():
            raise NativeError("set_statics: rows in use would be lost")
        if self.e.rows() and bits.shape[1] != self.n_node_classes:
            raise NativeError("set_statics: counter rows know the node classes there are")
        if bits.shape[1] < self.n_node_classes:
            self.epoch += 1
        self.n_static_rows = <int32_t>bits.shape[0]
        self.n_node_classes = <int32_t>bits.shape[1]
        self.e.set_statics(self.n_static_rows, self.n_node_classes, &bits[0, 0] if bits.size else NULL)
        self.n_eligibility = 0

    def set_classes(self, const int32_t[::1] classes not None):
        """Another projection of the nodes: int32[nodes]."""
        if classes.shape[0] != self.e.nodes():
            raise NativeError("set_classes: one class a node")
        _check_indices(classes, 0, self.n_node_classes, "classes")
        if classes.shape[0]:
            self.e.set_classes(&classes[0])

    def set_eligibility(self, const uint8_t[:, ::1] eligible not None):
        """eligible: uint8[n_rows, n_node_classes]: which nodes a spread row counts."""
        if eligible.shape[0] and eligible.shape[1] != self.n_node_classes:
            raise NativeError("set_eligibility: one column a node class")
        if self.e.rows():
            raise NativeError("set_eligibility: before the rows")
        self.n_eligibility = <int32_t>eligible.shape[0]
        if eligible.size:
            self.e.set_eligibility(self.n_eligibility, &eligible[0, 0])

    def add_key(self, const int32_t[::1] domain not None, n_domains):
        """A topology key: domain of every node, -1 = label absent."""
        cdef int32_t domains = _in_range(n_domains, 0, 1 << 30, "n_domains")
        if domain.shape[0] != self.e.nodes():
            raise NativeError("add_key: one domain a node")
        if self.e.depth():
            raise NativeError("add_key: inside a fork")
        _check_indices(domain, -1, domains, "domain")
        return self.e.add_key(&domain[0] if domain.shape[0] else NULL, domains)

    def add_driver(self, const int32_t[::1] limit not None):
        """A volume driver: its limit on every node, -1 = none."""
        if limit.shape[0] != self.e.nodes() or self.e.depth():
            raise NativeError("add_driver: one limit a node, outside forks")
        return self.e.add_driver(&limit[0] if limit.shape[0] else NULL)

    def set_migrated(self, const uint32_t[::1] plugins not None):
        """Which in-tree volume plug-ins each node has migrated to CSI: a bit each."""
        if plugins.shape[0] != self.e.nodes():
            raise NativeError("set_migrated: one entry a node")
        if plugins.shape[0]:
            self.e.set_migrated(&plugins[0])

    def add_group(self):
        self.n_groups += 1
        return self.e.add_group()

    def add_row(self, key, const int64_t[::1] counts not None, group=-1, eligibility=-1):
        """A counter per domain of a key, with the counts of the pods already there."""
        cdef int32_t k = _in_range(key, 0, self.e.keys(), "key")
        cdef int32_t g = _in_range(group, -1, self.n_groups, "group")
        cdef int32_t eligible = _in_range(eligibility, -1, self.n_eligibility, "eligibility")
        if counts.shape[0] > self.e.domains(k) or self.e.depth():
            raise NativeError("add_row: more counts than domains, or inside a fork")
        return self.e.add_row(k, g, eligible, &counts[0] if counts.shape[0] else NULL, <int32_t>counts.shape[0])

    def add_claim(self, users=0):
        self.n_claims += 1
        return self.e.add_claim(users)

    def use_disk(self, node, disk, bint read_only):
        self.e.use_disk(_in_range(node, 0, self.e.nodes(), "node"), _in_range(disk, 0, 1 << 30, "disk"), read_only)

    def use_volume(self, node, handle, driver, bint attachment=False):
        self.e.use_volume(_in_range(node, 0, self.e.nodes(), "node"), _in_range(handle, 0, 1 << 30, "handle"),
                          _in_range(driver, 0, self.e.drivers(), "driver"), attachment)

    cdef c_Port _port(self, object pair) except *:
        cdef c_Port port
        port.key = _in_range(pair[0], 0, self.n_port_keys, "port key")
        port.specific = _in_range(pair[1], -1, self.n_ports, "port")
        return port

    def use_port(self, node, port):
        self.e.use_port(_in_range(node, 0, self.e.nodes(), "node"), self._port(port))

    cdef c_RowKey _row_key(self, object row) except *:
        cdef c_RowKey result
        result.row = _in_range(row, 0, self.e.rows(), "row")
        result.key = self.e.row(result.row).key
        return result

    cdef unique_ptr[c_Extra] _extra(self, dict given) except *:
        cdef unique_ptr[c_Extra] owner = make_unique[c_Extra]()
        cdef c_Extra* x = owner.get()
        cdef c_SpreadUse use
        cdef c_Disk disk
        cdef c_Volume volume
        for pair in given.get("ports", ()):
            x.ports.push_back(self._port(pair))
        for row, max_skew, min_domains, self_match in given.get("spread", ()):
            use.row = _in_range(row, 0, self.e.rows(), "row")
            use.key = self.e.row(use.row).key
            use.max_skew = max_skew
            use.min_domains = min_domains
            use.self = self_match
            if self.e.row(use.row).registered.size() != self.e.row(use.row).count.size():
                raise NativeError("spread: not a spread row")
            x.spread.push_back(use)
        for row in given.get("spread_touch", ()):
            x.spread_touch.push_back(_in_range(row, 0, self.e.rows(), "row"))
        if "affinity_group" in given:
            x.affinity_group = _in_range(given["affinity_group"], 0, self.n_groups, "affinity_group")
            x.self_affine = given["self_affine"]
            for row in given["affinity"]:
                x.affinity.push_back(self._row_key(row))
        for row in given.get("own_anti", ()):
            x.own_anti.push_back(self._row_key(row))
        for row in given.get("blocked_by", ()):
            x.blocked_by.push_back(self._row_key(row))
        for row in given.get("touch", ()):
            x.touch.push_back(self._row_key(row))
        for claim in given.get("rwop", ()):
            x.rwop.push_back(_in_range(claim, 0, self.n_claims, "claim"))
        for claim in given.get("claims", ()):
            x.claims.push_back(_in_range(claim, 0, self.n_claims, "claim"))
        for identity, read_only in given.get("disks", ()):
            disk.id = _in_range(identity, 0, 1 << 30, "disk")
            disk.read_only = read_only
            x.disks.push_back(disk)
        for handle, driver, plugin in given.get("volumes", ()):
            volume.plugin = _in_range(plugin, -1, 32, "plugin")
            volume.handle = _in_range(handle, 0, 1 << 30, "handle")
            volume.driver = _in_range(driver, 0, self.e.drivers(), "driver")
            x.volumes.push_back(volume)
        x.devices = bool(given.get("devices", False))
        if x.devices and self.ledger is None:
            raise NativeError("devices: there is no ledger")
        return move(owner)

    def add_classes(self, const int64_t[:, ::1] request not None, const int64_t[:, ::1] occupancy not None,
                    const int32_t[::1] static_row not None, const uint8_t[::1] prefilter_failed not None,
                    const uint8_t[::1] hostname_spread not None, list extras not None):
        """Pod classes: request and occupancy int64[n, n_resources]; extras: one dict or None a class.

        Returns the number of the first.
        """
        cdef Py_ssize_t n = static_row.shape[0]
        cdef int32_t first = self.e.classes()
        cdef Py_ssize_t i
        cdef unique_ptr[c_Extra] extra
        if (request.shape[0] != n or occupancy.shape[0] != n or request.shape[1] != self.e.resources()
                or occupancy.shape[1] != self.e.resources() or prefilter_failed.shape[0] != n
                or hostname_spread.shape[0] != n or len(extras) != n):
            raise NativeError("add_classes: shapes differ")
        if n + first > (1 << 28):
            raise NativeError("add_classes: too many classes")
        _check_indices(static_row, 0, self.n_static_rows, "static_row")
        for i in range(n):
            if extras[i] is not None:
                extra = self._extra(extras[i])
            else:
                extra.reset()
            self.e.add_class(&request[i, 0], &occupancy[i, 0], static_row[i], prefilter_failed[i] != 0,
                             hostname_spread[i] != 0, move(extra))
        return first

    def add_user(self, plugin not None, columns not None):
        """A compiled predicate (``name``, ``address``; kept alive as long as the engine) on these resource columns."""
        cdef vector[int32_t] wanted
        if len(columns) > 64:
            raise NativeError("a predicate may ask for at most 64 columns")
        for column in columns:
            wanted.push_back(_in_range(column, 0, self.e.resources(), "column"))
        cdef uintptr_t address = plugin.address
        if not address:
            raise NativeError(f"plug-in {plugin.name!r} has no code")
        self.users.append(plugin)
        self.e.add_user(<c_UserPredicate>address, wanted)

    def set_devices(self, ledger not None):
        """Whom to ask about pods with devices. What it raises is raised by the call under way."""
        if self.e.depth() or self.e.classes():
            raise NativeError("set_devices: before classes are added, outside forks")
        self.ledger = (ledger, [], [])
        self.e.set_devices(_ask_ledger, <void*>self.ledger)

    cdef _callbacks_worked(self):
        if self.ledger is not None and self.ledger[1]:
            problem = self.ledger[1][0]
            self.ledger[1].clear()
            raise problem
        if self.ledger is not None and self.ledger[2]:
            raise NativeError("this engine cannot be used any more: a change of its devices failed") from self.ledger[2][0]
        cdef int32_t failed = self.e.user_failed()
        if failed >= 0:
            self.e.forget_failure()
            raise NativeError(f"plug-in {self.users[failed].name!r} failed")

    def reset_classes(self):
        """Forget pod classes, rows and groups; nodes, keys and drivers stay."""
        if self.e.depth():
            raise NativeError("reset_classes: inside a fork")
        self.e.reset_classes()
        self.n_groups = 0
        self.epoch += 1

    # -- predicates --------------------------------------------------------------------------------------------------

    def check(self, pod, node):
        """PreFilter and Filters of a class on one node: 0, FILTERED, PREFILTER_FAILED, or plug-in | detail << 8."""
        cdef uint32_t verdict = self.e.check_single(_in_range(pod, 0, self.e.classes(), "pod"), self._node(node))
        self._callbacks_worked()
        return verdict

    cdef int32_t _node(self, object node) except -1:
        cdef int32_t n = _in_range(node, 0, self.e.nodes(), "node")
        if not self.e.alive(n):
            raise NativeError(f"node {n} was removed")
        return n

    def verdicts(self, const int32_t[::1] pods not None):
        """First failing plug-in of each class on each node: uint32[len(pods), nodes], PreFilter not included."""
        cdef Py_ssize_t n = pods.shape[0]
        cdef int32_t nodes = self.e.nodes()
        _check_indices(pods, 0, self.e.classes(), "pods")
        result = np.empty((n, nodes), dtype=np.uint32)
        cdef uint32_t[:, ::1] out = result
        cdef Py_ssize_t p
        cdef int32_t i
        with nogil:
            for p in range(n):
                for i in range(nodes):
                    out[p, i] = self.e.check(pods[p], i)
        self._callbacks_worked()
        return result

    def dynamic(self, pod, node):
        """Every Filter with a counter, each on its own: {plug-in: (detail, which)} of those that fail."""
        cdef int32_t p = _in_range(pod, 0, self.e.classes(), "pod")
        cdef int32_t n = self._node(node)
        cdef const c_Extra* x = self.e.extra(p)
        cdef int32_t which = -1
        cdef uint32_t code
        failing = {}
        if x == NULL:
            return failing
        if not self.e.ports_free(x[0], n):
            failing[5] = (0, -1)
        code = self.e.check_disks(x[0], n)
        if code:
            failing[7] = (code >> 8, -1)
        if x.volumes.size() and self.e.drivers() and not self.e.volumes_fit(x[0], n, &which):
            failing[8] = (0, which)
        code = self.e.check_spread(x[0], n, &which)
        if code:
            failing[11] = (code >> 8, which)
        which = -1
        code = self.e.check_pods(x[0], n, &which)
        if code:
            failing[12] = (code >> 8, which)
        return failing

    def capacity(self, pod, node):
        """How many pods of a class that looks only at the node itself fit there, one after the other."""
        return self.e.capacity(_in_range(pod, 0, self.e.classes(), "pod"), self._node(node))

    def any_node(self, pod, const uint8_t[::1] acceptable=None):
        """First passing node from the cursor on, or -1; the cursor moves on success. acceptable: uint8[nodes]."""
        cdef int32_t p = _in_range(pod, 0, self.e.classes(), "pod")
        if acceptable is not None and acceptable.shape[0] != self.e.nodes():
            raise NativeError("any_node: acceptable has one entry a node")
        cdef const uint8_t* mask = &acceptable[0] if acceptable is not None and acceptable.shape[0] else NULL
        cdef int32_t found
        with nogil:
            found = self.e.any_node(p, mask)
        self._callbacks_worked()
        return found

    # -- changes -----------------------------------------------------------------------------------------------------

    def place(self, pod, node):
        cdef int32_t p = _in_range(pod, 0, self.e.classes(), "pod")
        self.e.place(p, self._node(node), 1)
        cdef const c_Extra* x = self.e.extra(p)
        if x != NULL and x.volumes.size():  # put there without being asked, it may bring what another pod needs
            self.e.forget_verdicts()
        self._callbacks_worked()

    def unplace(self, pod, node):
        self.e.unplace(_in_range(pod, 0, self.e.classes(), "pod"), self._node(node))
        self._callbacks_worked()

    cdef _current(self, Template template):
        if template.epoch != self.epoch:
            raise NativeError("the template was prepared for other classes")
        if <int32_t>template.t.domain.size() != self.e.keys() or <int32_t>template.t.limits.size() != self.e.drivers():
            raise NativeError("the template was prepared before keys or drivers were added")

    cpdef int32_t add(self, Template template, int32_t copy=0) except -1:
        """Add a copy of a prepared template; returns its node number."""
        if template is None or template.owner is not self:
            raise NativeError("the template was prepared for another engine")
        self._current(template)
        cdef int32_t node = self.e.add_copy(template.t, copy)
        self._callbacks_worked()
        return node

    def remove_node(self, node):
        self.e.remove_node(self._node(node))

    def set_ghost_rows(self, const uint8_t[::1] leaves not None):
        """Which counter rows stop counting a node as soon as it is vacated: uint8[rows]."""
        if leaves.shape[0] != self.e.rows():
            raise NativeError("set_ghost_rows: one entry a row")
        self.e.set_ghost_rows(&leaves[0] if leaves.shape[0] else NULL)

    def vacate(self, node, const int32_t[::1] pods not None):
        """Take these pods (classes, int32[n]: all that are there) off a node that is about to go."""
        _check_indices(pods, 0, self.e.classes(), "pods")
        self.e.vacate(self._node(node), &pods[0] if pods.shape[0] else NULL, <int32_t>pods.shape[0])
        self._callbacks_worked()

    def remove_ghost(self, node):
        """Remove a vacated node."""
        self.e.remove_ghost(self._node(node))

    @property
    def n_rows(self):
        return self.e.rows()

    cpdef fork(self):
        self.e.fork()
        self._callbacks_worked()

    cpdef revert(self):
        if not self.e.revert():
            raise NativeError("revert: nothing was forked")
        self._callbacks_worked()

    cpdef commit(self):
        if not self.e.commit():
            raise NativeError("commit: nothing was forked")
        self._callbacks_worked()

    # -- packing -----------------------------------------------------------------------------------------------------

    def estimate(self, const int32_t[::1] pod_class not None, const int32_t[::1] group_start not None,
                 Template template not None, *, max_nodes=0, bint fast_last=False, clash=-1):
        """The binpacking estimator; forks and reverts, moves the cursor.

        pod_class: int32[n], group after group; group_start: int32[groups + 1].
        Returns (placement int32[n], order int32[scheduled], nodes_added, nodes_with_pods, status, stopped_at).
        """
        cdef c_EstimateInput given
        cdef c_EstimateOutput out
        cdef Py_ssize_t n = pod_class.shape[0]
        if template.owner is not self:
            raise NativeError("the template was prepared for another engine")
        self._current(template)
        _check_indices(pod_class, 0, self.e.classes(), "pod_class")
        _check_starts(group_start, n)
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
            c_estimate(self.e[0], given, out, _interrupted, <void*>problems)
        if problems:
            raise problems[0]
        self._callbacks_worked()
        return placement, order[:out.scheduled], out.nodes_added, out.nodes_with_pods, out.status, out.stopped_at

    def try_schedule(self, const int32_t[::1] pod_class not None, const int32_t[::1] hint not None,
                     const int32_t[::1] similar not None, const int32_t[::1] controller not None,
                     const int32_t[::1] group_start not None, *, const uint8_t[::1] acceptable=None,
                     bint break_on_failure=False, int64_t max_looks=-1):
        """The hinting simulator; pods stay placed, the cursor moves. After ``max_looks`` pods (of both passes; -1: no
        limit) the time is up: the others are NOT_TRIED.

        Returns (node int32[n]: node, NOWHERE or NOT_TRIED; order int32[placed]; overflowing controllers).
        """
        cdef c_SimulateInput given
        cdef c_SimulateOutput out
        cdef Py_ssize_t n = pod_class.shape[0]
        if hint.shape[0] != n or similar.shape[0] != n or controller.shape[0] != n:
            raise NativeError("try_schedule: shapes differ")
        if acceptable is not None and acceptable.shape[0] != self.e.nodes():
            raise NativeError("try_schedule: acceptable has one entry a node")
        _check_indices(pod_class, 0, self.e.classes(), "pod_class")
        _check_indices(hint, -1, self.e.nodes(), "hint")
        _check_indices(similar, -1, <int32_t>max(n, 1), "similar")
        _check_indices(controller, -1, <int32_t>max(n, 1), "controller")
        cdef Py_ssize_t i
        for i in range(n):
            if similar[i] >= 0 and controller[i] < 0:
                raise NativeError(f"similar[{i}] without a controller")
        _check_starts(group_start, n)
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
            c_try_schedule(self.e[0], given, out, _interrupted, <void*>problems)
        if problems:
            raise problems[0]
        self._callbacks_worked()
        return node, order[:out.placed], out.overflowing

    # -- looking -----------------------------------------------------------------------------------------------------

    @property
    def cursor(self):
        return self.e.cursor

    @cursor.setter
    def cursor(self, value):
        if value < 0:
            raise NativeError("the cursor is a position")
        self.e.cursor = value

    @property
    def nodes(self):
        return self.e.nodes()

    @property
    def alive_nodes(self):
        return self.e.alive_nodes()

    @property
    def depth(self):
        return self.e.depth()

    @property
    def n_classes(self):
        return self.e.classes()

    @property
    def n_keys(self):
        return self.e.keys()

    def n_domains(self, key):
        return self.e.domains(_in_range(key, 0, self.e.keys(), "key"))

    def alive(self, node):
        return self.e.alive(_in_range(node, 0, self.e.nodes(), "node"))

    def is_local(self, pod):
        return self.e.local(_in_range(pod, 0, self.e.classes(), "pod"))

    def free(self, node):
        """What is free on a node: int64[n_resources]."""
        cdef int32_t n = _in_range(node, 0, self.e.nodes(), "node")
        return np.array([self.e.free(r, n) for r in range(self.e.resources())], dtype=np.int64)

    def slots(self, node):
        return self.e.slots(_in_range(node, 0, self.e.nodes(), "node"))

    def node_class(self, node):
        return self.e.node_class(_in_range(node, 0, self.e.nodes(), "node"))

    def domain(self, key, node):
        return self.e.domain(_in_range(key, 0, self.e.keys(), "key"), _in_range(node, 0, self.e.nodes(), "node"))

    def row(self, row):
        """(counts int64[domains], registered int32[domains], number of domains, minimum) of a counter row."""
        cdef const c_Row* r = &self.e.row(_in_range(row, 0, self.e.rows(), "row"))
        counts = np.array([r.count[i] for i in range(r.count.size())], dtype=np.int64)
        registered = np.array([r.registered[i] for i in range(r.registered.size())], dtype=np.int32)
        return counts, registered, r.domains, r.min

    def total(self, group):
        return self.e.total(_in_range(group, 0, self.n_groups, "group"))

    def claim_users(self, claim):
        return self.e.claim_users(_in_range(claim, 0, self.n_claims, "claim"))

    def checksum(self):
        """Equal states have equal sums: every counter, domain, port, reference and claim on devices goes into it."""
        return self.e.checksum() ^ (0 if self.ledger is None else self.ledger[0].checksum())


cdef _check_starts(const int32_t[::1] starts, Py_ssize_t n):
    cdef Py_ssize_t i
    if starts.shape[0] < 1 or starts[0] != 0 or starts[starts.shape[0] - 1] != n:
        raise NativeError("group_start must begin with 0 and end with the number of pods")
    for i in range(starts.shape[0] - 1):
        if starts[i] > starts[i + 1]:
            raise NativeError("group_start must not decrease")


def sweep(const int64_t[:, ::1] request not None, const int32_t[::1] static_row not None,
          const int64_t[:, ::1] free not None, const int64_t[::1] slots not None,
          const int32_t[::1] node_class not None, const uint16_t[:, ::1] static_bits not None, *, int32_t threads=1):
    """First failing plug-in of every pod on every node over static bits, pod count and resources, no classes used.

    request: int64[pods, resources]; static_row: int32[pods]; free: int64[resources, nodes]; slots: int64[nodes];
    node_class: int32[nodes]; static_bits: uint16[rows, node classes]. Returns uint8[pods, nodes]: 0 fits, FILTERED, or
    the plug-in's ordinal.
    """
    cdef Py_ssize_t pods = request.shape[0]
    cdef Py_ssize_t nodes = slots.shape[0]
    cdef int32_t resources = <int32_t>request.shape[1]
    if static_row.shape[0] != pods or free.shape[0] != resources or free.shape[1] != nodes or node_class.shape[0] != nodes:
        raise NativeError("sweep: shapes differ")
    _check_indices(static_row, 0, <int32_t>static_bits.shape[0], "static_row")
    _check_indices(node_class, 0, <int32_t>static_bits.shape[1], "node_class")
    verdict = np.empty((pods, nodes), dtype=np.uint8)
    cdef uint8_t[:, ::1] out = verdict
    if pods and nodes and resources:
        with nogil:
            c_sweep(&request[0, 0], &static_row[0], pods, &free[0, 0], nodes, &slots[0], &node_class[0], nodes,
                    resources, &static_bits[0, 0], <int32_t>static_bits.shape[1], &out[0, 0], threads)
    return verdict


def sweep_resources(const int64_t[:, ::1] request not None, const int64_t[:, ::1] free not None,
                    const int64_t[::1] slots not None, *, int32_t threads=1):
    """Does every pod fit every node by pod count and resources: uint8[pods, nodes]."""
    cdef Py_ssize_t pods = request.shape[0]
    cdef Py_ssize_t nodes = slots.shape[0]
    cdef int32_t resources = <int32_t>request.shape[1]
    if free.shape[0] != resources or free.shape[1] != nodes:
        raise NativeError("sweep_resources: shapes differ")
    fits = np.empty((pods, nodes), dtype=np.uint8)
    cdef uint8_t[:, ::1] out = fits
    if pods and nodes and resources:
        with nogil:
            c_sweep_resources(&request[0, 0], pods, &free[0, 0], nodes, &slots[0], nodes, resources, &out[0, 0], threads)
    return fits


include "_removals.pxi"
