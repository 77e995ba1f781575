#pragma once

#include <vector>

#include "kscale/engine/types.hpp"

namespace kscale::engine {

// The undo log of a change. Entries are rolled back in reverse order.
enum class Undo : u8 {
  kFree,          // a: resource, b: node; value: before
  kSlots,         // b: node; value: before
  kAnyPort,       // b: word; value: before
  kWildPort,      // b: word; value: before
  kSpecificPort,  // b: word; value: before
  kCount,         // a: row, b: domain; value: before
  kRegistered,    // a: row, b: domain; value: before
  kShape,         // a: row; value: min, b: domains
  kTotal,         // a: group; value: before
  kClaimUse,      // a: claim; value: before
  kDisk,          // a: disk, b: node, c: read only; value: references before
  kVolume,        // a: handle, b: node, c: driver; value: references before
  kNodeGone,      // b: node
};

struct Entry {
  Undo what;
  i32 a;
  i32 b;
  i32 c;
  i64 value;
};

struct Mark {
  std::size_t entries;
  i32 nodes;
  std::vector<i32> domains;  // number of domains per key
};

// The log of changes since the first open fork. Nodes that were added inside a fork need no entries: they are removed.
struct Journal {
  std::vector<Entry> entries;
  std::vector<Mark> marks;
  i32 floor = 0;                // nodes with a lower number need entries
  bool counters_copied = false; // counters are copied instead of logged

  bool open() const { return !marks.empty(); }
  bool keeps(i32 node) const { return node < floor; }
  bool counters() const { return !marks.empty() && !counters_copied; }
  void log(Undo what, i32 a, i32 b, i32 c, i64 value) { entries.push_back({what, a, b, c, value}); }
};

}  // namespace kscale::engine
