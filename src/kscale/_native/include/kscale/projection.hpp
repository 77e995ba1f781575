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
    kBlank,    // the text as it is; but `text` if a plain name stands between the names of the first two `keys`
    kCapture,  // a string whose place is noted in `slot`, but which does not become part of the projected text
    kMark,     // the same, and `text` stands in its place: only that there is one counts
    kNote,     // the same, and it becomes part of the projected text nevertheless
    kSpan,     // any value: its place, key included, is noted in `slot`, and it is left out; there is a pattern for it
    kObject,   // the keys of an object that have rules; `need`: without one of these the object counts as absent
    kArray,    // the elements of an array by rule `inner`; absent ones are dropped
    kFacet,    // a value by rule `inner` whose text is numbered apart, as facet `slot`
    kAlike,    // a value by rule `inner`, for which there are patterns: see `Patterns`
    kSwitch,   // an object by the rule that `keys` name for the text of its member `text`; others do not count as present
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

// Instead of the number of a combination: to be read otherwise; only what is noted counts; as kOdd, and no key comes
// twice in an object of the item (only lists that are published tell); kPlain - i: the same of a plain object of kind i
// (`PlainObjects`), whose names are noted.
constexpr std::int32_t kOdd = -1, kNoted = -2, kUnlike = -3, kPlain = -4;

// The items of a scanned list, a column each, and the strings that were captured of them.
class ScannedItems {
 public:
  std::vector<std::int64_t> begin, size;  // the item's text
  std::vector<std::int32_t> combined;     // number of its combination of texts; kOdd (see `Projector`, or absent), ...

  // Takes in an item; `at`, `length` [slot]: its strings; length -1 = absent. One whose text is 4 GiB or longer is odd.
  void add(std::int64_t begin_at, std::int64_t whole, std::int32_t number, std::size_t slots, const std::int64_t* at,
           const std::int64_t* length);
  void pop(std::size_t slots);  // the last item
  // Takes over the items of another, but for their `combined`.
  void append(ScannedItems&& more);
  // Where the strings of items are: `at`, `length` [slot * count + item].
  void places(std::size_t slots, std::size_t first, std::size_t count, std::int64_t* at, std::int64_t* length) const;
  // The same of one slot, of `count` items `which`, in ascending order: `at`, `length` [i].
  void places_of(std::size_t slots, std::size_t slot, const std::int64_t* which, std::size_t count, std::int64_t* at,
                 std::int64_t* length) const;
  // Sets `out` [item - first] to 1 for items from `first` on whose string in a slot is not empty.
  void have(std::size_t slots, std::size_t slot, std::size_t first, std::uint8_t* out) const;

 private:
  // Of very many items this is most of the memory: places are told from the item's begin on, in blocks that never move.
  struct Noted {
    std::uint32_t at, size;
  };
  std::vector<std::vector<Noted>> blocks_;  // each [item * slots + slot]
};

// What the lines of a watch say of their objects.
enum WatchType : std::int8_t {
  kDamaged = -1,  // no event; the item is the line
  kAdded = 0,
  kModified = 1,
  kDeleted = 2,
  kBookmark = 3,
  kError = 4,
  kUnknown = 5,  // an event of another type
};

// The lines of a watch that are not empty, a column each; `items` are their objects. Of objects that were deleted only the
// captured strings are noted.
struct ScannedLines {
  ScannedItems items;
  std::vector<std::int8_t> type;    // WatchType
  std::vector<std::int64_t> begin;  // of the line
};

// Different texts, numbered in order of appearance; numbers of texts that were removed are given again.
class TextTable {
 public:
  std::int32_t number(const std::string& text);
  void push(std::string text) { texts_.push_back(std::move(text)); }  // the next number; `number` does not know it
  void remove(std::size_t i);  // one that is there
  std::size_t count() const { return texts_.size(); }  // all numbers are below
  std::size_t free() const { return free_.size(); }
  const std::string& text(std::size_t i) const { return texts_[i]; }

 private:
  std::deque<std::string> texts_;  // never move: the keys below look into them
  std::int32_t last_ = -1;         // the number that was asked for last: pods of one workload follow each other
  std::unordered_map<std::string_view, std::int32_t, TextHash> numbers_;
  std::vector<std::int32_t> free_;
};

struct Threading {
  int threads = 1;
  std::int64_t grain = 1 << 20;  // bytes that make another thread worth it
};

// What items say they are, if they say it among their first two members; an empty kind: whatever they say.
struct ItemKind {
  std::string_view api_version, kind;
};

struct Span {
  std::int64_t begin = 0, size = -1;
};

