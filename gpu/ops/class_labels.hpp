// Classes of classic models whose labels are texts: the kernel computes places in the list of labels, and these are
// written behind it.
#pragma once

#include "gpu/ops/convert.hpp"

namespace troupe::gpu {

// `inferred` with the first output as texts, where the step has classlabels_strings.
Inferred WithTextLabels(const StepContext& ctx, Inferred inferred);
// What `make` makes, with that output.
Made MakeTextLabels(MakeFunction make, const StepContext& ctx, Infos in, Infos out);

// An Operator's infer and make with them.
template <Inferred (*infer)(const StepContext&, Infos)>
Inferred InferLabelled(const StepContext& ctx, Infos in) {
  return WithTextLabels(ctx, infer(ctx, in));
}
template <MakeFunction make>
Made MakeLabelled(const StepContext& ctx, Infos in, Infos out) {
  return out[0].type == proto::BYTES ? MakeTextLabels(make, ctx, in, out) : make(ctx, in, out);
}

}  // namespace troupe::gpu
