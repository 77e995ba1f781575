#include "kscale/dispatch.hpp"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace kscale {
namespace {

CpuLevel of_processor() noexcept {
#if KSCALE_HAS_CLONES
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return CpuLevel::kV4;
  if (__builtin_cpu_supports("x86-64-v3")) return CpuLevel::kV3;
#endif
  return CpuLevel::kDefault;
}

CpuLevel chosen() noexcept {
  const CpuLevel highest = of_processor();
  const char* asked = std::getenv("KSCALE_CPU_LEVEL");
  if (!asked) return highest;
  for (const CpuLevel level : {CpuLevel::kDefault, CpuLevel::kV3})
    if (level < highest && std::strcmp(asked, name_of(level)) == 0) return level;
  return highest;
}

}  // namespace

const CpuLevel cpu_level = chosen();

const char* name_of(CpuLevel level) noexcept {
  return level == CpuLevel::kV4 ? "x86-64-v4" : level == CpuLevel::kV3 ? "x86-64-v3" : "default";
}

}  // namespace kscale
