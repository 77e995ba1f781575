// Rows of tables that are columns: many columns written at once, sums by row, texts compared that lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kscale {

// to[rows[i]] = from[i], for values of `width` bytes.
inline void scatter(char* to, const char* from, std::size_t width, const std::int64_t* rows, std::size_t n) {
  const auto write = [=](auto value) {
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(&value, from + i * sizeof value, sizeof value);
      std::memcpy(to + static_cast<std::size_t>(rows[i]) * sizeof value, &value, sizeof value);
    }
  };
  switch (width) {
    case 1:
      return write(std::uint8_t{});
    case 4:
      return write(std::uint32_t{});
    case 8:
      return write(std::uint64_t{});
    default:
      for (std::size_t i = 0; i < n; ++i) {
        std::memcpy(to + static_cast<std::size_t>(rows[i]) * width, from + i * width, width);
      }
  }
}

// sums[at[i]] += sign[i] * amounts[kind[i]]; without `amounts`: += sign[i]. Sums wrap.
inline void add_amounts(std::int64_t* sums, const std::int32_t* at, const std::int64_t* amounts,
                        const std::int32_t* kind, const std::int8_t* sign, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    sums[at[i]] += amounts == nullptr ? sign[i] : sign[i] * amounts[kind[i]];
  }
}

inline bool same_text(const char* a, const char* b, std::int64_t size) {
  return std::memcmp(a, b, static_cast<std::size_t>(size)) == 0;
}

}  // namespace kscale
