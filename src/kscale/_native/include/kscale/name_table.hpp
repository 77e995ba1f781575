#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

// Rows by name: a hash table over texts that someone else holds.
namespace kscale {

struct Name {
  const char* text;
  std::size_t size;
};

class NameTable {
 public:
  // Of a name that comes twice the last row counts. At most 2^30 names.
  explicit NameTable(std::vector<Name> names);

  // Rows of many names; -1: no such name. Lists mostly come in the order of the table, so the row after the last one is
  // looked at first; where that fails, a block of names is looked up at once, to wait for memory once instead of each.
  void rows(const std::vector<Name>& names, std::int64_t* out) const noexcept;

 private:
  static constexpr std::int32_t kFree = -1;
  static constexpr std::size_t kBlock = 64;

  // The tag tells most other names apart without a look at their texts.
  struct Slot {
    std::uint32_t tag;
    std::int32_t row;
  };

  static std::uint64_t hash(const Name& name) noexcept {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL ^ name.size;
    const char* at = name.text;
    std::size_t left = name.size;
    for (; left >= 8; left -= 8, at += 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      h = mix(h ^ word);
    }
    std::uint64_t word = 0;
    std::memcpy(&word, at, left);
    return mix(h ^ word);
  }
  static std::uint64_t mix(std::uint64_t h) noexcept {
    h *= 0xbf58476d1ce4e5b9ULL;
    h ^= h >> 29;
    h *= 0x94d049bb133111ebULL;
    return h ^ (h >> 32);
  }
  static bool same(const Name& a, const Name& b) noexcept {
    return a.size == b.size && std::memcmp(a.text, b.text, a.size) == 0;
  }

  static std::uint32_t tag(std::uint64_t h) noexcept { return static_cast<std::uint32_t>(h >> 32); }
  static void prefetch(const void* at) noexcept { __builtin_prefetch(at); }
  static void prefetch_text(const Name& name) noexcept {
    prefetch(name.text);
    prefetch(name.text + name.size);
  }

  // Hashes of names[begin, end), their slots on the way into the cache, and the texts of the next block too.
  void hash_block(const std::vector<Name>& names, std::size_t begin, std::size_t end, std::uint64_t* hashes) const noexcept {
    for (std::size_t i = end; i < std::min(end + kBlock, names.size()); ++i) prefetch_text(names[i]);
    for (std::size_t i = begin; i < end; ++i) {
      hashes[i - begin] = hash(names[i]);
      prefetch(&slots_[hashes[i - begin] & mask_]);
    }
  }

  // The names in the first slots of some hashes, then their texts, on the way into the cache.
  void fetch_candidates(const std::uint64_t* hashes, std::size_t count) const noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t row = slots_[hashes[i] & mask_].row;
      if (row != kFree) prefetch(&names_[static_cast<std::size_t>(row)]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t row = slots_[hashes[i] & mask_].row;
      if (row != kFree) prefetch_text(names_[static_cast<std::size_t>(row)]);
    }
  }

  bool follows(std::size_t row, const Name& name) const noexcept {
    return unique_ && row < names_.size() && same(names_[row], name);
  }

  std::size_t slot_of(const Name& name, std::uint64_t h) const noexcept {
    for (std::size_t at = h & mask_;; at = (at + 1) & mask_) {
      const Slot slot = slots_[at];
      if (slot.row == kFree || (slot.tag == tag(h) && same(names_[static_cast<std::size_t>(slot.row)], name))) return at;
    }
  }

  std::vector<Name> names_;
  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  bool unique_ = true;
};

}  // namespace kscale
