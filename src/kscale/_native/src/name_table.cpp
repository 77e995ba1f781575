#include "kscale/name_table.hpp"

#include <algorithm>
#include <utility>

namespace kscale {

NameTable::NameTable(std::vector<Name> names) : names_(std::move(names)) {
  std::size_t slots = 16;
  while (slots < names_.size() * 2) slots *= 2;
  slots_.assign(slots, Slot{0, kFree});
  mask_ = slots - 1;
  std::uint64_t hashes[kBlock];
  for (std::size_t begin = 0; begin < names_.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, names_.size());
    hash_block(names_, begin, end, hashes);
    for (std::size_t row = begin; row < end; ++row) {
      const std::uint64_t h = hashes[row - begin];
      Slot& slot = slots_[slot_of(names_[row], h)];
      unique_ = unique_ && slot.row == kFree;
      slot = Slot{tag(h), static_cast<std::int32_t>(row)};
    }
  }
}

void NameTable::rows(const std::vector<Name>& names, std::int64_t* out) const noexcept {
  std::size_t next = 0;
  std::uint64_t hashes[kBlock];
  for (std::size_t begin = 0; begin < names.size(); begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, names.size());
    const bool in_order = follows(next, names[begin]);
    if (!in_order) {
      hash_block(names, begin, end, hashes);
      fetch_candidates(hashes, end - begin);
    }
    for (std::size_t i = begin; i < end; ++i) {
      if (in_order && follows(next, names[i])) {
        out[i] = static_cast<std::int64_t>(next);
      } else {
        out[i] = slots_[slot_of(names[i], in_order ? hash(names[i]) : hashes[i - begin])].row;
      }
      if (out[i] >= 0) next = static_cast<std::size_t>(out[i]) + 1;
    }
  }
}

}  // namespace kscale
