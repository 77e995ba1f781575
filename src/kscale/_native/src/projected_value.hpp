// Reduces one value by the rules: parses it, or compares it with a pattern of an earlier value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kscale/json_reader.hpp"
#include "kscale/patterns.hpp"
#include "kscale/projection.hpp"
#include "kscale/repeated_keys.hpp"
#include "rule_keys.hpp"

namespace kscale {

// Values that are nested more deeply are odd: the slow reader refuses objects that are nested too deeply.
constexpr std::size_t kDeepest = 200;
constexpr std::size_t kAllLevels = std::size_t{1} << 20;

// Finds the text of a member of the object at `in`. Returns false unless there is exactly one such member.
inline bool member(JsonReader in, std::string_view name, std::string_view& text) {
  if (!in.eat('{') || in.peek('}')) return false;
  bool found = false;
  for (;;) {
    std::string_view key;
    bool escaped;
    if (!in.eat('"') || !in.string(key, escaped) || escaped || !in.eat(':')) return false;
    in.space();
    const char* start = in.p;
    if (!in.skip()) return false;
    if (key == name) {
      if (found) return false;
      found = true;
      text = {start, static_cast<std::size_t>(in.p - start)};
    }
    if (!in.eat(',')) return found && in.peek('}');
  }
}

// Skips a text that equals `compact` apart from space outside of strings. `quoted`: the text begins inside of a string.
// Returns false for any other text.
inline bool eat_text(JsonReader& in, std::string_view compact, bool quoted) {
  for (const char c : compact) {
    if (!quoted) in.space();
    if (in.p == in.end || *in.p != c) return false;
    ++in.p;
    quoted = quoted != (c == '"');
  }
  return true;
}

// Whether a text is `before`, a name of ASCII letters, digits, dots and dashes, and `after`.
inline bool is_name_between(std::string_view text, std::string_view before, std::string_view after) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || (c >= 'A' && c <= 'Z');
  };
  JsonReader in{text.data(), text.data() + text.size()};
  if (!eat_text(in, before, false)) return false;
  const char* const name = in.p;
  in.p = std::find_if_not(in.p, in.end, is_plain);
  return in.p != name && eat_text(in, after, true) && in.p == in.end;
}

// The keys of one object that have no rule.
struct UnreadKeys {
  std::array<std::string_view, 16> keys;
  std::size_t count = 0;
  bool repeated = false;

  bool full() const { return count == keys.size(); }
  void add(std::string_view key) {
    const auto end = keys.begin() + static_cast<std::ptrdiff_t>(count);
    repeated = repeated || std::find(keys.begin(), end, key) != end;
    if (!full()) keys[count++] = key;
  }
};

struct ProjectedValue {
  // A facet whose text differs from the pattern's, and its key in the cache of known parts.
  struct OtherFacet {
    std::int32_t rule;
    std::string_view text;
    std::int32_t* number;
    std::uint64_t key;
  };

  JsonReader& in;
  const std::vector<ProjectionRule>& rules;
  const char* base;
  std::vector<TextTable>& tables;
  Patterns& patterns;
  KnownNumbers& known;
  std::size_t slots;
  std::string& text;
  std::string& apart;
  std::int32_t* facets;
  std::int64_t* at;
  std::int64_t* length;
  std::vector<SameFacet>& same;  // facets that are not numbered yet: `number_same`
  bool numbered;                // whether texts are numbered; otherwise only strings are captured
  Pattern* learnt = nullptr;    // the pattern that is built from the value at `base`; null: none
  const char* key = nullptr;    // the key of the current value; null for an element of an array
  bool odd = false;
  std::vector<OtherFacet> others = {};  // facets that are not read yet: `read_others`
  std::uint64_t taken = 0;              // by slot: facets that `take_known` met
  bool again = false;                   // whether it met one of them twice

  // Whether a value by this rule may become part of the projected text.
  static bool may_count(const ProjectionRule& rule) {
    return rule.kind != ProjectionRule::kCapture && rule.kind != ProjectionRule::kFacet &&
           rule.kind != ProjectionRule::kSpan;
  }

  // Skips a value that is not kept. Returns false for a syntax error, as all functions here that read.
  bool skip() {
    std::size_t deepest = 0;
    if (learnt == nullptr) {
      const char* start = in.p;
      if (!in.skip([](const char*, const char*) {}, deepest)) return false;
      if (numbered && (*start == '{' || *start == '[') && repeats(start, kAllLevels)) odd = true;
    } else if (!in.skip([this](const char* from, const char* to) { note(from, to, false); }, deepest)) {
      return false;
    }
    if (deepest > kDeepest) odd = true;
    return true;
  }

