#include "kscale/plain_objects.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "kscale/api_text.hpp"
#include "kscale/json_reader.hpp"
#include "kscale/usual_texts.hpp"
#include "rule_keys.hpp"

namespace kscale {
namespace {

constexpr std::size_t kMostBrackets = 100;
constexpr std::size_t kLongestWhole = 18, kLongestNumber = 15;

// Parses a quantity into thousandths. Returns false if it has an unusual form or does not fit.
bool plain_amount(std::string_view text, std::int64_t& out) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > kLongestWhole || (text[0] == '0' && digits > 1)) return false;
  std::int64_t value = 0;
  for (const char c : text.substr(0, digits)) value = value * 10 + (c - '0');
  static constexpr std::pair<std::string_view, std::int64_t> kUnits[] = {
      {"", 1000},          {"m", 1},
      {"Ki", 1000LL << 10}, {"Mi", 1000LL << 20},
      {"Gi", 1000LL << 30}, {"Ti", 1000LL << 40},
      {"k", 1'000'000},     {"M", 1'000'000'000},
      {"G", 1'000'000'000'000},
  };
  const auto unit = std::ranges::find(kUnits, text.substr(digits), [](const auto& each) { return each.first; });
  if (unit == std::end(kUnits) || value > std::numeric_limits<std::int64_t>::max() / 2 / unit->second) return false;
  out = value * unit->second;
  return true;
}

struct Amount {
  std::string_view name;
  std::int64_t value;
};

}  // namespace

// Reads a text by the rules. Each function returns false for a value that is not plain, and for a syntax error.
struct PlainObjects::Reading {
  const std::vector<PlainRule>& rules;
  JsonReader in;
  const char* base;
  std::int64_t* at;
  std::int64_t* length;
  std::size_t depth = 0;

  bool text(std::string_view& out) {
    bool escaped;
    return in.eat('"') && in.string(out, escaped);
  }

  bool plain_text(std::string_view& out) {
    bool escaped;
    return in.eat('"') && in.string(out, escaped) && !escaped;
  }

  // Numbers that are not read as integers may be too large for a decoder.
  bool any() {
    std::size_t deepest = 0;
    bool small = true;
    const auto seen = [&small](const char* from, const char* to) {
      const bool number = *from == '-' || (*from >= '0' && *from <= '9');
      if (number && static_cast<std::size_t>(to - from) > kLongestNumber) small = false;
      if (number && std::find_if(from, to, [](char c) { return c == 'e' || c == 'E'; }) != to) small = false;
    };
    return in.skip(seen, deepest) && small && depth + deepest <= kMostBrackets;
  }

  bool whole(std::int64_t least, std::int64_t most) {
    const char* from = in.p;
    if (in.p == in.end || !in.number()) return false;
    const bool negative = *from == '-';
    const char* const first = negative ? from + 1 : from;
    const std::string_view digits(first, static_cast<std::size_t>(in.p - first));
    if (digits.empty() || digits.size() > kLongestWhole || digits.find_first_not_of("0123456789") != digits.npos) return false;
    std::int64_t value = 0;
    for (const char c : digits) value = value * 10 + (c - '0');
    if (negative) value = -value;
    return least <= value && value <= most;
  }

  bool share() {
    if (!in.peek('"')) return whole(0, std::numeric_limits<std::int32_t>::max());
    std::string_view found;
    if (!plain_text(found) || found.size() < 2 || found.size() > 9 || found.back() != '%') return false;
    found.remove_suffix(1);
    return found.find_first_not_of("0123456789") == found.npos;
  }

  bool amounts(std::vector<Amount>* out) {
    if (!in.eat('{')) return false;
    if (in.eat('}')) return true;
    do {
      std::string_view name, written;
      std::int64_t value;
      if (!plain_text(name) || !in.eat(':') || !plain_text(written) || !plain_amount(written, value)) return false;
      if ((name == "pods" || name.find('/') != name.npos) && value % 1000) return false;
      if (out != nullptr) out->push_back({name, value});
    } while (in.eat(','));
    return in.eat('}');
  }

