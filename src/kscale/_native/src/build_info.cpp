#include "kscale/build_info.hpp"

#include "kscale/dispatch.hpp"

namespace kscale {

BuildInfo build_info() noexcept {
  BuildInfo info{};
#if defined(__clang__)
  info.compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
  info.compiler = "gcc " __VERSION__;
#else
  info.compiler = "unknown";
#endif
  info.standard = "C++20";
  info.cpu_level = name_of(cpu_level);
  info.clones = KSCALE_HAS_CLONES != 0;
#if defined(KSCALE_SANITIZED)
  info.sanitized = true;
#endif
#if !defined(NDEBUG)
  info.assertions = true;
#endif
  return info;
}

}  // namespace kscale
