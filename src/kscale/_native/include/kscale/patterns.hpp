// Values that were read before, and where others that are alike may differ: those are compared instead of read.
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

// A part of a value that may be another: a string, number, true, false or null which does not change what the value is
// reduced to, or what is read by a rule of its own.
struct FreePart {
  std::int32_t begin, end;  // in the value, quotes included
  bool noted = false;       // its place is noted: another must be a string of plain ASCII without escapes, too
  std::int32_t rule = -1;   // of its own

  bool takes(const FreePart& other) const { return noted == other.noted && rule == other.rule; }
};

// A place in a value: so far behind the end of the free part before it, of which there are `parts` up to there.
struct PatternPlace {
  std::int32_t parts = 0, behind = 0;
};

struct PatternNote {
  std::int32_t slot = -1;
  PatternPlace begin, end;
};

// A free part with a rule of its own.
struct PatternFacet {
  std::int32_t rule = -1, part = -1;
  PatternPlace begin;
  std::string text;     // what it is reduced to
  bool counts = false;  // otherwise it is absent
};

struct Pattern {
  std::string text;                                        // of the value, an object or an array
  std::vector<FreePart> free;                              // ascending
  std::vector<PatternNote> notes;                          // what is noted of the value, ascending
  std::string kept;                                        // what it is reduced to
  std::vector<PatternFacet> facets;                        // what is read by rules of its own, ascending
  bool present = false;
  std::uint64_t serial = next_serial();                    // unique in the process; copies share it

  static std::uint64_t next_serial();

  PatternPlace place(std::int32_t at) const;
  std::string_view text_of(std::int32_t part) const {
    const FreePart& of = free[static_cast<std::size_t>(part)];
    return {text.data() + of.begin, static_cast<std::size_t>(of.end - of.begin)};
  }
};

// Entries by key, one for each place among a number of places that is a power of two. There are more places once many
// entries were replaced by others, up to `kMost`.
template <class Entry, std::size_t kLeast, std::size_t kMost>
class PlacedEntries {
 public:
  // The entry at the place of a hash; null: there is none at all. It may be that of another key.
  const Entry* at(std::uint64_t hash) const { return entries_.empty() ? nullptr : &entries_[hash & (entries_.size() - 1)]; }
  // The place of an entry with this hash. `replaces(entry)`: whether it holds the entry of another key.
  template <class Replaces>
  Entry& place(std::uint64_t hash, Replaces replaces) {
    if (entries_.empty()) entries_.resize(kLeast);
    if (replaces(*at(hash)) && ++replaced_ > entries_.size() / 4 && entries_.size() < kMost) {
      std::vector<Entry> before(4 * entries_.size());
      before.swap(entries_);
      for (Entry& each : before) entries_[each.hash() & (entries_.size() - 1)] = std::move(each);
      replaced_ = 0;
    }
    return entries_[hash & (entries_.size() - 1)];
  }
  void clear() {
    entries_.clear();
    replaced_ = 0;
  }

 private:
  std::vector<Entry> entries_;
  std::size_t replaced_ = 0;
};

// A cache of texts that stood where patterns have other facets, and of the numbers of what they are reduced to. It saves
// reading those texts again.
class KnownParts {
 public:
  struct Part {
    std::uint64_t key = 0;
    std::int32_t rule = -1, number = -1;
    std::string text;  // an object or array, so that it ends where this ends

    std::uint64_t hash() const { return key; }
  };

  // The text at `p` by a rule, if it is one that was stored under this key; otherwise null.
  const Part* find(std::uint64_t key, std::int32_t rule, const char* p, const char* end) const;
  void store(std::uint64_t key, std::int32_t rule, std::string_view text, std::int32_t number);
  void clear() {
    parts_.clear();
    bytes_ = 0;
  }

 private:
  static constexpr std::size_t kLongest = 1024;   // bytes of a text
  static constexpr std::size_t kRoom = 4 << 20;  // bytes of all of them

  PlacedEntries<Part, 2048, 32768> parts_;
  std::size_t bytes_ = 0;
};

// A cache of the numbers of reduced texts, by the serials of the patterns that they follow from. Only for one projector.
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
  };
  static std::uint64_t hash_of(const Key& key);

  PlacedEntries<Entry, 4096, 16384> entries_;
};

// The patterns of values that stand at one place: a tree, in which what begins like a pattern and then differs has a
// branch there. Any number may follow it at the same time while it does not learn.
class PatternTree {
 public:
  // Free parts, from number `first` on, that end in the value `shift` bytes further than in a pattern.
  struct Stretch {
    std::int32_t first, pattern, shift;
  };

