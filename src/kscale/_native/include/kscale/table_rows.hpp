// Rows of tables that are columns: many columns written at once, sums by node, texts compared that lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kscale {

// to[rows[i]] = values[i], for entries of `width` bytes, which the values fit into.
inline void scatter(char* to, const std::int64_t* values, std::size_t width, const std::int64_t* rows, std::size_t n) {
  const auto write = [=](auto entry) {
    for (std::size_t i = 0; i < n; ++i) {
      entry = static_cast<decltype(entry)>(values[i]);
      std::memcpy(to + static_cast<std::size_t>(rows[i]) * sizeof entry, &entry, sizeof entry);
    }
  };
  if (width == 1) {
    write(std::int8_t{});
  } else if (width == 4) {
    write(std::int32_t{});
  } else {
    write(std::int64_t{});
  }
}

// Rows of a table of pods; those count of which `state` is `placed`: of the class `class_of`, on the node `at`.
struct PlacedRows {
  const std::int64_t* rows;
  std::size_t n;
  const std::int8_t* state;
  std::int8_t placed;
  const std::int32_t* class_of;
  const std::int32_t* at;

  template <class Each>
  bool all(Each each) const {
    for (std::size_t i = 0; i < n; ++i) {
      if (state[rows[i]] == placed && !each(rows[i])) return false;
    }
    return true;
  }
};

// Whether their numbers are such of classes and of nodes.
inline bool placed_fit(const PlacedRows& pods, std::int64_t nodes) {
  return pods.all([&](std::int64_t row) { return pods.class_of[row] >= 0 && pods.at[row] >= 0 && pods.at[row] < nodes; });
}

// Whether what they take is known of all (`known`: 0 = it is not); the rows of those that take `more` than is told (2).
inline bool placed_known(const PlacedRows& pods, const std::uint8_t* known, std::int64_t classes,
                         std::vector<std::int64_t>& more) {
  return pods.all([&](std::int64_t row) {
    const std::int32_t kind = pods.class_of[row];
    if (kind >= classes || known[kind] == 0) return false;
    if (known[kind] == 2) more.push_back(row);
    return true;
  });
}

// Whether none of them takes any of a resource, as far as that is known.
inline bool placed_take_none(const PlacedRows& pods, const std::int64_t* amounts, std::int64_t classes) {
  return pods.all([&](std::int64_t row) { return pods.class_of[row] >= classes || amounts[pods.class_of[row]] == 0; });
}

// sums[at] += sign * amounts[class_of]; without `amounts`: += sign. Sums wrap.
inline void add_placed(const PlacedRows& pods, const std::int64_t* amounts, std::int64_t sign, std::int64_t* sums) {
  pods.all([&](std::int64_t row) {
    sums[pods.at[row]] += amounts == nullptr ? sign : sign * amounts[pods.class_of[row]];
    return true;
  });
}

inline bool same_text(const char* a, const char* b, std::int64_t size) {
  return std::memcmp(a, b, static_cast<std::size_t>(size)) == 0;
}

}  // namespace kscale
