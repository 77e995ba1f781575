// Patterns of JSON values that were read before. A value that differs from a pattern only in the pattern's free parts
// is compared with the pattern's text instead of being parsed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kscale/json_reader.hpp"

namespace kscale {

// A part of a value that may differ from the pattern: a scalar that does not change the reduced text of the value, or a
// part that is read by a rule of its own.
struct FreePart {
  std::int32_t begin, end;  // positions in the value, quotes included
  bool noted = false;       // its place is recorded: a replacement must be a string of plain ASCII without escapes
  std::int32_t rule = -1;   // the rule that reads this part; -1: none

  bool takes(const FreePart& other) const { return noted == other.noted && rule == other.rule; }
};

// A position in a value: `behind` bytes after the end of the last of the first `parts` free parts.
struct PatternPlace {
  std::int32_t parts = 0, behind = 0;
};

// The positions of a recorded part; `slot`: the slot of its projection rule.
struct PatternNote {
  std::int32_t slot = -1;
  PatternPlace begin, end;
};

// A free part with a rule of its own.
struct PatternFacet {
  std::int32_t rule = -1, part = -1;
  PatternPlace begin;
  std::string text;     // its reduced text
  bool counts = false;  // false: the part is treated as absent
};

struct Pattern {
  std::string text;                                        // the value's JSON text, an object or an array
  std::vector<FreePart> free;                              // in order of position
  std::vector<PatternNote> notes;                          // recorded positions, ascending
  std::string kept;                                        // the reduced text
  std::vector<PatternFacet> facets;                        // parts with rules of their own, in order of position
  bool present = false;
  std::uint64_t serial = next_serial();                    // unique in the process; copies share it

  static std::uint64_t next_serial();

  PatternPlace place(std::int32_t at) const;
  std::string_view text_of(std::int32_t part) const {
    const FreePart& of = free[static_cast<std::size_t>(part)];
    return {text.data() + of.begin, static_cast<std::size_t>(of.end - of.begin)};
  }
};

// A facet of a value whose text is that of the pattern that the value matched.
struct SameFacet {
  const Pattern* pattern;
  const PatternFacet* facet;
};

// A hash table of pairs of slots: a new entry takes the first slot of its pair, the entry there moves to the second slot,
// and the entry there is dropped. The number of slots is a power of two, and grows up to `kMost` once many entries were
// dropped.
template <class Entry, std::size_t kLeast, std::size_t kMost>
class PlacedEntries {
 public:
  // Returns the entry with this hash that `is(entry)`; null if there is none.
  template <class Is>
  const Entry* find(std::uint64_t hash, Is is) const {
    if (entries_.empty()) return nullptr;
    const Entry* const first = &entries_[place_of(hash)];
    if (is(*first)) return first;
    const Entry* const second = &entries_[place_of(hash) ^ 1];
    return is(*second) ? second : nullptr;
  }
  // Returns the entry with this hash that `is(entry)`, or else a slot for it, whose entry is to be overwritten.
  template <class Is>
  Entry& place(std::uint64_t hash, Is is) {
    if (entries_.empty()) entries_.resize(kLeast);
    if (is(entries_[place_of(hash)])) return entries_[place_of(hash)];
    if (is(entries_[place_of(hash) ^ 1])) return entries_[place_of(hash) ^ 1];
    if (entries_[place_of(hash) ^ 1].in_use() && ++dropped_ > entries_.size() / 4 && entries_.size() < kMost) {
      std::vector<Entry> before(4 * entries_.size());
      before.swap(entries_);
      for (Entry& each : before) {
        if (each.in_use()) make_room(each.hash()) = std::move(each);
      }
      dropped_ = 0;
    }
    return make_room(hash);
  }
  void clear() {
    entries_.clear();
    dropped_ = 0;
  }

 private:
  std::size_t place_of(std::uint64_t hash) const { return hash & (entries_.size() - 1); }
  Entry& make_room(std::uint64_t hash) {
    Entry &first = entries_[place_of(hash)], &second = entries_[place_of(hash) ^ 1];
    std::swap(first, second);
    return first;
  }