  // Reads an object. Members without a rule must follow rule `inner`; if that is negative, they may have any value.
  bool object(const PlainRule& rule) {
    if (!in.eat('{')) return false;
    std::uint64_t seen = 0;
    std::vector<Amount> requests, limits;
    if (!in.eat('}')) {
      do {
        std::string_view key;
        if (!text(key) || !in.eat(':')) return false;
        const std::int32_t k = find_key(rule, key);
        if (k < 0) {
          if (rule.inner < 0 ? !any() : !value(rule.inner, nullptr)) return false;
          continue;
        }
        seen |= std::uint64_t{1} << k;
        std::vector<Amount>* const kept = !rule.limited ? nullptr : key == "requests" ? &requests : &limits;
        if (!value(rule.keys[static_cast<std::size_t>(k)].rule, kept)) return false;
      } while (in.eat(','));
      if (!in.eat('}')) return false;
    }
    for (const Amount& each : requests) {
      const auto limit = std::ranges::find(limits, each.name, &Amount::name);
      if (limit != limits.end() && limit->value < each.value) return false;
    }
    return (seen & rule.need) == rule.need;
  }

  bool list(const PlainRule& rule) {
    if (!in.eat('[')) return false;
    std::int64_t count = 0;
    if (!in.eat(']')) {
      do {
        if (!value(rule.inner, nullptr)) return false;
        ++count;
      } while (in.eat(','));
      if (!in.eat(']')) return false;
    }
    return count >= rule.least;
  }

  bool value(std::int32_t number, std::vector<Amount>* kept) {
    const PlainRule& rule = rules[static_cast<std::size_t>(number)];
    in.space();
    if (in.p == in.end) return false;
    if (rule.or_null && *in.p == 'n') return in.word("null");
    std::string_view found;
    switch (rule.kind) {
      case PlainRule::kAny:
        return any();
      case PlainRule::kNever:
        return false;
      case PlainRule::kText:
        return text(found);
      case PlainRule::kName:
        if (!plain_text(found) || !is_plain_name(found.data(), static_cast<std::int64_t>(found.size()))) return false;
        if (rule.slot >= 0) {
          at[rule.slot] = found.data() - base;
          length[rule.slot] = static_cast<std::int64_t>(found.size());
        }
        return true;
      case PlainRule::kTime: {
        std::int64_t time;
        return plain_text(found) && moment(found, time);
      }
      case PlainRule::kWhole:
        return whole(rule.least, rule.most);
      case PlainRule::kShare:
        return share();
      case PlainRule::kBool:
        return in.word(*in.p == 't' ? "true" : "false");
      case PlainRule::kOneOf:
        return plain_text(found) && std::ranges::find(rule.texts, found) != rule.texts.end();
      case PlainRule::kAmounts:
        return amounts(kept);
      case PlainRule::kObject:
      case PlainRule::kMap:
      case PlainRule::kList: {
        if (++depth > kMostBrackets) return false;
        const bool plain = rule.kind == PlainRule::kList ? list(rule) : object(rule);
        --depth;
        return plain;
      }
    }
    return false;
  }
};

std::int32_t PlainObjects::add(PlainRule rule) {
  fill_buckets(rule);
  rules_.push_back(std::move(rule));
  return static_cast<std::int32_t>(rules_.size() - 1);
}

std::int32_t PlainObjects::kind_of(const char* data, std::string_view text, std::int64_t* at, std::int64_t* length) const {
  Reading whole{rules_, {text.data(), text.data() + text.size()}, data, at, length};
  JsonReader head = whole.in;
  std::string_view version, kind;
  if (!head.eat('{')) return -1;
  for (int i = 0; i < 2; ++i) {
    std::string_view key, value;
    bool escaped;
    if (!head.eat('"') || !head.string(key, escaped) || !head.eat(':') || !head.eat('"')) return -1;
    if (!head.string(value, escaped) || escaped || !head.eat(',')) return -1;
    (key == "kind" ? kind : version) = value;
    if (key != "kind" && key != "apiVersion") return -1;
  }
  const std::size_t slash = version.rfind('/');
  const std::string_view group = slash == version.npos ? std::string_view() : version.substr(0, slash);
  const auto found = std::ranges::find_if(
      kinds_, [&](const ObjectKind& each) { return each.kind == kind && each.group == group; });
  if (found == kinds_.end() || version.empty() || !is_ascii(text) || text.find("\\u") != text.npos) return -1;
  if (!whole.value(found->rule, nullptr) || whole.in.p != whole.in.end) return -1;
  return static_cast<std::int32_t>(found - kinds_.begin());
}

}  // namespace kscale
