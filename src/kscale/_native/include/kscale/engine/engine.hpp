#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kscale/engine/dynamic_resources.hpp"
#include "kscale/engine/inter_pod_affinity.hpp"
#include "kscale/engine/node_ports.hpp"
#include "kscale/engine/node_resources_fit.hpp"
#include "kscale/engine/node_volume_limits.hpp"
#include "kscale/engine/pod_topology_spread.hpp"
#include "kscale/engine/static_verdicts.hpp"
#include "kscale/engine/template.hpp"
#include "kscale/engine/topology.hpp"
#include "kscale/engine/user_predicates.hpp"
#include "kscale/engine/volume_restrictions.hpp"

namespace kscale::engine {

// All mutable state of one simulated cluster, and the operations of the autoscaler's predicate snapshot on it.
// Single owner: not to be shared between threads. Every index is checked at the binding, never here.
class Engine {
 public:
  Engine(i32 n_resources, i32 n_port_keys, i32 n_ports, u16 disabled);
  ~Engine();
  Engine& operator=(const Engine&) = delete;
  std::unique_ptr<Engine> copy() const;  // another engine in the same state, outside forks; without remembered failures

  // -- building ----------------------------------------------------------------------------------------------------
  // free: [n_resources][count], slots: [count], classes and unschedulable: [count].
  void append_nodes(i32 count, const i64* free, const i64* slots, const i32* classes, const u8* unschedulable);
  void set_classes(const i32* classes);                       // another class for each existing node
  i32 add_key(const i32* domain, i32 n_domains) { return topology_.add_key(domain, class_.size(), n_domains); }
  i32 add_driver(const i32* limit) { return limits_.add_driver(limit, class_.size()); }  // per node; -1 = no limit
  void set_migrated(const u32* plugins) { limits_.set_migrated(plugins); }  // per node, a bit per in-tree plug-in
  void set_statics(i32 n_rows, i32 n_classes, const u16* bits) { statics_.set(n_rows, n_classes, bits), ++growth_; }
  void set_eligibility(i32 n_rows, const u8* eligible) {      // [n_rows][node classes]
    topology_.set_eligibility(n_rows, statics_.node_classes(), eligible);
  }
  i32 add_group() { return topology_.add_group(); }
  i32 add_row(i32 key, i32 group, i32 eligibility, const i64* counts, i32 n_counts) {
    return topology_.add_row(key, group, eligibility, counts, n_counts);
  }
  void settle_rows() { topology_.settle_all(class_.data(), class_.size()); }  // after rows were added
  i32 add_claim(i64 users) { return restrictions_.add_claim(users); }
  void use_disk(i32 node, Disk disk) { restrictions_.use_disk(node, class_.size(), disk, journal_); }
  void attach(i32 node, i32 handle, i32 driver) { limits_.attach(node, handle, driver); }
  void use_port(i32 node, Port port);
  i32 add_class(const i64* request, const i64* occupancy, i32 static_row, bool prefilter_failed, bool hostname_spread,
                std::shared_ptr<const Extra> extra);
  // Pods that are on nodes already, and that the free amounts include: counts them everywhere else. Negative class: a
  // pod without effect on other pods. Rows must be settled.
  void populate(const i32* pods, const i32* nodes, std::ptrdiff_t count);
  void add_user(UserPredicate predicate, std::vector<i32> columns) { users_.add(predicate, std::move(columns)); }
  void set_devices(DeviceLedger ledger, void* context) { devices_.set(ledger, context); }
  bool asks_ledger() const { return devices_.asked(); }  // copies of the engine would share the ledger
  i32 user_failed() const { return users_.failed(); }    // user predicate that failed since the last call, or -1
  void forget_failure() { users_.forget_failure(); }
  void forget_verdicts() { ++growth_; }
  void reset_classes();  // removes pod classes and rows, keeps nodes, keys and ports

  // -- predicates --------------------------------------------------------------------------------------------------
  Code check(i32 pod, i32 node) const;                // Filters on one node, first failing plug-in
  Code check_single(i32 pod, i32 node) const {        // PreFilter, then Filters on that node
    return pods_->prefilter_failed(pod) ? kPreFilterCode : check(pod, node);
  }
  // One counting Filter alone; `which` is the constraint, term or driver that rejects the pod.
  Code check_alone(Plugin plugin, i32 pod, i32 node, i32* which) const;
  // check_single of many pods on all nodes: out[pod][node].
  void verdicts(const i32* pods, std::ptrdiff_t count, i32 threads, Code* out) const;
  i64 capacity(i32 pod, i32 node) const;              // how many more of a local class fit, one after the other
  // Returns the first passing node in list order from position `start`, wrapping around, or -1. Cordoned nodes and
  // nodes that `acceptable` excludes are skipped.
  i32 scan(i32 pod, i32 start, const u8* acceptable, i32 low, i32 high);
  i32 any_node(i32 pod, const u8* acceptable);        // scan from the cursor; moves it on success
  i32 any_new_node(i32 pod, i32 low);                 // the same, restricted to nodes from index `low` on

