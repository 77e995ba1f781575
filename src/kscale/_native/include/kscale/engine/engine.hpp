#pragma once

#include <memory>
#include <utility>

#include "kscale/engine/journal.hpp"
#include "kscale/engine/types.hpp"

namespace kscale::engine {

// Looked at between groups of work; true = stop.
using Interrupted = bool (*)(void* context);

struct NodeDisk {
  i32 id;
  i32 read_write;  // pods on the node that use it so
  i32 read_only;
};

struct NodeVolume {
  i32 handle;
  i32 driver;
  i32 references;   // pods on the node that use it
  u8 attachment;    // a VolumeAttachment says so
};

// All mutable state of one simulated cluster, and the operations of the autoscaler's predicate snapshot on it.
// Single owner: not to be shared between threads. Every index is checked at the binding, never here.
class Engine {
 public:
  Engine(i32 n_resources, i32 n_port_keys, i32 n_ports, u16 disabled);

  // -- building ----------------------------------------------------------------------------------------------------
  // free: [n_resources][count], slots: [count], classes and unschedulable: [count].
  void append_nodes(i32 count, const i64* free, const i64* slots, const i32* classes, const u8* unschedulable);
  void set_classes(const i32* classes);                       // a new projection of the nodes that exist now
  i32 add_key(const i32* domain, i32 n_domains);              // domain id of every node, -1 = label absent
  i32 add_driver(const i32* limit);                           // per node; -1 = no limit
  void set_migrated(const u32* plugins);                      // per node, a bit per in-tree volume plug-in
  void set_statics(i32 n_rows, i32 n_classes, const u16* bits);          // [n_rows][n_classes]
  void set_eligibility(i32 n_rows, const u8* eligible);                  // [n_rows][n_classes]
  i32 add_group() { totals_.push_back(0); return static_cast<i32>(totals_.size()) - 1; }
  // counts: [n domains of the key]; for a spread row (eligibility >= 0) domains are registered from the nodes.
  i32 add_row(i32 key, i32 group, i32 eligibility, const i64* counts, i32 n_counts);
  i32 add_claim(i64 users) { claim_users_.push_back(users); return static_cast<i32>(claim_users_.size()) - 1; }
  void use_disk(i32 node, i32 disk, bool read_only);
  void use_volume(i32 node, i32 handle, i32 driver, bool attachment);
  void use_port(i32 node, Port port);
  // request, occupancy: [n_resources]; prefilter_failed: no node is ever tried.
  i32 add_class(const i64* request, const i64* occupancy, i32 static_row, bool prefilter_failed,
                bool hostname_spread, std::unique_ptr<Extra> extra);
  // Asked last, of every pod and node. Its verdict may depend on anything of the node, so nothing is remembered or
  // counted in closed form once there is one.
  i32 add_user(UserPredicate predicate, std::vector<i32> columns);
  void set_devices(DeviceLedger ledger, void* context) { ledger_ = ledger; ledger_context_ = context; }
  bool asks_ledger() const { return ledger_ != nullptr; }  // then copies of the engine would share it
  i32 user_failed() const { return user_failed_; }  // number of a user predicate that failed since the last look, or -1
  void forget_failure() { user_failed_ = -1; }
  void forget_verdicts() { ++growth_; }
  void reset_classes();  // forgets pod classes and rows, keeps nodes, keys and ports

  // -- predicates --------------------------------------------------------------------------------------------------
  u32 check(i32 pod, i32 node) const;                 // Filters on one node, first failing plug-in
  u32 check_single(i32 pod, i32 node) const {         // PreFilter, then Filters on that node
    return prefilter_failed_[idx(pod)] ? kPreFilterCode : check(pod, node);
  }
  u32 check_spread(const Extra& extra, i32 node, i32* which) const;
  u32 check_pods(const Extra& extra, i32 node, i32* which) const;
  bool ports_free(const Extra& extra, i32 node) const;
  u32 check_disks(const Extra& extra, i32 node) const;
  u32 check_users(i32 pod, i32 node) const;
  bool volumes_fit(const Extra& extra, i32 node, i32* driver) const;
  i64 capacity(i32 pod, i32 node) const;              // how many more of a local class fit, one after the other
  // First passing node in list order from position `start`, wrapping; cordoned nodes and those that `acceptable`
  // refuses are passed over. Returns the node or -1.
  i32 scan(i32 pod, i32 start, const u8* acceptable, i32 low, i32 high);
  i32 any_node(i32 pod, const u8* acceptable);        // scan from the cursor; moves it on success
  i32 any_new_node(i32 pod, i32 low);                 // the same, restricted to nodes from index `low` on

