#pragma once

#include <algorithm>
#include <vector>

#include "kscale/engine/journal.hpp"
#include "kscale/engine/plugins.hpp"
#include "kscale/engine/pod_classes.hpp"

namespace kscale::engine {

struct NodeVolume {
  i32 handle;
  i32 driver;
  i32 references;  // pods on the node that use it
  u8 attachment;   // a VolumeAttachment says so
};

// NodeVolumeLimits: volumes attached to each node, and how many of a driver it takes. The Python side is
// kscale/scheduling/plugins/node_volume_limits.py.
class NodeVolumeLimits {
 public:
  i32 drivers() const { return static_cast<i32>(limit_.size()); }
  i32 add_driver(const i32* limit, std::size_t nodes) {  // per node; -1 = no limit
    limit_.emplace_back(limit, limit + nodes);
    volumes_.resize(nodes);
    return drivers() - 1;
  }
  void set_migrated(const u32* plugins) { std::copy(plugins, plugins + migrated_.size(), migrated_.begin()); }

  void append(std::size_t n) { migrated_.resize(migrated_.size() + n, 0); }
  void append(u32 migrated, const std::vector<i32>& limits) {
    migrated_.push_back(migrated);
    if (limit_.empty()) return;
    volumes_.emplace_back();
    for (std::size_t d = 0; d < limit_.size(); ++d) limit_[d].push_back(limits[d]);
  }
  void shrink(std::size_t nodes) {
    migrated_.resize(nodes);
    if (limit_.empty()) return;
    volumes_.resize(nodes);
    for (auto& column : limit_) column.resize(nodes);
  }

  // `driver` receives the number of the first driver whose limit would be exceeded.
  Code check(const Extra& extra, i32 node, i32* driver) const {
    if (limit_.empty()) return kFits;
    const auto& used = volumes_[idx(node)];
    for (const Volume& wanted : extra.volumes) {
      if (!attaches(wanted, node)) continue;
      const i32 limit = limit_[idx(wanted.driver)][idx(node)];
      if (limit < 0) continue;
      i64 total = 0;
      for (const NodeVolume& v : used) total += v.driver == wanted.driver && (v.references > 0 || v.attachment);
      bool any_new = false;
      for (const Volume& v : extra.volumes) {
        if (v.driver != wanted.driver || !attaches(v, node)) continue;
        const bool attached = std::any_of(used.begin(), used.end(), [&](const NodeVolume& u) {
          return u.handle == v.handle && u.references > 0;
        });
        total += !attached;  // upstream counts a handle that is only attached twice
        any_new = any_new || !attached;
      }
      if (any_new && total > limit) {
        if (driver) *driver = wanted.driver;
        return code(kNodeVolumeLimits);
      }
    }
    return kFits;
  }

  void attach(i32 node, i32 handle, i32 driver) { of(node, handle, driver).attachment = 1; }  // before any fork
  void take(const Extra& extra, i32 node, Journal& journal) {
    for (const Volume& volume : extra.volumes)
      if (attaches(volume, node)) change(of(node, volume.handle, volume.driver), node, 1, journal);
  }
  void give_back(const Extra& extra, i32 node, Journal& journal) {
    for (const Volume& volume : extra.volumes) {
      if (!attaches(volume, node)) continue;
      auto& list = volumes_[idx(node)];
      if (const auto found = find(list, volume.handle); found != list.end()) change(*found, node, -1, journal);
    }
  }

  void rollback(const Entry& e) {
    auto& list = volumes_[idx(e.b)];
    auto found = find(list, e.a);
    if (found == list.end()) found = list.insert(list.end(), NodeVolume{e.a, e.c, 0, 0});
    found->references = static_cast<i32>(e.value);
    if (!found->references && !found->attachment) list.erase(found);
  }

  void mix(Checksum& sum) const {
    for (std::size_t n = 0; n < volumes_.size(); ++n) {
      u64 of_node = 0;
      for (const NodeVolume& v : volumes_[n])
        of_node += static_cast<u64>(v.handle + 1) * (static_cast<u64>(v.references) * 3u + v.attachment);
      if (of_node) sum.mix(of_node * 43 + n);
    }
  }

 private:
  bool attaches(const Volume& v, i32 node) const { return v.plugin < 0 || (migrated_[idx(node)] >> v.plugin & 1); }
  static std::vector<NodeVolume>::iterator find(std::vector<NodeVolume>& list, i32 handle) {
    return std::find_if(list.begin(), list.end(), [handle](const NodeVolume& v) { return v.handle == handle; });
  }
  NodeVolume& of(i32 node, i32 handle, i32 driver) {
    auto& list = volumes_[idx(node)];
    auto found = find(list, handle);
    if (found == list.end()) found = list.insert(list.end(), NodeVolume{handle, driver, 0, 0});
    return *found;
  }
  static void change(NodeVolume& used, i32 node, i32 delta, Journal& journal) {
    if (journal.keeps(node)) journal.log(Undo::kVolume, used.handle, node, used.driver, used.references);
    used.references += delta;
  }

  std::vector<std::vector<NodeVolume>> volumes_;  // [node]; empty while there is no driver
  std::vector<std::vector<i32>> limit_;           // [driver][node]
  std::vector<u32> migrated_;                     // [node], a bit per in-tree volume plug-in
};

}  // namespace kscale::engine
