#include "kscale/engine/select.hpp"

#include <algorithm>

#include "kscale/engine/simulate.hpp"

namespace kscale::engine {

i32 enough_nodes(i32 nodes, i32 percentage) {
  constexpr i32 least = 100, least_percentage = 5;
  if (nodes < least) return nodes;
  if (percentage == 0) percentage = std::max(50 - nodes / 125, least_percentage);
  return std::max(nodes * percentage / 100, least);
}

void select_nodes(Engine& engine, Scorer& scorer, const SelectInput& in, SelectOutput& out, Interrupted interrupted,
                  void* context) {
  for (i32 p = 0; p < in.n_pods; ++p) out.node[p] = kNotTried;
  out.start = in.start;
  std::vector<i32> all, some, feasible;
  for (i32 n = 0; n < engine.nodes(); ++n)
    if (engine.alive(n) && (!in.acceptable || in.acceptable[n])) all.push_back(n);
  std::vector<i64> totals;
  const bool idle = scorer.idle();
  for (i32 p = 0; p < in.n_pods; ++p) {
    if (interrupted && (p & 63) == 63 && interrupted(context)) {
      out.status = 2;
      return;
    }
    const i32 pod = in.pod_class[p];
    out.node[p] = kNowhere;
    if (all.empty() || engine.pods().prefilter_failed(pod)) continue;
    const std::vector<i32>* among = &all;
    if (const i32 set = in.node_set[p]; set >= 0) {
      some.clear();
      for (i32 i = in.set_start[set]; i < in.set_start[set + 1]; ++i)
        if (std::binary_search(all.begin(), all.end(), in.set_nodes[i])) some.push_back(in.set_nodes[i]);
      among = &some;
    }
    const std::size_t count = among->size();
    const std::size_t wanted = idle ? 1 : idx(enough_nodes(static_cast<i32>(count), in.percentage));
    feasible.clear();
    std::size_t looked = 0;
    for (std::size_t at = count ? static_cast<std::size_t>(out.start) % count : 0; looked < count; ++looked) {
      const i32 node = (*among)[at];
      if (++at == count) at = 0;
      if (engine.check(pod, node) != kFits) continue;
      if (feasible.size() == wanted) break;  // the search ends after one more than enough
      feasible.push_back(node);
    }
    out.start = static_cast<i64>((static_cast<std::size_t>(out.start) + looked) % all.size());
    if (feasible.empty() || (feasible.size() > 1 && scorer.broken(in.score_class[p]))) continue;
    i32 chosen = feasible[0];
    if (feasible.size() > 1) {
      totals.resize(feasible.size());
      if (!scorer.score(in.score_class[p], feasible.data(), static_cast<i32>(feasible.size()), totals.data(), nullptr)) {
        out.node[p] = kNotTried;
        out.status = 1;
        return;
      }
      std::size_t best = 0;
      for (std::size_t i = 1; i < feasible.size(); ++i)
        if (totals[i] > totals[best] || (totals[i] == totals[best] && feasible[i] < feasible[best])) best = i;
      chosen = feasible[best];
    }
    engine.place(pod, chosen);
    scorer.place(in.score_class[p], chosen);
    out.node[p] = chosen;
    out.order[out.placed++] = p;
  }
}

}  // namespace kscale::engine
