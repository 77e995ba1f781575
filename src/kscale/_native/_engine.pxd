# cython: language_level=3
# The packing engine for other bindings: the C++ declarations, and the Python class around them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libcpp cimport bool as cbool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.vector cimport vector


cdef extern from "kscale/engine/engine.hpp" namespace "kscale::engine" nogil:
    ctypedef uint16_t Code "kscale::engine::Code"
    ctypedef cbool (*Interrupted "kscale::engine::Interrupted")(void*) noexcept
    enum Plugin "kscale::engine::Plugin":
        pass
    const int32_t kPlugins
    const char* kPluginNames[]
    const uint32_t kDiskConflict
    const uint32_t kClaimInUse
    const uint32_t kSkew
    const uint32_t kMissingKey
    const uint32_t kAffinity
    const uint32_t kOwnAntiAffinity
    const uint32_t kExistingAntiAffinity
    const Code kFilteredCode
    const Code kPreFilterCode
    const uint32_t kUserPredicate
    cdef struct Port:
        int32_t key
        int32_t specific
    cdef struct SpreadUse:
        int32_t row
        int64_t max_skew
        int64_t min_domains
        int32_t self
    cdef struct Disk:
        int32_t id
        uint8_t read_only
    cdef struct Volume:
        int32_t handle
        int32_t driver
        int32_t plugin
    cdef cppclass Extra:
        Extra() except +
        vector[Port] ports
        vector[SpreadUse] spread
        vector[int32_t] spread_touch
        vector[int32_t] affinity
        int32_t affinity_group
        cbool self_affine
        vector[int32_t] own_anti
        vector[int32_t] blocked_by
        vector[int32_t] touch
        vector[int32_t] rwop
        vector[int32_t] claims
        vector[Disk] disks
        vector[Volume] volumes
        cbool devices
    enum class DeviceCall(int32_t):
        kCheck
        kPlace
        kUnplace
        kAdd
        kFork
        kRevert
        kCommit
    ctypedef int32_t (*DeviceLedger "kscale::engine::DeviceLedger")(void*, DeviceCall, int32_t, int32_t) noexcept
    ctypedef int32_t (*UserPredicate "kscale::engine::UserPredicate")(
        const int64_t*, const int64_t*, int64_t, int64_t, int64_t, int64_t) noexcept
    cdef cppclass Row:
        int32_t key
        int32_t eligibility
        vector[int32_t] count
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
    cdef cppclass PodClasses:
        const Extra* extra(int32_t)
    cdef cppclass c_Engine "kscale::engine::Engine":
        c_Engine(int32_t, int32_t, int32_t, uint16_t) except +
        unique_ptr[c_Engine] copy() except +
        void append_nodes(int32_t, const int64_t*, const int64_t*, const int32_t*, const uint8_t*) except +
        void set_classes(const int32_t*)
        int32_t add_key(const int32_t*, int32_t) except +
        int32_t add_driver(const int32_t*) except +
        void set_migrated(const uint32_t*)
        void set_statics(int32_t, int32_t, const uint16_t*) except +
        void set_eligibility(int32_t, const uint8_t*) except +
        int32_t add_group() except +
        int32_t add_row(int32_t, int32_t, int32_t, const int64_t*, int32_t) except +
        void settle_rows() except +
        int32_t add_claim(int64_t) except +
        void use_disk(int32_t, Disk) except +
        void attach(int32_t, int32_t, int32_t) except +
        void use_port(int32_t, Port) except +
        int32_t add_class(const int64_t*, const int64_t*, int32_t, cbool, cbool, shared_ptr[const Extra]) except +
        void populate(const int32_t*, const int32_t*, Py_ssize_t) except +
        void add_user(UserPredicate, vector[int32_t]) except +
        void set_devices(DeviceLedger, void*)
        int32_t user_failed()
        void forget_failure()
        void forget_verdicts()
        void reset_classes() except +
        Code check_single(int32_t, int32_t)
        Code check_alone(Plugin, int32_t, int32_t, int32_t*)
        void verdicts(const int32_t*, Py_ssize_t, int32_t, Code*) except +
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
        const Row& row(int32_t)
        int64_t total(int32_t)
        int64_t claim_users(int32_t)
        const PodClasses& pods()
        cbool local(int32_t)
        uint64_t checksum()
        int64_t cursor


cdef class Template:
    cdef c_Template t
    cdef readonly object owner
    cdef int32_t epoch


cdef class Engine:
    cdef unique_ptr[c_Engine] holder
    cdef c_Engine* e
    cdef readonly int32_t n_node_classes
    cdef readonly int32_t n_static_rows
    cdef int32_t n_eligibility
    cdef int32_t n_port_keys
    cdef int32_t n_ports
    cdef int32_t n_groups
    cdef int32_t n_claims
    cdef int32_t epoch  # incremented when class numbers in templates become invalid
    cdef list users
    cdef tuple ledger  # (ledger of devices, its errors, errors that broke it), or None

    cdef int callbacks_worked(self) except -1
    cdef int32_t node(self, object node) except -1
    cdef int current(self, Template template) except -1
    cdef int fits_here(self, const Extra& x) except -1
    cpdef int32_t add(self, Template template, int32_t copy=*) except -1
    cpdef fork(self)
    cpdef revert(self)
    cpdef commit(self)


cdef cbool interrupted(void* context) noexcept nogil


cdef class Extras:
    cdef vector[shared_ptr[const Extra]] items
