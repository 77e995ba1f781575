#pragma once

#include <cstddef>
#include <cstdint>

#include "kscale/hpa/decide.hpp"
#include "kscale/hpa/replica_calculator.hpp"

// One HPA over recorded load in virtual time: a reconcile every period (decide_row), and the simulated target. The load
// of a metric at a time is that of the last sample. Pods are Pending until they become ready, `startup` after their
// creation; scaling down deletes the newest ones. A metric read at t has the age `lag`: the load at t - lag, divided
// evenly among the pods that were ready then. Deleted pods have no sample, nor have pods that were not ready.
namespace kscale::hpa {

// A metric of the HPA, and its recorded load.
struct ReplayMetric {
  Mode mode;
  bool cpu;
  std::int64_t target;
  std::int64_t request;  // milli, of each pod
  const std::int64_t* times;
  const double* load;  // in units, not milli
  std::ptrdiff_t samples;
};

struct Replay {
  const ReplayMetric* metrics;
  std::ptrdiff_t n_metrics;
  Tolerances tolerances;
  std::int64_t cpu_initialization, initial_readiness;
  std::int32_t minimum, maximum;
  bool behavior, scale_to_zero;
  Release release;
  Rules up, down;
  std::int64_t downscale_window;
  std::int64_t startup, lag, period, window, begin;
  std::int32_t start;  // replicas
  const std::int32_t* recorded;  // replicas at every tick, which the simulated target has (open loop); or null
};

struct ReplayColumns {  // one row per tick
  std::int32_t* replicas;
  std::int32_t* ready;
  std::int32_t* desired;
  std::int32_t* proposal;
  std::int32_t* best;   // the metric that decided, -1: none
  std::int64_t* usage;  // [ticks, n_metrics]
};

void replay(const Replay& in, std::ptrdiff_t ticks, const ReplayColumns& out);

}  // namespace kscale::hpa
