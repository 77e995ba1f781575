#pragma once

#include "kscale/engine/engine.hpp"
#include "kscale/engine/scorer.hpp"

namespace kscale::engine {

struct SelectInput {
  const i32* pod_class;    // [n_pods] in the engine
  const i32* score_class;  // [n_pods] in the scorer
  const i32* node_set;     // [n_pods] which of the sets of nodes a PreFilter left, -1 = all nodes
  i32 n_pods;
  const i32* set_start;    // [sets + 1] into set_nodes
  const i32* set_nodes;    // ascending within a set
  const u8* acceptable;    // [nodes], or null = every node
  i32 percentage;          // percentageOfNodesToScore, 0 = by the number of nodes
  i64 start;               // where the search begins
};

struct SelectOutput {
  i32* node;               // [n_pods] node, kNowhere or kNotTried
  i32* order;              // [n_pods] pods in the order they were placed; `placed` of them
  i32 placed = 0;
  i64 start = 0;           // where the next search begins
  i32 status = 0;          // 1 = a scorer failed, 2 = interrupted
};

// How many nodes that take a pod are enough (upstream: numFeasibleNodesToFind).
i32 enough_nodes(i32 nodes, i32 percentage);

// Pods one after the other, each on the node with the greatest score, the first one in the list among equals; they stay
// placed (upstream: schedulePod).
void select_nodes(Engine& engine, Scorer& scorer, const SelectInput& in, SelectOutput& out, Interrupted interrupted,
                  void* context);

}  // namespace kscale::engine
