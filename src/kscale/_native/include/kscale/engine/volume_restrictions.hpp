#pragma once

#include <algorithm>
#include <vector>

#include "kscale/engine/journal.hpp"
#include "kscale/engine/plugins.hpp"
#include "kscale/engine/pod_classes.hpp"

namespace kscale::engine {

struct NodeDisk {
  i32 id;
  i32 read_write;  // pods on the node that use it in this mode
  i32 read_only;
};

// VolumeRestrictions: inline disks in use on each node, and how many pods use a ReadWriteOncePod claim. The Python side
// is kscale/scheduling/plugins/volume_restrictions.py.
class VolumeRestrictions {
 public:
  i32 add_claim(i64 users) {
    users_.push_back(users);
    return static_cast<i32>(users_.size()) - 1;
  }
  i64 users(i32 claim) const { return users_[idx(claim)]; }
  std::size_t claims() const { return users_.size(); }
  void resize(std::size_t nodes) {
    if (!disks_.empty()) disks_.resize(nodes);
  }

  Code check(const Extra& extra, i32 node) const {
    if (!disks_.empty() && !extra.disks.empty())
      for (const NodeDisk& used : disks_[idx(node)])
        for (const Disk& disk : extra.disks)
          if (used.id == disk.id && (used.read_write > 0 || (!disk.read_only && used.read_only > 0)))
            return code(kVolumeRestrictions, kDiskConflict);
    for (const i32 claim : extra.rwop)
      if (users_[idx(claim)] > 0) return code(kVolumeRestrictions, kClaimInUse);
    return kFits;
  }

  void use_disk(i32 node, std::size_t nodes, const Disk& disk, Journal& journal) {
    if (disks_.empty()) disks_.resize(nodes);
    auto& list = disks_[idx(node)];
    auto found = find(list, disk.id);
    if (found == list.end()) found = list.insert(list.end(), NodeDisk{disk.id, 0, 0});
    change(*found, disk, node, 1, journal);
  }

  void take(const Extra& extra, i32 node, std::size_t nodes, i64 times, Journal& journal) {
    for (const Disk& disk : extra.disks) use_disk(node, nodes, disk, journal);
    count(extra, times, journal);
  }

  void give_back(const Extra& extra, i32 node, Journal& journal) {
    for (const Disk& disk : extra.disks) {
      if (disks_.empty()) break;
      auto& list = disks_[idx(node)];
      if (const auto found = find(list, disk.id); found != list.end()) change(*found, disk, node, -1, journal);
    }
    count(extra, -1, journal);
  }

  void rollback(const Entry& e) {
    if (e.what == Undo::kClaimUse) {
      users_[idx(e.a)] = e.value;
      return;
    }
    auto& list = disks_[idx(e.b)];
    auto found = find(list, e.a);
    if (found == list.end()) found = list.insert(list.end(), NodeDisk{e.a, 0, 0});  // removed before, and restored now
    (e.c ? found->read_only : found->read_write) = static_cast<i32>(e.value);
    if (!found->read_only && !found->read_write) list.erase(found);
  }

  void copy_counters() { users_before_ = users_; }
  void restore_counters() { users_.swap(users_before_); }

  void mix(Checksum& sum) const {
    for (const i64 v : users_) sum.mix(static_cast<u64>(v));
    for (std::size_t n = 0; n < disks_.size(); ++n) {  // nodes without any do not count
      u64 of_node = 0;
      for (const NodeDisk& d : disks_[n])
        of_node +=
            static_cast<u64>(d.id + 1) * (static_cast<u64>(d.read_write) * 1000003u + static_cast<u64>(d.read_only));
      if (of_node) sum.mix(of_node * 41 + n);
    }
  }

 private:
  static std::vector<NodeDisk>::iterator find(std::vector<NodeDisk>& list, i32 id) {
    return std::find_if(list.begin(), list.end(), [id](const NodeDisk& d) { return d.id == id; });
  }
  static void change(NodeDisk& used, const Disk& disk, i32 node, i32 delta, Journal& journal) {
    i32& references = disk.read_only ? used.read_only : used.read_write;
    if (journal.keeps(node)) journal.log(Undo::kDisk, disk.id, node, disk.read_only, references);
    references += delta;
  }
  void count(const Extra& extra, i64 times, Journal& journal) {
    for (const i32 claim : extra.claims) {
      if (journal.counters()) journal.log(Undo::kClaimUse, claim, 0, 0, users_[idx(claim)]);
      users_[idx(claim)] += times;
    }
  }

  std::vector<std::vector<NodeDisk>> disks_;  // empty while no class has disks
  std::vector<i64> users_, users_before_;     // [claim]
};

}  // namespace kscale::engine
