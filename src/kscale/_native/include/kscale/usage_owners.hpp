#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kscale/usage.hpp"

namespace kscale::usage {

inline constexpr std::ptrdiff_t kMostThreads = 64;

// Which of `parts` threads owns an aggregate.
class Owners {
 public:
  Owners(const Containers& containers, std::ptrdiff_t n, const std::int32_t* container, std::ptrdiff_t parts) {
    if (parts == 1) return;
    std::int32_t most = 0;
    for (std::ptrdiff_t i = 0; i < n; ++i) most = std::max(most, container[i]);
    owner_.resize(static_cast<std::size_t>(most) + 1);
    for (std::size_t c = 0; c < owner_.size(); ++c)
      owner_[c] = static_cast<std::uint8_t>(std::max(containers.aggregate[c], 0) % parts);
  }
  bool other(std::int32_t container, std::ptrdiff_t part) const noexcept {
    return !owner_.empty() && owner_[static_cast<std::size_t>(container)] != part;
  }

 private:
  std::vector<std::uint8_t> owner_;
};

// Returns the end of the run of samples of one container that begins at i.
inline std::ptrdiff_t run_end(const std::int32_t* container, std::ptrdiff_t i, std::ptrdiff_t n) noexcept {
  const std::int32_t c = container[i];
  while (++i < n && container[i] == c) {
  }
  return i;
}

}  // namespace kscale::usage