  std::vector<Entry> entries_;
  std::size_t dropped_ = 0;
};

// A cache of texts that were found in place of a pattern's facet, with the numbers of their reduced texts. A cached text
// need not be parsed again.
class KnownParts {
 public:
  struct Part {
    std::uint64_t key = 0;
    std::int32_t rule = -1, number = -1;
    std::string text;  // an object or array, so a value that starts with this text ends with it

    std::uint64_t hash() const { return key; }
    bool in_use() const { return rule >= 0; }
  };

  // Returns the entry of the text at `p`, if the text was stored with this key and rule; null otherwise. `taken`: set to
  // whether there is an entry with this key and rule.
  const Part* find(std::uint64_t key, std::int32_t rule, const char* p, const char* end, bool& taken) const;
  void store(std::uint64_t key, std::int32_t rule, std::string_view text, std::int32_t number);
  void clear() {
    parts_.clear();
    bytes_ = 0;
  }

 private:
  static constexpr std::size_t kLongest = 1024;   // longest text that is stored, in bytes
  static constexpr std::size_t kRoom = 4 << 20;  // limit of all texts, in bytes

  PlacedEntries<Part, 2048, 32768> parts_;
  std::size_t bytes_ = 0;
};

// A cache of the numbers of reduced texts by the serials of the patterns that matched. The numbers belong to one
// projector.
class KnownNumbers {
 public:
  using Key = std::array<std::uint64_t, 4>;

  std::int32_t find(const Key& key) const;  // -1: not stored
  void store(const Key& key, std::int32_t number);
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    Key key{};
    std::int32_t number = -1;

    std::uint64_t hash() const { return hash_of(key); }
    bool in_use() const { return number >= 0; }
  };
  static std::uint64_t hash_of(const Key& key);

  PlacedEntries<Entry, 4096, 16384> entries_;
};

// The patterns of the values of one place, as a tree: a value that begins like a pattern and then differs is a branch
// of it. Several threads may match values at the same time while no pattern is added.
class PatternTree {
 public:
  // From free part number `first` on, positions in the value are `shift` bytes greater than in the pattern.
  struct Stretch {
    std::int32_t first, pattern, shift;
  };

  // A free part with a rule whose text in the value differs from the pattern's. `key`: its key in the cache of known
  // parts; `number`: its number there, -1 if it is not cached.
  struct OtherPart {
    std::int32_t part, number;
    std::uint64_t key;
  };

  // How far a value matched.
  struct Trace {
    std::int32_t pattern = -1;          // the last pattern that was compared; -1: none
    std::int32_t at = 0, value_at = 0;  // the first mismatch, as positions in the pattern and in the value
    std::size_t next = 0;               // number of the first free part after that position
    std::vector<Stretch> stretches;     // offsets of the free parts before it
    std::vector<OtherPart> others;
    const PatternTree* tree = nullptr;

    bool is_direct() const { return stretches.front().pattern == pattern; }  // no other pattern was compared
    const OtherPart* other(std::int32_t part) const {  // null: the part's text is that of the pattern
      const auto found = std::ranges::find(others, part, &OtherPart::part);
      return found == others.end() ? nullptr : &*found;
    }
  };

  // Converts positions of a pattern to positions of the value that matched it. Must be called in ascending order, and
  // before the next pattern is added to the tree.
  class Places {
   public:
    explicit Places(const Trace& trace) : trace_(trace) { begin(0); }
    std::int32_t place(const PatternPlace& of) { return of.behind + (of.parts ? end_of(of.parts - 1) : 0); }
    std::int32_t end_of(std::int32_t part) {  // the end of a free part
      while (part >= next_) begin(stretch_ + 1);
      return free_[part].end + shift_;
    }

   private:
    void begin(std::size_t stretch) {
      const std::vector<Stretch>& all = trace_.stretches;
      stretch_ = stretch;
      free_ = trace_.tree->patterns_[static_cast<std::size_t>(all[stretch].pattern)].free.data();
      shift_ = all[stretch].shift;
      next_ = stretch + 1 < all.size() ? all[stretch + 1].first : std::numeric_limits<std::int32_t>::max();
    }

