#include <limits>

#include "kscale/engine/engine.hpp"

namespace kscale::engine {

// Every Filter in profile order: those decided in advance are bits between those that count.
Code Engine::check(i32 pod, i32 node) const {
  const u16 bits = static_bits(pod, node);
  if (const u16 early = bits & before(kNodePorts)) return StaticVerdicts::first(early);
  const Extra* extra = pods_->extra(pod);
  if (extra && !extra->ports.empty() && enabled(kNodePorts))
    if (const Code no = ports_.check(extra->ports, node)) return no;
  if (enabled(kNodeResourcesFit))
    if (const Code no = resources_.check(*pods_, pod, node)) return no;
  if (extra) {
    if (enabled(kVolumeRestrictions))
      if (const Code no = restrictions_.check(*extra, node)) return no;
    if (enabled(kNodeVolumeLimits) && !extra->volumes.empty() && !(bits & bit(kNodeVolumeLimits)))
      if (const Code no = limits_.check(*extra, node, nullptr)) return no;
  }
  if (const u16 middle = bits & before(kPodTopologySpread)) return StaticVerdicts::first(middle);
  if (extra) {
    if (enabled(kPodTopologySpread))
      if (const Code no = check_pod_topology_spread(topology_, *extra, node, nullptr)) return no;
    if (enabled(kInterPodAffinity))
      if (const Code no = check_inter_pod_affinity(topology_, *extra, node, nullptr)) return no;
    if (extra->devices && enabled(kDynamicResources))
      if (const Code no = devices_.check(pod, node)) return no;
  }
  if (bits) return StaticVerdicts::first(bits);
  return users_.empty() ? kFits : users_.check(resources_, *pods_, pod, node);
}

Code Engine::check_alone(Plugin plugin, i32 pod, i32 node, i32* which) const {
  const Extra* extra = pods_->extra(pod);
  if (!extra) return kFits;
  switch (plugin) {
    case kNodePorts: return ports_.check(extra->ports, node);
    case kVolumeRestrictions: return restrictions_.check(*extra, node);
    case kNodeVolumeLimits: return limits_.check(*extra, node, which);
    case kPodTopologySpread: return check_pod_topology_spread(topology_, *extra, node, which);
    case kInterPodAffinity: return check_inter_pod_affinity(topology_, *extra, node, which);
    default: return kFits;
  }
}

i64 Engine::capacity(i32 pod, i32 node) const {
  if (check(pod, node) != kFits) return 0;
  if (!pods_->plain(pod)) return 1;
  const Extra* extra = pods_->extra(pod);
  if (extra && !extra->ports.empty() && enabled(kNodePorts)) return 1;
  return enabled(kNodeResourcesFit) ? resources_.capacity(*pods_, pod, node) : std::numeric_limits<i64>::max();
}

}  // namespace kscale::engine
