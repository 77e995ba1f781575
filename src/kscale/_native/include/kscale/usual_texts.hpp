#pragma once

#include <cstddef>
#include <cstdint>

namespace kscale {

// Of `n` texts in `data` (`length` < 0: absent): whether each is one that nearly all are. Absent ones are not.

// DNS subdomains (RFC 1123): labels of lower case letters, digits and inner dashes, joined by dots; at most 253 bytes.
void plain_names(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n,
                 std::uint8_t* out);

// Times as an API server prints them: `2006-01-02T15:04:05Z`, of a day that every year has.
void printed_times(const char* data, const std::int64_t* at, const std::int64_t* length, std::size_t n,
                   std::uint8_t* out);

}  // namespace kscale
