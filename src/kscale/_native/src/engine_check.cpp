#include <algorithm>
#include <bit>
#include <limits>

#include "kscale/engine/candidates.hpp"
#include "kscale/engine/engine.hpp"
#include "kscale/engine/resources.hpp"

namespace kscale::engine {

bool Engine::ports_free(const Extra& extra, i32 node) const {
  const u64* any = any_port_.data() + idx(node) * idx(port_words_);
  const u64* wild = wild_port_.data() + idx(node) * idx(port_words_);
  const u64* specific = specific_port_.data() + idx(node) * idx(specific_words_);
  for (const Port& port : extra.ports) {
    const std::size_t word = idx(port.key / 64);
    const u64 b = u64{1} << (port.key % 64);
    if (port.specific < 0) {
      if (any[word] & b) return false;
    } else if ((wild[word] & b) || (specific[port.specific / 64] >> (port.specific % 64) & 1)) {
      return false;
    }
  }
  return true;
}

u32 Engine::check_disks(const Extra& extra, i32 node) const {
  if (!disks_.empty() && !extra.disks.empty())
    for (const NodeDisk& used : disks_[idx(node)])
      for (const Disk& disk : extra.disks)
        if (used.id == disk.id && (used.read_write > 0 || (!disk.read_only && used.read_only > 0)))
          return code(kVolumeRestrictions, kDiskConflict);
  for (const i32 claim : extra.rwop)
    if (claim_users_[idx(claim)] > 0) return code(kVolumeRestrictions, kClaimInUse);
  return kFits;
}

bool Engine::volumes_fit(const Extra& extra, i32 node, i32* driver) const {
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
      total += !attached;  // a handle that is only attached is counted twice, as upstream does
      any_new = any_new || !attached;
    }
    if (any_new && total > limit) {
      if (driver) *driver = wanted.driver;
      return false;
    }
  }
  return true;
}

u32 Engine::check_spread(const Extra& extra, i32 node, i32* which) const {
  i32 i = 0;
  for (const SpreadUse& use : extra.spread) {
    const i32 d = domain_[idx(use.key)][idx(node)];
    if (which) *which = i;
    if (d < 0) return code(kPodTopologySpread, kMissingKey);
    const Row& row = rows_[idx(use.row)];
    const bool known = idx(d) < row.registered.size() && row.registered[idx(d)] > 0;
    const i64 count = known ? row.count[idx(d)] : 0;
    const i64 minimum = row.domains == 0 || row.domains < use.min_domains ? 0 : row.min;
    if (count + use.self - minimum > use.max_skew) return code(kPodTopologySpread, kSkew);
    ++i;
  }
  return kFits;
}

u32 Engine::check_pods(const Extra& extra, i32 node, i32* which) const {
  auto count_of = [&](const RowKey& rk) -> i64 {
    const i32 d = domain_[idx(rk.key)][idx(node)];
    const auto& counts = rows_[idx(rk.row)].count;
    return d >= 0 && idx(d) < counts.size() ? counts[idx(d)] : 0;
  };
  if (extra.affinity_group >= 0) {
    bool keys = true;
    bool all = true;
    i32 i = 0;
    for (const RowKey& rk : extra.affinity) {
      if (domain_[idx(rk.key)][idx(node)] < 0) {
        keys = false;
        if (which) *which = i;
        break;
      }
      if (all && count_of(rk) <= 0) {
        all = false;
        if (which) *which = i;
      }
      ++i;
    }
    if (!keys) return code(kInterPodAffinity, kAffinity);
    if (!all && !(extra.self_affine && totals_[idx(extra.affinity_group)] == 0))
      return code(kInterPodAffinity, kAffinity);
  }
  i32 i = 0;
  for (const RowKey& rk : extra.own_anti) {
    if (count_of(rk) > 0) {
      if (which) *which = i;
      return code(kInterPodAffinity, kOwnAntiAffinity);
    }
    ++i;
  }
  i = 0;
  for (const RowKey& rk : extra.blocked_by) {
    if (count_of(rk) > 0) {
      if (which) *which = i;
      return code(kInterPodAffinity, kExistingAntiAffinity);
    }
    ++i;
  }
  return kFits;
}

