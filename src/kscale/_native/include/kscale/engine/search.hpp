#pragma once

#include <vector>

#include "kscale/engine/engine.hpp"

namespace kscale::engine {

// Circular first fit as in Engine::any_node, for a period in which nodes only fill up: failures are remembered by
// demand. A failure on a node that an undone step had filled is forgotten.
class Search {
 public:
  explicit Search(Engine& engine);
  Search(const Search& other, Engine& engine);  // on a copy of the other's engine; without remembered failures
  void open(const u8* acceptable);  // which nodes may be found: uint8[nodes], or null = all
  void close(i32 node);
  void reopen(i32 node);
  i32 find(i32 pod, const u8* acceptable);  // a node or -1; moves the cursor on success
  void placed(i32 node) { filled_[static_cast<std::size_t>(node)] = step_; }
  void begin() { ++step_; dropped_.clear(); }
  void undo();                      // removes the pods placed since begin() from their nodes

 private:
  struct Dropped {
    i32 demand, node;
  };
  i32 scan(i32 demand, i32 pod, i32 from, i32 to);

  Engine& engine_;
  std::vector<i32> demand_;                // [class] its demand of a node, -1 = verdicts depend on other nodes
  std::vector<std::vector<u64>> failed_;   // [demand][words]
  std::vector<u64> open_;
  std::vector<u32> filled_;                // [node] the last step that put a pod there
  std::vector<Dropped> dropped_;
  u32 step_ = 1;
};

}  // namespace kscale::engine