  // Whether a key is repeated in the text from `start` to the current position, down to `levels` levels.
  bool repeats(const char* start, std::size_t levels) const {
    return repeats_a_key(start, static_cast<std::size_t>(in.p - start), levels);
  }

  // Adds a free part to the pattern.
  void note(const char* from, const char* to, bool noted) {
    learnt->free.push_back({static_cast<std::int32_t>(from - base), static_cast<std::int32_t>(to - base), noted});
  }

  // Removes the free parts inside of a value from the pattern, because the value decides how others are read.
  void keep(std::string_view value) {
    if (learnt == nullptr) return;
    const auto from = static_cast<std::int32_t>(value.data() - base);
    const auto to = static_cast<std::int32_t>(from + static_cast<std::int32_t>(value.size()));
    std::erase_if(learnt->free, [from, to](const FreePart& each) { return each.begin >= from && each.end <= to; });
  }

  // Adds a facet that was read as a free part with a rule of its own. The value becomes odd if the facet captured a
  // string or occurs twice.
  void free_part(const ProjectionRule& rule, const char* start, std::size_t notes) {
    const auto number = static_cast<std::int32_t>(&rule - rules.data());
    const auto again = [number](const FreePart& each) { return each.rule == number; };
    if (notes != noted() || std::ranges::any_of(learnt->free, again)) odd = true;
    keep({start, static_cast<std::size_t>(in.p - start)});
    note(start, in.p, false);
    learnt->free.back().rule = number;
  }

  // Returns the number of captured strings.
  std::size_t noted() const {
    return static_cast<std::size_t>(std::count_if(length, length + slots, [](std::int64_t each) { return each >= 0; }));
  }

  // Reads a value by the inner rule of a rule with patterns. A rule without an inner rule skips the value.
  bool inside(const ProjectionRule& rule, bool& present) {
    if (rule.kind == ProjectionRule::kAlike) return value(rule.inner, present);
    present = false;
    return skip();
  }

  // Whether none of the strings that this pattern captures was captured before.
  bool may_take(const Pattern& pattern) const {
    return std::ranges::all_of(pattern.notes, [this](const PatternNote& each) { return length[each.slot] < 0; });
  }

  // Captures the strings of the value at `in`, which matches the pattern, and numbers those of its facets whose texts are
  // known. Adds the others to `same` and `others`.
  void take_known(const Pattern& pattern) {
    const char* start = in.p;
    PatternTree::Places of_notes(patterns.trace()), of_facets(patterns.trace());
    for (const PatternNote& each : pattern.notes) {
      const std::int32_t begin = of_notes.place(each.begin);
      at[each.slot] = (start - base) + begin;
      length[each.slot] = of_notes.place(each.end) - begin;
    }
    for (const PatternFacet& each : pattern.facets) {
      const PatternTree::OtherPart* const other = patterns.trace().other(each.part);
      const std::int32_t slot = rules[static_cast<std::size_t>(each.rule)].slot;
      std::int32_t* const number = facets + slot;
      if (taken >> slot & 1) again = true;
      taken |= std::uint64_t{1} << slot;
      if (again) number_same();  // the last one counts
      if (other == nullptr && patterns.trace().is_direct()) {
        if (numbered && each.counts) same.push_back({&pattern, &each});
        continue;
      }
      if (other != nullptr && other->number >= 0) {
        if (numbered) *number = other->number;
        continue;
      }
      const std::int32_t begin = of_facets.place(each.begin), end = of_facets.end_of(each.part);
      const std::string_view here(start + begin, static_cast<std::size_t>(end - begin));
      if (here != pattern.text_of(each.part)) {
        others.push_back({each.rule, here, number, other == nullptr ? 0 : other->key});
      } else if (numbered && each.counts) {
        if (other == nullptr) {
          same.push_back({&pattern, &each});
          continue;
        }
        *number = number_of(pattern, each);
        patterns.known_parts().store(other->key, each.rule, here, *number);
      }
    }
  }

  // Numbers the facets in `same`, whose patterns must still be there.
  void number_same() {
    for (const SameFacet& each : same) {
      facets[rules[static_cast<std::size_t>(each.facet->rule)].slot] = number_of(*each.pattern, *each.facet);
    }
    same.clear();
  }

  // Reads and numbers the facets in `others`. This may overwrite the trace and add patterns.
  bool read_others() {
    std::vector<OtherFacet> unread;
    unread.swap(others);
    for (const OtherFacet& each : unread) {
      in.p = each.text.data();
      bool counts;
      if (!value(each.rule, counts)) return false;
      if (numbered && !odd && *each.number >= 0) {
        patterns.known_parts().store(each.key, each.rule, each.text, *each.number);
      }
    }
    return true;
  }