u32 Engine::check(i32 pod, i32 node) const {
  const u16 bits = static_bits(pod, node);
  if (bits & kEarlyStatic) {
    const u32 plugin = static_cast<u32>(std::countr_zero(bits));
    return plugin == kFiltered ? kFilteredCode : plugin;
  }
  const Extra* extra = extra_[idx(pod)].get();
  if (extra && !extra->ports.empty() && (enabled_ & bit(kNodePorts)) && !ports_free(*extra, node)) return kNodePorts;
  if (enabled_ & bit(kNodeResourcesFit)) {
    bool fits = slots_[idx(node)] >= 1;
    const i32* columns = columns_.data() + idx(pod) * idx(n_resources_);
    const i64* request = request_.data() + idx(pod) * idx(n_resources_);
    for (i32 c = 0; c < n_columns_[idx(pod)]; ++c) fits &= free_[idx(columns[c])][idx(node)] >= request[columns[c]];
    if (!fits) return kNodeResourcesFit;
  }
  if (extra) {
    if ((enabled_ & bit(kVolumeRestrictions)) && !(extra->disks.empty() && extra->rwop.empty()))
      if (const u32 found = check_disks(*extra, node)) return found;
    if ((enabled_ & bit(kNodeVolumeLimits)) && !(bits & bit(kNodeVolumeLimits)) && !extra->volumes.empty() &&
        !limit_.empty() && !volumes_fit(*extra, node, nullptr))
      return kNodeVolumeLimits;
  }
  const u32 middle = bits & (bit(kNodeVolumeLimits) | bit(kVolumeBinding) | bit(kVolumeZone));
  if (middle) return static_cast<u32>(std::countr_zero(middle));
  if (extra) {
    if ((enabled_ & bit(kPodTopologySpread)) && !extra->spread.empty())
      if (const u32 found = check_spread(*extra, node, nullptr)) return found;
    if (enabled_ & bit(kInterPodAffinity))
      if (const u32 found = check_pods(*extra, node, nullptr)) return found;
    if (extra->devices && (enabled_ & bit(kDynamicResources)) && !tell(DeviceCall::kCheck, pod, node))
      return kDynamicResources;
  }
  const u32 late = bits & ~((1u << kDynamicResources) - 1) & 0xFFFFu;
  if (late) return static_cast<u32>(std::countr_zero(late));
  return users_.empty() ? kFits : check_users(pod, node);
}

u32 Engine::check_users(i32 pod, i32 node) const {
  constexpr std::size_t most = 64;  // columns a predicate may ask for; checked at the binding
  i64 request[most], free[most];
  for (std::size_t u = 0; u < users_.size(); ++u) {
    const User& user = users_[u];
    for (std::size_t c = 0; c < user.columns.size(); ++c) {
      request[c] = request_[idx(pod) * idx(n_resources_) + idx(user.columns[c])];
      free[c] = free_[idx(user.columns[c])][idx(node)];
    }
    const i32 verdict = user.predicate(request, free, static_cast<i64>(user.columns.size()), slots_[idx(node)], pod, node);
    if (verdict == 0) continue;
    if (verdict != 1 && user_failed_ < 0) user_failed_ = static_cast<i32>(u);
    return code(kUserPlugin, static_cast<u32>(u));
  }
  return kFits;
}

i64 Engine::capacity(i32 pod, i32 node) const {
  if (!plain_occupancy_[idx(pod)]) return check(pod, node) == kFits ? 1 : 0;
  if (check(pod, node) != kFits) return 0;
  const Extra* extra = extra_[idx(pod)].get();
  i64 most = std::numeric_limits<i64>::max();
  if (extra && !extra->ports.empty() && (enabled_ & bit(kNodePorts))) return 1;
  if (!(enabled_ & bit(kNodeResourcesFit))) return most;
  most = slots_[idx(node)];
  const i32* columns = columns_.data() + idx(pod) * idx(n_resources_);
  const i64* request = request_.data() + idx(pod) * idx(n_resources_);
  const i64* occupancy = occupancy_.data() + idx(pod) * idx(n_resources_);
  for (i32 c = 0; c < n_columns_[idx(pod)]; ++c) {
    const i32 r = columns[c];
    // The i-th of them fits while request <= free - (i - 1) * occupancy.
    if (occupancy[r] > 0) most = std::min(most, 1 + (free_[idx(r)][idx(node)] - request[r]) / occupancy[r]);
  }
  return most;
}

