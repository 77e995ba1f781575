#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kscale {

// The parts of a JSON text, found without recursion: a text of any depth can be taken apart. `size` > 0.

// Appends key and value of each member of an object as (begin, size) pairs; a key comes with its quotes. False if the
// text is not one object.
bool json_members(const char* data, std::size_t size, std::vector<std::int64_t>& out);

// Appends (begin, size) of each element of an array. False if the text is not one array.
bool json_elements(const char* data, std::size_t size, std::vector<std::int64_t>& out);

struct JsonExtent {
  std::int64_t end;    // of the first value; -1: damaged
  std::int64_t depth;  // how many brackets are open at once in it
};
JsonExtent json_extent(const char* data, std::size_t size);

// Whether more than `levels` objects and arrays are open at once in the first value; false for damaged text.
bool exceeds_depth(const char* data, std::size_t size, std::int64_t levels);

}  // namespace kscale
