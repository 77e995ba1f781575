#include "kscale/api_text.hpp"

#include <algorithm>
#include <array>

namespace kscale {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

bool is_alphanumeric(char c) noexcept { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool two(std::string_view text, std::size_t at, int& out) noexcept {
  if (!is_digit(text[at]) || !is_digit(text[at + 1])) return false;
  out = (text[at] - '0') * 10 + (text[at + 1] - '0');
  return true;
}

constexpr std::size_t kMostOfName = 63;

// Whether a text has only letters and digits, and between them also `-`, `_` and `.`, and is no keyword of selectors.
bool is_name(std::string_view text) noexcept {
  if (text.empty() || text.size() > kMostOfName || !is_alphanumeric(text.front()) || !is_alphanumeric(text.back()))
    return false;
  for (const char c : text)
    if (!is_alphanumeric(c) && c != '-' && c != '_' && c != '.') return false;
  return text != "in" && text != "notin";
}

// Returns the text of the time whose field name has its `T` at `at`; an empty view without data if there is no such
// field. Moves `at` behind the text.
std::string_view time_at(std::string_view text, std::size_t& at) noexcept {
  constexpr std::string_view kTime = "Time", kStamp = "stamp";
  const std::string_view before = text.substr(0, at);
  std::size_t p = at++;
  if (text.substr(p, kTime.size()) != kTime) return {};
  p += kTime.size();
  if (before.ends_with("\"creation")) {
    if (text.substr(p, kStamp.size()) != kStamp) return {};
    p += kStamp.size();
  } else if (!before.ends_with("\"start") && !before.ends_with("\"lastTransition")) {
    return {};
  }
  const auto eat = [&](char c) {
    p = std::min(text.find_first_not_of(" \t\n\r", p), text.size());
    return p < text.size() && text[p++] == c;
  };
  if (p == text.size() || text[p++] != '"' || !eat(':') || !eat('"')) return {};
  const std::size_t end = text.find('"', p);
  if (end == std::string_view::npos) return {};
  at = end + 1;
  return text.substr(p, end - p);
}

}  // namespace

void NewestTime::read(std::string_view text) {
  for (std::size_t at = text.find('T'); at != std::string_view::npos; at = text.find('T', at)) {
    const std::string_view found = time_at(text, at);
    std::int64_t time;
    if (found.data() == nullptr) continue;
    if (moment(found, time)) newest = std::max(newest, time);
    else odd.push_back(found);
  }
}

bool moment(std::string_view text, std::int64_t& out) noexcept {
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' ||
      text.back() != 'Z')
    return false;
  int century, years, month, day, hour, minute, second;
  if (!two(text, 0, century) || !two(text, 2, years) || !two(text, 5, month) || !two(text, 8, day) ||
      !two(text, 11, hour) || !two(text, 14, minute) || !two(text, 17, second))
    return false;
  const int year = century * 100 + years;
  if (year < 1678 || year > 2261 || month < 1 || month > 12 || hour > 23 || minute > 59 || second > 59) return false;
  constexpr std::array<int, 12> kDays = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  if (day < 1 || day > kDays[static_cast<std::size_t>(month - 1)] + (leap && month == 2)) return false;
  std::int64_t nanoseconds = 0;
  if (text.size() > 20) {
    if (text[19] != '.' || text.size() == 21) return false;
    std::int64_t unit = 100'000'000;
    for (std::size_t at = 20; at + 1 < text.size(); ++at, unit /= 10) {
      if (!is_digit(text[at])) return false;
      nanoseconds += unit * (text[at] - '0');  // finer fractions are cut off
    }
  }
  // Days since 1970. Years begin in March here, so that the leap day is the last day.
  const std::int64_t y = year - (month <= 2), era = y / 400, of_era = y - era * 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  const std::int64_t days = era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
  out = ((days * 24 + hour) * 60 + minute) * 60 + second;
  out = out * 1'000'000'000 + nanoseconds;
  return true;
}

std::size_t plain_label(std::string_view text) noexcept {
  const std::size_t at = text.find('=');
  if (at == std::string_view::npos || !is_name(text.substr(0, at)) || !is_name(text.substr(at + 1))) return 0;
  return at;
}

}  // namespace kscale
