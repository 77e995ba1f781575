#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

// Texts as the API and its clients usually write them. What is written in another way is left to slower readers.
namespace kscale {

// YYYY-MM-DDTHH:MM:SS[.fraction]Z in nanoseconds since 1970, of the years that int64 holds whole.
bool moment(std::string_view text, std::int64_t& out) noexcept;

// Where `=` stands in a selector `key=value` that asks for just this label; 0: it is written in another way.
std::size_t plain_label(std::string_view text) noexcept;

// The newest time in the JSON texts of objects: creationTimestamp, startTime and lastTransitionTime, wherever they are.
struct NewestTime {
  std::int64_t newest = std::numeric_limits<std::int64_t>::min();  // the lowest: there is no time
  std::vector<std::string_view> odd;                               // texts that `moment` cannot read

  void read(std::string_view text);
};

}  // namespace kscale
