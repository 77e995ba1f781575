#pragma once

#include <cstdint>

namespace kscale {

// Texts as nearly all are; `length` < 0: it is absent.

// A DNS subdomain (RFC 1123): labels of lower case letters, digits and inner dashes, joined by dots; at most 253 bytes.
bool is_plain_name(const char* text, std::int64_t length);

// Nanoseconds since 1970 of a time as an API server prints it (`moment` of api_text.hpp). kNoMoment for an absent one,
// kOddMoment for another text.
constexpr std::int64_t kNoMoment = INT64_MIN, kOddMoment = INT64_MIN + 1;
std::int64_t printed_moment(const char* text, std::int64_t length);

// A whole number as an API server prints it: at most 18 digits, none of them a leading zero. kNoNumber for an absent one,
// kOddNumber for another text.
constexpr std::int64_t kNoNumber = -1, kOddNumber = -2;
std::int64_t printed_number(const char* text, std::int64_t length);

}  // namespace kscale
