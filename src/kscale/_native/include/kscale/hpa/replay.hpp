#pragma once

#include <cstddef>
#include <cstdint>

#include "kscale/hpa/decide.hpp"
#include "kscale/hpa/replica_calculator.hpp"

// One HPA over recorded load in virtual time: a reconcile every period (decide_row), and the plant that answers it.
//
// The plant: the load of a metric at a moment is that of the last sample; pods become ready `startup` after they are made and are
// Pending till then; scaling down takes the newest. A metric read at t is of t - lag: the load of that moment, spread
// evenly over the pods that were ready then. Of those that have gone since nobody hears; the others have no sample.
namespace kscale::hpa {

// A metric of the HPA, and the recorded load that it reads.
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
  const std::int32_t* recorded;  // replicas at every tick: the plant follows them (open loop); or null
};

struct ReplayColumns {  // one row a tick
  std::int32_t* replicas;
  std::int32_t* ready;
  std::int32_t* desired;
  std::int32_t* proposal;
  std::int32_t* best;   // the metric that decided, -1: none
  std::int64_t* usage;  // [ticks, n_metrics]
};

void replay(const Replay& in, std::ptrdiff_t ticks, const ReplayColumns& out);

}  // namespace kscale::hpa
