#pragma once

// Plain loops compiled for several x86-64 levels. The level is chosen once, when a module is loaded.
//
//   KSCALE_CLONED void add(const double* x, std::ptrdiff_t n, double* out) noexcept { ... }
//   at_cpu_level<add>(x, n, out);
//
// Functions that such a loop calls must be inlined to be compiled for the level. On other platforms than x86-64 Linux,
// and with compilers that do not know the levels, everything is compiled once.
#if !defined(KSCALE_NO_CLONES) && defined(__x86_64__) && defined(__linux__) && \
    (defined(__clang__) ? __clang_major__ >= 18 : __GNUC__ >= 12)
#define KSCALE_CLONED [[gnu::always_inline]] inline
#define KSCALE_HAS_CLONES 1
#else
#define KSCALE_CLONED inline
#define KSCALE_HAS_CLONES 0
#endif

namespace kscale {

enum class CpuLevel : unsigned char { kDefault, kV3, kV4 };

// The level of the processor, limited by the environment variable KSCALE_CPU_LEVEL.
extern const CpuLevel cpu_level;

// "default", "x86-64-v3", "x86-64-v4".
const char* name_of(CpuLevel level) noexcept;

#if KSCALE_HAS_CLONES
namespace clones {

template <auto Loop, class... Args>
[[gnu::target("arch=x86-64-v4")]] auto v4(Args... args) noexcept {
  return Loop(args...);
}

template <auto Loop, class... Args>
[[gnu::target("arch=x86-64-v3")]] auto v3(Args... args) noexcept {
  return Loop(args...);
}

}  // namespace clones
#endif

// Calls Loop(args...) as compiled for the level.
template <auto Loop, class... Args>
auto at_cpu_level(Args... args) noexcept {
#if KSCALE_HAS_CLONES
  if (cpu_level == CpuLevel::kV4) return clones::v4<Loop>(args...);
  if (cpu_level == CpuLevel::kV3) return clones::v3<Loop>(args...);
#endif
  return Loop(args...);
}

}  // namespace kscale
