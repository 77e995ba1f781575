#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kscale/parallel.hpp"
#include "kscale/patterns.hpp"
#include "kscale/plain_objects.hpp"
#include "kscale/text_hash.hpp"

namespace kscale {

struct JsonReader;

// What to keep of a JSON value.
struct ProjectionRule {
  enum Kind : std::int32_t {
    kKeep,     // the text as it is
    kEquals,   // the text, if it is `text`; another value does not count as present
    kBlank,    // the text as it is; but `text` if it is a plain name between the names of the first two `keys`
    kCapture,  // a string whose place is recorded in `slot`, and which is left out of the projected text
    kMark,     // as kCapture, but `text` replaces the string: only the presence of the string counts
    kNote,     // as kCapture, but the string is also part of the projected text
    kSpan,     // any value: its place, key included, is recorded in `slot`, and it is left out; it has patterns
    kObject,   // the keys of an object that have rules; `need`: without one of these the object counts as absent
    kArray,    // the elements of an array by rule `inner`; absent ones are dropped
    kFacet,    // a value by rule `inner` whose text is numbered separately, as facet `slot`
    kAlike,    // a value by rule `inner` that has patterns (see `Patterns`)
    kSwitch,   // an object whose rule `keys` gives for the text of its member `text`; other objects count as absent
  };
  struct Key {
    std::string name;
    std::int32_t rule;
    std::int32_t next;  // the next key of the same bucket, -1 = none
  };
  Kind kind = kKeep;
  std::int32_t slot = -1;
  std::int32_t inner = -1;
  std::int32_t place = -1;  // in the patterns
  std::uint64_t need = 0;
  std::string text;
  std::vector<Key> keys;                  // at most 64
  std::array<std::int32_t, 64> bucket{};  // by length and outer characters
};

// Codes instead of the number of a combination:
// - kOdd: the item must be read by the slow reader.
// - kNoted: only the captured strings were read.
// - kUnlike: as kOdd, and no object of the item repeats a key (only in lists with `publish`).
// - kPlain - i: as kUnlike; the item is a plain object of kind i (`PlainObjects`), whose names were captured.
constexpr std::int32_t kOdd = -1, kNoted = -2, kUnlike = -3, kPlain = -4;

// The items of a scanned list as columns, and the captured strings of the items.
class ScannedItems {
 public:
  std::vector<std::int64_t> begin, size;  // the item's text
  std::vector<std::int32_t> combined;     // number of its combination of texts, or a code (kOdd, ...)

  // Adds an item; `at`, `length` [slot]: its strings; length -1 = absent. An item of 4 GiB or more becomes kOdd.
  void add(std::int64_t begin_at, std::int64_t whole, std::int32_t number, std::size_t slots, const std::int64_t* at,
           const std::int64_t* length);
  void pop(std::size_t slots);  // removes the last item
  // Moves the items of `more` here, without their `combined`.
  void append(ScannedItems&& more);
  // Returns the places of the items' strings: `at`, `length` [slot * count + item].
  void places(std::size_t slots, std::size_t first, std::size_t count, std::int64_t* at, std::int64_t* length) const;
  // Returns the places of the strings in one slot, for the `count` items `which` (ascending): `at`, `length` [i].
  void places_of(std::size_t slots, std::size_t slot, const std::int64_t* which, std::size_t count, std::int64_t* at,
                 std::int64_t* length) const;
  // Sets `out` [item - first] to 1 for items from `first` on whose string in a slot is not empty.
  void have(std::size_t slots, std::size_t slot, std::size_t first, std::uint8_t* out) const;

