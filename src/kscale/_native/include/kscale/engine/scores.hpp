#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kscale/engine/types.hpp"
#include "kscale/go_math.hpp"

// The formulas of kube-scheduler's Score plug-ins: for one node, and for the scores of all feasible nodes.
namespace kscale::engine {

inline constexpr i64 kMostScore = 100;

// Go's division: the lowest number divided by -1 is itself, where the processor would trap.
inline i64 divided(i64 a, i64 b) { return b == -1 ? -a : a / b; }

// -- NodeResourcesFit (plugins/noderesources: least_allocated, most_allocated, requested_to_capacity_ratio) ------------

inline i64 least_allocated(i64 requested, i64 capacity) {
  return capacity == 0 || requested > capacity ? 0 : divided((capacity - requested) * kMostScore, capacity);
}

inline i64 most_allocated(i64 requested, i64 capacity) {
  return capacity == 0 ? 0 : divided(std::min(requested, capacity) * kMostScore, capacity);
}

// Linear between points (utilization in percent, score); constant before the first point and after the last one.
inline i64 broken_line(const std::vector<std::pair<i64, i64>>& shape, i64 at) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (at > shape[i].first) continue;
    if (i == 0) return shape[0].second;
    const auto [x, y] = shape[i - 1];
    return y + (shape[i].second - y) * (at - x) / (shape[i].first - x);
  }
  return shape.empty() ? 0 : shape.back().second;
}

inline i64 capacity_ratio(const std::vector<std::pair<i64, i64>>& shape, i64 requested, i64 capacity) {
  constexpr i64 full = 100;
  if (capacity == 0 || requested > capacity) return broken_line(shape, full);
  if (capacity <= 0 || requested <= 0) return broken_line(shape, 0);
  if (requested >= capacity) return broken_line(shape, full);
  if (requested <= std::numeric_limits<i64>::max() / full) return broken_line(shape, requested * full / capacity);
  // requested * full does not fit: long division, one digit of the percentage at a time.
  i64 percent = 0, rest = 0;
  for (i64 bit = 64; bit > 0; bit /= 2) {  // full = 64 + 32 + 4; rest stays below capacity
    const i64 doubled = rest >= capacity - rest ? rest - (capacity - rest) : rest + rest;
    percent = 2 * percent + (rest >= capacity - rest ? 1 : 0);
    rest = doubled;
    if ((full & bit) != 0) {
      percent += rest >= capacity - requested ? 1 : 0;
      rest = rest >= capacity - requested ? rest - (capacity - requested) : rest + requested;
    }
  }
  return broken_line(shape, percent);
}

// -- NodeResourcesBalancedAllocation (plugins/noderesources/balanced_allocation) ---------------------------------------

// How similar the shares of all used resources are; `share(i, &x)`: whether resource i counts.
template <typename Share>
i64 balance(i32 resources, Share share) {
  double fraction[2] = {0, 0}, total = 0;
  i32 count = 0;
  for (i32 r = 0; r < resources; ++r) {
    double x = 0;
    if (!share(r, x)) continue;
    x = x > 1 ? 1 : x;
    total += x;
    if (count < 2) fraction[count] = x;
    ++count;
  }
  double deviation = 0;
  if (count == 2) {
    deviation = std::abs((fraction[0] - fraction[1]) / 2);
  } else if (count > 2) {
    const double mean = total / count;
    double sum = 0;
    for (i32 r = 0; r < resources; ++r) {
      double x = 0;
      if (!share(r, x)) continue;
      x = x > 1 ? 1 : x;
      sum = sum + (x - mean) * (x - mean);
    }
    deviation = std::sqrt(sum / count);
  }
  return go::to_int64((1 - deviation) * static_cast<double>(kMostScore));
}

inline i64 balanced_allocation(i64 with_pod, i64 without_pod) {
  return kMostScore / 2 + (kMostScore / 2 + with_pod - without_pod) / 2;
}

// -- normalising -------------------------------------------------------------------------------------------------------

// Scales from 0 to the maximum (plugins/helper, DefaultNormalizeScore).
inline void normalize(i64* scores, i32 n, bool reverse) {
  i64 most = 0;
  for (i32 i = 0; i < n; ++i) most = std::max(most, scores[i]);
  for (i32 i = 0; i < n; ++i) {
    const i64 scaled = most == 0 ? (reverse ? 0 : scores[i]) : kMostScore * scores[i] / most;
    scores[i] = reverse ? kMostScore - scaled : scaled;
  }
}

// InterPodAffinity: scales from the minimum to the maximum.
inline void normalize_between(i64* scores, i32 n) {
  const auto [least, most] = std::minmax_element(scores, scores + n);
  const i64 low = *least, span = *most - low;
  for (i32 i = 0; i < n; ++i)
    scores[i] = span <= 0 ? 0
                          : go::to_int64(static_cast<double>(kMostScore) *
                                         (static_cast<double>(scores[i] - low) / static_cast<double>(span)));
}

// PodTopologySpread: few pods give a high score; a negative score stands for a node that is left out.
inline void normalize_spread(i64* scores, i32 n) {
  i64 least = std::numeric_limits<i64>::max(), most = 0;
  for (i32 i = 0; i < n; ++i) {
    if (scores[i] < 0) continue;
    least = std::min(least, scores[i]);
    most = std::max(most, scores[i]);
  }
  for (i32 i = 0; i < n; ++i)
    scores[i] = scores[i] < 0 ? 0 : most == 0 ? kMostScore : kMostScore * (most + least - scores[i]) / most;
}

}  // namespace kscale::engine