    const Trace& trace_;
    const FreePart* free_;
    std::size_t stretch_;
    std::int32_t shift_, next_;
  };

  // Returns the pattern that the value at `in` matches (it differs only in free parts), and moves `in` behind the
  // value; null if none matches. `first`: the pattern to begin with, the root or a guess. With a guess, null may also
  // mean that the guess was wrong. `workload`: a hash of what items have in common whose facets probably have the same
  // texts; 0: nothing is known.
  const Pattern* follow(JsonReader& in, const KnownParts& known, Trace& trace, std::int32_t first = 0,
                        std::uint64_t workload = 0) const;
  // Adds the pattern of a value that matched none, at the position of the trace that the value left. Returns the bytes
  // that the pattern takes; 0 if it cannot be added.
  std::size_t add(Pattern pattern, const Trace& trace);

  std::size_t learnt = 0, followed = 0;

  const std::vector<Pattern>& patterns() const { return patterns_; }
  void clear() {
    patterns_.clear();
    branches_.clear();
  }

 private:
  struct Branch {
    std::int64_t where;           // the position in the parent pattern, and the next character of the value
    std::int32_t pattern, begin;  // the pattern that continues there, and from which position of its text
  };

  static std::int64_t where(std::int32_t at, char next) {
    return std::int64_t{at} << 8 | static_cast<unsigned char>(next);
  }
  const Branch* branch(const Trace& trace, char next) const;

  std::vector<Pattern> patterns_;  // the first is the root
  std::vector<std::vector<Branch>> branches_;  // of each pattern, in order of `where`
};

// The numbers of the patterns that a value probably matches; 0: none.
struct PatternGuess {
  std::int32_t last = 0, before = 0;

  void note(std::int32_t pattern) {
    if (pattern == last) return;
    before = last;
    last = pattern;
  }
};

// A tree of patterns for each place. It may have a base: read-only patterns that several objects share, one per thread.
class Patterns {
 public:
  std::int32_t add() {  // adds a place and returns its number
    trees_.emplace_back();
    return static_cast<std::int32_t>(trees_.size() - 1);
  }
  // Returns an object with the same places and the same base, without patterns of its own.
  Patterns beside() const;
  // Makes all patterns the base, which does not change until `settle`.
  void share();
  // Merges the patterns that were added since `share` into the base, and takes the base back. No other object may use
  // the base then.
  void settle();
  void take(const Patterns& other);  // adds the patterns of an object with the same places

  // Returns the pattern that a value matches, null if none. `guess` notes the number of the pattern that matched. A good
  // guess saves the comparison from the root of the tree on; a wrong guess does not change the result. `workload`: see
  // `PatternTree::follow`.
  const Pattern* follow(std::int32_t place, JsonReader& in, PatternGuess& guess, std::uint64_t workload = 0);
  const Pattern* follow(std::int32_t place, JsonReader& in) {
    PatternGuess none;
    return follow(place, in, none);
  }
  // Returns the trace of the last call of `follow`.
  const PatternTree::Trace& trace() const { return trace_; }
  KnownParts& known_parts() { return known_; }
  // Whether the pattern of a value of this size, which matched none, is worth adding.
  bool wants(std::int32_t place, std::size_t size) const;
  void learn(std::int32_t place, Pattern pattern, const PatternTree::Trace& trace);
  std::size_t learnt() const { return learnt_; }  // patterns added so far; pointers to patterns stay valid while it is the same

 private:
  static constexpr std::size_t kLargest = 1 << 16;  // largest value that becomes a pattern, in bytes
  static constexpr std::size_t kRoom = 24 << 20;    // limit of all patterns, in bytes
  static constexpr std::size_t kAnyway = 512;       // patterns of a place that are added in any case
  static constexpr std::size_t kWorth = 64;         // matches of a place that allow one more pattern

  std::shared_ptr<Patterns> base_;
  std::vector<PatternTree> trees_;
  PatternTree::Trace trace_;
  KnownParts known_;
  std::size_t bytes_ = 0;
  std::size_t learnt_ = 0;
};

}  // namespace kscale
