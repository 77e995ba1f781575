#include "kscale/text_copies.hpp"

#include <algorithm>
#include <cstring>

namespace kscale {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Extends the member [begin, end) of an object by the comma after it or, if there is none, by the comma before it.
void with_comma(const char* first, const char* last, const char*& begin, const char*& end) {
  const char* p = end;
  while (p < last && is_space(*p)) ++p;
  if (p < last && *p == ',') {
    end = p + 1;
    return;
  }
  p = begin;
  while (p > first && is_space(p[-1])) --p;
  if (p > first && p[-1] == ',') begin = p - 1;
}

}  // namespace

std::size_t room_for_texts(const TextSpans& spans, const std::uint8_t* keep, std::size_t n) {
  std::int64_t room = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t cut = std::max<std::int64_t>(spans.cut_size[i], 0);
    room += keep[i] ? spans.size[i] - cut : std::max<std::int64_t>(spans.mark_size[i], 0);
  }
  return static_cast<std::size_t>(room);
}

std::size_t copy_texts(const char* data, const TextSpans& spans, const std::uint8_t* keep, std::size_t n, char* out,
                       std::int64_t* at, std::int64_t* size, std::int64_t* mark) {
  char* to = out;
  const auto write = [&to](const char* from, std::size_t count) {
    std::memcpy(to, from, count);
    to += count;
  };
  for (std::size_t i = 0; i < n; ++i) {
    at[i] = mark[i] = to - out;
    size[i] = 0;
    const char* marked = data + spans.mark_at[i];
    const std::int64_t mark_size = std::max<std::int64_t>(spans.mark_size[i], 0);
    if (!keep[i]) {
      write(marked, static_cast<std::size_t>(mark_size));
      continue;
    }
    const char* first = data + spans.at[i];
    const char* last = first + spans.size[i];
    const char *cut = last, *rest = last;
    if (spans.cut_size[i] > 0) {
      cut = data + spans.cut_at[i];
      rest = cut + spans.cut_size[i];
      with_comma(first, last, cut, rest);
    }
    if (mark_size > 0) mark[i] += (marked - first) - (marked >= rest ? rest - cut : 0);
    write(first, static_cast<std::size_t>(cut - first));
    write(rest, static_cast<std::size_t>(last - rest));
    size[i] = (to - out) - at[i];
  }
  return static_cast<std::size_t>(to - out);
}

}  // namespace kscale
