# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Bindings between NumPy arrays and the packing engine. Every shape, index and size is checked here, and only here.

An Engine has a single owner: it must not be used by two threads at the same time. Separate engines may run in separate
threads.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uintptr_t
from libcpp cimport bool as cbool
from libcpp.memory cimport make_unique
from libcpp.vector cimport vector

from kscale._native._columns cimport in_range, indices

import numpy as np

from kscale.errors import NativeError

FITS = 0
FILTERED = kFilteredCode
PREFILTER_FAILED = kPreFilterCode
ORDINALS = {kPluginNames[i].decode(): i for i in range(1, kPlugins)}
USER_PREDICATE = kUserPredicate
DISK_CONFLICT, CLAIM_IN_USE = kDiskConflict, kClaimInUse
SKEW, MISSING_KEY = kSkew, kMissingKey
AFFINITY, OWN_ANTI_AFFINITY, EXISTING_ANTI_AFFINITY = kAffinity, kOwnAntiAffinity, kExistingAntiAffinity

include "_pod_classes.pxi"


cdef cbool interrupted(void* context) noexcept nogil:
    with gil:
        try:
            PyErr_CheckSignals()
        except BaseException as error:
            (<list>context).append(error)
            return True
    return False


cdef int32_t _ask_ledger(void* context, DeviceCall what, int32_t a, int32_t b) noexcept nogil:
    with gil:
        ledger, problems, broken = <tuple>context
        if problems and what == DeviceCall.kCheck:  # the current call fails in any case
            return 0
        try:
            if what == DeviceCall.kCheck:
                return 1 if ledger.check(a, b) else 0
            if what == DeviceCall.kPlace:
                return 1 if ledger.place(a, b) else 0
            if what == DeviceCall.kUnplace:
                ledger.unplace(a, b)
            elif what == DeviceCall.kAdd:
                ledger.add(a, b)
            elif what == DeviceCall.kFork:
                ledger.fork()
            elif what == DeviceCall.kRevert:
                ledger.revert()
            else:
                ledger.commit()
        except BaseException as error:
            problems.append(error)
            if what != DeviceCall.kCheck:  # ledger and engine may differ now
                broken.append(error)
    return 0


cdef class Template:
    """A prepared node: what a copy of it adds to an engine.

    free: int64[n_resources], what is left after the pods of the template; slots: free pod slots; domain: int32[n_keys],
    -1 = label absent, -2 = every copy is a domain of its own; pods: classes of the pods on it; limits:
    int32[n_drivers], -1 = no limit; exceptions: {copy number: node class} for names that a selector contains; taken:
    {copy number: domain of named_key} for names that are already a value of that key; number: number of the template in
    the ledger of devices.
    """

    def __init__(self, Engine engine not None, *, node_class, bint unschedulable, slots, free, domain, pods=(),
                 limits=(), migrated=0, exceptions=None, named_key=-1, taken=None, number=0):
        if engine.e.depth():
            raise NativeError("a template is prepared outside forks")
        self.owner = engine
        self.epoch = engine.epoch
        self.t.node_class = in_range(node_class, 0, engine.n_node_classes, "node_class")
        self.t.unschedulable = unschedulable
        self.t.number = in_range(number, 0, 1 << 30, "number")
        self.t.slots = slots
        self.t.migrated = migrated
        if len(free) != engine.e.resources() or len(domain) != engine.e.keys() or len(limits) != engine.e.drivers():
            raise NativeError(
                f"a template has {len(free)} resources, {len(domain)} keys and {len(limits)} drivers; the engine has "
                f"{engine.e.resources()}, {engine.e.keys()} and {engine.e.drivers()}")
        for value in free:
            self.t.free.push_back(value)
        for k, value in enumerate(domain):
            self.t.domain.push_back(in_range(value, -2, engine.e.domains(k), f"domain[{k}]"))
        for value in pods:
            self.t.pods.push_back(in_range(value, 0, engine.e.classes(), "pods"))
        for value in limits:
            self.t.limits.push_back(value)
        for copy, special in sorted((exceptions or {}).items()):
            self.t.exception_index.push_back(copy)
            self.t.exception_class.push_back(in_range(special, 0, engine.n_node_classes, "exceptions"))
        self.t.named_key = in_range(named_key, -1, engine.e.keys(), "named_key")
        if taken and named_key < 0:
            raise NativeError("names are taken, but of no key")
        for copy, domain_taken in (taken or {}).items():
            self.t.taken_index.push_back(copy)
            self.t.taken_domain.push_back(in_range(domain_taken, 0, engine.e.domains(named_key), "taken"))


