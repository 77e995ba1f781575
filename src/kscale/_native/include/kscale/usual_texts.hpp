#pragma once

#include <cstdint>

namespace kscale {

// Texts in their usual form. A `length` below 0 means that the text is absent.

// A DNS subdomain (RFC 1123): labels of lower case letters, digits and inner dashes, joined by dots; at most 253 bytes.
bool is_plain_name(const char* text, std::int64_t length);

// Returns the nanoseconds since 1970 of a time as an API server prints it (`moment` of api_text.hpp); kNoMoment if it
// is absent, kOddMoment for a text in another form.
constexpr std::int64_t kNoMoment = INT64_MIN, kOddMoment = INT64_MIN + 1;
std::int64_t printed_moment(const char* text, std::int64_t length);

// Returns a whole number as an API server prints it: at most 18 digits, without a leading zero; kNoNumber if it is
// absent, kOddNumber for a text in another form.
constexpr std::int64_t kNoNumber = -1, kOddNumber = -2;
std::int64_t printed_number(const char* text, std::int64_t length);

}  // namespace kscale
