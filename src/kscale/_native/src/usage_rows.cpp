#include <algorithm>
#include <utility>
#include <vector>

#include "kscale/dispatch.hpp"
#include "kscale/parallel.hpp"
#include "kscale/usage.hpp"
#include "kscale/usage_owners.hpp"

// Rows of recorded usage in the order in which histograms are touched once.

namespace kscale::usage {
namespace {

KSCALE_CLONED std::ptrdiff_t count_changes(const std::int32_t* series, std::ptrdiff_t n) noexcept {
  std::ptrdiff_t count = 0;
  for (std::ptrdiff_t i = 1; i < n; ++i) count += static_cast<std::ptrdiff_t>(series[i] != series[i - 1]);
  return count;
}

}  // namespace

std::ptrdiff_t changes(const std::int32_t* series, std::ptrdiff_t n) noexcept {
  return at_cpu_level<count_changes>(series, n);
}

std::ptrdiff_t arrange(const Containers& containers, std::ptrdiff_t n_aggregates, std::ptrdiff_t rows, const RowsIn& in,
                       std::ptrdiff_t n_series, const std::int32_t* slot, const RowsOut& out, std::ptrdiff_t threads) {
  const std::ptrdiff_t parts = std::clamp<std::ptrdiff_t>(threads, 1, kMostThreads);
  // Groups in their order: the aggregates of each thread, then rows that belong nowhere, then those nobody asked for.
  const std::ptrdiff_t width = (n_aggregates + parts - 1) / parts;
  const std::ptrdiff_t outside = width * parts, nobody = outside + 1;
  const auto groups = static_cast<std::size_t>(nobody + 1);
  std::vector<std::int32_t> group_of(static_cast<std::size_t>(n_series));
  for (std::size_t s = 0; s < group_of.size(); ++s) {
    const std::int32_t row = slot[s] < 0 ? 0 : containers.aggregate[slot[s]];
    group_of[s] = static_cast<std::int32_t>(slot[s] == kUnasked     ? nobody
                                            : slot[s] == kUnplaced ? outside
                                                                   : row % parts * width + row / parts);
  }
  // A block of rows per thread; place[block, group] is where the block's next row of that group goes.
  std::vector<std::vector<std::ptrdiff_t>> place(static_cast<std::size_t>(parts), std::vector<std::ptrdiff_t>(groups));
  const std::ptrdiff_t step = (rows + parts - 1) / parts;
  const auto in_block = [&](std::ptrdiff_t block, auto each) {
    auto& own = place[static_cast<std::size_t>(block)];
    for (std::ptrdiff_t i = block * step; i < std::min(rows, (block + 1) * step); ++i)
      each(i, own[static_cast<std::size_t>(group_of[static_cast<std::size_t>(in.series[i])])]);
  };
  parallel_for(parts, parts, [&](std::ptrdiff_t block, std::ptrdiff_t end) {
    for (; block < end; ++block) in_block(block, [](std::ptrdiff_t, std::ptrdiff_t& count) { ++count; });
  });
  std::ptrdiff_t at = 0, kept = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    if (group == static_cast<std::size_t>(nobody)) kept = at;
    for (auto& own : place) at += std::exchange(own[group], at);
  }
  parallel_for(parts, parts, [&](std::ptrdiff_t block, std::ptrdiff_t end) {
    for (; block < end; ++block)
      in_block(block, [&](std::ptrdiff_t i, std::ptrdiff_t& next) {
        const std::ptrdiff_t to = next++;
        out.series[to] = in.series[i];
        out.time[to] = in.time[i];
        if (in.cpu != nullptr) out.cpu[to] = in.cpu[i];
        if (in.memory != nullptr) out.memory[to] = in.memory[i];
      });
  });
  return kept;
}

}  // namespace kscale::usage