cdef class Engine:
    """The state of one simulated cluster and the packing operations on it.

    disabled: one bit per Filter plug-in (its number in the default profile) that is switched off.
    """

    def __cinit__(self, n_resources, n_port_keys=0, n_ports=0, disabled=0):
        cdef int32_t resources = in_range(n_resources, 1, 4097, "n_resources")
        self.n_port_keys = in_range(n_port_keys, 0, 1 << 24, "n_port_keys")
        self.n_ports = in_range(n_ports, 0, 1 << 24, "n_ports")
        self.users = []
        self.holder = make_unique[c_Engine](resources, self.n_port_keys, self.n_ports, <uint16_t>disabled)
        self.e = self.holder.get()

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
        indices(classes, 0, self.n_node_classes, "classes")
        if n:
            self.e.append_nodes(<int32_t>n, &free[0, 0], &slots[0], &classes[0], &unschedulable[0])

    def set_statics(self, const uint16_t[:, ::1] bits not None):
        """Set the static verdicts. bits: uint16[n_rows, n_node_classes]; bit i set = Filter i fails (bit 0: outside
        the PreFilter node set).
        """
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
        """Set other classes of the nodes: int32[nodes]."""
        if classes.shape[0] != self.e.nodes():
            raise NativeError("set_classes: one class a node")
        indices(classes, 0, self.n_node_classes, "classes")
        if classes.shape[0]:
            self.e.set_classes(&classes[0])

    def set_eligibility(self, const uint8_t[:, ::1] eligible not None):
        """Set which nodes a spread row counts. eligible: uint8[n_rows, n_node_classes]."""
        if eligible.shape[0] and eligible.shape[1] != self.n_node_classes:
            raise NativeError("set_eligibility: one column a node class")
        if self.e.rows():
            raise NativeError("set_eligibility: before the rows")
        self.n_eligibility = <int32_t>eligible.shape[0]
        if eligible.size:
            self.e.set_eligibility(self.n_eligibility, &eligible[0, 0])

    def add_key(self, const int32_t[::1] domain not None, n_domains):
        """Add a topology key: domain of every node, -1 = label absent."""
        cdef int32_t domains = in_range(n_domains, 0, 1 << 30, "n_domains")
        if domain.shape[0] != self.e.nodes():
            raise NativeError("add_key: one domain a node")
        if self.e.depth():
            raise NativeError("add_key: inside a fork")
        indices(domain, -1, domains, "domain")
        return self.e.add_key(&domain[0] if domain.shape[0] else NULL, domains)

    def add_driver(self, const int32_t[::1] limit not None):
        """Add a volume driver: its limit on every node, -1 = none."""
        if limit.shape[0] != self.e.nodes() or self.e.depth():
            raise NativeError("add_driver: one limit a node, outside forks")
        return self.e.add_driver(&limit[0] if limit.shape[0] else NULL)

    def set_migrated(self, const uint32_t[::1] plugins not None):
        """Set which in-tree volume plug-ins each node has migrated to CSI, one bit each."""
        if plugins.shape[0] != self.e.nodes():
            raise NativeError("set_migrated: one entry a node")
        if plugins.shape[0]:
            self.e.set_migrated(&plugins[0])

    def add_group(self):
        self.n_groups += 1
        return self.e.add_group()

    def add_row(self, key, const int64_t[::1] counts not None, group=-1, eligibility=-1):
        """Add a counter per domain of a key, with the counts of the pods on nodes (not negative, at most 2**24)."""
        cdef Py_ssize_t i
        cdef int32_t k = in_range(key, 0, self.e.keys(), "key")
        cdef int32_t g = in_range(group, -1, self.n_groups, "group")
        cdef int32_t eligible = in_range(eligibility, -1, self.n_eligibility, "eligibility")
        if counts.shape[0] > self.e.domains(k) or self.e.depth():
            raise NativeError("add_row: more counts than domains, or inside a fork")
        for i in range(counts.shape[0]):
            in_range(counts[i], 0, (1 << 24) + 1, "counts")
        cdef int32_t row = self.e.add_row(
            k, g, eligible, &counts[0] if counts.shape[0] else NULL, <int32_t>counts.shape[0])
        self.e.settle_rows()
        return row

    def add_rows(self, const int32_t[::1] key not None, const int32_t[::1] group not None,
                 const int32_t[::1] eligibility not None):
        """Add many counters, which are empty until :meth:`populate`: int32[n] each."""
        cdef Py_ssize_t i
        if group.shape[0] != key.shape[0] or eligibility.shape[0] != key.shape[0] or self.e.depth():
            raise NativeError("add_rows: shapes differ, or inside a fork")
        indices(key, 0, self.e.keys(), "key")
        indices(group, -1, self.n_groups, "group")
        indices(eligibility, -1, self.n_eligibility, "eligibility")
        for i in range(key.shape[0]):
            self.e.add_row(key[i], group[i], eligibility[i], NULL, 0)

    def add_claim(self, users=0):
        self.n_claims += 1
        return self.e.add_claim(users)

    def use_disk(self, node, disk, bint read_only):
        cdef Disk used
        used.id = in_range(disk, 0, 1 << 30, "disk")
        used.read_only = read_only
        self.e.use_disk(in_range(node, 0, self.e.nodes(), "node"), used)

    def attach(self, node, handle, driver):
        """Record a VolumeAttachment of a volume to a node."""
        if self.e.depth():
            raise NativeError("attach: inside a fork")
        self.e.attach(in_range(node, 0, self.e.nodes(), "node"), in_range(handle, 0, 1 << 30, "handle"),
                      in_range(driver, 0, self.e.drivers(), "driver"))

    def use_port(self, node, port):
        cdef Port used
        used.key = in_range(port[0], 0, self.n_port_keys, "port key")
        used.specific = in_range(port[1], -1, self.n_ports, "port")
        self.e.use_port(in_range(node, 0, self.e.nodes(), "node"), used)

    cdef int fits_here(self, const Extra& x) except -1:
        """Check that every number in an entry is known to this engine."""
        cdef int32_t rows = self.e.rows()
        cdef bint good = x.affinity_group < self.n_groups and (not x.devices or self.ledger is not None)
        cdef size_t i
        for i in range(x.ports.size()):
            good = good and x.ports[i].key < self.n_port_keys and x.ports[i].specific < self.n_ports
        for i in range(x.spread.size()):
            good = good and x.spread[i].row < rows and self.e.row(x.spread[i].row).eligibility >= 0
        for i in range(x.spread_touch.size()):
            good = good and x.spread_touch[i] < rows and self.e.row(x.spread_touch[i]).eligibility >= 0
        for i in range(x.affinity.size()):
            good = good and x.affinity[i] < rows
        for i in range(x.own_anti.size()):
            good = good and x.own_anti[i] < rows
        for i in range(x.blocked_by.size()):
            good = good and x.blocked_by[i] < rows
        for i in range(x.touch.size()):
            good = good and x.touch[i] < rows
        for i in range(x.rwop.size()):
            good = good and x.rwop[i] < self.n_claims
        for i in range(x.claims.size()):
            good = good and x.claims[i] < self.n_claims
        for i in range(x.volumes.size()):
            good = good and x.volumes[i].driver < self.e.drivers()
        if not good:
            raise NativeError("add_classes: a row, port, claim, driver, group or ledger that this engine does not have")
        return 0

    def add_classes(self, const int64_t[:, ::1] request not None, const int64_t[:, ::1] occupancy not None,
                    const int32_t[::1] static_row not None, const uint8_t[::1] prefilter_failed not None,
                    const uint8_t[::1] hostname_spread not None, extras not None):
        """Add pod classes: request and occupancy int64[n, n_resources]; extras: :class:`Extras`, or one dict or None
        per class.

        Returns the number of the first class.
        """
        cdef Extras more = extras if isinstance(extras, Extras) else Extras(extras)
        cdef Py_ssize_t n = static_row.shape[0]
        cdef int32_t first = self.e.classes()
        cdef Py_ssize_t i
        if (request.shape[0] != n or occupancy.shape[0] != n or request.shape[1] != self.e.resources()
                or occupancy.shape[1] != self.e.resources() or prefilter_failed.shape[0] != n
                or hostname_spread.shape[0] != n or <Py_ssize_t>more.items.size() != n):
            raise NativeError("add_classes: shapes differ")
        if n + first > (1 << 28):
            raise NativeError("add_classes: too many classes")
        indices(static_row, 0, self.n_static_rows, "static_row")
        for i in range(n):
            if more.items[i].get() != NULL:
                self.fits_here(more.items[i].get()[0])
        for i in range(n):
            self.e.add_class(&request[i, 0], &occupancy[i, 0], static_row[i], prefilter_failed[i] != 0,
                             hostname_spread[i] != 0, more.items[i])
        return first

    def populate(self, const int32_t[::1] pods not None, const int32_t[::1] nodes not None):
        """Count pods that are on nodes: their classes and nodes, int32[n] each. The free amounts include their
        requests already; this counts them everywhere else. -1 = a class without effect on other pods.
        """
        if pods.shape[0] != nodes.shape[0] or self.e.depth():
            raise NativeError("populate: shapes differ, or inside a fork")
        indices(pods, -1, self.e.classes(), "pods")
        indices(nodes, 0, self.e.nodes(), "nodes")
        cdef Py_ssize_t n = pods.shape[0]
        cdef const int32_t* p = &pods[0] if n else NULL
        cdef const int32_t* w = &nodes[0] if n else NULL
        with nogil:
            self.e.populate(p, w, n)

    def add_user(self, plugin not None, columns not None):
        """Add a compiled predicate (``name``, ``address``; kept alive as long as the engine) on these resource
        columns.
        """
        cdef vector[int32_t] wanted
        if len(columns) > 64 or len(self.users) >= 255:
            raise NativeError("a predicate may ask for at most 64 columns, and there may be at most 255 predicates")
        for column in columns:
            wanted.push_back(in_range(column, 0, self.e.resources(), "column"))
        cdef uintptr_t address = plugin.address
        if not address:
            raise NativeError(f"plug-in {plugin.name!r} has no code")
        self.users.append(plugin)
        self.e.add_user(<UserPredicate>address, wanted)

    def set_devices(self, ledger not None):
        """Set the ledger that decides pods with devices. Its exceptions are raised by the current call."""
        if self.e.depth() or self.e.classes():
            raise NativeError("set_devices: before classes are added, outside forks")
        self.ledger = (ledger, [], [])
        self.e.set_devices(_ask_ledger, <void*>self.ledger)

    cdef int callbacks_worked(self) except -1:
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
        return 0

    def copy(self):
        """Return an independent copy of the engine in the same state."""
        if self.e.depth():
            raise NativeError("copy: inside a fork")
        if self.ledger is not None:
            raise NativeError("copy: a ledger of devices has one engine")
        cdef Engine made = Engine(self.e.resources(), self.n_port_keys, self.n_ports)
        made.holder = self.e.copy()
        made.e = made.holder.get()
        made.n_node_classes, made.n_static_rows = self.n_node_classes, self.n_static_rows
        made.n_eligibility, made.n_groups, made.n_claims = self.n_eligibility, self.n_groups, self.n_claims
        made.epoch = self.epoch
        made.users = list(self.users)
        return made

    def reset_classes(self):
        """Remove pod classes, rows and groups; nodes, keys and drivers stay."""
        if self.e.depth():
            raise NativeError("reset_classes: inside a fork")
        self.e.reset_classes()
        self.n_groups = 0
        self.epoch += 1

    # -- predicates --------------------------------------------------------------------------------------------------

    def check(self, pod, node):
        """Run PreFilter and Filters of a class on one node: 0, FILTERED, PREFILTER_FAILED, or plug-in | detail << 8."""
        cdef uint16_t verdict = self.e.check_single(in_range(pod, 0, self.e.classes(), "pod"), self.node(node))
        self.callbacks_worked()
        return verdict

    cdef int32_t node(self, object node) except -1:
        cdef int32_t n = in_range(node, 0, self.e.nodes(), "node")
        if not self.e.alive(n):
            raise NativeError(f"node {n} was removed")
        return n

    def verdicts(self, const int32_t[::1] pods not None, *, int32_t threads=1):
        """Run :meth:`check` of classes on all nodes: uint16[len(pods), nodes]. The result does not depend on
        ``threads``; with user predicates or a ledger, one thread is used.
        """
        cdef Py_ssize_t n = pods.shape[0]
        indices(pods, 0, self.e.classes(), "pods")
        result = np.empty((n, self.e.nodes()), dtype=np.uint16)
        cdef uint16_t[:, ::1] out = result
        cdef const int32_t* p = &pods[0] if n else NULL
        if result.size:
            with nogil:
                self.e.verdicts(p, n, threads, &out[0, 0])
        self.callbacks_worked()
        return result

    def fits(self, const int32_t[::1] pods not None, node):
        """Run :meth:`check` of classes on one node: uint8[len(pods)], 1 = :meth:`check` returns 0."""
        cdef int32_t where = self.node(node)
        cdef Py_ssize_t i, n = pods.shape[0]
        indices(pods, 0, self.e.classes(), "pods")
        result = np.zeros(n, dtype=np.uint8)
        cdef uint8_t[::1] out = result
        for i in range(n):
            out[i] = self.e.check_single(pods[i], where) == 0
        self.callbacks_worked()
        return result

    def check_alone(self, plugin, pod, node):
        """Run one counting Filter alone. Returns None if the pod passes, else (detail, number of the constraint,
        term or driver that rejects it, or -1). ``plugin``: number of the Filter.
        """
        cdef int32_t which = -1
        cdef uint32_t filter = in_range(plugin, 1, kPlugins, "plugin")
        cdef uint16_t verdict = self.e.check_alone(
            <Plugin>filter, in_range(pod, 0, self.e.classes(), "pod"), self.node(node), &which)
        return (verdict >> 8, which) if verdict else None

    def capacity(self, pod, node):
        """Return how many pods of a class fit on a node one after the other. The verdict of the class depends only
        on the node itself.
        """
        return self.e.capacity(in_range(pod, 0, self.e.classes(), "pod"), self.node(node))

    def any_node(self, pod, const uint8_t[::1] acceptable=None):
        """Return the first passing node from the cursor on, or -1; the cursor moves on success. acceptable:
        uint8[nodes].
        """
        cdef int32_t p = in_range(pod, 0, self.e.classes(), "pod")
        if acceptable is not None and acceptable.shape[0] != self.e.nodes():
            raise NativeError("any_node: acceptable has one entry a node")
        cdef const uint8_t* mask = &acceptable[0] if acceptable is not None and acceptable.shape[0] else NULL
        cdef int32_t found
        with nogil:
            found = self.e.any_node(p, mask)
        self.callbacks_worked()
        return found

    # -- changes -----------------------------------------------------------------------------------------------------

    def place(self, pod, node):
        cdef int32_t p = in_range(pod, 0, self.e.classes(), "pod")
        self.e.place(p, self.node(node), 1)
        cdef const Extra* x = self.e.pods().extra(p)
        if x != NULL and x.volumes.size():  # unchecked: it may bring a volume that others need
            self.e.forget_verdicts()
        self.callbacks_worked()

    def unplace(self, pod, node):
        self.e.unplace(in_range(pod, 0, self.e.classes(), "pod"), self.node(node))
        self.callbacks_worked()

    cdef int current(self, Template template) except -1:
        if template is None or template.owner is not self:
            raise NativeError("the template was prepared for another engine")
        if template.epoch != self.epoch:
            raise NativeError("the template was prepared for other classes")
        if <int32_t>template.t.domain.size() != self.e.keys() or <int32_t>template.t.limits.size() != self.e.drivers():
            raise NativeError("the template was prepared before keys or drivers were added")
        return 0

    cpdef int32_t add(self, Template template, int32_t copy=0) except -1:
        """Add a copy of a prepared template; returns its node number."""
        self.current(template)
        cdef int32_t node = self.e.add_copy(template.t, copy)
        self.callbacks_worked()
        return node

    def remove_node(self, node):
        self.e.remove_node(self.node(node))

    def set_ghost_rows(self, const uint8_t[::1] leaves not None):
        """Return which counter rows stop counting a node as soon as it is vacated: uint8[rows]."""
        if leaves.shape[0] != self.e.rows():
            raise NativeError("set_ghost_rows: one entry a row")
        self.e.set_ghost_rows(&leaves[0] if leaves.shape[0] else NULL)

    def vacate(self, node, const int32_t[::1] pods not None):
        """Remove these pods (classes, int32[n]: all pods of the node) from a node that is about to be removed."""
        indices(pods, 0, self.e.classes(), "pods")
        self.e.vacate(self.node(node), &pods[0] if pods.shape[0] else NULL, <int32_t>pods.shape[0])
        self.callbacks_worked()

    def remove_ghost(self, node):
        """Remove a vacated node."""
        self.e.remove_ghost(self.node(node))

    @property
    def n_rows(self):
        return self.e.rows()

    cpdef fork(self):
        self.e.fork()
        self.callbacks_worked()

    cpdef revert(self):
        if not self.e.revert():
            raise NativeError("revert: nothing was forked")
        self.callbacks_worked()

    cpdef commit(self):
        if not self.e.commit():
            raise NativeError("commit: nothing was forked")
        self.callbacks_worked()

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
        return self.e.domains(in_range(key, 0, self.e.keys(), "key"))

    def alive(self, node):
        return self.e.alive(in_range(node, 0, self.e.nodes(), "node"))

    def is_local(self, pod):
        return self.e.local(in_range(pod, 0, self.e.classes(), "pod"))

    def free(self, node):
        """Return the free amounts of a node: int64[n_resources]."""
        cdef int32_t n = in_range(node, 0, self.e.nodes(), "node")
        return np.array([self.e.free(r, n) for r in range(self.e.resources())], dtype=np.int64)

    def slots(self, node):
        return self.e.slots(in_range(node, 0, self.e.nodes(), "node"))

    def node_class(self, node):
        return self.e.node_class(in_range(node, 0, self.e.nodes(), "node"))

    def domain(self, key, node):
        return self.e.domain(in_range(key, 0, self.e.keys(), "key"), in_range(node, 0, self.e.nodes(), "node"))

    def row(self, row):
        """Return (counts int64[domains], registered int32[domains], number of domains, minimum) of a counter row."""
        cdef const Row* r = &self.e.row(in_range(row, 0, self.e.rows(), "row"))
        counts = np.array([r.count[i] for i in range(r.count.size())], dtype=np.int64)
        registered = np.array([r.registered[i] for i in range(r.registered.size())], dtype=np.int32)
        return counts, registered, r.domains, r.min

    def total(self, group):
        return self.e.total(in_range(group, 0, self.n_groups, "group"))

    def claim_users(self, claim):
        return self.e.claim_users(in_range(claim, 0, self.n_claims, "claim"))

    def checksum(self):
        """Return a checksum of all counters, domains, ports, references and device claims; equal states have equal
        sums.
        """
        return self.e.checksum() ^ (0 if self.ledger is None else self.ledger[0].checksum())


include "_packing.pxi"
include "_removals.pxi"
include "_selecting.pxi"
include "_scoring.pxi"
include "_build.pxi"
