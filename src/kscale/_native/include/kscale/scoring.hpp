#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kscale/parallel.hpp"

namespace kscale {

// A compiled scorer: scores one pod against every node; zero is success. Called with the GIL released and from several
// threads at once, so it must not touch Python.
using ScoreRow = std::int32_t (*)(const std::int64_t* request, const std::int64_t* free, std::int64_t n_nodes,
                                  std::int64_t n_columns, double* scores);

// Sets scores[p * n_nodes + n]; `request` is [n_pods][n_columns], `free` [n_nodes][n_columns]. Returns the lowest pod
// for which the scorer failed, or n_pods.
inline std::ptrdiff_t score_all(const std::int64_t* request, std::ptrdiff_t n_pods, const std::int64_t* free,
                                std::ptrdiff_t n_nodes, std::ptrdiff_t n_columns, ScoreRow score, double* scores,
                                std::ptrdiff_t n_threads) {
  std::atomic<std::ptrdiff_t> failed{n_pods};
  parallel_for(n_pods, n_threads, [&failed, request, free, n_nodes, n_columns, score, scores](std::ptrdiff_t begin,
                                                                                             std::ptrdiff_t end) {
    for (std::ptrdiff_t pod = begin; pod < end; ++pod) {
      if (pod >= failed.load(std::memory_order_relaxed)) return;
      if (score(request + pod * n_columns, free, n_nodes, n_columns, scores + pod * n_nodes) == 0) continue;
      std::ptrdiff_t lowest = failed.load();
      while (pod < lowest && !failed.compare_exchange_weak(lowest, pod)) {
      }
      return;
    }
  });
  return failed.load();
}

}  // namespace kscale
