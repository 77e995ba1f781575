#include "kscale/json_parts.hpp"

#include <algorithm>
#include <string_view>

#include "kscale/json_reader.hpp"

namespace kscale {
namespace {

void add(std::vector<std::int64_t>& out, const char* data, const char* begin, const char* end) {
  out.push_back(begin - data);
  out.push_back(end - begin);
}

bool at_end(JsonReader& in) {
  in.space();
  return in.p == in.end;
}

}  // namespace

bool json_members(const char* data, std::size_t size, std::vector<std::int64_t>& out) {
  JsonReader in{data, data + size};
  if (!in.eat('{')) return false;
  if (in.eat('}')) return at_end(in);
  for (;;) {
    std::string_view text;
    bool escaped;
    if (!in.eat('"') || !in.string(text, escaped)) return false;
    add(out, data, text.data() - 1, in.p);
    if (!in.eat(':')) return false;
    in.space();
    const char* begin = in.p;
    if (!in.skip()) return false;
    add(out, data, begin, in.p);
    if (in.eat(',')) continue;
    return in.eat('}') && at_end(in);
  }
}

bool json_elements(const char* data, std::size_t size, std::vector<std::int64_t>& out) {
  JsonReader in{data, data + size};
  if (!in.eat('[')) return false;
  if (in.eat(']')) return at_end(in);
  for (;;) {
    in.space();
    const char* begin = in.p;
    if (!in.skip()) return false;
    add(out, data, begin, in.p);
    if (in.eat(',')) continue;
    return in.eat(']') && at_end(in);
  }
}

JsonExtent json_extent(const char* data, std::size_t size) {
  JsonReader in{data, data + size};
  std::size_t deepest = 0;
  if (!in.skip([](const char*, const char*) {}, deepest)) return {-1, 0};
  return {in.p - data, static_cast<std::int64_t>(deepest)};
}

bool exceeds_depth(const char* data, std::size_t size, std::int64_t levels) {
  constexpr std::size_t kBlock = 240;  // a byte counts so many, which compilers vectorise
  std::int64_t brackets = 0;           // few texts have more than `levels`, and only those are parsed
  for (std::size_t begin = 0; begin < size; begin += kBlock) {
    std::uint8_t here = 0;
    for (std::size_t i = begin; i < std::min(begin + kBlock, size); ++i) {
      here = static_cast<std::uint8_t>(here + ((data[i] | 0x20) == '{'));
    }
    brackets += here;
  }
  return brackets > levels && json_extent(data, size).depth > levels;
}

}  // namespace kscale
