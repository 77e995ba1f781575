#include "kscale/engine/estimate.hpp"

#include <algorithm>
#include <numeric>

namespace kscale::engine {
namespace {

class Estimation {
 public:
  Estimation(Engine& engine, const EstimateInput& in, EstimateOutput& out)
      : engine_(engine), in_(in), out_(out), first_new_(engine.nodes()),
        other_than_last_(static_cast<std::size_t>(first_new_), 1),
        with_pods_(static_cast<std::size_t>(first_new_), 0) {}

  void run(Interrupted interrupted, void* context) {
    bool may_add = true;
    for (i32 g = 0; g < in_.n_groups; ++g) {
      if (interrupted && (g & 255) == 0 && interrupted(context)) {
        out_.status = 2;
        return;
      }
      const i32 end = in_.group_start[g + 1];
      i32 pod = try_existing(in_.group_start[g], end);
      if (may_add) {
        may_add = in_.fast_last && g + 1 == in_.n_groups ? fast_path(pod, end) : try_new(pod, end);
        if (!may_add) out_.stopped_at = g;
      }
      if (out_.status) return;
    }
  }

 private:
  i32 class_of(i32 pod) const { return in_.pod_class[pod]; }

  void track(i32 pod, i32 node) {
    out_.placement[pod] = node;
    out_.order[out_.scheduled++] = pod;
    auto& used = with_pods_[static_cast<std::size_t>(node)];
    out_.nodes_with_pods += !used;
    used = 1;
  }

  // Tries the nodes added before, from the cursor on; stops at the first pod that fits none of them.
  i32 try_existing(i32 pod, i32 end) {
    for (; pod < end; ++pod) {
      const i32 node = engine_.any_new_node(class_of(pod), first_new_);
      if (node < 0) break;
      engine_.place(class_of(pod), node);
      track(pod, node);
    }
    return pod;
  }

  bool permitted() {
    if (in_.max_nodes < 0 || (in_.max_nodes > 0 && granted_ >= in_.max_nodes)) return false;
    ++granted_;
    return true;
  }

  bool add_node() {
    if (out_.nodes_added == in_.clash) {
      out_.status = 1;
      return false;
    }
    if (last_ >= 0) other_than_last_[static_cast<std::size_t>(last_)] = 1;
    last_ = engine_.add_copy(*in_.node, out_.nodes_added++);
    other_than_last_.push_back(0);
    with_pods_.push_back(0);
    return true;
  }

  // Places the pod, and as many equal pods right after it as the node takes.
  i32 fill(i32 pod, i32 end, i32 node) {
    const i32 c = class_of(pod);
    i64 times = 1;
    if (engine_.local(c) && pod + 1 < end && class_of(pod + 1) == c) {
      if (run_end_ <= pod || run_end_ > end) {
        run_end_ = pod + 1;
        while (run_end_ < end && class_of(run_end_) == c) ++run_end_;
      }
      times = std::max<i64>(1, std::min<i64>(run_end_ - pod, engine_.capacity(c, node)));
    }
    engine_.place(c, node, times);
    const i32 next = pod + static_cast<i32>(times);
    track(pod, node);
    std::fill(out_.placement + pod + 1, out_.placement + next, node);
    std::iota(out_.order + out_.scheduled, out_.order + out_.scheduled + (next - pod - 1), pod + 1);
    out_.scheduled += next - pod - 1;
    return next;
  }

  bool try_new(i32 pod, i32 end) {
    while (pod < end) {
      const i32 c = class_of(pod);
      if (last_ >= 0) {
        const Code verdict = engine_.check_single(c, last_);
        if (verdict == kFits) {
          pod = fill(pod, end, last_);
          continue;
        }
        // Another node may raise the minimum: any node of the cluster, existing ones included.
        if (engine_.pods().hostname_spread(c) && verdict == code(kPodTopologySpread, kSkew)) {
          const i32 node = engine_.any_node(c, other_than_last_.data());
          if (node >= 0) {
            engine_.place(c, node);
            track(pod++, node);
            continue;
          }
        }
        if (!with_pods_[static_cast<std::size_t>(last_)]) return true;  // the node is still empty: end the group
      }
      if (!permitted()) return false;
      if (!add_node()) return false;
      if (engine_.check_single(c, last_) != kFits) return true;  // the empty node stays
      pod = fill(pod, end, last_);
    }
    return true;
  }

  bool fast_path(i32 pod, i32 end) {
    if (pod >= end) return true;
    if (!permitted()) return false;
    if (!add_node()) return false;
    const i32 first = pod;
    while (pod < end && engine_.check_single(class_of(pod), last_) == kFits) pod = fill(pod, end, last_);
    const i32 per_node = pod - first;
    if (per_node == 0) return true;
    const i32 size = (end - first + per_node - 1) / per_node;
    for (i32 j = 1; j < size; ++j) {
      if (!permitted()) return false;
      ++out_.nodes_with_pods;
      for (const i32 stop = std::min(end, pod + per_node); pod < stop; ++pod) {
        out_.placement[pod] = kFake + j;
        out_.order[out_.scheduled++] = pod;
      }
    }
    return true;
  }

  Engine& engine_;
  const EstimateInput& in_;
  EstimateOutput& out_;
  const i32 first_new_;
  i32 last_ = -1;
  i32 run_end_ = 0;  // end of the last run of equal pods
  i64 granted_ = 0;
  std::vector<u8> other_than_last_;
  std::vector<u8> with_pods_;
};

}  // namespace

void estimate(Engine& engine, const EstimateInput& in, EstimateOutput& out, Interrupted interrupted, void* context) {
  std::fill(out.placement, out.placement + in.n_pods, -1);
  if (engine.counters_are_few(in.n_pods))
    engine.fork_counters();
  else
    engine.fork();
  Estimation(engine, in, out).run(interrupted, context);
  engine.revert();
  if (out.status == 1) {
    std::fill(out.placement, out.placement + in.n_pods, -1);
    out.scheduled = out.nodes_added = out.nodes_with_pods = 0;
  }
}

}  // namespace kscale::engine
