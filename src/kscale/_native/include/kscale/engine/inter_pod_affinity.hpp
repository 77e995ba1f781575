#pragma once

#include <vector>

#include "kscale/engine/domain_mask.hpp"
#include "kscale/engine/plugins.hpp"
#include "kscale/engine/topology.hpp"

namespace kscale::engine {

// InterPodAffinity: the node's domains must have pods that match the affinity terms, and none that match the
// anti-affinity terms. The Python side, which finds the rows, is kscale/scheduling/plugins/inter_pod_affinity.py.
// `which` receives the number of the term that fails.
inline Code check_inter_pod_affinity(const Topology& topology, const Extra& extra, i32 node, i32* which) {
  if (extra.affinity_group >= 0) {
    bool keys = true;
    bool all = true;
    i32 i = 0;
    for (const i32 r : extra.affinity) {
      const Row& row = topology.row(r);
      if (topology.domain(row.key, node) < 0) {
        keys = false;
        if (which) *which = i;
        break;
      }
      if (all && topology.count_at(row, node) <= 0) {
        all = false;
        if (which) *which = i;
      }
      ++i;
    }
    // The first pod of a group whose members require each other may go to any node that has the keys.
    const bool first = extra.self_affine && topology.total(extra.affinity_group) == 0;
    if (!keys || !(all || first)) return code(kInterPodAffinity, kAffinity);
  }
  const auto held = [&](const std::vector<i32>& rows) {
    i32 i = 0;
    for (const i32 r : rows) {
      if (topology.count_at(topology.row(r), node) > 0) {
        if (which) *which = i;
        return true;
      }
      ++i;
    }
    return false;
  };
  if (held(extra.own_anti)) return code(kInterPodAffinity, kOwnAntiAffinity);
  if (held(extra.blocked_by)) return code(kInterPodAffinity, kExistingAntiAffinity);
  return kFits;
}

// Returns, as bits, which of `n` <= 64 nodes from `base` on have no domain with a pod that an anti-affinity term
// matches.
inline u64 without_unwanted(const Topology& topology, const Extra& extra, i32 base, i32 n, u64 mask) {
  for (const std::vector<i32>* rows : {&extra.own_anti, &extra.blocked_by}) {
    for (const i32 r : *rows) {
      if (!mask) return 0;
      const Row& row = topology.row(r);
      mask &= ~counted_mask(topology.column(row.key) + base, row.count.data(), row.count.size(), n, mask);
    }
  }
  return mask;
}

}  // namespace kscale::engine
