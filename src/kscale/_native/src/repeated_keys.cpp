#include "kscale/repeated_keys.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "kscale/json_reader.hpp"

namespace kscale {
namespace {

constexpr std::size_t kFew = 16;  // keys that are compared pairwise

struct Key {
  std::uint64_t mark;  // equal for equal keys
  std::string_view text;

  explicit Key(std::string_view key) : mark(key.size()), text(key) {
    std::uint64_t head = 0, tail = 0;
    const std::size_t n = std::min<std::size_t>(key.size(), 8);
    std::memcpy(&head, key.data(), n);
    std::memcpy(&tail, key.data() + key.size() - n, n);
    mark = (mark * 0x9e3779b97f4a7c15u) ^ head ^ (tail << 7 | tail >> 57);
  }
  bool operator==(const Key& other) const { return mark == other.mark && text == other.text; }
  bool operator<(const Key& other) const {
    return mark != other.mark ? mark < other.mark : text < other.text;
  }
};

// Of the keys from `first` on; their order is lost.
bool some_equal(std::vector<Key>& keys, std::size_t first) {
  if (keys.size() - first > kFew) {
    std::sort(keys.begin() + static_cast<std::ptrdiff_t>(first), keys.end());
    return std::adjacent_find(keys.begin() + static_cast<std::ptrdiff_t>(first), keys.end()) != keys.end();
  }
  for (std::size_t i = first + 1; i < keys.size(); ++i) {
    for (std::size_t j = first; j < i; ++j) {
      if (keys[i] == keys[j]) return true;
    }
  }
  return false;
}

struct Open {
  char close;
  std::size_t first;  // of its keys
};

}  // namespace

bool repeats_a_key(const char* data, std::size_t size, std::size_t levels) {
  JsonReader in{data, data + size};
  std::vector<Open> stack;
  std::vector<Key> keys;
  const auto key = [&] {
    std::string_view text;
    bool escaped;
    if (!in.eat('"') || !in.string(text, escaped) || !in.eat(':')) return false;
    if (stack.size() <= levels) keys.emplace_back(text);
    return true;
  };
  for (;;) {
    in.space();
    if (in.p == in.end) return false;
    if (*in.p == '{' || *in.p == '[') {
      const char close = *in.p == '{' ? '}' : ']';
      ++in.p;
      if (!in.peek(close)) {
        stack.push_back({close, keys.size()});
        if (close == '}' && !key()) return false;
        continue;
      }
      ++in.p;
    } else if (!in.scalar()) {
      return false;
    }
    for (;;) {  // after a value
      if (stack.empty()) return false;
      in.space();
      if (in.p == in.end) return false;
      if (*in.p == ',') {
        ++in.p;
        if (stack.back().close == '}' && !key()) return false;
        break;
      }
      if (*in.p != stack.back().close) return false;
      ++in.p;
      if (some_equal(keys, stack.back().first)) return true;
      keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(stack.back().first), keys.end());
      stack.pop_back();
    }
  }
}

}  // namespace kscale
