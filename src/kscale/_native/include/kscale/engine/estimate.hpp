#pragma once

#include "kscale/engine/engine.hpp"

namespace kscale::engine {

struct EstimateInput {
  const i32* pod_class;    // [n_pods], group after group in the orderer's order
  i32 n_pods;
  const i32* group_start;  // [n_groups + 1]
  i32 n_groups;
  const Template* node;
  i64 max_nodes;           // the limiter's node limit: 0 = none, negative = nothing may be added
  bool fast_last;          // the last group takes the fast path
  i32 clash;               // copy whose name exists already, or -1
};

// A node number from kFake on belongs to a node that the fast path only counts: kFake + j = "<last new node>-fake-<j>".
constexpr i32 kFake = i32{1} << 30;

struct EstimateOutput {
  i32* placement;          // [n_pods] node, kFake + j, or -1
  i32* order;              // [n_pods] pods in the order they were placed; `scheduled` of them
  i32 scheduled = 0;
  i32 nodes_added = 0;
  i32 nodes_with_pods = 0;
  i32 status = 0;          // 0 ok, 1 name clash (the result is invalid), 2 interrupted
  i32 stopped_at = -1;     // group after which no more nodes were permitted, or -1
};

// First-fit decreasing as in upstream's binpacking estimator. It always forks and reverts; the cursor stays moved.
void estimate(Engine& engine, const EstimateInput& in, EstimateOutput& out, Interrupted interrupted, void* context);

}  // namespace kscale::engine
