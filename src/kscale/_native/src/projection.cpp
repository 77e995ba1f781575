#include "kscale/projection.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include "kscale/json_reader.hpp"
#include "kscale/repeated_keys.hpp"
#include "projected_value.hpp"

namespace kscale {
namespace {

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

// Returns the beginning of a value that pods of one workload probably share: up to the last dash of its first string, if
// the value begins with a key and a string.
std::string_view workload_text(const JsonReader& in) {
  constexpr std::ptrdiff_t kBytes = 96;
  const std::string_view text(in.p, static_cast<std::size_t>(std::min(kBytes, in.end - in.p)));
  std::size_t quote = 0;
  for (int i = 0; i < 4 && quote != text.npos; ++i) quote = text.find('"', quote + 1);
  return text.substr(0, std::min(text.rfind('-', quote), quote));
}

}  // namespace

std::int32_t Projector::add(ProjectionRule rule) {
  if (rule.kind == ProjectionRule::kSpan || rule.kind == ProjectionRule::kAlike) rule.place = patterns_.add();
  fill_buckets(rule);
  rules_.push_back(std::move(rule));
  return static_cast<std::int32_t>(rules_.size() - 1);
}

std::int32_t TextTable::number(const std::string& text) {
  if (last_ >= 0 && texts_[static_cast<std::size_t>(last_)] == text) return last_;
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return last_ = found->second;
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
  return last_ = number;
}

void TextTable::remove(std::size_t i) {
  if (last_ == static_cast<std::int32_t>(i)) last_ = -1;
  numbers_.erase(texts_[i]);
  std::string().swap(texts_[i]);
  free_.push_back(static_cast<std::int32_t>(i));
}

void Projector::retain(const std::uint8_t* keep, std::vector<std::vector<std::uint8_t>>& used) {
  const std::size_t size = tables_.size(), count = combinations_.size() / size;
  patterns_.known_parts().clear();
  forget_combinations();
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
  Projector made(slots_, static_cast<std::int32_t>(tables_.size()) - 1);
  made.rules_ = rules_;
  made.plain_ = plain_;
  made.patterns_ = patterns_.beside();
  made.frame_ = frame_;
  return made;
}

std::optional<std::int32_t> Projector::read(const char* data, JsonReader& in, Depth depth) {
  clear_item();
  ProjectedValue item{in, rules_, data, tables_, patterns_, known_, static_cast<std::size_t>(slots_), text_, apart_,
                      numbers_.data(), at_.data(), length_.data(), same_, depth == Depth::kTexts};
  bool counts;
  if (!item.value(static_cast<std::int32_t>(rules_.size() - 1), counts)) return std::nullopt;
  if (!counts || item.odd) return kOdd;
  if (depth == Depth::kNotes) return kNoted;
  numbers_.back() = tables_.back().number(text_);
  return combine(numbers_.data(), text_);
}

std::optional<std::int32_t> Projector::read_framed(const char* data, JsonReader& in, Depth depth, bool& framed) {
  clear_item();
  ProjectedValue item{in, rules_, data, tables_, patterns_, known_, static_cast<std::size_t>(slots_), text_, apart_,
                      numbers_.data(), at_.data(), length_.data(), same_, depth == Depth::kTexts};
  ItemMatch match;
  KnownNumbers::Key& key = match.patterns;
  bool known = numbers_.size() - 1 <= match.facets.size();  // whether all texts of facets are known
  std::array<const Pattern*, std::tuple_size_v<KnownNumbers::Key>> follows{};  // valid until a pattern is learnt
  const std::size_t learnt = patterns_.learnt();
  LikelyPatterns* likely = nullptr;
  std::uint64_t workload = 0;
  for (std::size_t k = 0; k < frame_.rules.size(); ++k) {
    framed = in.word(frame_.text[k]);
    if (!framed) return std::nullopt;
    JsonReader ahead = in;
    if (k == 0) {
      workload = TextHash{}(workload_text(in)) | 1;
      likely = &likely_patterns(workload);
    }
    const Pattern* found =
        patterns_.follow(rules_[static_cast<std::size_t>(frame_.rules[k])].place, ahead, likely->pattern[k], workload);
    if (found == nullptr || !found->present || !item.may_take(*found)) return std::nullopt;
    follows[k] = found;
    key[k] = found->serial;
    item.take_known(*found);
    if (!item.others.empty()) {
      known = false;
      item.number_same();
      if (!item.read_others()) return std::nullopt;
    }
    in = ahead;
  }
  framed = in.word(frame_.text.back());
  if (!framed) return std::nullopt;
  ++frame_.followed;
  if (item.odd) return kOdd;
  if (depth == Depth::kNotes) return kNoted;
  known = known && !item.again;
  if (known) {
    std::copy(numbers_.begin(), numbers_.end() - 1, match.facets.begin());
    if (likely->period != period_) likely->matches = {};
    likely->period = period_;
    for (const ItemMatch& each : likely->matches) {
      if (each.combination >= 0 && each.is_like(match)) return each.combination;
    }
  }
  if (patterns_.learnt() != learnt) return std::nullopt;
  item.number_same();
  std::int32_t rest = known_.find(key);
  if (rest < 0) {
    text_.clear();
    for (std::size_t k = 0; k < frame_.rules.size(); ++k) text_.append(frame_.kept[k]).append(follows[k]->kept);
    text_ += frame_.kept.back();
    rest = tables_.back().number(text_);
    known_.store(key, rest);
  }
  numbers_.back() = rest;
  match.combination = combine(numbers_.data(), text_);
  if (known) likely->matches = {match, likely->matches.front()};
  return match.combination;
}

LikelyPatterns& Projector::likely_patterns(std::uint64_t key) {
  LikelyPatterns& likely = guesses_.place(key >> 1, [key](const LikelyPatterns& each) { return each.key == key; });
  if (likely.key != key) {
    likely = {};
    likely.key = key;
  }
  return likely;
}

void Projector::forget_combinations() {
  known_.clear();
  ++period_;
}

void Projector::clear_item() {
  numbers_.assign(tables_.size(), -1);
  at_.assign(static_cast<std::size_t>(slots_), 0);
  length_.assign(static_cast<std::size_t>(slots_), -1);
  text_.clear();
  same_.clear();
}

void Projector::learn_frame(std::string_view item, ItemKind kind, bool told) {
  constexpr std::size_t kAnyway = 16, kWorth = 64;  // learnt whether others follow or not; that followed for one more
  const ProjectionRule& rule = rules_.back();
  if (rule.kind != ProjectionRule::kObject || frame_.learnt > kAnyway + frame_.followed / kWorth) return;
  const std::size_t learnt = frame_.learnt + 1;
  frame_ = {std::string(kind.api_version), std::string(kind.kind), told, {}, {"{"}, {}, learnt, frame_.followed};
  forget_combinations();
  std::vector<std::int32_t> values;
  JsonReader in{item.data(), item.data() + item.size()};
  const char* from = in.p;
  if (!in.eat('{') || in.peek('}')) return;
  bool first = true;  // that is kept
  do {
    std::string_view key;
    bool escaped;
    if (!in.eat('"') || !in.string(key, escaped) || !in.eat(':')) return;
    in.space();
    const char* start = in.p;
    const std::int32_t k = find_key(rule, key);
    if (!in.skip()) return;
    if (k < 0) continue;
    const std::int32_t number = rule.keys[static_cast<std::size_t>(k)].rule;
    const ProjectionRule& own = rules_[static_cast<std::size_t>(number)];
    const std::string_view value(start, static_cast<std::size_t>(in.p - start));
    const bool alike = own.kind == ProjectionRule::kAlike && (*start == '{' || *start == '[');
    if (own.kind == ProjectionRule::kEquals && value != own.text) continue;
    if (!alike && own.kind != ProjectionRule::kKeep && own.kind != ProjectionRule::kEquals) return;
    std::string& kept = frame_.kept.back();
    if (!first) kept += ',';
    first = false;
    kept.append(key.data() - 1, key.size() + 2).append(":");
    if (!alike) {
      kept += value;
      continue;
    }
    frame_.text.emplace_back(from, start);
    frame_.kept.emplace_back();
    values.push_back(number);
    from = in.p;
  } while (in.eat(','));
  if (!in.eat('}') || values.size() > std::tuple_size_v<KnownNumbers::Key>) return;
  frame_.text.emplace_back(from, in.p);
  frame_.kept.back() += '}';
  frame_.rules = std::move(values);
}

bool Projector::item(const char* data, JsonReader& in, ItemKind kind, Depth depth, ScannedItems& out) {
  const auto slots = static_cast<std::size_t>(slots_);
  const JsonReader begin = in;
  std::optional<std::int32_t> number;
  bool framed = false;
  if (depth != Depth::kPlace && frame_.holds_for(kind)) {
    number = read_framed(data, in, depth == Depth::kNotes && !frame_.told ? Depth::kTexts : depth, framed);
  }
  if (!number) {
    in = begin;
    const int same = depth == Depth::kPlace ? -1 : is_of_kind(in, kind);
    if (depth == Depth::kNotes && same == 0) depth = Depth::kTexts;  // only texts say what it is
    if (same < 0) {
      clear_item();
      if (!in.skip()) return false;
      number = kOdd;
    } else {
      number = read(data, in, depth);
      if (!number) return false;
      if (*number >= 0 && !framed) learn_frame({begin.p, static_cast<std::size_t>(in.p - begin.p)}, kind, same > 0);
    }
  }
  out.add(begin.p - data, in.p - begin.p, *number, slots, at_.data(), length_.data());
  return true;
}

void Projector::note_plain(const char* data, std::string_view text, ScannedItems& out) {
  if (plain_.empty()) return;
  clear_item();
  const std::int32_t kind = plain_.kind_of(data, text, at_.data(), length_.data());
  if (kind < 0) return;
  const auto slots = static_cast<std::size_t>(slots_);
  out.pop(slots);
  out.add(text.data() - data, static_cast<std::int64_t>(text.size()), kPlain - kind, slots, at_.data(), length_.data());
}

Projector::Stop Projector::items(const char* data, const char*& p, const char* end, ItemKind kind,
                                 std::span<const char* const> stops, std::int64_t grain, const Publish& publish,
                                 ScannedItems& out) {
  JsonReader in{p, end};
  std::size_t next = 0;
  const char* published = p;
  for (;;) {
    in.space();
    p = in.p;
    while (next < stops.size() && stops[next] < p) ++next;
    if (next < stops.size() && stops[next] == p) return Stop::kStop;
    if (!item(data, in, kind, Depth::kTexts, out)) return Stop::kError;
    if (publish && out.combined.back() == kOdd && !repeats_a_key(p, static_cast<std::size_t>(in.p - p), kAllLevels)) {
      out.combined.back() = kUnlike;
      note_plain(data, {p, static_cast<std::size_t>(in.p - p)}, out);
    }
    if (publish && in.p - published >= grain) {
      published = in.p;
      if (!publish(out)) return Stop::kError;
    }
    if (in.eat(',')) continue;
    if (!in.eat(']')) return Stop::kError;
    p = in.p;
    return Stop::kEnd;
  }
}

std::int32_t Projector::combine(const std::int32_t* numbers, std::string& key) {
  const std::size_t size = tables_.size();
  std::uint32_t hash = 0;
  for (std::size_t i = 0; i < size; ++i) hash = (std::rotl(hash, 5) ^ static_cast<std::uint32_t>(numbers[i])) * 0x9e3779b1u;
  if (likely_.size() * size < 2 * combinations_.size()) likely_.assign(4 * likely_.size(), -1);
  std::int32_t& likely = likely_[(hash >> 8) & (likely_.size() - 1)];
  if (likely >= 0 && std::equal(numbers, numbers + size, combinations_.begin() + static_cast<std::ptrdiff_t>(size) * likely)) {
    return likely;
  }
  key.assign(reinterpret_cast<const char*>(numbers), size * sizeof(std::int32_t));
  const std::int32_t number = likely = combined_.number(key);
  const std::size_t at = static_cast<std::size_t>(number) * size;
  if (at == combinations_.size()) {
    combinations_.insert(combinations_.end(), numbers, numbers + size);
  } else {
    std::copy(numbers, numbers + size, combinations_.begin() + static_cast<std::ptrdiff_t>(at));  // given again, or as it is
  }
  return number;
}

bool Projector::scan(const char* data, std::size_t size, ItemKind kind, Threading how, ScannedItems& out,
                     Span head[3], const Publish& publish) {
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
      } else if (!items_on_threads(data, in.p, in.end, kind, how, publish, out)) {
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
