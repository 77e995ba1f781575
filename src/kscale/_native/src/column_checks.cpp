#include "kscale/column_checks.hpp"

#include <algorithm>

namespace kscale {

std::ptrdiff_t first_outside(const std::int32_t* values, std::ptrdiff_t n, std::int64_t low,
                             std::int64_t high) noexcept {
  return std::find_if(values, values + n, [=](std::int32_t value) { return value < low || value >= high; }) - values;
}

bool are_starts(const std::int32_t* values, std::ptrdiff_t n, std::int64_t entries) noexcept {
  return values[0] == 0 && values[n - 1] == entries && std::is_sorted(values, values + n);
}

}  // namespace kscale
