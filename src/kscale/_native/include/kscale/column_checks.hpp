#pragma once

#include <cstddef>
#include <cstdint>

// Checks of whole columns for the bindings. The compiler hardly optimizes loops that Cython generates.
namespace kscale {

// The position of the first value that is below `low`, or is `high` or more; `n` without such a value.
std::ptrdiff_t first_outside(const std::int32_t* values, std::ptrdiff_t n, std::int64_t low, std::int64_t high) noexcept;

// Whether `values`[n], with n > 0, begins with 0, never decreases and ends with `entries`.
bool are_starts(const std::int32_t* values, std::ptrdiff_t n, std::int64_t entries) noexcept;

}  // namespace kscale
