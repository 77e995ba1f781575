#include <algorithm>
#include <bit>

#include "kscale/engine/candidates.hpp"
#include "kscale/engine/engine.hpp"
#include "kscale/engine/resource_mask.hpp"

namespace kscale::engine {

// A verdict may have improved: room was given back, the minimum of a spread row rose, or a domain got its first pod
// that the class's affinity requires. Every other change can only make verdicts worse.
Engine::Stamp Engine::stamp(i32 pod) const {
  Stamp now{growth_, 0};
  if (const Extra* extra = pods_->extra(pod)) {
    for (const SpreadUse& use : extra->spread) now.versions += topology_.version(use.row);
    for (const i32 r : extra->affinity) now.versions += topology_.version(r);
  }
  return now;
}

Engine::Candidates* Engine::candidates(i32 pod, i32 low) {
  if (!users_.empty()) return nullptr;
  auto& memo = memo_[idx(pod)];
  if (!memo) {
    constexpr std::size_t most = std::size_t{64} << 20;  // entries; with more, classes are scanned from the start
    if (scans_[idx(pod)] < 1 || memo_entries_ > most) {  // a class that is searched once is not worth remembering
      scans_[idx(pod)] = 1;
      return nullptr;
    }
    memo = std::make_unique<Candidates>();
    memo_entries_ += idx(nodes() - low) + 1;
  }
  const Stamp now = stamp(pod);
  if (memo->stamp.growth != now.growth || low < memo->base || memo->end() > nodes()) {
    memo->start(low, nodes(), now);
    return memo.get();
  }
  if (!(memo->stamp == now)) memo->restore(now);
  memo->extend(nodes());
  return memo.get();
}

i32 Engine::scan_memo(i32 pod, Candidates& memo, i32 low, i32 high, const u8* acceptable) {
  for (i32 n = memo.find(low); n < high; n = memo.find(n + 1)) {
    if (!alive(n) || (acceptable && !acceptable[n])) continue;
    const Code no = cordoned_[idx(n)] ? kFilteredCode : check(pod, n);
    if (no == kFits) return n;
    memo.drop(n, no);
  }
  return -1;
}

i32 Engine::scan_range(i32 pod, i32 low, i32 high, const u8* acceptable) {
  if (high - low < 16 || !enabled(kNodeResourcesFit)) {
    for (i32 n = low; n < high; ++n)
      if (!cordoned_[idx(n)] && alive(n) && (!acceptable || acceptable[n]) && check(pod, n) == kFits) return n;
    return -1;
  }
  std::vector<const i64*> columns(idx(resources()));
  for (i32 r = 0; r < resources(); ++r) columns[idx(r)] = resources_.column(r);
  const Extra* apart = enabled(kInterPodAffinity) ? pods_->extra(pod) : nullptr;
  for (i32 base = low; base < high; base += 64) {
    const i32 count = std::min(64, high - base);
    u64 mask = resource_mask(columns.data(), pods_->request(pod), pods_->columns(pod), pods_->n_columns(pod),
                             resources_.slots(), base, count);
    if (apart && mask) mask = without_unwanted(topology_, *apart, base, count, mask);
    while (mask) {
      const i32 n = base + static_cast<i32>(std::countr_zero(mask));
      mask &= mask - 1;
      if (!cordoned_[idx(n)] && alive(n) && (!acceptable || acceptable[n]) && check(pod, n) == kFits) return n;
    }
  }
  return -1;
}

i32 Engine::scan(i32 pod, i32 start, const u8* acceptable, i32 low, i32 high) {
  if (high <= low) return -1;
  start = std::clamp(start, low, high);
  auto part = [&](i32 from, i32 to) -> i32 {
    if (from >= to) return -1;
    Candidates* memo = candidates(pod, low);
    return memo ? scan_memo(pod, *memo, from, to, acceptable) : scan_range(pod, from, to, acceptable);
  };
  const i32 found = part(start, high);
  return found >= 0 ? found : part(low, start);
}

i32 Engine::any_node(i32 pod, const u8* acceptable) {
  const i32 count = alive_nodes();
  if (count == 0 || pods_->prefilter_failed(pod)) return -1;
  const i32 start = at_position(static_cast<i32>((cursor + 1) % count));
  const i32 found = scan(pod, start, acceptable, 0, nodes());
  if (found >= 0) cursor = position(found);
  return found;
}

i32 Engine::any_new_node(i32 pod, i32 low) {
  const i32 count = alive_nodes();
  if (count == 0 || low >= nodes() || pods_->prefilter_failed(pod)) return -1;
  const i32 start = at_position(static_cast<i32>((cursor + 1) % count));
  const i32 found = scan(pod, std::max(start, low), nullptr, low, nodes());
  if (found >= 0) cursor = position(found);
  return found;
}

}  // namespace kscale::engine
