#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kscale {

// Assigns numbers to different strings, in order of first appearance.
class StringNumbers {
 public:
  std::size_t count() const { return texts_.size(); }
  const std::string& text(std::size_t i) const { return texts_[i]; }

  // out[i]: the number of the string at[i], length[i]; -1 where `length` is negative.
  void number(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n, std::int32_t* out) {
    constexpr std::size_t kAhead = 16;
    for (std::size_t i = 0; i < n; ++i) {
      if (i + kAhead < n) __builtin_prefetch(data + at[i + kAhead]);
      out[i] = length[i] < 0 ? -1 : number({data + at[i], static_cast<std::size_t>(length[i])});
    }
  }

 private:
  struct Slot {
    std::size_t hash;
    std::int32_t number = -1;  // -1: free
  };

  std::int32_t number(std::string_view text) {
    if (2 * (texts_.size() + 1) > slots_.size()) grow();
    const std::size_t hash = std::hash<std::string_view>{}(text);
    Slot& slot = slot_of(hash, text);
    if (slot.number < 0) {
      texts_.emplace_back(text);
      slot = {hash, static_cast<std::int32_t>(texts_.size() - 1)};
    }
    return slot.number;
  }

  Slot& slot_of(std::size_t hash, std::string_view text) {
    for (std::size_t i = hash & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[i];
      if (slot.number < 0 || (slot.hash == hash && texts_[static_cast<std::size_t>(slot.number)] == text)) return slot;
    }
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number >= 0) slot_of(slot.hash, texts_[static_cast<std::size_t>(slot.number)]) = slot;
    }
  }

  std::vector<Slot> slots_;  // size: a power of two
  std::deque<std::string> texts_;
};

}  // namespace kscale