 private:
  // Most of the memory of a long list. Therefore places are 32-bit offsets from the item's begin, in blocks that never
  // move.
  struct Noted {
    std::uint32_t at, size;
  };
  std::vector<std::vector<Noted>> blocks_;  // each [item * slots + slot]
};

// The types of watch events.
enum WatchType : std::int8_t {
  kDamaged = -1,  // no event; the item is the line
  kAdded = 0,
  kModified = 1,
  kDeleted = 2,
  kBookmark = 3,
  kError = 4,
  kUnknown = 5,  // an event of another type
};

// The lines of a watch that are not empty, as columns; `items` are their objects. Of deleted objects only the captured
// strings are read.
struct ScannedLines {
  ScannedItems items;
  std::vector<std::int8_t> type;    // WatchType
  std::vector<std::int64_t> begin;  // of the line
};

// Distinct texts, numbered in order of appearance. The numbers of removed texts are reused.
class TextTable {
 public:
  std::int32_t number(const std::string& text);
  void push(std::string text) { texts_.push_back(std::move(text)); }  // `number` will not find it
  void remove(std::size_t i);  // the text must exist
  std::size_t count() const { return texts_.size(); }  // all numbers are below this
  std::size_t free() const { return free_.size(); }
  const std::string& text(std::size_t i) const { return texts_[i]; }

 private:
  std::deque<std::string> texts_;  // a deque, because the keys below point into the texts
  std::int32_t last_ = -1;         // the last result of `number`: pods of one workload follow each other
  std::unordered_map<std::string_view, std::int32_t, TextHash> numbers_;
  std::vector<std::int32_t> free_;
};

struct Threading {
  int threads = 1;
  std::int64_t grain = 1 << 20;  // minimum number of bytes per thread
};

// The apiVersion and kind that items must have if these are among their first two members. An empty kind accepts any.
struct ItemKind {
  std::string_view api_version, kind;
};

struct Span {
  std::int64_t begin = 0, size = -1;
};

// Texts and combinations that a projector has numbered since the last request, in order of their numbers.
struct FreshTexts {
  std::vector<std::vector<std::string>> texts;  // by table
  std::vector<std::int32_t> combinations;       // as `Projector::combinations`
};

// Maps the numbers of texts and combinations in one projector to their numbers in another.
struct Renumbering {
  std::vector<std::vector<std::int32_t>> texts;  // by table
  std::vector<std::int32_t> combinations;
};

// Takes the items that were read so far out of its argument. Returns false if the rest is not needed.
using Publish = std::function<bool(ScannedItems&)>;

// The text of an item around its values with patterns (kAlike). Most items differ only in these values, so the text
// around the values is compared with the frame of an earlier item instead of being parsed.
struct ItemFrame {
  std::string api_version, kind;         // the requested `ItemKind`
  bool told = false;                     // whether the item has these among its first two members
  std::vector<std::string> text;         // the texts before each value, and after the last one
  std::vector<std::string> kept;         // the reduced form of each of these texts, if all values count
  std::vector<std::int32_t> rules;       // the rules of the values; empty: there is no frame
  std::size_t learnt = 0, followed = 0;  // number of frames learnt so far, and of items that matched one

  bool holds_for(ItemKind of) const { return !rules.empty() && api_version == of.api_version && kind == of.kind; }
};

// What the values of an item matched: the serials of their patterns, and by facet the number of a text that is not the
// pattern's (-1: none). It determines the item's combination.
struct ItemMatch {
  KnownNumbers::Key patterns{};
  std::array<std::int32_t, 4> facets{-1, -1, -1, -1};
  std::int32_t combination = -1;

  bool is_like(const ItemMatch& other) const { return patterns == other.patterns && facets == other.facets; }
};

// What the last items of a workload (`key` is its hash) with a frame matched. Its next items probably match the same.
struct LikelyPatterns {
  std::uint64_t key = 0;
  std::array<PatternGuess, 4> pattern{};
  std::uint32_t period = 0;  // `matches` count only in this period of the projector
  std::array<ItemMatch, 2> matches;

