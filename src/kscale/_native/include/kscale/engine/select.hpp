#pragma once

#include "kscale/engine/engine.hpp"
#include "kscale/engine/scorer.hpp"

namespace kscale::engine {

struct SelectInput {
  const i32* pod_class;    // [n_pods] in the engine
  const i32* score_class;  // [n_pods] in the scorer
  const i32* node_set;     // [n_pods] set of nodes that a PreFilter selected, -1 = all nodes
  i32 n_pods;
  const i32* set_start;    // [sets + 1] into set_nodes
  const i32* set_nodes;    // ascending within a set
  const u8* acceptable;    // [nodes], or null = every node
  i32 percentage;          // percentageOfNodesToScore, 0 = by the number of nodes
  i64 start;               // start of the search
};

struct SelectOutput {
  i32* node;               // [n_pods] node, kNowhere or kNotTried
  i32* order;              // [n_pods] pods in the order they were placed; `placed` of them
  i32 placed = 0;
  i64 start = 0;           // start of the next search
  i32 status = 0;          // 1 = a scorer failed, 2 = interrupted
};

// Returns how many feasible nodes are enough (upstream: numFeasibleNodesToFind).
i32 enough_nodes(i32 nodes, i32 percentage);

// Places pods one after the other, each on the node with the highest score, among equals on the first in the list; they
// stay placed (upstream: schedulePod).
void select_nodes(Engine& engine, Scorer& scorer, const SelectInput& in, SelectOutput& out, Interrupted interrupted,
                  void* context);

}  // namespace kscale::engine
