#include "kscale/engine/losses.hpp"

#include <algorithm>

namespace kscale::engine {

Losses::Losses(Engine& engine, i32 pods, const i32* pod_class, const i64* priority, const i32* node)
    : engine_(engine),
      search_(engine),
      class_(pod_class, pod_class + pods),
      priority_(priority, priority + pods),
      on_node_(at(engine.nodes())) {
  for (i32 p = 0; p < pods; ++p)
    if (node[p] >= 0) on_node_[at(node[p])].push_back(p);
}

void Losses::run(const LossInput& in, i32 from, i32 to, LossOutput& out, Interrupted interrupted, void* context) {
  const i64 cursor = engine_.cursor;
  std::vector<i32> moving, classes;
  for (i32 part = from; part < to; ++part) {
    if (interrupted && ((part - from) & 63) == 63 && interrupted(context)) return;
    engine_.cursor = cursor;
    engine_.fork();
    search_.begin();
    moving.clear();
    for (i32 i = in.start[part]; i < in.start[part + 1]; ++i) {
      const i32 node = in.nodes[i];
      classes.clear();
      for (const i32 pod : on_node_[at(node)]) {
        classes.push_back(class_[at(pod)]);
        if (!in.stays[pod]) moving.push_back(pod);
      }
      engine_.vacate(node, classes.data(), static_cast<i32>(classes.size()));
      engine_.remove_ghost(node);
      search_.close(node);
    }
    std::sort(moving.begin(), moving.end(), [this](i32 a, i32 b) {
      const i64 x = priority_[at(a)], y = priority_[at(b)];
      return x != y ? x > y : a < b;
    });
    i32 homeless = 0;
    i32* first = out.first + static_cast<std::ptrdiff_t>(part) * out.n_first;
    std::fill(first, first + out.n_first, -1);
    for (const i32 pod : moving) {
      const i32 found = search_.find(class_[at(pod)], nullptr);
      if (found >= 0) {
        engine_.place(class_[at(pod)], found);
        search_.placed(found);
      } else if (homeless++ < out.n_first) {
        first[homeless - 1] = pod;
      }
    }
    out.moving[part] = static_cast<i32>(moving.size());
    out.homeless[part] = homeless;
    engine_.revert();
    search_.undo();
    for (i32 i = in.start[part]; i < in.start[part + 1]; ++i) search_.reopen(in.nodes[i]);
  }
  engine_.cursor = cursor;
}

i64 more_of(Engine& engine, i32 pod, i64 most) {
  if (engine.pods().prefilter_failed(pod)) return 0;
  i64 total = 0;
  for (i32 node = 0; node < engine.nodes() && total < most; ++node)
    if (engine.alive(node) && !engine.cordoned(node)) total += std::min(most, engine.capacity(pod, node));
  return std::min(total, most);
}

}  // namespace kscale::engine
