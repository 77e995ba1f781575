#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// Texts as the API and its clients usually write them. What is written in another way is left to slower readers.
namespace kscale {

// YYYY-MM-DDTHH:MM:SS[.fraction]Z in nanoseconds since 1970, of the years that int64 holds whole.
bool moment(std::string_view text, std::int64_t& out) noexcept;

// Where `=` stands in a selector `key=value` that asks for just this label; 0: it is written in another way.
std::size_t plain_label(std::string_view text) noexcept;

}  // namespace kscale
