#pragma once

#include <cstddef>  // on glibc, defines __GLIBC__

// Compile a function for several x86-64 levels; the dynamic loader picks one.
// Works on plain loops only: code it calls must be inlined to be cloned too.
// Needs ifunc, hence glibc; elsewhere the function is compiled once.
#if !defined(KSCALE_NO_CLONES) && defined(__x86_64__) && defined(__GLIBC__) && \
    (defined(__clang__) ? __clang_major__ >= 14 : __GNUC__ >= 12)
#define KSCALE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define KSCALE_HAS_CLONES 1
#else
#define KSCALE_CLONES
#define KSCALE_HAS_CLONES 0
#endif
