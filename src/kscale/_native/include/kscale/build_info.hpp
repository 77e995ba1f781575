#pragma once

namespace kscale {

// How this binary was built, and the CPU level of the dispatched loops.
struct BuildInfo {
  const char* compiler;
  const char* standard;
  const char* cpu_level;   // "x86-64-v4", "x86-64-v3", "default"
  bool clones;             // several CPU levels compiled in
  bool sanitized;
  bool assertions;
};

BuildInfo build_info() noexcept;

}  // namespace kscale
