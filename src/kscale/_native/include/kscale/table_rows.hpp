// Rows of a table of columns: writing many rows at once, sums of placed pods by node, and comparison of texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kscale {

// Sets to[rows[i]] = values[i] in a column with entries of `width` bytes. The values must fit.
void scatter(char* to, const std::int64_t* values, std::size_t width, const std::int64_t* rows, std::size_t n);

// Sets `bit` in changed[i] where column[rows[i]], an entry of `width` bytes, is not values[i].
void note_changes(const char* column, const std::int64_t* values, std::size_t width, const std::int64_t* rows,
                  std::size_t n, std::int64_t bit, std::int64_t* changed);

// The texts of rows: number of the buffer (negative: none), and number of bytes, which is `uid_size` where `size` is 0.
struct StoredTexts {
  const std::int32_t* source;
  const std::int32_t* size;
  const std::int32_t* uid_size;
};

// Subtracts the sizes of the rows' texts from `live`, the bytes in use of each buffer. `few` gets the numbers
// (ascending) of these buffers that are now empty or less than half in use (of `whole` bytes). Rows without bytes have
// no buffer.
void release_texts(const StoredTexts& texts, const std::int64_t* rows, std::size_t n, std::int64_t* live,
                   const std::int64_t* whole, std::vector<std::int64_t>& few);

// Rows of a table of pods, of which only those with the state `placed` count. `class_of`: their classes; `at`: their
// nodes.
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

// Whether the placed pods' numbers of classes and nodes are in range.
bool placed_fit(const PlacedRows& pods, std::int64_t nodes);

// Whether the amounts of all placed pods' classes are known (known[class] is not 0). `more` gets the rows of pods that
// also take resources without a column (known[class] is 2).
bool placed_known(const PlacedRows& pods, const std::uint8_t* known, std::int64_t classes,
                  std::vector<std::int64_t>& more);

// Whether no placed pod takes any of a resource, by the known amounts.
bool placed_take_none(const PlacedRows& pods, const std::int64_t* amounts, std::int64_t classes);

// Adds sign * amounts[class_of] to sums[at] for each placed pod; without `amounts`, adds `sign`. Sums wrap around.
void add_placed(const PlacedRows& pods, const std::int64_t* amounts, std::int64_t sign, std::int64_t* sums);

// Prefetches the memory at `text`.
inline void prefetch_text(const char* text) { __builtin_prefetch(text); }

inline bool same_text(const char* a, const char* b, std::int64_t size) {
  return std::memcmp(a, b, static_cast<std::size_t>(size)) == 0;
}

}  // namespace kscale
