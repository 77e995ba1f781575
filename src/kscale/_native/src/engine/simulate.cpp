// TrySchedulePods (simulator/scheduling/hinting_simulator.go), and the cache of similar pods that found no node
// (similar_pods.go). scheduling/equivalent_pods.py decides which pods are similar.
#include "kscale/engine/simulate.hpp"

namespace kscale::engine {

void try_schedule(Engine& engine, const SimulateInput& in, SimulateOutput& out, Interrupted interrupted,
                  void* context) {
  constexpr i32 most_shapes = 10;  // number of shapes remembered per controller
  std::vector<u8> failed(static_cast<std::size_t>(in.n_similar), 0);
  std::vector<i32> shapes(static_cast<std::size_t>(in.n_controllers), 0);
  std::vector<u8> overflowing(static_cast<std::size_t>(in.n_controllers), 0);
  std::vector<i32> rest;
  for (i32 p = 0; p < in.n_pods; ++p) out.node[p] = kNotTried;
  auto put = [&](i32 p, i32 node) {
    engine.place(in.pod_class[p], node);
    out.node[p] = node;
    out.order[out.placed++] = p;
  };
  i64 looks = 0;
  const auto expired = [&] { return in.max_looks >= 0 && looks++ >= in.max_looks; };
  for (i32 g = 0; g < in.n_groups; ++g) {
    rest.clear();
    for (i32 p = in.group_start[g]; p < in.group_start[g + 1]; ++p) {
      if (expired()) return;
      const i32 hint = in.hint[p];
      const bool usable = hint >= 0 && engine.alive(hint) && (!in.acceptable || in.acceptable[hint]);
      if (usable && engine.check_single(in.pod_class[p], hint) == kFits)
        put(p, hint);
      else
        rest.push_back(p);
    }
    i32 looked = 0;
    for (const i32 p : rest) {
      if (interrupted && (++looked & 1023) == 0 && interrupted(context)) {
        out.status = 2;
        return;
      }
      if (expired()) return;
      const i32 similar = in.similar[p];
      i32 node = -1;
      if (similar < 0 || !failed[static_cast<std::size_t>(similar)]) {
        node = engine.any_node(in.pod_class[p], in.acceptable);
        if (node < 0 && similar >= 0) {
          const std::size_t controller = static_cast<std::size_t>(in.controller[p]);
          if (shapes[controller] < most_shapes) {
            ++shapes[controller];
            failed[static_cast<std::size_t>(similar)] = 1;
          } else if (!overflowing[controller]) {
            overflowing[controller] = 1;
            ++out.overflowing;
          }
        }
      }
      if (node >= 0) {
        put(p, node);
        continue;
      }
      out.node[p] = kNowhere;
      if (in.break_on_failure) break;
    }
  }
}

}  // namespace kscale::engine
