#pragma once

#include "kscale/engine/types.hpp"

namespace kscale::engine {

// What a change has to be undone with. Entries are rolled back in reverse.
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
  std::size_t journal;
  i32 nodes;
  std::vector<i32> domains;  // number of domains per key
};

}  // namespace kscale::engine
