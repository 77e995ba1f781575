// Index of rows by name: a hash table that stores only the hashes of the names, not the names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kscale {

class RowIndex {
 public:
  using Hash = std::uint64_t;

  RowIndex() : slots_(kLeast, Slot{0, kNone}) {}

  std::size_t count() const { return count_; }

  void prefetch(Hash hash) const { __builtin_prefetch(&slots_[hash & mask()]); }
  // Returns the slot at which the search for a hash begins, for `next`.
  std::size_t begin(Hash hash) const { return hash & mask(); }
  // Returns the next row with this hash from slot `at` on, and moves `at` behind it; kNone if there is none. The caller
  // must compare the names.
  std::int32_t next(Hash hash, std::size_t& at) const {
    for (;; at = (at + 1) & mask()) {
      const Slot& slot = slots_[at];
      if (slot.row == kNone) return kNone;
      if (slot.hash != hash) continue;
      at = (at + 1) & mask();
      return slot.row;
    }
  }

  // Makes room for `more` rows.
  void reserve(std::size_t more) {
    std::size_t size = slots_.size();
    while (size < (count_ + more) * 2) size *= 2;
    if (size != slots_.size()) resize(size);
  }
  // Adds a row that the index does not have. The index holds at most 2^31 rows.
  void add(Hash hash, std::int32_t row) {
    reserve(1);
    insert({hash, row});
    ++count_;
  }
  // Changes the number of a row. Returns false if the index does not have the row.
  bool move(Hash hash, std::int32_t row, std::int32_t to) {
    const std::size_t at = place(hash, row);
    if (slots_[at].row == kNone) return false;
    slots_[at].row = to;
    return true;
  }
  // Removes a row. Returns false if the index does not have it. Later entries move up, so that no marker of a removed
  // entry is needed.
  bool remove(Hash hash, std::int32_t row) {
    std::size_t free = place(hash, row);
    if (slots_[free].row == kNone) return false;
    for (std::size_t at = (free + 1) & mask(); slots_[at].row != kNone; at = (at + 1) & mask()) {
      const std::size_t wanted = begin(slots_[at].hash);
      if (((at - wanted) & mask()) < ((at - free) & mask())) continue;  // it would be before its first slot
      slots_[free] = slots_[at];
      free = at;
    }
    slots_[free].row = kNone;
    --count_;
    if (slots_.size() > kLeast && count_ * 8 < slots_.size()) resize(slots_.size() / 2);
    return true;
  }

  static constexpr std::int32_t kNone = -1;

 private:
  static constexpr std::size_t kLeast = 16;

  struct Slot {
    Hash hash;
    std::int32_t row;
  };

  std::size_t mask() const { return slots_.size() - 1; }
  std::size_t place(Hash hash, std::int32_t row) const {
    std::size_t at = begin(hash);
    while (slots_[at].row != kNone && (slots_[at].row != row || slots_[at].hash != hash)) at = (at + 1) & mask();
    return at;
  }
  void insert(const Slot& slot) {
    std::size_t at = begin(slot.hash);
    while (slots_[at].row != kNone) at = (at + 1) & mask();
    slots_[at] = slot;
  }
  void resize(std::size_t size) {
    std::vector<Slot> before(size, Slot{0, kNone});
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.row != kNone) insert(slot);
    }
  }

  std::vector<Slot> slots_;  // the size is a power of two, and at most half of the slots are in use
  std::size_t count_ = 0;
};

// Sets twice[i] to 1 for each hash that occurs more than once. Returns whether there are any.
bool find_repeated(const std::uint64_t* hashes, std::size_t n, std::uint8_t* twice);

}  // namespace kscale
