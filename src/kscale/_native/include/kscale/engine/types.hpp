#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// The packing engine's vocabulary. A *class* is a set of pods (or nodes) that no predicate can tell apart; a *row* is a
// counter per topology domain; everything is an index.

namespace kscale::engine {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

// Filter plug-ins by their place in the default profile of Kubernetes 1.37. Bit 0 of a verdict is "the PreFilter node
// set leaves this node out", which comes before every Filter.
enum Plugin : u32 {
  kFiltered = 0,
  kNodeName = 1,
  kNodeUnschedulable = 2,
  kTaintToleration = 3,
  kNodeAffinity = 4,
  kNodePorts = 5,
  kNodeResourcesFit = 6,
  kVolumeRestrictions = 7,
  kNodeVolumeLimits = 8,
  kVolumeBinding = 9,
  kVolumeZone = 10,
  kPodTopologySpread = 11,
  kInterPodAffinity = 12,
  kDynamicResources = 13,
  kNodeDeclaredFeatures = 14,
  kUserPlugin = 15,
};

// A verdict: 0 = the pod fits; else plug-in | detail << 8 (kFiltered is reported as kFilteredCode, since 0 means "fits").
constexpr u32 kFits = 0;
constexpr u32 kFilteredCode = 0xFF;
constexpr u32 kPreFilterCode = 0xFE;
constexpr u32 code(u32 plugin, u32 detail = 0) { return plugin | detail << 8; }

// Details.
enum : u32 {
  kDiskConflict = 1, kClaimInUse = 2,                      // VolumeRestrictions
  kSkew = 1, kMissingKey = 2,                              // PodTopologySpread
  kAffinity = 1, kOwnAntiAffinity = 2, kExistingAntiAffinity = 3,  // InterPodAffinity
};

constexpr u16 bit(u32 plugin) { return static_cast<u16>(1u << plugin); }
constexpr u16 kEarlyStatic = bit(kFiltered) | bit(kNodeName) | bit(kNodeUnschedulable) | bit(kTaintToleration) | bit(kNodeAffinity);

struct SpreadUse {  // one hard topology spread constraint of a pod class, in spec order
  i32 row;
  i32 key;
  i64 max_skew;
  i64 min_domains;
  i32 self;  // 1: the pod matches its own selector
};

struct RowKey {
  i32 row;
  i32 key;
};

struct Port {
  i32 key;       // id of (protocol, port)
  i32 specific;  // id of (ip, protocol, port), or -1 for the wildcard address
};

struct Disk {
  i32 id;
  u8 read_only;
};

struct Volume {  // an attachable volume: counted once per node and handle
  i32 handle;
  i32 driver;
  i32 plugin;  // in-tree plug-in it has to be migrated from, or -1: it counts only on nodes that say so
};

// What a pod class has beyond requests and a static row. Most classes have none.
struct Extra {
  std::vector<Port> ports;
  std::vector<SpreadUse> spread;
  std::vector<i32> spread_touch;    // spread rows that count such a pod
  std::vector<RowKey> affinity;     // one row per distinct key of the pod's affinity list
  i32 affinity_group = -1;
  bool self_affine = false;         // the pod matches all its own affinity terms
  std::vector<RowKey> own_anti;     // placed pods that the pod's anti-affinity terms match
  std::vector<RowKey> blocked_by;   // placed pods that carry an anti-affinity term which matches the pod
  std::vector<RowKey> touch;        // rows (affinity, own anti, carried anti) that count such a pod once placed
  std::vector<i32> rwop;            // ReadWriteOncePod claims the pod wants
  std::vector<i32> claims;          // claims whose use is counted
  std::vector<Disk> disks;
  std::vector<Volume> volumes;
  bool devices = false;             // asks for devices that a ledger outside of the engine keeps

  bool local() const {  // the verdict depends on the node's own resources, pod count and ports only
    return spread.empty() && affinity_group < 0 && own_anti.empty() && blocked_by.empty() && rwop.empty() &&
           disks.empty() && volumes.empty() && !devices;
  }
};

// A counter per topology domain.
struct Row {
  i32 key = 0;
  i32 group = -1;        // affinity group whose total it feeds
  i32 eligibility = -1;  // spread: row of the eligibility table; -1 = not a spread row
  std::vector<i64> count;
  std::vector<i32> registered;  // spread: eligible nodes per domain; a domain exists while this is > 0
  i32 domains = 0;              // registered ones
  i64 min = 0;                  // over the registered ones
  std::vector<i32> with_count;  // how many registered domains have a count
  bool wants_domains = false;  // some constraint has minDomains > 1
  u64 version = 0;  // moves when the row may have become more permissive
};

// A predicate of the user's, compiled to a C function: 0 = fits, 1 = does not, anything else = it failed.
// `request` and `free` hold the columns it asked for. Called without the GIL.
using UserPredicate = i32 (*)(const i64* request, const i64* free, i64 n_columns, i64 slots, i64 pod, i64 node);

// A ledger of devices, outside of the engine; may be called without the GIL.
enum class DeviceCall : i32 {
  kCheck,    // a: pod, b: node; 1 = passes
  kPlace,    // a: pod, b: node; 1 = some verdict may have improved
  kUnplace,  // a: pod, b: node
  kAdd,      // a: template, b: copy
  kFork,
  kRevert,
  kCommit,
};
using DeviceLedger = i32 (*)(void* context, DeviceCall what, i32 a, i32 b);

struct User {
  UserPredicate predicate = nullptr;
  std::vector<i32> columns;
};

struct Template {  // a prepared node to copy
  i32 number = 0;           // by which the ledger of devices knows it
  i32 node_class = 0;
  u8 unschedulable = 0;
  i64 slots = 0;
  u32 migrated = 0;         // bit per in-tree volume plug-in
  std::vector<i64> free;    // by resource, pods on the template already taken off
  std::vector<i32> domain;  // by key; -1 = label absent; -2 = a domain of its own for every copy
  std::vector<i32> pods;    // classes of the pods that come with it (for counters and ports)
  std::vector<i32> limits;  // by driver; -1 = no limit
  std::vector<i32> exception_index, exception_class;  // copies whose name some selector spells out
  i32 named_key = -1;                                 // the key whose value is the copy's own name
  std::vector<i32> taken_index, taken_domain;         // copies whose name is a value of that key already

  // The domain of a copy that would have its own, or -2.
  i32 domain_of_copy(i32 key, i32 copy) const {
    if (key != named_key) return -2;
    for (std::size_t i = 0; i < taken_index.size(); ++i)
      if (taken_index[i] == copy) return taken_domain[i];
    return -2;
  }
};

}  // namespace kscale::engine
