#include "kscale/engine/resources.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "kscale/dispatch.hpp"
#include "kscale/parallel.hpp"

namespace kscale::engine {

KSCALE_CLONES
u64 resource_mask(const i64* const* free, const i64* request, const i32* columns, i32 n_columns, const i64* slots,
                  std::ptrdiff_t base, i32 count) noexcept {
  u8 good[64];
  for (i32 i = 0; i < count; ++i) good[i] = slots[base + i] >= 1;
  for (i32 c = 0; c < n_columns; ++c) {
    const i64* row = free[columns[c]] + base;
    const i64 want = request[columns[c]];
    for (i32 i = 0; i < count; ++i) good[i] &= row[i] >= want;
  }
  u64 mask = 0;
  for (i32 i = 0; i < count; ++i) mask |= static_cast<u64>(good[i]) << i;
  return mask;
}

namespace {

// One pod against all nodes: out[n] = 1 where the node has a slot and covers the request.
KSCALE_CLONES
void cover_row(const i64* request, const i64* free, std::ptrdiff_t stride, const i64* slots, std::ptrdiff_t n_nodes,
               i32 n_resources, u8* out) noexcept {
  i64 first[4] = {INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN};
  const i64* column[4] = {slots, slots, slots, slots};
  i32 wanted = 0;
  i32 rest = n_resources;
  for (i32 r = 0; r < n_resources; ++r) {  // a request of zero never fails, even on an over-committed node
    if (request[r] <= 0) continue;
    if (wanted == 4) {
      rest = r;
      break;
    }
    first[wanted] = request[r];
    column[wanted] = free + r * stride;
    ++wanted;
  }
  const i64* c0 = column[0];
  const i64* c1 = column[1];
  const i64* c2 = column[2];
  const i64* c3 = column[3];
  if (wanted <= 2) {
    for (std::ptrdiff_t n = 0; n < n_nodes; ++n)
      out[n] = static_cast<u8>((slots[n] >= 1) & (c0[n] >= first[0]) & (c1[n] >= first[1]));
  } else {
    for (std::ptrdiff_t n = 0; n < n_nodes; ++n)
      out[n] = static_cast<u8>((slots[n] >= 1) & (c0[n] >= first[0]) & (c1[n] >= first[1]) & (c2[n] >= first[2]) &
                               (c3[n] >= first[3]));
  }
  for (i32 r = rest; r < n_resources; ++r) {
    if (request[r] <= 0) continue;
    const i64* row = free + r * stride;
    for (std::ptrdiff_t n = 0; n < n_nodes; ++n) out[n] &= static_cast<u8>(row[n] >= request[r]);
  }
}

// Merge the static verdict of each node into the row: first failing plug-in in profile order.
KSCALE_CLONES
void merge_row(const u8* early, const u8* late, std::ptrdiff_t n_nodes, u8* row) noexcept {
  for (std::ptrdiff_t n = 0; n < n_nodes; ++n) {
    const u8 fit = row[n] ? late[n] : static_cast<u8>(kNodeResourcesFit);
    row[n] = early[n] ? early[n] : fit;
  }
}

u8 first_plugin(u32 bits) {
  if (bits == 0) return 0;
  const u32 plugin = static_cast<u32>(std::countr_zero(bits));
  return plugin == kFiltered ? static_cast<u8>(kFilteredCode) : static_cast<u8>(plugin);
}

}  // namespace

void sweep_resources(const i64* request, std::ptrdiff_t n_pods, const i64* free, std::ptrdiff_t stride,
                     const i64* slots, std::ptrdiff_t n_nodes, i32 n_resources, u8* fits, i32 threads) {
  parallel_for(n_pods, threads, [=](std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t p = begin; p < end; ++p)
      cover_row(request + p * n_resources, free, stride, slots, n_nodes, n_resources, fits + p * n_nodes);
  });
}

void sweep(const i64* request, const i32* static_row, std::ptrdiff_t n_pods, const i64* free, std::ptrdiff_t stride,
           const i64* slots, const i32* node_class, std::ptrdiff_t n_nodes, i32 n_resources, const u16* static_bits,
           i32 n_classes, u8* verdict, i32 threads) {
  parallel_for(n_pods, threads, [=](std::ptrdiff_t begin, std::ptrdiff_t end) {
    // What the static bits say of every node, kept for the rows met last: [slot][early | late][node].
    constexpr std::ptrdiff_t kept = 64;
    const std::size_t row_size = 2 * static_cast<std::size_t>(n_nodes);
    std::vector<u8> expanded(row_size * kept);
    std::vector<i32> loaded(kept, -1);
    std::vector<u8> early(static_cast<std::size_t>(n_classes)), late(static_cast<std::size_t>(n_classes));
    for (std::ptrdiff_t p = begin; p < end; ++p) {
      u8* row = verdict + p * n_nodes;
      cover_row(request + p * n_resources, free, stride, slots, n_nodes, n_resources, row);
      const i32 wanted = static_row[p];
      const std::size_t slot = static_cast<std::size_t>(wanted % kept);
      u8* of_node = expanded.data() + slot * row_size;
      if (loaded[slot] != wanted) {
        loaded[slot] = wanted;
        const u16* bits = static_bits + static_cast<std::ptrdiff_t>(wanted) * n_classes;
        for (i32 c = 0; c < n_classes; ++c) {
          early[static_cast<std::size_t>(c)] = first_plugin(bits[c] & ((1u << kNodeResourcesFit) - 1));
          late[static_cast<std::size_t>(c)] = first_plugin(bits[c] & ~((1u << kNodeResourcesFit) - 1) & 0xFFFFu);
        }
        for (std::ptrdiff_t n = 0; n < n_nodes; ++n) {
          of_node[n] = early[static_cast<std::size_t>(node_class[n])];
          of_node[n_nodes + n] = late[static_cast<std::size_t>(node_class[n])];
        }
      }
      merge_row(of_node, of_node + n_nodes, n_nodes, row);
    }
  });
}

}  // namespace kscale::engine
