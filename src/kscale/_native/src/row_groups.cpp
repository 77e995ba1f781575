#include "kscale/row_groups.hpp"

#include <algorithm>

namespace kscale {

void group_rows(const std::int32_t* number, std::size_t n, std::size_t count, std::int64_t* starts,
                std::int64_t* rows) {
  std::fill(starts, starts + count + 1, 0);
  for (std::size_t i = 0; i < n; ++i) {
    if (number[i] >= 0) ++starts[static_cast<std::size_t>(number[i]) + 1];
  }
  for (std::size_t k = 0; k < count; ++k) starts[k + 1] += starts[k];
  std::vector<std::int64_t> next(starts, starts + count);
  for (std::size_t i = 0; i < n; ++i) {
    if (number[i] >= 0) rows[next[static_cast<std::size_t>(number[i])]++] = static_cast<std::int64_t>(i);
  }
}

void select_rows(const std::int64_t* starts, const std::int64_t* rows, const std::int64_t* begin,
                 const std::int64_t* groups, std::size_t m, std::int64_t* ends, std::vector<std::int64_t>& out) {
  ends[0] = 0;
  for (std::size_t i = 0; i < m; ++i) {
    const std::size_t first = out.size();
    for (std::int64_t k = begin[i]; k < begin[i + 1]; ++k) {
      out.insert(out.end(), rows + starts[groups[k]], rows + starts[groups[k] + 1]);
    }
    if (begin[i + 1] - begin[i] > 1) std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end());
    ends[i + 1] = static_cast<std::int64_t>(out.size());
  }
}

}  // namespace kscale
