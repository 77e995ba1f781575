#pragma once

#include <vector>

#include "kscale/engine/search.hpp"

namespace kscale::engine {

struct LossInput {
  const i32* start;        // [n_parts + 1] into nodes
  const i32* nodes;        // nodes that are lost together
  i32 n_parts;
  const u8* stays;         // [pods] is lost with its node and needs no other
};

struct LossOutput {
  i32* moving;             // [n_parts] number of pods that need another node
  i32* homeless;           // [n_parts] number of those that fit on none
  i32* first;              // [n_parts][n_first] some of the latter, then -1
  i32 n_first;
};

// Computes the effect of each loss of nodes on their pods, separately; the engine's state is restored. The pods are
// placed by priority, then by `rank` (order of appearance), each on the first node that takes it.
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

// Returns how many more pods of a class fit on the nodes that are not cordoned, at most `most`. The class must depend
// on each node alone.
i64 more_of(Engine& engine, i32 pod, i64 most);

}  // namespace kscale::engine
