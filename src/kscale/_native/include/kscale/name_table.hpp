#pragma once

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
  explicit NameTable(std::vector<Name> names) : names_(std::move(names)), hashes_(names_.size()) {
    std::size_t slots = 16;
    while (slots < names_.size() * 2) slots *= 2;
    slots_.assign(slots, kFree);
    mask_ = slots - 1;
    for (std::size_t row = 0; row < names_.size(); ++row) {
      hashes_[row] = hash(names_[row]);
      std::int32_t& slot = slots_[slot_of(names_[row], hashes_[row])];
      unique_ = unique_ && slot == kFree;
      slot = static_cast<std::int32_t>(row);
    }
  }

  // -1: no such name.
  std::int64_t row(const Name& name) const noexcept { return slots_[slot_of(name, hash(name))]; }

  // Rows of many names. Lists mostly come in the order of the table: the row after the last one is looked at first.
  void rows(const std::vector<Name>& names, std::int64_t* out) const noexcept {
    std::size_t next = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool guessed = unique_ && next < names_.size() && same(names_[next], names[i]);
      out[i] = guessed ? static_cast<std::int64_t>(next) : row(names[i]);
      if (out[i] >= 0) next = static_cast<std::size_t>(out[i]) + 1;
    }
  }

 private:
  static constexpr std::int32_t kFree = -1;

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

  std::size_t slot_of(const Name& name, std::uint64_t h) const noexcept {
    for (std::size_t slot = h & mask_;; slot = (slot + 1) & mask_) {
      const std::int32_t row = slots_[slot];
      if (row == kFree || (hashes_[static_cast<std::size_t>(row)] == h && same(names_[static_cast<std::size_t>(row)], name)))
        return slot;
    }
  }

  std::vector<Name> names_;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::int32_t> slots_;
  std::size_t mask_ = 0;
  bool unique_ = true;
};

}  // namespace kscale
