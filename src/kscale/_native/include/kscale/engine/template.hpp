#pragma once

#include <vector>

#include "kscale/engine/types.hpp"

namespace kscale::engine {

struct Template {  // a prepared node to copy
  i32 number = 0;           // its number in the ledger of devices
  i32 node_class = 0;
  u8 unschedulable = 0;
  i64 slots = 0;
  u32 migrated = 0;         // bit per in-tree volume plug-in
  std::vector<i64> free;    // by resource, without the amounts of the template's pods
  std::vector<i32> domain;  // by key; -1 = label absent; -2 = a domain of its own for every copy
  std::vector<i32> pods;    // classes of the template's pods (for counters and ports)
  std::vector<i32> limits;  // by driver; -1 = no limit
  std::vector<i32> exception_index, exception_class;  // copies whose name a selector contains
  i32 named_key = -1;                                 // the key whose value is the copy's own name
  std::vector<i32> taken_index, taken_domain;         // copies whose name is already a value of that key

  // The domain of a copy that would have its own, or -2.
  i32 domain_of_copy(i32 key, i32 copy) const {
    if (key != named_key) return -2;
    for (std::size_t i = 0; i < taken_index.size(); ++i)
      if (taken_index[i] == copy) return taken_domain[i];
    return -2;
  }
};

}  // namespace kscale::engine
