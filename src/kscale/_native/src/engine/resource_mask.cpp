#include "kscale/engine/resource_mask.hpp"

#include "kscale/dispatch.hpp"
#include "kscale/engine/bit_mask.hpp"

namespace kscale::engine {
namespace {

KSCALE_CLONED u64 mask_of_resources(const i64* const* free, const i64* request, const i32* columns, i32 n_columns,
                                    const i64* slots, std::ptrdiff_t base, i32 count) noexcept {
  u8 good[64] = {};
  for (i32 i = 0; i < count; ++i) good[i] = slots[base + i] >= 1;
  for (i32 c = 0; c < n_columns; ++c) {
    const i64* row = free[columns[c]] + base;
    const i64 want = request[columns[c]];
    for (i32 i = 0; i < count; ++i) good[i] &= row[i] >= want;
  }
  return packed(good);
}

KSCALE_CLONED void row_of(const i64* const* free, const i64* request, const i32* columns, i32 n_columns,
                          const i64* slots, std::ptrdiff_t n_nodes, u8* fits) noexcept {
  if (n_columns < 2) {
    const i64* one = n_columns ? free[columns[0]] : slots;
    const i64 want = n_columns ? request[columns[0]] : 1;
    for (std::ptrdiff_t n = 0; n < n_nodes; ++n) fits[n] = static_cast<u8>((slots[n] >= 1) & (one[n] >= want));
    return;
  }
  const i64 *first = free[columns[0]], *second = free[columns[1]];
  const i64 want_first = request[columns[0]], want_second = request[columns[1]];
  for (std::ptrdiff_t n = 0; n < n_nodes; ++n)
    fits[n] = static_cast<u8>((slots[n] >= 1) & (first[n] >= want_first) & (second[n] >= want_second));
  for (i32 c = 2; c < n_columns; ++c) {
    const i64* column = free[columns[c]];
    const i64 want = request[columns[c]];
    for (std::ptrdiff_t n = 0; n < n_nodes; ++n) fits[n] &= static_cast<u8>(column[n] >= want);
  }
}

}  // namespace

u64 resource_mask(const i64* const* free, const i64* request, const i32* columns, i32 n_columns, const i64* slots,
                  std::ptrdiff_t base, i32 count) noexcept {
  return at_cpu_level<mask_of_resources>(free, request, columns, n_columns, slots, base, count);
}

void resource_row(const i64* const* free, const i64* request, const i32* columns, i32 n_columns, const i64* slots,
                  std::ptrdiff_t n_nodes, u8* fits) noexcept {
  at_cpu_level<row_of>(free, request, columns, n_columns, slots, n_nodes, fits);
}

}  // namespace kscale::engine
