#pragma once

#include <numeric>

#include "kscale/engine/engine.hpp"

namespace kscale::engine {

// The nodes from `base` on that a class has not failed on since the last time its verdict could have improved: a
// union-find whose representative of i is the first candidate at or after i.
struct Engine::Candidates {
  Stamp stamp;
  i32 base = 0;
  std::vector<i32> next;  // nodes - base + 1 entries; the last is "none"

  i32 end() const { return base + static_cast<i32>(next.size()) - 1; }
  void start(i32 from, i32 nodes, Stamp now) {
    stamp = now;
    base = from;
    next.resize(static_cast<std::size_t>(nodes - from) + 1);
    std::iota(next.begin(), next.end(), 0);
  }
  void extend(i32 nodes) {  // new nodes are candidates; the old "none" becomes the first of them
    while (end() < nodes) next.push_back(static_cast<i32>(next.size()));
  }
  i32 find(i32 node) {
    i32 i = node - base;
    i32 root = i;
    while (next[static_cast<std::size_t>(root)] != root) root = next[static_cast<std::size_t>(root)];
    while (next[static_cast<std::size_t>(i)] != root) {
      const i32 up = next[static_cast<std::size_t>(i)];
      next[static_cast<std::size_t>(i)] = root;
      i = up;
    }
    return root + base;
  }
  void drop(i32 node) { next[static_cast<std::size_t>(node - base)] = node - base + 1; }
};

}  // namespace kscale::engine
