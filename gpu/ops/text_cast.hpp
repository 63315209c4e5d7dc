// Between texts and numbers, for Cast and CastLike.
#pragma once

#include "gpu/ops/op_support.hpp"

namespace troupe::gpu {

// What a cast to `to` gives.
Inferred InferCastTo(const StepContext& ctx, const ValueInfo& in, proto::DataType to);
// One of the two types is BYTES. A number is written with the fewest digits that read back the same; NaN, INF, -INF. A text
// must be a number from its begin to its end, blanks around it allowed, in the range of the type; what stands behind the
// point is dropped for whole numbers, and anything but 0 is true.
Made MakeTextCast(const StepContext& ctx, Infos in, Infos out);

}  // namespace troupe::gpu
