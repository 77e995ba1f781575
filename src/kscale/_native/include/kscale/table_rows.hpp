// Rows of tables that are columns: many columns written at once, sums by node, texts compared that lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kscale {

// to[rows[i]] = values[i], for entries of `width` bytes, which the values fit into.
void scatter(char* to, const std::int64_t* values, std::size_t width, const std::int64_t* rows, std::size_t n);

// Sets `bit` in changed[i] where column[rows[i]], an entry of `width` bytes, is not values[i].
void note_changes(const char* column, const std::int64_t* values, std::size_t width, const std::int64_t* rows,
                  std::size_t n, std::int64_t bit, std::int64_t* changed);

// Where the texts of rows are: in the buffer `source` (negative: in none), `size` bytes, or `uid_size` where that is 0.
struct StoredTexts {
  const std::int32_t* source;
  const std::int32_t* size;
  const std::int32_t* uid_size;
};

// Subtracts the texts of rows from the bytes that are in use by buffer, `live`. `few`: those of these buffers, ascending,
// of which less than half of `whole` is in use now, or nothing. Rows that use no bytes have no buffer.
void release_texts(const StoredTexts& texts, const std::int64_t* rows, std::size_t n, std::int64_t* live,
                   const std::int64_t* whole, std::vector<std::int64_t>& few);

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
bool placed_fit(const PlacedRows& pods, std::int64_t nodes);

// Whether what they take is known of all (`known`: 0 = it is not); the rows of those that take `more` than is told (2).
bool placed_known(const PlacedRows& pods, const std::uint8_t* known, std::int64_t classes,
                  std::vector<std::int64_t>& more);

// Whether none of them takes any of a resource, as far as that is known.
bool placed_take_none(const PlacedRows& pods, const std::int64_t* amounts, std::int64_t classes);

// sums[at] += sign * amounts[class_of]; without `amounts`: += sign. Sums wrap.
void add_placed(const PlacedRows& pods, const std::int64_t* amounts, std::int64_t sign, std::int64_t* sums);

// Has the memory at `text` brought into the cache.
inline void prefetch_text(const char* text) { __builtin_prefetch(text); }

inline bool same_text(const char* a, const char* b, std::int64_t size) {
  return std::memcmp(a, b, static_cast<std::size_t>(size)) == 0;
}

}  // namespace kscale