  // -- changes -----------------------------------------------------------------------------------------------------
  void place(i32 pod, i32 node, i64 times = 1);
  void unplace(i32 pod, i32 node);
  i32 add_copy(const Template& t, i32 copy);
  void remove_node(i32 node);                         // its pods must be unplaced first
  // A ghost is a node that is being removed. It keeps its place in the list and takes no pods. Rows for which
  // ghost_rows is set (their constraint honours taints) stop counting its domain at once, other rows when it is
  // removed.
  void set_ghost_rows(const u8* leaves) { ghost_leaves_.assign(leaves, leaves + rows()); }
  void vacate(i32 node, const i32* pods, i32 count);  // removes the pods and leaves a ghost
  void remove_ghost(i32 node);

  // -- forks -------------------------------------------------------------------------------------------------------
  void fork();
  bool revert();                                      // false: there was no fork
  bool commit();
  // Opens a fork that copies all counters instead of logging their changes, for changes that far outnumber the
  // counters. It ends with revert(); no fork may be opened inside it.
  void fork_counters();
  bool counters_are_few(i64 changes) const;

  // -- looking -----------------------------------------------------------------------------------------------------
  i32 nodes() const { return static_cast<i32>(class_.size()); }
  i32 alive_nodes() const { return nodes() - static_cast<i32>(removed_.size()); }
  bool alive(i32 node) const { return removed_.empty() || !gone_[idx(node)]; }
  i32 position(i32 node) const;                       // position among the nodes that still exist
  i32 at_position(i32 position) const;
  i32 resources() const { return resources_.resources(); }
  i32 classes() const { return pods_->size(); }
  i32 keys() const { return topology_.keys(); }
  i32 rows() const { return topology_.rows(); }
  i32 drivers() const { return limits_.drivers(); }
  i32 depth() const { return static_cast<i32>(journal_.marks.size()); }
  i32 domains(i32 key) const { return topology_.domains(key); }
  i64 free(i32 resource, i32 node) const { return resources_.free(resource, node); }
  i64 slots(i32 node) const { return resources_.slots(node); }
  i32 node_class(i32 node) const { return class_[idx(node)]; }
  i32 domain(i32 key, i32 node) const { return topology_.domain(key, node); }
  const Row& row(i32 r) const { return topology_.row(r); }
  i64 total(i32 group) const { return topology_.total(group); }
  i64 claim_users(i32 claim) const { return restrictions_.users(claim); }
  bool cordoned(i32 node) const { return cordoned_[idx(node)] != 0; }
  const PodClasses& pods() const { return *pods_; }
  bool local(i32 pod) const { return pods_->local(pod) && users_.empty(); }
  u64 checksum() const;                               // of all counters; equal states have equal sums

  i64 cursor = 0;                                     // last matched position; never reset by fork or revert

 private:
  struct Candidates;  // per class: nodes on which it has not failed
  // While this value is unchanged, no verdict of a class can have improved. Both members only rise; when counters are
  // restored, `growth` rises.
  struct Stamp {
    u64 growth = 0;
    u64 versions = 0;  // sum over the rows on which the class depends
    bool operator==(const Stamp&) const = default;
  };
  Engine(const Engine&) = default;

  bool enabled(u32 plugin) const { return enabled_ & bit(plugin); }
  u16 static_bits(i32 pod, i32 node) const { return statics_.of(pods_->static_row(pod), class_[idx(node)]); }
  void rollback(const Entry& entry);
  void count(const Extra& extra, i32 node, i64 times);  // all that a pod counts in, except resources and devices
  void uncount(const Extra& extra, i32 node);
  void gone(i32 node);
  bool leaves_ghosts(i32 row) const { return !ghost_leaves_.empty() && ghost_leaves_[idx(row)]; }
  void enroll(i32 row, i32 node, i32 delta) { topology_.enroll(row, node, class_[idx(node)], delta, journal_); }
  Stamp stamp(i32 pod) const;
  Candidates* candidates(i32 pod, i32 low);
  i32 scan_range(i32 pod, i32 low, i32 high, const u8* acceptable);
  i32 scan_memo(i32 pod, Candidates& memo, i32 low, i32 high, const u8* acceptable);

  u16 enabled_;
  // nodes
  std::vector<i32> class_;
  std::vector<u8> cordoned_;
  std::vector<u8> gone_;      // sized with the nodes
  std::vector<i32> removed_;  // sorted
  // plug-ins
  StaticVerdicts statics_;
  NodePorts ports_;
  NodeResourcesFit resources_;
  VolumeRestrictions restrictions_;
  NodeVolumeLimits limits_;
  Topology topology_;
  DynamicResources devices_;
  UserPredicates users_;
  // pods
  std::shared_ptr<PodClasses> pods_;
  std::vector<u8> ghost_leaves_;  // [row], or empty
  Journal journal_;
  // remembered failures; valid while no verdict can have improved
  u64 growth_ = 1;
  std::vector<std::shared_ptr<Candidates>> memo_;
  std::vector<u8> scans_;
  std::size_t memo_entries_ = 0;
};

}  // namespace kscale::engine
