#pragma once

#include <cstddef>
#include <cstdint>

// Usage of pods out of the columns of their containers.
// Upstream: pkg/controller/podautoscaler/metrics/client.go. Amounts are int64 milli-units and wrap.
namespace kscale::pod_usage {

// One row a pod: where its containers end, when it was measured and over which window.
struct Pods {
  const std::int64_t* ends;
  const std::int64_t* time;
  const std::int64_t* window;
};

// One row a container: the number of its name, how much, and whether that is told.
struct Containers {
  const std::int32_t* name;
  const std::int64_t* amount;
  const std::uint8_t* present;
};

struct Samples {
  std::uint8_t* present;
  std::int64_t* value;
  std::int64_t* time;
  std::int64_t* window;
};

// The samples of pods: a row of each, negative: none. `named` < 0: of all containers, which must all tell it; else of the
// first of this name.
inline void sample(const Pods& pods, const Containers& containers, std::int32_t named, const std::int64_t* rows,
                   std::size_t n, const Samples& out) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t row = rows[i];
    std::int64_t value = 0;
    bool counts = false;
    if (row >= 0) {
      const std::int64_t end = pods.ends[row];
      std::int64_t at = row ? pods.ends[row - 1] : 0;
      if (named < 0) {
        counts = at < end;
        for (; at < end; ++at) {
          counts = counts && containers.present[at] != 0;
          value += containers.amount[at];
        }
      } else {
        while (at < end && containers.name[at] != named) ++at;
        counts = at < end && containers.present[at] != 0;
        if (counts) value = containers.amount[at];
      }
    }
    out.present[i] = counts;
    out.value[i] = counts ? value : 0;
    out.time[i] = row >= 0 ? pods.time[row] : 0;
    out.window[i] = row >= 0 ? pods.window[row] : 0;
  }
}

}  // namespace kscale::pod_usage