  std::uint64_t hash() const { return key >> 1; }
  bool in_use() const { return key != 0; }
};

// Reduces the objects of a JSON list by rules, and numbers the distinct results: the texts of each facet, the texts of
// the rest, and the combinations of a rest with facets.
//
// An item is odd, and must be read by the slow reader, if one of its keys is escaped or occurs twice where rules look,
// or if a captured value occurs twice or is neither null nor a string of plain ASCII without escapes. The text is
// checked for syntax, but not for UTF-8. An item of another kind (see `ItemKind`) is not reduced.
class Projector {
 public:
  Projector(std::int32_t slots, std::int32_t facets)
      : slots_(slots), tables_(static_cast<std::size_t>(facets) + 1) {}

  std::int32_t add(ProjectionRule rule);  // returns the rule's number; the rule added last is that of an item
  PlainObjects& plain() { return plain_; }  // with `publish`, items may be plain objects of these kinds

  // Reads a list. Returns whether `data` is one JSON object with an array under "items"; `head` gets the places of its
  // apiVersion, kind and metadata. The result does not depend on the number of threads.
  // `publish`: called after each `how.grain` bytes; with it, items may be kUnlike.
  bool scan(const char* data, std::size_t size, ItemKind kind, Threading how, ScannedItems& out, Span head[3],
            const Publish& publish = nullptr);

  // Reads watch events {"type": ..., "object": ...}, one per line. Returns the number of bytes used: the text after the
  // last line end is used only if it is a complete event. The result does not depend on the number of threads.
  std::size_t lines(const char* data, std::size_t size, ItemKind kind, Threading how, ScannedLines& out);

  const TextTable& texts() const { return tables_.back(); }
  const TextTable& facet(std::size_t i) const { return tables_[i]; }
  // [combination * (facets + 1)]: numbers of the facets' texts (-1 = absent), then of the rest. All are -1 for a number
  // that is not in use.
  const std::vector<std::int32_t>& combinations() const { return combinations_; }
  std::size_t combinations_free() const { return combined_.free(); }  // how many numbers are not in use
  // Removes the combinations whose entry in `keep` is 0, and the texts that only they have. `used`: for each table,
  // facets first, whether each of its texts remains.
  void retain(const std::uint8_t* keep, std::vector<std::vector<std::uint8_t>>& used);

 private:
  friend class ListScan;

  enum class Stop { kEnd, kStop, kError };

  enum class Depth { kPlace, kNotes, kTexts };  // read only the item's place, also captured strings, or also its texts

  Projector empty() const;  // returns a projector with the same rules and shared patterns, but no items

  // Reads the item at `in` and appends it to `out`.
  bool item(const char* data, JsonReader& in, ItemKind kind, Depth depth, ScannedItems& out);
  void clear_item();  // clears the results of the previous item
  void forget_combinations();  // clears the caches of the numbers of items' texts and combinations
  // Marks the last item of `out`, whose text is `text`, as a plain object if it is one.
  void note_plain(const char* data, std::string_view text, ScannedItems& out);
  // Reads an item at `in` by the rules. Returns the number of its combination, kNoted or kOdd; nothing for a syntax
  // error.
  std::optional<std::int32_t> read(const char* data, JsonReader& in, Depth depth);
  // As `read`, for an item that matches the frame and whose values match patterns; returns nothing for any other item.
  // `framed`: set to false if the item does not match the frame.
  std::optional<std::int32_t> read_framed(const char* data, JsonReader& in, Depth depth, bool& framed);
  // Returns what an item of the workload with this hash, which is odd, probably matches.
  LikelyPatterns& likely_patterns(std::uint64_t key);
  // Stores the frame of an item that was read by the rules, unless too few items matched the earlier frames.
  void learn_frame(std::string_view item, ItemKind kind, bool told);
  // Reads items from `p` on, until the end of the array (`p` is then behind it), a syntax error, or an item that begins
  // at one of `stops` (ascending; `p` is then at this item).
  Stop items(const char* data, const char*& p, const char* end, ItemKind kind, std::span<const char* const> stops,
             std::int64_t grain, const Publish& publish, ScannedItems& out);
  bool items_on_threads(const char* data, const char*& p, const char* end, ItemKind kind, Threading how,
                        const Publish& publish, ScannedItems& out);
  bool event(const char* data, const char* p, const char* end, ItemKind kind, ScannedLines& out);
  void some_lines(const char* data, const char* p, const char* end, ItemKind kind, ScannedLines& out);
  std::int32_t combine(const std::int32_t* numbers, std::string& key);
  // Appends the items `more`, which another projector with the same rules has read, to `out`.
  void merge(const Projector& other, ScannedItems&& more, ScannedItems& out);
  // Returns the texts and combinations numbered since the last call with the same `told` (initially empty: how many
  // were returned so far, by table, then of combinations). Nothing may be removed between the calls.
  FreshTexts texts_since(std::vector<std::size_t>& told) const;
  // Numbers the texts of another projector with the same rules; `numbers` maps its numbers to those here.
  void adopt(const FreshTexts& fresh, Renumbering& numbers);
  // As `adopt`, for an empty projector, in which the numbers stay the same. It cannot number texts of its own after
  // that.
  void copy_texts(FreshTexts&& fresh);
  static void take(ScannedItems&& more, const Renumbering& numbers, ScannedItems& out);