  // A free part with a rule, where another text stands than in the pattern of that place; `number`: in the known parts,
  // -1 = it is none of them; `key`: of it there.
  struct OtherPart {
    std::int32_t part, number;
    std::uint64_t key;
  };

  // What came of following: how far, in a pattern and in the value.
  struct Trace {
    std::int32_t pattern = -1;          // the last one; -1: there is none
    std::int32_t at = 0, value_at = 0;  // where it ended
    std::size_t next = 0;               // the free part that is next there
    std::vector<Stretch> stretches;     // of the free parts before it
    std::vector<OtherPart> others;
    const PatternTree* tree = nullptr;

    const OtherPart* other(std::int32_t part) const {  // null: it was not compared, since it is as in some pattern
      const auto found = std::ranges::find(others, part, &OtherPart::part);
      return found == others.end() ? nullptr : &*found;
    }
  };

  // Where places of a pattern are in the value that followed it. The places come in ascending order, before the tree
  // learns more.
  class Places {
   public:
    explicit Places(const Trace& trace) : trace_(trace) { begin(0); }
    std::int32_t place(const PatternPlace& of) { return of.behind + (of.parts ? end_of(of.parts - 1) : 0); }
    std::int32_t end_of(std::int32_t part) {  // a free part
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

  // The pattern that the value at `in` follows: its text but for free parts. `in` is then behind it. Null: none.
  // `first`: the pattern to begin with, the root or a guess; with a guess, null may also mean that it was wrong.
  const Pattern* follow(JsonReader& in, const KnownParts& known, Trace& trace, std::int32_t first = 0) const;
  // A value followed none and left that trace; how many more bytes that takes (0: it cannot stand in this tree).
  std::size_t add(Pattern pattern, const Trace& trace);

  std::size_t learnt = 0, followed = 0;

  const std::vector<Pattern>& patterns() const { return patterns_; }
  void clear() {
    patterns_.clear();
    branches_.clear();
  }

 private:
  struct Branch {
    std::int64_t where;           // the place in the pattern, and the character there
    std::int32_t pattern, begin;  // which goes on there, from where in its text
  };

  static std::int64_t where(std::int32_t at, char next) {
    return std::int64_t{at} << 8 | static_cast<unsigned char>(next);
  }
  const Branch* branch(const Trace& trace, char next) const;

  std::vector<Pattern> patterns_;  // the first is the root
  std::vector<std::vector<Branch>> branches_;  // of each pattern, ascending
};

// A tree for each place, and maybe a base: what was learnt before several went on beside each other.
class Patterns {
 public:
  std::int32_t add() {  // a place; its number
    trees_.emplace_back();
    return static_cast<std::int32_t>(trees_.size() - 1);
  }
  // Another with the same places that has learnt nothing, on the same base.
  Patterns beside() const;
  // What was learnt becomes the base, which does not change until it is given up.
  void share();
  // The base is given up: what was learnt since is added to it. Nobody beside it follows any more.
  void settle();
  void take(const Patterns& other);  // what another with the same places has learnt

  // The pattern that a value follows. `guess`: the number of the one that it is likely to follow, 0 = none is; then that
  // of the one that was found. A good guess saves the way from the root of the tree, a wrong one changes no result.
  const Pattern* follow(std::int32_t place, JsonReader& in, std::int32_t& guess);
  const Pattern* follow(std::int32_t place, JsonReader& in) {
    std::int32_t none = 0;
    return follow(place, in, none);
  }
  // Of the last value that was asked about: where it ended in a tree, and where the places of its pattern are in it.
  const PatternTree::Trace& trace() const { return trace_; }
  KnownParts& known_parts() { return known_; }
  // Whether a value of this size that follows none is worth being learnt.
  bool wants(std::int32_t place, std::size_t size) const;
  void learn(std::int32_t place, Pattern pattern, const PatternTree::Trace& trace);
  std::size_t learnt() const { return learnt_; }  // how many were: until the next one, those that were found stay there

 private:
  static constexpr std::size_t kLargest = 1 << 16;  // bytes of a value
  static constexpr std::size_t kRoom = 24 << 20;    // bytes of all of them
  static constexpr std::size_t kAnyway = 512;       // of a place are learnt, whether others follow or not
  static constexpr std::size_t kWorth = 64;         // that followed are worth one more

  std::shared_ptr<Patterns> base_;
  std::vector<PatternTree> trees_;
  PatternTree::Trace trace_;
  KnownParts known_;
  std::size_t bytes_ = 0;
  std::size_t learnt_ = 0;
};

}  // namespace kscale