  // -- changes -----------------------------------------------------------------------------------------------------
  void place(i32 pod, i32 node, i64 times = 1);
  void unplace(i32 pod, i32 node);
  i32 add_copy(const Template& t, i32 copy);
  void remove_node(i32 node);                         // its pods must be unplaced first
  // A ghost: a node on its way out. It keeps its place in the list and takes no pods; rows for which ghost_rows says so
  // (their constraint honours taints) stop counting its domain at once, the others when it is removed.
  void set_ghost_rows(const u8* leaves) { ghost_leaves_.assign(leaves, leaves + rows_.size()); }
  void vacate(i32 node, const i32* pods, i32 count);  // takes the pods off and leaves a ghost
  void remove_ghost(i32 node);
  void fork();
  bool revert();                                      // false: nothing was forked
  bool commit();
  // A fork that keeps copies of all counters instead of a log of their changes: for changes that far outnumber the
  // counters. Ended by revert(); no fork may be opened inside it.
  void fork_counters();
  bool counters_are_few(i64 changes) const;

  // -- looking -----------------------------------------------------------------------------------------------------
  i32 nodes() const { return static_cast<i32>(slots_.size()); }
  i32 alive_nodes() const { return nodes() - static_cast<i32>(removed_.size()); }
  bool alive(i32 node) const { return removed_.empty() || !gone_[idx(node)]; }
  i32 position(i32 node) const;                       // rank among the nodes that are still there
  i32 at_position(i32 position) const;
  i32 resources() const { return n_resources_; }
  i32 classes() const { return static_cast<i32>(static_row_.size()); }
  i32 keys() const { return static_cast<i32>(domain_.size()); }
  i32 rows() const { return static_cast<i32>(rows_.size()); }
  i32 drivers() const { return static_cast<i32>(limit_.size()); }
  i32 depth() const { return static_cast<i32>(marks_.size()); }
  i32 domains(i32 key) const { return n_domains_[idx(key)]; }
  i64 free(i32 resource, i32 node) const { return free_[idx(resource)][idx(node)]; }
  i64 slots(i32 node) const { return slots_[idx(node)]; }
  i32 node_class(i32 node) const { return class_[idx(node)]; }
  i32 domain(i32 key, i32 node) const { return domain_[idx(key)][idx(node)]; }
  const Row& row(i32 r) const { return rows_[idx(r)]; }
  i64 total(i32 group) const { return totals_[idx(group)]; }
  i64 claim_users(i32 claim) const { return claim_users_[idx(claim)]; }
  const Extra* extra(i32 pod) const { return extra_[idx(pod)].get(); }
  bool hostname_spread(i32 pod) const { return hostname_spread_[idx(pod)] != 0; }
  bool prefilter_failed(i32 pod) const { return prefilter_failed_[idx(pod)] != 0; }
  bool cordoned(i32 node) const { return cordoned_[idx(node)] != 0; }
  i32 static_row(i32 pod) const { return static_row_[idx(pod)]; }
  const i64* request(i32 pod) const { return request_.data() + idx(pod) * idx(n_resources_); }
  const i64* occupancy(i32 pod) const { return occupancy_.data() + idx(pod) * idx(n_resources_); }
  bool local(i32 pod) const { return local_[idx(pod)] != 0 && users_.empty(); }
  const std::vector<NodeDisk>& disks(i32 node) const { return disks_[idx(node)]; }
  const std::vector<NodeVolume>& volumes(i32 node) const { return volumes_[idx(node)]; }
  u64 checksum() const;                               // of all counters: equal states have equal sums

  i64 cursor = 0;                                     // last matched position; never reset by fork or revert

