#include "kscale/build_info.hpp"

#include "kscale/dispatch.hpp"

namespace kscale {
namespace {

#if KSCALE_HAS_CLONES
__attribute__((target("arch=x86-64-v4"))) const char* level() { return "x86-64-v4"; }
__attribute__((target("arch=x86-64-v3"))) const char* level() { return "x86-64-v3"; }
__attribute__((target("default"))) const char* level() { return "default"; }
#else
const char* level() { return "default"; }
#endif

}  // namespace

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
  info.cpu_level = level();
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
