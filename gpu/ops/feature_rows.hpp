// FEATURE ROWS: what classic models read: a row of features for each item, or one row alone.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

inline constexpr TypeSet kFeatureTypes = TypesOf({proto::FP32, proto::FP64, proto::INT32, proto::INT64});

struct FeatureRows {
  std::int64_t rows = 0;
  std::int64_t features = 0;
};

// Of input 0, which must be the only one and of rank 1 (one row) or 2.
[[nodiscard]] absl::StatusOr<FeatureRows> FeatureRowsOf(const StepContext& ctx, Infos in,
                                                        TypeSet types = kFeatureTypes);

// The type that features of `type` are computed in: FP32 as it is, all others in FP64.
[[nodiscard]] inline proto::DataType FeatureWideType(proto::DataType type) {
  return type == proto::FP32 ? proto::FP32 : proto::FP64;
}

// out[i] = x . rows[i] + add[i] for each row of weights; `add` may be empty.
void FeatureProducts(std::span<const float> x, std::span<const float> weights, std::span<const float> add,
                     std::span<float> out);

}  // namespace troupe::gpu
