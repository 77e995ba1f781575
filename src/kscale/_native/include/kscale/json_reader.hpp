#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace kscale {

// The objects and arrays that are open at the current position. Only unusually deep nesting uses the heap.
class OpenBrackets {
 public:
  bool empty() const { return depth_ == 0; }
  std::size_t depth() const { return depth_; }
  char last() const { return depth_ <= kFew ? few_[depth_ - 1] : more_.back(); }
  void push(char close) {
    if (depth_ < kFew) {
      few_[depth_] = close;
    } else {
      more_.push_back(close);
    }
    ++depth_;
  }
  void pop() {
    if (depth_ > kFew) more_.pop_back();
    --depth_;
  }

 private:
  static constexpr std::size_t kFew = 1000;
  char few_[kFew];
  std::vector<char> more_;
  std::size_t depth_ = 0;
};

// Skips characters that are no quote, backslash or control character, 16 (or 8) at once. The next such character, or
// the end, is fewer than that after the result.
inline const char* find_special(const char* p, const char* end) {
#if defined(__SSE2__)
  while (end - p >= 16) {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const __m128i quote = _mm_cmpeq_epi8(text, _mm_set1_epi8('"')), slash = _mm_cmpeq_epi8(text, _mm_set1_epi8('\\'));
    const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(text, _mm_set1_epi8(0x1f)), text);
    const auto found = static_cast<unsigned>(_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, slash), control)));
    if (found) return p + std::countr_zero(found);
    p += 16;
  }
#else
  while (end - p >= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    constexpr std::uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
    const std::uint64_t quote = word ^ (ones * '"'), slash = word ^ (ones * '\\');
    const std::uint64_t found =
        ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((word - ones * 0x20u) & ~word);
    if (found & high) {
      // The lowest mark is exact; a borrow only disturbs those above it.
      return std::endian::native == std::endian::little ? p + (std::countr_zero(found & high) >> 3) : p;
    }
    p += 8;
  }
#endif
  return p;
}

// Skips white space, 16 characters at once: the indentation of pretty-printed text.
inline const char* skip_space(const char* p, const char* end) {
#if defined(__SSE2__)
  while (end - p >= 16) {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    const auto is = [&](char c) { return _mm_cmpeq_epi8(text, _mm_set1_epi8(c)); };
    const __m128i space = _mm_or_si128(_mm_or_si128(is(' '), is('\n')), _mm_or_si128(is('\r'), is('\t')));
    const unsigned other = static_cast<unsigned>(_mm_movemask_epi8(space)) ^ 0xffffu;
    if (other) return p + std::countr_zero(other);
    p += 16;
  }
#endif
  while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) ++p;
  return p;
}

inline bool is_ascii(std::string_view text) {
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t every = 0;
  for (std::uint64_t word; left >= 8; left -= 8, at += 8) {
    std::memcpy(&word, at, 8);
    every |= word;
  }
  for (; left > 0; --left, ++at) every |= static_cast<std::uint64_t>(static_cast<unsigned char>(*at)) << 56;
  return (every & 0x8080808080808080u) == 0;
}

// A reader of JSON text. Every function returns false on a syntax error, and then the position means nothing.
struct JsonReader {
  const char* p;
  const char* end;

  void space() {
    if (p == end || static_cast<unsigned char>(*p) > ' ') return;
    p = skip_space(p, end);
  }
  bool eat(char c) {
    space();
    if (p == end || *p != c) return false;
    ++p;
    return true;
  }
  bool peek(char c) {
    space();
    return p < end && *p == c;
  }

  // Reads a string from behind its opening quote on. `text`: the text between the quotes; `escaped`: it has escapes.
  bool string(std::string_view& text, bool& escaped) {
    const char* start = p;
    escaped = false;
    for (;;) {
      p = find_special(p, end);
      if (p == end) return false;
      const auto c = static_cast<unsigned char>(*p);
      if (c == '"') {
        text = {start, static_cast<std::size_t>(p - start)};
        ++p;
        return true;
      }
      if (c < 0x20) return false;
      ++p;
      if (c != '\\') continue;
      escaped = true;
      if (p == end) return false;
      const char e = *p++;
      if (e == 'u') {
        if (end - p < 4) return false;
        for (int i = 0; i < 4; ++i, ++p) {
          const char h = *p;
          if (!((h >= '0' && h <= '9') || (h >= 'a' && h <= 'f') || (h >= 'A' && h <= 'F'))) return false;
        }
      } else if (std::memchr("\"\\/bfnrt", e, 8) == nullptr) {
        return false;
      }
    }
  }

  bool word(std::string_view expected) {
    if (static_cast<std::size_t>(end - p) < expected.size()) return false;
    if (std::memcmp(p, expected.data(), expected.size()) != 0) return false;
    p += expected.size();
    return true;
  }

  bool digits() {
    const char* start = p;
    while (p < end && *p >= '0' && *p <= '9') ++p;
    return p != start;
  }

  bool number() {
    if (*p == '-') ++p;
    const char* start = p;
    if (!digits()) return false;
    if (*start == '0' && p - start > 1) return false;
    if (p < end && *p == '.') {
      ++p;
      if (!digits()) return false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
      ++p;
      if (p < end && (*p == '+' || *p == '-')) ++p;
      if (!digits()) return false;
    }
    return true;
  }

  // Reads a value that is neither an object nor an array.
  bool scalar() {
    std::string_view text;
    bool escaped;
    switch (*p) {
      case '"':
        ++p;
        return string(text, escaped);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  // Skips any value and the space before it. Works without recursion, at any depth.
  bool skip() {
    return skip([](const char*, const char*) {});
  }

  // Also calls `seen(begin, end)` for each value inside that is neither an object nor an array.
  template <typename Seen>
  bool skip(Seen&& seen) {
    std::size_t deepest = 0;
    return skip(seen, deepest);
  }

  // Also raises `deepest` to the maximum number of brackets that are open at once.
  template <typename Seen>
  bool skip(Seen&& seen, std::size_t& deepest) {
    space();
    if (p == end) return false;
    if (*p != '{' && *p != '[') {
      const char* begin = p;
      if (!scalar()) return false;
      seen(begin, p);
      return true;
    }
    OpenBrackets open;
    std::string_view text;
    bool escaped;
    for (;;) {
      space();
      if (p == end) return false;
      if (*p == '{' || *p == '[') {
        const char close = *p == '{' ? '}' : ']';
        ++p;
        deepest = std::max(deepest, open.depth() + 1);
        if (!peek(close)) {
          open.push(close);
          if (close == '}' && !(eat('"') && string(text, escaped) && eat(':'))) return false;
          continue;
        }
        ++p;
      } else {
        const char* begin = p;
        if (!scalar()) return false;
        seen(begin, p);
      }
      for (;;) {  // after a value
        if (open.empty()) return true;
        space();
        if (p == end) return false;
        if (*p == ',') {
          ++p;
          if (open.last() == '}' && !(eat('"') && string(text, escaped) && eat(':'))) return false;
          break;
        }
        if (*p != open.last()) return false;
        ++p;
        open.pop();
      }
    }
  }
};

}  // namespace kscale
