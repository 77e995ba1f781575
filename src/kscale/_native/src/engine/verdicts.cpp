#include <algorithm>
#include <vector>

#include "kscale/dispatch.hpp"
#include "kscale/engine/engine.hpp"
#include "kscale/engine/resource_mask.hpp"
#include "kscale/parallel.hpp"

namespace kscale::engine {
namespace {

// The first plug-in that rejects each node: one before NodeResourcesFit, that one, or one after it.
KSCALE_CLONED void merge(const Code* early, const u8* fits, const Code* late, std::ptrdiff_t n_nodes, Code* out) noexcept {
  for (std::ptrdiff_t n = 0; n < n_nodes; ++n) {
    const Code rest = fits[n] ? late[n] : code(kNodeResourcesFit);
    out[n] = early[n] ? early[n] : rest;
  }
}

// The verdicts of the static bits on every node, cached for the last rows.
class Expanded {
 public:
  Expanded(const StaticVerdicts& statics, const std::vector<i32>& node_class)
      : statics_(statics), node_class_(node_class), loaded_(kept(node_class.size()), -1) {
    codes_.resize(2 * loaded_.size() * node_class.size());
  }

  // (verdicts before NodePorts, verdicts after NodeResourcesFit), [node] each.
  std::pair<const Code*, const Code*> row(i32 row) {
    const std::size_t slot = idx(row) % loaded_.size();
    const std::size_t n = node_class_.size();
    Code* early = codes_.data() + 2 * slot * n;
    Code* late = early + n;
    if (loaded_[slot] != row) {
      loaded_[slot] = row;
      const u16* bits = statics_.row(row);
      early_.resize(statics_.node_classes());
      late_.resize(statics_.node_classes());
      for (std::size_t c = 0; c < early_.size(); ++c) {
        early_[c] = StaticVerdicts::first(bits[c] & before(kNodePorts));
        late_[c] = StaticVerdicts::first(bits[c] & static_cast<u16>(~before(kNodePorts)));
      }
      for (std::size_t i = 0; i < n; ++i) {
        early[i] = early_[idx(node_class_[i])];
        late[i] = late_[idx(node_class_[i])];
      }
    }
    return {early, late};
  }

 private:
  static std::size_t kept(std::size_t nodes) {  // number of cached rows in about a megabyte
    constexpr std::size_t entries = std::size_t{1} << 19;
    return std::clamp<std::size_t>(entries / (2 * nodes + 1), 4, 4096);
  }
  const StaticVerdicts& statics_;
  const std::vector<i32>& node_class_;
  std::vector<Code> codes_;  // [slot][early, late][node]
  std::vector<i32> loaded_;
  std::vector<Code> early_, late_;
};

}  // namespace

void Engine::verdicts(const i32* pods, std::ptrdiff_t count, i32 threads, Code* out) const {
  const std::ptrdiff_t n = nodes();
  if (devices_.asked() || !users_.empty()) threads = 1;  // they may not be called by several threads
  parallel_for(count, threads, [=, this](std::ptrdiff_t begin, std::ptrdiff_t end) {
    Expanded expanded(statics_, class_);
    std::vector<u8> fits(class_.size(), 1);
    std::vector<const i64*> free(idx(resources()));
    for (i32 r = 0; r < resources(); ++r) free[idx(r)] = resources_.column(r);
    for (std::ptrdiff_t p = begin; p < end; ++p) {
      const i32 pod = pods[p];
      Code* row = out + p * n;
      if (pods_->prefilter_failed(pod)) {
        std::fill(row, row + n, kPreFilterCode);
        continue;
      }
      if (enabled(kNodeResourcesFit))
        resource_row(free.data(), pods_->request(pod), pods_->columns(pod), pods_->n_columns(pod), resources_.slots(),
                     n, fits.data());
      const auto [early, late] = expanded.row(pods_->static_row(pod));
      at_cpu_level<merge>(early, fits.data(), late, n, row);
      const Extra* extra = pods_->extra(pod);
      const bool ports = extra && !extra->ports.empty();
      if (!ports && pods_->local(pod) && users_.empty()) continue;
      // The counting plug-ins between and after these: checked where nothing before rejected the node.
      for (std::ptrdiff_t i = 0; i < n; ++i)
        if (!early[i] && (ports || fits[static_cast<std::size_t>(i)])) row[i] = check(pod, static_cast<i32>(i));
    }
  });
}

}  // namespace kscale::engine
