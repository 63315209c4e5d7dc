// What LSTM and GRU do with the sums of their gates, for this machine's vector instructions: sigmoids and hyperbolic tangents,
// which is what nearly every network has.
#pragma once

#include <cstdint>

namespace troupe::gpu {

struct GateLoops {
  // A step of an LSTM cell of n units; gates: i, o, f, c, n of each.
  void (*lstm)(const float* gates, std::int64_t n, float* c, float* h);
  // gates[i] = sigmoid(gates[i] + recurrent[i])
  void (*open)(float* gates, const float* recurrent, std::int64_t n);
  // The end of a step of a GRU cell of n units: h is mixed with tanh(fresh + recurrent), as `update` says.
  void (*gru)(const float* update, const float* fresh, const float* recurrent, std::int64_t n, float* h);
};

// The best that this processor has.
[[nodiscard]] GateLoops FindGateLoops();

}  // namespace troupe::gpu
