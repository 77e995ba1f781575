#pragma once

#include "kscale/engine/types.hpp"

// The Filter plug-ins of the default profile of Kubernetes 1.37, and their codes in verdicts. The numbers are defined
// only here; the bindings pass them on.

namespace kscale::engine {

// Filter plug-ins by their place in the profile. Bit 0 of a verdict means that the PreFilter node set excludes this
// node, which comes before every Filter.
enum Plugin : u32 {
  kFiltered = 0,
  kNodeName,
  kNodeUnschedulable,
  kTaintToleration,
  kNodeAffinity,
  kNodePorts,
  kNodeResourcesFit,
  kVolumeRestrictions,
  kNodeVolumeLimits,
  kVolumeBinding,
  kVolumeZone,
  kPodTopologySpread,
  kInterPodAffinity,
  kDynamicResources,
  kNodeDeclaredFeatures,
  kUserPredicate,
};

constexpr const char* kPluginNames[] = {
    "",                "NodeName",           "NodeUnschedulable", "TaintToleration", "NodeAffinity",
    "NodePorts",       "NodeResourcesFit",   "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding",
    "VolumeZone",      "PodTopologySpread",  "InterPodAffinity",  "DynamicResources", "NodeDeclaredFeatures",
};
constexpr i32 kPlugins = sizeof(kPluginNames) / sizeof(kPluginNames[0]);
static_assert(kPlugins == static_cast<i32>(kUserPredicate) && kUserPredicate == 15, "a bit each in 16");

// A verdict: 0 = the pod fits; else plug-in | detail << 8 (kFiltered is reported as kFilteredCode, since 0 means "fits").
using Code = u16;
constexpr Code kFits = 0;
constexpr Code kFilteredCode = 0xFF;
constexpr Code kPreFilterCode = 0xFE;
constexpr Code code(u32 plugin, u32 detail = 0) { return static_cast<Code>(plugin | detail << 8); }

// Details.
enum Detail : u32 {
  kDiskConflict = 1, kClaimInUse = 2,                              // VolumeRestrictions
  kSkew = 1, kMissingKey = 2,                                      // PodTopologySpread
  kAffinity = 1, kOwnAntiAffinity = 2, kExistingAntiAffinity = 3,  // InterPodAffinity
};

constexpr u16 bit(u32 plugin) { return static_cast<u16>(1u << plugin); }
constexpr u16 before(u32 plugin) { return static_cast<u16>((1u << plugin) - 1); }

}  // namespace kscale::engine
