#include "kscale/usual_texts.hpp"

#include "kscale/api_text.hpp"

namespace kscale {
namespace {

constexpr std::int64_t kLongestName = 253;
constexpr std::int64_t kMostDigits = 18;

bool is_inner(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

}  // namespace

bool is_plain_name(const char* text, std::int64_t length) {
  if (length < 1 || length > kLongestName || !is_inner(text[length - 1])) return false;
  unsigned other = 0;  // characters; most names are one label, and this loop has no branches
  for (std::int64_t i = 0; i < length; ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    other |= static_cast<unsigned>(static_cast<unsigned char>(c - 'a') >= 26) &
             static_cast<unsigned>(static_cast<unsigned char>(c - '0') >= 10) & static_cast<unsigned>(c != '-');
  }
  if (other == 0) return text[0] != '-';
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
  std::int64_t found;
  return moment({text, static_cast<std::size_t>(length)}, found) ? found : kOddMoment;
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