 private:
  static std::size_t idx(i32 i) { return static_cast<std::size_t>(i); }
  bool logs_counters() const { return !marks_.empty() && !counters_copied_; }
  bool journaled(i32 node) const { return node < floor_; }
  void log(Undo what, i32 a, i32 b, i32 c, i64 value) { journal_.push_back({what, a, b, c, value}); }
  void rollback(const Entry& entry);
  void count(i32 row, i32 domain, i64 delta);
  void enroll(i32 row, i32 node, i32 delta);          // a node joins or leaves a spread row
  bool leaves_ghosts(i32 row) const { return !ghost_leaves_.empty() && ghost_leaves_[idx(row)]; }
  void gone(i32 node);
  i32 tell(DeviceCall what, i32 a = 0, i32 b = 0) const { return ledger_ ? ledger_(ledger_context_, what, a, b) : 0; }
  void shape(i32 row);                                // log a row's minimum before it changes
  static void recount(Row& row, i64 count, i32 delta);  // a registered domain comes to, or leaves, a count
  static void settle(Row& row);                         // the minimum after counts went up
  void take_ports(const Extra& extra, i32 node);
  void return_ports(const Extra& extra, i32 node);
  void rebuild_any(i32 node);
  void touch(const Extra& extra, i32 node, i64 times);
  bool attaches(const Volume& v, i32 node) const {
    return v.plugin < 0 || (migrated_[idx(node)] >> v.plugin & 1);
  }
  struct Candidates;                                  // per class: nodes it has not failed on
  u64 stamp(i32 pod) const;
  Candidates* candidates(i32 pod, i32 low);
  i32 scan_range(i32 pod, i32 low, i32 high, const u8* acceptable);
  i32 scan_memo(i32 pod, Candidates& memo, i32 low, i32 high, const u8* acceptable);
  u16 static_bits(i32 pod, i32 node) const {
    return statics_[static_cast<std::size_t>(static_row_[idx(pod)]) * n_node_classes_ + idx(class_[idx(node)])];
  }

  i32 n_resources_, port_words_, specific_words_;
  u16 enabled_;
  // nodes
  std::vector<std::vector<i64>> free_;    // [resource][node]
  std::vector<i64> slots_;
  std::vector<i32> class_;
  std::vector<u8> cordoned_;
  std::vector<u8> gone_;                  // sized with the nodes
  std::vector<i32> removed_;              // sorted
  std::vector<std::vector<i32>> domain_;  // [key][node]
  std::vector<i32> n_domains_;
  std::vector<u64> any_port_, wild_port_, specific_port_;  // [node][words]
  std::vector<std::vector<NodeDisk>> disks_;               // empty while no class has disks
  std::vector<std::vector<NodeVolume>> volumes_;           // empty while there is no driver
  std::vector<std::vector<i32>> limit_;                    // [driver][node]
  std::vector<u32> migrated_;                              // [node]
  // verdict tables
  std::size_t n_node_classes_ = 0;
  std::vector<u16> statics_;
  std::vector<u8> eligible_;
  // pod classes
  std::vector<i64> request_, occupancy_;  // [class][resource]
  std::vector<i32> columns_;              // [class][n_resources]: those with a positive request, then unused
  std::vector<i32> n_columns_;
  std::vector<i32> static_row_;
  std::vector<u8> prefilter_failed_, hostname_spread_, local_, plain_occupancy_;
  std::vector<std::shared_ptr<const Extra>> extra_;  // copies of the engine share them
  std::vector<Port> specific_of_;         // specific port id -> its (key, id)
  // counters
  std::vector<Row> rows_;
  std::vector<i32> spread_rows_;
  std::vector<u8> ghost_leaves_;          // [row], or empty
  std::vector<i64> totals_;
  std::vector<User> users_;
  mutable i32 user_failed_ = -1;
  std::vector<i64> claim_users_;
  DeviceLedger ledger_ = nullptr;
  void* ledger_context_ = nullptr;
  // undo
  std::vector<Entry> journal_;
  std::vector<Mark> marks_;
  bool counters_copied_ = false;
  std::vector<Row> rows_before_;
  std::vector<i64> totals_before_, claims_before_;
  i32 floor_ = 0;                         // nodes below it need journal entries
  // memory of failures; valid while nothing grows
  u64 growth_ = 1;
  std::vector<std::shared_ptr<Candidates>> memo_;
  std::vector<u8> scans_;
  std::size_t memo_entries_ = 0;

 public:
  ~Engine();
  std::unique_ptr<Engine> copy() const;   // another engine in the same state, outside forks; remembers no failures
  Engine& operator=(const Engine&) = delete;

 private:
  Engine(const Engine&) = default;
};

}  // namespace kscale::engine
