#include "kscale/projection.hpp"

#include <algorithm>

#include "kscale/json_reader.hpp"

namespace kscale {
namespace {

int bucket_of(std::string_view key) {
  const auto first = static_cast<unsigned char>(key.front());
  const auto last = static_cast<unsigned char>(key.back());
  return static_cast<int>((key.size() * 31u + first * 7u + last) & 63u);
}

bool is_ascii(std::string_view text) {
  unsigned char every = 0;
  for (const char c : text) every |= static_cast<unsigned char>(c);
  return every < 128;
}

// The text of a member of the object that begins at `in`; false if there is none, or not exactly one.
bool member(JsonReader in, std::string_view name, std::string_view& text) {
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

// What the first two members of what begins at `in` say: 1 it is of this kind, -1 of another one, 0 they do not say it.
int is_of_kind(JsonReader in, ItemKind kind) {
  if (kind.kind.empty() || !in.eat('{')) return 0;
  bool version_told = false, kind_told = false;
  for (int i = 0; i < 2; ++i) {
    std::string_view key, value;
    bool escaped;
    if (!in.eat('"') || !in.string(key, escaped) || !in.eat(':') || !in.eat('"') || !in.string(value, escaped)) break;
    if (key == "kind") {
      if (value != kind.kind) return -1;
      kind_told = true;
    } else if (key == "apiVersion") {
      if (value != kind.api_version) return -1;
      version_told = true;
    }
    if (!in.eat(',')) break;
  }
  return version_told && kind_told ? 1 : 0;
}

struct Item {
  JsonReader& in;
  const std::vector<ProjectionRule>& rules;
  const char* base;
  std::vector<TextTable>& tables;
  std::string& text;
  std::string& apart;
  std::int32_t* facets;
  std::int64_t* at;
  std::int64_t* length;
  bool numbered;                         // whether texts are, too
  const char* begin;                     // of the item
  std::vector<FreeScalar>* free;         // null, or what is noted of values that are not kept
  const char* key = nullptr;             // the one before the value that is read now
  bool odd = false;

  // A value that is not kept.
  bool skip() {
    if (free == nullptr) return in.skip();
    return in.skip([this](const char* from, const char* to) { note(from, to, false); });
  }

  void note(const char* from, const char* to, bool noted) {
    free->push_back({static_cast<std::int32_t>(from - begin), static_cast<std::int32_t>(to - begin), noted});
  }

  // A value that was read decides what becomes of others: nothing in it is free.
  void keep(std::string_view value) {
    if (free == nullptr) return;
    const auto from = static_cast<std::int32_t>(value.data() - begin);
    const auto to = static_cast<std::int32_t>(from + static_cast<std::int32_t>(value.size()));
    std::erase_if(*free, [from, to](const FreeScalar& each) { return each.begin >= from && each.end <= to; });
  }

  // Reads one value and appends what is kept of it. `present`: whether it counts.
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
        if (free != nullptr && rule.kind != ProjectionRule::kNote) note(start, in.p, true);
        if (rule.kind == ProjectionRule::kMark) text += rule.text;
        if (rule.kind == ProjectionRule::kNote) text.append(start, static_cast<std::size_t>(in.p - start));
        return true;
      }
      case ProjectionRule::kSpan: {
        const char* from = key;
        if (!skip()) return false;
        at[rule.slot] = from - base;
        length[rule.slot] = in.p - from;
        present = false;
        return true;
      }
      case ProjectionRule::kSwitch: {
        present = false;
        std::string_view chosen;
        if (!member(in, rule.text, chosen)) {
          odd = true;  // or damaged, which is found now
          return in.skip();
        }
        for (const ProjectionRule::Key& each : rule.keys) {
          if (each.name != chosen) continue;
          const ProjectionRule& own = rules[static_cast<std::size_t>(each.rule)];
          if (!object(own, present)) return false;
          keep(chosen);
          for (std::size_t k = 0; k < own.keys.size(); ++k) {  // what the rule needs to note must be there
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
      case ProjectionRule::kFacet: {
        apart.clear();
        text.swap(apart);
        bool counts;
        const bool read = value(rule.inner, counts);
        text.swap(apart);
        if (!read) return false;
        if (counts && numbered) facets[rule.slot] = tables[static_cast<std::size_t>(rule.slot)].number(apart);
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
    ++in.p;
    text += '{';
    std::uint64_t seen = 0, counted = 0;
    const std::size_t opened = text.size();
    if (!in.peek('}')) {
      for (;;) {
        std::string_view key;
        bool escaped;
        if (!in.eat('"') || !in.string(key, escaped) || !in.eat(':')) return false;
        if (escaped) odd = true;
        std::int32_t k = key.empty() ? -1 : rule.bucket[static_cast<std::size_t>(bucket_of(key))];
        while (k >= 0 && rule.keys[static_cast<std::size_t>(k)].name != key) {
          k = rule.keys[static_cast<std::size_t>(k)].next;
        }
        if (k < 0) {
          if (!skip()) return false;
        } else {
          const std::uint64_t bit = std::uint64_t{1} << k;
          if (seen & bit) odd = true;
          seen |= bit;
          const std::size_t before = text.size();
          if (before != opened) text += ',';
          text += '"';
          text += key;
          text += "\":";
          bool counts;
          this->key = key.data() - 1;
          if (!value(rule.keys[static_cast<std::size_t>(k)].rule, counts)) return false;
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

}  // namespace

std::int32_t Projector::add(ProjectionRule rule) {
  rule.bucket.fill(-1);
  for (std::size_t i = 0; i < rule.keys.size(); ++i) {
    std::int32_t& head = rule.bucket[static_cast<std::size_t>(bucket_of(rule.keys[i].name))];
    rule.keys[i].next = head;
    head = static_cast<std::int32_t>(i);
  }
  rules_.push_back(std::move(rule));
  return static_cast<std::int32_t>(rules_.size() - 1);
}

std::int32_t TextTable::number(const std::string& text) {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return found->second;
  std::int32_t number;
  if (free_.empty()) {
    texts_.push_back(text);
    number = static_cast<std::int32_t>(texts_.size() - 1);
  } else {
    number = free_.back();
    free_.pop_back();
    texts_[static_cast<std::size_t>(number)] = text;
  }
  numbers_.emplace(texts_[static_cast<std::size_t>(number)], number);
  return number;
}

void TextTable::remove(std::size_t i) {
  numbers_.erase(texts_[i]);
  std::string().swap(texts_[i]);
  free_.push_back(static_cast<std::int32_t>(i));
}

void Projector::retain(const std::uint8_t* keep, std::vector<std::vector<std::uint8_t>>& used) {
  const std::size_t size = tables_.size(), count = combinations_.size() / size;
  patterns_.clear();
  used.clear();
  for (const TextTable& table : tables_) used.emplace_back(table.count(), 0);
  std::vector<std::vector<std::uint8_t>> before = used;
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t* numbers = combinations_.data() + i * size;
    if (numbers[size - 1] < 0) continue;  // there is none
    for (std::size_t table = 0; table < size; ++table) {
      if (numbers[table] < 0) continue;
      const auto text = static_cast<std::size_t>(numbers[table]);
      before[table][text] = 1;
      if (keep[i]) used[table][text] = 1;
    }
    if (keep[i]) continue;
    std::fill(numbers, numbers + size, -1);
    combined_.remove(i);
  }
  for (std::size_t table = 0; table < size; ++table) {
    for (std::size_t text = 0; text < before[table].size(); ++text) {
      if (before[table][text] && !used[table][text]) tables_[table].remove(text);
    }
  }
}

Projector Projector::empty() const {
  Projector made(slots_, static_cast<std::int32_t>(tables_.size()) - 1, patterns_.sign());
  made.rules_ = rules_;
  return made;
}

std::optional<std::int32_t> Projector::read(const char* data, JsonReader& in, Depth depth, std::int64_t* at,
                                            std::int64_t* length, std::vector<FreeScalar>* free) {
  numbers_.assign(tables_.size(), -1);
  text_.clear();
  Item item{in, rules_, data, tables_, text_, apart_, numbers_.data(), at, length, depth == Depth::kTexts, in.p, free};
  bool counts;
  if (!item.value(static_cast<std::int32_t>(rules_.size() - 1), counts)) return std::nullopt;
  if (!counts || item.odd) return kOdd;
  if (depth == Depth::kNotes) return kNoted;
  numbers_.back() = tables_.back().number(text_);
  return combine(numbers_.data(), text_);
}

void Projector::learn(const char* begin, const char* end, std::int32_t combined) {
  Pattern made;
  made.text.assign(begin, end);
  made.combined = combined;
  made.at.assign(static_cast<std::size_t>(slots_), 0);
  made.length.assign(static_cast<std::size_t>(slots_), -1);
  JsonReader in{begin, end};
  read(begin, in, Depth::kTexts, made.at.data(), made.length.data(), &made.free);
  made.free.shrink_to_fit();
  patterns_.learn(std::move(made));
}

bool Projector::item(const char* data, JsonReader& in, ItemKind kind, Depth depth, ScannedItems& out) {
  const auto slots = static_cast<std::size_t>(slots_);
  const char* begin = in.p;
  out.at.resize(out.at.size() + slots, 0);
  out.length.resize(out.length.size() + slots, -1);
  std::int64_t* at = out.at.data() + (out.at.size() - slots);
  std::int64_t* length = out.length.data() + (out.length.size() - slots);
  std::int32_t number = kOdd;
  const int same = depth == Depth::kPlace ? -1 : is_of_kind(in, kind);
  if (depth == Depth::kNotes && same == 0) depth = Depth::kTexts;  // only texts say what it is
  if (same < 0) {
    if (!in.skip()) return false;
  } else if (const Pattern* pattern = patterns_.follow(data, in, at, length)) {
    number = depth == Depth::kNotes ? kNoted : pattern->combined;
  } else {
    const std::optional<std::int32_t> found = read(data, in, depth, at, length, nullptr);
    if (!found) return false;
    number = *found;
    if (number >= 0 && patterns_.wants(number, static_cast<std::size_t>(in.p - begin))) learn(begin, in.p, number);
  }
  out.begin.push_back(begin - data);
  out.size.push_back(in.p - begin);
  out.combined.push_back(number);
  return true;
}

Projector::Stop Projector::items(const char* data, const char*& p, const char* end, ItemKind kind,
                                 std::span<const char* const> stops, ScannedItems& out) {
  JsonReader in{p, end};
  std::size_t next = 0;
  for (;;) {
    in.space();
    p = in.p;
    while (next < stops.size() && stops[next] < p) ++next;
    if (next < stops.size() && stops[next] == p) return Stop::kStop;
    if (!item(data, in, kind, Depth::kTexts, out)) return Stop::kError;
    if (in.eat(',')) continue;
    if (!in.eat(']')) return Stop::kError;
    p = in.p;
    return Stop::kEnd;
  }
}

std::int32_t Projector::combine(const std::int32_t* numbers, std::string& key) {
  const std::size_t size = tables_.size();
  key.assign(reinterpret_cast<const char*>(numbers), size * sizeof(std::int32_t));
  const std::int32_t number = combined_.number(key);
  const std::size_t at = static_cast<std::size_t>(number) * size;
  if (at == combinations_.size()) {
    combinations_.insert(combinations_.end(), numbers, numbers + size);
  } else {
    std::copy(numbers, numbers + size, combinations_.begin() + static_cast<std::ptrdiff_t>(at));  // given again, or as it is
  }
  return number;
}

bool Projector::scan(const char* data, std::size_t size, ItemKind kind, Threading how, ScannedItems& out,
                     Span head[3]) {
  JsonReader in{data, data + size};
  if (rules_.empty() || !in.eat('{')) return false;
  bool listed = false;
  if (in.peek('}')) return false;
  for (;;) {
    std::string_view key;
    bool escaped;
    if (!in.eat('"') || !in.string(key, escaped) || !in.eat(':') || escaped) return false;
    in.space();
    if (in.p == in.end) return false;
    const char* start = in.p;
    if (key == "items" && *start == '[') {
      if (listed) return false;
      listed = true;
      ++in.p;
      if (in.peek(']')) {
        ++in.p;
      } else if (!items_on_threads(data, in.p, in.end, kind, how, out)) {
        return false;
      }
    } else {
      const bool version = key == "apiVersion";
      if (version || key == "kind") {
        Span& span = head[version ? 0 : 1];
        std::string_view found;
        if (*start != '"' || span.size >= 0) return false;
        ++in.p;
        if (!in.string(found, escaped) || escaped) return false;
        span = {found.data() - data, static_cast<std::int64_t>(found.size())};
      } else if (key == "items" || !in.skip()) {
        return false;
      } else if (key == "metadata") {
        if (head[2].size >= 0) return false;
        head[2] = {start - data, in.p - start};
      }
    }
    if (in.eat(',')) continue;
    break;
  }
  if (!in.eat('}')) return false;
  in.space();
  return listed && in.p == in.end;
}

}  // namespace kscale