  // Captures the strings of the value from `in` to `behind`, which matches the pattern, and numbers its facets.
  bool take(const Pattern& pattern, const JsonReader& behind) {
    take_known(pattern);
    number_same();
    if (!read_others()) return false;
    in = behind;
    return true;
  }

  // Returns the number of the reduced text of a pattern's facet.
  std::int32_t number_of(const Pattern& pattern, const PatternFacet& facet) {
    const KnownNumbers::Key key{pattern.serial, 0, static_cast<std::uint64_t>(facet.rule) + 1};  // unlike those of items
    std::int32_t number = known.find(key);
    if (number < 0) {
      number = table(rules[static_cast<std::size_t>(facet.rule)].slot).number(facet.text);
      known.store(key, number);
    }
    return number;
  }

  // Reads a value by a rule with patterns: compares it with the patterns, or parses it and may add a pattern.
  bool alike(const ProjectionRule& rule, bool& present) {
    const char* start = in.p;
    if (learnt != nullptr || (*start != '{' && *start != '[')) return inside(rule, present);
    JsonReader ahead = in;
    const Pattern* found = patterns.follow(rule.place, ahead);
    if (found != nullptr && may_take(*found)) {
      text += found->kept;
      present = found->present;
      return take(*found, ahead);
    }
    if (found != nullptr || !numbered || !patterns.wants(rule.place, 0)) return inside(rule, present);
    const PatternTree::Trace trace = patterns.trace();
    if (!inside(rule, present)) return false;
    const auto size = static_cast<std::size_t>(in.p - start);
    if (!odd && patterns.wants(rule.place, size)) learn(rule, start, size, trace);
    return true;
  }

