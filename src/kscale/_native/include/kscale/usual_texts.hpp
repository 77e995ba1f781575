#pragma once

#include <cstddef>
#include <cstdint>

namespace kscale {

// Of `n` texts in `data` (`length` < 0: absent): whether each is one that nearly all are. Absent ones are not.

// DNS subdomains (RFC 1123): labels of lower case letters, digits and inner dashes, joined by dots; at most 253 bytes.
void plain_names(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n,
                 std::uint8_t* out);

// Nanoseconds since 1970 of times as an API server prints them: `2006-01-02T15:04:05Z`, of a day that every year has and
// within int64. kNoMoment for absent ones, kOddMoment for other texts.
constexpr std::int64_t kNoMoment = INT64_MIN, kOddMoment = INT64_MIN + 1;
void printed_moments(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n,
                     std::int64_t* out);

// Whole numbers as an API server prints them: at most 18 digits, none of them a leading zero. -1 for absent ones, -2 for
// other texts.
void printed_numbers(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n,
                     std::int64_t* out);

}  // namespace kscale
