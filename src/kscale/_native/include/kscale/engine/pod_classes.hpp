#pragma once

#include <memory>
#include <vector>

#include "kscale/engine/types.hpp"

namespace kscale::engine {

struct SpreadUse {  // one hard topology spread constraint of a pod class, in spec order
  i32 row;
  i64 max_skew;
  i64 min_domains;
  i32 self;  // 1: the pod matches its own selector
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
  i32 plugin;  // in-tree plug-in from which it must be migrated, or -1: it counts only on nodes that have migrated it
};

// The properties of a pod class besides requests and a static row. Most classes have none.
struct Extra {
  std::vector<Port> ports;
  std::vector<SpreadUse> spread;
  std::vector<i32> spread_touch;  // spread rows that count pods of this class
  std::vector<i32> affinity;      // one row per distinct key of the pod's affinity list
  i32 affinity_group = -1;
  bool self_affine = false;       // the pod matches all its own affinity terms
  std::vector<i32> own_anti;      // placed pods that the pod's anti-affinity terms match
  std::vector<i32> blocked_by;    // placed pods that carry an anti-affinity term which matches the pod
  std::vector<i32> touch;         // rows (affinity, own anti, carried anti) that count placed pods of this class
  std::vector<i32> rwop;          // ReadWriteOncePod claims the pod wants
  std::vector<i32> claims;        // claims whose use is counted
  std::vector<Disk> disks;
  std::vector<Volume> volumes;
  bool devices = false;           // requests devices from a ledger outside of the engine

  bool local() const {  // the verdict depends on the node's own resources, pod count and ports only
    return spread.empty() && affinity_group < 0 && own_anti.empty() && blocked_by.empty() && rwop.empty() &&
           disks.empty() && volumes.empty() && !devices;
  }
};

using Extras = std::vector<std::shared_ptr<const Extra>>;  // null = nothing; several engines may share them

// The pod classes of the engine, by number. Shared by copies of an engine, and never changed while shared.
class PodClasses {
 public:
  explicit PodClasses(i32 resources) : n_(idx(resources)) {}

  // request, occupancy: [resources]; prefilter_failed: no node is ever tried.
  void add(const i64* request, const i64* occupancy, i32 static_row, bool prefilter_failed, bool hostname_spread,
           std::shared_ptr<const Extra> extra) {
    request_.insert(request_.end(), request, request + n_);
    occupancy_.insert(occupancy_.end(), occupancy, occupancy + n_);
    columns_.resize(columns_.size() + n_, 0);
    i32 wanted = 0;
    bool plain = true;
    constexpr i64 most = i64{1} << 59;
    for (std::size_t r = 0; r < n_; ++r) {
      if (request[r] > 0) columns_[columns_.size() - n_ + idx(wanted++)] = static_cast<i32>(r);
      plain = plain && occupancy[r] >= 0 && occupancy[r] < most && request[r] < most;
      gives_back_ = gives_back_ || occupancy[r] < 0;
    }
    n_columns_.push_back(wanted);
    static_row_.push_back(static_row);
    flags_.push_back(static_cast<u8>((prefilter_failed ? kFailed : 0) | (hostname_spread ? kHostname : 0) |
                                     (plain ? kPlain : 0) | (!extra || extra->local() ? kLocal : 0)));
    extra_.push_back(std::move(extra));
  }

  i32 size() const { return static_cast<i32>(static_row_.size()); }
  const i64* request(i32 pod) const { return request_.data() + idx(pod) * n_; }
  const i64* occupancy(i32 pod) const { return occupancy_.data() + idx(pod) * n_; }
  const i32* columns(i32 pod) const { return columns_.data() + idx(pod) * n_; }  // those with a positive request
  i32 n_columns(i32 pod) const { return n_columns_[idx(pod)]; }
  i32 static_row(i32 pod) const { return static_row_[idx(pod)]; }
  const Extra* extra(i32 pod) const { return extra_[idx(pod)].get(); }
  bool prefilter_failed(i32 pod) const { return flags_[idx(pod)] & kFailed; }
  bool hostname_spread(i32 pod) const { return flags_[idx(pod)] & kHostname; }
  bool plain(i32 pod) const { return flags_[idx(pod)] & kPlain; }  // sums in a simulation cannot overflow
  bool local(i32 pod) const { return flags_[idx(pod)] & kLocal; }
  bool gives_back() const { return gives_back_; }  // some amount overflowed: placing such a pod increases the free room

 private:
  enum : u8 { kFailed = 1, kHostname = 2, kPlain = 4, kLocal = 8 };
  std::size_t n_;
  std::vector<i64> request_, occupancy_;  // [class][resource]
  std::vector<i32> columns_, n_columns_, static_row_;
  std::vector<u8> flags_;
  Extras extra_;
  bool gives_back_ = false;
};

}  // namespace kscale::engine
