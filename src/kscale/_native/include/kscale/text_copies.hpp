#pragma once

#include <cstddef>
#include <cstdint>

namespace kscale {

// Where texts are, and what of them: a column each. Text `i` is data[at[i], at[i] + size[i]) without
// data[cut_at[i], cut_at[i] + cut_size[i]), a member of an object in it (`cut_size` < 1: nothing is left out) and a comma
// beside it. What is to be found again lies at `mark_at[i]`, `mark_size[i]` bytes (< 1: nothing), in the text but not in
// what is cut.
struct TextSpans {
  const std::int64_t* at;
  const std::int64_t* size;
  const std::int64_t* cut_at;
  const std::int64_t* cut_size;
  const std::int64_t* mark_at;
  const std::int64_t* mark_size;
};

// How many bytes `copy_texts` writes at most: whole texts where `keep[i]`, else the marks alone.
std::size_t room_for_texts(const TextSpans& spans, const std::uint8_t* keep, std::size_t n);

// Writes the texts one after the other. `at`, `size`: where each is in `out` (size 0: not kept); `mark`: where its mark
// is. Returns the bytes written.
std::size_t copy_texts(const char* data, const TextSpans& spans, const std::uint8_t* keep, std::size_t n, char* out,
                       std::int64_t* at, std::int64_t* size, std::int64_t* mark);

}  // namespace kscale
