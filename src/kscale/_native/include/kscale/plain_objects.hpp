// Plain objects: all values have the form in which an API server prints them. A plain object needs no other check, and
// can be decoded later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kscale {

struct JsonReader;

// A rule that says which JSON values are plain.
struct PlainRule {
  enum Kind : std::int32_t {
    kAny,      // every value
    kNever,    // none
    kText,     // strings
    kName,     // names (`is_plain_name`); the place is recorded in `slot`, unless `slot` is negative
    kTime,     // times as an API server prints them
    kWhole,    // whole numbers of at most 18 digits from `least` to `most`
    kShare,    // whole numbers that are not negative, and percentages
    kBool,     // true and false
    kOneOf,    // the strings `texts`
    kAmounts,  // objects of quantities that are not negative and fit into 64 bits in thousandths; counts are whole
    kObject,   // objects with all members in `need`, whose members in `keys` are plain by their rules
    kMap,      // objects whose members are all plain by rule `inner`
    kList,     // arrays of at least `least` elements, all plain by rule `inner`
  };
  struct Key {
    std::string name;
    std::int32_t rule;
    std::int32_t next;  // the next key of the same bucket, -1 = none
  };
  Kind kind = kNever;
  bool or_null = false;
  bool limited = false;  // an object's amounts `requests` are not above its `limits`
  std::int32_t slot = -1, inner = -1;
  std::int64_t least = 0, most = 0;
  std::uint64_t need = 0;
  std::vector<std::string> texts;
  std::vector<Key> keys;                  // at most 64
  std::array<std::int32_t, 64> bucket{};  // by length and outer characters
};

// Rules by kind of object. An object is plain only if it begins with its apiVersion and kind, in any order, is ASCII
// without \u escapes, and is not nested deeply. Repeated keys are not detected here.
class PlainObjects {
 public:
  std::int32_t add(PlainRule rule);  // returns the rule's number
  void add_kind(std::string group, std::string kind, std::int32_t rule) {
    kinds_.push_back({std::move(group), std::move(kind), rule});
  }
  bool empty() const { return kinds_.empty(); }

  // Returns the number of the kind (in the order of `add_kind`) if the text is a plain object; -1 otherwise.
  // `at`, `length`: by slot, the places of the names, as positions after `data`; length -1: there is no name.
  std::int32_t kind_of(const char* data, std::string_view text, std::int64_t* at, std::int64_t* length) const;

 private:
  struct ObjectKind {
    std::string group, kind;
    std::int32_t rule;
  };
  struct Reading;

  std::vector<PlainRule> rules_;
  std::vector<ObjectKind> kinds_;
};

}  // namespace kscale
