#pragma once

#include <cstddef>
#include <cstdint>

// Terms of the packing engine. A *class* is a set of pods (or nodes) that no predicate can distinguish; a *row* is a
// counter per topology domain; everything is an index.

namespace kscale::engine {

using i32 = std::int32_t;
using i64 = std::int64_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr std::size_t idx(i32 i) { return static_cast<std::size_t>(i); }

// Polled between groups of work; true = stop.
using Interrupted = bool (*)(void* context);

// Equal states have equal sums.
struct Checksum {
  u64 h = 1469598103934665603ull;
  void mix(u64 v) { h = (h ^ v) * 1099511628211ull + (h >> 29); }
};

}  // namespace kscale::engine
