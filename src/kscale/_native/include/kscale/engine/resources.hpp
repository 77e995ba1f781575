#pragma once

#include "kscale/engine/types.hpp"

namespace kscale::engine {

// Bit i set <=> node base + i has a free pod slot and covers the request in every resource of `columns`.
// `free[r]` is one resource of all nodes; `count` <= 64.
u64 resource_mask(const i64* const* free, const i64* request, const i32* columns, i32 n_columns, const i64* slots,
                  std::ptrdiff_t base, i32 count) noexcept;

// First failing plug-in per pod and node over static verdict bits, pod count and resources alone: the class-free sweep.
// verdict[p * n_nodes + n] = 0 or plug-in ordinal (kFilteredCode for a node outside the PreFilter set).
// static_bits is [n_rows][n_classes]; request is [n_pods][n_resources]; free is [n_resources][stride].
void sweep(const i64* request, const i32* static_row, std::ptrdiff_t n_pods, const i64* free, std::ptrdiff_t stride,
           const i64* slots, const i32* node_class, std::ptrdiff_t n_nodes, i32 n_resources, const u16* static_bits,
           i32 n_classes, u8* verdict, i32 threads);

// Resources alone: fits[p * n_nodes + n] = 1 if node n has a slot and covers the request of pod p.
void sweep_resources(const i64* request, std::ptrdiff_t n_pods, const i64* free, std::ptrdiff_t stride,
                     const i64* slots, std::ptrdiff_t n_nodes, i32 n_resources, u8* fits, i32 threads);

}  // namespace kscale::engine
