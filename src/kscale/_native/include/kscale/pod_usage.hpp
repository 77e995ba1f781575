#pragma once

#include <cstddef>
#include <cstdint>

// Computes the usage of pods from the columns of their containers.
// Upstream: pkg/controller/podautoscaler/metrics/client.go. Amounts are int64 milli-units and wrap.
namespace kscale::pod_usage {

// One row per pod: the end of its containers' rows, and time and window of the measurement.
struct Pods {
  const std::int64_t* ends;
  const std::int64_t* time;
  const std::int64_t* window;
};

// One row per container: number of its name, amount, and whether there is an amount.
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

// Writes the samples of the pods in `rows` (negative: no pod). `named` < 0: the sum of all containers, which must all
// have an amount; else the amount of the first container with this name.
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
