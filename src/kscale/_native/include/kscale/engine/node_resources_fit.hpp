#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "kscale/engine/journal.hpp"
#include "kscale/engine/plugins.hpp"
#include "kscale/engine/pod_classes.hpp"

namespace kscale::engine {

// NodeResourcesFit: what is free on each node, and how many more pods it takes. The Python side is
// kscale/scheduling/plugins/node_resources_fit.py.
class NodeResourcesFit {
 public:
  explicit NodeResourcesFit(i32 resources) : free_(idx(resources)) {}

  i32 resources() const { return static_cast<i32>(free_.size()); }
  i64 free(i32 resource, i32 node) const { return free_[idx(resource)][idx(node)]; }
  i64 slots(i32 node) const { return slots_[idx(node)]; }
  const i64* column(i32 resource) const { return free_[idx(resource)].data(); }
  const i64* slots() const { return slots_.data(); }

  void append(std::size_t n, const i64* free, const i64* slots) {  // free: [resources][n]
    for (std::size_t r = 0; r < free_.size(); ++r)
      free_[r].insert(free_[r].end(), free + r * n, free + (r + 1) * n);
    slots_.insert(slots_.end(), slots, slots + n);
  }
  void append(const std::vector<i64>& free, i64 slots) {
    for (std::size_t r = 0; r < free_.size(); ++r) free_[r].push_back(free[r]);
    slots_.push_back(slots);
  }
  void shrink(std::size_t nodes) {
    for (auto& column : free_) column.resize(nodes);
    slots_.resize(nodes);
  }

  Code check(const PodClasses& pods, i32 pod, i32 node) const {
    bool fits = slots_[idx(node)] >= 1;
    const i32* columns = pods.columns(pod);
    const i64* request = pods.request(pod);
    for (i32 c = 0; c < pods.n_columns(pod); ++c) fits &= free_[idx(columns[c])][idx(node)] >= request[columns[c]];
    return fits ? kFits : code(kNodeResourcesFit);
  }

  // Returns how many pods of a class fit there one after the other; at least one fits.
  i64 capacity(const PodClasses& pods, i32 pod, i32 node) const {
    i64 most = slots_[idx(node)];
    const i32* columns = pods.columns(pod);
    const i64* request = pods.request(pod);
    const i64* occupancy = pods.occupancy(pod);
    for (i32 c = 0; c < pods.n_columns(pod); ++c) {
      const i32 r = columns[c];
      // The i-th pod fits while request <= free - (i - 1) * occupancy.
      if (occupancy[r] > 0) most = std::min(most, 1 + (free_[idx(r)][idx(node)] - request[r]) / occupancy[r]);
    }
    return most;
  }

  void take(const PodClasses& pods, i32 pod, i32 node, i64 times, Journal& journal) {
    const i64* occupancy = pods.occupancy(pod);
    const bool keep = journal.keeps(node);
    for (i32 r = 0; r < resources(); ++r) {
      if (occupancy[r] == 0) continue;
      i64& cell = free_[idx(r)][idx(node)];
      if (keep) journal.log(Undo::kFree, r, node, 0, cell);
      cell -= occupancy[r] * times;
    }
    if (keep) journal.log(Undo::kSlots, 0, node, 0, slots_[idx(node)]);
    slots_[idx(node)] -= times;
  }

  void rollback(const Entry& e) {
    if (e.what == Undo::kFree)
      free_[idx(e.a)][idx(e.b)] = e.value;
    else
      slots_[idx(e.b)] = e.value;
  }

  void mix(Checksum& sum) const {
    for (const auto& column : free_)
      for (const i64 v : column) sum.mix(static_cast<u64>(v));
    for (const i64 v : slots_) sum.mix(static_cast<u64>(v));
  }

 private:
  std::vector<std::vector<i64>> free_;  // [resource][node]
  std::vector<i64> slots_;
};

}  // namespace kscale::engine
