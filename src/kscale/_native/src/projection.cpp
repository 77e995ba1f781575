#include "kscale/projection.hpp"

#include <bit>
#include <cstring>

namespace kscale {
namespace {

constexpr int kMaxDepth = 1000;

int bucket_of(std::string_view key) {
  const auto first = static_cast<unsigned char>(key.front());
  const auto last = static_cast<unsigned char>(key.back());
  return static_cast<int>((key.size() * 31u + first * 7u + last) & 63u);
}

// A reader of JSON text. Every function returns false on a syntax error, and then the position means nothing.
struct Reader {
  const char* p;
  const char* end;

  void space() {
    if (p < end && static_cast<unsigned char>(*p) > ' ') return;
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) ++p;
  }
  bool eat(char c) {
    space();
    if (p == end || *p != c) return false;
    ++p;
    return true;
  }
  bool peek(char c) {
    space();
    return p < end && *p == c;
  }

  // After the opening quote; `text` is what is between the quotes.
  bool string(std::string_view& text, bool& escaped) {
    const char* start = p;
    escaped = false;
    for (;;) {
      // Eight characters at a time while none is a quote, a backslash or a control character.
      while (end - p >= 8) {
        std::uint64_t word;
        std::memcpy(&word, p, 8);
        constexpr std::uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
        const std::uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
        const std::uint64_t found =
            ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ones * 0x20u) & ~word);
        if (found & high) {
          // The lowest mark is exact; a borrow only disturbs those above it.
          if constexpr (std::endian::native == std::endian::little) p += std::countr_zero(found & high) >> 3;
          break;
        }
        p += 8;
      }
      if (p == end) return false;
      const auto c = static_cast<unsigned char>(*p);
      if (c == '"') {
        text = {start, static_cast<std::size_t>(p - start)};
        ++p;
        return true;
      }
      if (c < 0x20) return false;
      ++p;
      if (c != '\\') continue;
      escaped = true;
      if (p == end) return false;
      const char e = *p++;
      if (e == 'u') {
        if (end - p < 4) return false;
        for (int i = 0; i < 4; ++i, ++p) {
          const char h = *p;
          if (!((h >= '0' && h <= '9') || (h >= 'a' && h <= 'f') || (h >= 'A' && h <= 'F'))) return false;
        }
      } else if (std::memchr("\"\\/bfnrt", e, 8) == nullptr) {
        return false;
      }
    }
  }

  bool word(std::string_view expected) {
    if (static_cast<std::size_t>(end - p) < expected.size()) return false;
    if (std::memcmp(p, expected.data(), expected.size()) != 0) return false;
    p += expected.size();
    return true;
  }

  bool digits() {
    const char* start = p;
    while (p < end && *p >= '0' && *p <= '9') ++p;
    return p != start;
  }

  bool number() {
    if (*p == '-') ++p;
    const char* start = p;
    if (!digits()) return false;
    if (*start == '0' && p - start > 1) return false;
    if (p < end && *p == '.') {
      ++p;
      if (!digits()) return false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
      ++p;
      if (p < end && (*p == '+' || *p == '-')) ++p;
      if (!digits()) return false;
    }
    return true;
  }

  // A value that is neither an object nor an array.
  bool scalar() {
    std::string_view text;
    bool escaped;
    switch (*p) {
      case '"':
        ++p;
        return string(text, escaped);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  // Any value, leading space included; without recursion.
  bool skip() {
    char stack[kMaxDepth];
    int depth = 0;
    std::string_view text;
    bool escaped;
    for (;;) {
      space();
      if (p == end) return false;
      if (*p == '{' || *p == '[') {
        if (depth == kMaxDepth) return false;
        const char close = *p == '{' ? '}' : ']';
        ++p;
        if (!peek(close)) {
          stack[depth++] = close;
          if (close == '}' && !(eat('"') && string(text, escaped) && eat(':'))) return false;
          continue;
        }
        ++p;
      } else if (!scalar()) {
        return false;
      }
      for (;;) {  // after a value
        if (depth == 0) return true;
        space();
        if (p == end) return false;
        if (*p == ',') {
          ++p;
          if (stack[depth - 1] == '}' && !(eat('"') && string(text, escaped) && eat(':'))) return false;
          break;
        }
        if (*p != stack[depth - 1]) return false;
        ++p;
        --depth;
      }
    }
  }
};

struct Item {
  Reader& in;
  const std::vector<ProjectionRule>& rules;
  const char* base;
  std::vector<TextTable>& tables;
  std::string& text;
  std::string& apart;
  std::int32_t* facets;
  std::int64_t* at;
  std::int64_t* length;
  bool odd = false;

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
      case ProjectionRule::kCapture: {
        present = false;
        if (*start != '"') {
          if (*start != 'n') odd = true;
          return in.skip();
        }
        std::string_view found;
        bool escaped;
        ++in.p;
        if (!in.string(found, escaped)) return false;
        if (escaped) odd = true;
        at[rule.slot] = found.data() - base;
        length[rule.slot] = static_cast<std::int64_t>(found.size());
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
        if (counts) facets[rule.slot] = tables[static_cast<std::size_t>(rule.slot)].number(apart);
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
          if (!in.skip()) return false;
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
  texts_.push_back(text);
  const auto number = static_cast<std::int32_t>(texts_.size() - 1);
  numbers_.emplace(texts_.back(), number);
  return number;
}

bool Projector::scan(const char* data, std::size_t size, ScannedItems& out, Span head[2]) {
  Reader in{data, data + size};
  if (rules_.empty() || !in.eat('{')) return false;
  const auto root = static_cast<std::int32_t>(rules_.size() - 1);
  bool listed = false;
  const auto slots = static_cast<std::size_t>(slots_);
  if (in.peek('}')) return false;
  const std::size_t facets = tables_.size() - 1;
  std::string text, apart;
  std::vector<std::int32_t> numbers;
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
      } else {
        for (;;) {
          in.space();
          const char* begin = in.p;
          out.at.resize(out.at.size() + slots, 0);
          out.length.resize(out.length.size() + slots, -1);
          numbers.assign(facets + 1, -1);
          text.clear();
          Item item{in,
                    rules_,
                    data,
                    tables_,
                    text,
                    apart,
                    numbers.data(),
                    out.at.data() + (out.at.size() - slots),
                    out.length.data() + (out.length.size() - slots)};
          bool counts;
          if (!item.value(root, counts)) return false;
          std::int32_t number = -1;
          if (counts && !item.odd) {
            numbers.back() = tables_.back().number(text);
            text.assign(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(std::int32_t));
            number = combined_.number(text);
            if (static_cast<std::size_t>(number) * numbers.size() == combinations_.size()) {
              combinations_.insert(combinations_.end(), numbers.begin(), numbers.end());
            }
          }
          out.begin.push_back(begin - data);
          out.size.push_back(in.p - begin);
          out.combined.push_back(number);
          if (in.eat(',')) continue;
          break;
        }
        if (!in.eat(']')) return false;
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
      }
    }
    if (in.eat(',')) continue;
    break;
  }
  if (!in.eat('}')) return false;
  in.space();
  return listed && in.p == in.end;
}

void number_strings(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n,
                    std::int32_t* out, std::vector<std::int64_t>& first) {
  std::unordered_map<std::string_view, std::int32_t> numbers;
  for (std::size_t i = 0; i < n; ++i) {
    if (length[i] < 0) {
      out[i] = -1;
      continue;
    }
    const auto [found, fresh] = numbers.try_emplace(
        std::string_view(data + at[i], static_cast<std::size_t>(length[i])), static_cast<std::int32_t>(numbers.size()));
    if (fresh) first.push_back(static_cast<std::int64_t>(i));
    out[i] = found->second;
  }
}

}  // namespace kscale