// Texts and combinations that a projector numbered since it was asked before, in order of their numbers.
struct FreshTexts {
  std::vector<std::vector<std::string>> texts;  // by table
  std::vector<std::int32_t> combinations;       // as `Projector::combinations`
};

// The numbers that texts and combinations of one projector have in another, by their numbers in the first one.
struct Renumbering {
  std::vector<std::vector<std::int32_t>> texts;  // by table
  std::vector<std::int32_t> combinations;
};

// Takes the items that were read so far out of its argument; false: nobody needs the rest.
using Publish = std::function<bool(ScannedItems&)>;

// The text of an item around its values with patterns (kAlike). Most items differ only in these values: the text around
// them is compared with that of an item before, instead of being read.
struct ItemFrame {
  std::string api_version, kind;         // the `ItemKind` that was asked for
  bool told = false;                     // whether the item says that it is of that kind
  std::vector<std::string> text;         // in front of each value, and behind the last one
  std::vector<std::string> kept;         // what each of these texts is reduced to, if all values count
  std::vector<std::int32_t> rules;       // of the values; none: no frame was learnt
  std::size_t learnt = 0, followed = 0;  // how many frames were learnt, and how many items had one

  bool holds_for(ItemKind of) const { return !rules.empty() && api_version == of.api_version && kind == of.kind; }
};

// The patterns that the values of an item with a frame followed. Items whose first value begins with the same text
// (`key` is its hash), such as the name of a workload, are likely to follow the same ones.
struct LikelyPatterns {
  std::uint64_t key = 0;
  std::array<std::int32_t, 4> pattern{};
};

// Reduces the objects of a JSON list to what rules keep of them, and numbers the different texts that are left: those
// of each facet, those of the rest, and the combinations of a rest with facets.
//
// An item is odd, and to be read otherwise, if a key of it is escaped or occurs twice where rules look, or a captured
// value is neither null nor a string of plain ASCII without escapes, or comes twice. The text itself is checked for
// syntax, not for UTF-8. An item that says first that it is of another kind is not reduced.
class Projector {
 public:
  Projector(std::int32_t slots, std::int32_t facets)
      : slots_(slots), tables_(static_cast<std::size_t>(facets) + 1) {}

  std::int32_t add(ProjectionRule rule);  // the last rule added is that of an item
  PlainObjects& plain() { return plain_; }  // items that are published may be plain objects of these kinds

  // Whether `data` is one JSON object with an array under "items"; `head`: places of its apiVersion, kind and metadata.
  // The result does not depend on the number of threads.
  // `publish`: called each time that `how.grain` bytes more were read; with it, items may be kUnlike.
  bool scan(const char* data, std::size_t size, ItemKind kind, Threading how, ScannedItems& out, Span head[3],
            const Publish& publish = nullptr);

  // The events {"type": ..., "object": ...}, one a line; how many bytes were used: what is behind the last line end
  // counts only if it is a whole event. The result does not depend on the number of threads.
  std::size_t lines(const char* data, std::size_t size, ItemKind kind, Threading how, ScannedLines& out);

  const TextTable& texts() const { return tables_.back(); }
  const TextTable& facet(std::size_t i) const { return tables_[i]; }
  // [combination * (facets + 1)]: numbers of the facets' texts (-1 = absent), then of the rest; all are -1 where there is
  // no combination of this number now.
  const std::vector<std::int32_t>& combinations() const { return combinations_; }
  std::size_t combinations_free() const { return combined_.free(); }  // how many numbers stand for none now
  // Forgets combinations, but for those that are to be kept, and the texts that no other has. `keep`: one entry a
  // combination; `used`: a table each, facets first, whether each of its texts is still there.
  void retain(const std::uint8_t* keep, std::vector<std::vector<std::uint8_t>>& used);

 private:
  friend class ListScan;

  enum class Stop { kEnd, kStop, kError };

  enum class Depth { kPlace, kNotes, kTexts };  // what is read of an item

  Projector empty() const;  // the same rules and shared patterns, and nothing seen

