#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

// Texts in the form in which the API and its clients usually write them. Slower readers handle other forms.
namespace kscale {

// Converts YYYY-MM-DDTHH:MM:SS[.fraction]Z to nanoseconds since 1970. Returns false for another form, and for years
// that int64 does not hold completely.
bool moment(std::string_view text, std::int64_t& out) noexcept;

// Returns the position of `=` in a selector `key=value` that requires only this label; 0 for a selector in another
// form.
std::size_t plain_label(std::string_view text) noexcept;

// The newest creationTimestamp, startTime or lastTransitionTime at any depth in the JSON texts of objects.
struct NewestTime {
  std::int64_t newest = std::numeric_limits<std::int64_t>::min();  // the lowest: there is no time
  std::vector<std::string_view> odd;                               // texts that `moment` cannot read

  void read(std::string_view text);
};

}  // namespace kscale
