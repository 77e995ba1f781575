#pragma once

#include "kscale/engine/engine.hpp"

namespace kscale::engine {

struct SimulateInput {
  const i32* pod_class;    // [n_pods], by priority, highest first
  const i32* hint;         // [n_pods] node, or -1
  const i32* similar;      // [n_pods] equal numbers: replicas that no predicate can distinguish; -1 = not remembered
  const i32* controller;   // [n_pods] number of their controller, or -1
  i32 n_pods;
  const i32* group_start;  // [n_groups + 1]: pods of one priority
  i32 n_groups;
  i32 n_similar, n_controllers;
  const u8* acceptable;    // [nodes], or null = every node
  bool break_on_failure;   // end a priority at its first pod that fits nowhere
  i64 max_looks;           // maximum number of checked pods, in both passes; -1 = no limit
};

constexpr i32 kNowhere = -1, kNotTried = -2;

struct SimulateOutput {
  i32* node;               // [n_pods] node, kNowhere or kNotTried
  i32* order;              // [n_pods] pods in the order they were placed; `placed` of them
  i32 placed = 0;
  i32 overflowing = 0;     // controllers with more shapes than are remembered
  i32 status = 0;          // 2 = interrupted
};

// The hinting simulator: pods are placed one after the other and stay placed.
void try_schedule(Engine& engine, const SimulateInput& in, SimulateOutput& out, Interrupted interrupted, void* context);

}  // namespace kscale::engine
