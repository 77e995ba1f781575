#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kscale {

// maximise sum(value[k] * take[k])  subject to  sum(demand[k, r] * take[k]) <= capacity[r],  0 <= take[k] <= limit[k].
//
// `multipliers` (n_multipliers x n_resources, all >= 0) are the surrogate constraints that bounds are made of: any choice
// gives the same answer, a good one (the dual of the linear relaxation, first row) gives it sooner.
struct KnapsackProblem {
  std::ptrdiff_t n_items = 0;
  std::ptrdiff_t n_resources = 0;
  std::ptrdiff_t n_multipliers = 0;
  const std::int64_t* value = nullptr;     // [n_items], >= 0
  const std::int64_t* demand = nullptr;    // [n_items, n_resources], >= 0
  const std::int64_t* limit = nullptr;     // [n_items], >= 0
  const std::int64_t* capacity = nullptr;  // [n_resources], >= 0
  const double* multipliers = nullptr;     // [n_multipliers, n_resources]
  std::int64_t at_least = 0;               // solutions that are not worth more are of no interest
};

struct KnapsackEffort {
  std::int64_t node_limit = 0;  // give up after so many nodes
  std::int64_t patience = 0;    // the same, once there is a solution
  std::size_t keep = 1;         // how many solutions to return
};

struct KnapsackResult {
  std::int64_t best = 0;   // the value of the last solution, at_least if there is none
  std::int64_t upper = 0;  // no solution is worth more; == best unless the search was given up
  std::int64_t nodes = 0;
  std::vector<std::vector<std::int64_t>> solutions;  // each better than the one before
};

// Branch and bound, depth first. Needs sum(value * limit) < 2^52, so that a double holds every value exactly.
KnapsackResult solve_knapsack(const KnapsackProblem& problem, const KnapsackEffort& effort);

}  // namespace kscale
