#pragma once

#include "kscale/engine/plugins.hpp"

namespace kscale::engine {

enum class DeviceCall : i32 {
  kCheck,    // a: pod, b: node; 1 = passes
  kPlace,    // a: pod, b: node; 1 = some verdict may have improved
  kUnplace,  // a: pod, b: node
  kAdd,      // a: template, b: copy
  kFork,
  kRevert,
  kCommit,
};

// A ledger of devices outside of the engine. It may be called without the GIL.
using DeviceLedger = i32 (*)(void* context, DeviceCall what, i32 a, i32 b);

// DynamicResources: decided in Python (kscale/scheduling/devices), either in advance as a static verdict, or by
// counting devices as resources, or otherwise by calls of a ledger that receives every change.
class DynamicResources {
 public:
  void set(DeviceLedger ledger, void* context) { ledger_ = ledger, context_ = context; }
  bool asked() const { return ledger_ != nullptr; }  // copies of the engine would share the ledger
  i32 tell(DeviceCall what, i32 a = 0, i32 b = 0) const { return ledger_ ? ledger_(context_, what, a, b) : 0; }
  Code check(i32 pod, i32 node) const {
    return tell(DeviceCall::kCheck, pod, node) ? kFits : code(kDynamicResources);
  }

 private:
  DeviceLedger ledger_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace kscale::engine