// ---- scanning ------------------------------------------------------------------------------------------------------

// When this changes, a verdict of the class may have improved: something gave room back, the minimum of a spread row
// rose, or a domain got its first pod that the class's affinity looks for. Every other change only takes away.
u64 Engine::stamp(i32 pod) const {
  u64 now = growth_;
  const Extra* extra = extra_[idx(pod)].get();
  if (!extra) return now;
  for (const SpreadUse& use : extra->spread) now += rows_[idx(use.row)].version << 20;
  for (const RowKey& rk : extra->affinity) now += rows_[idx(rk.row)].version << 40;
  return now;
}

Engine::Candidates* Engine::candidates(i32 pod, i32 low) {
  if (!users_.empty()) return nullptr;
  auto& memo = memo_[idx(pod)];
  if (!memo) {
    constexpr std::size_t most = std::size_t{64} << 20;  // entries in all; beyond it classes are scanned afresh
    if (scans_[idx(pod)] < 1 || memo_entries_ > most) {  // a class that is looked for once is not worth remembering
      scans_[idx(pod)] = 1;
      return nullptr;
    }
    memo = std::make_unique<Candidates>();
    memo_entries_ += idx(nodes() - low) + 1;
  }
  const u64 now = stamp(pod);
  if (memo->stamp != now || low < memo->base || memo->end() > nodes())
    memo->start(low, nodes(), now);
  else
    memo->extend(nodes());
  return memo.get();
}

i32 Engine::scan_memo(i32 pod, Candidates& memo, i32 low, i32 high, const u8* acceptable) {
  for (i32 n = memo.find(low); n < high; n = memo.find(n + 1)) {
    if (!alive(n) || (acceptable && !acceptable[n])) continue;
    if (!cordoned_[idx(n)] && check(pod, n) == kFits) return n;
    memo.drop(n);
  }
  return -1;
}

i32 Engine::scan_range(i32 pod, i32 low, i32 high, const u8* acceptable) {
  if (high - low < 16 || !(enabled_ & bit(kNodeResourcesFit))) {
    for (i32 n = low; n < high; ++n)
      if (!cordoned_[idx(n)] && alive(n) && (!acceptable || acceptable[n]) && check(pod, n) == kFits) return n;
    return -1;
  }
  std::vector<const i64*> columns(idx(n_resources_));
  for (std::size_t r = 0; r < columns.size(); ++r) columns[r] = free_[r].data();
  const i64* request = request_.data() + idx(pod) * idx(n_resources_);
  const i32* wanted = columns_.data() + idx(pod) * idx(n_resources_);
  for (i32 base = low; base < high; base += 64) {
    const i32 count = std::min(64, high - base);
    u64 mask = resource_mask(columns.data(), request, wanted, n_columns_[idx(pod)], slots_.data(), base, count);
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
  if (count == 0 || prefilter_failed_[idx(pod)]) return -1;
  const i32 start = at_position(static_cast<i32>((cursor + 1) % count));
  const i32 found = scan(pod, start, acceptable, 0, nodes());
  if (found >= 0) cursor = position(found);
  return found;
}

i32 Engine::any_new_node(i32 pod, i32 low) {
  const i32 count = alive_nodes();
  if (count == 0 || low >= nodes() || prefilter_failed_[idx(pod)]) return -1;
  const i32 start = at_position(static_cast<i32>((cursor + 1) % count));
  const i32 found = scan(pod, std::max(start, low), nullptr, low, nodes());
  if (found >= 0) cursor = position(found);
  return found;
}

}  // namespace kscale::engine
