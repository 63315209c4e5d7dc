// What LSTM, GRU and RNN share: shapes, directions, activations, sequence lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

struct RecurrentActivation {
  enum class Kind {
    kSigmoid,
    kTanh,
    kRelu,
    kAffine,
    kLeakyRelu,
    kThresholdedRelu,
    kScaledTanh,
    kHardSigmoid,
    kElu,
    kSoftsign,
    kSoftplus
  };
  Kind kind = Kind::kTanh;
  float alpha = 0;
  float beta = 0;
  [[nodiscard]] float operator()(float x) const;
};

struct Recurrent {
  std::int64_t gates;  // 4 for LSTM, 3 for GRU, 1 for RNN
  std::int64_t steps, batch, input, hidden, directions;
  bool batch_first = false;   // layout 1
  bool reverse_only = false;  // direction "reverse"
  bool input_forget = false;
  bool linear_before_reset = false;
  float clip = 0;                                // 0: none
  std::vector<RecurrentActivation> activations;  // per direction: f, g, h (as many as the cell has)
  std::size_t per_direction = 0;
};

// Reads and checks X, W, R, B, sequence_lens, initial_h (and for LSTM initial_c, P).
[[nodiscard]] absl::StatusOr<Recurrent> ReadRecurrent(const StepContext& ctx, Infos in);

// Y, Y_h and for LSTM Y_c, as far as the step has them.
[[nodiscard]] Inferred InferRecurrent(const StepContext& ctx, Infos in);

}  // namespace troupe::gpu
