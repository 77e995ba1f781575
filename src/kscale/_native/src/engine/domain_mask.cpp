#include "kscale/engine/domain_mask.hpp"

#include <bit>

#include "kscale/dispatch.hpp"
#include "kscale/engine/bit_mask.hpp"

namespace kscale::engine {
namespace {

KSCALE_CLONED u64 mask_of_domains(const i32* domain, const i32* counters, std::size_t n_counters, i32 n, u64 mask) noexcept {
  const i32 first = domain[0];
  i32 odd = 0;
  for (i32 i = 0; i < n; ++i) odd |= (domain[i] - i) ^ first;
  if (odd == 0 && first >= 0 && idx(first) + idx(n) <= n_counters) {  // as for hostnames: consecutive counters
    const i32* counter = counters + first;
    u8 held[64] = {};
    for (i32 i = 0; i < n; ++i) held[i] = counter[i] > 0;
    return packed(held) & mask;
  }
  u64 held = 0;
  for (u64 rest = mask; rest; rest &= rest - 1) {
    const i32 i = std::countr_zero(rest);
    const bool known = domain[i] >= 0 && idx(domain[i]) < n_counters;
    held |= static_cast<u64>(known && counters[domain[i]] > 0) << i;
  }
  return held;
}

}  // namespace

u64 counted_mask(const i32* domain, const i32* counters, std::size_t n_counters, i32 n, u64 mask) noexcept {
  return at_cpu_level<mask_of_domains>(domain, counters, n_counters, n, mask);
}

}  // namespace kscale::engine
