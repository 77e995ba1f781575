#pragma once

#include "kscale/engine/plugins.hpp"
#include "kscale/engine/topology.hpp"

namespace kscale::engine {

// PodTopologySpread: no domain may exceed the minimum by more than maxSkew. The Python side, which finds the rows, is
// kscale/scheduling/plugins/pod_topology_spread.py. `which` receives the number of the constraint that fails.
inline Code check_pod_topology_spread(const Topology& topology, const Extra& extra, i32 node, i32* which) {
  i32 i = 0;
  for (const SpreadUse& use : extra.spread) {
    const Row& row = topology.row(use.row);
    const i32 d = topology.domain(row.key, node);
    if (which) *which = i;
    if (d < 0) return code(kPodTopologySpread, kMissingKey);
    const bool known = idx(d) < row.registered.size() && row.registered[idx(d)] > 0;
    const i64 count = known ? row.count[idx(d)] : 0;
    const i64 minimum = row.domains == 0 || row.domains < use.min_domains ? 0 : row.min;
    if (count + use.self - minimum > use.max_skew) return code(kPodTopologySpread, kSkew);
    ++i;
  }
  return kFits;
}

}  // namespace kscale::engine
