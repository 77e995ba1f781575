#include "kscale/row_index.hpp"

namespace kscale {

bool find_repeated(const std::uint64_t* hashes, std::size_t n, std::uint8_t* twice) {
  std::size_t size = 16;
  while (size < n * 2) size *= 2;
  std::vector<std::int32_t> first(size, -1);
  bool found = false;
  for (std::size_t i = 0; i < n; ++i) {
    twice[i] = 0;
    std::size_t at = hashes[i] & (size - 1);
    while (first[at] >= 0 && hashes[first[at]] != hashes[i]) at = (at + 1) & (size - 1);
    if (first[at] < 0) {
      first[at] = static_cast<std::int32_t>(i);
    } else {
      twice[i] = twice[first[at]] = 1;
      found = true;
    }
  }
  return found;
}

}  // namespace kscale
