#pragma once

#include <bit>
#include <memory>
#include <vector>

#include "kscale/engine/plugins.hpp"

namespace kscale::engine {

// Verdicts that Python computes in advance from a pod and a node alone: NodeName, NodeUnschedulable, TaintToleration,
// NodeAffinity, VolumeBinding, VolumeZone, NodeDeclaredFeatures, and the static parts of NodeVolumeLimits and
// DynamicResources. One bit per plug-in, for each row (requirements of pods) and node class.
class StaticVerdicts {
 public:
  void set(i32 rows, i32 node_classes, const u16* bits) {  // [rows][node classes]
    node_classes_ = idx(node_classes);
    bits_ = std::make_shared<const std::vector<u16>>(bits, bits + idx(rows) * idx(node_classes));
  }
  u16 of(i32 row, i32 node_class) const { return (*bits_)[idx(row) * node_classes_ + idx(node_class)]; }
  const u16* row(i32 row) const { return bits_->data() + idx(row) * node_classes_; }
  std::size_t node_classes() const { return node_classes_; }

  // Returns the first plug-in of some bits that rejects the pod.
  static Code first(u32 bits) {
    if (!bits) return kFits;
    const u32 plugin = static_cast<u32>(std::countr_zero(bits));
    return plugin == kFiltered ? kFilteredCode : code(plugin);
  }

 private:
  std::size_t node_classes_ = 0;
  std::shared_ptr<const std::vector<u16>> bits_ = std::make_shared<const std::vector<u16>>();
};

}  // namespace kscale::engine
