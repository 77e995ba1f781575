#pragma once

#include <vector>

#include "kscale/engine/search.hpp"

namespace kscale::engine {

struct LossInput {
  const i32* start;        // [n_parts + 1] into nodes
  const i32* nodes;        // what is lost together
  i32 n_parts;
  const u8* stays;         // [pods] goes with its node and needs no other
};

struct LossOutput {
  i32* moving;             // [n_parts] pods that look for a place
  i32* homeless;           // [n_parts] pods that find none
  i32* first;              // [n_parts][n_first] some of these, then -1
  i32 n_first;
};

// What each loss of nodes would do to the pods on them, each on its own; the engine ends as it began. The pods go by
// priority, then as `rank` has them (order of appearance), each to the first node that takes it.
class Losses {
 public:
  Losses(Engine& engine, i32 pods, const i32* pod_class, const i64* priority, const i32* node);
  // Parts `from` to `to` of the input.
  void run(const LossInput& in, i32 from, i32 to, LossOutput& out, Interrupted interrupted, void* context);

 private:
  static std::size_t at(i32 i) { return static_cast<std::size_t>(i); }
  Engine& engine_;
  Search search_;
  std::vector<i32> class_;
  std::vector<i64> priority_;
  std::vector<std::vector<i32>> on_node_;
};

// How many more of a class that looks at each node alone fit on the nodes that are not cordoned, `most` at most.
i64 more_of(Engine& engine, i32 pod, i64 most);

}  // namespace kscale::engine
