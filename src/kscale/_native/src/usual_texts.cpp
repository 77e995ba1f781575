#include "kscale/usual_texts.hpp"

#include <array>

namespace kscale {
namespace {

constexpr std::int64_t kLongestName = 253;
constexpr std::int64_t kTimeLength = 20;
constexpr std::int64_t kMostDigits = 18;
constexpr int kFirstYear = 1678, kLastYear = 2261;  // whole years that int64 nanoseconds reach
constexpr std::array<int, 13> kDays = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

bool is_inner(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// Two digits, or -1.
int two(const char* text) {
  const unsigned high = static_cast<unsigned char>(text[0]) - unsigned{'0'};
  const unsigned low = static_cast<unsigned char>(text[1]) - unsigned{'0'};
  return high > 9 || low > 9 ? -1 : static_cast<int>(10 * high + low);
}

// Days since 1970-01-01 in the Gregorian calendar: years begin in March, so that the odd day comes last.
std::int64_t days_of(std::int64_t year, std::int64_t month, std::int64_t day) {
  year -= month <= 2;
  const std::int64_t era = year / 400, of_era = year % 400;
  const std::int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

}  // namespace

bool is_plain_name(const char* text, std::int64_t length) {
  if (length < 1 || length > kLongestName || !is_inner(text[length - 1])) return false;
  bool begins = true;  // of a label
  for (std::int64_t i = 0; i < length; ++i) {
    if (is_inner(text[i])) {
      begins = false;
    } else if (text[i] == '.') {
      if (begins || text[i - 1] == '-') return false;
      begins = true;
    } else if (text[i] != '-' || begins) {
      return false;
    }
  }
  return true;
}

std::int64_t printed_moment(const char* text, std::int64_t length) {
  if (length < 0) return kNoMoment;
  if (length != kTimeLength || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' ||
      text[16] != ':' || text[19] != 'Z') {
    return kOddMoment;
  }
  const int century = two(text), years = two(text + 2), month = two(text + 5), day = two(text + 8);
  const int hour = two(text + 11), minute = two(text + 14), second = two(text + 17);
  const int year = century * 100 + years;
  const bool fine = century >= 0 && years >= 0 && year >= kFirstYear && year <= kLastYear && month >= 1 &&
                    month <= 12 && day >= 1 && day <= kDays[static_cast<std::size_t>(month)] && hour >= 0 &&
                    hour < 24 && minute >= 0 && minute < 60 && second >= 0 && second < 60;
  if (!fine) return kOddMoment;
  const std::int64_t seconds = ((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
  return seconds * 1'000'000'000;
}

std::int64_t printed_number(const char* text, std::int64_t length) {
  if (length < 0) return kNoNumber;
  if (length < 1 || length > kMostDigits || (text[0] == '0' && length > 1)) return kOddNumber;
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const unsigned digit = static_cast<unsigned char>(text[i]) - unsigned{'0'};
    if (digit > 9) return kOddNumber;
    found = found * 10 + digit;
  }
  return found;
}

}  // namespace kscale
