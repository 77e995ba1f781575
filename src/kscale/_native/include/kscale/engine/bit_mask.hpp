#pragma once

#include <bit>
#include <cstring>

#include "kscale/engine/types.hpp"

namespace kscale::engine {

// Bit i of the result is bits[i], which is 0 or 1.
inline u64 packed(const u8 (&bits)[64]) {
  u64 mask = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (i32 i = 0; i < 64; i += 8) {
      u64 eight;
      std::memcpy(&eight, bits + i, sizeof eight);
      mask |= ((eight * 0x0102040810204080u) >> 56) << i;  // moves the eight bits into the highest byte
    }
  } else {
    for (i32 i = 0; i < 64; ++i) mask |= static_cast<u64>(bits[i]) << i;
  }
  return mask;
}

}  // namespace kscale::engine
