#pragma once

#include <cstddef>

#include "kscale/engine/types.hpp"

// Topology domains of many nodes at once.

namespace kscale::engine {

// Sets bit i of the result if bit i of `mask` is set and the counter of domain[i] exists and is above 0. `mask` has no
// bits from `n` on; `n` <= 64.
u64 counted_mask(const i32* domain, const i32* counters, std::size_t n_counters, i32 n, u64 mask) noexcept;

}  // namespace kscale::engine