  // Reads one item at `in` to the end of `out`.
  bool item(const char* data, JsonReader& in, ItemKind kind, Depth depth, ScannedItems& out);
  void clear_item();  // what was read of the item before
  // Makes the last item, which has this text, a plain object if it is one.
  void note_plain(const char* data, std::string_view text, ScannedItems& out);
  // Reads an item at `in` by the rules: the number of its combination, kNoted or kOdd, or nothing for a syntax error.
  std::optional<std::int32_t> read(const char* data, JsonReader& in, Depth depth);
  // The same for an item that has the frame and whose values follow patterns; nothing for any other item, which `read`
  // reads. `framed`: false if the item does not have the frame.
  std::optional<std::int32_t> read_framed(const char* data, JsonReader& in, Depth depth, bool& framed);
  // The patterns that an item is likely to follow, of which the first value with patterns is at `in`.
  LikelyPatterns& likely_patterns(const JsonReader& in);
  // Learns the frame of an item that was read by the rules, unless many were learnt in vain.
  void learn_frame(std::string_view item, ItemKind kind, bool told);
  // Reads items from `p`, at the first of them, up to the end of the array (`p` is then behind it), to a syntax error,
  // or until one begins at one of `stops`, in ascending order (`p` is then there).
  Stop items(const char* data, const char*& p, const char* end, ItemKind kind, std::span<const char* const> stops,
             std::int64_t grain, const Publish& publish, ScannedItems& out);
  bool items_on_threads(const char* data, const char*& p, const char* end, ItemKind kind, Threading how,
                        const Publish& publish, ScannedItems& out);
  bool event(const char* data, const char* p, const char* end, ItemKind kind, ScannedLines& out);
  void some_lines(const char* data, const char* p, const char* end, ItemKind kind, ScannedLines& out);
  std::int32_t combine(const std::int32_t* numbers, std::string& key);
  // Takes over what another projector with the same rules read of the items after those in `out`.
  void merge(const Projector& other, ScannedItems&& more, ScannedItems& out);
  // What was numbered since the last call with the same `told` (empty at first: how many were handed out by table, then
  // combinations). Nothing may be removed between the calls.
  FreshTexts texts_since(std::vector<std::size_t>& told) const;
  // Numbers what another projector with the same rules has numbered; its items get the numbers that these have here.
  void adopt(const FreshTexts& fresh, Renumbering& numbers);
  // The same for an empty projector, which cannot number more before it takes over the tables of the other one.
  void copy_texts(FreshTexts&& fresh);
  static void take(ScannedItems&& more, const Renumbering& numbers, ScannedItems& out);

  std::int32_t slots_;
  std::vector<TextTable> tables_;  // one a facet, then the items'
  std::vector<std::int32_t> combinations_;
  TextTable combined_;
  // A cache: by hash, the number of a combination with this hash, which may be another one by now. A power of two.
  std::vector<std::int32_t> likely_ = std::vector<std::int32_t>(1 << 13, -1);
  std::vector<ProjectionRule> rules_;
  PlainObjects plain_;
  std::string text_, apart_;  // room for an item
  std::vector<std::int32_t> numbers_;
  std::vector<std::int64_t> at_, length_;
  Patterns patterns_;
  ItemFrame frame_;
  KnownNumbers known_;
  std::vector<LikelyPatterns> guesses_;  // a cache: by hash of the key; empty or a power of two of them
};

// A list that is read by `Projector::scan`: `ahead` and if it is long enough, on another thread while the caller works on
// what was read already; otherwise at once. The projector gets the same numbers. `data` must stay where it is.
class ListScan {
 public:
  ListScan(Projector& to, const char* data, std::size_t size, ItemKind kind, Threading how, bool ahead);
  ~ListScan();  // the rest is not read
  ListScan(const ListScan&) = delete;
  ListScan& operator=(const ListScan&) = delete;

  // Waits for more items and appends some that were read; false: there are no more. Throws what stopped the reading.
  // The caller is done with those before.
  bool next(ScannedItems& out);
  // After the last item: what `scan` returns, and its `head`.
  bool finish(Span head[3]) const;

 private:
  // So much text is read at most before the caller is done with what came before it: a mapped file is in memory so far.
  static constexpr std::int64_t kAhead = 256 << 20;
  static constexpr std::int64_t kAtOnce = 64 << 20;  // of the text, for the caller

  struct Piece {
    ScannedItems items;
    FreshTexts texts;

    std::int64_t end() const { return items.begin.empty() ? 0 : items.begin.back() + items.size.back(); }
  };

  void read(const char* data, std::size_t size, ItemKind kind, Threading how);
  bool add(ScannedItems&& items, bool last);  // false: nobody needs the rest

  Projector& to_;
  std::optional<Projector> own_;  // of the other thread
  Renumbering numbers_;
  std::vector<std::size_t> told_;
  std::mutex mutex_;
  std::condition_variable more_, room_;
  std::deque<Piece> pieces_;
  std::int64_t taken_ = 0, done_ = 0;  // up to where the caller has the items, and is done with them
  bool ended_ = false, ok_ = false, stopped_ = false;
  bool first_ = false;  // the projector has numbered nothing before
  std::exception_ptr failure_;
  Span head_[3];
  Threads running_;
};

}  // namespace kscale
