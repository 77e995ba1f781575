#include "kscale/usual_texts.hpp"

#include <array>

namespace kscale {
namespace {

constexpr std::int64_t kLongestName = 253;
constexpr std::int64_t kTimeLength = 20;
constexpr std::array<int, 13> kDays = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

bool is_inner(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_name(const char* text, std::int64_t length) {
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

// Two digits, or -1.
int two(const char* text) {
  const unsigned high = static_cast<unsigned char>(text[0]) - unsigned{'0'};
  const unsigned low = static_cast<unsigned char>(text[1]) - unsigned{'0'};
  return high > 9 || low > 9 ? -1 : static_cast<int>(10 * high + low);
}

bool is_time(const char* text, std::int64_t length) {
  if (length != kTimeLength || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' ||
      text[16] != ':' || text[19] != 'Z') {
    return false;
  }
  const int century = two(text), year = two(text + 2), month = two(text + 5), day = two(text + 8);
  const int hour = two(text + 11), minute = two(text + 14), second = two(text + 17);
  return century >= 0 && year >= 0 && century + year > 0 && month >= 1 && month <= 12 && day >= 1 &&
         day <= kDays[static_cast<std::size_t>(month)] && hour >= 0 && hour < 24 && minute >= 0 && minute < 60 &&
         second >= 0 && second < 60;
}

}  // namespace

void plain_names(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n,
                 std::uint8_t* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = length[i] > 0 && is_name(data + at[i], length[i]);
}

void printed_times(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n,
                   std::uint8_t* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = length[i] > 0 && is_time(data + at[i], length[i]);
}

}  // namespace kscale
