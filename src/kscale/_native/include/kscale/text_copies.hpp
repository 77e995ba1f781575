#pragma once

#include <cstddef>
#include <cstdint>

namespace kscale {

// Texts to copy, as columns. Text `i` is data[at[i], at[i] + size[i]) without data[cut_at[i], cut_at[i] + cut_size[i]),
// which is a member of an object, and a comma beside it (`cut_size` < 1: nothing is cut). The mark of a text is a part
// of it whose new position is reported: `mark_size[i]` bytes from `mark_at[i]` on (< 1: no mark), not inside of the
// cut.
struct TextSpans {
  const std::int64_t* at;
  const std::int64_t* size;
  const std::int64_t* cut_at;
  const std::int64_t* cut_size;
  const std::int64_t* mark_at;
  const std::int64_t* mark_size;
};

// Returns the maximum number of bytes that `copy_texts` writes: whole texts where `keep[i]`, else only the marks.
std::size_t room_for_texts(const TextSpans& spans, const std::uint8_t* keep, std::size_t n);

// Writes the texts one after the other. `at`, `size` get the place of each text in `out` (size 0: not kept), `mark` the
// position of its mark. Returns the number of bytes written.
std::size_t copy_texts(const char* data, const TextSpans& spans, const std::uint8_t* keep, std::size_t n, char* out,
                       std::int64_t* at, std::int64_t* size, std::int64_t* mark);

}  // namespace kscale
