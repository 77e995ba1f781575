#include "kscale/usage_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kscale/decimal.hpp"
#include "kscale/dispatch.hpp"

namespace kscale::usage_text {
namespace {

constexpr std::int64_t kSecond = 1000000000;
constexpr std::int64_t kFarthest = std::int64_t{1} << 62;  // nanoseconds from 1970
constexpr double kFarthestSecond = 4294967296.0;           // 2^32: its nanoseconds fit

bool is_digit(char c) noexcept { return static_cast<unsigned char>(c - '0') < 10; }

// Reads `count` digits at p.
bool digits(const char*& p, const char* end, int count, std::int64_t& out) noexcept {
  if (end - p < count) return false;
  out = 0;
  for (int i = 0; i < count; ++i, ++p) {
    if (!is_digit(*p)) return false;
    out = out * 10 + (*p - '0');
  }
  return true;
}

bool is_leap(std::int64_t year) noexcept { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

// Returns the days since 1970-01-01 of a day of the Gregorian calendar.
std::int64_t days_of(std::int64_t year, std::int64_t month, std::int64_t day) noexcept {
  constexpr std::int64_t kBefore[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  const std::int64_t y = year - 1;
  const std::int64_t leap = month > 2 && is_leap(year) ? 1 : 0;
  return y * 365 + y / 4 - y / 100 + y / 400 + kBefore[month - 1] + leap + day - 1 - 719162;
}

// 2026-01-05T00:00:00[.123456789][Z|+01:00]; without a zone it is UTC.
bool moment(const char*& p, const char* end, std::int64_t& out) noexcept {
  constexpr std::int64_t kLength[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const auto mark = [&](const char* of) {
    if (p == end || std::strchr(of, *p) == nullptr || *p == 0) return false;
    ++p;
    return true;
  };
  std::int64_t year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, fraction = 0;
  if (!digits(p, end, 4, year) || !mark("-") || !digits(p, end, 2, month) || !mark("-") || !digits(p, end, 2, day))
    return false;
  if (!mark("T ") || !digits(p, end, 2, hour) || !mark(":") || !digits(p, end, 2, minute) || !mark(":") ||
      !digits(p, end, 2, second))
    return false;
  if (year < 1900 || year > 2100 || month < 1 || month > 12 || hour > 23 || minute > 59 || second > 59) return false;
  if (day < 1 || day > kLength[month - 1] + (month == 2 && is_leap(year) ? 1 : 0)) return false;
  if (p < end && *p == '.') {
    int count = 0;
    for (++p; p < end && is_digit(*p); ++p, ++count) {
      if (count == 9) return false;
      fraction = fraction * 10 + (*p - '0');
    }
    if (count == 0) return false;
    for (; count < 9; ++count) fraction *= 10;
  }
  std::int64_t ahead = 0;  // offset from UTC, in seconds
  if (p < end && *p == 'Z') {
    ++p;
  } else if (p < end && (*p == '+' || *p == '-')) {
    const bool west = *p++ == '-';
    std::int64_t hours = 0, minutes = 0;
    if (!digits(p, end, 2, hours) || !mark(":") || !digits(p, end, 2, minutes) || hours > 23 || minutes > 59) return false;
    ahead = (hours * 3600 + minutes * 60) * (west ? -1 : 1);
  }
  out = (days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - ahead) * kSecond + fraction;
  return true;
}

bool ends_field(const char* p, const char* end) noexcept {
  return p == end || *p == ',' || *p == '\n' || (*p == '\r' && (p + 1 == end || p[1] == '\n'));
}

// Reads a quoted field without quotes, commas and line ends inside: the text between the quotes.
bool quoted(const char*& p, const char* end, std::string_view& out) noexcept {
  const char* start = p + 1;
  const char* at = start;
  for (; at < end && *at != '"'; ++at)
    if (*at == ',' || *at == '\n' || *at == '\r' || *at == 0) return false;
  if (at == end || !ends_field(at + 1, end)) return false;
  out = {start, static_cast<std::size_t>(at - start)};
  p = at + 1;
  return true;
}

// Reads the digits after the decimal point of a number of units, truncated to nanoseconds.
bool fraction(const char*& p, const char* end, std::int64_t unit, std::int64_t& out) noexcept {
  std::int64_t number = 0, scale = 1;
  const char* start = p;
  for (; p < end && is_digit(*p); ++p) {
    if (p - start == 9) return false;
    number = number * 10 + (*p - '0');
    scale *= 10;
  }
  out = number * unit / scale;
  return p > start;
}

bool time_field(const char*& p, const char* end, std::int64_t unit, std::int64_t& out) noexcept {
  if (p < end && *p == '"') {
    std::string_view inner;
    if (!quoted(p, end, inner)) return false;
    const char* at = inner.data();
    return time_field(at, at + inner.size(), unit, out);
  }
  const char* start = p;
  const bool negative = p < end && *p == '-';
  if (negative) ++p;
  std::uint64_t number = 0;
  int count = 0;
  for (; p < end && is_digit(*p); ++p, ++count) {
    if (count == 19) return false;
    number = number * 10 + static_cast<std::uint64_t>(*p - '0');
  }
  std::int64_t rest = 0;
  const bool whole = count > 0 && ends_field(p, end);
  if (whole || (count > 0 && p < end && *p == '.' && fraction(++p, end, unit, rest) && ends_field(p, end))) {
    if (number >= static_cast<std::uint64_t>(kFarthest / unit)) return false;
    out = static_cast<std::int64_t>(number) * unit + rest;
    if (negative) out = -out;
    return true;
  }
  p = start;
  return moment(p, end, out) && ends_field(p, end);
}

bool number_field(const char*& p, const char* end, double& out) noexcept {
  if (p < end && *p == '"') {
    std::string_view inner;
    if (!quoted(p, end, inner)) return false;
    const char* at = inner.data();
    return number_field(at, at + inner.size(), out);
  }
  if (ends_field(p, end)) {
    out = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  return decimal(p, end, out) && ends_field(p, end);
}

// Texts with quotes inside are not supported.
bool text_field(const char*& p, const char* end, std::string_view& out) noexcept {
  if (p < end && *p == '"') return quoted(p, end, out);
  const char* start = p;
  while (p < end && *p != ',' && *p != '\n') {
    if (*p == '"' || *p == 0) return false;
    ++p;
  }
  const char* last = p;
  if (last > start && last[-1] == '\r') {
    if (p < end && *p == ',') return false;
    --last;
    p = last;
  }
  if (std::memchr(start, '\r', static_cast<std::size_t>(last - start)) != nullptr) return false;
  out = {start, static_cast<std::size_t>(last - start)};
  return true;
}

// Returns whether the field at p is `expected`; moves p behind it.
bool same_field(const char*& p, const char* end, std::string_view expected) noexcept {
  const std::size_t n = expected.size();
  if (p < end && *p == '"') {
    if (static_cast<std::size_t>(end - p) <= n + 2 || p[n + 1] != '"' || p[n + 2] != ',') return false;
    if (std::memcmp(p + 1, expected.data(), n) != 0) return false;
    p += n + 2;
    return true;
  }
  if (static_cast<std::size_t>(end - p) <= n || p[n] != ',') return false;
  if (std::memcmp(p, expected.data(), n) != 0) return false;
  p += n;
  return true;
}

struct Span {
  std::int32_t low = 0, high = -1;
};

KSCALE_CLONED Span span_of(const std::int32_t* codes, std::ptrdiff_t n) noexcept {
  Span span;
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    span.low = codes[i] < span.low ? codes[i] : span.low;
    span.high = codes[i] > span.high ? codes[i] : span.high;
  }
  return span;
}

}  // namespace

std::ptrdiff_t lines(const char* text, std::size_t size) noexcept {
  if (size == 0) return 0;
  return std::count(text, text + size, '\n') + (text[size - 1] == '\n' ? 0 : 1);
}

std::int32_t CsvRows::number_of(const std::array<std::string_view, kMostNames>& names, std::int32_t before) {
  joined_.clear();
  for (const std::string_view name : names) {
    joined_ += name;
    joined_ += '\n';
  }
  std::int32_t number = 0;
  const auto known = numbers_.find(joined_);
  if (known != numbers_.end()) {
    number = known->second;
  } else {
    number = static_cast<std::int32_t>(names_.size());
    const std::string_view text = texts_.emplace_back(joined_);
    std::array<std::string_view, kMostNames> own;
    std::size_t at = 0;
    for (std::size_t k = 0; k < kMostNames; ++k) {
      own[k] = text.substr(at, names[k].size());
      at += names[k].size() + 1;
    }
    names_.push_back(own);
    next_.push_back(-1);
    numbers_.emplace(text, number);
  }
  if (before >= 0) next_[static_cast<std::size_t>(before)] = number;
  return number;
}

void CsvRows::forget(std::size_t from) {
  while (names_.size() > from) {
    numbers_.erase(texts_.back());
    texts_.pop_back();
    names_.pop_back();
  }
  next_.resize(names_.size());
  for (std::int32_t& next : next_)
    if (next >= static_cast<std::int32_t>(from)) next = -1;
}

std::ptrdiff_t CsvRows::read(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* time, double* cpu,
                             double* memory, std::int32_t* series) {
  const std::size_t known = names_.size();
  const std::ptrdiff_t found = rows(text, size, room, time, cpu, memory, series);
  if (found < 0) forget(known);
  return found;
}

std::ptrdiff_t CsvRows::rows(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* time, double* cpu,
                             double* memory, std::int32_t* series) {
  const char* p = text;
  const char* const end = text + size;
  const std::size_t last = roles_.size() - 1;
  std::ptrdiff_t row = 0;
  std::int32_t before = -1;
  bool changed = false;
  std::array<std::string_view, kMostNames> names{};
  while (p < end) {
    if (*p == '\n' || (*p == '\r' && p + 1 < end && p[1] == '\n')) {  // an empty line
      p += *p == '\n' ? 1 : 2;
      continue;
    }
    if (row == room) return -1;
    // Rows of one series are consecutive, or, sorted by time, the series come in the same order again and again.
    std::int32_t guess = before;
    if (changed && next_[static_cast<std::size_t>(before)] >= 0) guess = next_[static_cast<std::size_t>(before)];
    bool same = guess >= 0;
    if (same) names = names_[static_cast<std::size_t>(guess)];
    for (std::size_t column = 0;; ++column) {
      const std::int32_t role = roles_[column];
      std::string_view other;
      switch (role) {
        case kTime:
          if (!time_field(p, end, unit_, time[row])) return -1;
          break;
        case kCpu:
          if (!number_field(p, end, cpu[row])) return -1;
          break;
        case kMemory:
          if (!number_field(p, end, memory[row])) return -1;
          break;
        case kSkipped:
          if (!text_field(p, end, other)) return -1;
          break;
        default: {
          std::string_view& name = names[static_cast<std::size_t>(role - kName)];
          if (guess >= 0 && same_field(p, end, name)) break;
          if (!text_field(p, end, other)) return -1;
          if (other != name) {
            name = other;
            same = false;
          }
        }
      }
      if (column == last) break;
      if (p == end || *p != ',') return -1;
      ++p;
    }
    if (p < end && *p == '\r') ++p;
    if (p < end && *p++ != '\n') return -1;
    const std::int32_t number = same ? guess : number_of(names, before);
    changed = before >= 0 && number != before;
    before = number;
    series[row++] = number;
  }
  return row;
}

std::size_t SeriesNumbers::Hash::operator()(const Key& key) const noexcept {
  std::uint64_t hash = 0;
  for (const std::int32_t part : key) {
    hash = (hash ^ static_cast<std::uint32_t>(part)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

bool SeriesNumbers::number(const std::array<Column, kMostNames>& columns, std::ptrdiff_t n, std::int32_t* out) {
  for (const Column& column : columns) {
    if (column.codes == nullptr) continue;
    const Span span = at_cpu_level<span_of>(column.codes, n);
    if (span.low < 0 || span.high >= column.size) return false;
  }
  std::int32_t before = -1;
  bool changed = false;
  Key key{};
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < kMostNames; ++k)
      if (columns[k].codes != nullptr) key[k] = columns[k].number_of[columns[k].codes[i]];
    std::int32_t number = before;
    if (changed && next_[static_cast<std::size_t>(before)] >= 0) number = next_[static_cast<std::size_t>(before)];
    if (number < 0 || keys_[static_cast<std::size_t>(number)] != key) {
      const auto [found, is_new] = numbers_.try_emplace(key, static_cast<std::int32_t>(keys_.size()));
      if (is_new) {
        keys_.push_back(key);
        next_.push_back(-1);
      }
      number = found->second;
      if (before >= 0) next_[static_cast<std::size_t>(before)] = number;
    }
    changed = before >= 0 && number != before;
    before = number;
    out[i] = number;
  }
  return true;
}

std::ptrdiff_t points(const char* text, std::size_t size, std::ptrdiff_t room, std::int64_t* milliseconds,
                      double* value) noexcept {
  const char* p = text;
  const char* const end = text + size;
  const auto eat = [&](char c) {
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) ++p;
    if (p == end || *p != c) return false;
    ++p;
    return true;
  };
  const auto word = [&](std::string_view expected) {
    if (static_cast<std::size_t>(end - p) < expected.size()) return false;
    if (std::memcmp(p, expected.data(), expected.size()) != 0) return false;
    p += expected.size();
    return true;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!eat('[')) return -1;
  if (eat(']')) return p == end ? 0 : -1;
  std::ptrdiff_t n = 0;
  do {
    if (n == room || !eat('[')) return -1;
    double time = 0;
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) ++p;
    // JSON numbers have no leading zeros.
    const char* digit = p + (p < end && *p == '-' ? 1 : 0);
    if (end - digit > 1 && *digit == '0' && is_digit(digit[1])) return -1;
    if (!decimal(p, end, time) || std::fabs(time) >= kFarthestSecond || !eat(',') || !eat('"')) return -1;
    if (word("NaN")) {
      value[n] = std::numeric_limits<double>::quiet_NaN();
    } else if (word("+Inf")) {
      value[n] = kInfinity;
    } else if (word("-Inf")) {
      value[n] = -kInfinity;
    } else if (!decimal(p, end, value[n])) {
      return -1;
    }
    if (p == end || *p++ != '"' || !eat(']')) return -1;
    milliseconds[n++] = static_cast<std::int64_t>(std::nearbyint(time * 1000));
  } while (eat(','));
  return eat(']') && p == end ? n : -1;
}

namespace {

struct Ends {
  std::int64_t low, high;
};

KSCALE_CLONED Ends scale_all(const std::int64_t* in, std::ptrdiff_t n, std::int64_t unit, std::int64_t* out) noexcept {
  Ends ends{0, 0};
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    ends.low = in[i] < ends.low ? in[i] : ends.low;
    ends.high = in[i] > ends.high ? in[i] : ends.high;
    out[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(in[i]) * static_cast<std::uint64_t>(unit));
  }
  return ends;
}

}  // namespace

bool scaled(const std::int64_t* in, std::ptrdiff_t n, std::int64_t unit, std::int64_t most, std::int64_t* out,
            std::int64_t& farthest) noexcept {
  const Ends ends = at_cpu_level<scale_all>(in, n, unit, out);
  const std::int64_t limit = (most - 1) / unit;
  farthest = ends.high > limit ? ends.high : ends.low;
  return ends.high <= limit && ends.low >= -limit;
}

}  // namespace kscale::usage_text
