#pragma once

#include <cstddef>

namespace kscale {

// Whether some object in a JSON text, at most `levels` deep (1: the outermost), has a key twice, written the same way.
// False for damaged text.
bool repeats_a_key(const char* data, std::size_t size, std::size_t levels);

}  // namespace kscale
