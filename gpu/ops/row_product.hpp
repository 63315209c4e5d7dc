// A product whose left side is one row, as a decoder's are for each token: as fast as the weights come from memory. oneDNN takes
// a quarter longer for it.
#pragma once

#include <memory>

#include "gpu/ops/product_program.hpp"

namespace troupe::gpu {

// Null where the product is another, or its weights (`given`) do not lie in oneDNN's panels of 64 columns.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Kernel>> MakeRowProduct(const StepContext& ctx,
                                                                     const Multiplication& product,
                                                                     const dnnl::memory::desc& given);

}  // namespace troupe::gpu
