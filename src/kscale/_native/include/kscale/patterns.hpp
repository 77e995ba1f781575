// Items that were read before, and where others that are alike may differ: those are compared instead of read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kscale/json_reader.hpp"

namespace kscale {

// A string, number, true, false or null of an item whose value does not change what the item is reduced to.
struct FreeScalar {
  std::int32_t begin, end;  // in the item, quotes included
  bool noted;               // its place is noted: another must be a string of plain ASCII without escapes, too
};

struct Pattern {
  std::string text;                      // of the item
  std::vector<FreeScalar> free;          // ascending
  std::vector<std::int64_t> at, length;  // by slot, `at` from the item's begin on; length -1: nothing was noted
  std::int32_t combined = 0;             // number of its combination of texts
};

// The patterns of a projector: a bounded number, of items that were seen more than once.
//
// `sign`: what stands, near the begin of an item, before a string that items which are alike share. It only decides which
// patterns are tried.
class Patterns {
 public:
  explicit Patterns(std::string sign) : sign_(std::move(sign)) {}

  const std::string& sign() const { return sign_; }

  // The pattern that the item at `in` follows: its text but for free scalars. `in` is then behind the item, and `at` (from
  // `data` on) and `length` are set, one entry a slot. Null: nothing has changed.
  const Pattern* follow(const char* data, JsonReader& in, std::int64_t* at, std::int64_t* length);

  // An item that followed none was read; whether it is worth being learnt: now and then for each combination.
  bool wants(std::int32_t combined, std::size_t size);
  void learn(Pattern pattern);
  void clear();

 private:
  static constexpr std::size_t kSets = 1024, kWays = 4;
  static constexpr std::size_t kLargest = 1 << 16;  // bytes of an item
  static constexpr std::size_t kRoom = 24 << 20;    // bytes of all of them

  struct Set {
    std::array<std::int32_t, kWays> pattern{-1, -1, -1, -1};
    std::size_t next = 0;
  };

  std::size_t set_of(const char* begin, const char* end) const;
  bool follows(const Pattern& pattern, const char* data, JsonReader& in, std::int64_t* at, std::int64_t* length);

  std::string sign_;
  std::vector<Set> sets_;
  std::vector<Pattern> patterns_;
  std::vector<std::uint16_t> read_;  // by combination: how often none was followed
  std::size_t bytes_ = 0;
  std::int32_t last_ = -1;                                       // the pattern that was followed last
  std::vector<std::pair<std::int64_t, std::int64_t>> shifts_;  // (where in a pattern, by how much the item is further)
};

}  // namespace kscale
