#include "kscale/patterns.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace kscale {
namespace {

constexpr std::size_t kNear = 512;  // bytes in which the sign is looked for
constexpr std::size_t kBlock = 256;

// How many bytes are the same, at most `most`.
std::size_t common(const char* a, const char* b, std::size_t most) {
  std::size_t at = 0;
  while (most - at >= kBlock && std::memcmp(a + at, b + at, kBlock) == 0) at += kBlock;
  while (most - at >= 8) {
    std::uint64_t left, right;
    std::memcpy(&left, a + at, 8);
    std::memcpy(&right, b + at, 8);
    if (left != right) {
      if constexpr (std::endian::native == std::endian::little) {
        return at + (static_cast<std::size_t>(std::countr_zero(left ^ right)) >> 3);
      }
      break;
    }
    at += 8;
  }
  while (at < most && a[at] == b[at]) ++at;
  return at;
}

bool is_plain(JsonReader& in) {
  std::string_view found;
  bool escaped;
  if (*in.p != '"') return false;
  ++in.p;
  return in.string(found, escaped) && !escaped &&
         std::all_of(found.begin(), found.end(), [](char c) { return static_cast<unsigned char>(c) < 128; });
}

}  // namespace

std::size_t Patterns::set_of(const char* begin, const char* end) const {
  if (sign_.empty()) return 0;
  const std::string_view near(begin, std::min(kNear, static_cast<std::size_t>(end - begin)));
  const std::size_t at = near.find(sign_);
  if (at == near.npos) return 0;
  const std::string_view behind = near.substr(at + sign_.size());
  return std::hash<std::string_view>{}(behind.substr(0, behind.find('"'))) % kSets;
}

const Pattern* Patterns::follow(const char* data, JsonReader& in, std::int64_t* at, std::int64_t* length) {
  if (patterns_.empty()) return nullptr;
  const auto tried = last_;
  if (tried >= 0 && follows(patterns_[static_cast<std::size_t>(tried)], data, in, at, length)) {
    return &patterns_[static_cast<std::size_t>(tried)];
  }
  for (const std::int32_t number : sets_[set_of(in.p, in.end)].pattern) {
    if (number < 0 || number == tried) continue;
    if (follows(patterns_[static_cast<std::size_t>(number)], data, in, at, length)) {
      last_ = number;
      return &patterns_[static_cast<std::size_t>(number)];
    }
  }
  return nullptr;
}

bool Patterns::follows(const Pattern& pattern, const char* data, JsonReader& in, std::int64_t* at,
                       std::int64_t* length) {
  const char* const start = in.p;
  const char* const text = pattern.text.data();
  const std::size_t size = pattern.text.size();
  const char* p = start;
  std::size_t t = 0, next = 0;
  shifts_.clear();
  for (;;) {
    const std::size_t same = common(text + t, p, std::min(size - t, static_cast<std::size_t>(in.end - p)));
    t += same;
    p += same;
    if (t == size) break;
    if (p == in.end) return false;
    const auto here = static_cast<std::int32_t>(t);
    while (next < pattern.free.size() && pattern.free[next].end < here) ++next;
    if (next == pattern.free.size() || pattern.free[next].begin > here) return false;
    const FreeScalar& scalar = pattern.free[next++];
    JsonReader own{p - (here - scalar.begin), in.end};
    if (scalar.noted ? !is_plain(own) : (*own.p == '{' || *own.p == '[' || !own.scalar())) return false;
    p = own.p;
    t = static_cast<std::size_t>(scalar.end);
    shifts_.emplace_back(scalar.end, (p - start) - scalar.end);
  }
  const auto moved = [this](std::int64_t place) {
    auto shift = shifts_.rbegin();
    while (shift != shifts_.rend() && shift->first > place) ++shift;
    return shift == shifts_.rend() ? place : place + shift->second;
  };
  for (std::size_t slot = 0; slot < pattern.at.size(); ++slot) {
    if (pattern.length[slot] < 0) continue;
    // What is noted begins in or before a scalar and ends in or behind one: one byte further none ends that it holds in
    // part.
    const std::int64_t begin = moved(pattern.at[slot]), end = moved(pattern.at[slot] + pattern.length[slot] + 1) - 1;
    at[slot] = (start - data) + begin;
    length[slot] = end - begin;
  }
  in.p = p;
  return true;
}

bool Patterns::wants(std::int32_t combined, std::size_t size) {
  const auto number = static_cast<std::size_t>(combined);
  if (number >= read_.size()) read_.resize(std::max(number + 1, 2 * read_.size()), 0);
  const std::uint16_t times = read_[number]++;
  return size <= kLargest && times > 0 && (times & (times + 1)) == 0;  // the 2nd, 4th, 8th ... of its kind
}

void Patterns::learn(Pattern pattern) {
  const std::size_t size = pattern.text.size() + pattern.free.size() * sizeof(FreeScalar);
  if (bytes_ + size > kRoom) clear();
  if (sets_.empty()) sets_.resize(kSets);
  const char* begin = pattern.text.data();
  Set& set = sets_[set_of(begin, begin + pattern.text.size())];
  std::int32_t& way = set.pattern[set.next++ % kWays];
  bytes_ += size;
  if (way < 0) {
    way = static_cast<std::int32_t>(patterns_.size());
    patterns_.push_back(std::move(pattern));
  } else {
    Pattern& old = patterns_[static_cast<std::size_t>(way)];
    bytes_ -= old.text.size() + old.free.size() * sizeof(FreeScalar);
    old = std::move(pattern);
  }
  last_ = way;
}

void Patterns::clear() {
  sets_.clear();
  patterns_.clear();
  read_.clear();
  bytes_ = 0;
  last_ = -1;
}

}  // namespace kscale