  std::int32_t slots_;
  std::vector<TextTable> tables_;  // one a facet, then the items'
  std::vector<std::int32_t> combinations_;
  TextTable combined_;
  // A cache by hash (size: a power of two): the number of a combination with this hash. The number may have been reused
  // for another combination.
  std::vector<std::int32_t> likely_ = std::vector<std::int32_t>(1 << 13, -1);
  std::vector<ProjectionRule> rules_;
  PlainObjects plain_;
  std::string text_, apart_;  // buffers, reused for each item
  std::vector<std::int32_t> numbers_;
  std::vector<SameFacet> same_;
  std::vector<std::int64_t> at_, length_;
  Patterns patterns_;
  ItemFrame frame_;
  KnownNumbers known_;
  PlacedEntries<LikelyPatterns, 512, 8192> guesses_;
  std::uint32_t period_ = 1;  // changes when combinations in `guesses_` stop to count
};

// A list that is read by `Projector::scan`. With `ahead`, a long list is read by another thread while the caller works
// on the items read so far; otherwise all at once. The numbers are the same. `data` must not move or change.
class ListScan {
 public:
  ListScan(Projector& to, const char* data, std::size_t size, ItemKind kind, Threading how, bool ahead);
  ~ListScan();  // stops the reading
  ListScan(const ListScan&) = delete;
  ListScan& operator=(const ListScan&) = delete;

  // Waits for more items and appends them to `out`; false: there are no more. Throws the exception that ended the
  // reading. By calling it, the caller declares that it no longer needs the text of earlier items.
  bool next(ScannedItems& out);
  // Returns the result and `head` of `scan`. Call it after the last item.
  bool finish(Span head[3]) const;

 private:
  // Maximum number of bytes read ahead of the caller. It limits how much of a mapped file is in memory.
  static constexpr std::int64_t kAhead = 256 << 20;
  static constexpr std::int64_t kAtOnce = 64 << 20;  // a call of `next` returns after so many bytes

  struct Piece {
    ScannedItems items;
    FreshTexts texts;

    std::int64_t end() const { return items.begin.empty() ? 0 : items.begin.back() + items.size.back(); }
  };

  void read(const char* data, std::size_t size, ItemKind kind, Threading how);
  bool add(ScannedItems&& items, bool last);  // returns false if the rest is not needed

  Projector& to_;
  std::optional<Projector> own_;  // the projector of the other thread
  Renumbering numbers_;
  std::vector<std::size_t> told_;
  std::mutex mutex_;
  std::condition_variable more_, room_;
  std::deque<Piece> pieces_;
  std::int64_t taken_ = 0, done_ = 0;  // positions up to which the caller has the items, and no longer needs their text
  bool ended_ = false, ok_ = false, stopped_ = false;
  bool first_ = false;  // whether the projector was empty before
  std::exception_ptr failure_;
  Span head_[3];
  Threads running_;
};

}  // namespace kscale