  // Adds the pattern of a value, unless the value is odd.
  void learn(const ProjectionRule& rule, const char* start, std::size_t size, const PatternTree::Trace& trace) {
    Pattern made;
    made.text.assign(start, size);
    std::string spare;
    std::vector<std::int32_t> of_facets(tables.size(), -1);
    std::vector<std::int64_t> begins(slots, 0), lengths(slots, -1);
    JsonReader again{start, start + size};
    std::vector<SameFacet> none;
    ProjectedValue own{again, rules, start, tables, patterns, known, slots, made.kept, spare, of_facets.data(),
                       begins.data(), lengths.data(), none, false, &made};
    if (!own.inside(rule, made.present) || own.odd) return;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      if (lengths[slot] < 0) continue;
      // A captured part begins in or before a scalar and ends in or behind one. One byte further, no scalar ends that
      // is only partly captured.
      const auto from = static_cast<std::int32_t>(begins[slot]);
      const auto to = static_cast<std::int32_t>(begins[slot] + lengths[slot]);
      PatternNote each{static_cast<std::int32_t>(slot), made.place(from), made.place(to + 1)};
      --each.end.behind;
      made.notes.push_back(each);
    }
    for (PatternFacet& each : made.facets) {
      const auto part = std::ranges::find(made.free, each.rule, &FreePart::rule);
      if (part == made.free.end()) return;  // removed by `keep`: it is inside of a value that decides about others
      each.part = static_cast<std::int32_t>(part - made.free.begin());
      each.begin = made.place(part->begin);
    }
    std::ranges::sort(made.notes, {}, [](const PatternNote& each) { return each.begin.parts; });
    std::ranges::sort(made.facets, {}, &PatternFacet::part);
    made.free.shrink_to_fit();
    patterns.learn(rule.place, std::move(made), trace);
  }

  TextTable& table(std::int32_t facet) { return tables[static_cast<std::size_t>(facet)]; }

  // Reads one value by a rule and appends its reduced text to `text`. `present`: set to whether the value counts.
  bool value(std::int32_t number, bool& present) {
    const ProjectionRule& rule = rules[static_cast<std::size_t>(number)];
    in.space();
    if (in.p == in.end) return false;
    const char* start = in.p;
    present = true;
    switch (rule.kind) {
      case ProjectionRule::kObject:
        if (*start == '{') return object(rule, present);
        break;
      case ProjectionRule::kArray:
        if (*start == '[') return array(rule);
        break;
      case ProjectionRule::kCapture:
      case ProjectionRule::kMark:
      case ProjectionRule::kNote: {
        present = false;
        if (*start != '"') {
          if (*start != 'n') odd = true;
          return in.skip();
        }
        std::string_view found;
        bool escaped;
        ++in.p;
        if (!in.string(found, escaped)) return false;
        if (escaped || length[rule.slot] >= 0 || !is_ascii(found)) odd = true;
        at[rule.slot] = found.data() - base;
        length[rule.slot] = static_cast<std::int64_t>(found.size());
        present = rule.kind != ProjectionRule::kCapture;
        if (learnt != nullptr && rule.kind != ProjectionRule::kNote) note(start, in.p, true);
        if (rule.kind == ProjectionRule::kMark) text += rule.text;
        if (rule.kind == ProjectionRule::kNote) text.append(start, static_cast<std::size_t>(in.p - start));
        return true;
      }
      case ProjectionRule::kSpan: {
        const char* from = key == nullptr ? start : key;
        if (!alike(rule, present)) return false;
        at[rule.slot] = from - base;
        length[rule.slot] = in.p - from;
        return true;
      }
      case ProjectionRule::kAlike:
        return alike(rule, present);
      case ProjectionRule::kSwitch: {
        present = false;
        std::string_view chosen;
        if (!member(in, rule.text, chosen)) {
          odd = true;  // or malformed: then `skip` fails
          return in.skip();
        }
        for (const ProjectionRule::Key& each : rule.keys) {
          if (each.name != chosen) continue;
          const ProjectionRule& own = rules[static_cast<std::size_t>(each.rule)];
          if (!object(own, present)) return false;
          keep(chosen);
          for (std::size_t k = 0; k < own.keys.size(); ++k) {  // the strings that the rule needs must be there
            const ProjectionRule& needed = rules[static_cast<std::size_t>(own.keys[k].rule)];
            if ((own.need >> k & 1) && needed.kind == ProjectionRule::kCapture && length[needed.slot] < 0) odd = true;
          }
          return true;
        }
        if (!skip()) return false;
        keep(chosen);
        return true;
      }
      case ProjectionRule::kEquals:
        if (!in.skip()) return false;
        present = std::string_view(start, static_cast<std::size_t>(in.p - start)) == rule.text;
        if (present) text += rule.text;
        return true;
      case ProjectionRule::kBlank: {
        if (!in.skip()) return false;
        const std::string_view found(start, static_cast<std::size_t>(in.p - start));
        text += is_name_between(found, rule.keys[0].name, rule.keys[1].name) ? std::string_view(rule.text) : found;
        return true;
      }
      case ProjectionRule::kFacet: {
        apart.clear();
        text.swap(apart);
        bool counts;
        const std::size_t notes = learnt == nullptr ? 0 : noted();
        const bool read = value(rule.inner, counts);
        text.swap(apart);
        if (!read) return false;
        if (learnt != nullptr) free_part(rule, start, notes);
        if (counts && numbered) facets[rule.slot] = table(rule.slot).number(apart);
        if (learnt != nullptr) {
          learnt->facets.push_back({static_cast<std::int32_t>(&rule - rules.data()), -1, {}, apart, counts});
        }
        present = false;
        return true;
      }
      case ProjectionRule::kKeep:
        break;
    }
    if (!in.skip()) return false;
    text.append(start, static_cast<std::size_t>(in.p - start));
    return true;
  }

  bool object(const ProjectionRule& rule, bool& present) {
    const char* start = in.p++;
    UnreadKeys unread;
    text += '{';
    std::uint64_t seen = 0, counted = 0;
    const std::size_t opened = text.size();
    if (!in.peek('}')) {
      for (;;) {
        std::string_view key;
        bool escaped;
        if (!in.eat('"') || !in.string(key, escaped) || !in.eat(':')) return false;
        if (escaped) odd = true;
        const std::int32_t k = find_key(rule, key);
        if (k < 0) {
          unread.add(key);
          in.space();
          if (!skip()) return false;
        } else {
          const std::uint64_t bit = std::uint64_t{1} << k;
          if (seen & bit) odd = true;
          seen |= bit;
          const std::size_t before = text.size();
          const std::int32_t own = rule.keys[static_cast<std::size_t>(k)].rule;
          if (may_count(rules[static_cast<std::size_t>(own)])) {
            if (before != opened) text += ',';
            text.append(key.data() - 1, key.size() + 2);  // with its quotes
            text += ':';
          }
          bool counts;
          this->key = key.data() - 1;
          if (!value(own, counts)) return false;
          if (counts) {
            counted |= bit;
          } else {
            text.resize(before);
          }
        }
        if (in.eat(',')) continue;
        break;
      }
    }
    if (!in.eat('}')) return false;
    if (numbered && (unread.repeated || (unread.full() && repeats(start, 1)))) odd = true;
    text += '}';
    present = rule.need == 0 || (counted & rule.need) != 0;
    return true;
  }

  bool array(const ProjectionRule& rule) {
    ++in.p;
    text += '[';
    const std::size_t opened = text.size();
    if (!in.peek(']')) {
      for (;;) {
        const std::size_t before = text.size();
        if (before != opened) text += ',';
        bool counts;
        key = nullptr;
        if (!value(rule.inner, counts)) return false;
        if (!counts) text.resize(before);
        if (in.eat(',')) continue;
        break;
      }
    }
    if (!in.eat(']')) return false;
    text += ']';
    return true;
  }
};

}  // namespace kscale
