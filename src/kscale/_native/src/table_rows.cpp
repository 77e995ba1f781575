#include "kscale/table_rows.hpp"

#include <algorithm>
#include <cstring>

namespace kscale {

void scatter(char* to, const std::int64_t* values, std::size_t width, const std::int64_t* rows, std::size_t n) {
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

void note_changes(const char* column, const std::int64_t* values, std::size_t width, const std::int64_t* rows,
                  std::size_t n, std::int64_t bit, std::int64_t* changed) {
  const auto compare = [=](auto entry) {
    for (std::size_t i = 0; i < n; ++i) {
      std::memcpy(&entry, column + static_cast<std::size_t>(rows[i]) * sizeof entry, sizeof entry);
      if (entry != values[i]) changed[i] |= bit;
    }
  };
  if (width == 1) {
    compare(std::int8_t{});
  } else if (width == 4) {
    compare(std::int32_t{});
  } else {
    compare(std::int64_t{});
  }
}

void release_texts(const StoredTexts& texts, const std::int64_t* rows, std::size_t n, std::int64_t* live,
                   const std::int64_t* whole, std::vector<std::int64_t>& few) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t row = rows[i], buffer = texts.source[row];
    const std::int64_t used = texts.size[row] != 0 ? texts.size[row] : texts.uid_size[row];
    if (buffer < 0 || used == 0) continue;  // a row without bytes may refer to a buffer that was reused
    live[buffer] -= used;
    if (live[buffer] == 0 || 2 * live[buffer] < whole[buffer]) few.push_back(buffer);
  }
  std::sort(few.begin(), few.end());
  few.erase(std::unique(few.begin(), few.end()), few.end());
}

bool placed_fit(const PlacedRows& pods, std::int64_t nodes) {
  return pods.all([&](std::int64_t row) { return pods.class_of[row] >= 0 && pods.at[row] >= 0 && pods.at[row] < nodes; });
}

bool placed_known(const PlacedRows& pods, const std::uint8_t* known, std::int64_t classes,
                  std::vector<std::int64_t>& more) {
  return pods.all([&](std::int64_t row) {
    const std::int32_t kind = pods.class_of[row];
    if (kind >= classes || known[kind] == 0) return false;
    if (known[kind] == 2) more.push_back(row);
    return true;
  });
}

bool placed_take_none(const PlacedRows& pods, const std::int64_t* amounts, std::int64_t classes) {
  return pods.all([&](std::int64_t row) { return pods.class_of[row] >= classes || amounts[pods.class_of[row]] == 0; });
}

void add_placed(const PlacedRows& pods, const std::int64_t* amounts, std::int64_t sign, std::int64_t* sums) {
  pods.all([&](std::int64_t row) {
    sums[pods.at[row]] += amounts == nullptr ? sign : sign * amounts[pods.class_of[row]];
    return true;
  });
}

}  // namespace kscale
