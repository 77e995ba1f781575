#pragma once

#include <cstdint>
#include <limits>

// Go's number conversions with their results on amd64. Go leaves the conversion of a float that does not fit its
// integer type undefined; upstream's recorded decisions contain the results of this CPU. They are defined only here.
namespace kscale {

inline constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
inline constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
inline constexpr std::int32_t kInt32Max = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int32_t kInt32Min = std::numeric_limits<std::int32_t>::min();
inline constexpr double kTwo63 = 9223372036854775808.0;

// int64(x): toward zero; NaN, infinities and everything out of range give the lowest int64.
inline std::int64_t to_int64(double x) noexcept {
  return x >= -kTwo63 && x < kTwo63 ? static_cast<std::int64_t>(x) : kInt64Min;
}

// int32(x): toward zero; NaN, infinities and everything out of range give the lowest int32.
inline std::int32_t to_int32(double x) noexcept {
  return x > -2147483649.0 && x < 2147483648.0 ? static_cast<std::int32_t>(x) : kInt32Min;
}

// int32(x) of an int64: the low 32 bits.
inline std::int32_t low32(std::int64_t x) noexcept { return static_cast<std::int32_t>(static_cast<std::uint32_t>(x)); }

// a / b toward zero; the one quotient that does not fit wraps. b must not be 0.
inline std::int64_t quotient(std::int64_t a, std::int64_t b) noexcept {
  // Several times faster on CPUs that divide 64 bits in microcode; most amounts are small enough.
  if ((static_cast<std::uint64_t>(a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return b == -1 ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a)) : a / b;
}

}  // namespace kscale
