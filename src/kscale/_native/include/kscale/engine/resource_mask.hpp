#pragma once

#include <cstddef>

#include "kscale/engine/types.hpp"

// NodeResourcesFit over many nodes at once: the loops that are compiled for several CPU levels.

namespace kscale::engine {

// Sets bit i of the result if node base + i has a free pod slot and covers the request in every resource of `columns`.
// `free[r]` is one resource of all nodes; `count` <= 64.
u64 resource_mask(const i64* const* free, const i64* request, const i32* columns, i32 n_columns, const i64* slots,
                  std::ptrdiff_t base, i32 count) noexcept;

// Sets fits[n] to 1 if the same holds for node n, otherwise to 0.
void resource_row(const i64* const* free, const i64* request, const i32* columns, i32 n_columns, const i64* slots,
                  std::ptrdiff_t n_nodes, u8* fits) noexcept;

}  // namespace kscale::engine
